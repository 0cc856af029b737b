"""Frozen encoders are run once, and what is read back is what they made."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch

from subtext.core import Encoded
from subtext.data.batches import item_batch
from subtext.data.inputs import Tensors
from subtext.errors import CheckpointError, DataError, RequirementError
from subtext.models.checkpoint import fingerprint
from subtext.models.feature_cache import (
    Sources,
    find_cached_outputs,
    open_cached_branch,
    why_not_cacheable,
    write_cache,
)
from subtext.models.model import Branch
from subtext.training.plan import Phase, Plan, RunConfig

CPU = torch.device("cpu")
FROZEN = Plan(epochs=2, batch_size=16, lr=1e-2, freeze_epochs=-1, select="last")


def _cached(branch: Branch, folder: Path, *, precision: str = "float32", weights: str = "w") -> Branch:
    sources = [(small_training.pairs().images, Path()), (small_training.pairs(12, "val").images, Path())]
    write_cache(branch, sources, folder, weights=weights, precision=precision, device=CPU)
    return open_cached_branch(branch, sources, folder, weights=weights, precision=precision)


def _written(branch: Branch, sources: Sources, folder: Path) -> Path:
    return write_cache(branch, sources, folder, weights="w", precision="float32", device=CPU)


def _encoded(branch: Branch, rows: list[int], split: str = "val") -> Encoded:
    items = small_training.pairs(12, split).images
    with torch.no_grad():
        return branch.encoder(branch.input_spec(item_batch(items, np.array(rows, dtype=np.int64), Path())))


def _calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    plain = small_training.Body.forward

    def counted(self: small_training.Body, inputs: Tensors) -> Encoded:
        seen.append(len(inputs["ids"]))
        return plain(self, inputs)

    monkeypatch.setattr(small_training.Body, "forward", counted)
    return seen


def _reading_all(branch: Branch) -> Branch:
    """The branch with a head that says that it reads every output."""
    branch.head.inputs = ("parts", "pooled")
    return branch


def test_only_outputs_used_by_head_are_stored(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    assert branch.head.inputs == ("pooled",)
    pooled = _cached(branch, tmp_path)
    names = {"about.json", "items.npy", "outputs.npy", "lengths.npy", "pooled.npy"}
    assert {file.name for file in pooled.input_spec.folder.iterdir()} == names
    every = _cached(_reading_all(branch), tmp_path)
    assert every.input_spec.folder != pooled.input_spec.folder and _encoded(every, [1]).parts is not None


@pytest.mark.parametrize(("precision", "near"), [("float32", 0.0), ("float16", 1e-3)])
def test_cached_outputs_equal_encoder_outputs(tmp_path: Path, precision: str, near: float) -> None:
    branch = _reading_all(small_training.setup().model.image.eval())
    cached = _cached(branch, tmp_path, precision=precision)
    mine, theirs = _encoded(cached, [3, 11, 0, 3]), _encoded(branch, [3, 11, 0, 3])
    torch.testing.assert_close(mine.pooled, theirs.pooled, rtol=near, atol=max(near, 1e-7))
    torch.testing.assert_close(mine.parts, theirs.parts, rtol=near, atol=max(near, 1e-7))
    assert mine.mask is None
    assert (cached.encoder.parts_width, cached.encoder.pooled_width) == (16, 16)


def test_unequal_parts_are_cached_with_mask(tmp_path: Path) -> None:
    class Uneven(small_training.Body):
        """As many parts as the id's last digit, plus one."""

        def forward(self, inputs: Tensors) -> Encoded:
            pooled = torch.tanh(self.body(inputs["pooled"]))
            count = 1 + inputs["ids"] % 3
            parts = pooled[:, None] * torch.arange(1.0, 5.0)[None, :, None]
            return Encoded(parts=parts, mask=torch.arange(4)[None] < count[:, None])

    branch = small_training.setup().model.image
    branch = _reading_all(Branch(branch.input_spec, Uneven(), branch.head).eval())
    cached = _cached(branch, tmp_path)
    mine, theirs = _encoded(cached, [1, 5, 2]), _encoded(branch, [1, 5, 2])
    assert mine.pooled is None
    assert mine.mask is not None and theirs.mask is not None
    assert mine.mask.sum(1).tolist() == theirs.mask.sum(1).tolist() == [2, 3, 3]
    for row in range(3):
        torch.testing.assert_close(mine.parts[row][mine.mask[row]], theirs.parts[row][theirs.mask[row]])
    assert mine.parts.shape[1] == 3


