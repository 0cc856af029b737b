"""Data sets in memory: made of rows, cut into pairs, and taken by every verb in place of a path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import torch
from command import call
from PIL import Image

import subtext as st
from subtext.api.load import IN_MEMORY
from subtext.api.train import flat_arguments
from subtext.data.dataset import fingerprint
from subtext.errors import ArgumentError, CheckpointError, DataError, RecipeError, RequirementError
from subtext.evaluation.metrics import CWay, Recall

SMALL: dict[str, Any] = {"embed_dim": 16, "word_dim": 8, "batch_size": 16, "workers": 0, "quiet": True}
ROWS: list[dict[str, Any]] = [
    {"image": f"{n}.png", "captions": [f"image {n}", f"words of {n}"], "split": "train", "year": 1990 + n}
    for n in range(4)
]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for n in range(4):
        Image.new("RGB", (8, 8), (60 * n, 0, 0)).save(tmp_path / f"{n}.png")
    return tmp_path


def test_rows_and_data_frames_are_read(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    path = made_data.write_rows(photos / "pairs.jsonl", ROWS)
    from_file, from_rows = st.read(path), st.read(ROWS, images=photos)
    assert fingerprint(from_rows) == fingerprint(from_file) and from_rows.images.metadata["year"] == [
        *range(1990, 1994)
    ]
    frame = pandas.DataFrame([*ROWS[:3], {"image": "3.png", "captions": "alone"}])  # without split and year
    with pytest.raises(DataError, match="row 4: has no split, and other rows have one"):
        st.read(frame, images=photos)
    assert len(st.read(frame, images=photos, on_error="skip")) == 6
    # Lists of a Parquet file are arrays in a frame; empty cells are of many kinds.
    odd = pandas.DataFrame({
        "image": ["0.png", "1.png"], "captions": [np.array(["image 0", "words of 0"]), np.array(["image 1"])],
        "year": pandas.array([1990, None], "Int64"), "on": [pandas.NaT, pandas.Timestamp("1991-02-03")],
    })  # fmt: skip
    of_arrays = st.read(odd, images=photos)
    assert of_arrays.texts.values == ["image 0", "words of 0", "image 1"]
    assert of_arrays.images.metadata["year"] == [1990, None] and of_arrays.images.metadata["on"][0] is None
    of_paths = st.read([{**row, "image": Path(row["image"])} for row in ROWS], images=photos)
    assert fingerprint(of_paths) == fingerprint(from_file)
    monkeypatch.chdir(photos)
    assert fingerprint(st.read(ROWS)) == fingerprint(from_file)
    with pytest.raises(DataError, match="image 'gone"):
        st.read([ROWS[0], {**ROWS[1], "image": "gone.png"}])
    for wrong in (5, ["a.jpg"], [ROWS[0], None]):
        with pytest.raises(ArgumentError, match="needs a path, or rows such as"):
            st.read(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="needs at least one image; it has none"):
        st.read([])


def test_dataset_indexing_selects_pairs(photos: Path) -> None:
    dataset = st.read(ROWS, images=photos)
    assert len(dataset[:3]) == 3 and dataset[:3].images.ids == ["0.png", "1.png"]
    assert dataset[[7, 0]].texts.values == ["words of 3", "image 0"] and dataset[-1].texts.values == ["words of 3"]
    assert dataset.select(dataset.to_frame()["year"] > 1991).images.ids == ["2.png", "3.png"]
    # The other text of the first image is there, but its pair is not.
    two_of_three = dataset.select([0, 3])
    assert two_of_three.links.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(IndexError):
        dataset[8]
    with pytest.raises(ArgumentError, match=r"dataset\.split\('train'\)"):
        dataset["train"]  # type: ignore[index]


def test_numpy_numbers_are_accepted(trained: tuple[st.Run, st.Dataset, Path]) -> None:
    run, dataset, features = trained
    with pytest.raises(ArgumentError, match="batch_size needs 1 or more; it got 0"):
        st.embed(run, data=dataset, batch_size=np.int64(0))
    result = st.evaluate(run, data=dataset, split="test", metrics=[Recall(np.int64(1)), CWay(np.int64(2))], quiet=True)
    assert any("2_way" in name for name in result.figures)
    numbers = {"embed_dim": np.int64(24), "lr": np.float32(0.5), "epochs": torch.tensor(3), "mlp": np.bool_(False)}
    options: dict[str, Any] = SMALL | {"features": features, "out": features.with_name("numbers"), "dry_run": True}
    built = st.train(
        "dual",
        **flat_arguments(
            "dual", {"data": dataset, **options | numbers, "methods": [("smooth_ap", {"weight": np.float32(0.25)})]}
        ),
    )
    assert built.record.arguments["embed_dim"] == 24 and built.record.arguments["mlp"] is False
    assert built.record.methods[0][1]["weight"] == 0.25 and "\n3 epochs of " in str(built)
    with pytest.raises(RecipeError, match=r"^embed_dim needs a whole number; it got an array of shape \(1,\)$"):
        st.train("dual", **flat_arguments("dual", {"data": dataset, **options | {"embed_dim": np.array([3])}}))


def test_dataset_in_memory_is_checked_again(photos: Path) -> None:
    dataset = st.read([*ROWS, {**ROWS[0], "image": "gone.png"}], images=photos, on_error="skip")
    assert len(dataset.problems) == 1 and not st.read(dataset).problems
    assert st.check_dataset(dataset).path == IN_MEMORY and st.check_dataset(dataset).images == 4
    (photos / "2.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"2\.png is no image that can be read"):
        st.read(dataset, verify=True)
    with pytest.raises(ArgumentError, match="has its splits already"):
        st.read(dataset, split_seed=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[st.Run, st.Dataset, Path]:
    """A run of a part of a data set in memory, that part, and its feature file."""
    folder = tmp_path_factory.mktemp("in_memory")
    data, features = made_data.write(folder)
    dataset = st.read(data, need_images=False)[4:]
    run = st.train(
        "vse",
        **flat_arguments("vse", {"data": dataset, "features": features, "out": folder / "run", "epochs": 2, **SMALL}),
    )
    return run, dataset, features


def test_training_records_the_fingerprint_and_resumes(trained: tuple[st.Run, st.Dataset, Path]) -> None:
    run, dataset, features = trained
    record = json.loads((run.path / "run.json").read_text())
    assert record["data"]["data"] is None and record["data"]["features"] == str(features)
    assert record["fingerprint"] == "-".join(fingerprint(dataset.split(name)) for name in ("train", "val"))
    again: dict[str, Any] = {"features": features, "out": run.path, "resume": True, "epochs": 2, **SMALL}
    assert st.train("vse", **flat_arguments("vse", {"data": dataset, **again})).record.epochs == 2
    with pytest.raises(CheckpointError, match="differs in the pairs"):
        st.train("vse", **flat_arguments("vse", {"data": dataset[:-30], **again}))
    assert "in memory" in str(st.list_runs([run.path]))


def test_run_of_data_in_memory_needs_data_argument(trained: tuple[st.Run, st.Dataset, Path]) -> None:
    run, dataset, _ = trained
    with pytest.raises(
        RequirementError, match=r"^data needs .* remembers none.* pass that, or the path of a file \(data=DATA\)$"
    ):
        st.evaluate(run, quiet=True)
    assert (
        "--data needs a data set; none was given, and none is remembered"
        in call("evaluate", run.path, "-q", code=1).stderr
    )
    roles = {"train": "training", "val": "selection", "test": "held out"}
    for split, role in roles.items():
        result = st.evaluate(run, data=dataset, split=split, quiet=True)
        assert result.about["split_role"] == role
        assert result.about["data"]["data"] is None and result.about["data"]["fingerprint"] == fingerprint(dataset)
    assert st.evaluate(run, data=dataset[10:], split="test", quiet=True).about["split_role"] == "unknown"
    with pytest.raises(DataError, match=r"the list of rows needs a text column .*columns=\{'text': 'COLUMN'\}"):
        st.evaluate(run, data=[{"image": "a.jpg"}])


def test_audit_of_data_in_memory_compares_training_pairs(
    trained: tuple[st.Run, st.Dataset, Path],
) -> None:
    run, dataset, _ = trained
    audit = st.audit(run, data=dataset, split="test", quiet=True)
    outcomes = {check.name: check.outcome for check in audit.checks}
    assert outcomes["held-out"] == outcomes["vocabulary"] == "pass" and audit.about["data"] == IN_MEMORY
    other = st.audit(run, data=dataset[10:], split="test", quiet=True)
    found = {check.name: check.found for check in other.checks}
    assert "remembers none" in found["vocabulary"]


def test_index_is_built_from_data_in_memory(trained: tuple[st.Run, st.Dataset, Path], tmp_path: Path) -> None:
    run, dataset, _ = trained
    index = tmp_path / "index"
    built = st.build_index(index, run=run, data=dataset[:40], quiet=True)
    added = st.add_to_index(index, data=dataset, quiet=True)
    assert built.counts["texts"] == 40 and added.counts["texts"] == len(dataset.texts) and added.unchanged == 60
    with pytest.raises(RequirementError, match=r"was made of no file.* name its data \(data\)"):
        st.update_index(index, quiet=True)
    with pytest.raises(RequirementError, match="an add needs a data set"):
        st.add_to_index(index, quiet=True)
    told = (
        r"no longer has [0-9]+ images and [0-9]+ texts, of its 174 items"
        r".*`update_index\(.*allow_deleting=114\)`"
    )
    with pytest.raises(DataError, match=told):
        st.update_index(index, data=dataset[:40], quiet=True)
    updated = st.update_index(index, data=dataset[:40], allow_deleting=114, quiet=True)
    assert updated.counts["texts"] == 40
    file = made_data.write_rows(tmp_path / "pairs.jsonl", [{"id": "photo002.jpg", "captions": ["words"]}])
    st.add_to_index(index, data=file, quiet=True)
    with pytest.raises(RequirementError, match="cannot read data in memory again; set keep_missing"):
        st.update_index(index, data=dataset[:40], quiet=True)
    assert st.update_index(index, data=dataset[:40], keep_missing=True, quiet=True).deleted == 0
    other = st.train(
        "vse",
        **flat_arguments(
            "vse", {"data": dataset, "features": trained[2], "out": tmp_path / "other", "seed": 1, "epochs": 1, **SMALL}
        ),
    )
    moved = st.move_index(index, run=other, data=dataset, even_if_worse=True, quiet=True)
    assert moved.counts == {"images": 20, "texts": 40}


def test_other_functions_accept_data_in_memory(trained: tuple[st.Run, st.Dataset, Path], tmp_path: Path) -> None:
    run, dataset, _ = trained
    assert len(st.embed(run, data=dataset, quiet=True).texts) == len(dataset.texts)
    assert len(st.score(dataset, run=run, split="test", quiet=True)) == len(dataset.split("test"))
    resplit = st.prepare(dataset, resplit=True)
    assert resplit.dataset.counts() != dataset.counts() and len(resplit.dataset) == len(dataset)
    assert len(st.corrupt(dataset, noise_type="mismatch").dataset) == len(dataset)
    st.build_neighbours(tmp_path / "graph", data=dataset, space="lsa", dim=4, neighbours=3, quiet=True)
    with pytest.raises(DataError, match=r"it was in memory; pass it, or its file \(data=DATA\)"):
        st.show_neighbours(tmp_path / "graph")
    text = dataset.split("train").texts.ids[0]
    shown = st.show_neighbours(tmp_path / "graph", data=dataset, item=text)
    assert len(shown.neighbours) == 3 and np.isfinite(shown.neighbours[0]["distance"])
