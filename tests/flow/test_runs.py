"""The scripts that repeat published figures: whose pictures they learn from, and what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reproduce.studies import curated, nonliteral, regions
from reproduce.studies.common import HEAD, NAMES, line, selection, subtext
from subtext.data.read import read
from subtext.recipes.catalogue import methods, models, plan_options


def test_the_last_train_pictures_select_and_the_first_are_learnt_from(tmp_path: Path) -> None:
    splits = ["train"] * 3 + ["val"] + ["train"] * 3
    rows = [{"image": f"{place}.jpg", "split": split} for place, split in enumerate(splits)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def chosen(first: int | None) -> dict[str, str]:
        made = selection(tmp_path / "all.jsonl", tmp_path / "chosen.jsonl", held_out=2, first=first)
        found = [json.loads(text) for text in made.read_text(encoding="utf-8").splitlines()]
        return {row["image"][0]: row["split"] for row in found}

    assert chosen(None) == {
        "0": "train",
        "1": "train",
        "2": "train",
        "4": "train",
        "5": "select",
        "6": "select",
        "3": "val",
    }
    assert chosen(1) == {"0": "train", "5": "select", "6": "select", "3": "val"}


def test_a_row_has_means_ranges_and_the_largest_memory() -> None:
    results = [
        dict.fromkeys(NAMES, value) | {"rsum": 6 * value, "seconds": 2.0, "processor_seconds": 1.0, "peak_mb": peak}
        for value, peak in ((10.0, 300.0), (20.0, 400.0))
    ]
    told = line("plain", results)
    assert "15.0 / 15.0 / 15.0 [10.0-20.0]" in told
    assert "90.0 [60.0-120.0]" in told
    assert told.endswith("| 2 (1) | 400 |")
    assert told.count("|") == HEAD.splitlines()[0].count("|")


def test_gains_are_told_seed_by_seed_over_the_controls_that_are_there() -> None:
    results = {"pvse": [{"rsum": 200.0}, {"rsum": 190.0}], "hal": [{"rsum": 201.5}, {"rsum": 188.0}]}
    told = nonliteral.gains(results)
    assert told[-1] == "| hal | pvse | -0.2 | +1.5, -2.0 |" and len(told) == 4


def test_every_row_of_the_study_has_controls_that_are_rows() -> None:
    assert set(nonliteral.CONTROLS) == set(nonliteral.ROWS)
    assert {control for controls in nonliteral.CONTROLS.values() for control in controls} <= set(nonliteral.ROWS)


def test_every_row_of_regions_names_recipes_and_options_that_exist() -> None:
    for name, words in regions.ROWS.items():
        host, *rest = words.split()
        recipe = models()[host]
        own = {option.name: option for option in (*recipe.options, *plan_options(recipe.plan))}
        for flag, value in zip(rest, [*rest[1:], ""], strict=True):
            if flag == "--with":
                known, _, given = value.partition(":")
                methods()[known].arguments(dict(piece.split("=") for piece in filter(None, given.split(","))))
            elif flag.startswith("--"):
                option = own[flag.removeprefix("--").removeprefix("no-").replace("-", "_")]
                assert option.type is bool or option.read(value) is not None, name


def test_an_archive_is_loosened_wholly_and_within_its_splits(tmp_path: Path) -> None:
    words = ["red", "blue", "green", "black", "dog", "cat", "bird", "car", "tree", "house", "boat", "horse"]
    rows = [
        {
            "image": f"{n}.jpg",
            "captions": [f"{words[n % 12]} {words[n % 11]} {n}", f"{words[n % 7]} by {words[n % 5]}{n}"],
        }
        for n in range(150)
    ]
    for n, row in enumerate(rows):
        row["split"] = "val" if n % 3 == 0 else "train"
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs = read(file, need_images=False)
    planted = curated.loosened(pairs, {"neighbour": 0.2, "mismatch": 0.1}, ("train", "val"))
    for split, count in (("train", 200), ("val", 100)):
        own = pairs.texts.splits == split
        kinds = planted.kinds[own].tolist()
        assert (kinds.count("neighbour"), kinds.count("mismatch")) == (count // 5, count // 10)
        assert (pairs.texts.splits[planted.source[own]] == split).all()
    again = curated.loosened(pairs, {"neighbour": 0.2, "mismatch": 0.1}, ("train", "val"))
    assert (again.source == planted.source).all()
    assert curated.loosened(pairs, {}, ("train",)).dataset is pairs


def test_kinds_of_an_archive_are_told_beside_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.array(["", "mismatch", "", "neighbour"])
    links = np.stack([np.arange(4), np.array([0, 1, 2, 3])], axis=1)
    columns = {"mismatched": [0.1, 0.9, 0.2, 0.3], "loose": [0.1, 0.1, 0.2, 0.6]}
    kind = ["literal", "mismatched", "literal", "mismatched"]
    found = SimpleNamespace(shares={"loose": 0.3, "mismatched": 0.2})
    monkeypatch.setattr(curated, "kinds_of_pairs", lambda *_, graph: ({**columns, "kind": kind}, found))
    told = curated.figures(SimpleNamespace(links=links), truth, None, None, None)
    assert set(told) == set(curated.FIGURES)
    assert told["auc mismatched"] == told["auc loose"] == 1.0 and told["right"] == 0.5
    clean = curated.figures(SimpleNamespace(links=links), np.full(4, ""), None, None, None)
    assert not {"auc loose", "auc mismatched", "right"} & set(clean) and clean["share loose"] == 0.3


def test_a_command_that_fails_ends_the_script(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="this failed: subtext data check"):
        subtext(["data", "check", str(tmp_path / "nothing.jsonl")])


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("SUBTEXT_DATA" not in os.environ, reason="needs SUBTEXT_DATA")
def test_tiny_coco_learns_from_pixels(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "reproduce.studies.pixels",
        "--out",
        str(tmp_path),
        "--rows",
        "tiny_coco",
        "--seeds",
        "0",
    ]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=550).stdout
    assert "tiny_coco, seed 0: text_to_image/recall@10" in told
    assert "chance 20.0" in told
    record = json.loads((tmp_path / "tiny-coco-0" / "run.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished"
