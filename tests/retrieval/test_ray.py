"""`subtext index build --ray`: the workers of a Ray cluster, here nodes on this machine, check, embed and write."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import coloured_images
import made_data
import pytest
import s3_server
from command import call
from PIL import Image

import subtext as st
from subtext.errors import DataError, OutputError, RequirementError, SearchIndexError
from subtext.retrieval import build, cluster as clusters
from subtext.retrieval.stores import part_notes
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.item import SIDES
from subtext.retrieval.stores.part_notes import PartNotes
from subtext.retrieval.stores.registry import open_store

IMAGES = 40


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture(scope="module")
def many(runs: Path) -> Path:
    """Images that take a while to decode, with texts; two have the same one."""
    folder, rows = runs / "many", list[dict[str, object]]()
    folder.mkdir()
    for number in range(IMAGES):
        image = Image.new("RGB", (1500, 1500), (number * 6, 77, 200 - number * 4))
        image.save(folder / f"{number}.png", compress_level=1)
        row = {"file_name": f"{number}.png", "id": f"i{number}", "captions": [f"a square of shade {number % 30}"]}
        rows.append({**row, "year": 1990 + number, "place": "Zürich"})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_index_that_a_cluster_cannot_build_raises(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "a Ray cluster needs Ray; it is not installed; pip install '.[ray]'" in told
    assert not (tmp_path / "index").exists()


def test_parts_of_a_cluster_are_cut_where_one_process_begins_a_batch() -> None:
    for size in (96, 256, 500, 1000):
        pieces = list(build._pieces(5000, size))
        assert [start for start, _ in pieces[1:]] == [stop for _, stop in pieces[:-1]]
        assert pieces[0][0] == 0 and pieces[-1][1] == 5000
        assert all(start // build.CHUNK == (stop - 1) // build.CHUNK and stop - start <= size for start, stop in pieces)
        assert all(start % build.CHUNK % size == 0 for start, _ in pieces)


def test_second_driver_of_a_cluster_is_told_and_a_dead_one_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    monkeypatch.setattr(part_notes, "BEAT", 0.1)
    first, second = (PartNotes(fs.LocalFileSystem(), str(tmp_path), "lance://index") for _ in range(2))
    said: list[str] = []
    with first.driving(256) as size:
        assert size == 256
        with pytest.raises(IndexLockedError, match=f"is being built by process {os.getpid()} on .*; wait until"):
            second.require_free(said.append)
        # As one on another machine has it, which counts up.
        monkeypatch.setattr(part_notes, "_this_process", lambda: {"boot": "", "host": "elsewhere"})
        with pytest.raises(IndexLockedError, match="is being built by"), second.driving(512, said.append):
            raise AssertionError
        assert len(said) == 1 and "to see whether it still runs" in said[0]
        first.write("images-1", {"mark": "a"})
    assert second.begun and second.names() == ["images-1"]
    # One that was killed: its number stands still, and its size counts.
    first.write("driver", {"token": "dead", "host": "gone", "boot": "b", "process": 1, "beat": 3, "size": 333})
    with second.driving(512, said.append) as size:
        assert size == 333 and len(said) == 2
        # A third one takes over all the same.
        deadline = time.monotonic() + 5
        with pytest.raises(IndexLockedError, match="by process 7 on there"):
            while time.monotonic() < deadline:
                first.write("driver", {"token": "third", "host": "there", "process": 7})
                second.require_driving()
    assert (first.read("driver") or {})["token"] == "third"
    second.remove()
    assert not second.begun


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_unreachable_cluster_raises(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="needs one that can be reached: HOST:PORT"):
        st.build_index(tmp_path / "none", runs / "data", run=runs / "run", ray="nobody", quiet=True)
    assert not (tmp_path / "none").exists()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes of one processor, which this process is connected to, with an object store."""
    import ray
    from ray.cluster_utils import Cluster

    with s3_server.served() as environment, pytest.MonkeyPatch.context() as patch:
        own = {"OMP_NUM_THREADS": "1", "SUBTEXT_CACHE_LIMIT": "0", "RAY_worker_niceness": "0"}
        for name, value in {**environment, **own}.items():
            patch.setenv(name, value)
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
        started.add_node(num_cpus=1, object_store_memory=10**8)
        ray.init(address=started.address, log_to_driver=False)
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture(scope="module")
def options(runs: Path) -> dict[str, Any]:
    return {"run": runs / "run", "batch_size": 3, "quiet": True}


