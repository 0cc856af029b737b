"""Every public name says what it is, every example runs, and the catalogue is what the code says."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import re
import runpy
from collections.abc import Iterator

import pytest
from find_parts import ROOT, SOURCE, module_names

MODULES = [name for name in module_names() if importlib.util.find_spec(name) is not None]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reproduce/*.md"), *ROOT.glob("reproduce/notes/*.md")]
)
DECISIONS = ROOT / "docs" / "decisions"


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring, by dotted name."""
    if not ast.get_docstring(tree):
        yield "(module)"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    is_public = isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_")
                    is_call = isinstance(inner, ast.FunctionDef) and inner.name == "__call__"
                    if (is_public or is_call) and not ast.get_docstring(inner):
                        yield f"{node.name}.{inner.name}"


def test_every_public_name_is_documented():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        names = list(undocumented(ast.parse(text))) if text.strip() else []
        if names:
            found[str(path.relative_to(SOURCE))] = names
    assert not found


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_catalogue_page_is_up_to_date():
    generator = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    page = ROOT / "docs" / "methods.md"
    assert page.read_text() == generator["catalogue"](), "docs/methods.md is out of date; run: python docs/generate.py"


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_resolve(page):
    # `make docs` writes the pages in docs/generated and fails where a link to one of them leads nowhere.
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if not link.startswith("generated/")]
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_decision_has_status_date_and_index_row():
    index = (DECISIONS / "index.md").read_text()
    for page in DECISIONS.glob("[0-9]*.md"):
        text = page.read_text()
        found = re.match(r"# (\d{4}\. .+)\n\nStatus: (.+)\n\nDate: (\d{4}-\d\d-\d\d)\n\n", text)
        assert found, page.name
        title, status, date = found.groups()
        assert f"| [{title}]({page.name}) | {status} | {date} |\n" in index
        assert status == "accepted" or status.startswith("superseded by [")
