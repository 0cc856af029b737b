"""An index in PostgreSQL answers as one in a folder does, loses nothing, and takes what it is given as data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import database
import numpy as np
import pytest
import stored_items
from database import Server, started

from subtext.errors import OutputError, RequirementError, SearchIndexError
from subtext.retrieval.calibration import Calibration, store_calibration
from subtext.retrieval.condition import matching, parse
from subtext.retrieval.stores.errors import IndexMovedError
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.postgres import Address, Database, GraphVectors, connect_index
from subtext.retrieval.stores.registry import is_address, open_store
from subtext.retrieval.verification import damage

QUERIES = stored_items.vectors(range(1000, 1004), 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def shared(server: Server) -> Database:
    """One that no test changes."""
    return stored_items.made(server.address("shared"))


@pytest.fixture
def place(server: Server) -> Iterator[Database]:
    found = stored_items.made(server.address("own"))
    yield found
    found.remove()
    found.close()


def test_values_postgres_cannot_store_raise_before_writing(place: Database) -> None:
    for entry in (
        IndexEntry("a\0", b"x"),
        IndexEntry("b", b"x", path="\ud800.png"),
        IndexEntry("c", b"x", metadata={"title": "half\0"}),
        IndexEntry("d", b"x", metadata={"bad\0name": 3}),
    ):
        with place.writing("add") as writer, pytest.raises(SearchIndexError, match="without NUL"):
            writer.put(Change("images", [entry], stored_items.vectors(range(1), stored_items.VIEWS)))
    assert place.counts["images"] == 40 and place.manifest.generation == 2


@pytest.fixture(scope="module")
def walked(server: Server) -> Database:
    """One so large, by its own measure, that a graph is walked; and rows are never read through."""
    found = stored_items.made(server.address("walked", options="-c enable_seqscan=off"), pictures=400, exact_up_to=60)
    with found.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
        assert not [line for line in writer.compact() if "built" in line], "a second one finds nothing to do"
    return found


def test_large_side_uses_graph_index(walked: Database) -> None:
    with walked.reading() as view:
        shelf = view.sides["images"]
        assert shelf.graph and shelf.unindexed == 0 and view.sides["texts"].graph is None
        last = shelf.graph[0]
        steps = f"EXPLAIN SELECT key FROM images_vectors WHERE key <= {last} ORDER BY vector <#> %s LIMIT 5"
        plan = " ".join(line for (line,) in view.tables.connection.execute(steps, (QUERIES[0, 0],)))
        assert "images_graph" in plan, plan
        exact = shelf.nearest(QUERIES, top=10, exact=True)
        found = shelf.nearest(QUERIES, top=10)
        many = shelf.nearest(QUERIES[:1], top=390)
    same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
    assert sum(same) >= 36 and [len(each.keys) for each in found] == [10] * 4
    assert len(many[0].keys) == 390, "never fewer than there are"
    assert damage(walked) == []


@pytest.mark.parametrize("condition", ["place = Paris", "tags = odd", "rare = true", "year >= 0", "id in p3, p4"])
def test_filtered_graph_search_returns_all_matches(walked: Database, condition: str) -> None:
    with walked.reading() as view:
        shelf = view.sides["images"]
        keys = matching(view, "images", [parse(condition)])
        exact = shelf.nearest(QUERIES, top=10, among=keys, exact=True)
        found = shelf.nearest(QUERIES, top=10, among=keys)
    assert [len(each.keys) for each in found] == [min(10, len(keys))] * 4
    assert set(found[0].keys.tolist()) <= set(keys.tolist())
    same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
    assert sum(same) >= (0.9 if len(keys) > 60 else 1.0) * sum(len(each.keys) for each in exact)


def test_a_filter_that_passes_far_items_finds_the_right_ones(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes the half that is farthest from the query: the graph begins where none of them is."""
    store = stored_items.made(server.address("far", options="-c enable_seqscan=off"), pictures=1200, exact_up_to=60)
    with store.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
    walks: list[int] = []
    plain = GraphVectors._search

    def watched(self: GraphVectors, *given: object, reach: int = 0) -> object:
        walks.append(reach)
        return plain(self, *given, reach=reach)  # type: ignore[arg-type]

    monkeypatch.setattr(GraphVectors, "_search", watched)
    with store.reading() as view:
        shelf = view.sides["images"]
        for query in QUERIES[:, None]:
            order = shelf.nearest(query, top=1200, exact=True)[0].keys
            far = np.sort(order[600:])
            for top in (1, 5, 20, 50):
                assert shelf.nearest(query, top=top, among=far)[0].keys.tolist() == order[600 : 600 + top].tolist()
            walks.clear()
            every_second = np.sort(order[::2])
            found = shelf.nearest(query, top=5, among=every_second)[0].keys.tolist()
            assert len(set(found) & set(order[:10:2].tolist())) >= 4
            assert len(walks) == 1 and walks[0], "a filter that is spread evenly is answered by the graph"
    store.remove()


