"""An index in PostgreSQL answers as one in a folder does, loses nothing, and takes what it is given as data."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import database
import numpy as np
import psycopg
import pytest
import stored_items
from database import Server, started

from subtext.errors import OutputError, RequirementError, SearchIndexError, SubtextError
from subtext.retrieval.calibration import Calibration, store_calibration
from subtext.retrieval.condition import _complete, matching, parse
from subtext.retrieval.stores import postgres
from subtext.retrieval.stores.errors import IndexMovedError
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.postgres import Address, Database, DatabaseConnection, GraphVectors, connect_index
from subtext.retrieval.stores.registry import create_store, is_address, open_store
from subtext.retrieval.stores.store import are_among, keys_after
from subtext.retrieval.verification import damage, verify

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
    found.close()
    server.run("psql", "--quiet", "--dbname=postgres", "--command=DROP SCHEMA own CASCADE")


def test_values_postgres_cannot_store_raise_before_writing(place: Database) -> None:
    for entry in (
        IndexEntry("a\0", b"x"),
        IndexEntry("b", b"x", path="\ud800.png"),
        IndexEntry("c", b"x", metadata={"title": "half\0"}),
        IndexEntry("d", b"x", metadata={"bad\0name": 3}),
    ):
        with place.writing("add") as writer, pytest.raises(SearchIndexError, match=r"without NUL|without control"):
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
        last = shelf.graph.last
        order = "(vector::halfvec(8)) <#> %s::halfvec(8)"
        steps = f"EXPLAIN SELECT key FROM walked.images_vectors WHERE key <= {last} ORDER BY {order} LIMIT 5"
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


@pytest.mark.parametrize(
    ("condition", "wanted"), stored_items.CASES, ids=[str(case[0])[:40] for case in stored_items.CASES]
)
def test_keys_that_stay_in_the_database_are_those_of_a_loop(
    shared: Database, condition: str | Condition, wanted: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "FETCHED", -1)
    stored_items.assert_as_a_loop_says(shared, condition, wanted, QUERIES)


def test_search_with_a_broad_filter_sends_no_keys(walked: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of half a table stay where they are, also for a page of them and for what they have in common."""
    monkeypatch.setattr(postgres, "FETCHED", 100)
    sent, plain = list[int](), postgres.PostgresTables.run

    def counting(self: postgres.PostgresTables, statement: str, *values: object, binary: bool = False) -> object:
        rows = plain(self, statement, *values, binary=binary)
        cells = [cell for row in rows for cell in row]
        sent.append(sum(len(cell) if isinstance(cell, str) else 8 for cell in [*cells, *values]))
        return rows

    where = [parse("tags = odd"), parse("place != Paris")]
    wanted = [number for number in range(400) if number % 2 and number % 3]
    with walked.reading() as view:
        every = view.select("images", where)
        monkeypatch.setattr(postgres.PostgresTables, "run", counting)
        keys = matching(view, "images", where)
        assert isinstance(keys, postgres.ChosenKeys) and len(keys) == len(wanted)
        exact = view.nearest("images", QUERIES, top=5, among=keys, exact=True)
        found = view.nearest("images", QUERIES, top=5, among=keys)
        page = keys_after(keys, int(every[9]), 3)
        flags = are_among(np.arange(every[0], every[0] + 50), keys)
        assert sum(sent) < 8 * len(every) * len(sent) / 2
        ids = [[item.id for item in view.items("images", own.keys)] for own in exact]
    assert ids == stored_items.plain(QUERIES, wanted) and page.tolist() == every[10:13].tolist()
    assert flags.tolist() == np.isin(np.arange(every[0], every[0] + 50), every).tolist()
    assert sum(len(set(a.keys) & set(b.keys)) for a, b in zip(exact, found, strict=True)) >= 18