def test_cache_key_depends_on_weights_items_and_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    branch = small_training.setup().model.image.eval()
    folders = {_cached(branch, tmp_path).input_spec.folder}
    folders.add(_cached(branch, tmp_path, weights="other").input_spec.folder)
    folders.add(_cached(branch, tmp_path, precision="float16").input_spec.folder)
    seen.clear()
    assert _cached(branch, tmp_path).input_spec.folder in folders
    assert not seen
    assert len(folders) == len(list(tmp_path.iterdir())) == 3


def test_changed_image_changes_cache_key(tmp_path: Path) -> None:
    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"one")
    items = replace(small_training.pairs(1).images, values=["a.jpg"])
    branch = small_training.setup().model.image.eval()
    sources = [(items, tmp_path)]
    first = write_cache(branch, sources, tmp_path / "c", weights="w", precision="float32", device=CPU)
    picture.write_bytes(b"three")
    assert write_cache(branch, sources, tmp_path / "c", weights="w", precision="float32", device=CPU) != first


def test_augmenting_input_raises(tmp_path: Path) -> None:
    branch = small_training.setup(noise=0.1).model.image
    sources = [(small_training.pairs().images, Path())]
    assert "augmented" in str(why_not_cacheable(branch, sources))
    with pytest.raises(RequirementError, match="outputs that stay the same; its input is augmented"):
        write_cache(branch, sources, tmp_path, weights="w", precision="float32", device=CPU)


def test_one_id_for_two_items_raises() -> None:
    images = small_training.pairs(2).images
    sources = [(images, Path()), (replace(images, values=["other.jpg", None]), Path())]
    assert "'train000' stands for two items" in str(why_not_cacheable(small_training.setup().model.image, sources))