def test_items_after_graph_are_compared_until_rebuild(server: Server) -> None:
    store = stored_items.made(server.address("later", options="-c enable_seqscan=off"), pictures=400, exact_up_to=60)
    where = [parse("place in Paris, Wien")]

    def agrees(numbers: list[int], loose: int) -> None:
        with store.reading() as view:
            shelf = view.sides["images"]
            keys = matching(view, "images", where)
            assert shelf.graph and (shelf.unindexed, shelf.count) == (loose, len(numbers))
            for among in (None, keys):
                exact = shelf.nearest(QUERIES, top=10, among=among, exact=True)
                found = shelf.nearest(QUERIES, top=10, among=among)
                same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
                assert sum(same) >= 36
            later = stored_items.vectors(range(405, 406), 1)
            best = view.items("images", shelf.nearest(later, top=1, among=None)[0].keys)
        assert [item.id for item in best] == stored_items.plain(later, numbers, top=1)[0]

    with store.writing("add") as writer:
        assert "a graph of images was built" in writer.compact()
        agrees(list(range(400)), 0)
        writer.put(stored_items.images(range(400, 430)))
        agrees(list(range(430)), 60)
        assert not [line for line in writer.compact() if "built" in line], "so few are sooner compared than linked"
        writer.put(stored_items.images(range(3, 5)))
        writer.delete("images", ["p7", "p401"])
        left = sorted({*range(430)} - {7, 401})
        agrees(left, 62)
        assert "a graph of images was built" in writer.compact()
        agrees(left, 0)
        names = "SELECT indexname FROM pg_indexes WHERE schemaname = 'later' AND indexname LIKE '%graph%'"
        assert writer.connection.execute(names).fetchall() == [("images_graph",)]
    assert damage(store) == []
    store.remove()


def test_graph_is_dropped_when_few_items_remain(server: Server) -> None:
    store = stored_items.made(server.address("shrinking"), pictures=80, exact_up_to=100)
    with store.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
        writer.delete("images", [f"p{number}" for number in range(40)])
        assert any("graph of images was dropped" in line for line in writer.compact())
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, list(range(40, 80)))
    store.remove()


def test_interrupted_change_is_rolled_back(place: Database) -> None:
    with pytest.raises(IndexMovedError, match="no change is half kept"), place.writing("add") as writer:
        writer.put(stored_items.images(range(40, 50)))
        with writer.changing():
            writer.connection.execute("DELETE FROM items WHERE side = 0")
            number = writer.connection.info.backend_pid
            with connect_index(place.address, write=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (number,))
            writer.connection.execute("SELECT count(*) FROM items")
    assert place.counts == {"images": 50, "texts": 60} and damage(place) == []


def test_server_restart_during_search_raises_then_recovers(server: Server, place: Database) -> None:
    wanted = stored_items.nearest(place, QUERIES)
    gone = "needs its server, which cannot be reached or went away"
    with pytest.raises(IndexMovedError, match=gone) as told, place.reading() as view:
        view.nearest("images", QUERIES, top=5)
        server.restart()
        view.nearest("images", QUERIES, top=5)
    assert database.PASSWORD not in str(told.value)
    assert stored_items.nearest(place, QUERIES) == wanted
    server.restart()
    assert stored_items.nearest(place, QUERIES) == wanted, "between two searches nobody notices"


def test_acknowledged_changes_survive_server_crash(server: Server, place: Database) -> None:
    with place.writing("add") as writer:
        writer.put(stored_items.images(range(40, 70)))
        writer.delete("images", ["p1"])
        server.crash()
    assert stored_items.ids(place) == {f"p{number}" for number in range(70)} - {"p1"}
    assert damage(place) == []


