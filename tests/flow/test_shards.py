"""An index in shards answers as one folder of the same items does; all of it in this process, without a cluster."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import drawn
import numpy as np
import pytest
import stored
from command import call
from in_shards import BATCH, assert_same_answers, built, given, work

from subtext.api.index import sharding
from subtext.api.index.embedder import Embedder
from subtext.api.load import load, open_engine
from subtext.errors import DataError, IndexError_, RequirementError
from subtext.search import Engine, Order, growing
from subtext.search.stores.change import Change
from subtext.search.stores.condition import Condition, parse
from subtext.search.stores.folder import Folder, create
from subtext.search.stores.opened import open_store
from subtext.search.stores.shards import cluster
from subtext.search.stores.shards.cut import cut, pieces
from subtext.search.stores.shards.keeper import Keeper
from subtext.search.stores.shards.manifest import FOLDER, Shard, Shards, read_shards, write_shards
from subtext.search.stores.shards.numbering import numberings
from subtext.search.stores.shards.store import Here, Sharded
from subtext.search.stores.store import Store, StoreShelf, StoreView

PICTURES, TEXTS = 40, 40
QUERIES = stored.vectors(range(1000, 1004), 1)
LINKS = np.array([(number % PICTURES, number) for number in range(TEXTS)])


class Several:
    """Shards that two keep between them, as two workers do."""

    def __init__(self, index: Path, count: int) -> None:
        self.keepers = [Keeper(str(index), list(range(own, count, 2))) for own in range(2)]

    def ask(self, seen: dict[int, int] | None, what: str, *words: object) -> list[object]:
        return [keeper.ask(seen, what, *words) for keeper in self.keepers]

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()


def made(path: Path, *, count: int = 3) -> Sharded:
    """What `stored.made` puts into one folder, in shards."""
    shards = []
    for number, share in enumerate(cut(LINKS, images=PICTURES, texts=TEXTS, count=count)):
        folder = create(path / FOLDER / f"{number:04d}", stored.manifest())
        images, texts = share.images.tolist(), share.texts.tolist()
        with folder.writing("build") as writer:
            vectors = np.concatenate([stored.vectors(range(n, n + 1), stored.VIEWS) for n in images])
            writer.put(Change("images", [stored.picture(n) for n in images], vectors))
            vectors = np.concatenate([stored.vectors(range(n, n + 1), 1) for n in texts])
            links = [(f"p{image}", f"t{text}") for image, text in LINKS.tolist() if text in texts]
            writer.put(Change("texts", [stored.text(n) for n in texts], vectors, links=links))
        shards.append(Shard(f"{FOLDER}/{number:04d}", len(images), len(texts)))
    write_shards(path, Shards(stored.manifest(), tuple(shards), "0" * 32, whole=True))
    found = Sharded(path, here=True)
    found._keepers.append(Several(path, count))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return stored.made(tmp_path_factory.mktemp("index") / "index", words=TEXTS)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Sharded:
    return made(tmp_path_factory.mktemp("shards") / "index")


def test_a_cut_keeps_together_what_belongs_together() -> None:
    drawn_links = np.random.default_rng(0).integers(0, 60, size=(45, 2))
    for links in (drawn_links, LINKS % 60, np.zeros((0, 2), dtype=np.int64), np.array([(n, n + 1) for n in range(59)])):
        together: dict[int, set[int]] = {own: {own} for own in range(120)}
        for image, text in links.tolist():
            both = together[image] | together[60 + text]
            for own in both:
                together[own] = both
        wanted = [min(together[own]) for own in range(120)]
        assert pieces(links, images=60, texts=60).tolist() == wanted
        for count in (1, 2, 5, len(set(wanted))):
            shares = cut(links, images=60, texts=60, count=count) if count <= len(set(wanted)) else []
            held = [[*share.images.tolist(), *(60 + share.texts).tolist()] for share in shares]
            assert sorted(own for each in held for own in each) == list(range(120)) or not shares
            assert all(each for each in held), "each has something"
            assert all(together[own] <= set(each) for each in held for own in each)
            firsts = [[wanted[own] for own in each] for each in held]
            assert all(max(one) < min(other) for one, other in itertools.pairwise(firsts)), "in order"
    sizes = [len(share.images) for share in cut(np.zeros((0, 2), dtype=np.int64), images=100, texts=0, count=7)]
    assert max(sizes) - min(sizes) <= 1
    with pytest.raises(
        RequirementError, match=r"make 1 piece, which cannot be cut any more; it got 2 shards; ask for 1"
    ):
        cut(np.array([(0, 0), (1, 0)]), images=2, texts=1, count=2)


def test_keys_are_those_of_one_folder_and_later_ones_are_nobody_elses() -> None:
    numbering = numberings([(3, 5), (1, 0), (2, 4)])
    every = [own.whole(np.arange(1, 30)) for own in numbering]
    assert len(set(np.concatenate(every).tolist())) == 3 * 29
    assert [own[:n].tolist() for own, n in zip(every, (3, 1, 2), strict=True)] == [[1, 2, 3], [4], [5, 6]]
    assert [every[0][3:8].tolist(), every[2][2:6].tolist()] == [[7, 8, 9, 10, 11], [12, 13, 14, 15]]
    for own, keys in zip(numbering, every, strict=True):
        assert (np.diff(keys) > 0).all()
        places, back = own.own(np.concatenate(every))
        assert back.tolist() == list(range(1, 30)) and np.concatenate(every)[places].tolist() == keys.tolist()


@pytest.mark.parametrize("views", [1, 3])
def test_the_nearest_are_those_of_one_folder(sharded: Sharded, folder: Folder, views: int) -> None:
    queries = stored.vectors(range(2000, 2003), views)
    with sharded.reading() as mine, folder.reading() as theirs:
        for side in ("images", "texts"):
            for top in (1, 7, 99):
                got, wanted = (view.shelves[side].nearest(queries, top=top) for view in (mine, theirs))
                for one, other in zip(got, wanted, strict=True):
                    np.testing.assert_array_equal(one.keys, other.keys)
                    np.testing.assert_array_equal(one.scores, other.scores)
    assert stored.nearest(sharded, queries, top=7) == stored.plain(queries, list(range(PICTURES)), top=7)


def test_it_is_a_store_as_a_folder_is(sharded: Sharded, folder: Folder) -> None:
    assert isinstance(sharded, Store)
    assert sharded.counts == folder.counts == {"images": PICTURES, "texts": TEXTS} and sharded.bytes > 0
    with sharded.reading() as mine, folder.reading() as theirs:
        assert isinstance(mine, StoreView) and isinstance(mine.shelves["images"], StoreShelf)
        stored.assert_same_items(mine, theirs)
        for side in ("images", "texts"):
            own, other = mine.shelves[side], theirs.shelves[side]
            np.testing.assert_array_equal(own.live, other.live)
            assert own.loose == other.loose
            for count in (5, 25, 99):
                np.testing.assert_array_equal(own.drawn(count, seed=3), other.drawn(count, seed=3))
        assert mine.keys_of("images", ["p3", "p39", "nobody"]) == theirs.keys_of("images", ["p3", "p39", "nobody"])
        assert mine.items("images", []) == [] and mine.partners("images", []) == {}
        for missing in (10_000, 0):
            with pytest.raises(KeyError):
                mine.items("images", [missing])
        with pytest.raises(KeyError, match="1 of 2 items are in no shard"):
            mine.shelves["images"].vectors_of(np.array([1, 0]))


@pytest.mark.parametrize(("condition", "wanted"), stored.CASES, ids=[str(case[0])[:40] for case in stored.CASES])
def test_a_condition_means_what_a_loop_says(
    sharded: Sharded, condition: str | Condition, wanted: Callable[[int], bool]
) -> None:
    stored.assert_as_a_loop_says(sharded, condition, wanted, QUERIES)


def test_a_field_that_one_shard_has_is_a_field(tmp_path: Path) -> None:
    store = made(tmp_path / "index")
    with Folder(tmp_path / "index" / FOLDER / "0001").writing("add") as writer:
        change = Change("images", amended=[stored.picture(20).__class__("p20", b"c20", metadata={"lone": 3})])
        writer.put(change)
    with store.reading() as view:
        for condition, count in (("lone = 3", 1), ("lone != 3", PICTURES - 1)):
            assert len(view.matching("images", [parse(condition)])) == count
        with pytest.raises(RequirementError, match="none has 'colour'; there are lone, place"):
            view.matching("images", [parse("colour = red")])


def test_words_are_found_in_every_shard(sharded: Sharded, folder: Folder) -> None:
    with sharded.reading() as mine, folder.reading() as theirs:
        assert mine.by_words("word37", top=5)[0][0] == theirs.by_words("word37", top=5)[0][0]
        got = mine.by_words("word3 word30 word39", top=3)
        assert {key for key, _ in got} == {key for key, _ in theirs.by_words("word3 word30 word39", top=3)}
        assert len(mine.by_words("rowing", top=30)) == 30 and mine.by_words("nothing", top=5) == []


def test_a_shard_that_changes_in_mid_search_is_noticed(tmp_path: Path) -> None:
    store = made(tmp_path / "index")
    last = Folder(tmp_path / "index" / FOLDER / "0002")
    with store.reading() as view:
        view.shelves["images"].nearest(QUERIES, top=5)
        with last.writing("delete") as writer:
            writer.delete("images", ["p39"])
        with pytest.raises(IndexError_, match="0002 was changed in the midst of a search; ask again"):
            view.shelves["images"].nearest(QUERIES, top=5)
    with last.writing("add") as writer:
        writer.put(stored.images(range(70, 72)))
    with store.reading() as view:
        assert view.counts["images"] == PICTURES + 1
        (key,) = view.keys_of("images", ["p71"]).values()
        assert view.items("images", [key])[0].id == "p71" and key > PICTURES + TEXTS
    live = [*range(39), 70, 71]
    assert stored.nearest(store, QUERIES, top=9) == stored.plain(QUERIES, live, top=9)


# What a data set becomes, by the model: as the workers of a cluster do it, one after the other.


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = drawn.runs(tmp_path_factory.mktemp("runs"), "run", "other", "views")
    for name in ("run", "views"):
        call("index", "build", folder / f"of-{name}", *given(folder, name))
    return folder


@pytest.fixture(scope="module")
def index(runs: Path) -> Path:
    built(runs, runs / "shards")
    return runs / "shards"


@pytest.mark.parametrize("name", ["run", "views"])
def test_the_engine_answers_as_on_one_folder(runs: Path, index: Path, tmp_path: Path, name: str) -> None:
    place = index if name == "run" else tmp_path / "views"
    if name == "views":
        built(runs, place, name="views")
    mine, theirs = Engine(Sharded(place, here=True), load(runs / name)), open_engine(runs / f"of-{name}")
    assert len(mine) == 12
    assert_same_answers(mine, theirs, runs / "data")
    assert len(mine.search("a blue square", top=20, order=Order(words=True))) == 12
    assert not list(place.glob("ray-*")) and not list((place / FOLDER).glob("*.json"))


def test_another_model_is_refused(runs: Path, index: Path) -> None:
    with pytest.raises(IndexError_, match="needs the model that made it"):
        Engine(Sharded(index, here=True), load(runs / "other"))


def test_a_build_that_was_cut_off_goes_on(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[list[str]] = []
    plain = growing.embed_items

    def noted(model: object, branch: object, items: object, *rest: object, **more: object) -> object:
        if len(embedded) == 7:
            raise KeyboardInterrupt
        embedded.append(list(items.ids))  # type: ignore[attr-defined]
        return plain(model, branch, items, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(growing, "PIECE", 2)
    monkeypatch.setattr(growing, "embed_items", noted)
    out = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        built(runs, out, count=4)
    assert "1 of 4 shards are done" in call("index", "info", out).stdout and len(embedded) == 7
    assert json.loads(call("index", "info", out, "--json").stdout)["done"] == 1
    with pytest.raises(IndexError_, match=r"needs all its shards; its building was cut off.*goes on where it was"):
        open_store(out)
    before = {name for piece in embedded for name in piece}
    embedded.clear()
    monkeypatch.setattr(
        growing, "embed_items", lambda *words, **more: (embedded.append(words[2].ids), plain(*words, **more))[1]
    )
    built(runs, out, count=4, skip=[0])
    after = {name for piece in embedded for name in piece}
    assert not before & after and len(before | after) == 12 + 24, "nothing is embedded twice"
    assert Sharded(out, here=True).counts == {"images": 12, "texts": 24}
    assert read_shards(out).whole and not list((out / FOLDER).glob("*.json"))


def test_what_is_done_is_not_done_again(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, with this process in place of a cluster."""
    asked = in_process(monkeypatch)
    out = tmp_path / "index"
    built(runs, out, only=2)
    words = ["build", out, "--run", runs / "run", "--data", runs / "data", "--ray", "local", "--quiet"]
    words += ["--batch-size", BATCH, "--shards"]
    for more, problem in ((["3"], "or another number of shards"), (["4", "--split", "train"], "of other data")):
        assert problem in call("index", *words, *more, code=1).stderr
    other = ["build", out, "--run", runs / "other", "--data", runs / "data", "--ray", "local", "-q", "--shards", 4]
    assert "another model" in call("index", *other, code=1).stderr and asked == []
    told = call("index", *words, "4").stdout
    assert "12 pictures and 24 texts in 4 shards, vectors of 16" in told and asked == [2, 3]
    assert "is an index in shards already" in call("index", *words, "4", code=1).stderr
    held = open_engine(runs / "of-run").search("a pink square", top=20)
    found = Engine(Sharded(out, here=True), load(runs / "run")).search("a pink square", top=20)
    assert found == held


