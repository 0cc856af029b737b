"""What a run leaves on disk: whole or not at all, JSON and tensors alone."""

from __future__ import annotations

import errno
import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_training
import torch
from safetensors.torch import save_file

from subtext.data.atomic import write_file, write_folder
from subtext.data.config import DataConfig
from subtext.errors import CheckpointError, OutputError
from subtext.models.checkpoint import (
    Record,
    fingerprint,
    load_record,
    load_run,
    put_tensors,
    read_tensors,
    save_record,
    save_run,
    write_tensors,
    write_text,
)
from subtext.training.plan import RunConfig
from subtext.version import FORMAT

RECORD = Record(
    model="pvse",
    arguments={"views": 4, "image": "grid"},
    methods=(("daa", {"weight": 0.1}), ("hal", {})),
    plan={"lr": 1e-3},
    phases=({"epochs": 1, "train": "heads", "factor": 1.0},),
    data=DataConfig("a.jsonl", features="f.npz", on_error="skip"),
    fingerprint="00",
    seed=7,
    best={"rsum": 123.4},
    best_epoch=2,
    versions={"torch": "2"},
)


def test_record_round_trip(tmp_path: Path) -> None:
    save_record(tmp_path, RECORD)
    assert load_record(tmp_path) == RECORD
    assert RECORD.differences(load_record(tmp_path)) == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(RECORD, arguments={"views": 5, "image": "grid"}), "--views 4 -> 5"),
        (replace(RECORD, model="vse"), "the model: pvse -> vse"),
        (
            replace(RECORD, methods=RECORD.methods[::-1]),
            "--with daa:weight=0.1 --with hal -> --with hal --with daa:weight=0.1",
        ),
        (replace(RECORD, plan={"lr": 1e-3, "clip": 1}), "--clip not given -> 1"),
        (replace(RECORD, model="vse", seed=3, arguments={"embed_dim": 1}, methods=()), "the model: pvse -> vse"),
        (replace(RECORD, methods=()), "--with daa:weight=0.1 --with hal -> no --with"),
        (replace(RECORD, fingerprint="11"), "the pairs: a.jsonl -> other pairs or other splits"),
    ],
)
def test_record_differences_are_listed(other: Record, named: str) -> None:
    found = RECORD.differences(other)
    assert len(found) == 1
    assert found[0].startswith(named)


def test_irrelevant_fields_are_no_difference() -> None:
    later = replace(RECORD, best={}, status="stopped", seconds=9.0, data=replace(RECORD.data, data="moved.jsonl"))
    assert RECORD.differences(later) == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "{", "[" * 100_000),
        '{"format": 1, "model": "\udcff"}',
        *(
            '{"format": 1, "model": "a", "colour": 1}',
            '{"format": 1, "data": {}}',
            '{"format": 1, "model":"a","data":3}',
        ),
        *('{"format": 1, "model": 3}', '{"format": 1, "model": "a", "plan": []}'),
        *('{"format": 1, "model": "a", "epochs": "3"}', '{"format": 1, "model": "a", "methods": {}}'),
    ],
)
def test_damaged_record_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"run\.json needs to be the record of a run"):
        load_record(tmp_path)


@pytest.mark.parametrize("number", [None, 2, "1", True])
def test_record_of_other_format_raises(tmp_path: Path, number: object) -> None:
    content = json.loads(RECORD.to_json())
    assert content.pop("format") == FORMAT
    (tmp_path / "run.json").write_text(json.dumps(content if number is None else {**content, "format": number}))
    with pytest.raises(CheckpointError) as refused:
        load_record(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'run.json'} was made by an earlier Subtext, which cannot be opened; "
        "build it again with `subtext train`"
    )


def test_folder_without_run_raises(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs to be the folder of a run"):
        load_record(tmp_path)
    save_record(tmp_path, RECORD)
    with pytest.raises(CheckpointError, match="did not finish an epoch"):
        load_run(tmp_path)


def test_run_round_trip_is_bit_identical(tmp_path: Path) -> None:
    model = small_training.setup().model
    save_run(tmp_path, model, RECORD)
    record, tensors = load_run(tmp_path)
    assert record == RECORD
    assert fingerprint(tensors) == fingerprint(model.state_dict())
    assert sorted(path.name for path in (tmp_path / "assets").rglob("*") if path.is_file()) == [
        "body.json",
        "traits.json",
        "vocabulary.json",
        "word_counts.json",
        "words.json",
    ]


def test_tensors_sharing_memory_are_saved_separately(tmp_path: Path) -> None:
    whole = torch.arange(12.0)
    tensors = {"whole": whole, "part": whole[3:6], "same": whole, "turned": whole.reshape(3, 4).T, "none": whole[:0]}
    write_tensors(tmp_path / "a.safetensors", tensors)
    for name, value in read_tensors(tmp_path / "a.safetensors").items():
        assert torch.equal(value, tensors[name]), name


def test_damaged_safetensors_raise(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="whole safetensors file"):
        read_tensors(path)
    with pytest.raises(CheckpointError, match="whole safetensors file"):
        read_tensors(tmp_path / "none.safetensors")


@pytest.mark.parametrize("place", [0.1, 0.5, 1.0])
def test_flipped_bit_in_run_raises(tmp_path: Path, place: float) -> None:
    save_run(tmp_path, small_training.setup().model, RECORD)
    path = tmp_path / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + int(place * (len(data) - 1 - start))] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors needs the tensors that were written .* damaged"):
        load_run(tmp_path)