def test_state_of_other_format_raises(server: Server) -> None:
    store = stored_items.made(server.address("early"))
    with store.writing("add") as writer:
        writer.connection.execute("UPDATE state SET value = 2 WHERE name = 'format'")
    with pytest.raises(SearchIndexError, match=r"was made by an earlier Subtext, .* with `subtext index build`"):
        Database(store.address)
    store.remove()


def test_index_moved_to_other_model_raises(place: Database) -> None:
    with place.writing("add") as writer:
        other = replace(stored_items.manifest(), fingerprint="e" * 32).to_json()
        with writer.changing():
            writer.connection.execute("UPDATE manifest SET json = %s", (other,))
        with pytest.raises(SearchIndexError, match="was moved to another model meanwhile"):
            writer.put(stored_items.images(range(90, 91)))
    with pytest.raises(SearchIndexError, match="was moved to another model meanwhile"), place.writing("add"):
        pass


def test_damage_is_reported(place: Database) -> None:
    with place.writing("add") as writer:
        for statement in (
            "UPDATE items SET text = 'other' WHERE id = 't3'",
            "UPDATE images_vectors SET vector = vector + vector WHERE key = 4 AND view = 1",
            "DELETE FROM images_vectors WHERE key = 6 AND view = 0",
            "UPDATE facets SET number = 1800 WHERE key = 7 AND name = 'year'",
            "DELETE FROM items WHERE id = 't9'",
            "UPDATE items SET metadata = '[1]' WHERE id = 'p8'",
        ):
            writer.connection.execute(statement)
    told = "\n".join(f"{each.where}: {each.what}" for each in damage(place))
    for wanted in (
        "items: 1 item changed or damaged: images/'p8'",
        "items: 1 item changed or damaged: texts/'t3'",
        "items: has 59 of 60 texts",
        "images_vectors: 1 item with changed or damaged vectors: 'p3'",
        "images_vectors: 1 item without 2 vectors: 'p5'",
        "facets: what 2 items can be filtered by differs from the metadata: 'p6', 'p8'",
        "facets: has ",
        "items: the words of 1 text differ from the texts: 't3'",
    ):
        assert wanted in told, told


def test_dump_is_a_backup(server: Server, shared: Database, tmp_path: Path) -> None:
    server.run("pg_dump", "--format=custom", "--schema=shared", f"--file={tmp_path / 'copy'}", "postgres")
    server.run("createdb", "second")
    server.run("psql", "--quiet", "--dbname=second", "--command=CREATE EXTENSION vector")
    server.run("pg_restore", "--dbname=second", str(tmp_path / "copy"))
    copied = Database(server.address("shared", database="second"))
    assert stored_items.answers(copied, QUERIES) == stored_items.answers(shared, QUERIES) and damage(copied) == []


def test_calibration_is_stored(place: Database) -> None:
    assert stored_items.calibration(place) is None
    line, counts = {"xs": [0.0], "ys": [0.5]}, {"images": 40}
    found = Calibration({}, line, {"pictures": 3}, counts, counts, place.manifest.identity)
    assert "table kept" in store_calibration(place, found, "<svg/>")
    before = stored_items.calibration_mark(place)
    assert stored_items.calibration(place) == found and before > 0
    store_calibration(place, found, "<svg/>")
    assert stored_items.calibration_mark(place) > before
    with place.writing("add") as writer:
        writer.connection.execute("UPDATE kept SET value = replace(value, '0.5', '0.6') WHERE name = 'calibration'")
    assert [each.where for each in damage(place)] == ["calibration"]


def test_password_is_never_shown(server: Server, place: Database) -> None:
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
        with pytest.raises(SearchIndexError) as problem:
            Database(wrong)
        told.append(str(problem.value))
        assert problem.value.__cause__ is None and (problem.value.__suppress_context__ or not problem.value.__context__)
    with place.reading() as view:
        for table in ("manifest", "jobs", "kept", "state"):
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
def test_address_is_shown_without_secrets(text: str, told: str) -> None:
    assert str(Address.parse(text)) == told and is_address(text)