def test_a_build_that_fails_leaves_nothing_or_what_is_done(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_process(monkeypatch)
    shutil.copytree(runs / "data", tmp_path / "data")
    (tmp_path / "data" / "red.png").write_bytes(b"no picture")
    out = tmp_path / "index"
    words = ["build", out, "--run", runs / "run", "--data", tmp_path / "data", "--ray", "local", "-q", "--shards", 3]
    assert call("index", *words, code=1).stderr and not out.exists()
    shutil.copyfile(runs / "data" / "red.png", tmp_path / "data" / "red.png")
    (tmp_path / "data" / "cyan.png").write_bytes(b"no picture")
    answer = call("index", *words, code=1).stderr
    assert "a shard has 1 problem: picture 'cyan'" in answer and "--bad skip" in answer
    assert "2 of 3 shards are done" in call("index", "info", out).stdout
    answer = call("index", *words, "--bad", "skip", code=1).stderr
    assert "of other data" in answer
    shutil.rmtree(out)
    assert "11 pictures and 22 texts in 3 shards" in call("index", *words, "--bad", "skip").stdout


def in_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let this process make the shards; gives the numbers of those that it made."""
    asked: list[int] = []

    def made(ray: object, workers: object, plan: sharding.Plan, left: object, place: Path) -> object:
        for number in left:  # type: ignore[attr-defined]
            share = plan.shares[number]
            Embedder(plan.task).shard(number, plan.pairs.subset(share.images, share.texts))
            asked.append(number)
            yield number

    class NoCluster:
        ray = None

        def __init__(self, index: Path, address: str) -> None:
            assert address == "local" and index.is_dir()

        def close(self) -> None:
            """Nothing was begun."""

    monkeypatch.setattr(sharding, "Cluster", NoCluster)
    monkeypatch.setattr(sharding, "_workers", lambda ray, task, count: [])
    monkeypatch.setattr(sharding, "_made", made)
    monkeypatch.setattr(sharding, "_end", lambda ray, workers: None)
    return asked


def test_it_tells_what_it_holds_and_names_damage(runs: Path, index: Path, tmp_path: Path) -> None:
    told = call("index", "info", index).stdout
    for wanted in ("4, of 9 to 9 items", "language, place, split", "12", "24", "of 16"):
        assert wanted in told or wanted == "of 16", told
    found = json.loads(call("index", "info", index, "--json").stdout)
    assert found["counts"] == {"images": 12, "texts": 24} and len(found["shards"]) == 4
    assert f"{index}: whole" in call("index", "verify", index).stdout
    copy = tmp_path / "copy"
    shutil.copytree(index, copy)
    shutil.rmtree(copy / FOLDER / "0003")
    file = next((copy / FOLDER / "0001").rglob("vectors*"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    answer = call("index", "verify", copy, code=1).stdout
    assert f"{FOLDER}/0001/" in answer and f"{FOLDER}/0003/manifest.json" in answer
    text = (copy / "shards.json").read_text(encoding="utf-8")
    (copy / "shards.json").write_text(text.replace('"images": 3', '"images": 4', 1), encoding="utf-8")
    assert "needs its own checksum" in call("index", "verify", copy, code=1).stdout
    assert "needs its own checksum" in call("search", copy, "x", code=1).stderr
    (copy / "shards.json").write_text("[]", encoding="utf-8")
    assert "needs to name the shards of an index" in call("index", "info", copy, code=1).stderr


def test_what_shards_do_not_do_is_said(runs: Path, index: Path, tmp_path: Path) -> None:
    data = ["--data", runs / "data", "-q"]
    for words in (
        ["add", index, *data], ["update", index, "-q"], ["watch", index, "--rounds", 1, "-q"], ["delete", index, "red"],
    ):  # fmt: skip
        answer = call("index", *words, code=1).stderr
        assert "is built and searched as a whole, and changed shard by shard" in answer and "0000" in answer, words
    for words in (
        ["compact", index], ["backup", index, tmp_path / "copy"], ["migrate", index],
    ):  # fmt: skip
        assert "is an index in shards, and this takes one folder" in call("index", *words, code=1).stderr, words
    answer = call("index", "move", index, "--run", runs / "other", code=1).stderr
    assert "build another one by the new run" in answer
    assert "11 items" not in call("index", "compact", index / FOLDER / "0000").stdout
    with pytest.raises(RequirementError, match="changed shard by shard"):
        Sharded(index, here=True).writing("add")
    words = ["--run", runs / "run", "--data", runs / "data", "--ray", "local"]
    assert "holds something" in call("index", "build", runs, *words, "--shards", 2, code=1).stderr
    assert "--ray ADDRESS and --shards N belong together" in call("index", "build", "x", *words, code=2).output
    assert "belong together" in call("index", "build", "x", *words[:4], "--shards", 2, code=2).output
    answer = call("index", "build", "postgresql://me:s3cret@nowhere/a", *words, "--shards", 2, code=1).stderr
    assert "shards are folders" in answer and "s3cret" not in answer
    answer = call("index", "build", tmp_path / "many", *words, "--shards", 13, code=1).stderr
    assert "make 12 pieces" in answer and not (tmp_path / "many").exists()


def test_without_the_extra_it_says_what_to_install(
    runs: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else plain(name, *rest))
    wanted = "pip install 'subtext[ray]'"
    with pytest.raises(RequirementError, match=re.escape(wanted)), Sharded(index).reading():
        pass
    words = ["build", tmp_path / "x", "--run", runs / "run", "--ray", "local", "--shards", 2]
    assert wanted in call("index", *words, code=1).stderr and not (tmp_path / "x").exists()
    assert "12" in call("index", "info", index).stdout and "whole" in call("index", "verify", index).stdout


def test_an_index_in_shards_is_calibrated_as_a_folder_is(runs: Path, index: Path) -> None:
    with pytest.raises(DataError, match="none of the 6 is there"):
        Embedder(sharding.planned(work(runs), index, 4).task).shard(0, gone(runs))
    store = Sharded(index, here=True)
    assert store.calibration() is None and store.calibration_mark() == 0
    with store.reading() as view, Folder(runs / "of-run").reading() as other:
        np.testing.assert_array_equal(view.shelves["images"].drawn(7), other.shelves["images"].drawn(7))
    assert isinstance(store._asked(), Here)
    store.close()
    assert store.counts["images"] == 12


def gone(runs: Path) -> object:
    """A share whose pictures are nowhere."""
    from dataclasses import replace

    plan = sharding.planned(work(runs), runs / "nowhere", 2)
    return replace(plan.pairs.subset(plan.shares[0].images, plan.shares[0].texts), root=runs / "nowhere")


def test_what_killed_rays_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    mine = tmp_path / f"{cluster._prefix(1)}abc"
    dead = tmp_path / f"{cluster._prefix(2**22 + 1)}abc"
    elsewhere = tmp_path / "ray-00000000-4194305-abc"
    for place in (mine, dead, elsewhere):
        place.mkdir()
    cluster._tidy(tmp_path)
    assert mine.is_dir() and elsewhere.is_dir() and not dead.exists()
