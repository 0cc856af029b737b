"""An index in PostgreSQL answers as one in a folder does, loses nothing, and takes what it is given as data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import database
import numpy as np
import pytest
import stored
from database import Server, made, started

from subtext.errors import IndexError_, OutputError, RequirementError
from subtext.search.stores.condition import Condition, parse
from subtext.search.stores.folder import Folder
from subtext.search.stores.item import Change, Entry
from subtext.search.stores.manifest import Calibration
from subtext.search.stores.postgres.connection import LAYOUT, Address, connect_index
from subtext.search.stores.postgres.database import COMPLETE, Database
from subtext.search.stores.store import Store, StoreGone, is_address, open_store, verify as verify_folder
from subtext.search.stores.words import words

QUERIES = stored.vectors(range(1000, 1004), 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return stored.made(tmp_path_factory.mktemp("index") / "index")


@pytest.fixture(scope="module")
def shared(server: Server) -> Database:
    """One that no test changes."""
    return made(server.address("shared"))


@pytest.fixture
def place(server: Server) -> Iterator[Database]:
    found = made(server.address("own"))
    yield found
    found.remove()
    found.close()


def answers(store: Store, queries: np.ndarray, *, side: str = "images", top: int = 7) -> list[list[tuple[str, float]]]:
    with store.reading() as view:
        found = view.nearest(side, queries, top=top)
        items = [view.items(side, each.keys) for each in found]
    each = zip(items, found, strict=True)
    return [list(zip([item.id for item in own], one.scores.tolist(), strict=True)) for own, one in each]


@pytest.mark.parametrize("views", [1, 3])
def test_it_answers_as_a_folder_does(shared: Database, folder: Folder, views: int) -> None:
    queries = stored.vectors(range(2000, 2003), views)
    for side in ("images", "texts"):
        assert answers(shared, queries, side=side) == answers(folder, queries, side=side)
    assert stored.nearest(shared, queries, top=7) == stored.plain(queries, list(range(40)), top=7)
    assert [len(found) for found in stored.nearest(shared, queries, top=99)] == [40] * 3


def test_it_is_a_store_as_a_folder_is(shared: Database, folder: Folder) -> None:
    assert isinstance(shared, Store) and isinstance(folder, Store)
    assert shared.counts == folder.counts == {"images": 40, "texts": 60} and shared.bytes > 0
    with shared.reading() as mine, folder.reading() as theirs:
        stored.assert_same_items(mine, theirs)
        assert mine.keys_of("images", ["p3", "nobody"]) == theirs.keys_of("images", ["p3", "nobody"])
        with pytest.raises(KeyError):
            mine.items("images", [10_000])
    assert shared.problems() == []


@pytest.mark.parametrize(("condition", "wanted"), stored.CASES, ids=[str(case[0])[:40] for case in stored.CASES])
def test_a_condition_means_what_a_loop_says(
    shared: Database, condition: str | Condition, wanted: Callable[[int], bool]
) -> None:
    stored.assert_as_a_loop_says(shared, condition, wanted, QUERIES)


def test_all_conditions_have_to_hold_and_fields_have_to_be_there(shared: Database) -> None:
    where = [parse("year < 1930"), parse("tags = odd"), parse("place in Paris, Wien"), parse("text contains rowing")]
    with shared.reading() as view:
        found = [item.id for item in view.items("images", view.matching("images", where))]
        assert found == [f"p{n}" for n in range(30) if n % 2 and n % 3 < 2]
        texts = view.items("texts", view.matching("texts", [parse("text contains word5"), parse("language = en")]))
        assert [item.id for item in texts] == ["t5"]
        with pytest.raises(RequirementError, match="none has 'colour'; there are place, rare"):
            view.matching("images", [parse("colour = red")])
        assert len(view.matching("images", [Condition("weight", "<", float("inf"))])) == 40
        assert len(view.matching("images", [Condition("weight", ">", float("nan"))])) == 0


def test_words_are_found_as_in_a_folder(shared: Database, folder: Folder) -> None:
    with shared.reading() as mine, folder.reading() as theirs:
        for asked in ("boat word7", "WORD12 word3 7", "Rowing rowing word9", "nothing", "? !", "boat 7 word7"):
            got, wanted = mine.search_text(asked, top=9), theirs.search_text(asked, top=9)
            assert [key for key, _ in got] == [key for key, _ in wanted], asked
            np.testing.assert_allclose([score for _, score in got], [score for _, score in wanted], rtol=1e-6)
    assert words("Łódź, naïve: 3×4 don't 北京") == ["łodz", "naive", "3", "4", "don", "t", "北京"]


NASTY = ["'; DROP TABLE items; --", '"x" OR 1=1', "%s %(a)s {} \\", "a' | 'b' & !c:*", "$1; SELECT pg_sleep(9)", "\n\t"]


def test_sql_in_names_filters_and_questions_is_data(place: Database) -> None:
    entries = [Entry(name, b"x", path=name, metadata={"title": name, name: 7, "long": name * 900}) for name in NASTY]
    said = [Entry(name, b"y", text=name, metadata={"language": name}) for name in NASTY]
    with place.writing(NASTY[0][:40]) as writer:
        writer.put(Change("images", entries, stored.vectors(range(50, 50 + len(NASTY)), stored.VIEWS)))
        links = [(name, name) for name in NASTY]
        writer.put(Change("texts", said, stored.vectors(range(50, 50 + len(NASTY)), 1), links=links))
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
                got = [item.id for item in view.items("images", view.matching("images", [where]))]
                assert name in got or not name.strip(), where
                assert got == [name] or where.test == "contains", where
            view.matching("images", [Condition("text", "contains", name or "x")]) if name.strip() else None
            view.search_text(name, top=3)
        with pytest.raises(RequirementError, match="without NUL"):
            view.matching("images", [Condition("title", "=", "a\0b")])
        assert view.keys_of("images", ["a\0b", "\ud800"]) == {}
    with place.writing("delete") as writer:
        assert writer.delete("images", [*NASTY, "a\0b"]) == {"images": len(NASTY), "texts": len(NASTY)}
    assert place.counts == {"images": 40, "texts": 60} and place.problems() == []


def test_what_postgres_cannot_hold_is_refused_before_anything_is_written(place: Database) -> None:
    for entry in (
        Entry("a\0", b"x"),
        Entry("b", b"x", path="\ud800.png"),
        Entry("c", b"x", metadata={"title": "half\0"}),
        Entry("d", b"x", metadata={"bad\0name": 3}),
    ):
        with place.writing("add") as writer, pytest.raises(IndexError_, match="without NUL"):
            writer.put(Change("images", [entry], stored.vectors(range(1), stored.VIEWS)))
    assert place.counts["images"] == 40 and place.manifest.generation == 2


def test_changes_are_those_of_a_folder(place: Database, tmp_path: Path) -> None:
    folder = stored.made(tmp_path / "index")
    for store in (place, folder):
        with store.writing("add") as writer:
            writer.put(stored.images(range(40, 60)))
            assert writer.delete("images", [f"p{number}" for number in range(0, 60, 3)])["texts"] > 0
            assert writer.deleted_before("images", ["p3", "p4"]) == {"p3"}
            moved = Change("images", [replace(stored.picture(4), content=b"new")], stored.vectors(range(1000, 1001), 2))
            writer.put(moved)
            writer.put(Change("images", amended=[replace(stored.picture(5), metadata={"place": "Rom", "zero": -0.0})]))
            writer.put(Change("texts", links=[("p8", "t7")]))
            writer.put(Change("texts", links=[("p10", "t8")], exact_texts=frozenset(["t8"])))
            before = writer.manifest.generation
            writer.put(
                Change("texts", links=[("p8", "t7")], exact_texts=frozenset(["t8"]))
            ) if store is folder else None
            assert writer.delete("images", ["p7", "nobody"], keep_texts=False)["images"] == 1
            assert writer.ids("images") == [*[f"p{n}" for n in range(60) if n % 3 and n not in (4, 7)], "p4"]
            writer.put(stored.images(range(3, 4)))
            assert writer.deleted_before("images", ["p3"]) == set(), "put in again by the user's own wish"
            assert writer.manifest.generation > before
    with place.reading() as mine, folder.reading() as theirs:
        for side in ("images", "texts"):
            keys = {store: view.matching(side, []) for store, view in (("mine", mine), ("theirs", theirs))}
            got = {item.id: item for item in mine.items(side, keys["mine"])}
            wanted = {item.id: item for item in theirs.items(side, keys["theirs"])}
            assert got.keys() == wanted.keys()
            assert [item.metadata for item in got.values() if item.id != "t8"] == [
                item.metadata for item in wanted.values() if item.id != "t8"
            ]
        assert mine.items("texts", [mine.keys_of("texts", ["t8"])["t8"]])[0].metadata["images"] == ["p10"]
        assert mine.items("images", mine.matching("images", [parse("place = Rom")]))[0].id == "p5"
    assert answers(place, QUERIES) == answers(folder, QUERIES)
    assert place.problems() == [] and verify_folder(folder.path) == []


def test_nothing_to_do_is_no_change_and_what_is_wrong_is_refused(place: Database) -> None:
    bad = stored.vectors(range(50, 52), 2)
    bad[1, 0, 0] = np.nan
    with place.writing("add") as writer:
        before = writer.manifest.generation
        writer.put(stored.texts(range(0)))
        writer.put(Change("texts", links=[("p1", "t1")]))
        assert writer.manifest.generation == before
        with pytest.raises(IndexError_, match="finite vectors; 1 are not, the first of item 'p51'"):
            writer.put(Change("images", [stored.picture(50), stored.picture(51)], bad))
        with pytest.raises(IndexError_, match=r"images of 2 x 8, and one an item; it got vectors of shape \(1, 1, 8\)"):
            writer.put(Change("images", [stored.picture(50)], stored.vectors(range(50, 51), 1)))
        writer.put(Change("images", amended=[replace(stored.picture(99), metadata={})]))
    assert place.counts["images"] == 40 and place.problems() == [], "what somebody has deleted meanwhile stays deleted"


def test_the_journal_goes_on_where_a_job_was_cut_off(place: Database) -> None:
    with place.writing("add") as writer:
        first = writer.begin("add", source={"data": "a"}, total=30)
        writer.put(stored.images(range(40, 50)), job=first, done=10)
    with place.writing("add") as writer:
        assert writer.begin("add", source={"data": "b"}, total=5) != first
        assert writer.begin("add", source={"data": "a"}, total=30) == first
        writer.finish(first)
    with place.reading() as view:
        found = {job.number: job for job in view.jobs()}
    assert found[first].finished is not None and found[first].done == 30
    assert [job.source for job in found.values() if job.finished is None] == [{"data": "b"}]


@pytest.fixture(scope="module")
def walked(server: Server) -> Database:
    """One so large, by its own measure, that a graph is walked; and rows are never read through."""
    found = made(server.address("walked", options="-c enable_seqscan=off"), pictures=400, exact_up_to=60)
    with found.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
        assert not [line for line in writer.compact() if "built" in line], "a second one finds nothing to do"
    return found


def test_a_graph_is_walked_where_a_side_is_large(walked: Database) -> None:
    with walked.reading() as view:
        shelf = view.sides["images"]
        assert shelf.last_in_graph and shelf.unindexed == 0 and view.sides["texts"].last_in_graph is None
        last = shelf.last_in_graph
        steps = f"EXPLAIN SELECT key FROM images_vectors WHERE key <= {last} ORDER BY vector <#> %s LIMIT 5"
        plan = " ".join(line for (line,) in view.tables.connection.execute(steps, (QUERIES[0, 0],)))
        assert "images_graph" in plan, plan
        exact = shelf.nearest(QUERIES, top=10, exact=True)
        found = shelf.nearest(QUERIES, top=10)
        many = shelf.nearest(QUERIES[:1], top=390)
    same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
    assert sum(same) >= 36 and [len(each.keys) for each in found] == [10] * 4
    assert len(many[0].keys) == 390, "never fewer than there are"
    assert walked.problems() == []


@pytest.mark.parametrize("condition", ["place = Paris", "tags = odd", "rare = true", "year >= 0", "id in p3, p4"])
def test_a_filter_on_a_graph_loses_nothing(walked: Database, condition: str) -> None:
    with walked.reading() as view:
        shelf = view.sides["images"]
        keys = view.matching("images", [parse(condition)])
        exact = shelf.nearest(QUERIES, top=10, among=keys, exact=True)
        found = shelf.nearest(QUERIES, top=10, among=keys)
    assert [len(each.keys) for each in found] == [min(10, len(keys))] * 4
    assert set(found[0].keys.tolist()) <= set(keys.tolist())
    same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
    assert sum(same) >= (0.9 if len(keys) > 60 else 1.0) * sum(len(each.keys) for each in exact)


def test_what_came_after_a_graph_is_compared_until_it_is_made_anew(server: Server) -> None:
    store = made(server.address("later", options="-c enable_seqscan=off"), pictures=400, exact_up_to=60)
    where = [parse("place in Paris, Wien")]

    def agrees(numbers: list[int], loose: int) -> None:
        with store.reading() as view:
            shelf = view.sides["images"]
            keys = view.matching("images", where)
            assert shelf.last_in_graph and (shelf.unindexed, shelf.count) == (loose, len(numbers))
            for among in (None, keys):
                exact = shelf.nearest(QUERIES, top=10, among=among, exact=True)
                found = shelf.nearest(QUERIES, top=10, among=among)
                same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
                assert sum(same) >= 36
            later = stored.vectors(range(405, 406), 1)
            best = view.items("images", shelf.nearest(later, top=1, among=None)[0].keys)
        assert [item.id for item in best] == stored.plain(later, numbers, top=1)[0]

    with store.writing("add") as writer:
        assert "a graph of images was built" in writer.compact()
        agrees(list(range(400)), 0)
        writer.put(stored.images(range(400, 430)))
        agrees(list(range(430)), 60)
        assert not [line for line in writer.compact() if "built" in line], "so few are sooner compared than linked"
        writer.put(stored.images(range(3, 5)))
        writer.delete("images", ["p7", "p401"])
        left = sorted({*range(430)} - {7, 401})
        agrees(left, 62)
        assert "a graph of images was built" in writer.compact()
        agrees(left, 0)
        names = "SELECT indexname FROM pg_indexes WHERE schemaname = 'later' AND indexname LIKE '%graph%'"
        assert writer.connection.execute(names).fetchall() == [("images_graph",)]
    assert store.problems() == []
    store.remove()


def test_a_graph_of_an_earlier_subtext_has_what_comes_later(server: Server) -> None:
    store = made(server.address("whole", options="-c enable_seqscan=off"), pictures=100, exact_up_to=60)
    statement = "CREATE INDEX {} ON images_vectors USING hnsw (vector vector_ip_ops)"
    with store.writing("add") as writer:
        writer.connection.execute(statement.format("images_graph"))
        writer.connection.execute(statement.format("images_graph_before"))
        writer.put(stored.images(range(100, 160)))
        assert not [line for line in writer.compact() if "built" in line]
        left = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'whole' AND indexname LIKE '%graph%'"
        assert writer.connection.execute(left).fetchone() == (1,), "what a compaction that was cut off left is dropped"
    with store.reading() as view:
        assert view.sides["images"].last_in_graph == COMPLETE and view.sides["images"].unindexed == 0
    assert stored.nearest(store, QUERIES, top=1) == stored.plain(QUERIES, list(range(160)), top=1)
    store.remove()


def test_a_graph_goes_when_few_are_left(server: Server) -> None:
    store = made(server.address("shrinking"), pictures=80, exact_up_to=100)
    with store.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
        writer.delete("images", [f"p{number}" for number in range(40)])
        assert any("graph of images was dropped" in line for line in writer.compact())
    assert stored.nearest(store, QUERIES) == stored.plain(QUERIES, list(range(40, 80)))
    store.remove()


def test_a_reader_keeps_what_it_sees_while_writers_work(place: Database) -> None:
    with place.reading() as view:
        before = sorted(item.id for item in view.items("images", view.matching("images", [])))
        with place.writing("delete") as writer:
            writer.delete("images", ["p1", "p2"])
        found = view.nearest("images", QUERIES, top=40)
        assert sorted(item.id for item in view.items("images", found[0].keys)) == before
        with place.reading() as same:
            assert same.counts["images"] == 40, "inside it, it is one moment"
    assert stored.ids(place) == set(before) - {"p1", "p2"}


def test_many_write_at_once(server: Server, place: Database) -> None:
    """Two add the same ten items and ten of their own each, one deletes, and somebody searches all the while."""
    problems: list[Exception] = []

    def add(own: int) -> None:
        try:
            with Database(server.address("own")).writing("add") as writer:
                for number in range(10):
                    writer.put(stored.images(range(100 + number, 101 + number)))
                    writer.put(stored.images(range(own + number, own + number + 1)))
        except IndexError_ as problem:
            problems.append(problem)

    def delete() -> None:
        try:
            with Database(server.address("own")).writing("delete") as writer:
                for number in range(10):
                    writer.delete("images", [f"p{number}"])
        except IndexError_ as problem:
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
    assert stored.ids(place) == {f"p{number}" for number in live}
    assert stored.nearest(place, QUERIES, top=9) == stored.plain(QUERIES, live, top=9)
    assert place.problems() == []


def test_a_change_that_is_cut_off_is_not_there(place: Database) -> None:
    with pytest.raises(StoreGone, match="no change is half kept"), place.writing("add") as writer:
        writer.put(stored.images(range(40, 50)))
        with writer.changing():
            writer.connection.execute("DELETE FROM items WHERE side = 0")
            number = writer.connection.info.backend_pid
            with connect_index(place.address, write=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (number,))
            writer.connection.execute("SELECT count(*) FROM items")
    assert place.counts == {"images": 50, "texts": 60} and place.problems() == []


def test_a_server_that_is_restarted_in_mid_search_is_told_and_found_again(server: Server, place: Database) -> None:
    wanted = stored.nearest(place, QUERIES)
    gone = "needs its server, which cannot be reached or went away"
    with pytest.raises(StoreGone, match=gone) as told, place.reading() as view:
        view.nearest("images", QUERIES, top=5)
        server.restart()
        view.nearest("images", QUERIES, top=5)
    assert database.PASSWORD not in str(told.value)
    assert stored.nearest(place, QUERIES) == wanted
    server.restart()
    assert stored.nearest(place, QUERIES) == wanted, "between two searches nobody notices"


def test_what_was_acknowledged_outlives_a_crash_of_the_server(server: Server, place: Database) -> None:
    with place.writing("add") as writer:
        writer.put(stored.images(range(40, 70)))
        writer.delete("images", ["p1"])
        server.crash()
    assert stored.ids(place) == {f"p{number}" for number in range(70)} - {"p1"}
    assert place.problems() == []


def test_an_earlier_layout_is_refused_and_led_to_this_one(server: Server) -> None:
    address = server.address("early")
    with made(address).writing("add") as writer:
        writer.connection.execute("DROP TABLE kept")
        writer.connection.execute("UPDATE layout SET version = 1")
    with pytest.raises(IndexError_, match=r"has layout 1, of an earlier Subtext; .*subtext index upgrade"):
        Database(address)
    assert Database.upgrade(address) == (1, LAYOUT) and Database.upgrade(address) == (LAYOUT, LAYOUT)
    store = Database(address)
    assert stored.nearest(store, QUERIES) == stored.plain(QUERIES, list(range(40))) and store.problems() == []
    assert store.calibration() is None and store.calibration_mark() == 0
    with store.writing("add") as writer:
        writer.connection.execute("UPDATE layout SET version = 99")
    for attempt in (lambda: Database(address), lambda: Database.upgrade(address)):
        with pytest.raises(IndexError_, match="has layout 99; this Subtext reads 2; use a newer Subtext"):
            attempt()
    store.remove()


def test_an_index_of_another_model_is_refused(place: Database) -> None:
    with place.writing("add") as writer:
        other = replace(stored.manifest(), fingerprint="e" * 32).to_json()
        with writer.changing():
            writer.connection.execute("UPDATE manifest SET json = %s", (other,))
        with pytest.raises(IndexError_, match="was moved to another model meanwhile"):
            writer.put(stored.images(range(90, 91)))
    with pytest.raises(IndexError_, match="was moved to another model meanwhile"), place.writing("add"):
        pass


def test_damage_is_named(place: Database) -> None:
    with place.writing("add") as writer:
        for statement in (
            "UPDATE items SET text = 'other' WHERE id = 't3'",
            "UPDATE images_vectors SET vector = vector + vector WHERE key = 4 AND view = 1",
            "DELETE FROM images_vectors WHERE key = 6 AND view = 0",
            "UPDATE facets SET number = 1800 WHERE key = 7 AND name = 'year'",
            "DELETE FROM items WHERE id = 't9'",
        ):
            writer.connection.execute(statement)
    told = "\n".join(f"{each.where}: {each.what}" for each in place.problems())
    for wanted in (
        "items: 1 item changed or damaged: texts/'t3'",
        "items: has 59 of 60 texts",
        "images_vectors: 1 item with changed or damaged vectors: 'p3'",
        "images_vectors: 1 item without 2 vectors: 'p5'",
        "facets: what 1 item can be filtered by differs from the metadata: 'p6'",
        "items: the words of 1 text differ from the texts: 't3'",
    ):
        assert wanted in told, told


def test_a_dump_is_a_backup(server: Server, shared: Database, tmp_path: Path) -> None:
    server.run("pg_dump", "--format=custom", "--schema=shared", f"--file={tmp_path / 'copy'}", "postgres")
    server.run("createdb", "second")
    server.run("psql", "--quiet", "--dbname=second", "--command=CREATE EXTENSION vector")
    server.run("pg_restore", "--dbname=second", str(tmp_path / "copy"))
    copied = Database(server.address("shared", database="second"))
    assert answers(copied, QUERIES) == answers(shared, QUERIES) and copied.problems() == []


def test_a_calibration_is_kept(place: Database) -> None:
    assert place.calibration() is None
    found = Calibration({}, {"xs": [0.0], "ys": [0.5]}, {"pictures": 3}, {"images": 40}, {"images": 40})
    assert "table kept" in place.keep_calibration(found, "<svg/>")
    before = place.calibration_mark()
    assert place.calibration() == found and before > 0
    place.keep_calibration(found, "<svg/>")
    assert place.calibration_mark() > before
    with place.writing("add") as writer:
        writer.connection.execute("UPDATE kept SET value = replace(value, '0.5', '0.6') WHERE name = 'calibration'")
    assert [each.where for each in place.problems()] == ["calibration"]


def test_the_password_is_shown_nowhere(server: Server, place: Database) -> None:
    told = [str(place.address), repr(place.address), place.path]
    for wrong in (
        server.address("own", port="1"),
        server.address("own", database="nowhere"),
        server.address("nobody"),
        server.address("no such name"),
        server.address("own") + "&sslmode=" + database.PASSWORD,
        f"postgresql://me:{database.PASSWORD}@nowhere:port/x",
        "postgresql://me:s3cret/x@nowhere/db",
        "postgresql://me:12/s3cret@nowhere/db",
        f"postgresql://me:{database.PASSWORD}@127.0.0.1:1/x?index=own",
    ):
        with pytest.raises(IndexError_) as problem:
            Database(wrong)
        told.append(str(problem.value))
        assert problem.value.__cause__ is None and (problem.value.__suppress_context__ or not problem.value.__context__)
    with place.reading() as view:
        for table in ("manifest", "jobs", "kept", "state", "layout"):
            told += [str(row) for row in view.tables.connection.execute(f"SELECT * FROM {table}")]  # type: ignore[arg-type]
    for text in told:
        assert "s3cret" not in text and "of%3Fthe" not in text and "of?the" not in text, text
    assert Address.parse(server.address("own")).without_secrets(f"x {database.PASSWORD} y") == "x *** y"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "postgresql://me:pw@db:5433/archive?index=library&sslmode=require",
            "postgresql://me@db:5433/archive?index=library",
        ),
        ("postgres:///archive", "postgresql:///archive?index=subtext"),
        ("postgresql://db/a?host=/run/pg&index=x", "postgresql:///a?host=/run/pg&index=x"),
    ],
)
def test_an_address_is_told_without_what_is_secret(text: str, told: str) -> None:
    assert str(Address.parse(text)) == told and is_address(text)


@pytest.mark.parametrize("name", ["pg_catalog", "public", "information_schema", "a b", 'x"; DROP', "1st", "x" * 64, ""])
def test_a_name_of_the_database_itself_is_refused(name: str) -> None:
    with pytest.raises(IndexError_, match="needs a name of letters"):
        Address("x", {}).parse(f"postgresql:///db?index={database.quote(name)}")


def test_what_is_there_is_not_made_twice_and_what_is_not_is_told(server: Server, shared: Database) -> None:
    with pytest.raises(IndexError_, match="needs a new name; there is a schema 'shared'"):
        Database.create(server.address("shared"), stored.manifest())
    assert Database.exists(server.address("shared")) and not Database.exists(server.address("nobody"))
    with pytest.raises(IndexError_, match="needs to be an index that `subtext index build` made"):
        open_store(server.address("nobody"))
    with pytest.raises(IndexError_, match="vectors of at most 2,000 numbers; these have 2,001"):
        Database.create(server.address("wide"), replace(stored.manifest(), width=2001))
    assert not Database.exists(server.address("wide"))


def test_whoever_may_only_read_reads(server: Server, shared: Database) -> None:
    statements = (
        "CREATE ROLE visitor LOGIN; GRANT USAGE ON SCHEMA shared TO visitor; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA shared TO visitor"
    )
    server.run("psql", "--quiet", "--dbname=postgres", f"--command={statements}")
    store = Database(server.address("shared").replace("//postgres:", "//visitor:"))
    assert answers(store, QUERIES) == answers(shared, QUERIES)
    with pytest.raises(OutputError, match="needs rights that this user lacks"), store.writing("add") as writer:
        writer.put(stored.images(range(90, 91)))
    assert shared.counts["images"] == 40


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psycopg" else plain(name))
    with pytest.raises(RequirementError, match=r"needs psycopg; .* pip install 'subtext\[postgres\]'"):
        open_store("postgresql:///archive")
