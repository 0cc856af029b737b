"""Boxes of precomputed regions: every form of file gives the same shares, and a run reads them as it learnt to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import made_data
import numpy as np
import pytest
import torch
from command import call

from subtext.api.load import open_run
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.inputs import InputBatch
from subtext.data.regions import open_boxes
from subtext.errors import DataError
from subtext.models.encoders.precomputed import Precomputed

NAMES = ["a.jpg", "b.jpg", "c.jpg"]
COUNTS = np.array([2, 3, 1])
SIZES = np.array([[100, 50], [200, 400], [10, 10]])
SHARES = [
    np.array([[0.1, 0.2, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0]], np.float32),
    np.array([[0.25, 0.5, 0.75, 1.0], [0.5, 0.0, 1.0, 0.25], [0.0, 0.25, 0.5, 0.5]], np.float32),
    np.array([[0.2, 0.3, 0.4, 0.5]], np.float32),
]
PIXELS = [shares * np.tile(size, 2) for shares, size in zip(SHARES, SIZES, strict=True)]
FEATURES = [np.full((count, 5), 2.0 + number, np.float32) for number, count in enumerate(COUNTS)]


def padded(each: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros((3, 3, each[0].shape[1]), np.float32)
    for place, rows in enumerate(each):
        whole[place, : len(rows)] = rows
    return whole


def npz_of_counts(path: Path) -> Path:
    file = path / "r.npz"
    grid, boxes = np.concatenate(FEATURES), np.concatenate(PIXELS)
    np.savez(file, names=np.array(NAMES), grid=grid, counts=COUNTS, boxes=boxes, sizes=SIZES)
    return file


def npz_of_shares(path: Path) -> Path:
    np.savez(path / "r.npz", names=np.array(NAMES), grid=padded(FEATURES), boxes=padded(SHARES))
    return path / "r.npz"


def npy(path: Path) -> Path:
    for name, array in (("r", padded(FEATURES)), ("r_boxes", padded(PIXELS)), ("r_sizes", SIZES)):
        np.save(path / f"{name}.npy", array)
    (path / "r.ids.txt").write_text("\n".join(NAMES))
    return path / "r.npy"


def npz_each(path: Path) -> Path:
    for name, regions, boxes, (width, height) in zip(NAMES, FEATURES, PIXELS, SIZES, strict=True):
        np.savez_compressed(
            path / f"{name}.npz", x=regions.T, num_bbox=len(boxes), bbox=boxes, image_w=width, image_h=height
        )
    return path


def npy_each(path: Path) -> Path:
    for name, regions, boxes, size in zip(NAMES, FEATURES, PIXELS, SIZES, strict=True):
        np.save(path / f"{name}.npy", regions)
        np.save(path / f"{name}_boxes.npy", boxes)
        np.save(path / f"{name}_sizes.npy", size)
    return path


def h5_of_spans(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    stops = np.cumsum(COUNTS)
    with h5py.File(path / "r.h5", "w") as file:
        file["image_features"], file["image_bb"] = np.concatenate(FEATURES), np.concatenate(PIXELS)
        file["pos_boxes"], file["names"] = np.stack([stops - COUNTS, stops], axis=1), NAMES
        file["widths"], file["heights"] = SIZES[:, 0], SIZES[:, 1]
    return path / "r.h5"


def h5_padded(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "r.h5", "w") as file:
        file["features"], file["boxes"], file["num_boxes"] = (
            padded(FEATURES),
            padded(PIXELS) + 7e4 * (padded(PIXELS).sum(axis=2, keepdims=True) == 0),
            COUNTS,
        )
        file["ids"], file["image_w"], file["image_h"] = NAMES, SIZES[:, 0], SIZES[:, 1]
    return path / "r.h5"


def h5_of_shares(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    stops = np.cumsum(COUNTS)
    flat = np.concatenate(SHARES)
    with h5py.File(path / "r.h5", "w") as file:
        file["image_features"], file["names"] = np.concatenate(FEATURES), NAMES
        file["image_bb"] = np.concatenate(PIXELS)
        file["spatial_features"] = np.concatenate([flat, flat[:, 2:] - flat[:, :2]], axis=1)
        file["pos_boxes"] = np.stack([stops - COUNTS, stops], axis=1)
    return path / "r.h5"


def npz_of_shares_with_sizes(path: Path) -> Path:
    """Sizes beside what needs none."""
    np.savez(path / "r.npz", names=np.array(NAMES), grid=padded(FEATURES), boxes=padded(SHARES), sizes=SIZES)
    return path / "r.npz"


def scan_folder(path: Path) -> Path:
    """The test split repeats every picture five times, as SCAN's does."""
    for prefix, part, times in (("train", slice(0, 2), 1), ("test", slice(2, 3), 5)):
        for end, array in (("ims", padded(FEATURES)), ("boxes", padded(PIXELS)), ("img_sizes", SIZES)):
            np.save(path / f"{prefix}_{end}.npy", np.repeat(array[part], times, axis=0))
        (path / f"{prefix}_caps.txt").write_text("a\n" * 10)
    return path