@pytest.fixture(scope="module")
def described(server: Server) -> Database:
    """One of so many items that to look through their metadata takes longer than an index."""
    found = create_store(server.address("described"), stored_items.manifest())
    entries = []
    for number in range(4000):
        tags, other = [f"t{number % 40}", "all"], {f"field{field}": f"{number} {field}" for field in range(8)}
        day = f"{1000 + number % 800}-03-05"
        entries.append(
            IndexEntry(
                f"p{number}",
                b"c",
                metadata={"n": number, "box": f"Box {number % 40}", "taken": day, "tags": tags} | other,
            )
        )
    with found.writing("build") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(4000), stored_items.VIEWS)))
        writer.compact()
    return found


@pytest.mark.parametrize(
    ("where", "count", "index"),
    [
        (["box = BOX 7"], 100, "facets_by_word"),
        (["tags = t7"], 100, "facets_by_word"),
        (["n < 20"], 20, "facets_by_number"),
        (["n >= 3900"], 100, "facets_by_number"),
        (["taken = 1500-03-05"], 5, "facets_by_date"),
        (["taken < 1003"], 15, "facets_by_date"),
        (["box = box 7", "taken != 1007-03-05", "tags = all"], 95, "facets_by_word"),
    ],
)
def test_filter_uses_an_index(described: Database, where: list[str], count: int, index: str) -> None:
    with described.reading() as view:
        conditions = [_complete(view, "images", parse(own)) for own in where]
        assert len(view.select("images", conditions)) == count
        statement, values = view._every(conditions, 0)
        (plan,) = view.tables.run(f"EXPLAIN (FORMAT JSON) {statement}", *values)[0]
    assert index in str(plan) and "Seq Scan" not in str(plan), plan


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
            writer.tables.run("DELETE FROM items WHERE side = 0")
            number = writer.connection.info.backend_pid
            with connect_index(place.address, write=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (number,))
            writer.tables.run("SELECT count(*) FROM items")
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
        writer.tables.run("UPDATE state SET value = 2 WHERE name = 'format'")
    with pytest.raises(SearchIndexError, match=r"was made by an earlier Subtext, .* with `subtext index build`"):
        Database(store.address)


def test_index_moved_to_other_model_raises(place: Database) -> None:
    with place.writing("add") as writer:
        other = replace(stored_items.manifest(), fingerprint="e" * 32).to_json()
        writer.tables.run("UPDATE manifest SET json = ?", other)
        with pytest.raises(SearchIndexError, match="replaced by another index, or moved to another model"):
            writer.put(stored_items.images(range(90, 91)))
    with (
        pytest.raises(SearchIndexError, match="replaced by another index, or moved to another model"),
        place.writing("add"),
    ):
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
            writer.tables.run(statement)
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
        writer.tables.run("UPDATE kept SET value = replace(value, '0.5', '0.6') WHERE name = 'calibration'")
    assert [each.where for each in damage(place)] == ["calibration", "kept"]


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
            told += [str(row) for row in view.tables.run(f"SELECT * FROM {table}")]
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
        outside = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'wide.images_vectors'::regclass"
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
        mover.execute("LOCK TABLE own.state IN ACCESS EXCLUSIVE MODE")
        reader = threading.Thread(target=lambda: place.counts)
        reader.start()
        until = time.monotonic() + 30
        while mover.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            assert time.monotonic() < until
            time.sleep(0.01)
        mover.execute("LOCK TABLE own.manifest, own.items, own.images_vectors IN ACCESS EXCLUSIVE MODE NOWAIT")
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


def test_move_touches_no_index_of_another_name(server: Server) -> None:
    """Neither one whose name looks like that of a move, nor the move of one whose name begins alike."""
    long = "n" * 62
    names = ["moved", "moved_moving", f"{long}a", f"{long}b"]
    stores = {name: stored_items.made(server.address(name), pictures=5, words=0) for name in names}
    begun = {}
    for name in (names[0], *names[2:]):
        since = stores[name].manifest.revision
        manifest = replace(stored_items.manifest(), fingerprint="e" * 32)
        begun[name] = stores[name].create_replacement(manifest), since
        assert stores[name].create_replacement(manifest).address == begun[name][0].address, "it is resumed"
    assert len({new.address.name for new, _ in begun.values()}) == 3
    for name, (new, since) in begun.items():
        with pytest.raises(SearchIndexError, match="needs a name of letters"):
            Database(server.address(new.address.name))
        with new.writing("move") as writer:
            writer.put(stored_items.images(range(7)))
        stores[name] = stores[name].replace_with(new, since=since)
    assert [store.counts["images"] for store in stores.values()] == [7, 5, 7, 7]
    for store in stores.values():
        assert damage(store) == []
        store.remove()


