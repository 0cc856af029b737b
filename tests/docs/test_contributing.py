"""The guide's four parts are added to a copy of the repository, as it says, and the tests pass there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from find_parts import ROOT

PARTS = ROOT / "docs" / "parts.md"
_STEP = re.compile(
    r"^(?:New file `(?P<new>[^`]+)`|Add to `(?P<add>[^`]+)`"
    r"|In `(?P<file>[^`]+)`, insert before `(?P<before>[^`]+)`):\n\n"
    r"```text\n(?P<block>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)
_OPTIONS = "tests/recipes/test_every_option.py::test_"
WALKERS = (
    "tests/house", "tests/docs/test_documents.py", "tests/objectives", "tests/evaluation/metrics",
    "tests/evaluation/test_evaluate.py", "tests/evaluation/test_compare.py", "tests/evaluation/test_extra_metrics.py",
    "tests/data/readers", "tests/data/test_bad_data.py", f"{_OPTIONS}every_method_is_covered",
    f"{_OPTIONS}method_option_changes_training_or_raises[logistic]",
    f"{_OPTIONS}model_option_acts_beside_method_or_raises[vse]",
    f"{_OPTIONS}model_option_acts_beside_method_or_raises[dual]",
)  # fmt: skip
"""Tests that walk the package, and those of the rooms that the parts belong to.

Of the options of models beside methods, which take minutes, those of two models.
"""
RUNS = ("contract", "1"), ("not contract", "0")
"""As `make test` does it: the contracts of all parts with shapes checked at every call, everything else without."""


def copy_of_repository(folder: Path) -> Path:
    """The files that git knows, in a folder of their own."""
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def add_parts(root: Path) -> list[str]:
    """Do what the page says, step by step; gives the files that it names."""
    steps = list(_STEP.finditer(PARTS.read_text(encoding="utf-8")))
    assert len(steps) == PARTS.read_text(encoding="utf-8").count("```text"), "a block without a step before it"
    for step in steps:
        block = step["block"] + "\n"
        if step["new"]:
            file = root / step["new"]
            assert not file.exists()
            file.write_text(block, encoding="utf-8")
        elif step["add"]:
            file = root / step["add"]
            file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{block}", encoding="utf-8")
        else:
            file = root / step["file"]
            text = file.read_text(encoding="utf-8")
            assert len(re.findall(f"^{re.escape(step['before'])}", text, re.MULTILINE)) == 1, step["before"]
            changed = re.sub(f"^{re.escape(step['before'])}", lambda found: block + found[0], text, flags=re.MULTILINE)  # noqa: B023
            file.write_text(changed, encoding="utf-8")
    return [str(step["new"] or step["add"] or step["file"]) for step in steps]


def test_contributing_guide_names_the_page_of_its_four_parts(tmp_path: Path) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "docs/parts.md" in guide
    copied = copy_of_repository(tmp_path / "copy")
    named = add_parts(copied)
    for kind in ("objectives/losses/", "objectives/weighting.py", "evaluation/metrics/", "data/readers/"):
        assert any(kind in name for name in named)
    page = PARTS.read_text(encoding="utf-8")
    tests = [path for words in re.findall(r"`pytest ([^`]*)`", page) for path in re.findall(r"tests/\S+", words)]
    assert len(tests) > 8 and all((copied / path).exists() for path in tests)
    assert page.count("Tests: `pytest") == page.count("\n## ")


@pytest.mark.slow
def test_contributing_guide_parts_pass_the_tests_of_a_copy(tmp_path: Path) -> None:
    copied = copy_of_repository(tmp_path / "copy")
    add_parts(copied)
    environment = {**os.environ, "PYTHONPATH": str(copied / "src"), "OMP_NUM_THREADS": "1"}

    def run(*command: str, check_shapes: str = "0") -> None:
        own = environment | {"CHECK_SHAPES": check_shapes}
        done = subprocess.run([sys.executable, *command], cwd=copied, env=own, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

    run("docs/generate.py")
    run("-m", "ruff", "format", "--check", ".")
    run("-m", "ruff", "check", ".")
    for kind, check_shapes in RUNS:
        marked = ("-m", f"{kind} and not slow and not gpu", "--basetemp", str(tmp_path / "pytest"))
        # The examples of the other pages take minutes, and walk nothing.
        few = ("-k", "not test_document_examples_run")
        run("-m", "pytest", "-q", "-x", *marked, *few, *WALKERS, check_shapes=check_shapes)
