"""Frozen encoders are run once, and what is read back is what they made."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from PIL import Image

from subtext.core import Encoded
from subtext.data.batches import item_batch
from subtext.data.dataset import Items
from subtext.data.inputs import Tensors
from subtext.data.output_cache import OutputCache
from subtext.data.pixels import PixelInput
from subtext.errors import CheckpointError, DataError, RequirementError
from subtext.models.checkpoint import fingerprint
from subtext.models.feature_cache import cached_branch, why_not_cacheable
from subtext.models.model import Branch
from subtext.training.plan import Phase, Plan, RunConfig

CPU = torch.device("cpu")
FROZEN = Plan(epochs=2, batch_size=16, lr=1e-2, freeze_epochs=-1, select="last")


def _cached(branch: Branch, folder: Path, *, precision: str = "float32") -> Branch:
    sources = [(small_training.pairs().images, Path()), (small_training.pairs(12, "val").images, Path())]
    return cached_branch(branch, sources, OutputCache(folder), device=CPU, precision=precision)


def _read(branch: Branch, items: Items, root: Path, folder: Path) -> Branch:
    return cached_branch(branch, [(items, root)], OutputCache(folder), device=CPU)


def _segments(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.is_dir())


def _pixels() -> Branch:
    """Images by their content: a pooled vector of their pixels."""
    return Branch(PixelInput(size=4), Flat(), small_training.setup().model.image.head).eval()


class Flat(torch.nn.Module):
    """The mean of the pixels, sixteen times."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16))

    def forward(self, inputs: Tensors) -> Encoded:
        return Encoded(pooled=inputs["pixels"].mean((1, 2, 3))[:, None] * self.weight)


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
    names = {"contents.npy", "outputs.npy", "lengths.npy", "sums.npy", "pooled.npy"}
    assert [{file.name for file in segment.iterdir()} for segment in _segments(tmp_path)] == [names]
    every = _cached(_reading_all(branch), tmp_path)
    assert every.input_spec.fingerprint != pooled.input_spec.fingerprint and _encoded(every, [1]).parts is not None


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


def test_outputs_are_those_of_weights_input_and_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    branch, other = (small_training.setup().model.image.eval() for _ in range(2))
    with torch.no_grad():
        other.encoder.body[0].weight.mul_(2)
    keys = {_cached(branch, tmp_path).input_spec.fingerprint, _cached(other, tmp_path).input_spec.fingerprint}
    keys.add(_cached(branch, tmp_path, precision="float16").input_spec.fingerprint)
    seen.clear()
    assert _cached(branch, tmp_path).input_spec.fingerprint in keys
    assert not seen
    assert len(keys) == len(list(tmp_path.iterdir())) == 3


def test_images_are_known_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    plain = Flat.forward
    monkeypatch.setattr(Flat, "forward", lambda self, inputs: (ran.append(1), plain(self, inputs))[1])
    (tmp_path / "old").mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number,) * 3).save(tmp_path / "old" / f"{number}.png")
    items = replace(small_training.pairs(3).images, values=[f"{number}.png" for number in range(3)])
    branch, folder = _pixels(), tmp_path / "cache"
    first = _read(branch, items, tmp_path / "old", folder)
    ran.clear()
    # Another folder, other names, times and ids: nothing is encoded.
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "new" / "1.png").rename(tmp_path / "new" / "x.png")
    os.utime(tmp_path / "new" / "x.png", (1, 1))
    renamed = replace(items, ids=["a", "b", "c"], values=["0.png", "x.png", (tmp_path / "new" / "2.png").read_bytes()])
    second = _read(branch, renamed, tmp_path / "new", folder)
    assert not ran
    one, two = (
        each.encoder(each.input_spec(item_batch(its, np.arange(3), tmp_path))).pooled
        for each, its in ((first, items), (second, renamed))
    )
    assert torch.equal(one, two)
    # Other content in the same place, of the same size and time.
    times = (tmp_path / "new" / "0.png").stat()
    Image.new("RGB", (8, 8), (7, 7, 7)).save(tmp_path / "new" / "0.png")
    os.utime(tmp_path / "new" / "0.png", ns=(times.st_atime_ns, times.st_mtime_ns))
    third = _read(branch, renamed, tmp_path / "new", folder)
    assert len(ran) == 1
    changed = third.encoder(third.input_spec(item_batch(renamed, np.arange(3), tmp_path))).pooled
    assert (changed == two).all(dim=1).tolist() == [False, True, True]


def test_augmenting_input_raises(tmp_path: Path) -> None:
    branch = small_training.setup(noise=0.1).model.image
    sources = [(small_training.pairs().images, Path())]
    assert "augmented" in str(why_not_cacheable(branch, sources))
    with pytest.raises(RequirementError, match="outputs that stay the same; its input is augmented"):
        cached_branch(branch, sources, OutputCache(tmp_path), device=CPU)


