"""An index in shards on a Ray cluster of two nodes, and on one that is started for it: slow, as Ray starts slowly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import drawn
import pytest
from command import call
from in_shards import assert_same_answers, given

from subtext.api.index import sharding
from subtext.api.load import load, open_engine
from subtext.errors import IndexError_, RequirementError
from subtext.search import Engine
from subtext.search.stores.shards.cluster import Cluster, Workers
from subtext.search.stores.shards.manifest import FOLDER, read_shards
from subtext.search.stores.shards.store import ADDRESS, Sharded

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = drawn.runs(tmp_path_factory.mktemp("runs"), "run", "views")
    for name in ("run", "views"):
        call("index", "build", folder / f"of-{name}", *given(folder, name))
    return folder


@pytest.fixture(scope="module")
def nodes() -> Iterator[object]:
    """Two nodes of one processor each, as two machines would be, and this process connected to neither."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as place:  # Names of sockets are short.
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a token of tests"}
        os.environ |= {"RAY_TMPDIR": place, "OMP_NUM_THREADS": "1", "RAY_memory_monitor_refresh_ms": "0"}
        from ray.cluster_utils import Cluster as Nodes

        (Path(place) / "ray").mkdir()
        found = Nodes(initialize_head=True, head_node_args=NODE)
        found.add_node(**NODE)
        os.environ[ADDRESS] = found.address
        try:
            yield found
        finally:
            import ray

            ray.shutdown()
            found.shutdown()
            os.environ.clear()
            os.environ.update(before)


