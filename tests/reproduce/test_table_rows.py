"""A row of one's own in a published table, and options that rows choose by validation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
from command import call, invoke

from reproduce.tables.config import DataPaths, TableConfig
from reproduce.tables.run import RowResult
from reproduce.tables.sheet import sheet_of
from reproduce.tables.specification import tables
from subtext.recipes.catalogue import methods

NAME = "cvprw2022_table2"
SMALL = ("embed_dim=16", "word_dim=8", "batch_size=16", "lr=0.005")
MINE = '''
from dataclasses import replace
from typing import Annotated
import subtext as st
from subtext.recipes.options import Setup

@st.register_method
def mymethod(setup: Setup, *, alpha: Annotated[float, "share of the gradient"] = 1.0) -> Setup:
    """Trains with a clipped gradient.

    Returns:
        The changed setup.
    """
    return replace(setup, plan=replace(setup.plan, max_grad_norm=alpha))
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write(folder)
    (folder / "mymethod.py").write_text(MINE)
    return folder


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    methods().pop("mymethod", None)


def words(made: Path, out: Path, rows: str) -> list[object]:
    changes = [word for change in SMALL for word in ("--set", change)]
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--features", f"mine={made / 'features.npz'}"]
    quick = ["--rows", rows, "--epochs", 1, "--c", 3, "--workers", 0, "--device", "cpu", "-q"]
    return ["table", NAME, *data, *quick, *changes, "--out", out]


def told(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / f"{NAME}.json").read_text()))


def own(made: Path, text: str = "MINE=pvse+mymethod:alpha=0.2") -> tuple[object, ...]:
    return ("--add-row", text, "--import", made / "mymethod.py")


def test_row_of_ones_own_is_trained_beside_the_papers(made: Path, tmp_path: Path) -> None:
    call(*words(made, tmp_path, "pvse,MINE"), "--seeds", 1, *own(made))
    found = told(tmp_path)
    cells = {row["row"]: row["cells"] for row in found["rows"]}
    mine = cells["MINE"]["mine I→T"]
    assert len(mine["seeds"]) == 1 and mine["paper"] is None and mine["against"]["name"] == "PVSE"
    records = {
        key: json.loads((tmp_path / found["runs"][f"{key}/mine"][0] / "run.json").read_text())
        for key in ("pvse", "MINE")
    }
    assert records["MINE"]["methods"] == [["mymethod", {"alpha": 0.2}]]
    assert records["MINE"]["arguments"] == records["pvse"]["arguments"], "the options of the table's row"
    assert "**MINE**" in (tmp_path / "cvprw2022_table2.md").read_text()
    plan = (*words(made, tmp_path, "pvse,MINE"), "--seeds", 1, "--plan")
    assert "to train: 0" in call(*plan, *own(made)).stdout
    (made / "mymethod.py").write_text(MINE + "# other\n")
    methods().pop("mymethod")
    assert "to train: 1" in call(*plan, *own(made)).stdout, "other code is another row"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("MINE", "--add-row needs the form NAME=MODEL"),
        ("MINE=pvs", "no model called 'pvs'"),
        ("MINE=pvse+telepathy", "needs the method telepathy, which is not there; --import FILE registers methods"),
        ("MINE=pvse+mymethod:beta=1", "needs the option beta of the method mymethod"),
        ("MINE=pvse:heat=1", "needs the option heat of the model pvse"),
        ("pvse=pvse+mymethod", "the table has a row 'pvse' already"),
        ("MINE=pvse+mymethod:alpha", "needs options as OPTION=VALUE; it got 'alpha'"),
    ],
)
def test_row_that_cannot_be_raises(text: str, sentence: str, made: Path, tmp_path: Path) -> None:
    answer = invoke(*words(made, tmp_path, "pvse"), *own(made, text), "--plan")
    assert answer.exit_code in (1, 2) and sentence in answer.output


def test_file_that_cannot_be_imported_raises(made: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for file, sentence in ((tmp_path / "none.py", "is not there"), (tmp_path / "bad.py", "ZeroDivisionError")):
        answer = invoke(*words(made, tmp_path, "pvse"), "--import", file, "--plan")
        assert answer.exit_code in (1, 2) and sentence in answer.output


def test_option_of_the_tables_row_is_left_out(made: Path, tmp_path: Path) -> None:
    """`hal` replaces the loss, whose negatives nothing would read."""
    asked = (*words(made, tmp_path, "MINE"), "--seeds", 1, "--add-row")
    assert "negatives" in call(*asked, "MINE=pvse+hal", code=1).stdout
    call(*asked, "MINE=pvse:negatives=+hal")
    assert told(tmp_path)["rows"][0]["cells"]["mine I→T"]["seeds"]


def test_options_are_swept_by_validation(made: Path, tmp_path: Path) -> None:
    graph = ("--space", "lsa", "--neighbours", 4, "--seeds", 1)
    sweep = ("--sweep-option", "diversity.K=2,4", "--sweep-option", "diversity.lambda=32,196")
    asked: list[Any] = [*words(made, tmp_path, "pvse,diversity"), *graph, *sweep]
    plan = call(*asked, "--plan").stdout
    assert re.search(r"pvse +mine +1 +1 to train", plan) and re.search(r"diversity +mine +4 +4 to train", plan)
    call(*asked)
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("runs/mine/pvse+diversity-*/*/run.json")]
    tried = {(run["methods"][0][1]["neighbours"], run["methods"][0][1]["total_weight"]): run for run in runs}
    assert set(tried) == {(k, weight) for k in (2, 4) for weight in (32.0, 196.0)}
    best = max(run["best"]["rsum"] for run in runs)
    (chosen,) = told(tmp_path)["runs"]["diversity/mine"]
    record = json.loads((tmp_path / chosen / "run.json").read_text())
    assert record["best"]["rsum"] == best
    k = record["methods"][0][1]["neighbours"]
    assert any(f"diversity.neighbours = {k}, the best of 2, 4 with seed 0" in note for note in told(tmp_path)["notes"])


@pytest.mark.parametrize(
    ("sweep", "sentence"),
    [
        ("diversity.L=2,4", "none has 'diversity.L'"),
        ("hal.K=2", "none has 'hal.K'"),
        ("diversity.K=2,2", "needs different values"),
        ("diversity.K=two", "neighbours needs a whole number"),
    ],
)
def test_sweep_that_no_row_has_raises(sweep: str, sentence: str, made: Path, tmp_path: Path) -> None:
    answer = invoke(*words(made, tmp_path, "diversity"), "--sweep-option", sweep, "--plan")
    assert answer.exit_code in (1, 2) and sentence in answer.output


def test_star_is_by_seeds_from_three_seeds_on(made: Path, tmp_path: Path) -> None:
    """Trainings that spread widely have no star, however sure their queries are; two seeds speak for queries alone."""
    table = tables()[NAME]
    rows = table.select(["pvse", "mithun"])
    config = TableConfig(NAME, table, rows, tmp_path, {"mine": DataPaths(made / "pairs.jsonl")}, c=3)
    images = np.arange(200, dtype=np.int64)
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 200))

    def result(lifts: tuple[float, ...]) -> RowResult:
        values = np.stack([0.5 + lift + noise[seed] for seed, lift in enumerate(lifts)])
        ways = ("image_to_text", "text_to_image")
        figures = [dict.fromkeys(ways, float(row.mean())) for row in values]
        queries, clusters = dict.fromkeys(ways, values), dict.fromkeys(ways, images)
        return RowResult(figures={"question3": figures}, queries=queries, clusters=clusters)

    def starred(*lifts: float) -> bool:
        results = {("pvse", "mine"): result((0.0,) * len(lifts)), ("mithun", "mine"): result(lifts)}
        line = sheet_of(config, results).lines[1]
        test = next(cell.against for cell in line.cells if cell.ours)
        assert test is not None and test.difference > 0.1
        return test.sure

    assert starred(0.1, 0.4) and not starred(0.01, 0.02, 0.6) and starred(0.2, 0.21, 0.2)
