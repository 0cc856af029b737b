"""What holds of every store of an index, whatever it is kept in: a folder, PostgreSQL, LanceDB, or one of `--store`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stored_items

from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.calibration import Calibration, store_calibration
from subtext.retrieval.condition import matching, parse
from subtext.retrieval.journal import journal
from subtext.retrieval.stores.documents import CALIBRATION
from subtext.retrieval.stores.errors import IndexMovedError
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage, verify
from subtext.retrieval.words import words

QUERIES = stored_items.vectors(range(1000, 1004), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return stored_items.made(tmp_path_factory.mktemp("index") / "index")


@pytest.fixture(scope="module")
def shared(address_of: Callable[[str], str]) -> Store:
    """One that no test changes."""
    return stored_items.made(address_of("shared"))


@pytest.fixture
def place(address_of: Callable[[str], str]) -> Iterator[Store]:
    store = stored_items.made(address_of("own"))
    yield store
    store.close()
    store = open_store(store.path)  # A test may have moved it to another model.
    store.remove()
    store.close()


@pytest.mark.parametrize("views", [1, 3])
def test_answers_equal_folder(shared: Store, folder: Folder, views: int) -> None:
    queries = stored_items.vectors(range(2000, 2003), views)
    for side in ("images", "texts"):
        assert stored_items.answers(shared, queries, side=side) == stored_items.answers(folder, queries, side=side)
    assert stored_items.nearest(shared, queries, top=7) == stored_items.plain(queries, list(range(40)), top=7)
    assert [len(found) for found in stored_items.nearest(shared, queries, top=99)] == [40] * 3


def test_store_satisfies_interface(shared: Store, folder: Folder) -> None:
    assert isinstance(shared, Store) and isinstance(folder, Store)
    assert shared.counts == folder.counts == {"images": 40, "texts": 60} and shared.bytes > 0
    with shared.reading() as mine, folder.reading() as theirs:
        stored_items.assert_same_items(mine, theirs)
        assert mine.keys_of("images", ["p3", "nobody"]) == theirs.keys_of("images", ["p3", "nobody"])
        with pytest.raises(KeyError):
            mine.items("images", [10_000])
    assert damage(shared) == []


@pytest.mark.parametrize(
    ("condition", "wanted"), stored_items.CASES, ids=[str(case[0])[:40] for case in stored_items.CASES]
)
def test_condition_equals_plain_loop(shared: Store, condition: str | Condition, wanted: Callable[[int], bool]) -> None:
    stored_items.assert_as_a_loop_says(shared, condition, wanted, QUERIES)


def test_metadata_of_any_kind_is_filtered_as_in_a_folder(place: Store, tmp_path: Path) -> None:
    stored_items.assert_odd_metadata_is_filtered(place, stored_items.made(tmp_path / "plain"))
    assert damage(place) == []


def test_all_conditions_must_hold(shared: Store) -> None:
    where = [parse("year < 1930"), parse("tags = odd"), parse("place in Paris, Wien"), parse("text contains rowing")]
    with shared.reading() as view:
        found = [item.id for item in view.items("images", matching(view, "images", where))]
        assert found == [f"p{n}" for n in range(30) if n % 2 and n % 3 < 2]
        texts = view.items("texts", matching(view, "texts", [parse("text contains word5"), parse("language = en")]))
        assert [item.id for item in texts] == ["t5"]
        with pytest.raises(RequirementError, match="none has 'colour'; there are place, rare"):
            matching(view, "images", [parse("colour = red")])
        assert len(matching(view, "images", [Condition("weight", "<", float("inf"))])) == 40
        assert len(matching(view, "images", [Condition("weight", ">", float("nan"))])) == 0


def test_text_search_equals_folder(shared: Store, folder: Folder) -> None:
    with shared.reading() as mine, folder.reading() as theirs:
        for asked in ("boat word7", "WORD12 word3 7", "Rowing rowing word9", "nothing", "? !", "boat 7 word7"):
            got, wanted = mine.search_text(asked, top=9), theirs.search_text(asked, top=9)
            assert [key for key, _ in got] == [key for key, _ in wanted], asked
            np.testing.assert_allclose([score for _, score in got], [score for _, score in wanted], rtol=1e-6)
    assert words("Łódź, naïve: 3×4 don't 北京") == ["lodz", "naive", "3", "4", "don", "t", "北", "北京", "京"]


def test_compaction_frees_unfinished_move_of_what_was_deleted_or_replaced(place: Store) -> None:
    """A text that was replaced may be one that nobody must read any more; the move embeds the new one later."""
    if type(place).create_replacement is Store.create_replacement:
        return  # A store that cannot be moved has no unfinished move.
    moving = place.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    with moving.writing("move") as writer:
        writer.put(stored_items.images(range(4)))
        writer.put(stored_items.texts(range(4)))
    new = replace(stored_items.text(2), content=b"other", text="Harbour at night")
    other = replace(stored_items.picture(3), metadata={"place": "Ulm"})
    with place.writing("update") as writer:
        writer.delete("texts", ["t0"])
        writer.put(Change("texts", [new], stored_items.vectors(range(9, 10), 1), links=[("p2", "t2")]))
        writer.put(Change("images", [other], stored_items.vectors(range(3, 4), stored_items.VIEWS)))
        writer.compact()
    begun = place.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    assert stored_items.ids(begun, "texts") == {"t1", "t3"} and stored_items.ids(begun) == {"p0", "p1", "p2"}
    assert damage(begun) == [] == damage(place)
    begun.close()


def test_compaction_of_an_unfinished_move_keeps_an_index_that_was_moved_before(place: Store) -> None:
    if type(place).create_replacement is Store.create_replacement:
        return
    with place.reading() as view:
        since = view.revision
    moved = place.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    with moved.writing("move") as writer:
        writer.put(stored_items.images(range(5)))
    now = place.replace_with(moved, since=since)
    begun = now.create_replacement(replace(stored_items.manifest(), fingerprint="d" * 32))
    with begun.writing("move") as writer:
        writer.put(stored_items.images(range(3)))
        writer.compact()  # As a move of a large side does.
    with now.writing("compact") as writer:
        writer.compact()
    opened = open_store(now.path)
    assert stored_items.ids(opened) == {f"p{number}" for number in range(5)} and damage(opened) == []
    assert stored_items.ids(now.create_replacement(begun.manifest)) == {"p0", "p1", "p2"}


def test_item_that_another_writer_deleted_meanwhile_stays_deleted(place: Store, store_kind: str) -> None:
    """An update looks, embeds and writes; what others delete between these stays deleted."""
    if store_kind not in ("lance", "postgresql"):
        return  # One writer at a time: nobody can.
    again = replace(stored_items.images(range(1, 3)), unless_deleted=True)
    with place.writing("update") as writer:
        with place.writing("delete") as other:
            other.delete("images", ["p1"])
        writer.put(again)
    assert "p1" not in stored_items.ids(place) and "p2" in stored_items.ids(place)
    assert stored_items.deleted(place, "images", ["p1"]) == {"p1"} and damage(place) == []
    with place.writing("add") as writer:
        writer.put(replace(again, unless_deleted=False))
    assert "p1" in stored_items.ids(place) and not stored_items.deleted(place, "images", ["p1"])


def test_deletion_reaches_unfinished_move(place: Store) -> None:
    if type(place).create_replacement is Store.create_replacement:
        return
    moving = place.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    with moving.writing("move") as writer:
        writer.put(stored_items.images(range(4)))
        writer.put(stored_items.texts(range(4)))
    with place.writing("delete") as writer:
        writer.delete("images", ["p1"])
    begun = place.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    assert stored_items.ids(begun) == {"p0", "p2", "p3"} and "t1" not in stored_items.ids(begun, "texts")
    begun.close()


NASTY = [
    "'; DROP TABLE items; --",
    '"x" OR 1=1',
    "%s %(a)s {} \\",
    "a' | 'b' & !c:*",
    "$1; SELECT pg_sleep(9)",
    "‮ \u00a0",
]


def test_sql_in_names_filters_and_queries_is_data(store_kind: str, place: Store) -> None:
    entries = [
        IndexEntry(name, b"x", path=name, metadata={"title": name, name: 7, "long": name * 900}) for name in NASTY
    ]
    said = [IndexEntry(name, b"y", text=name, metadata={"language": name}) for name in NASTY]
    with place.writing(NASTY[0][:40]) as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(50, 50 + len(NASTY)), stored_items.VIEWS)))
        links = [(name, name) for name in NASTY]
        writer.put(Change("texts", said, stored_items.vectors(range(50, 50 + len(NASTY)), 1), links=links))
        assert set(writer.rows_of("images", NASTY)) == set(NASTY)
    with place.reading() as view:
        for name in NASTY:
            for where in (
                Condition("title", "=", name),
                Condition("id", "=", name),
                Condition("title", "contains", name.strip() or "x"),
                Condition(name, ">", 6),
                Condition("long", "in", [name * 900]),
            ):
                got = [item.id for item in view.items("images", matching(view, "images", [where]))]
                assert name in got or not name.strip(), where
                assert got == [name] or where.test == "contains", where
            matching(view, "images", [Condition("text", "contains", name or "x")]) if name.strip() else None
            view.search_text(name, top=3)
        if store_kind != "folder":
            with pytest.raises(RequirementError, match="without NUL"):
                matching(view, "images", [Condition("title", "=", "a\0b")])
            assert view.keys_of("images", ["a\0b", "\ud800"]) == {}
        else:
            assert not len(matching(view, "images", [Condition("title", "=", "a\0b")]))
    with place.writing("delete") as writer:
        assert writer.delete("images", [*NASTY, "a\0b"]) == {"images": len(NASTY), "texts": len(NASTY)}
    assert place.counts == {"images": 40, "texts": 60} and damage(place) == []


def test_changes_equal_folder(place: Store, tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    for store in (place, folder):
        with store.writing("add") as writer:
            writer.put(stored_items.images(range(40, 60)))
            assert writer.delete("images", [f"p{number}" for number in range(0, 60, 3)])["texts"] > 0
            assert stored_items.deleted(writer.store, "images", ["p3", "p4"]) == {"p3"}
            moved = Change(
                "images", [replace(stored_items.picture(4), content=b"new")], stored_items.vectors(range(1000, 1001), 2)
            )
            writer.put(moved)
            writer.put(
                Change("images", amended=[replace(stored_items.picture(5), metadata={"place": "Rom", "zero": -0.0})])
            )
            writer.put(Change("texts", links=[("p8", "t7")]))
            writer.put(Change("texts", links=[("p10", "t8")], exact_texts=frozenset(["t8"])))
            before = writer.manifest.generation
            writer.put(
                Change("texts", links=[("p8", "t7")], exact_texts=frozenset(["t8"]))
            ) if store is folder else None
            assert writer.delete("images", ["p7", "nobody"], keep_texts=False)["images"] == 1
            assert writer.ids("images") == [*[f"p{n}" for n in range(60) if n % 3 and n not in (4, 7)], "p4"]
            writer.put(stored_items.images(range(3, 4)))
            assert stored_items.deleted(writer.store, "images", ["p3"]) == set(), "put in again by the user's own wish"
            assert writer.manifest.generation > before
    with place.reading() as mine, folder.reading() as theirs:
        for side in ("images", "texts"):
            keys = {store: matching(view, side, []) for store, view in (("mine", mine), ("theirs", theirs))}
            got = {item.id: item for item in mine.items(side, keys["mine"])}
            wanted = {item.id: item for item in theirs.items(side, keys["theirs"])}
            assert got.keys() == wanted.keys()
            assert [item.metadata for item in got.values() if item.id != "t8"] == [
                item.metadata for item in wanted.values() if item.id != "t8"
            ]
        assert mine.items("texts", [mine.keys_of("texts", ["t8"])["t8"]])[0].metadata["images"] == ["p10"]
        assert mine.items("images", matching(mine, "images", [parse("place = Rom")]))[0].id == "p5"
    assert stored_items.answers(place, QUERIES) == stored_items.answers(folder, QUERIES)
    assert damage(place) == [] and verify(folder.path) == []


def test_each_change_draws_another_revision_of_same_index(place: Store) -> None:
    with place.reading() as view:
        revisions = [view.revision]
    with place.writing("add") as writer:
        writer.put(stored_items.images(range(60, 61)))
        revisions.append(writer.manifest.revision)
        writer.delete("images", ["p60"])
        revisions.append(writer.manifest.revision)
        writer.compact()
    for store in (place, open_store(place.path)):
        with store.reading() as view:
            revisions.append(view.revision)
            assert view.revision.identity == store.manifest.identity
        place.require_revision(view.revision)
        with pytest.raises(IndexMovedError, match="replaced by another index, or moved to another model; open it aga"):
            store.require_revision(replace(view.revision, identity="0" * 32))
    assert revisions[-1] == revisions[-2], "a reader sees what the last change led to"
    assert len({revision.identity for revision in revisions}) == 1
    assert len({revision.change for revision in revisions}) == len(set(revisions)) >= 3


def test_lost_and_foreign_changes_raise(shared: Store) -> None:
    with shared.reading() as view:
        now = view.revision
    shared.require_revision(now, now)
    shared.require_revision(now.next(), now)
    with pytest.raises(SearchIndexError, match="the last ones were lost, and deleted items may be back; restore a bac"):
        shared.require_revision(now, now.next())
    with pytest.raises(SearchIndexError, match="but others than were acknowledged: its files are of two copies"):
        shared.require_revision(now.next(), now.next())
    with pytest.raises(SearchIndexError, match="it has those of another index"):
        shared.require_revision(replace(now, identity="0" * 32), now)


def test_calibration_of_another_index_raises(place: Store, folder: Folder) -> None:
    line, last = {"xs": [0.0], "ys": [0.5]}, {"images": 1, "texts": 1}
    other = Calibration({}, line, {}, dict(place.counts), last, folder.manifest.identity)
    with pytest.raises(SearchIndexError, match="needs a calibration of its own; it got that of another index"):
        store_calibration(place, other, "<svg/>")
    assert stored_items.calibration(place) is None
    with place.writing("calibrate") as writer:
        writer.apply(Change(documents={CALIBRATION: other.to_json()}))
    with pytest.raises(SearchIndexError, match="needs a calibration of its own"):
        stored_items.calibration(place)
    assert any("needs a calibration of its own" in problem.what for problem in damage(place))
    store_calibration(place, replace(other, identity=place.manifest.identity), "<svg/>")
    assert stored_items.calibration(place) is not None and damage(place) == []


def test_empty_change_is_none_and_invalid_items_raise(place: Store) -> None:
    bad = stored_items.vectors(range(50, 52), 2)
    bad[1, 0, 0] = np.nan
    with place.writing("add") as writer:
        before = writer.manifest.generation
        writer.put(stored_items.texts(range(0)))
        writer.put(Change("texts", links=[("p1", "t1")]))
        assert writer.manifest.generation == before
        with pytest.raises(SearchIndexError, match="1 vector of images is not: 'p51'"):
            writer.put(Change("images", [stored_items.picture(50), stored_items.picture(51)], bad))
        with pytest.raises(
            SearchIndexError, match=r"images of 2 x 8, and one an item; it got vectors of shape \(1, 1, 8\)"
        ):
            writer.put(Change("images", [stored_items.picture(50)], stored_items.vectors(range(50, 51), 1)))
        writer.put(Change("images", amended=[replace(stored_items.picture(99), metadata={})]))
    assert place.counts["images"] == 40 and damage(place) == [], "what somebody has deleted meanwhile stays deleted"


def test_journal_resumes_interrupted_job(place: Store) -> None:
    with place.writing("add") as writer:
        first = writer.begin("add", source={"data": "a"}, total=30)
        writer.put(stored_items.images(range(40, 50)), job=first, done=10)
    with place.writing("add") as writer:
        assert writer.begin("add", source={"data": "b"}, total=5) != first
        assert writer.begin("add", source={"data": "a"}, total=30) == first
        writer.finish(first)
    with place.reading() as view:
        found = {job.number: job for job in journal(view)}
    assert found[first].finished is not None and found[first].done == 30
    assert [job.source for job in found.values() if job.finished is None] == [{"data": "b"}]


def test_reader_keeps_snapshot_during_writes(place: Store) -> None:
    with place.reading() as view:
        before = sorted(item.id for item in view.items("images", matching(view, "images", [])))
        with place.writing("delete") as writer:
            writer.delete("images", ["p1", "p2"])
        found = view.nearest("images", QUERIES, top=40)
        assert sorted(item.id for item in view.items("images", found[0].keys)) == before
        with place.reading() as same:
            assert same.counts["images"] == 40, "inside it, it is one moment"
    assert stored_items.ids(place) == set(before) - {"p1", "p2"}


def test_concurrent_writers_lose_nothing(store_kind: str, address_of: Callable[[str], str], place: Store) -> None:
    """Two add the same ten items and ten of their own each, one deletes, and somebody searches all the while."""
    if store_kind == "folder":
        pytest.skip("takes one writer at a time")
    problems: list[Exception] = []

    def add(own: int) -> None:
        try:
            with open_store(address_of("own")).writing("add") as writer:
                for number in range(10):
                    writer.put(stored_items.images(range(100 + number, 101 + number)))
                    writer.put(stored_items.images(range(own + number, own + number + 1)))
        except SearchIndexError as problem:
            problems.append(problem)

    def delete() -> None:
        try:
            with open_store(address_of("own")).writing("delete") as writer:
                for number in range(10):
                    writer.delete("images", [f"p{number}"])
        except SearchIndexError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=add, args=(own,)) for own in (200, 300)] + [threading.Thread(target=delete)]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        with place.reading() as view:
            found = view.nearest("images", QUERIES[:1], top=100)[0]
            seen.append(len(found.keys) == view.counts["images"] == len(view.items("images", found.keys)))
    for thread in threads:
        thread.join()
    assert not problems and seen and all(seen)
    live = [*range(10, 40), *range(100, 110), *range(200, 210), *range(300, 310)]
    assert stored_items.ids(place) == {f"p{number}" for number in live}
    assert stored_items.nearest(place, QUERIES, top=9) == stored_items.plain(QUERIES, live, top=9)
    assert damage(place) == []