FORMS: list[Callable[[Path], Path]] = [
    npz_of_counts, npz_of_shares, npz_of_shares_with_sizes, npy, npz_each, npy_each, h5_of_spans, h5_padded,
    h5_of_shares, scan_folder,
]  # fmt: skip
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def batch(names: list[str]) -> InputBatch:
    rows = np.arange(len(names))
    return InputBatch(names, names, rows, rows, Path())


@every_form
def test_region_is_features_then_box_in_every_format(form: Callable[[Path], Path], tmp_path: Path) -> None:
    file = FeatureFile.open(form(tmp_path))
    names = ["train/0", "train/1", "test/0"] if form is scan_folder else NAMES
    assert sorted(file.names) == sorted(names), "files of boxes are no pictures"
    input_spec = FeatureInput("image", file, boxes=True)
    assert input_spec.grid == 9
    tensors = input_spec(batch([names[1], names[2], names[0]]))
    for place, picture in enumerate((1, 2, 0)):
        found = tensors["grid"][place][tensors["mask"][place]].numpy()
        np.testing.assert_array_equal(found[:, :5], FEATURES[picture])
        np.testing.assert_allclose(found[:, 5:], SHARES[picture], atol=1e-6)
        assert not tensors["grid"][place][~tensors["mask"][place]].any(), "padding has no box"
    input_spec.require_boxes(names, names)
    plain = FeatureInput("image", file)
    assert plain.grid == 5 and plain(batch([names[0]]))["grid"].shape[2] == 5
    assert plain.fingerprint != input_spec.fingerprint


@pytest.mark.parametrize("form", [npz_of_counts, npy, npz_each, npy_each, h5_padded, scan_folder])
def test_file_without_boxes_raises_on_open(form: Callable[[Path], Path], tmp_path: Path) -> None:
    path = form(tmp_path)
    if path.suffix == ".npz":
        np.savez(path, names=np.array(NAMES), grid=padded(FEATURES))
    for file in [*tmp_path.glob("*_boxes.npy"), *tmp_path.glob("*.jpg.npz")]:
        file.unlink()
    if form is npz_each:
        np.savez(tmp_path / "a.jpg.npz", x=FEATURES[0])
    if form is h5_padded:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "a") as written:
            del written["boxes"]
    file = FeatureFile.open(path)
    told = rf"boxes need to lie beside the features, one a region; .*{path.name}.* has none; give features with boxes"
    with pytest.raises(DataError, match=told):
        FeatureInput("image", file, boxes=True)
    with pytest.raises(DataError, match=told):
        FeatureInput("image", grid=9, boxes=True).with_file(file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sizes": SIZES[:, ::-1]}, r"boxes inside their image.*'a.jpg' has .*once divided"),
        ({"sizes": None}, r"'a.jpg' has \[10.0, 10.0, 50.0, 50.0\]; correct them, or give sizes"),
        ({"sizes": SIZES * [[1, 0]]}, r"width and height of every image, above 0; 'a.jpg' has \[100, 0\]"),
        ({"sizes": SIZES[:2]}, r"a row for each of 3 images, as their sizes do; .* and 2 sizes"),
        ({"boxes": padded(PIXELS)[:, :, :3]}, r"boxes of 4 numbers, a region each; 'a.jpg' has shape \(3, 3\)"),
        ({"boxes": padded(PIXELS)[:2]}, r"a row for each of 3 images"),
        (
            {"boxes": padded(PIXELS)[:, :2]},
            r"a box, not all zeros, for each region, and no more; 'b.jpg' has 3 regions and 2 boxes",
        ),
        ({"boxes": padded([*PIXELS[:2], PIXELS[1][:2] / 40])}, r"'c.jpg' has 1 regions and 2 boxes"),
    ],
)
def test_invalid_boxes_raise(change: dict[str, np.ndarray | None], told: str, tmp_path: Path) -> None:
    members = {"names": np.array(NAMES), "grid": padded(FEATURES), "boxes": padded(PIXELS), "sizes": SIZES, **change}
    np.savez(tmp_path / "r.npz", **{name: array for name, array in members.items() if array is not None})
    with pytest.raises(DataError, match=told):
        FeatureInput("image", FeatureFile.open(tmp_path / "r.npz"), boxes=True).require_boxes(NAMES, NAMES)