def test_tensor_checksum_is_required_and_bytes_are_deterministic(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(9.0), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.tensor(True)}
    plain, path = tmp_path / "plain.safetensors", tmp_path / "a.safetensors"
    save_file(tensors, plain, metadata={"format": "pt"})
    write_tensors(path, tensors)
    write_tensors(tmp_path / "again.safetensors", tensors)
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert fingerprint(read_tensors(path)) == fingerprint(tensors)
    with pytest.raises(CheckpointError, match=r"needs the checksum .* it has none"):
        read_tensors(plain)


def test_fingerprint_detects_every_change() -> None:
    plain = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    others = [
        {"a": torch.ones(3), "c": torch.zeros(2, 2)},
        {"a": torch.ones(3), "b": torch.zeros(4)},
        {"a": torch.ones(3).double(), "b": torch.zeros(2, 2)},
        {"a": torch.nextafter(torch.ones(3), torch.tensor(2.0)), "b": torch.zeros(2, 2)},
    ]
    assert len({fingerprint(tensors) for tensors in [plain, *others]}) == 5
    assert fingerprint(dict(reversed(plain.items()))) == fingerprint(plain)
    assert len(fingerprint({"h": torch.ones(2, dtype=torch.bfloat16), "s": torch.tensor(1)})) == 32


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_keeps_existing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_record(tmp_path, RECORD)
    write_folder(tmp_path / "folder", lambda place: (place / "a").write_text("old") and None)
    monkeypatch.setattr("subtext.data.atomic.os.fsync", _full)
    with pytest.raises(OutputError, match=r"run\.json needs to be written.*no free space"):
        save_record(tmp_path, replace(RECORD, model="other"))
    with pytest.raises(OutputError, match="free some space"):
        write_folder(tmp_path / "folder", lambda place: (place / "a").write_text("new") and None)
    monkeypatch.undo()
    assert load_record(tmp_path) == RECORD
    assert (tmp_path / "folder" / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "run.json"]


MANY = np.zeros(100_000, dtype=np.float32)
WRITERS = {
    "text": lambda place: place.write_text("a" * 400_000) and None,
    "npy": lambda place: np.save(place.with_suffix(".npy"), MANY),
    "npz": lambda place: np.savez(place.with_suffix(".npz"), a=MANY),
    "parquet": lambda place: pq.write_table(pa.table({"a": np.random.default_rng(0).random(100_000)}), place),
    "tensors": lambda place: put_tensors(place, {"a": torch.from_numpy(MANY)}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_disk_errors_of_every_writer_raise_output_error(tmp_path: Path, kind: str) -> None:
    """The system itself refuses: no file may be larger than 100 KB here, as if there were no room for more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OutputError, match="no free space"):
            write_folder(tmp_path / "out", lambda place: WRITERS[kind](place / "file"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_existing_file_or_folder_is_kept_and_raises(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=r"folder needs to be free for a file; a folder stands there"):
        write_text(tmp_path / "folder", "a")
    with pytest.raises(OutputError, match=r"file needs to be free for a folder; a file stands there"):
        write_folder(tmp_path / "file", lambda place: None)
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "b" / "c"):
        with pytest.raises(OutputError, match=f"{path} needs to be written.*a file stands where a folder has to be"):
            write_text(path, "a")
        with pytest.raises(OutputError, match="a file stands where a folder has to be"):
            write_folder(path, lambda place: None)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EACCES, "name a place that you may write to"),
        (errno.EIO, "an error; what stood there before still stands"),
    ],
)
def test_other_os_errors_name_the_path(tmp_path: Path, number: int, told: str) -> None:
    def refuse(place: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(OutputError, match=rf"{tmp_path / 'a'} needs to be written, and cannot be: .*{told}"):
        write_file(tmp_path / "a", refuse)
    assert not list(tmp_path.iterdir())


def test_training_resumes_after_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint from before stands, and the training goes on from it to the same end."""
    whole = small_training.run(tmp_path / "whole")
    options = RunConfig(device="cpu", workers=0, checkpoint_every=2, keep_checkpoints=2)
    plain, left = os.fsync, [25]

    def flush(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            _full()
        plain(descriptor)

    with monkeypatch.context() as patch, pytest.raises(OutputError, match="no free space"):
        patch.setattr("subtext.data.atomic.os.fsync", flush)
        small_training.run(tmp_path / "run", options=options)
    assert not list((tmp_path / "run").rglob(".writing-*"))
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    end = small_training.run(tmp_path / "run", options=replace(options, resume=True))
    assert any("going on from step" in note for note in end.notes)
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())


def test_run_contains_no_pickle(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run")
    kinds = {path.suffix for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert kinds == {".json", ".jsonl", ".safetensors", ".md"}
