"""Cells of one network and regions of another become one file, which a host of both reads."""

from __future__ import annotations

from pathlib import Path

import made_data
import numpy as np
import pytest
from command import call

from subtext.api.load import open_run
from subtext.data.feature_file import FeatureFile

CELLS, WIDE = 4, 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Regions, two to four a picture, and four wider cells of the same pictures in another order, and of one more."""
    folder = tmp_path_factory.mktemp("join")
    rng = np.random.default_rng(3)
    shown = made_data.write_shown(folder, rng)
    count = len(shown.names)
    lengths = 2 + np.arange(count) % 3
    flat = rng.normal(size=(int(lengths.sum()), made_data.WIDTH)).astype(np.float32)
    np.savez(folder / "regions.npz", names=shown.names, grid=flat, counts=lengths)
    order = rng.permutation(count + 1)
    names = np.append(shown.names, "another.jpg")
    cells = rng.normal(size=(count + 1, CELLS, WIDE)).astype(np.float16)
    pooled = rng.normal(size=(count + 1, 5)).astype(np.float32)
    np.savez(folder / "cells.npz", names=names[order], grid=cells[order], pooled=pooled[order])
    np.savez(folder / "wanted.npz", cells=cells, flat=flat, lengths=lengths, names=names)
    return folder


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


def test_file_without_images_raises(made: Path, tmp_path: Path) -> None:
    parts = {"names": np.zeros(0, dtype="U3"), "grid": np.zeros((0, 2, 3), np.float32)}
    np.savez(tmp_path / "empty.npz", **parts)
    told = call("data", "join", made / "cells.npz", tmp_path / "empty.npz", "--out", tmp_path / "o.npz", "-q", code=1)
    assert "empty.npz needs images; it has none" in told.output


def test_joined_parts_are_read_by_one_model(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.npz"
    told = call("data", "join", made / "cells.npz", made / "regions.npz", "--out", out, "-q").stdout
    wanted = arrays(made / "wanted.npz")
    count = len(wanted["names"]) - 1
    assert f"{count} images, each with 4 cells and 2 to 4 regions of width 24 (24 of cells, 16 of regions)" in told
    file = FeatureFile.open(out)
    assert file.names == wanted["names"][:-1].tolist()
    assert file.pooled is None
    ends = wanted["lengths"].cumsum()
    for row in range(count):
        (parts,) = file.take("grid", np.array([row]))
        np.testing.assert_array_equal(parts[:CELLS], wanted["cells"][row].astype(np.float32))
        own = wanted["flat"][ends[row] - wanted["lengths"][row] : ends[row]]
        np.testing.assert_array_equal(parts[CELLS:, : made_data.WIDTH], own)
        assert not parts[CELLS:, made_data.WIDTH :].any() and len(parts) == CELLS + len(own)
    small = ["--embed-dim", "16", "--word-dim", "8", "--epochs", "1", "--batch-size", "16", "--workers", "0", "-q"]
    run = tmp_path / "run"
    call(
        "train", "dsran", "--data", made / "pairs.jsonl", "--features", out, "--grid-cells", CELLS, "--out", run, *small
    )
    assert open_run(run).model.image.head.cells == CELLS


def test_block_size_does_not_change_joined_file(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "one.npz", tmp_path / "other.npz"
    call("data", "join", made / "cells.npz", made / "regions.npz", "--out", first, "-q")
    monkeypatch.setattr("subtext.data.feature_file.BLOCK_BYTES", 1)
    call("data", "join", made / "cells.npz", made / "regions.npz", "--out", second, "-q")
    one, other = arrays(first), arrays(second)
    assert list(one) == list(other) and all((one[name] == other[name]).all() for name in one)


def test_incompatible_files_raise(made: Path, tmp_path: Path) -> None:
    def refused(cells: Path, regions: Path, out: Path = tmp_path / "new.npz") -> str:
        told = call("data", "join", cells, regions, "--out", out, "-q", code=1)
        assert not (tmp_path / "new.npz").exists()
        return " ".join(told.output.split())

    assert "needs as many cells of every image, 4; " in refused(made / "regions.npz", made / "regions.npz")
    assert "1 of 61 have none, first 'another.jpg'" in refused(made / "regions.npz", made / "cells.npz")
    assert "needs 'cells' of every image" in refused(made / "features.npz", made / "regions.npz")
    assert "a name with the suffix .npz" in refused(made / "cells.npz", made / "regions.npz", tmp_path / "new.h5")
    assert "needs a new file" in refused(made / "cells.npz", made / "regions.npz", made / "cells.npz")