def test_two_machines_embed_and_search_as_one(
    nodes: object, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed while it embeds, another one while it searches, and then a machine goes: all is answered."""
    address, out = str(nodes.address), tmp_path / "index"  # type: ignore[attr-defined]
    killed, real, plain = list[int](), list[object](), sharding._workers

    def followed(ray: object, task: object, count: int) -> list[object]:
        """Workers the first of which is killed as soon as it has been given something to do."""
        workers = plain(ray, task, count)  # type: ignore[arg-type]
        killed.append(len(workers))
        real.extend(workers)
        ray.get(workers[0].__ray_ready__.remote())  # type: ignore[attr-defined]

        def submitted(number: int, share: object) -> object:
            answer = workers[0].shard.remote(number, share)
            if len(killed) == 1:
                ray.kill(workers[0], no_restart=False)  # type: ignore[attr-defined]
                killed.append(number)
            return answer

        return [Given(submitted), *workers[1:]]

    monkeypatch.setattr(sharding, "_workers", followed)
    monkeypatch.setattr(sharding, "_end", lambda ray, workers: [ray.kill(worker) for worker in real])
    told = call("index", "build", out, *given(runs), "--ray", address, "--shards", 4).stdout
    assert "12 pictures and 24 texts in 4 shards" in told and killed[0] == 2 and len(killed) == 2
    assert not list(out.glob("ray-*")) and not list((out / FOLDER).glob("*.json"))
    assert [(own.images, own.texts) for own in read_shards(out).shards] == [(3, 6)] * 4
    assert ": whole" in call("index", "verify", out).stdout
    mine, theirs = open_engine(out), open_engine(runs / "of-run")
    assert_same_answers(mine, theirs, runs / "data")
    workers = mine.folder._keepers[0]  # type: ignore[attr-defined]
    assert isinstance(workers, Workers) and len(workers.workers) == 2
    workers.ray.kill(workers.workers[1], no_restart=False)
    assert_same_answers(mine, theirs, runs / "data")
    nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)  # type: ignore[attr-defined]
    assert_same_answers(mine, theirs, runs / "data")
    answer = json.loads(call("search", out, "a pink square", "--json", "--top", 3).stdout)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in theirs.search("a pink square", top=3)]
    mine.folder.close()


class Given:
    """A worker whose tasks somebody else hands on."""

    def __init__(self, submitted: Callable[[int, object], object]) -> None:
        self.shard = self
        self.remote = submitted


def test_items_of_several_views_are_searched_by_several_workers(nodes: object, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "views"
    call("index", "build", out, *given(runs, "views"), "--ray", nodes.address, "--shards", 4)  # type: ignore[attr-defined]
    assert_same_answers(Engine(Sharded(out), load(runs / "views")), open_engine(runs / "of-views"), runs / "data")


def test_what_goes_wrong_is_said(nodes: object, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    more = ["--ray", nodes.address, "--shards", 4]  # type: ignore[attr-defined]
    (tmp_path / "bad").mkdir()
    for file in (runs / "data").iterdir():
        (tmp_path / "bad" / file.name).write_bytes(file.read_bytes() if file.stem != "cyan" else b"no picture")
    answer = call("index", "build", out, *given(runs)[:2], "--data", tmp_path / "bad", "-q", *more, code=1).stderr
    assert "a shard has 1 problem: picture 'cyan'" in answer and "Traceback" not in answer
    answer = call("index", "build", tmp_path / "gpu", *given(runs), *more, "--device", "cuda", code=1).stderr
    assert "a GPU (--device cuda), and the Ray cluster has none" in answer and not (tmp_path / "gpu").exists()
    call("index", "build", tmp_path / "whole", *given(runs), *more)
    store = Sharded(tmp_path / "whole")
    (tmp_path / "whole" / FOLDER / "0002").rename(tmp_path / "aside")
    with pytest.raises(
        IndexError_, match="0002 needs to be a folder that `subtext index build` wrote; it is not there"
    ):
        store.counts  # noqa: B018
    store.close()


def test_one_that_is_started_here_leaves_nothing_behind(runs: Path, tmp_path: Path) -> None:
    """Killed in the midst of building, given again, and searched: all that Ray writes is in the index, and goes."""
    out, empty = tmp_path / ("a name that is far too long for a socket" * 3), tmp_path / "empty"
    empty.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    around = {**kept, "HOME": str(empty), "TMPDIR": str(empty), "OMP_NUM_THREADS": "1"}
    before = set(Path("/tmp").iterdir())
    command = [sys.executable, "-m", "subtext"]
    build = [*command, "index", "build", str(out), *map(str, given(runs)), "--ray", "local", "--shards", "4"]
    first = subprocess.Popen(build, env=around)
    until = time.monotonic() + 600
    while not list((out / FOLDER).glob("*.json")):
        assert first.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (left,) = out.glob("ray-*")
    while alive(first.pid):
        assert time.monotonic() < until, "the processes of a Ray that lost its master go on"
        time.sleep(0.2)
    told = subprocess.run(build, env=around, check=True, capture_output=True, text=True)
    assert "12 pictures and 24 texts in 4 shards" in told.stdout and not left.exists()
    ask = [*command, "search", str(out), "a pink square", "--json", "--top", "20"]
    answer = subprocess.run(ask, env=around, check=True, capture_output=True, text=True)
    wanted = open_engine(runs / "of-run").search("a pink square", top=20)
    assert [(hit["id"], hit["score"]) for hit in json.loads(answer.stdout)["hits"]] == [(h.id, h.score) for h in wanted]
    assert not list(out.glob("ray-*")) and not list(empty.iterdir())
    assert {place.name for place in set(Path("/tmp").iterdir()) - before if "ray" in place.name} == set()


def alive(process: int) -> list[str]:
    """Processes whose words name the folder of a Ray that this one has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told = place.read_bytes().decode(errors="replace")
        except OSError:
            continue  # It has ended meanwhile.
        found += [told] if f"/proc/{process}/fd/" in told else []
    return found


def test_a_cluster_that_is_not_there_is_said(runs: Path, index_of: Path = Path("nowhere")) -> None:
    with pytest.raises(
        RequirementError, match=r"needs the Ray cluster '127.0.0.1:9', which cannot be had: .*ray start"
    ):
        Cluster(index_of, "127.0.0.1:9")
