"""`subtext index build --ray`: embedding by the workers of a Ray cluster, here two nodes on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coloured_images
import made_data
import pytest
from command import call
from PIL import Image

import subtext as st
from subtext.errors import DataError, RequirementError
from subtext.retrieval import build
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Writer

IMAGES = 40


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture(scope="module")
def many(runs: Path) -> Path:
    """Images that take a while to decode, with texts."""
    folder, rows = runs / "many", list[dict[str, object]]()
    folder.mkdir()
    for number in range(IMAGES):
        image = Image.new("RGB", (1500, 1500), (number * 6, 77, 200 - number * 4))
        image.save(folder / f"{number}.png", compress_level=1)
        rows.append({"file_name": f"{number}.png", "id": f"i{number}", "captions": [f"a square of shade {number}"]})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_index_that_ray_cannot_build_raises(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["index", "build", tmp_path / "index", "--ray", "auto", "-q"]
    data, features = made_data.write(tmp_path / "made")
    words_of_training = ["--data", data, "--features", features, "--out", tmp_path / "features", "--epochs", 1, "-q"]
    call("train", "dual", *words_of_training, "--embed-dim", 16, "--word-dim", 8, "--workers", 0)
    told = call(*words, "--run", tmp_path / "features", code=1).stderr
    assert "this model reads precomputed features, a file on this machine; leave out the address" in told
    assert "it got cache, too" in call(*words, "--run", runs / "run", "--cache", tmp_path, code=2).stderr
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else plain(name))
    told = call(*words, "--run", runs / "run", code=1).stderr
    assert "a Ray cluster needs Ray Data; it is not installed; pip install '.[ray]'" in told
    assert not (tmp_path / "index").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_unreachable_ray_cluster_raises(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="needs one that can be reached: HOST:PORT"):
        st.build_index(tmp_path / "none", runs / "data", run=runs / "run", ray="nobody", quiet=True)
    assert not (tmp_path / "none").exists()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two nodes of one processor, which this process is connected to."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
        nodes.add_node(num_cpus=1, object_store_memory=10**8)
        ray.init(address=nodes.address, log_to_driver=False)
        yield
        ray.shutdown()
        nodes.shutdown()


def assert_same(one: Path | str, other: Path | str) -> None:
    """Assert that two indexes have the same items, keys and vectors, bit for bit."""
    with open_store(one).reading() as first, open_store(other).reading() as second:
        for side in ("images", "texts"):
            keys = first.keys(side)
            assert keys.tolist() == second.keys(side).tolist() and len(keys) == IMAGES
            rows = [sorted(view.rows(side, keys=keys.tolist(), links=True), key=str) for view in (first, second)]
            assert rows[0] == rows[1]
            assert first.vectors(side, keys).tobytes() == second.vectors(side, keys).tobytes()


def workers() -> list[int]:
    """Processes of workers below this process."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                number, stat = int(folder.name), (folder / "stat").read_text()
                names[number] = (folder / "cmdline").read_text()
            except OSError:
                continue  # It has ended meanwhile.
            parents[number] = int(stat.rpartition(")")[2].split()[1])

    def ours(number: int) -> bool:
        return number == os.getpid() or (number in parents and ours(parents[number]))

    return [number for number, name in names.items() if name.startswith("ray::MapWorker") and ours(number)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_failed_ray_workers_lose_one_chunk_and_build_resumes(
    runs: Path, many: Path, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CHUNK", 4)
    options: dict[str, Any] = {"run": runs / "run", "batch_size": 3, "quiet": True}
    st.build_index(tmp_path / "one", many, **options)
    plain, calls = Writer.put, [0]

    def put(self: Writer, *words: Any, **more: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            killed.extend(workers()[:1])
            os.kill(killed[0], signal.SIGKILL)
        if calls[0] == last:
            raise KeyboardInterrupt
        plain(self, *words, **more)

    folder, table = str(tmp_path / "folder"), f"lance://{tmp_path / 'lance'}"
    for place, last in ((folder, 5), (folder, 0), (table, 0)):
        killed: list[int] = []
        calls[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "put", put)
            if last:
                with pytest.raises(KeyboardInterrupt):
                    st.build_index(place, many, ray="auto", **options)
                assert open_store(place).counts == {"images": 16, "texts": 0}
            else:
                built = st.build_index(place, many, ray="auto", **options)
                assert (built.embedded, built.unchanged) == (
                    (2 * IMAGES, 0) if place == table else (2 * IMAGES - 16, 16)
                )
        assert killed
    assert_same(tmp_path / "one", folder)
    assert_same(tmp_path / "one", table)
    # An image that breaks after it was checked: its chunk is told, and those before it are stored.
    image, on_cluster = many / "9.png", build._on_cluster
    content = image.read_bytes()

    def broken(*words: Any) -> Iterator[Any]:
        image.write_bytes(content[:5000] + b"\xff" * 500 + content[5500:])
        yield from on_cluster(*words)

    monkeypatch.setattr(build, "_on_cluster", broken)
    with pytest.raises(DataError, match=r"9\.png cannot be decoded: broken data stream"):
        st.build_index(tmp_path / "bad", many, ray="auto", **options)
    assert open_store(tmp_path / "bad").counts == {"images": 8, "texts": 0}