def test_one_id_for_two_items_raises() -> None:
    images = small_training.pairs(2).images
    sources = [(images, Path()), (replace(images, values=["other.jpg", None]), Path())]
    assert "'train000' stands for two items" in str(why_not_cacheable(small_training.setup().model.image, sources))


def test_missing_item_raises(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    with pytest.raises(DataError, match="there is none of 'test000'"):
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
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "user"))
    seen = _calls(monkeypatch)
    cached = small_training.run(tmp_path / "cached", plan=FROZEN)
    assert sum(seen) == 48 + 16  # Each item once, in full blocks of sixteen.
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
    assert not (tmp_path / "cache").exists()


def test_head_only_phases_use_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    small_training.run(tmp_path / "run", plan=replace(FROZEN, freeze_epochs=0), phases=(Phase(1, "heads"),))
    assert sum(seen) == 48 + 16  # Each item once, in full blocks of sixteen.


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
    assert first.input_spec.fingerprint != mean.input_spec.fingerprint
    assert not torch.equal(_encoded(first, [1]).pooled, _encoded(mean, [1]).pooled)


def test_two_writers_at_once_read_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings that share a cache begin at once: the other one ends while this one still encodes."""
    branch = small_training.setup().model.image.eval()
    items = small_training.pairs(5).images
    plain, met = small_training.Body.forward, []

    def overtaken(self: small_training.Body, inputs: Tensors) -> Encoded:
        if not met:
            met.append(True)
            met.append(_read(branch, items, Path(), tmp_path))
        return plain(self, inputs)

    monkeypatch.setattr(small_training.Body, "forward", overtaken)
    mine = _read(branch, items, Path(), tmp_path)
    batch = item_batch(items, np.arange(5), Path())
    assert torch.equal(*(each.encoder(each.input_spec(batch)).pooled for each in (mine, met[1])))
    assert not list(tmp_path.glob("*/.writing*"))


def test_outputs_do_not_depend_on_what_was_cached_before(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    items = small_training.pairs(40).images
    at_once = _read(branch, items, Path(), tmp_path / "a")
    for start, stop in ((0, 3), (20, 39)):
        _read(branch, items.take(np.arange(start, stop)), Path(), tmp_path / "b")
    in_parts = _read(branch, items, Path(), tmp_path / "b")
    batch = item_batch(items, np.arange(40), Path())
    assert torch.equal(*(each.encoder(each.input_spec(batch)).pooled for each in (at_once, in_parts)))


@pytest.mark.parametrize("damage", ["header", "bytes", "cut", "gone"])
def test_damaged_outputs_are_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    branch = small_training.setup().model.image.eval()
    whole = _encoded(_cached(branch, tmp_path), [1, 5])
    seen = _calls(monkeypatch)
    (segment,) = _segments(tmp_path)
    file = segment / "pooled.npy"
    content = bytearray(file.read_bytes())
    if damage == "header":
        content[:6] = b"GIF89a"
    elif damage == "bytes":
        content[-1] ^= 64
    file.write_bytes(content[:-4] if damage == "cut" else content)
    if damage == "gone":
        (segment / "outputs.npy").unlink()
    again = _encoded(_cached(branch, tmp_path), [1, 5])
    assert seen and torch.equal(again.pooled, whole.pooled)
    assert _segments(tmp_path) != [segment] and len(_segments(tmp_path)) == 1


def test_blocks_are_encoded_in_parallel_and_threads_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch, plain, threads = (
        small_training.setup().model.image.eval(),
        small_training.Body.forward,
        torch.get_num_threads(),
    )
    items = small_training.pairs(130).images
    alone = _read(branch, items, Path(), tmp_path / "alone")
    both, shares = threading.Barrier(2), []

    def waiting(self: small_training.Body, inputs: Tensors) -> Encoded:
        shares.append(torch.get_num_threads())
        if len(shares) < 3:  # Of nine blocks the first two.
            both.wait(timeout=60)
        return plain(self, inputs)

    monkeypatch.setattr(small_training.Body, "forward", waiting)
    try:
        torch.set_num_threads(4)
        together = _read(branch, items, Path(), tmp_path / "together")
        assert torch.get_num_threads() == 4 and shares == [2] * 9
    finally:
        torch.set_num_threads(threads)
    batch = item_batch(items, np.arange(130), Path())
    assert torch.equal(*(each.encoder(each.input_spec(batch)).pooled for each in (alone, together)))


def test_outputs_beyond_float16_raise(tmp_path: Path) -> None:
    branch = small_training.setup().model.image.eval()
    with torch.no_grad():
        branch.encoder.body[2].weight.mul_(1e9)
    branch = Branch(branch.input_spec, Large(branch.encoder), branch.head).eval()
    assert _encoded(_cached(branch, tmp_path), [0]).pooled is not None
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
