"""`subtext table` as a user calls it, on a small made data set."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
from command import call, invoke
from dying_process import killed_at_flush

from reproduce.tables import sheet, trainings
from reproduce.tables.figure_names import FIGURES
from reproduce.tables.specification import Column, PublishedTable, Row, System, tables

SMALL = ("embed_dim=16", "word_dim=8", "batch_size=16", "lr=0.005")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write(folder)
    return folder


def words(made: Path, out: Path, rows: str = "pvse,mithun", *, name: str = "cvprw2022_table2") -> list[object]:
    changes = [word for change in SMALL for word in ("--set", change)]
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--features", f"mine={made / 'features.npz'}"]
    quick = ["--rows", rows, "--seeds", 2, "--epochs", 1, "--c", 3, "--workers", 0, "--device", "cpu", "-q"]
    return ["table", name, *data, *quick, *changes, "--out", out]


def told(out: Path, name: str = "cvprw2022_table2") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return found


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows with two seeds, undisturbed."""
    out = tmp_path_factory.mktemp("tables") / "whole"
    answer = call(*words(made, out))
    assert "MITHUN" in answer.stdout and "not run here" in answer.stdout
    return out


@pytest.mark.slow
def test_killed_table_resumes_to_equal_result(made: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    assert [killed_at_flush(lambda: call(*words(made, out)), flush) for flush in (20, 45, 60)] == [True] * 3
    first = sorted(out.glob("runs/*/*/seed0-*/run.json"))
    plan = call(*words(made, out), "--plan").stdout
    left = int(re.search(r"to train: (\d)", plan)[1])
    assert first and 0 < left < 4
    call(*words(made, out))
    assert told(out)["rows"] == told(whole)["rows"]
    assert told(out)["runs"] == told(whole)["runs"]
    assert not list(out.rglob(".writing-*"))


def test_finished_runs_are_not_retrained(made: Path, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*") if path.is_file()}
    assert len(before) > 20
    call(*words(made, whole))
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*") if path.is_file()} == before
    assert "to train: 0" in call(*words(made, whole), "--plan").stdout


def test_cells_contain_means_spreads_tests_and_published_numbers(whole: Path) -> None:
    found = told(whole)
    rows = {row["row"]: row["cells"] for row in found["rows"]}
    assert list(rows) == ["PVSE", "MITHUN"]
    ours, theirs = rows["MITHUN"]["mine I→T"], rows["PVSE"]["mine I→T"]
    assert len(ours["seeds"]) == 2 and ours["mean"] == pytest.approx(sum(ours["seeds"]) / 2)
    assert ours["spread"] == pytest.approx(abs(ours["seeds"][0] - ours["seeds"][1]) / 2**0.5)
    assert ours["against"]["name"] == "PVSE" and theirs["against"] is None and ours["paper"] is None
    # Every picture has two texts, and a text one picture: the mean over queries is the mean of the paired values.
    assert ours["against"]["difference"] == pytest.approx(ours["mean"] - theirs["mean"])
    assert found["protocol"]["seeds"] == 2 and found["protocol"]["trials"] == 1
    assert found["data"]["mine"]["sizes"]["scored"] == {"pictures": 8, "texts": 16, "pairs": 16}


def test_missing_dataset_leaves_cells_not_run(whole: Path) -> None:
    for row in told(whole)["rows"]:
        for data in ("COCO", "GoodNews", "Politics", "ConcCap"):
            cell = row["cells"][f"{data} I→T"]
            assert cell["not_run"] == f"not run: needs {data}" and cell["seeds"] == [] and cell["paper"] > 0.5
        assert row["cells"]["Avg"]["not_run"] == "not run: needs 8 more of 8 columns"
    page = (whole / "cvprw2022_table2.md").read_text()
    assert "| mine I→T | mine T→I |" in page and "0.6541" not in page
    assert "Left out, not measured: COCO I→T, " in page
    latex = (whole / "cvprw2022_table2.tex").read_text()
    assert "mine" in latex and "not run: needs COCO" not in latex and "not measured: COCO" in latex
    assert (whole / "cvprw2022_table2.svg").is_file()


def test_table_without_data_prints_published_numbers(tmp_path: Path) -> None:
    answer = call("table", "eccv2020_table2", "--out", tmp_path)
    assert "not run: needs COCO" in answer.stdout and "0.4867" in answer.stdout
    assert "to train: 0" in call("table", "eccv2020_table2", "--out", tmp_path, "--plan").stdout


def test_dataset_is_found_by_name_in_folder(made: Path, tmp_path: Path) -> None:
    (tmp_path / "coco").symlink_to(made)
    plan = call("table", "eccv2020_table2", "--data", tmp_path, "--out", tmp_path / "out", "--plan").stdout
    assert re.search(r"ours_trip +COCO +3 +3 to train", plan)


def test_rows_share_graph_and_report_missing_parts(made: Path, tmp_path: Path, monkeypatch: Any) -> None:
    found = tables()["cvprw2022_table2"]
    odd = Row("odd", "ODD", System("pvse", {}, (("telepathy", {}),)), (None,) * 9, baseline="pvse")
    weak = Row("weak", "WEAK", System("clip", {"model": str(tmp_path / "none")}), (None,) * 9)
    changed = PublishedTable(
        found.title, found.paper, found.columns, (*found.rows, odd, weak), found.plan, found.pixels, found.notes
    )
    monkeypatch.setitem(tables(), "cvprw2022_table2", changed)
    graph = ["--space", "lsa", "--neighbours", 4, "--split", "val", "--subset", 20]
    answer = call(*words(made, tmp_path, "pvse,thomas,diversity,odd,weak"), *graph, code=1)
    assert "ODD" in answer.stdout and "not run: needs the method telepathy" in answer.stdout
    assert re.search(r"note: Not run: WEAK on mine: .+", answer.stdout)
    assert len(list((tmp_path / "shared" / "mine").glob("text_graph-*"))) == 1
    cells = {row["row"]: row["cells"]["mine T→I"] for row in told(tmp_path)["rows"]}
    assert all(cells[name]["against"]["name"] == "PVSE" for name in ("THOMAS", "OURS-DIVERSITY"))
    assert cells["WEAK"]["not_run"] == "not run: see the notes"
    sizes = told(tmp_path)["data"]["mine"]["sizes"]
    assert [sizes[part]["pictures"] for part in ("train", "selection", "scored")] == [20, 4, 12]


@pytest.mark.slow
def test_unpublished_ratio_is_swept(made: Path, tmp_path: Path, monkeypatch: Any) -> None:
    # Three of the nine, for time.
    few = ((1, 1), (3, 1), (1, 5))
    for module in (trainings, sheet):
        monkeypatch.setattr(module, "RATIOS", few)
    graph = ["--space", "lsa", "--neighbours", 4, "--split", "val", "--sweep", 12, "--epochs", 2]
    mine = [*words(made, tmp_path, "combined_val"), *graph]
    plan = call(*mine, "--plan").stdout
    assert re.search(r"combined_val +mine +5 +5 to train", plan)
    call(*mine)
    found = told(tmp_path)
    chosen = found["swept"]["combined_val/mine"]
    assert (chosen["beta"], chosen["gamma"]) in few and found["protocol"]["sweep"] == 12
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("runs/mine/*/*/run.json")]
    assert len(runs) == 5, "three of the sweep with seed 0, and two seeds"
    last = next(run for run in runs if run["seed"] == 1)
    losses = {
        (run["methods"][0][1]["beta"], run["methods"][0][1]["gamma"]): run["best"]["loss"]
        for run in runs
        if run["fingerprint"] != last["fingerprint"]
    }
    assert set(losses) == set(few) and min(few, key=lambda ratio: losses[ratio]) == tuple(chosen.values())
    assert (last["methods"][0][1]["beta"], last["methods"][0][1]["gamma"]) == tuple(chosen.values())
    note = next(note for note in found["notes"] if note.startswith("OURS-COMBINED-VAL on mine: β = "))
    assert "the best of 3 ratios by validation loss" in note and "training on at most 12 images" in note
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/**/*") if path.is_file()}
    call(*mine)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/**/*") if path.is_file()} == before
    assert "to train: 0" in call(*mine, "--plan").stdout


def test_ratio_without_sweep_gives_note(made: Path, tmp_path: Path) -> None:
    graph = ["--space", "lsa", "--neighbours", 4, "--split", "val", "--sweep", 0, "--seeds", 1]
    call(*words(made, tmp_path, "combined_val"), *graph)
    found = told(tmp_path)
    assert found["swept"] == {"combined_val/mine": {"beta": 3.0, "gamma": 1.0}}
    assert any("β = 3, γ = 1, which was not swept" in note for note in found["notes"])


@pytest.mark.slow
def test_every_row_gets_equal_trials(made: Path, tmp_path: Path) -> None:
    call(*words(made, tmp_path), "--trials", 2)
    for folder in (tmp_path / "runs" / "mine").iterdir():
        runs = {path.name for path in folder.iterdir() if path.is_dir()}
        assert len(runs) == 3 and {"seed0-rate0.005", "seed0-rate0.015"} < runs
    note = told(tmp_path)["notes"][0]
    assert "every row tries 2 learning rates (x 1, x 3) with seed 0" in note


def test_gallery_smaller_than_choice_gives_note(made: Path, tmp_path: Path) -> None:
    again = [word if word != 3 else 50 for word in words(made, tmp_path, "pvse")]
    assert "a choice among 50 needs 49 wrong candidates a query" in call(*again, code=1).stdout


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--rows", "pvs"], "no row called 'pvs'; did you mean pvse"),
        (["--set", "embed_dmi=3"], "no option of these rows called 'embed_dmi'; did you mean embed_dim"),
        (["--set", "embed_dim=wide"], "embed_dim needs a whole number; it got 'wide'"),
        (["--trials", 9], "9 is not in the range 1<=x<=5"),
        (["--features", "other=f.npz"], "no data set of --data called 'other'"),
        (["--set", "embed_dim"], "--set needs the form NAME=VALUE; it got 'embed_dim'"),
    ],
)
def test_invalid_arguments_raise(made: Path, tmp_path: Path, more: list[object], sentence: str) -> None:
    answer = invoke(*words(made, tmp_path), *more)
    assert answer.exit_code in (1, 2) and sentence in answer.output
    assert not (tmp_path / "runs").exists()


