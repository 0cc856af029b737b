"""An administrator's PostgreSQL: a pooler, a standby, limits, and graphs that are built while others write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

import database
import pooler
import psycopg
import pytest
import stored_items
from database import Server

from subtext.errors import OutputError, SearchIndexError
from subtext.retrieval import ann
from subtext.retrieval.stores import postgres
from subtext.retrieval.stores.errors import IndexLockedError, IndexMovedError
from subtext.retrieval.stores.postgres import Address, Database, VectorGraph
from subtext.retrieval.verification import damage

QUERIES = stored_items.vectors(range(1000, 1004), 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with database.started() as found:
        yield found


@pytest.fixture
def large(server: Server) -> Iterator[Database]:
    """One so large, by its own measure, that it wants a graph."""
    found = stored_items.made(server.address("large"), pictures=400, exact_up_to=60)
    yield found
    found.remove()


@contextmanager
def administrator(store: Database) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(**store.address.parameters, autocommit=True)) as connection:
        yield connection


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def graph(store: Database) -> VectorGraph | None:
    with store.reading() as view:
        return view.sides["images"].graph


def indexes(store: Database) -> set[str]:
    statement = "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND indexname LIKE '%%graph%%'"
    with administrator(store) as connection:
        return {name for (name,) in connection.execute(statement, (store.address.name,))}


@pooler.needed
def test_index_behind_a_pooler_in_transaction_mode(server: Server) -> None:
    """Each command and search, by several clients at once, who share two connections and leave nothing on them."""
    with pooler.started(server, size=2) as pool:
        direct = stored_items.made(server.address("direct"), pictures=400, exact_up_to=60)
        store = stored_items.made(pool.address("pooled"), pictures=400, exact_up_to=60)
        for each in (direct, store):
            with each.writing("compact") as writer:
                assert "a graph of images was built" in writer.compact()
        wanted = stored_items.answers(direct, QUERIES)

        def search(_: int) -> object:
            with closing(Database(store.address)) as own:
                return [stored_items.answers(own, QUERIES) for _ in range(3)]

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(search, range(4))) == [[wanted] * 3] * 4
        with store.writing("add") as writer:
            writer.put(stored_items.images(range(400, 430)))
            writer.delete("images", ["p1"])
        since = store.manifest.revision
        new = store.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
        with new.writing("move") as writer:
            writer.put(stored_items.images(range(7)))
        moved = store.replace_with(new, since=since)
        assert moved.counts["images"] == 7 and damage(moved) == []
        with administrator(moved) as connection:
            kept = {
                name: connection.execute(f"SHOW {name}").fetchone()
                for name in ("search_path", "statement_timeout", "lock_timeout", "synchronous_commit", "hnsw.ef_search")
            }
        assert kept == {
            "search_path": ('"$user", public',), "statement_timeout": ("0",), "lock_timeout": ("0",),
            "synchronous_commit": ("on",), "hnsw.ef_search": ("40",),
        }  # fmt: skip
        moved.remove()
        direct.remove()
        assert not Database.exists(pool.address("pooled"))


@pooler.needed
def test_what_a_pooler_refuses_is_one_sentence(server: Server) -> None:
    store = stored_items.made(server.address("refused"))
    with pooler.started(server) as pool:
        with pytest.raises(SearchIndexError, match=r"needs a pooler that takes the parameters .*: options; remove"):
            Database(pool.address("refused", options="-c statement_timeout=3s"))
        server.run("psql", "--command=ALTER ROLE postgres SET statement_timeout = '300ms'", "postgres")
        try:
            pooled = Database(pool.address("refused"))
            told = "needs its server to answer in time: .*; nothing was kept; .* behind a pooler ALTER ROLE"
            with pytest.raises(IndexMovedError, match=told), pooled.reading() as view:
                view.tables.run("SELECT pg_sleep(5)")
            told = "needs to be compacted without limits of time, and behind its pooler they are 300ms for a statement"
            with pytest.raises(OutputError, match=told), pooled.writing("compact") as writer:
                writer.compact()
        finally:
            server.run("psql", "--command=ALTER ROLE postgres RESET statement_timeout", "postgres")
    with (
        pooler.started(server, mode="statement") as pool,
        pytest.raises(SearchIndexError, match=r"needs a pooler in transaction or session mode: .*; its administrator"),
    ):
        Database(pool.address("refused"))
    with pytest.raises(IndexMovedError, match="needs its server, which cannot be reached or went away"):
        Database(pool.address("refused"))
    store.remove()


def test_a_path_of_other_schemas_changes_nothing(server: Server) -> None:
    """Tables of the same names in the path of the user are not looked at."""
    tables = "CREATE SCHEMA theirs; CREATE TABLE theirs.items (key int); CREATE TABLE theirs.state (x int)"
    server.run("psql", f"--command={tables}", "postgres")
    store = stored_items.made(server.address("pathed", options="-c search_path=theirs"))
    plain = stored_items.made(server.address("plain"))
    assert stored_items.answers(store, QUERIES) == stored_items.answers(plain, QUERIES) and damage(store) == []
    for each in (store, plain):
        each.remove()


def test_pgvector_may_be_in_any_schema(server: Server) -> None:
    server.run("createdb", "apart")
    place = '"of Extensions"'
    server.run("psql", f"--command=CREATE SCHEMA {place}", f"--command=CREATE EXTENSION vector SCHEMA {place}", "apart")
    store = stored_items.made(server.address("own", database="apart"), pictures=400, exact_up_to=60)
    with store.writing("compact") as writer:
        assert "a graph of images was built" in writer.compact()
    assert stored_items.nearest(store, QUERIES, exact=True) == stored_items.plain(QUERIES, list(range(400)))
    assert damage(store) == []
    store.close()


def test_others_write_while_a_graph_is_built(large: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of an earlier moment holds the building up, as a large table does."""
    monkeypatch.setattr(postgres, "PROBE", 1)
    lines = list[str]()

    def compact() -> None:
        with large.writing("compact") as writer:
            lines.extend(writer.compact())

    building = threading.Thread(target=compact)
    with large.reading() as view:
        view.nearest("images", QUERIES, top=5)
        building.start()
        wait_until(lambda: "images_graph_next" in indexes(large))
        with large.writing("add") as writer:
            writer.put(stored_items.images(range(400, 410)))
            writer.delete("images", ["p3"])
            with pytest.raises(IndexLockedError, match="is being compacted by somebody else; do it again when"):
                writer.compact()
        assert building.is_alive() and "p3" not in stored_items.ids(Database(large.address))
        assert view.nearest("images", QUERIES, top=5)
    building.join()
    assert "a graph of images was built" in lines and indexes(large) == {"images_graph"}
    found = graph(large)
    assert found and found.later == 10 * stored_items.VIEWS
    left = sorted({*range(410)} - {3})
    assert stored_items.nearest(large, QUERIES, exact=True) == stored_items.plain(QUERIES, left)
    assert damage(large) == []