def test_sizes_of_some_splits_only_raise(tmp_path: Path) -> None:
    scan_folder(tmp_path)
    (tmp_path / "test_img_sizes.npy").unlink()
    file = FeatureFile.open(tmp_path)
    with pytest.raises(DataError, match=r"all splits' images, or of none; test has none; write test_sizes.npy"):
        FeatureInput("image", file, boxes=True)


def test_boxes_are_clipped_to_unit_square(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", boxes=np.array([[[-0.01, 0.0, 0.5, 1.02]]]))
    np.testing.assert_array_equal(
        open_boxes(tmp_path / "r.npz", ["a"]).take(np.array([0])), np.array([[[0, 0, 0.5, 1]]], np.float32)
    )


@pytest.mark.parametrize("scaling", ["none", "unit", "standard"])
def test_scaling_leaves_boxes_unchanged(scaling: str) -> None:
    mean, std = np.full(3, 2.0, np.float32), np.full(3, 4.0, np.float32)
    told = {"pooled": mean, "grid": mean}, {"pooled": std, "grid": std}
    encoder = Precomputed(
        3, 7, scaling=scaling, mean=told[0], std=told[1], append_pooled=True, boxes=True, dropout=0.9
    )  # fmt: skip
    assert (encoder.parts_width, encoder.pooled_width) == (7, 3)
    features, boxes = torch.rand(2, 4, 3) + 1, torch.rand(2, 4, 4)
    inputs = {"grid": torch.cat([features, boxes], dim=2), "pooled": features.mean(dim=1)}
    for mode in (True, False):
        found = encoder.train(mode)(inputs)
        assert torch.equal(found.parts[:, :4, 3:], boxes)
        assert found.parts[:, 4, 3:].tolist() == [[0, 0, 1, 1]] * 2, "the whole picture is one more region"
    plain = Precomputed(3, 3, scaling=scaling, mean=told[0], std=told[1], append_pooled=True).eval()
    wanted = plain({"grid": features, "pooled": inputs["pooled"]})
    torch.testing.assert_close(found.parts[..., :3], wanted.parts)
    torch.testing.assert_close(found.pooled, wanted.pooled)
    alone = Precomputed(None, 7, boxes=True)({"grid": inputs["grid"]})
    torch.testing.assert_close(alone.pooled, features.mean(dim=1))


@pytest.mark.parametrize("host", ["dsran", "scan"])
def test_run_records_that_it_reads_boxes(host: str, tmp_path: Path) -> None:
    made_data.write_regions(tmp_path)
    with np.load(tmp_path / "regions.npz") as found:
        arrays = dict(found)
    corner = np.random.default_rng(0).random((*arrays["grid"].shape[:2], 2)) / 2
    arrays["boxes"] = np.concatenate([corner, corner + 0.4], axis=2)
    np.savez(tmp_path / "boxed.npz", **arrays)
    given = ["--data", tmp_path / "pairs.jsonl", "--boxes", "--feature-scaling", "standard"]
    small = ["--embed-dim", 16, "--word-dim", 8, "--epochs", 1, "--workers", 0, "-q"]
    out = tmp_path / "run"
    call("train", host, *given, "--features", tmp_path / "boxed.npz", "--out", out, *small)
    assert json.loads((out / "run.json").read_text())["arguments"]["boxes"] is True
    run = open_run(out)
    assert run.model.image.input_spec.boxes and run.model.image.encoder.parts_width == made_data.WIDTH + 4
    again = json.loads(call("evaluate", out, "--split", "val", "--json", "-", "-q").stdout)
    assert again["rsum"] == pytest.approx(json.loads((out / "run.json").read_text())["best"]["rsum"])
    refused = call("evaluate", out, "--features", tmp_path / "regions.npz", code=1)
    assert "boxes need to lie beside the features" in refused.output
    refused = call("train", host, *given, "--features", tmp_path / "regions.npz", "--out", tmp_path / "no", code=1)
    assert "regions.npz has none; give features with boxes, or leave --boxes out" in refused.output
    refused = call("train", host, *given, "--features", tmp_path / "features.npz", "--out", tmp_path / "no", code=1)
    assert "--boxes needs --image features of regions" in refused.output
    arrays["boxes"][3, 2] = 0
    np.savez(tmp_path / "boxed.npz", **arrays)
    refused = call("train", host, *given, "--features", tmp_path / "boxed.npz", "--out", tmp_path / "no", code=1)
    assert "a box, not all zeros, for each region" in refused.output
    assert not (tmp_path / "no").exists()
