"""Frozen encoders are run once, and what is read back is what they made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small
import torch

from subtext.checkpoint import fingerprint
from subtext.core import Encoded
from subtext.data.batches import item_batch
from subtext.data.inputs import Tensors
from subtext.errors import DataError, RequirementError
from subtext.features import cached_branch, refusal, write_cache
from subtext.model import Branch
from subtext.training.options import RunOptions
from subtext.training.plan import Phase, Plan

CPU = torch.device("cpu")
FROZEN = Plan(epochs=2, batch_size=16, lr=1e-2, freeze_epochs=-1, select="last")


def _cached(branch: Branch, folder: Path, *, precision: str = "float32", weights: str = "w") -> Branch:
    sources = [(small.pairs().images, Path()), (small.pairs(12, "val").images, Path())]
    write_cache(branch, sources, folder, weights=weights, precision=precision, device=CPU)
    return cached_branch(branch, sources, folder, weights=weights, precision=precision)


def _encoded(branch: Branch, rows: list[int], split: str = "val") -> Encoded:
    items = small.pairs(12, split).images
    with torch.no_grad():
        return branch.encoder(branch.reads(item_batch(items, np.array(rows, dtype=np.int64), Path())))


@pytest.mark.parametrize(("precision", "near"), [("float32", 0.0), ("float16", 1e-3)])
def test_outputs_come_back(tmp_path: Path, precision: str, near: float) -> None:
    branch = small.setup().model.image.eval()
    cached = _cached(branch, tmp_path, precision=precision)
    mine, theirs = _encoded(cached, [3, 11, 0, 3]), _encoded(branch, [3, 11, 0, 3])
    torch.testing.assert_close(mine.pooled, theirs.pooled, rtol=near, atol=max(near, 1e-7))
    torch.testing.assert_close(mine.parts, theirs.parts, rtol=near, atol=max(near, 1e-7))
    assert mine.mask is None
    assert (cached.encoder.parts_width, cached.encoder.pooled_width) == (16, 16)


def test_parts_of_different_number_come_back_with_their_mask(tmp_path: Path) -> None:
    class Uneven(small.Body):
        """As many parts as the id's last digit, plus one."""

        def forward(self, inputs: Tensors) -> Encoded:
            pooled = torch.tanh(self.body(inputs["pooled"]))
            count = 1 + inputs["ids"] % 3
            parts = pooled[:, None] * torch.arange(1.0, 5.0)[None, :, None]
            return Encoded(parts=parts, mask=torch.arange(4)[None] < count[:, None])

    branch = small.setup().model.image
    branch = Branch(branch.reads, Uneven(), branch.head).eval()
    cached = _cached(branch, tmp_path)
    mine, theirs = _encoded(cached, [1, 5, 2]), _encoded(branch, [1, 5, 2])
    assert mine.pooled is None
    assert mine.mask is not None and theirs.mask is not None
    assert mine.mask.sum(1).tolist() == theirs.mask.sum(1).tolist() == [2, 3, 3]
    for row in range(3):
        torch.testing.assert_close(mine.parts[row][mine.mask[row]], theirs.parts[row][theirs.mask[row]])
    assert mine.parts.shape[1] == 3


def test_the_key_is_of_weights_items_and_precision(tmp_path: Path) -> None:
    branch = small.setup().model.image.eval()
    folders = {_cached(branch, tmp_path).reads.folder}
    folders.add(_cached(branch, tmp_path, weights="other").reads.folder)
    folders.add(_cached(branch, tmp_path, precision="float16").reads.folder)
    calls = branch.encoder.calls
    assert _cached(branch, tmp_path).reads.folder in folders
    assert branch.encoder.calls == calls
    assert len(folders) == len(list(tmp_path.iterdir())) == 3