@pytest.fixture(scope="module")
def one(
    many: Path, options: dict[str, Any], nodes: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """An index by one process in the kind of store that an address names."""
    folder, built = tmp_path_factory.mktemp("one"), dict[str, str]()

    def of(address: str) -> str:
        kind = address.partition("://")[0] if "://" in address else ""
        if kind not in built:
            built[kind] = {"": f"{folder}/index", "lance": f"lance://{folder}/lance", "s3": "s3://archive/one"}[kind]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(build, "CHUNK", 4)
                st.build_index(built[kind], many, **options)
        return built[kind]

    return of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, starter_chosen: None) -> None:
    """Parts of four items."""
    monkeypatch.setattr(build, "CHUNK", 4)


def contents(view: Any) -> list[object]:
    """Items in their order, and their vectors; keys count what is derived of texts as well, which may come later."""
    found, names = list[object](), dict[str, dict[int, str]]()
    for side in SIDES:
        keys = view.keys(side)
        rows = sorted(view.rows(side, keys=keys.tolist(), links=True), key=lambda row: row.key)
        names[side] = {row.key: row.id for row in rows}
        images = names["images"] if side == "texts" else {}
        found += [(row.id, replace(row, key=0, digest=b"", links=())) for row in rows]
        found += [sorted(images[key] for key in row.links) for row in rows if side == "texts"]
        found.append(view.vectors(side, keys).tobytes())
    if view.manifest.encoder is not None:
        vectors, there = view.vectors_in("sentences", view.keys("texts"))
        found += [vectors.tobytes(), there.tolist()]
    return found


def assert_same(one: str, other: str) -> None:
    """Assert that two indexes have the same items and vectors, bit for bit, give the same answers, and are intact."""
    with open_store(one).reading() as first, open_store(other).reading() as second:
        assert first.counts == second.counts == {"images": IMAGES, "texts": IMAGES}
        assert contents(first) == contents(second)
    assert st.verify_index(other).intact
    for question in ({"text": "a square of shade 7"}, {"like": ("i3",), "where": ("year >= 2000",)}):
        hits = [st.search(place, top=10, **question).to_json()["hits"] for place in (one, other)]
        assert hits[0] == hits[1] and hits[0]


def fatal_once(monkeypatch: pytest.MonkeyPatch, flag: Path) -> None:
    """The worker that gets the first part of texts is killed while it has it, once."""
    plain = clusters.Cluster.map

    class Fatal:  # Sent as its code, since no worker can import this module.
        def __init__(self, work: Any, flag: str) -> None:
            self.work, self.flag = work, flag

        def __call__(self, chunk: Any) -> Any:
            import os
            import signal

            if chunk.side == "texts" and not os.path.exists(self.flag):  # noqa: PTH110
                with open(self.flag, "w"):  # noqa: PTH123
                    os.kill(os.getpid(), signal.SIGKILL)
            return self.work(chunk)

    def wrapped(self: clusters.Cluster, work: Any, *words: Any, **more: Any) -> Iterator[Any]:
        own = Fatal(work, str(flag)) if isinstance(work, build._OnCluster) else work
        yield from plain(self, own, *words, **more)

    monkeypatch.setattr(clusters.Cluster, "map", wrapped)


