"""An index folder: what is written comes back, and what is damaged, foreign or in the way is told in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from subtext.errors import IndexError_
from subtext.stores.folder import Folder, read_manifest, write_folder
from subtext.stores.manifest import FORMAT, Manifest


def manifest() -> Manifest:
    return Manifest(fingerprint="f" * 32, run="/runs/first", host="dual", width=0, scale=14.0, data={"split": "all"})


def side(count: int, views: int = 1, seed: int = 0) -> tuple[np.ndarray, list[dict[str, object]]]:
    vectors = np.random.default_rng(seed).standard_normal((count, views, 4)).astype(np.float32)
    items = [
        {"id": f"n{row}", "captions": [f"line\nbreak {row}", "ünïcode 🚣🏽"], "metadata": {}} for row in range(count)
    ]
    return vectors, items


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_folder(tmp_path / "index", manifest(), images=side(5, 2), texts=side(7, 1, 1))
    return tmp_path / "index"


def test_what_is_written_comes_back(written: Path) -> None:
    folder = Folder(written)
    assert folder.manifest.counts == {"images": 5, "texts": 7}
    assert folder.manifest.views == {"images": 2, "texts": 1}
    assert (folder.manifest.width, folder.manifest.scale, folder.manifest.format) == (4, 14.0, FORMAT)
    np.testing.assert_array_equal(folder.images.vectors, side(5, 2)[0])
    assert isinstance(folder.images.vectors, np.memmap)
    assert [folder.texts.item(row) for row in (6, 0, 3)] == [side(7)[1][row] for row in (6, 0, 3)]
    assert [path.name for path in written.parent.iterdir()] == ["index"]


def test_an_empty_side_is_allowed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "index", manifest(), images=side(3), texts=side(0))
    assert len(folder.texts) == 0 and len(Folder(tmp_path / "index").images) == 3


def test_a_full_folder_is_refused_and_left_alone(written: Path) -> None:
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    with pytest.raises(IndexError_, match=r"new or empty folder; .*index holds something"):
        write_folder(written, manifest(), images=side(1), texts=side(1))
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    vectors, items = side(3)
    vectors[1, 0, 0] = np.nan
    with pytest.raises(IndexError_, match="finite vectors; 1 are not, the first of item 'n1'"):
        write_folder(tmp_path / "index", manifest(), images=(vectors, items), texts=side(1))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IndexError_, match=r"got shape \(3, 1, 4\) and 2"):
        write_folder(tmp_path / "index", manifest(), images=(side(3)[0], items[:2]), texts=side(1))
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_index_is_told(tmp_path: Path) -> None:
    with pytest.raises(IndexError_, match="it is not there"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(IndexError_, match=r"it has no manifest\.json"):
        read_manifest(tmp_path)
    for text, told in (
        ("{", "needs to be JSON"),
        ("[]", "is not the manifest of a Subtext index"),
        ('{"kind": "another"}', "is not the manifest of a Subtext index"),
        ('{"kind": "subtext index", "format": 99}', "has format 99; this version of Subtext reads formats up to"),
        ('{"kind": "subtext index", "format": 1}', "needs 'fingerprint'; it has None"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(IndexError_, match=told):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(IndexError_, match="it is not text"):
        read_manifest(tmp_path)


def test_counts_need_both_sides(written: Path) -> None:
    found = json.loads((written / "manifest.json").read_text())
    found["counts"] = {"images": 5}
    (written / "manifest.json").write_text(json.dumps(found))
    with pytest.raises(IndexError_, match="needs 'counts' of images and texts"):
        Folder(written)


@pytest.mark.parametrize("damage", ["cut", "foreign", "other shape", "gone", "pickle"])
def test_damaged_vectors_are_told(written: Path, damage: str) -> None:
    path = written / "images" / "vectors.npy"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "foreign":
        path.write_bytes(b"GIF89a")
    elif damage == "other shape":
        np.save(path, np.zeros((5, 1, 4), np.float32))
    elif damage == "pickle":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    else:
        path.unlink()
    with pytest.raises(IndexError_, match=r"vectors\.npy needs .*; build the index again"):
        Folder(written)


def test_damaged_items_are_told(written: Path) -> None:
    path = written / "texts" / "items.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], '{"name": 1}\n', "{\n", *lines[3:]]), encoding="utf-8")
    shelf = Folder(written).texts
    assert shelf.item(0)["id"] == "n0"
    with pytest.raises(IndexError_, match="line 2, has no item with an id"):
        shelf.item(1)
    with pytest.raises(IndexError_, match="line 3, is not JSON"):
        shelf.item(2)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(IndexError_, match="needs 7 lines, one an item; it has 6"):
        Folder(written)
    path.unlink()
    with pytest.raises(IndexError_, match=r"items\.jsonl cannot be read"):
        Folder(written)