def test_a_changed_picture_is_another_key(tmp_path: Path) -> None:
    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"one")
    items = replace(small.pairs(1).images, values=["a.jpg"])
    branch = small.setup().model.image.eval()
    sources = [(items, tmp_path)]
    first = write_cache(branch, sources, tmp_path / "c", weights="w", precision="float32", device=CPU)
    picture.write_bytes(b"three")
    assert write_cache(branch, sources, tmp_path / "c", weights="w", precision="float32", device=CPU) != first


def test_an_augmenting_input_is_refused(tmp_path: Path) -> None:
    branch = small.setup(noise=0.1).model.image
    sources = [(small.pairs().images, Path())]
    assert "augmented" in str(refusal(branch, sources))
    with pytest.raises(RequirementError, match="outputs that stay the same; its input is augmented"):
        write_cache(branch, sources, tmp_path, weights="w", precision="float32", device=CPU)


def test_one_id_for_two_items_is_refused() -> None:
    images = small.pairs(2).images
    sources = [(images, Path()), (replace(images, values=["other.jpg", None]), Path())]
    assert "'train000' stands for two items" in str(refusal(small.setup().model.image, sources))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    branch = small.setup().model.image.eval()
    with pytest.raises(DataError, match="it is not there; write it first"):
        cached_branch(branch, [(small.pairs().images, Path())], tmp_path, weights="w", precision="float32")
    with pytest.raises(DataError, match="it has no 'test000'"):
        _encoded(_cached(branch, tmp_path), [0], split="test")
    with pytest.raises(RequirementError, match="got a cache"):
        _cached(branch, tmp_path).reads.save(tmp_path)


def test_a_killed_writer_leaves_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = small.setup().model.image.eval()
    monkeypatch.setattr(small.Body, "forward", lambda self, inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _cached(branch, tmp_path)
    assert not list(tmp_path.iterdir())


def _calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    plain = small.Body.forward

    def counted(self: small.Body, inputs: Tensors) -> Encoded:
        seen.append(len(inputs["ids"]))
        return plain(self, inputs)

    monkeypatch.setattr(small.Body, "forward", counted)
    return seen


def test_a_training_reads_the_cache_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    cached = small.run(tmp_path / "cached", plan=FROZEN)
    assert sum(seen) == 40 + 12
    assert any("frozen image encoder was run once" in note for note in cached.notes)
    monkeypatch.setattr("subtext.training.frozen.refusal", lambda branch, sources: "asked not to")
    seen.clear()
    plain = small.run(tmp_path / "plain", plan=FROZEN)
    assert sum(seen) > 2 * 80
    assert any("runs at every step: asked not to" in note for note in plain.notes)
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(cached.model.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert cached.record.best == plain.record.best


@pytest.mark.parametrize("change", [{"plan": replace(FROZEN, freeze_epochs=1)}, {"noise": 0.1}])
def test_what_learns_or_is_augmented_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    seen = _calls(monkeypatch)
    small.run(tmp_path / "run", **{"plan": FROZEN, **change})
    assert sum(seen) > 2 * 80
    assert not (tmp_path / "run" / "cache").exists()


def test_heads_alone_in_every_phase_is_frozen_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _calls(monkeypatch)
    small.run(tmp_path / "run", plan=replace(FROZEN, freeze_epochs=0), phases=(Phase(1, "heads"),))
    assert sum(seen) == 40 + 12


def test_a_cached_training_stops_and_goes_on(tmp_path: Path) -> None:
    whole = small.run(tmp_path / "whole", plan=FROZEN)
    options = RunOptions(device="cpu", workers=0, checkpoint_every=3, keep=9)
    small.run(tmp_path / "run", plan=FROZEN, options=options)
    for late in sorted((tmp_path / "run" / "checkpoints").iterdir())[1:]:
        (late / "manifest.json").unlink()
    end = small.run(tmp_path / "run", plan=FROZEN, options=replace(options, resume=True, cache=tmp_path / "elsewhere"))
    assert any("going on from step 3" in note for note in end.notes)
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    assert (tmp_path / "elsewhere").is_dir()