def at_result(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Do something when the command has got so many results of workers that embed."""
    plain, counted = clusters.Cluster.map, [0]

    def watched(self: clusters.Cluster, work: Any, *words: Any, **more: Any) -> Iterator[Any]:
        for result in plain(self, work, *words, **more):
            if isinstance(work, build._OnCluster):
                counted[0] += 1
                if counted[0] == number:
                    act()
            yield result

    monkeypatch.setattr(clusters.Cluster, "map", watched)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cluster_builds_what_one_process_builds_though_a_worker_is_killed(
    many: Path, options: dict[str, Any], nodes: Any, one: Callable[[str], str], small: None, tmp_path: Path
) -> None:
    for place in (str(tmp_path / "folder"), f"lance://{tmp_path / 'lance'}", "s3://archive/built"):
        flag = tmp_path / f"killed in {place.rpartition('/')[2]}"
        with pytest.MonkeyPatch.context() as patch:
            fatal_once(patch, flag)
            built = st.build_index(place, many, ray="auto", **options)
        assert flag.exists() and (built.embedded, built.unchanged) == (2 * IMAGES, 0)
        assert_same(one(place), place)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cluster_rounds_to_sixteen_bits_as_one_process_does(
    many: Path, options: dict[str, Any], nodes: Any, small: None, tmp_path: Path
) -> None:
    for kind in ("", "lance://"):
        places = [f"{kind}{tmp_path}/{kind[:5]}-{name}" for name in ("one", "other")]
        st.build_index(places[0], many, vectors="float16", **options)
        st.build_index(places[1], many, vectors="float16", ray="auto", **options)
        assert_same(*places)
        with open_store(places[1]).reading() as view:
            (vector,) = view.vectors("images", view.keys("images")[:1]).reshape(1, -1)
        assert view.manifest.numbers == "float16" and (vector == vector.astype("float16")).all() and vector.any()


class Probe:
    """Says what a worker has of a model: the product of some rows, and which parameters lie in the store of Ray."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, rows: Any) -> Any:
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "plasma" in line]
        stores = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in lines]
        places = {name: own.data_ptr() for name, own in self.model.named_parameters()}
        stored = {name for name, place in places.items() if any(start <= place < end for start, end in stores)}
        return self.model(rows).detach().numpy(), stored, [own.requires_grad for own in self.model.parameters()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_machine_read_one_copy_of_large_weights(nodes: Any) -> None:
    import ray
    import torch

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(600, 500), torch.nn.Linear(500, 3, dtype=torch.float32)).eval()
    model[1].weight.requires_grad_(False)
    rows = torch.randn(4, 600)
    with clusters.Cluster("auto") as cluster:
        ((_, (found, stored, learns)),) = cluster.map(Probe(model), [rows])
    assert (found == model(rows).detach().numpy()).all() and found.any()
    assert stored == {"0.weight"} and learns == [True, True, False, True]
    # Elsewhere tensors are pickled as torch does it.
    assert ray.get(ray.put(torch.ones(600, 500))).add_(1).sum() == 600_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_few_tasks_of_a_cluster_are_in_flight_at_a_time(nodes: Any) -> None:
    taken, done = [0], 0

    def source() -> Iterator[list[int]]:
        for number in range(40):
            taken[0] += 1
            yield [0] * number

    for ordered in (False, True):
        taken[0], done, found = 0, 0, list[int]()
        with clusters.Cluster("auto") as cluster:
            for task, result in cluster.map(len, source(), ordered=ordered):
                assert result == len(task)
                found.append(result)
                done += 1
                assert taken[0] - done <= clusters.QUEUED * 2
        assert sorted(found) == list(range(40)) and (found == sorted(found) or not ordered)
    # Two tasks that are together larger than may be held are not in flight together.
    with clusters.Cluster("auto") as cluster:
        taken[0] = 0
        for done, _ in enumerate(cluster.map(len, source(), size=lambda _: clusters.HELD), 1):
            assert taken[0] <= done + 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cluster_of_which_a_node_is_killed_does_its_work_again(
    many: Path, options: dict[str, Any], nodes: Any, one: Callable[[str], str], small: None, tmp_path: Path
) -> None:
    lost = next(iter(nodes.worker_nodes))
    place = f"lance://{tmp_path / 'lance'}"
    with pytest.MonkeyPatch.context() as patch:
        at_result(patch, 3, lambda: nodes.remove_node(lost, allow_graceful=False))
        st.build_index(place, many, ray="auto", **options)
    nodes.add_node(num_cpus=1, object_store_memory=10**8)
    assert_same(one(place), place)


