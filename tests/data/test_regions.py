"""Files of regions, any number a picture: every form gives the same pictures, and says what is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.inputs import InputBatch
from subtext.errors import DataError

NAMES = ["a.jpg", "b.jpg", "c.jpg"]
COUNTS = np.array([2, 4, 1])


def pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(count, 5)).astype(np.float32) for count in COUNTS]


def counted(path: Path) -> Path:
    np.savez(path / "r.npz", names=np.array(NAMES), grid=np.concatenate(pictures()), counts=COUNTS)
    return path / "r.npz"


def a_file_each(path: Path) -> Path:
    for name, regions in zip(NAMES, pictures(), strict=True):
        np.savez(path / f"{name}.npz", x=regions.T, num_bbox=len(regions), bbox=np.zeros((len(regions), 4)))
    return path


def an_array_each(path: Path) -> Path:
    for name, regions in zip(NAMES, pictures(), strict=True):
        np.save(path / f"{name}.npy", regions)
    return path


def spans(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    stops = np.cumsum(COUNTS)
    with h5py.File(path / "r.h5", "w") as file:
        file["image_features"] = np.concatenate(pictures())
        file["pos_boxes"] = np.stack([stops - COUNTS, stops], axis=1)
        file["image_bb"] = np.zeros((len(np.concatenate(pictures())), 4))
    (path / "r.ids.txt").write_text("\n".join(NAMES))
    return path / "r.h5"


def padded(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    whole = np.full((3, 4, 5), 7, dtype=np.float32)
    for place, regions in enumerate(pictures()):
        whole[place, : len(regions)] = regions
    with h5py.File(path / "r.hdf5", "w") as file:
        file["features"], file["num_boxes"], file["ids"] = whole, COUNTS, NAMES
    return path / "r.hdf5"


FORMS: list[Callable[[Path], Path]] = [counted, a_file_each, an_array_each, spans, padded]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


@every_form
def test_images_have_their_regions_and_mask(form: Callable[[Path], Path], tmp_path: Path) -> None:
    file = FeatureFile.open(form(tmp_path))
    rows = np.arange(3)
    tensors = FeatureInput("image", file)(InputBatch(["b.jpg", "c.jpg", "a.jpg"], list("xyz"), rows, rows, tmp_path))
    assert tensors["mask"].sum(dim=1).tolist() == [4, 1, 2]
    for place, picture in enumerate((1, 2, 0)):
        found = tensors["grid"][place][tensors["mask"][place]]
        np.testing.assert_array_equal(found.numpy(), pictures()[picture])


@every_form
def test_means_cover_existing_regions_only(form: Callable[[Path], Path], tmp_path: Path) -> None:
    shape = FeatureFile.open(form(tmp_path)).shape()
    assert (shape.pooled, shape.grid) == (None, 5)
    whole = np.concatenate(pictures())
    np.testing.assert_allclose(shape.mean["grid"], whole.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(shape.std["grid"], whole.std(axis=0), atol=1e-6)
    assert len(FeatureFile.open(form(tmp_path)).fingerprint) == 32


def test_fingerprint_covers_image_boundaries(tmp_path: Path) -> None:
    found = {}
    names, rows = np.array(NAMES), np.arange(24, dtype=np.float32).reshape(8, 3)
    boxes = np.sort(np.random.default_rng(0).random((8, 4)).astype(np.float32), axis=1)
    for counts in ([3, 2, 3], [2, 3, 3], [3, 3, 2]):
        np.savez(tmp_path / "r.npz", names=names, grid=rows, boxes=boxes, counts=np.array(counts))
        file = FeatureFile.open(tmp_path / "r.npz")
        found[str(counts)] = (file.fingerprint, file.boxes.fingerprint)
    assert [len(set(each)) for each in zip(*found.values(), strict=True)] == [3, 3]


def test_equal_region_counts_keep_recorded_fingerprint(tmp_path: Path) -> None:
    names, rows = np.array(NAMES), np.arange(18, dtype=np.float32).reshape(6, 3)
    boxes = np.tile(np.array([0, 0.25, 0.5, 1], dtype=np.float32), (6, 1))
    np.savez(tmp_path / "r.npz", names=names, grid=rows, boxes=boxes, counts=np.array([2, 2, 2]))
    file = FeatureFile.open(tmp_path / "r.npz")
    whole = "\n".join(NAMES).encode() + b"float32 (3, 2, 3)" + rows.tobytes()
    assert file.fingerprint == hashlib.blake2b(whole, digest_size=16).hexdigest()
    assert file.boxes.fingerprint == hashlib.blake2b(boxes.tobytes(), digest_size=8).hexdigest()


def test_arrays_of_unequal_region_counts_are_batched() -> None:
    rows = np.arange(3)
    tensors = FeatureInput("image", grid=5)(InputBatch(pictures(), NAMES, rows, rows, Path()))
    assert tensors["mask"].sum(dim=1).tolist() == [2, 4, 1]
    np.testing.assert_array_equal(tensors["grid"][2, 0].numpy(), pictures()[2][0])


def without_any(path: Path) -> dict[str, Path]:
    """Files in which b.jpg has no regions."""
    whole = np.ones((3, 4, 5), dtype=np.float32)
    whole[1] = 0
    np.savez(path / "padded.npz", names=np.array(NAMES), grid=whole)
    np.savez(path / "counted.npz", names=np.array(NAMES), grid=np.ones((3, 5)), counts=np.array([2, 0, 1]))
    found = {"padded": path / "padded.npz", "counted": path / "counted.npz"}
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "r.h5", "w") as file:
        file["features"], file["num_boxes"], file["ids"] = np.ones((3, 4, 5)), np.array([4, 0, 1]), NAMES
    return found | {"h5": path / "r.h5"}


@pytest.mark.parametrize("form", ["padded", "counted", "h5"])
def test_image_without_regions_raises(form: str, tmp_path: Path) -> None:
    file = FeatureFile.open(without_any(tmp_path)[form])
    told = r"needs one region or more.*'b\.jpg'.*leave it out, or extract it again"
    input_spec, rows = FeatureInput("image", file), np.arange(2)
    with pytest.raises(DataError, match=told):
        input_spec(InputBatch(["a.jpg", "b.jpg"], list("xy"), rows, rows, tmp_path))
    with pytest.raises(DataError, match=told):
        file.require(NAMES, NAMES)
    with pytest.raises(DataError, match=told):
        file.shape()
    file.require(["a.jpg", "c.jpg"], ["a.jpg", "c.jpg"])
    assert input_spec(InputBatch(["a.jpg", "c.jpg"], list("xy"), rows, rows, tmp_path))["mask"][:, 0].all()


def test_array_of_zeros_has_no_regions() -> None:
    rows = np.arange(2)
    with pytest.raises(DataError, match="one region or more of every item; 'y' has zeros alone"):
        FeatureInput("image", grid=5)(InputBatch([np.ones((4, 5)), np.zeros((3, 5))], ["x", "y"], rows, rows, Path()))


def test_invalid_region_file_raises(tmp_path: Path) -> None:
    an_array_each(tmp_path)
    np.save(tmp_path / "b.jpg.npy", np.zeros((0, 5), dtype=np.float32))
    np.save(tmp_path / "c.jpg.npy", np.zeros((2, 6), dtype=np.float32))
    file = FeatureFile.open(tmp_path)
    with pytest.raises(DataError, match=r"one region or more, each of 5 real numbers.*'b.jpg' has shape \(0, 5\)"):
        file.take("grid", np.array([1]))
    with pytest.raises(DataError, match=r"'c.jpg' has shape \(2, 6\)"):
        file.take("grid", np.array([2]))
    np.save(tmp_path / "c.jpg.npy", np.full((2, 5), 1j))
    with pytest.raises(DataError, match=r"'c.jpg' has shape \(2, 5\) of complex128"):
        file.take("grid", np.array([2]))
    np.savez(tmp_path / "r.npz", names=np.array(NAMES), grid=np.ones((6, 5)), counts=COUNTS)
    with pytest.raises(DataError, match=r"add up to it.*7 regions counted"):
        FeatureFile.open(tmp_path / "r.npz")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "r.h5", "w") as written:
        written["features"], written["ids"] = np.ones((6, 5)), NAMES
    with pytest.raises(DataError, match="needs 'pos_boxes' or 'num_boxes'"):
        FeatureFile.open(tmp_path / "r.h5")
    (tmp_path / "not.h5").write_text("text")
    with pytest.raises(DataError, match="needs to be an HDF5 file"):
        FeatureFile.open(tmp_path / "not.h5")