@pytest.mark.parametrize("when", ["while it is built", "before it is in use"])
def test_a_graph_that_was_cut_off_is_built_again_and_said(large: Database, when: str) -> None:
    if when == "while it is built":

        def compact() -> None:
            with large.writing("compact") as writer:
                writer.compact()

        statement = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'subtext index compact'"
        )
        with (
            pytest.raises(IndexMovedError, match="no change is half kept"),
            ThreadPoolExecutor(1) as threads,
            large.reading() as view,
            administrator(large) as connection,
        ):
            view.nearest("images", QUERIES, top=5)
            building = threads.submit(compact)
            wait_until(lambda: "images_graph_next" in indexes(large))
            connection.execute(statement)
            building.result()
        line = "an incomplete graph of images, whose building was cut off, was removed"
    else:
        with administrator(large) as connection:
            connection.execute(
                "CREATE INDEX images_graph_next ON large.images_vectors "
                "USING hnsw ((vector::halfvec(8)) halfvec_ip_ops) "
                "WHERE key <= 400"
            )
        line = "a graph of images, complete when its building was cut off, was taken over"
    assert indexes(large) == {"images_graph_next"} and graph(large) is None and damage(large) == []
    wanted = stored_items.nearest(large, QUERIES)
    with large.writing("compact") as writer:
        lines = writer.compact()
    assert lines[0] == line and ("a graph of images was built" in lines) == (when == "while it is built")
    assert indexes(large) == {"images_graph"} and stored_items.nearest(large, QUERIES) == wanted