DRIVER = """
import sys, ray
import subtext as st
from subtext.retrieval import build
build.CHUNK = 4
index, data, run, address = sys.argv[1:]
st.build_index(index, data, run=run, ray=address, batch_size=3, quiet=True)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_killed_driver_of_a_cluster_goes_on_and_a_second_one_is_told(
    many: Path, runs: Path, options: dict[str, Any], nodes: Any, one: Callable[[str], str], small: None, tmp_path: Path
) -> None:
    place, notes = f"lance://{tmp_path / 'lance'}", tmp_path / "lance" / "items.lance" / part_notes.PARTS
    words = [sys.executable, "-c", DRIVER, place, str(many), str(runs / "run"), nodes.address]
    with subprocess.Popen(words) as driver:
        deadline = time.monotonic() + 120
        while len(list(notes.glob("images-*"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        driver.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(IndexLockedError, match=f"is being built by process {driver.pid} on"):
                st.build_index(place, many, ray="auto", **options)
        finally:
            driver.kill()
    written = len(list(notes.glob("*-*.json")))
    assert 3 <= written < 2 * IMAGES // 4
    assert open_store(place).counts == {"images": 0, "texts": 0}
    with pytest.raises(SearchIndexError, match="holds the work of a cluster that has not ended; go on with one"):
        st.build_index(place, many, **options)
    # Of what a worker has noted one file is lost, as by a compaction.
    part = json.loads((notes / "images-000000000001.json").read_text())
    (notes.parent / "data" / part["fragments"][0]["files"][0]["path"]).unlink()
    built = st.build_index(place, many, ray="auto", **options)
    assert 4 * 2 <= built.unchanged <= 4 * (written - 1) and built.unchanged + built.embedded == 2 * IMAGES
    assert not notes.exists()
    assert_same(one(place), place)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cluster_says_what_a_machine_lacks(
    many: Path, options: dict[str, Any], nodes: Any, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(hook: str, *, address: str = f"lance://{tmp_path / 'index'}", **environment: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(hook)
        variables = {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}", **environment}
        node = nodes.add_node(num_cpus=1, object_store_memory=10**8, env_vars=variables)
        try:
            with pytest.raises((RequirementError, SearchIndexError)) as told:
                st.build_index(address, many, ray="auto", **options)
        finally:
            nodes.remove_node(node)
        return str(told.value)

    absent = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "subtext": raise ModuleNotFoundError("No module named 'subtext'")
sys.meta_path.insert(0, Absent())
"""
    assert "needs Subtext 0.1.0 on every machine; " in (told := refused(absent)) and " has none; install it" in told
    blind = f"""
import os
plain = os.path.isfile
os.path.isfile = lambda name: not str(name).startswith({str(many)!r}) and plain(name)
"""
    told = refused(blind)
    assert "needs the images on every machine, at the same paths; " in told and f"does not see {many}" in told
    told = refused("", address="s3://archive/read", AWS_ACCESS_KEY_ID="reader")
    assert "s3://archive/read needs a credential that may write it" in told and "(a worker on " in told
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    with pytest.raises(SearchIndexError, match="s3://archive/new needs a credential that may write it"):
        st.build_index("s3://archive/new", many, ray="auto", **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_image_that_breaks_while_a_cluster_builds_is_told_and_others_are_kept(
    runs: Path, options: dict[str, Any], nodes: Any, small: None, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(12):
        Image.new("RGB", (40, 40), (number * 20, 9, 9)).save(data / f"{number:02}.png")
    (data / "03.png").write_bytes(b"no image")
    place = f"lance://{tmp_path / 'lance'}"
    with pytest.raises(DataError, match=r"1 problem: .*03\.png"):
        st.build_index(place, data, ray="auto", **options)
    assert not (tmp_path / "lance" / "items.lance").exists()
    content = (data / "09.png").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        at_result(patch, 1, lambda: None)
        plain = build._ingest_parts

        def broken(*words: Any, **more: Any) -> Any:
            (data / "09.png").write_bytes(content[:60])
            return plain(*words, **more)

        patch.setattr(build, "_ingest_parts", broken)
        with pytest.raises(DataError, match=r"09\.png"):
            st.build_index(place, data, ray="auto", on_error="skip", **options)
    (data / "09.png").write_bytes(content)
    built = st.build_index(place, data, ray="auto", on_error="skip", **options)
    assert (built.counts["images"], built.unusable) == (11, 1) and built.embedded + built.unchanged == 11


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_bucket_that_goes_away_while_a_cluster_builds_is_one_sentence(
    many: Path, options: dict[str, Any], nodes: Any, small: None
) -> None:
    def post(path: str) -> None:
        urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/{path}", data=b"").close()

    with pytest.MonkeyPatch.context() as patch:
        at_result(patch, 3, lambda: post("gone"))
        with pytest.raises((SearchIndexError, OutputError), match="s3://archive/gone needs a bucket that exists"):
            st.build_index("s3://archive/gone", many, ray="auto", **options)
    post("back")
