"""The examples run as scripts and have the cells of a notebook."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from find_parts import ROOT
from PIL import Image

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "shapes.py")


def test_five_examples_exist() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem == "index_and_search" else pytest.mark.slow)
        for path in EXAMPLES
        if path.stem != "extend"
    ],
)
def test_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.syspath_prepend(str(example.parent))
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.slow
def test_extending_example_runs_in_own_process() -> None:
    example = ROOT / "examples" / "extend.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run([sys.executable, example], capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_notebook_using_public_api(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    cells = text.split("\n# %%")
    assert text.startswith("# %% [markdown]\n# # ") and len(cells) >= 4
    for cell in cells[1:]:
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") for line in cell.strip().splitlines()[1:])
    imports = [line for line in text.splitlines() if line.lstrip().startswith(("import subtext", "from subtext"))]
    assert imports == ["import subtext as st"]


def test_the_example_archive_is_what_its_script_draws(tmp_path: Path) -> None:
    archive = ROOT / "examples" / "archive"
    runpy.run_path(str(archive / "draw.py"))["write"](tmp_path)
    drawn = {path.name: path for path in tmp_path.iterdir()}
    assert len(drawn) == 61
    for name, path in drawn.items():
        if name == "captions.jsonl":
            assert path.read_text(encoding="utf-8") == (archive / name).read_text(encoding="utf-8")
        else:
            assert Image.open(path).tobytes() == Image.open(archive / name).tobytes(), name