def test_links_and_candidates_are_options_whose_recall_is_measured(
    server: Server, large: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow graphs with few candidates find less, which is printed, kept and shown."""
    monkeypatch.setattr(postgres, "MARGIN", 0)
    with large.writing("compact") as writer:
        first = writer.compact()
    assert first[1].startswith(
        "graph of images: halfvec, m 16, ef_search 200, recall@10 1.000 for images and 1.000 for texts"
    )
    sparse = Database(server.address("large", m="2", ef_search="1"))
    with sparse.writing("compact") as writer:
        lines = writer.compact()
    assert lines[0] == "a graph of images was built" and lines[1].startswith(
        "graph of images: halfvec, m 2, ef_search 1, "
    )
    assert "; 0." in lines[1] and " with ef_search 2" in lines[1], "what more candidates would find"
    known = graph(large)
    assert known and (known.m, known.ef_search) == (2, 1) and set(known.recalls) == {"images", "texts"}
    assert min(known.recalls.values()) < 0.98
    with large.reading() as view:
        assert view.stats().facts["graphs"]["images"] == f"{known}; {postgres.UNUSED}"
    with sparse.reading() as view:
        assert view.stats().facts["graphs"]["images"] == str(known), "candidates that are set by hand are used"
    with large.writing("compact") as writer:
        assert len(writer.compact()) == 1, "who names no number takes those of the graph"
    with Database(server.address("large", ef_search="800")).writing("compact") as writer:
        assert writer.compact()[0].startswith("graph of images: halfvec, m 2, ef_search 800, "), "measured, not built"
    assert (known := graph(large)) and known.ef_search == 800


def test_candidates_are_chosen_for_a_recall(server: Server, large: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewest that find enough; where the most find too little, it is said."""
    monkeypatch.setattr(postgres, "MARGIN", 0)
    monkeypatch.setattr(postgres, "EF_SEARCH", 4)
    sparse = Database(server.address("large", m="2"))
    with sparse.writing("compact") as writer:
        lines = writer.compact()
    known = graph(large)
    assert known and known.ef_search > 4 and min(known.recalls.values()) >= ann.wanted(0.98) and len(lines) == 3
    assert f" with ef_search {known.ef_search // 2}" in lines[1], "the next fewer find too little"
    with administrator(large) as connection:
        connection.execute("COMMENT ON INDEX large.images_graph IS NULL")
    monkeypatch.setattr(postgres, "_recalls", lambda *words, **more: {200: {"images": 0.4, "texts": 0.5}})
    large = Database(large.address)
    with large.writing("compact") as writer:
        lines = writer.compact()
    assert (again := graph(large)) and min(again.recalls.values()) == 0.4
    assert f"find 0.400 of the nearest items at most, of 0.98 that are asked: {postgres.UNUSED}" in lines[1]
    assert "(m=4 in the address of compact)" in lines[1]


def test_candidates_of_an_address_are_those_of_its_searches(server: Server, large: Database) -> None:
    with large.writing("compact") as writer:
        writer.compact()
    for store, wanted in ((large, "200"), (Database(server.address("large", ef_search="345")), "345")):
        with store.reading() as view:
            view.nearest("images", QUERIES[:1], top=1)
            assert view.tables.run("SELECT current_setting('hnsw.ef_search')") == [(wanted,)]


def test_a_graph_of_full_numbers_is_an_option(server: Server, large: Database) -> None:
    with large.writing("compact") as writer:
        writer.compact()
    assert (found := graph(large)) and found.numbers == "halfvec"
    wanted = stored_items.nearest(large, QUERIES)
    full = Database(server.address("large", graph="vector"))
    with full.writing("compact") as writer:
        assert writer.compact()[1].startswith("graph of images: vector, m 16, ef_search 200, recall@10 1.000")
    assert (found := graph(large)) and found.numbers == "vector" and stored_items.nearest(large, QUERIES) == wanted
    with large.writing("compact") as writer:
        assert len(writer.compact()) == 1, "who names no type takes that of the graph"
    with pytest.raises(SearchIndexError, match="needs graph as halfvec or vector; its address has graph=int8; change"):
        Address.parse("postgresql:///db?index=x&graph=int8")


def test_numbers_beyond_sixteen_bits_are_searched(server: Server) -> None:
    """A graph of 16 bits cannot hold them: building it is refused in one sentence, and such a query compares all."""
    store = stored_items.made(server.address("great", options="-c enable_seqscan=off"), pictures=200, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.compact()
        assert stored_items.nearest(store, 1e6 * QUERIES) == stored_items.nearest(store, QUERIES, exact=True)
        one = stored_items.images(range(200, 280))
        assert one.vectors is not None
        writer.put(replace(one, vectors=1e6 * one.vectors))
        before = stored_items.nearest(store, QUERIES)
        told = "numbers up to 65,504 for a graph of 16 bits, and some of its images have greater ones; compact it with"
        with pytest.raises(SearchIndexError, match=told):
            writer.compact()
    assert stored_items.nearest(store, QUERIES) == before and damage(store) == []
    with Database(server.address("great", graph="vector")).writing("compact") as writer:
        lines = writer.compact()
    assert lines[:2] == [
        "an incomplete graph of images, whose building was cut off, was removed", "a graph of images was built",
    ]  # fmt: skip
    assert stored_items.nearest(store, QUERIES) == before
    store.remove()


def test_an_own_remark_on_a_graph_is_no_damage(large: Database) -> None:
    with large.writing("compact") as writer:
        writer.compact()
    for remark in ("of Monday", '{"ef_search": "many"}', '{"ef_search": 0, "recall@10": {}}', "[1]"):
        with administrator(large) as connection:
            connection.execute(f"COMMENT ON INDEX large.images_graph IS '{remark}'")
        again = Database(large.address)
        found = graph(again)
        assert found and (found.ef_search, found.recalls) == (200, {})
        assert "recall@10 not measured" in str(found)
    with large.writing("compact") as writer:
        assert "recall@10 1.000" in writer.compact()[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("ef_search", "0"), ("ef_search", "1001"), ("m", "1"), ("m", "101"), ("m", "few"), ("m", ""), ("connections", "0"),
     ("connections", "-1"), ("connections", "1.5"), ("ef_search", "1e2"), ("m", "\u0661\u0662")],
)  # fmt: skip
def test_number_out_of_range_is_refused(key: str, value: str) -> None:
    told = rf"needs {key} as a whole number from \d to [\d,]+; its address has {key}={value}; change or remove it"
    with pytest.raises(SearchIndexError, match=told):
        Address.parse(f"postgresql:///db?index=x&{key}={database.quote(value)}")


def test_numbers_are_no_parameters_of_the_server() -> None:
    found = Address.parse("postgresql://a,b/db?index=x&m=24&ef_search=400&connections=8&target_session_attrs=primary")
    assert (found.m, found.ef_search, found.connections) == (24, 400, 8)
    assert not {"m", "ef_search", "connections", "index"} & set(found.parameters)
    assert found.parameters["target_session_attrs"] == "primary"
    with pytest.raises(
        SearchIndexError, match="further parameters are graph, connections, ef_search, m, and those of libpq"
    ):
        Address.parse("postgresql:///db?index=x&efsearch=400")


def test_connections_of_a_process_are_limited_by_its_address(server: Server) -> None:
    store = stored_items.made(server.address("few", connections="1"))
    waited = threading.Thread(target=lambda: store.counts)
    with store.reading():
        waited.start()
        waited.join(0.3)
        assert waited.is_alive()
    waited.join(30)
    assert not waited.is_alive()
    store.remove()


@pytest.mark.slow
def test_a_standby_answers_and_says_what_it_is(server: Server) -> None:
    store = stored_items.made(server.address("followed"))
    wanted = stored_items.answers(store, QUERIES)
    with database.standby(server) as other:
        address = other.address("followed")
        follower = Database(address)
        assert stored_items.answers(follower, QUERIES) == wanted and damage(follower) == []
        told = (
            "needs to be changed where its server is the primary; this one is a standby, .*target_session_attrs=primary"
        )
        for change in (
            lambda: follower.writing("add").__enter__(),
            follower.remove,
            lambda: Database.require_free(other.address("fresh")),
            lambda: Database.create(other.address("fresh"), stored_items.manifest()),
        ):
            with pytest.raises(OutputError, match=told) as problem:
                change()
            assert "GRANT" not in str(problem.value)
        with pytest.raises(IndexMovedError, match=r"standby|read-only|recovery"):
            Database(other.address("followed", target_session_attrs="primary"))
        follower.close()
    store.remove()


def test_limit_of_connections_of_the_server_is_told(server: Server) -> None:
    store = stored_items.made(server.address("crowded"))
    statements = (
        "CREATE ROLE lonely LOGIN CONNECTION LIMIT 1; GRANT USAGE ON SCHEMA crowded TO lonely; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA crowded TO lonely"
    )
    server.run("psql", f"--command={statements}", "postgres")
    address = server.address("crowded", connections="7").replace("//postgres:", "//lonely:")
    first = Database(address)
    with pytest.raises(IndexMovedError, match=r"its server has none left: .*; let each process use fewer, .*\(7 now\)"):
        Database(address)
    first.close()
    store.remove()


def test_a_database_without_changes_is_no_matter_of_rights(server: Server) -> None:
    store = stored_items.made(server.address("frozen"))
    frozen = Database(server.address("frozen", options="-c default_transaction_read_only=on"))
    assert frozen.counts["images"] == 40
    with (
        pytest.raises(OutputError, match=r"its server allows no changes here: .*default_transaction_read_only"),
        frozen.writing("add") as writer,
    ):
        writer.put(stored_items.images(range(40, 41)))
    store.remove()
