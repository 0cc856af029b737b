"""What a release promises outside the code: its name, version, extras, Pythons and systems."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from find_parts import ROOT, SOURCE

from subtext import __version__
from subtext.retrieval.stores.registry import INSTALLED
from subtext.text_helpers import install_hint

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *SOURCE.rglob("*.py")]


def hinted_extras() -> Iterator[str]:
    """Every extra that the package names in a call of `install_hint`."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name("install_hint"), args=[ast.Constant(value=str(extra))]):
                    yield extra
    yield from INSTALLED


def test_install_hint_uses_clone():
    assert install_hint("serve") == "pip install '.[serve]' in a clone of Subtext"


def test_extras_named_in_messages_exist():
    named = set(hinted_extras())
    assert {"serve", "postgres", "heic"} <= named <= set(EXTRAS)


def test_extras_named_in_pages_and_docstrings_exist():
    named = {
        name
        for page in PAGES
        for group in re.findall(r"'\.\[([\w,]+)\]'", page.read_text())
        for name in group.split(",")
    }
    assert "serve" in named
    assert named - set(EXTRAS) == set()


def test_no_page_installs_from_package_index():
    # The name `subtext` there is another project's, and ours is not published.
    wrong = re.compile(r"pip install (?:-\S+ )*['\"]?subtext\b|['\"` ]subtext(?:-retrieval)?\[")
    of_hint = SOURCE / "text_helpers.py"
    assert [str(page.relative_to(ROOT)) for page in PAGES if page != of_hint and wrong.search(page.read_text())] == []


def test_combined_extras_name_this_distribution():
    own = [row for rows in EXTRAS.values() for row in rows if row.startswith("subtext")]
    assert len(own) == 3
    assert all(row.startswith(f"{PROJECT['name']}[") for row in own)


def test_citation_version_equals_package_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_ci_runs_every_classified_python():
    named = {found[1] for row in PROJECT["classifiers"] if (found := re.fullmatch(r".*:: (3\.\d+)", row))}
    block = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert block
    assert set(re.findall(r"3\.\d+", block[1])) == named
    assert min(named, key=lambda name: int(name[2:])) == PROJECT["requires-python"].removeprefix(">=")


@pytest.mark.parametrize("platform", ["win32", "linux", "darwin"])
def test_import_raises_on_windows_only(platform):
    code = f"import sys; sys.platform = {platform!r}; import subtext"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if platform == "win32":
        assert answer.returncode == 1
        last = answer.stderr.splitlines()[-1]
        assert last.startswith("ImportError: Subtext needs the file locks of Linux or macOS; this is Windows")
    else:
        assert (answer.returncode, answer.stderr) == (0, "")