def test_move_of_another_model_removes_its_own_beginning_alone(server: Server, tmp_path: Path) -> None:
    """A restored copy names the schema that the first one's move builds, and leaves it alone."""
    store = stored_items.made(server.address("mine"), pictures=5, words=0)
    begun = store.create_replacement(replace(stored_items.manifest(), fingerprint="d" * 32))
    name = begun.address.name
    server.run("pg_dump", "--schema=mine", f"--file={tmp_path / 'dump'}", "postgres")
    server.run("psql", "--quiet", "--dbname=postgres", "--command=ALTER SCHEMA mine RENAME TO original")
    server.run("psql", "--quiet", "--dbname=postgres", f"--file={tmp_path / 'dump'}")
    copy, original = Database(server.address("mine")), Database(server.address("original"))
    assert copy.manifest.revision == original.manifest.revision and damage(copy) == damage(original) == []
    assert copy.pending_move() is None and original.pending_move() is not None
    other = copy.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    assert {name, other.address.name} <= _schemas(server)
    again = original.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    assert name not in _schemas(server) and again.address.name in _schemas(server), "its own is replaced"
    for each in (copy, original):
        each.remove()
    assert not any(own.startswith("moving") for own in _schemas(server)), "an index takes its unfinished move along"


def _schemas(server: Server) -> set[str]:
    return set(server.run("psql", "-Atc", "SELECT nspname FROM pg_namespace", "postgres").splitlines())


def _stopped(connection: DatabaseConnection) -> int:
    number = connection.info.backend_pid
    os.kill(number, signal.SIGSTOP)
    return number


def test_hanging_server_ends_in_one_sentence(server: Server, shared: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "PROBE", 0.5)
    store = Database(server.address("shared", options="-c statement_timeout=500ms"))
    with (
        pytest.raises(IndexMovedError, match=r"went away: it said nothing for 1 s; no change is half kept"),
        store.reading() as view,
    ):
        stopped = _stopped(view.tables.connection)
        view.nearest("images", QUERIES, top=5)
    os.kill(stopped, signal.SIGCONT)
    assert store.counts["images"] == 40, "another connection answers"
    stopped = _stopped(store._idle[-1])
    assert store.counts["images"] == 40, "one that was idle is noticed before it is used"
    os.kill(stopped, signal.SIGCONT)
    place = stored_items.made(server.address("hanging", options="-c statement_timeout=500ms"), pictures=5, words=0)
    with place.writing("add") as writer:
        stopped = _stopped(writer.connection)
        writer.put(stored_items.images(range(5, 9)))
        os.kill(stopped, signal.SIGCONT)
        with pytest.raises(IndexMovedError, match="it said nothing for 1 s"), writer.changing():
            stopped = _stopped(writer.connection)
            writer.tables.run("DELETE FROM items")
        os.kill(stopped, signal.SIGCONT)
    assert place.counts["images"] == 9 and damage(place) == []
    place.remove()


def test_slow_statement_ends_in_one_sentence(server: Server, shared: Database) -> None:
    store = Database(server.address("shared", options="-c statement_timeout=200ms"))
    told = r"server to answer in time: .*statement timeout; nothing was kept"
    with pytest.raises(IndexMovedError, match=told), store.reading() as view:
        view.tables.run("SELECT pg_sleep(5)")
    assert store.counts["images"] == 40
    for write, seconds in ((False, postgres.READ_SECONDS), (True, postgres.WRITE_SECONDS)):
        with connect_index(shared.address, write=write) as connection, connection.transaction():
            limit = connection.execute("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'")
            assert limit.fetchone() == (1000 * seconds,) and connection.silence == seconds + postgres.PROBE


