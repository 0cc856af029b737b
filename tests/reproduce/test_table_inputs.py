"""Features for a graph or a density alone, and regions for the models that read them, beside pixels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
from command import call
from PIL import Image

from reproduce.tables.config import REGION_MODELS, DataPaths, TableConfig
from reproduce.tables.specification import System, tables
from reproduce.tables.trainings import training
from subtext.data.feature_file import FeatureFile, join_features

SMALL = ("image=tiny", "image_size=32", "embed_dim=16", "word_dim=8", "batch_size=16", "lr=0.005")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs with images, features.npz, regions.npz, cells.npz and both.npz."""
    folder, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    made_data.write(folder)
    names = [json.loads(line)["image"] for line in (folder / "pairs.jsonl").read_text().splitlines()]
    (folder / "images").mkdir()
    for name in names:
        Image.new("RGB", (32, 32), tuple(rng.integers(0, 255, 3).tolist())).save(folder / "images" / name)
    for file, count in (("regions", 3), ("cells", 4)):
        grid = rng.standard_normal((len(names), count, 6)).astype(np.float32)
        np.savez(folder / f"{file}.npz", names=np.array(names), grid=grid)
    parts = [FeatureFile.open(folder / f"{file}.npz") for file in ("cells", "regions")]
    join_features(*parts, folder / "both.npz")
    return folder


def words(made: Path, out: Path, name: str, rows: str, *more: object) -> list[object]:
    changes = [word for change in SMALL for word in ("--set", change)]
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--images", f"mine={made / 'images'}"]
    quick = ["--rows", rows, "--seeds", 1, "--epochs", 1, "--c", 3, "--workers", 0, "--device", "cpu", "-q"]
    return ["table", name, *data, *quick, *changes, "--out", out, *more]


def record_of(out: Path, name: str, row: str) -> dict[str, Any]:
    (run,) = json.loads((out / f"{name}.json").read_text())["runs"][f"{row}/mine"]
    return dict(json.loads((out / run / "run.json").read_text()))


def test_density_is_of_features_and_the_row_reads_pixels(made: Path, tmp_path: Path) -> None:
    name = "cvprw2022_table2"
    graph = ("--space", "lsa", "--neighbours", 4)
    refused = call(*words(made, tmp_path, name, "amrani"), "--plan").stdout
    assert "not run: needs --graph-features or --features, which its method reads" in refused
    call(*words(made, tmp_path, name, "amrani", "--graph-features", f"mine={made / 'features.npz'}", *graph))
    record = record_of(tmp_path, name, "amrani")
    assert record["data"]["features"] is None and record["arguments"]["image"] == "tiny"
    assert dict(record["methods"])["amrani"]["features"] == str((made / "features.npz").resolve())
    notes = json.loads((tmp_path / f"{name}.json").read_text())["notes"]
    assert any("graphs by images and densities have features of their own" in note for note in notes)


def test_graph_features_change_only_the_rows_that_read_them(made: Path, tmp_path: Path) -> None:
    table = tables()["eccv2020_table1"]
    ours = next(row for row in table.rows if row.system and "IMAGE_GRAPH" in str(row.system))
    plain = next(row for row in table.rows if row.key == "ours")

    def folder(row: Any, features: Path | None) -> Path:
        paths = DataPaths(made / "pairs.jsonl", made / "images", graph_features=features)
        return training(TableConfig("n", table, (row,), tmp_path, {"mine": paths}), row, "mine", seed=0).folder

    files = (made / "features.npz", made / "cells.npz")
    assert len({folder(ours, file) for file in files}) == 2
    assert len({folder(plain, file) for file in (None, *files)}) == 1


def test_model_of_regions_reads_them_beside_pixels(made: Path, tmp_path: Path) -> None:
    name = "daa2022_table1"
    bare = call(*words(made, tmp_path, name, "vse,sgraf"), "--plan").stdout
    assert re.search(r"vse +mine +1 +1 to train", bare)
    assert re.search(r"sgraf +mine +0 +not run: needs --regions or --features: its model reads regions", bare)
    regions = ("--regions", f"mine={made / 'regions.npz'}")
    call(*words(made, tmp_path, name, "vse,saf", *regions))
    assert record_of(tmp_path, name, "vse")["data"]["features"] is None
    record = record_of(tmp_path, name, "saf")
    assert record["data"]["features"] == str((made / "regions.npz").resolve())
    assert record["arguments"]["image"] == "auto"
    notes = json.loads((tmp_path / f"{name}.json").read_text())["notes"]
    assert any("models of regions read those of a detector, as in the paper" in note for note in notes)


def test_dsran_tells_cells_from_regions(made: Path, tmp_path: Path) -> None:
    table = tables()["ascl2024_table1"]
    row = next(row for row in table.rows if row.key == "dsran")

    def config(file: str, **changes: str) -> TableConfig:
        paths = DataPaths(made / "pairs.jsonl", made / "images", regions=made / file)
        return TableConfig("n", table, (row,), tmp_path, {"mine": paths}, changes=changes)

    assert "cells before the regions" in config("regions.npz").missing(row, "mine")
    assert not config("both.npz").missing(row, "mine")
    assert training(config("both.npz"), row, "mine", seed=0).options["grid_cells"] == 4
    changed = config("regions.npz", grid_cells="2")
    assert not changed.missing(row, "mine") and training(changed, row, "mine", seed=0).options["grid_cells"] == 2


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("daa2022_table1", {"features": "features.npz"}, "read pixels by a resnet-152 or regions of a detector."),
        ("ascl2024_figure4", {"features": "regions.npz"}, "where the rows of the paper read regions of a detector."),
        ("eccv2020_table1", {"features": "features.npz"}, "where the rows of the paper read pixels by a resnet-50."),
        ("daa2022_table1", {}, "not a data set of the paper."),
    ],
)
def test_note_on_features_is_that_of_the_paper(
    name: str, files: dict[str, str], says: str, made: Path, tmp_path: Path
) -> None:
    from reproduce.tables.sheet import sheet_of

    table = tables()[name]
    paths = DataPaths(made / "pairs.jsonl", **{kind: made / file for kind, file in files.items()})
    notes = sheet_of(TableConfig(name, table, table.rows, tmp_path, {"mine": paths}), {}).notes
    assert [note for note in notes if note.startswith("mine (images)") and note.endswith(says)]


def test_models_of_regions_are_known() -> None:
    trained = {row.system.model for table in tables().values() for row in table.rows if row.system}
    assert {"ascl", "dsran", "imram", "scan", "sgraf"} == trained & REGION_MODELS
    assert not any(System(model).lacks() for model in REGION_MODELS)