def test_tables_are_listed_with_suggestions(tmp_path: Path) -> None:
    listed = call("table", "--list").stdout
    assert all(name in listed for name in tables()) and "coco (COCO, 100-way)" in listed
    assert "did you mean eccv2020_table1" in call("table", "eccv2020_tabel1", "--out", tmp_path, code=2).output
    assert "name a table" in call("table", code=2).output


def test_preservation_and_neighbour_scores_are_measured(made: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pvse = System("pvse", {"word_dim": 8})
    figures = ("image_preservation", "text_preservation", "diversity_mean", "discrepancy_deviation", "both")
    rows = (Row("pvse", "PVSE", pvse, (None,) * 4), Row("again", "PVSE, scores", pvse, (None,) * 4, "", "both"))
    columns = tuple(Column("coco", figure) for figure in figures[:4])
    made_table = PublishedTable("t", "p", columns, rows, tables()["cvprw2022_table2"].plan, {}, ())
    monkeypatch.setitem(tables(), "eccv2020_table3", made_table)
    graph = ["--space", "lsa", "--neighbours", 4]
    call(*words(made, tmp_path, "pvse,again", name="eccv2020_table3"), *graph)
    cells = told(tmp_path, "eccv2020_table3")["rows"][0]["cells"]
    values = {figure: cells[f"mine {FIGURES[figure].label}"]["mean"] for figure in figures[:4]}
    assert 0 <= values["image_preservation"] <= 1 and 0 <= values["text_preservation"] <= 1
    assert -1 <= values["diversity_mean"] <= 1 and 0 < values["discrepancy_deviation"] < 1
    # Both rows are one system: it is trained once.
    assert len(list((tmp_path / "runs" / "mine").iterdir())) == 1


def test_table_list_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from reproduce.tables.__main__ import main\n"
        "try:\n main(['--list'])\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'rich') if name in sys.modules], file=sys.stderr)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]" and "cvprw2022_table1" in done.stdout


def test_table_of_ranking_metrics(made: Path, tmp_path: Path) -> None:
    """R-Precision, recall and ASP of a row that can be trained; one whose host is not there says so."""
    call(*words(made, tmp_path, "vse0,pcme", name="daa2022_table2"))
    found = told(tmp_path, "daa2022_table2")
    rows = {row["row"]: row["cells"] for row in found["rows"]}
    heads = [f"mine {arrow} {label}" for arrow in ("I→T", "T→I") for label in ("R-P", "R@1", "ASP")]
    assert all(0 <= rows["VSE0"][head]["mean"] <= 1 for head in heads)
    assert all(0.3 < rows["VSE0"][head]["mean"] < 0.9 for head in heads if head.endswith("ASP"))
    assert rows["VSE0"]["CUB Captions I→T R@1"]["paper"] == 0.442
    host = System("pcme").lacks()
    assert not host or rows["PCME"][heads[0]]["not_run"] == f"not run: needs {host}"
    assert not any("choice among" in note for note in found["notes"])


def without_both(folder: Path, name: str) -> dict[str, Any]:
    """The cells of AsCL's row without generated texts, trained once on made regions, below out/."""
    regions = folder / "made"
    made_data.write_regions(regions)
    given = words(regions, folder / "out", "without_both", name=name)
    given[given.index(f"mine={regions / 'features.npz'}")] = f"mine={regions / 'regions.npz'}"
    call(*given, "--seeds", 1, "--set", "text=gru")
    found: dict[str, Any] = next(row["cells"] for row in told(folder / "out", name)["rows"] if row["row"] == "w/o P&N")
    return found


def test_table_of_recall_by_text_length(made: Path, tmp_path: Path) -> None:
    """Of fewer texts than a thousand all are drawn: the figures of `evaluate --words`."""
    cells = without_both(tmp_path, "ascl2024_figure5")
    run = next((tmp_path / "out" / "runs").rglob("run.json")).parent
    figures = json.loads(call("evaluate", run, "--split", "test", "--by-length", "--json", "-", "-q").stdout)
    seen = 0
    for size, count in figures["protocol"]["words"].items():
        head = size.removeprefix("words ")
        assert cells[f"mine texts of {head} words"]["mean"] == count
        for k in (1, 5, 10):
            if not count:
                assert cells[f"mine T→I R@{k}, {head} words"]["not_run"] == "nothing to measure it by"
                continue
            value = figures[f"text_to_image/recall@{k}({size})"] / 100
            assert cells[f"mine T→I R@{k}, {head} words"]["mean"] == pytest.approx(value, abs=1e-9)
        seen += count
    assert seen == figures["protocol"]["gallery"]["texts"] > 0


def test_table_of_joint_space(made: Path, tmp_path: Path) -> None:
    """The figures of `evaluate --space`, beside the numbers that the paper has."""
    cells = without_both(tmp_path, "ascl2024_figure4")
    assert cells["COCO text uniformity"]["paper"] == 1.391 and cells["COCO alignment"]["paper"] is None
    run = next((tmp_path / "out" / "runs").rglob("run.json")).parent
    named = ("evaluate", run, "--split", "test", "--alignment-uniformity", "--json", "-", "-q")
    figures = json.loads(call(*named).stdout)
    for name in ("alignment", "text/alignment", "image/uniformity", "text/uniformity", "text/uniformity_variance"):
        cell = cells[f"mine {name.replace('/', ' ').replace('_', ' ')}"]
        assert cell["mean"] == pytest.approx(figures[name], abs=1e-6) and not np.isnan(cell["mean"])