def test_connections_that_the_server_ends_are_made_again(server: Server) -> None:
    limits = "-c idle_session_timeout=200ms -c idle_in_transaction_session_timeout=200ms"
    store = stored_items.made(server.address("idle", options=limits))
    with store.writing("add") as writer:
        time.sleep(0.5)
        writer.put(stored_items.images(range(40, 44)))
        time.sleep(0.5)
        writer.delete("images", ["p1"])
    assert store.counts["images"] == 43
    time.sleep(0.5)
    assert store.counts["images"] == 43
    with (
        pytest.raises(IndexMovedError, match="needs its server, which cannot be reached or went away"),
        store.reading() as view,
    ):
        time.sleep(0.5)
        view.nearest("images", QUERIES, top=5)
    assert store.counts["images"] == 43 and damage(store) == []
    store.remove()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_database_that_cannot_hold_every_text_is_refused(server: Server, encoding: str) -> None:
    name = f"in_{encoding.lower()}"
    server.run("createdb", f"--encoding={encoding}", "--template=template0", "--locale=C", name)
    address = server.address("own", database=name)
    told = f"needs a database that holds every text, in UTF8; this one is in {encoding}; make one by createdb"
    for use in (
        Database,
        Database.exists,
        Database.require_free,
        lambda own: Database.create(own, stored_items.manifest()),
    ):
        with pytest.raises(SearchIndexError, match=told):
            use(address)