@pytest.mark.parametrize("name", ["pg_catalog", "public", "information_schema", "a b", 'x"; DROP', "1st", "x" * 64, ""])
def test_reserved_schema_name_raises(name: str) -> None:
    with pytest.raises(SearchIndexError, match="needs a name of letters"):
        Address("x", {}).parse(f"postgresql:///db?index={database.quote(name)}")


def test_existing_or_missing_schema_raises(server: Server, shared: Database) -> None:
    with pytest.raises(SearchIndexError, match="needs a new name; there is a schema 'shared'"):
        Database.create(server.address("shared"), stored_items.manifest())
    assert Database.exists(server.address("shared")) and not Database.exists(server.address("nobody"))
    with pytest.raises(SearchIndexError, match="needs to be an index that `subtext index build` made"):
        open_store(server.address("nobody"))
    with pytest.raises(SearchIndexError, match="needs a new name; there is a schema 'shared'"):
        Database.require_free(server.address("shared"))
    with pytest.raises(SearchIndexError, match="vectors of at most 2,000 numbers; these have 2,001"):
        Database.create(server.address("wide"), replace(stored_items.manifest(), width=2001))
    Database.require_free(server.address("wide"))
    assert not Database.exists(server.address("wide"))


def test_widest_vectors_are_stored_inline(server: Server) -> None:
    store = Database.create(server.address("wide"), replace(stored_items.manifest(), width=2000, exact_up_to=10))
    vectors = np.random.default_rng(0).standard_normal((20, stored_items.VIEWS, 2000), dtype=np.float32)
    with store.writing("add") as writer:
        writer.put(Change("images", [stored_items.picture(number) for number in range(20)], vectors))
        assert "a graph of images was built" in writer.compact()
        outside = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'images_vectors'::regclass"
        assert writer.connection.execute(outside).fetchone() == (0,)
    with store.reading() as view:
        assert [hits.keys[0] for hits in view.nearest("images", vectors, top=1)] == list(range(1, 21))
    store.remove()


def test_missing_pgvector_raises(server: Server) -> None:
    server.run("createdb", "bare")
    address = server.address("own", database="bare")
    assert not Database.exists(address)
    with pytest.raises(SearchIndexError, match=r"needs pgvector 0\.8 or later; .* CREATE EXTENSION vector"):
        Database(address)


def test_reader_waiting_for_move_holds_no_lock(place: Database) -> None:
    with connect_index(place.address, write=True) as mover, mover.transaction():
        mover.execute("LOCK TABLE state IN ACCESS EXCLUSIVE MODE")
        reader = threading.Thread(target=lambda: place.counts)
        reader.start()
        until = time.monotonic() + 30
        while mover.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            assert time.monotonic() < until
            time.sleep(0.01)
        mover.execute("LOCK TABLE manifest, items, images_vectors IN ACCESS EXCLUSIVE MODE NOWAIT")
    reader.join()


def test_unused_index_closes_its_connections(server: Server, shared: Database) -> None:
    store: Database | None = Database(server.address("shared", application_name="left"))
    assert store is not None and store.counts["images"] == 40
    store = None
    # A transaction would see the same connections to its end.
    with connect_index(shared.address) as watching:
        until = time.monotonic() + 30
        statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'left'"
        while watching.execute(statement).fetchone() != (0,):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_read_only_user_can_search(server: Server, shared: Database) -> None:
    statements = (
        "CREATE ROLE visitor LOGIN; GRANT USAGE ON SCHEMA shared TO visitor; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA shared TO visitor"
    )
    server.run("psql", "--quiet", "--dbname=postgres", f"--command={statements}")
    store = Database(server.address("shared").replace("//postgres:", "//visitor:"))
    assert stored_items.answers(store, QUERIES) == stored_items.answers(shared, QUERIES)
    with pytest.raises(OutputError, match="needs rights that this user lacks"), store.writing("add") as writer:
        writer.put(stored_items.images(range(90, 91)))
    with pytest.raises(OutputError, match="needs rights that this user lacks"):
        Database.require_free(server.address("free").replace("//postgres:", "//visitor:"))
    assert shared.counts["images"] == 40


def test_missing_extra_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psycopg" else plain(name))
    with pytest.raises(RequirementError, match=r"needs psycopg; .* pip install '\.\[postgres\]'"):
        open_store("postgresql:///archive")
