"""`verify` finds every kind of damage, in each store: one table of damages, and each column of each table changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lance as library
import psycopg
import pyarrow as pa
import pytest
import stored_items

from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import Calibration, store_calibration
from subtext.retrieval.stores import lance
from subtext.retrieval.stores.postgres import STATE, Database, DatabaseConnection, connect_index
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage, verify

SQL = {
    "link deleted": "DELETE FROM links WHERE image = 'p3'",
    "all links deleted": "DELETE FROM links",
    "link added": "INSERT INTO links VALUES ('p3', 't9')",
    "link to nobody added": "INSERT INTO links VALUES ('nobody', 't9')",
    "links exchanged": (
        "UPDATE links SET text = CASE text WHEN 't3' THEN 't4' ELSE 't3' END WHERE text IN ('t3', 't4')"
    ),
    "deletion forgotten": "DELETE FROM forgotten WHERE hash = (SELECT min(hash) FROM forgotten)",
    "all deletions forgotten": "DELETE FROM forgotten",
    "job deleted": "DELETE FROM jobs WHERE number = 1",
    "job verb changed": "UPDATE jobs SET verb = 'move' WHERE number = 1",
    "job of another source": 'UPDATE jobs SET source = \'{"data": "b"}\' WHERE number = 1',
    "job source cut off": "UPDATE jobs SET source = substr(source, 1, 5) WHERE number = 1",
    "job source gone": "UPDATE jobs SET source = NULL WHERE number = 1",
    "job unfinished": "UPDATE jobs SET finished = NULL WHERE number = 1",
    "job finished": "UPDATE jobs SET finished = started WHERE number = 2",
    "job added": "INSERT INTO jobs (verb, started, done, total) VALUES ('add', '2020-01-01', 1, 1)",
    "image deleted": "DELETE FROM items WHERE id = 'p3'",
    "text deleted": "DELETE FROM items WHERE id = 't3'",
    "text changed": "UPDATE items SET text = 'other' WHERE id = 't3'",
    "metadata changed": "UPDATE items SET metadata = '{}' WHERE id = 'p3'",
    "metadata cut off": "UPDATE items SET metadata = '[1' WHERE id = 'p3'",
    "path changed": "UPDATE items SET path = 'other.png' WHERE id = 'p3'",
    "stamp changed": "UPDATE items SET stamp = '1 2' WHERE id = 'p3'",
    "facet deleted": "DELETE FROM facets WHERE name = 'year' AND key = (SELECT min(key) FROM facets)",
    "facets deleted": "DELETE FROM facets",
}
"""Damage of a folder's tables and of PostgreSQL's."""
POSTGRES = {
    "deletion added": r"INSERT INTO forgotten VALUES ('\x00112233445566778899aabbccddeeff')",
    "deletion changed": r"UPDATE forgotten SET hash = '\x00112233445566778899aabbccddeeff' "
    "WHERE hash = (SELECT min(hash) FROM forgotten)",
    "vectors exchanged": (
        "UPDATE images_vectors SET key = -key WHERE key IN (2, 3); "
        "UPDATE images_vectors SET key = 5 + key WHERE key < 0; "
        "UPDATE items a SET vectors_digest = b.vectors_digest FROM items b WHERE a.key IN (2, 3) AND b.key = 5 - a.key"
    ),
    "vector changed": "UPDATE images_vectors SET vector = vector + vector WHERE key = 4 AND view = 1",
    "vector deleted": "DELETE FROM images_vectors WHERE key = 6 AND view = 0",
    "vector added": "INSERT INTO images_vectors SELECT key, 9, vector FROM images_vectors LIMIT 1",
    "vector of nobody": "INSERT INTO images_vectors SELECT 9999, view, vector FROM images_vectors LIMIT 1",
    "facet added": "INSERT INTO facets SELECT key, side, 'colour', 7, word, folded FROM facets LIMIT 1",
    "facet of nobody": "INSERT INTO facets SELECT 9999, side, name, number, word, folded FROM facets LIMIT 1",
    "folded facet changed": "UPDATE facets SET folded = 'other' WHERE word = 'Wien'",
    "folded id changed": "UPDATE items SET folded_id = 'other' WHERE id = 'p3'",
    "words changed": "UPDATE items SET words = '''other'':1' WHERE id = 't3'",
    "length changed": "UPDATE items SET length = 9 WHERE id = 't3'",
    "calibration changed": "UPDATE kept SET value = replace(value, '0.5', '0.6') WHERE name = 'calibration'",
    "calibration deleted": "DELETE FROM kept WHERE name = 'calibration'",
    "document added": "INSERT INTO kept (name, value) VALUES ('other', '')",
    "manifest of another model": "UPDATE manifest SET json = replace(json, 'dual', 'deep')",
    "manifest deleted": "DELETE FROM manifest",
    "move added": "UPDATE manifest SET moving = 'own'",
    "format changed": "UPDATE state SET value = 0 WHERE name = 'format'",
    "index missing": "DROP INDEX links_of_texts",
    "key missing": "ALTER TABLE links DROP CONSTRAINT links_pkey",
    "reference missing": "ALTER TABLE facets DROP CONSTRAINT facets_key_fkey",
    "not null missing": "ALTER TABLE items ALTER COLUMN content DROP NOT NULL",
    "column added": "ALTER TABLE links ADD COLUMN more text",
    "column missing": "ALTER TABLE facets DROP COLUMN folded",
    "column of another type": "ALTER TABLE items ALTER COLUMN length TYPE bigint",
    "trigger added": "CREATE TRIGGER t BEFORE INSERT ON links EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "checks off": "ALTER TABLE facets DISABLE TRIGGER ALL",
    "rule added": "CREATE RULE r AS ON INSERT TO links DO INSTEAD NOTHING",
    "row security": "ALTER TABLE links ENABLE ROW LEVEL SECURITY",
    "view in the place of a table": "ALTER TABLE jobs RENAME TO others; CREATE VIEW jobs AS SELECT * FROM others",
    **{f"state {name} changed": f"UPDATE state SET value = value + 1 WHERE name = '{name}'" for name in STATE},
    **{f"state {name} missing": f"DELETE FROM state WHERE name = '{name}'" for name in STATE},
}
FOLDER = {
    "facet added": "INSERT INTO facets SELECT side, 'colour', 7, key, '' FROM facets LIMIT 1",
    "folded id changed": "UPDATE items SET folded_id = 'other' WHERE id = 'p3'",
    "words changed": "UPDATE words SET text = 'other' WHERE rowid = (SELECT min(rowid) FROM words)",
    "deletion added": "INSERT INTO forgotten VALUES (x'00112233445566778899aabbccddeeff')",
    "deletion changed": "UPDATE forgotten SET hash = x'00112233445566778899aabbccddeeff' "
    "WHERE hash = (SELECT min(hash) FROM forgotten)",
    "state generation missing": "DELETE FROM state WHERE name = 'generation'",
    "state images missing": "DELETE FROM state WHERE name = 'images'",
}


def edited(where: str, **columns: Any) -> Callable[[Any], None]:
    """Change columns of the first row of a table in LanceDB."""

    def change(dataset: Any) -> None:
        row = dataset.to_table(filter=where).to_pylist()[0]
        dataset.delete(f"{where} AND key = {row['key']}")
        new = {**row, **{name: own(row[name]) if callable(own) else own for name, own in columns.items()}}
        library.write_dataset(pa.Table.from_pylist([new], schema=dataset.schema), dataset.uri, mode="append")

    return change


def exchanged(dataset: Any) -> None:
    """Exchange the vectors of two texts, with their checksums."""
    rows = dataset.to_table(filter="id IN ('t3', 't4')").to_pylist()
    dataset.delete("id IN ('t3', 't4')")
    names = ("vector", "vectors_digest")
    new = [{**a, **{name: b[name] for name in names}} for a, b in zip(rows, rows[::-1], strict=True)]
    library.write_dataset(pa.Table.from_pylist(new, schema=dataset.schema), dataset.uri, mode="append")


def of_state(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], None]:
    def changed(text: str) -> str:
        state = json.loads(text)
        change(state)
        return json.dumps(state, ensure_ascii=False)

    return edited(f"kind = {lance.STATE}", record=changed)


def added(**columns: Any) -> Callable[[Any], None]:
    def add(dataset: Any) -> None:
        library.write_dataset(pa.Table.from_pylist([columns], schema=dataset.schema), dataset.uri, mode="append")

    return add


def deleted(where: str) -> Callable[[Any], None]:
    return lambda dataset: dataset.delete(where)


LANCE = {
    "link deleted": edited("id = 't3'", link=None),
    "all links deleted": lambda dataset: dataset.update({"link": "NULL", "links": "NULL"}, where="kind = 1"),
    "link twice there": edited("id = 't3'", links=lambda own: ["p3"]),
    "link added": edited("id = 't9'", links=["p3", "p9"]),
    "link to nobody added": edited("id = 't9'", links=["nobody", "p9"]),
    "deletion forgotten": edited(f"kind = {lance.DELETED}", content=lambda own: own[16:]),
    "all deletions forgotten": deleted(f"kind = {lance.DELETED}"),
    "deletion changed": edited(f"kind = {lance.DELETED}", content=lambda own: b"0" * 16 + own[16:]),
    "deletion added": added(kind=lance.DELETED, key=9, content=b"0" * 16),
    "job deleted": deleted(f"kind = {lance.JOB}"),
    "job verb changed": edited(f"kind = {lance.JOB}", record=lambda own: own.replace("add", "put")),
    "job source cut off": edited(f"kind = {lance.JOB}", record=lambda own: own[:9]),
    "job in progress changed": of_state(lambda state: state["jobs"][0].__setitem__(1, "move")),
    "job in progress deleted": of_state(lambda state: state["jobs"].clear()),
    "image deleted": deleted("id = 'p3'"),
    "text deleted": deleted("id = 't3'"),
    "label added": edited("id = 'p3'", labels=["place"]),
    "vectors exchanged": exchanged,
    "vector deleted": deleted(f"kind = {lance.FURTHER} AND key = 6"),
    "vector twice there": lambda dataset: library.write_dataset(
        dataset.to_table(filter=f"kind = {lance.FURTHER} AND key = 6"), dataset.uri, mode="append"
    ),
    "vector of nobody": edited(f"kind = {lance.FURTHER}", key=9999),
    "calibration changed": edited(f"kind = {lance.DOCUMENT}", record=lambda own: own.replace("0.5", "0.6") + " "),
    "calibration deleted": deleted(f"kind = {lance.DOCUMENT} AND id = 'calibration'"),
    "document added": added(kind=lance.DOCUMENT, key=9, id="other", record=""),
    "row of no kind": added(kind=77, key=9),
    "state deleted": deleted(f"kind = {lance.STATE}"),
    "manifest of another model": of_state(
        lambda state: state.__setitem__("manifest", state["manifest"].replace("dual", "deep"))
    ),
    "column missing": lambda dataset: dataset.drop_columns(["folded"]),
    "column added": lambda dataset: dataset.add_columns({"more": "1"}),
    **{
        f"state {name} changed": of_state(lambda state, name=name: state.__setitem__(name, state[name] + 1))
        for name in lance.NUMBERS
    },
    **{
        f"state {name} missing": of_state(lambda state, n=name: state.pop(n))
        for name in (*lance.NUMBERS, "manifest", "change", "changes", "sums", "seal", "jobs", "format")
    },
    **{
        f"sum of {name} changed": of_state(lambda state, n=name: state["sums"].__setitem__(n, state["sums"][n] ^ 1))
        for name in lance.SUMS
    },
}
TABLE = {"folder": {**SQL, **FOLDER}, "postgresql": {**SQL, **POSTGRES}, "lance": LANCE}


STEPS = [6, pytest.param(1, marks=pytest.mark.slow)]
"""One in six is enough for each commit."""


@pytest.fixture(scope="module")
def intact(address_of: Callable[[str], str]) -> Store:
    """With deleted items, a finished and an unfinished job, and a calibration."""
    store = stored_items.made(address_of("intact"))
    with store.writing("add") as writer:
        writer.finish(writer.begin("add", source={"data": "a"}, total=3))
        writer.begin("update", source={"data": "b"}, total=4)
        writer.delete("images", ["p38", "p39"])
    line, counts = {"xs": [0.0], "ys": [0.5]}, dict(store.counts)
    store_calibration(store, Calibration({}, line, {}, counts, counts, store.manifest.identity), "<svg/>")
    assert damage(store) == []
    return store


@pytest.fixture
def damaged(store_kind: str, intact: Store, tmp_path: Path) -> Callable[[Any], list[str]]:
    """Does damage to a copy of the intact index, and says what `verify` finds."""

    def in_database(statements: str) -> list[str]:
        assert isinstance(intact, Database)
        with connect_index(intact.address, write=True) as connection, connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL search_path TO intact, public; SET session_replication_role TO replica")
            connection.execute(statements)
            connection.execute("SET session_replication_role TO origin")
            return found_in(intact, connection)

    def in_copy(change: Any) -> list[str]:
        source = Path(str(intact.path).removeprefix("lance://"))
        copy = Path(shutil.copytree(source, tmp_path / "copy"))
        if store_kind == "folder":
            with closing(sqlite3.connect(copy / "store-1" / "items.sqlite")) as tables:
                tables.executescript(change)
        else:
            change(library.dataset(str(copy / lance.TABLE)))
        found = verify(str(copy) if store_kind == "folder" else f"lance://{copy}")
        shutil.rmtree(copy)
        return [f"{each.where}: {each.what}" for each in found]

    return in_database if store_kind == "postgresql" else in_copy


def found_in(store: Database, connection: DatabaseConnection) -> list[str]:
    """What `verify` finds as a transaction sees it."""
    store._thread.connection, store._cache = connection, (None, {})
    try:
        return [f"{each.where}: {each.what}" for each in damage(store)]
    except SearchIndexError as problem:
        return [str(problem)]
    finally:
        store._thread.connection = None


@pytest.mark.parametrize("step", STEPS)
def test_attack_of_every_kind_is_found(store_kind: str, damaged: Callable[[Any], list[str]], step: int) -> None:
    """The table of damages."""
    missed = []
    for kind, change in [*TABLE[store_kind].items()][::step]:
        found = damaged(change)
        if not found or any("Traceback" in line or "\n" in line for line in found):
            missed.append((kind, found))
    assert not missed, missed


@pytest.mark.parametrize("step", STEPS)
def test_attack_on_any_column_is_found(
    store_kind: str, intact: Store, damaged: Callable[[Any], list[str]], step: int
) -> None:
    """One value in each column of each table."""
    missed = [name for name, change in [*columns_of(store_kind, intact)][::step] if not damaged(change)]
    assert not missed, missed


def columns_of(store_kind: str, intact: Store) -> Iterator[tuple[str, Any]]:
    """Each column that holds something, and what changes one of its values."""
    if store_kind == "lance":
        rows = library.dataset(intact.uri).to_table().to_pylist()  # type: ignore[attr-defined]
        for kind in sorted({row["kind"] for row in rows}):
            first = next(row for row in rows if row["kind"] == kind)
            for name, value in first.items():
                if value is not None and (kind, name) != (lance.STATE, "key"):
                    yield f"{kind}.{name}", edited(f"kind = {kind}", **{name: other(value)})
    elif store_kind == "folder":
        with closing(sqlite3.connect(Path(intact.path, "store-1", "items.sqlite"))) as tables:
            names = [name for (name,) in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in sorted(name for name in names if not name.startswith(("words", "sqlite"))):
                described = tables.execute(f"PRAGMA table_info({table})").fetchall()
                keys = ", ".join(name for _, name, _, _, _, part in described if part) or "rowid"
                for _, column, *_ in described:
                    changed = (
                        f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'blob' THEN zeroblob(16) "
                        f"ELSE {column} + 1 END"
                    )
                    some = f"SELECT {keys} FROM {table} WHERE {column} IS NOT NULL ORDER BY {keys} DESC LIMIT 1"
                    if tables.execute(some).fetchone():
                        yield f"{table}.{column}", f"UPDATE {table} SET {column} = {changed} WHERE ({keys}) = ({some})"
    else:
        assert isinstance(intact, Database)
        with intact.connected() as connection:
            statement = (
                "SELECT table_name, column_name, udt_name FROM information_schema.columns WHERE table_schema = %s "
                "ORDER BY table_name, ordinal_position"
            )
            described = connection.execute(statement, (intact.address.name,)).fetchall()
        forms = {
            "text": "{} || 'x'", "bytea": "set_byte({0}, 0, get_byte({0}, 0) # 1)", "vector": "{0} + {0}",
            "tsvector": "'x'::tsvector", "timestamptz": "{} + interval '1 s'", "int8range": "int8range(1, 2)",
        }  # fmt: skip
        for table, column, kind in described:
            if kind == "bool":
                continue  # A constraint keeps it as it is.
            changed = forms.get(kind, "{} + 1").format(column)
            filled = f"SELECT max(ctid) FROM {table} WHERE {column} IS NOT NULL"
            with intact.reading() as view:
                if view.tables.run(filled) == [(None,)]:
                    continue
            yield f"{table}.{column}", f"UPDATE {table} SET {column} = {changed} WHERE ctid = ({filled})"


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, list):
        return value[:-1] if value and not isinstance(value[0], float) else [-own for own in value] or ["x"]
    return value + 1


def test_layout_ignores_indexes_of_an_administrator(store_kind: str, damaged: Callable[[Any], list[str]]) -> None:
    if store_kind == "postgresql":
        assert damaged("CREATE INDEX own_one ON items (stamp)") == []


def test_damage_is_still_found_after_later_changes(store_kind: str, address_of: Callable[[str], str]) -> None:
    """A change adds to the sums that it finds: it does not make damage whole."""
    store = stored_items.made(address_of("later"))
    if isinstance(store, Database):
        with psycopg.connect(**store.address.parameters) as connection:
            connection.execute("SET search_path TO later")
            connection.execute("DELETE FROM links WHERE image = 'p3'; UPDATE state SET value = 9 WHERE name = 'words'")
    elif store_kind == "folder":
        with closing(sqlite3.connect(Path(store.path, "store-1", "items.sqlite"))) as tables:
            tables.executescript("DELETE FROM links WHERE image = 'p3'")
    else:
        edited("id = 't3'", link=None)(library.dataset(store.uri))
    store = open_store(address_of("later"))
    with store.writing("add") as writer:
        writer.put(stored_items.images(range(50, 55)))
        writer.delete("images", ["p5"])
    assert damage(store)