def test_client_encoding_of_the_environment_does_not_count(
    server: Server, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = Database(server.address("shared"))
    with store.reading() as view:
        assert "Łódź" in {item.metadata["place"] for item in view.items("images", view.keys("images"))}


def test_old_or_missing_pgvector_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.run("createdb", "old")
    statement = "CREATE EXTENSION vector; UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'"
    server.run("psql", "--quiet", "--dbname=old", f"--command={statement}")
    address = server.address("own", database="old")
    for use in (Database, lambda own: Database.create(own, stored_items.manifest())):
        with pytest.raises(SearchIndexError, match=r"needs pgvector 0\.8 or later; the database has 0\.7\.4; an admin"):
            use(address)
    plain = DatabaseConnection.execute

    def execute(self: DatabaseConnection, query: object, *values: object, **more: object) -> object:
        if "CREATE EXTENSION" in str(query):
            raise psycopg.errors.FeatureNotSupported('extension "vector" is not available')
        return plain(self, query, *values, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DatabaseConnection, "execute", execute)
    with pytest.raises(SearchIndexError, match=r"needs pgvector 0\.8 or later; its server has none; an administrator"):
        Database.create(server.address("new"), stored_items.manifest())


def test_full_disk_of_the_server_keeps_what_stood_there(place: Database) -> None:
    """The error that a full disk gives, at each table that a change writes."""
    before = damage(place), place.counts
    for table in ("items", "facets", "images_vectors", "links", "forgotten", "kept"):
        statement = (
            "CREATE OR REPLACE FUNCTION own.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; "
            f"CREATE TRIGGER full_disk BEFORE INSERT ON own.{table} EXECUTE FUNCTION own.full_disk()"
        )
        with place.writing("add") as writer:
            writer.tables.run(statement)
            with pytest.raises(OutputError, match="the server has none: could not extend file"):
                writer.apply(replace(stored_items.images(range(40, 44)), documents={"other": "x"}))
                writer.put(stored_items.texts(range(60, 64)))
                writer.delete("images", ["p1"])
            writer.connection.execute(f"DROP TRIGGER full_disk ON own.{table}; DROP FUNCTION own.full_disk")
        with place.writing("delete") as writer:
            writer.delete("images", [f"p{number}" for number in range(40, 44)], remember=False)
            writer.delete("texts", [f"t{number}" for number in range(60, 64)], remember=False)
        assert (damage(place), place.counts) == before
    assert stored_items.ids(place) == {f"p{number}" for number in range(40)}


@pytest.mark.slow
def test_attack_of_a_disk_that_fills_up(server: Server) -> None:
    """A tablespace on a disk of a few MB, filled until the server refuses, and used on."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], check=False).returncode:
            pytest.skip("needs the right to mount a disk")
        try:
            owner = Path(server.socket).stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
            server.run("psql", "--quiet", "--dbname=postgres", f"--command=CREATE TABLESPACE small LOCATION '{folder}'")
            server.run("createdb", "--tablespace=small", "small")
            store = stored_items.made(server.address("own", database="small"))
            kept = 40
            with store.writing("add") as writer, pytest.raises(OutputError, match="needs space to be written"):
                while True:
                    numbers = range(kept, kept + 500)
                    vectors = np.ones((500, stored_items.VIEWS, stored_items.WIDTH), dtype=np.float32)
                    entries = [IndexEntry(f"p{n}", b"x", metadata={"long": "lorem ipsum " * 200}) for n in numbers]
                    writer.put(Change("images", entries, vectors))
                    kept += 500
            assert store.counts["images"] == kept and damage(store) == []
            store.close()
            server.run("dropdb", "--force", "small")
            server.run("psql", "--quiet", "--dbname=postgres", "--command=DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def test_compaction_by_a_reader_says_that_it_did_nothing(server: Server, place: Database) -> None:
    with place.writing("delete") as writer:
        writer.delete("images", ["p1"])
    statements = (
        "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA own TO guest; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA own TO guest"
    )
    server.run("psql", "--quiet", "--dbname=postgres", f"--command={statements}")
    store = Database(server.address("own").replace("//postgres:", "//guest:"))
    with (
        pytest.raises(OutputError, match=r"compacted by its owner, .*: 12 of 12 tables were passed over"),
        store.writing("compact") as writer,
    ):
        writer.compact()
    with place.writing("compact") as writer:
        assert writer.compact() == ["rows of deleted items are overwritten"]


HIDDEN = [
    "s3cr@pw", "s3cr/pw", "s3cr?pw", "s3cr#pw", "s3cr:pw", "s3cr pw", "s3cr%pw", "12/s3cr@5", "s3cr@[::1]", "@s3cr@",
    "1?index=s3cr@pw", "s3cr&pw@x?y=z@", "s3cr\\pw", "s3cr,pw@1:2",
]  # fmt: skip


@pytest.mark.parametrize("password", HIDDEN)
def test_password_of_any_signs_is_in_no_message(password: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it is written as it should be or not, and wherever it stands."""
    for address in (
        f"postgresql://u:{password}@127.0.0.1:1/db?index=x",
        f"postgresql://u:{quote(password, safe='')}@127.0.0.1:1/db?index=x",
        f"postgres://u:{password}@nowhere.invalid/db",
        f"postgresql://u:{password}@/db?host=/nowhere",
        f"postgresql://127.0.0.1:1/db?user=u&password={password}&index=x",
        f"postgresql://127.0.0.1:1/db?sslpassword={quote(password)}&index=x",
        f"postgresql:/u:{password}@h/db",
        f"postgresql//u:{password}@h/db",
        f"postgresql:u:{password}@h/db",
        f"tape://u:{password}@h/db",
        f"s3://u:{password}@bucket/db",
    ):
        told = []
        for use in (open_store, verify, lambda own: create_store(own, stored_items.manifest())):
            with pytest.raises(SubtextError) as problem:
                use(address)
            told.append(str(problem.value))
        for text in told:
            assert not any(part in text for part in ("s3cr", "pw", quote(password, safe=""))), text
            assert "\n" not in text, text


@pytest.mark.parametrize("name", ['x"; DROP SCHEMA own CASCADE; --', "shared", "moving", "moving " + "0" * 33])
def test_move_of_another_name_is_not_touched(place: Database, shared: Database, name: str) -> None:
    with connect_index(place.address, write=True) as connection:
        connection.execute("UPDATE own.manifest SET moving = %s", (name,))
    for use in (place.pending_move, place.remove, lambda: place.counts):
        with pytest.raises(SearchIndexError, match="needs to name the schema of an unfinished move as Subtext does"):
            use()
    assert shared.counts["images"] == 40 and Database.exists(place.address)