def test_missing_cache_or_item_raises(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    with pytest.raises(DataError, match="it is not there; write it first"):
        open_cached_branch(
            branch, [(small_training.pairs().images, Path())], tmp_path, weights="w", precision="float32"
        )
    with pytest.raises(DataError, match="it has no 'test000'"):
        _encoded(_cached(branch, tmp_path), [0], split="test")
    with pytest.raises(RequirementError, match="got a cache"):
        _cached(branch, tmp_path).input_spec.save(tmp_path)


def test_killed_writer_leaves_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = small_training.setup().model.image.eval()
    monkeypatch.setattr(small_training.Body, "forward", lambda self, inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _cached(branch, tmp_path)
    assert not list(tmp_path.iterdir())


def test_training_from_cache_gives_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    cached = small_training.run(tmp_path / "cached", plan=FROZEN)
    assert sum(seen) == 40 + 12
    assert any("frozen image encoder was run once" in note for note in cached.notes)
    monkeypatch.setattr("subtext.training.frozen.why_not_cacheable", lambda branch, sources: "asked not to")
    seen.clear()
    plain = small_training.run(tmp_path / "plain", plan=FROZEN)
    assert sum(seen) > 2 * 80
    assert any("runs at every step: asked not to" in note for note in plain.notes)
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(cached.model.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert cached.record.best == plain.record.best


@pytest.mark.parametrize("change", [{"plan": replace(FROZEN, freeze_epochs=1)}, {"noise": 0.1}])
def test_trainable_or_augmented_encoder_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    seen = _calls(monkeypatch)
    small_training.run(tmp_path / "run", **{"plan": FROZEN, **change})
    assert sum(seen) > 2 * 80
    assert not (tmp_path / "run" / "cache").exists()


def test_head_only_phases_use_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    small_training.run(tmp_path / "run", plan=replace(FROZEN, freeze_epochs=0), phases=(Phase(1, "heads"),))
    assert sum(seen) == 40 + 12


def test_cached_training_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small_training.run(tmp_path / "whole", plan=FROZEN)
    options = RunConfig(device="cpu", workers=0, checkpoint_every=3, keep_checkpoints=9)
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    small_training.run(tmp_path / "run", plan=FROZEN, options=options, report=small_training.Interrupt(8))
    for late in sorted((tmp_path / "run" / "checkpoints").iterdir())[1:]:
        (late / "manifest.json").unlink()
    end = small_training.run(
        tmp_path / "run", plan=FROZEN, options=replace(options, resume=True, cache=tmp_path / "elsewhere")
    )
    assert any("going on from step 3" in note for note in end.notes)
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert (tmp_path / "elsewhere").is_dir()


def test_resume_uses_frozen_weights_of_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretrained weights that were fetched again may be others; a checkpoint has those that the training began with."""
    whole = small_training.run(tmp_path / "whole", plan=FROZEN)
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)
    small_training.run(tmp_path / "run", plan=FROZEN, report=small_training.Interrupt(3))
    other = small_training.setup(FROZEN)
    with torch.no_grad():
        other.model.image.encoder.body[0].weight.mul_(-1)
    resumed = RunConfig(device="cpu", workers=0, resume=True)
    end = small_training.run(tmp_path / "run", plan=FROZEN, options=resumed, made=lambda plan: other)
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())


class Pooled(small_training.Body):
    """Gives the mean of two vectors or the first, by a setting that neither weights nor modules show."""

    def __init__(self, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, inputs: Tensors) -> Encoded:
        first = self.body(inputs["pooled"])
        return Encoded(pooled=first if self.pooling == "first" else (first + first.flip(1)) / 2)


def test_encoder_setting_changes_cache_key(tmp_path: Path) -> None:
    image = small_training.setup().model.image
    encoders = [Pooled("first"), Pooled("mean")]
    encoders[1].load_state_dict(encoders[0].state_dict())
    first, mean = (_cached(Branch(image.input_spec, encoder, image.head).eval(), tmp_path) for encoder in encoders)
    assert first.input_spec.folder != mean.input_spec.folder
    assert not torch.equal(_encoded(first, [1]).pooled, _encoded(mean, [1]).pooled)


def test_renamed_image_folder_keeps_cache_key(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.jpg").write_bytes(b"one")
    items = replace(small_training.pairs(1).images, values=["a.jpg"])
    branch = small_training.setup().model.image.eval()
    first = _written(branch, [(items, tmp_path / "old")], tmp_path / "c")
    (tmp_path / "old").rename(tmp_path / "new")
    assert _written(branch, [(items, tmp_path / "new")], tmp_path / "c") == first


@pytest.mark.parametrize("value", ["a.jpg", "shard.tar?offset=2&size=3"])
def test_image_changed_in_place_changes_cache_key(tmp_path: Path, value: str) -> None:
    """Of the same size and with the same time of writing, as copying tools keep it; inside a tar, too."""
    file = tmp_path / value.partition("?")[0]
    file.write_bytes(b"one picture")
    times = file.stat()
    items = replace(small_training.pairs(1).images, values=[value])
    branch = small_training.setup().model.image.eval()
    first = _written(branch, [(items, tmp_path)], tmp_path / "c")
    assert _written(branch, [(items, tmp_path)], tmp_path / "c") == first
    until = time.monotonic() + 30
    # Clocks of file systems are coarse, some of them by a second.
    while file.stat().st_ctime_ns == times.st_ctime_ns:
        assert time.monotonic() < until
        file.write_bytes(b"two picture")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert _written(branch, [(items, tmp_path)], tmp_path / "c") != first


def test_concurrent_writer_keeps_existing_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings that share a cache begin at once: the other one ends while this one still encodes."""
    branch = small_training.setup().model.image.eval()
    sources = [(small_training.pairs(5).images, Path())]
    plain, met = small_training.Body.forward, []

    def overtaken(self: small_training.Body, inputs: Tensors) -> Encoded:
        if not met:
            met.append(True)
            met.append(_written(branch, sources, tmp_path))
            met.append((met[1] / "lengths.npy").stat().st_ino)
        return plain(self, inputs)

    monkeypatch.setattr(small_training.Body, "forward", overtaken)
    place = _written(branch, sources, tmp_path)
    assert place == met[1] and (place / "lengths.npy").stat().st_ino == met[2]
    assert list(tmp_path.iterdir()) == [place]


def test_stale_temporary_folders_are_removed(tmp_path: Path) -> None:
    for name, age in ((".writing-1-a", 7200), (".writing-2-b", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "parts.npy").write_bytes(b"half")
        for file in (tmp_path / name / "parts.npy", tmp_path / name):
            os.utime(file, (time.time() - age, time.time() - age))
    place = _written(small_training.setup().model.image.eval(), [(small_training.pairs(2).images, Path())], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".writing-2-b", place.name])


def test_damaged_cache_raises(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    folder = _cached(branch, tmp_path).input_spec.folder
    for name in ("outputs.npy", "pooled.npy"):
        (folder / name).write_bytes(b"GIF89a")
    with pytest.raises(DataError, match=r"is damaged: .*; remove that folder, it is made again"):
        _cached(branch, tmp_path)


def test_embedding_reads_existing_cache(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    _cached(branch, tmp_path)
    _written(branch, [(small_training.pairs(3).images, Path())], tmp_path)
    items = small_training.pairs(16, "val").images
    known, which = find_cached_outputs(branch, items, Path(), tmp_path, weights="w")
    assert known is not None and which.tolist() == [True] * 12 + [False] * 4
    batch = item_batch(items, np.array([11, 2], dtype=np.int64), Path())
    with torch.no_grad():
        mine, theirs = (one.encoder(one.input_spec(batch)).pooled for one in (known, branch))
    torch.testing.assert_close(mine, theirs)
    for other in ({"weights": "other"}, {"items": replace(items, ids=[f"{name}x" for name in items.ids])}):
        options = {"items": items, "weights": "w", **other}
        found, none = find_cached_outputs(branch, root=Path(), folder=tmp_path, **options)
        assert found is None and not none.any()


def test_blocks_are_encoded_in_parallel_and_threads_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch, plain, threads = (
        small_training.setup().model.image.eval(),
        small_training.Body.forward,
        torch.get_num_threads(),
    )
    items = small_training.pairs(130).images
    alone = _written(branch, [(items, Path())], tmp_path / "alone")
    both, shares = threading.Barrier(2), []

    def waiting(self: small_training.Body, inputs: Tensors) -> Encoded:
        shares.append(torch.get_num_threads())
        if len(inputs["ids"]) == 64:  # Of three blocks the first two.
            both.wait(timeout=60)
        return plain(self, inputs)

    monkeypatch.setattr(small_training.Body, "forward", waiting)
    try:
        torch.set_num_threads(4)
        together = _written(branch, [(items, Path())], tmp_path / "together")
        assert torch.get_num_threads() == 4 and shares == [2, 2, 2]
    finally:
        torch.set_num_threads(threads)
    assert (together / "pooled.npy").read_bytes() == (alone / "pooled.npy").read_bytes()


def test_outputs_beyond_float16_raise(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    with torch.no_grad():
        branch.encoder.body[2].weight.mul_(1e9)
    branch = Branch(branch.input_spec, Large(branch.encoder), branch.head).eval()
    assert _cached(branch, tmp_path).input_spec.folder.is_dir()
    with pytest.raises(DataError, match=r"needs outputs within \+-65,504"):
        _cached(branch, tmp_path, precision="float16")


class Large(torch.nn.Module):
    """An encoder whose outputs are large."""

    def __init__(self, inner: small_training.Body) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensors) -> Encoded:
        return Encoded(pooled=self.inner(inputs).pooled * 1e6)


def test_equal_names_in_two_folders_are_two_items(tmp_path: Path) -> None:
    items = replace(small_training.pairs(1).images, values=["a.jpg"])
    reason = why_not_cacheable(
        small_training.setup().model.image, [(items, tmp_path / "one"), (items, tmp_path / "two")]
    )
    assert reason is not None and "'train000' stands for two items" in reason


def test_other_cache_precision_raises_on_resume(tmp_path: Path) -> None:
    small_training.run(tmp_path / "run", plan=FROZEN)
    half = RunConfig(device="cpu", workers=0, resume=True, cache_precision="float16")
    with pytest.raises(CheckpointError, match="how images and texts are read"):
        small_training.run(tmp_path / "run", plan=FROZEN, options=half)
