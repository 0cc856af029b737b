"""An index in LanceDB, in a folder and on an S3 server: kills, faults, other writers, and what deleted items leave."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import killed_lance
import lance as library
import numpy as np
import pytest
import s3_server
import stored_items
from pyarrow import fs

from subtext.errors import OutputError, RequirementError, SearchIndexError, SubtextError
from subtext.retrieval import index_files
from subtext.retrieval.condition import matching, parse
from subtext.retrieval.manifest import EncoderRecord, checksum
from subtext.retrieval.stores import lance, lance_fields, lance_lists
from subtext.retrieval.stores.errors import IndexLockedError, IndexMovedError, MissingBucketError
from subtext.retrieval.stores.item import SPACES, Change, DerivedRow, IndexEntry
from subtext.retrieval.stores.lance import LanceStore
from subtext.retrieval.stores.registry import create_store, open_store
from subtext.retrieval.verification import damage, verify

QUERIES = stored_items.vectors(range(1000, 1004), 1)
# In folders the simulator kills at any write.
KILLS = [
    pytest.param(call, seed, marks=[] if (call, seed) == ("commit", 1) else pytest.mark.slow)
    for call, seeds in {"": 13, "commit": 6, "write_fragments": 4, "cleanup_old_versions": 2}.items()
    for seed in range(seeds)
]


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lance, "GRACE", 0.0)
        patch.setattr(lance, "QUERIES", 8)
        patch.setattr(lance_lists, "ASKED", 4)
        # Lists of so few vectors are of no use; tests of what is used set these as they are.
        patch.setattr(lance_lists, "BITS", (5,))
        patch.setattr(lance_lists, "REQUEST", 0)
        patch.setattr(lance_lists, "PER_LIST", 0)
        yield


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket on a server of its own."""
    with s3_server.served() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield "s3://archive"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "index"
    stored_items.made(f"lance://{folder}")
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> LanceStore:
    return open_store(f"lance://{shutil.copytree(made, tmp_path / 'index')}")  # type: ignore[return-value]


def raw(store: LanceStore, secrets: list[bytes]) -> list[bytes]:
    """Which of these bytes are in a file of the index."""
    filesystem, folder = fs.FileSystem.from_uri(store.uri)
    infos = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    files = [filesystem.open_input_file(info.path).read() for info in infos if info.is_file]
    return [secret for secret in secrets if any(secret in content for content in files)]


def assert_searched(store: LanceStore, numbers: list[int]) -> None:
    """Assert that approximate search finds what exact search finds, each once, and exact search what a loop finds."""
    with store.reading() as view:
        assert not view.sides["images"].in_memory and view.tables.now["lists"]
        for condition in (None, "place in Paris, Wien", "rare = true"):
            keys = None if condition is None else matching(view, "images", [parse(condition)])
            exact = view.nearest("images", QUERIES, top=10, among=keys, exact=True)
            hits = view.nearest("images", QUERIES, top=10, among=keys)
            assert [len(set(own.keys.tolist())) for own in hits] == [10] * len(QUERIES)
            same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, hits, strict=True)]
            assert sum(same) >= 36
            if condition is None:
                ids = [[item.id for item in view.items("images", own.keys)] for own in exact]
                assert ids == stored_items.plain(QUERIES, numbers, top=10)
        later = stored_items.vectors(range(numbers[-1], numbers[-1] + 1), 2)[:, :1]
        assert view.items("images", view.nearest("images", later, top=1)[0].keys)[0].id == f"p{numbers[-1]}"


def test_list_search_reads_candidate_vectors_once(tmp_path: Path) -> None:
    """In an object store each of them is a request."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=200, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.compact()
    with store.reading() as view:
        vectors, dataset = view.sides["images"], view.tables.dataset
        search = lance_lists.ListSearch(lists=4, bits=5, probes=4, candidates=1)
        nearest = {"column": "vector", "q": QUERIES[0, 0], "k": 2 * 10 + lance.MARGIN, "metric": "dot", "nprobes": 4}
        for _ in range(2):  # The second reads no lists: they are in memory.
            (hits,) = vectors.searched(QUERIES[:1], 10, search)
            own = dataset.io_stats_incremental()
            view.tables.scan(["key"], vectors.where, {"nearest": nearest, "with_row_id": True})
            least = dataset.io_stats_incremental()
        assert len(hits.keys) == 10 and 0 < own.read_bytes <= 1.25 * least.read_bytes


def test_hits_are_read_without_what_is_not_shown(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store each column of each hit may be a request."""
    plain, read = lance.LanceTables.scan, set[str]()
    monkeypatch.setattr(
        lance.LanceTables, "scan", lambda own, columns, *more: (read.update(columns), plain(own, columns, *more))[1]
    )
    with store.reading() as view:
        (item,) = view.items("images", view.keys("images")[:1])
    assert (item.id, item.path, len(item.captions), item.metadata["year"]) == ("p0", "0.png", 2, 1900)
    assert "record" in read and not read & {"content", "stamp", "digest"}


def test_items_of_hits_are_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search has found where they lie: only the texts of an image are asked for, by their links."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", words=200, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.compact()
    plain, asked = lance.LanceTables.scan, list[str]()
    monkeypatch.setattr(
        lance.LanceTables,
        "scan",
        lambda own, columns, where, *more: (asked.append(where), plain(own, columns, where, *more))[1],
    )
    with store.reading() as view:
        assert "texts" in view.tables.now["lists"]
        (hits,) = view.nearest("texts", QUERIES[:1], top=5)
        found = view.items("texts", hits.keys)
        assert not any("key IN" in own for own in asked)
        near = view.items("images", view.keys_of("images", found[0].metadata["images"]).values())
        assert not any("key IN" in own for own in asked) and found[0].captions[0] in near[0].captions
        truth = stored_items.made(tmp_path / "folder", words=200)
        with truth.reading() as other:
            (right,) = other.nearest("texts", QUERIES[:1], top=5)
            assert [replace(own, key=0) for own in other.items("texts", right.keys)] == [
                replace(own, key=0) for own in found
            ]


def test_held_out_answers_are_those_of_a_loop(tmp_path: Path) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=90, words=70, exact_up_to=60)
    with store.reading() as view:
        images, texts = view.sides["images"], view.sides["texts"]
        asked = {}
        for own in (images, texts):
            keys, rows = own.sample(6, seed=1)
            asked[str(own.side)] = keys, own.tables.vectors_at(rows, own.column)
        keys, rows = images.sample(50, seed=2)
        found, sample = images.held_out(asked, rows)
        every = {key: images.vectors_of(np.array([key]))[0] for key in view.keys("images").tolist()}
        assert all((own == every[key]).all(axis=1).any() for key, own in zip(keys.tolist(), sample, strict=True))
        assert np.array_equal(sample, images.tables.vectors_at(rows))
        for of, (own_keys, queries) in asked.items():
            for row, (key, query) in enumerate(zip(own_keys.tolist(), queries, strict=True)):
                scores = {n: float((own @ query).max()) for n, own in every.items() if (of, n) != ("images", key)}
                best = sorted(scores, key=lambda n: (-scores[n], n))
                assert found[of].keys_nearest[row].tolist() == best[:10]
                known = found[of].scores[row][: len(best)]
                np.testing.assert_allclose(known, [scores[n] for n in best][: len(known)], rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(found[of].nearest[row], [every[n] for n in best[:10]])


def test_share_that_lists_find_is_that_of_searches(tmp_path: Path) -> None:
    """It is counted without the vectors of candidates where these have all that is near."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=200, words=200, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.change_manifest(replace(writer.manifest, by_hand={"lists": 4, "bits": 5, "probes": 2}))
        writer.compact()
    with store.reading() as view:
        for side in ("images", "texts"):
            own = view.sides[side]
            keys, rows = own.sample(20, seed=1)
            queries = own.tables.vectors_at(rows, own.column)
            asked, _ = own.held_out({side: (keys, queries)}, rows)
            for probes in (1, 2, 4):
                search = lance_lists.ListSearch(lists=4, bits=5, probes=probes, candidates=1)
                shares = []
                for best, found, scores, key in zip(
                    asked[side].keys_nearest,
                    own.searched(queries[:, None], 11, search),
                    asked[side].scores,
                    keys,
                    strict=True,
                ):
                    chosen = np.flatnonzero(found.keys != key)[:10]
                    missed = scores[: len(best)][~np.isin(best, found.keys[chosen])]
                    shares.append(1 - np.count_nonzero(missed > found.scores[chosen].min()) / 10)
                assert own.found(search, asked) == {side: pytest.approx(np.mean(shares), abs=1e-4)}


def test_many_queries_with_a_filter_look_for_its_rows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", words=400, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.change_manifest(replace(writer.manifest, by_hand={"lists": 4, "bits": 5, "probes": 4}))
        writer.compact()
    plain, asked = lance.LanceTables.scan, list[list[str]]()
    monkeypatch.setattr(
        lance.LanceTables,
        "scan",
        lambda own, columns, *more: (asked.append(list(columns)), plain(own, columns, *more))[1],
    )
    with store.reading() as view:
        keys = matching(view, "texts", [parse("language = en")])
        queries = np.tile(QUERIES, (4, 1, 1))[: 2 * lance.RECENT]
        assert len(view.nearest("texts", queries, top=5, among=keys)) == 2 * lance.RECENT and len(keys) > 60
    assert ["key", "view"] not in asked


def test_damaged_record_of_a_text_deletes_no_other(store: LanceStore) -> None:
    with store.reading() as view:
        keys = view.keys_of("texts", ["t3", "t9"])
    where = "id = 't3' AND kind = 1"
    dataset = library.dataset(store.uri)
    record = json.loads(dataset.to_table(filter=where, columns=["record"])["record"][0].as_py())
    assert record[4] == keys["t3"]
    dataset.update({"record": lance.literal(json.dumps([*record[:4], keys["t9"], record[5]]))}, where=where)
    damaged = open_store(store.path)
    with damaged.writing("delete") as writer, pytest.raises(SearchIndexError, match="records of its items as Subtext"):
        writer.delete("images", ["p3"])
    with damaged.reading() as view:
        assert view.keys_of("texts", ["t3", "t9"]) == keys
    assert any("linked otherwise than its record says: 't3'" in each.what for each in damage(damaged))


@pytest.mark.parametrize("record", ["NULL", "'{}'", "'[1, null, null, 2]'", "'[\"t3\", null'"])
def test_record_that_is_none_raises_and_is_reported(store: LanceStore, record: str) -> None:
    library.dataset(store.uri).update({"record": record}, where="id = 't3'")
    damaged = open_store(store.path)
    with damaged.reading() as view, pytest.raises(SearchIndexError, match="restore a backup"):
        view.rows("texts", ids=["t3"])
    assert any("with a damaged record: 't3'" in each.what for each in damage(damaged))


def test_texts_of_one_image_and_of_several_are_found_by_each(tmp_path: Path) -> None:
    """A link by itself has a column of its own, whose index is smaller."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", exact_up_to=20)
    with store.writing("add") as writer:
        writer.put(Change("texts", links=[("p9", "t3"), ("p7", "t3")]))
        writer.compact()
    rows = {row["id"]: row for row in store.opened().to_table(["id", "link", "links"], filter="kind = 1").to_pylist()}
    assert (rows["t3"]["link"], rows["t3"]["links"]) == (None, ["p3", "p7", "p9"])
    assert (rows["t9"]["link"], rows["t9"]["links"]) == ("p9", None)
    kinds = {index.name: index.index_type for index in store.opened().describe_indices()}
    assert (kinds["link"], kinds["links"], kinds["text_0"]) == ("BTree", "LabelList", "Bitmap")
    with store.reading() as view:
        keys = view.keys_of("images", ["p7", "p9"])
        assert [sorted(item.captions) for item in view.items("images", [keys["p7"], keys["p9"]])] == [
            sorted(stored_items.text(number).text for number in own) for own in ((3, 7, 47), (3, 9, 49))
        ]
        found = matching(view, "images", [parse("text contains 'boat 3'")])
        assert {item.id for item in view.items("images", found)} == {"p3", "p7", "p9"}
    with store.writing("delete") as writer:
        writer.delete("images", ["p3", "p7"])
    row = store.opened().to_table(["link", "links"], filter="id = 't3'").to_pylist()
    assert row == [{"link": "p9", "links": None}] and damage(store) == []


@pytest.mark.parametrize("listed", [5, pytest.param(12, marks=pytest.mark.slow)])
def test_fields_without_columns_of_their_own_are_filtered_as_in_a_folder(
    listed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive may have any number of fields; texts that are too long for a column are compared by their digests."""
    monkeypatch.setattr(lance_fields, "COLUMNS", {"text": 2, "number": 1, "date": 1, "list": 1})
    monkeypatch.setattr(lance_fields, "LISTED", listed)
    monkeypatch.setattr(lance_fields, "LONG", 4)
    store = create_store(f"lance://{tmp_path / 'index'}", stored_items.manifest(exact_up_to=20))
    stored_items.assert_odd_metadata_is_filtered(store, create_store(tmp_path / "plain", stored_items.manifest()))
    assert damage(store) == []


@pytest.mark.slow
def test_filter_reads_few_bytes_of_a_large_table(tmp_path: Path) -> None:
    """Of a table with indexes only what lies near the items is read, whatever the metadata of the others is."""
    store = create_store(
        f"lance://{tmp_path / 'index'}", replace(stored_items.manifest(100), views={"images": 1, "texts": 1})
    )
    count, folder = 6_000, []
    for number in range(count):
        day = f"{1500 + number % 400}-03-05"
        own = {"box": f"Box {number % 30}", "number": number, "taken": day, "tags": [f"t{number % 30}", "all"]}
        folder.append(IndexEntry(f"p{number}", b"c", metadata={**own, "other": f"{number} " * 20}))
    vectors = np.random.default_rng(0).standard_normal((count, 1, stored_items.WIDTH)).astype(np.float32)
    with store.writing("build") as writer:
        writer.put(Change("images", folder, vectors))
        writer.compact()
    size = sum(file["size_bytes"] for file in store.files())
    for conditions, wanted in (
        (["box = BOX 7"], 200),
        (["number >= 1000", "number < 1200"], 200),
        (["taken = 1600-03-05"], 15),
        (["tags = t7"], 200),
        (["box = box 7", "place != Paris", "tags = all"], 200),
        (["box = box 7", "number > 3000", "taken < 1800-01-01", "box != box 8"], 74),
        (["box contains ox 7"], 200),
        (["tags contains t7"], 200),
    ):
        with open_store(store.path).reading() as view:
            assert isinstance(view, lance.LanceView)
            view.tables.dataset.io_stats_incremental()
            keys = matching(view, "images", [parse(own) for own in conditions], strict=False)
            taken = view.tables.dataset.io_stats_incremental()
            assert len(keys) == wanted and taken.read_bytes < size / 10 and taken.read_iops <= 40, (conditions, taken)
            view.vectors("images", keys)
            assert "rows of images" not in view.tables.cache, "the rows of what a filter gave are known"
    for call in (
        lambda view: len(view.dates("images", "taken")) == count,
        lambda view: view.values("images", "box", limit=3).common[0] == ("Box 0", 200),
        lambda view: view.values("images", "tags", limit=3).common[0] == ("all", count),
    ):
        with open_store(store.path).reading() as view:
            view.tables.dataset.io_stats_incremental()
            assert call(view)
            taken = view.tables.dataset.io_stats_incremental()
            assert taken.read_bytes < size / 10 and taken.read_iops <= 40, taken


@pytest.mark.parametrize("single", [1, 2**15])
def test_filter_reads_few_vectors_singly_and_many_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single: int
) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=200, exact_up_to=100)
    plain, rows = lance.LanceTables.vectors_at, list[int]()

    def counting(self: Any, numbers: np.ndarray, *more: str) -> np.ndarray:
        rows.append(len(numbers))
        return plain(self, numbers, *more)

    monkeypatch.setattr(lance.LanceTables, "vectors_at", counting)
    monkeypatch.setattr(lance, "SINGLE", single)
    chosen = [number for number in range(200) if number % 5 == 0]
    with store.reading() as view:
        hits = view.nearest("images", QUERIES, top=5, among=matching(view, "images", [parse("rare = true")]))
        ids = [[item.id for item in view.items("images", own.keys)] for own in hits]
    assert ids == stored_items.plain(QUERIES, chosen) and rows == (
        [len(chosen) * stored_items.VIEWS] if single == 1 else []
    )


def test_filter_reads_no_counted_metadata(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and kinds of fields are in the state: to read them from all items takes longer than the filter itself."""
    statements = list[str]()
    monkeypatch.setattr(lance.LanceTables, "query", lambda self, statement, *values: statements.append(statement))
    for condition, count in {"rare = true": 8, "taken < 2021-03-05": 8, "year >= 1930": 10, "tags = odd": 20}.items():
        with store.reading() as view:
            assert len(matching(view, "images", [parse(condition)])) == count
            assert view.fields("images") == ["place", "rare", "tags", "taken", "weight", "year"]
    assert not statements


def test_list_search_finds_items_added_later(tmp_path: Path) -> None:
    """Also after Lance's own tools have rewritten the table and its index, as any program may do."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=200, exact_up_to=60)
    with store.writing("add") as writer:
        assert "an index of the vectors was built" in writer.compact()
        assert not [line for line in writer.compact() if "built" in line], "a second one finds nothing to do"
        assert_searched(store, list(range(200)))
        writer.put(stored_items.images(range(200, 220)))
        writer.put(stored_items.images(range(3, 5)))
        writer.delete("images", ["p7", "p201"])
        remaining = sorted({*range(220)} - {7, 201})
        assert_searched(store, remaining)
        with store.reading() as view:
            assert view.stats().unindexed["images"] == 2 * (19 + 2)
        moved = Change("images", [IndexEntry("p9", b"new")], stored_items.vectors(range(2000, 2001), 2))
        writer.put(moved)
        with store.reading() as view:
            (hits,) = view.nearest("images", stored_items.vectors(range(2000, 2001), 2), top=2)
            assert view.items("images", hits.keys)[0].id == "p9" and hits.scores[0] == pytest.approx(1.0)
            former = view.nearest("images", stored_items.vectors(range(9, 10), 2), top=1)[0]
            assert former.scores[0] < 0.999, "its former vectors are found no more"
        writer.put(stored_items.images(range(9, 10)))
        dataset = library.dataset(store.uri)
        dataset.optimize.compact_files()
        dataset.optimize.optimize_indices()
        assert_searched(store, remaining)
        dataset.delete("kind = 0 AND false")
        assert "an index of the vectors was built" in "".join(writer.compact()) or damage(store) == []
        assert_searched(store, remaining)
        writer.delete("images", [f"p{number}" for number in range(20, 220)])
        assert "the index of the vectors was dropped: every vector is compared" in writer.compact()
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, [n for n in range(20) if n != 7])
    assert damage(store) == []


def test_deleted_bytes_are_gone_after_compaction(store: LanceStore) -> None:
    vectors = stored_items.vectors(range(500, 501), stored_items.VIEWS)
    secrets = [b"Quincunx of Zanzibar", b"secret.png", *(row.tobytes() for row in vectors[0])]
    with store.writing("add") as writer:
        writer.put(Change("images", [IndexEntry("secret", b"s", path="secret.png")], vectors))
        entry = IndexEntry("secret/0", b"s", text="Quincunx of Zanzibar")
        links = [("secret", "secret/0")]
        writer.put(Change("texts", [entry], stored_items.vectors(range(500, 501), 1), links=links))
        assert raw(store, secrets) == secrets, "this finds what is there"
        # What a killed writer leaves: rows that no version names.
        library.fragment.write_fragments(library.dataset(store.uri).to_table(), store.uri)
        assert writer.delete("images", ["secret"]) == {"images": 1, "texts": 1}
        assert stored_items.deleted(writer.store, "images", ["secret"]) == {"secret"}
        writer.compact()
    assert raw(store, secrets) == [] and damage(store) == []


def test_deleted_vectors_are_in_no_vector_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the index that stands, nor in one that was replaced, nor in one that was never finished."""
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    secrets = [stored_items.vectors(range(number, number + 1), 2)[0, 0].tobytes() for number in (3, 102)]
    with store.writing("compact") as writer:
        writer.compact()
        writer.put(stored_items.images(range(100, 104)))
        writer.compact()
        abandoned = tmp_path / "index" / lance.TABLE / "_indices" / "abandoned" / "part.idx"
        abandoned.parent.mkdir()
        abandoned.write_bytes(secrets[0])
        assert raw(store, secrets) == secrets
        writer.delete("images", ["p3", "p102"])
        writer.compact()
        assert abandoned.exists(), "somebody may be at it still"
        abandoned.unlink()
        assert raw(store, secrets) == []
        abandoned.write_bytes(secrets[0])
        monkeypatch.setattr(lance, "ABANDONED", lance.timedelta())
        writer.compact()
        assert raw(store, secrets) == []
    assert_searched(store, [number for number in range(104) if number not in (3, 102)])


def test_deleted_ids_are_in_no_index_where_every_vector_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_lists, "REQUEST", 2**20)  # Lists cost more than to compare all.
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.compact()
        assert "images" in store.latest().now["exact"] and raw(store, [b"p77"]) == [b"p77"]
        writer.delete("images", ["p77"], remember=False)
        writer.put(stored_items.images(range(100, 101)))  # As many as before.
        writer.compact()
    assert raw(store, [b"p77"]) == [] and damage(store) == []


def test_compaction_finishes_despite_small_changes(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the fragments that a compaction writes anew has always changed meanwhile; but what was deleted goes."""
    other, plain, times = open_store(store.path), lance.LanceWriter._rewritten, [0]

    def rewritten(self: Any, *words: Any) -> Any:
        written = plain(self, *words)
        times[0] += 1
        with other.writing("other") as writer:
            writer.put(stored_items.images(range(41, 42)))
        return written

    with store.writing("compact") as writer:
        writer.put(stored_items.images(range(40, 43)))
        writer.delete("images", ["p7", "p42"])
        with monkeypatch.context() as patch:
            patch.setattr(lance.LanceWriter, "_rewritten", rewritten)
            patch.setattr(lance, "ATTEMPTS", 5)
            writer.compact()
        assert raw(store, [stored_items.vectors(range(7, 8), 2)[0, 0].tobytes()]) == [] and times[0] > 1, (
            "it was disturbed"
        )
    assert stored_items.ids(store) == {f"p{number}" for number in range(42) if number != 7} and damage(store) == []


def test_reads_hold_one_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=200, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.change_manifest(replace(writer.manifest, by_hand={"bits": 8, "candidates": 1}))
        writer.compact()
    rows: list[int] = []
    scan, as_matrix = lance.LanceTables.scan, lance.as_matrix

    def scanned(self: Any, columns: Any, where: str, options: Any = None) -> Any:
        table = scan(self, columns, where, options)
        # Numbers of all rows may be in memory, and what an index finds is limited by itself.
        rows.extend([table.num_rows] if {"record", "words", "links"} & set(columns) else [])
        assert (options or {}).get("nearest", {"k": 0})["k"] <= 100
        return table

    def read() -> list[Any]:
        with open_store(store.path).reading() as view:
            keys, some = view.keys("images"), matching(view, "images", [parse("rare = true")])
            most = matching(view, "images", [parse("place in Paris, Wien")])
            hits = [
                view.nearest("images", QUERIES, top=5, among=among, exact=exact)
                for among, exact in ((some, True), (most, True), (most, False), (None, False))
            ]
            found = [[(own.keys.tolist(), own.scores.tolist()) for own in each] for each in hits]
            texts = view.search_text("rowing boat word7", top=9)
            items = [view.items(side, view.keys(side)) for side in ("images", "texts")]
            return [found, texts, items, view.vectors("images", keys[:50]).tolist()]

    before = read()
    monkeypatch.setattr(lance, "CHUNK", 16)
    monkeypatch.setattr(lance, "MARGIN", 6)  # With it five items of two vectors are 16 candidates of an index.
    monkeypatch.setattr(lance.LanceTables, "scan", scanned)
    monkeypatch.setattr(lance, "as_matrix", lambda column: rows.append(len(column)) or as_matrix(column))
    assert read() == before
    assert rows and max(rows) <= 16


def test_state_of_other_format_raises(store: LanceStore) -> None:
    with store.writing("add") as writer:
        writer.commit(
            lambda tables: lance.PendingCommit({**tables.now, "format": 2, "generation": 1 + tables.now["generation"]})
        )
    with pytest.raises(SearchIndexError, match=r"was made by an earlier Subtext, .* with `subtext index build`"):
        LanceStore(store.path)


def test_journal_is_not_rewritten_with_every_change(store: LanceStore) -> None:
    with store.writing("add") as writer:
        for number in range(5):
            writer.finish(writer.begin("add", source={"data": f"{number}"}, total=number))
        unfinished = writer.begin("add", source={"data": "5"})
        assert [job[0] for job in store.latest().now["jobs"]] == [unfinished] == [6]
        writer.finish(unfinished)
        assert writer.begin("add", source={"data": "5"}) == 7, "numbers go on"
    assert [(job[0], job[4] is None) for job in _jobs(store)] == [*((n, False) for n in range(1, 7)), (7, True)]
    assert len(store.latest().now["jobs"]) == 1


def _jobs(store: LanceStore) -> list[list[Any]]:
    with store.reading() as view:
        return [list(job) for job in view.records("jobs")]


def test_measured_probes_of_concurrent_compaction_are_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    other, plain = open_store(store.path), lance.LanceWriter._measured

    def measured(self: Any, *words: Any) -> Any:
        monkeypatch.setattr(lance.LanceWriter, "_measured", plain)
        with other.writing("other") as writer:
            assert "an index of the vectors was built" in writer.compact(seed=1)
        return plain(self, *words)

    monkeypatch.setattr(lance.LanceWriter, "_measured", measured)
    with store.writing("compact") as writer, pytest.raises(IndexLockedError, match="was compacted by somebody else"):
        writer.compact()
    assert_searched(store, list(range(100)))
    # Another program builds an index of its own: nothing is known of its lists.
    library.dataset(store.uri).create_index("vector", "IVF_FLAT", name="vectors", num_partitions=3, replace=True)
    assert not store.latest().lists and stored_items.nearest(store, QUERIES) == stored_items.plain(
        QUERIES, list(range(100))
    )


@pytest.mark.parametrize("kind", ["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def test_reader_renews_when_its_version_is_removed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"lance://{tmp_path}" if kind == "folder" else request.getfixturevalue("bucket")
    store = stored_items.made(f"{place}/cleaned", pictures=100, exact_up_to=60)
    other = open_store(store.path)

    def remove(name: str) -> None:
        with other.writing("other") as writer:
            writer.delete("images", [name])
            writer.put(stored_items.images(range(int(name[1:]) + 100, int(name[1:]) + 101)))
            writer.compact()

    with store.reading() as view:
        keys = view.keys_of("images", ["p1", "p2"])
        remove("p1")
        numbers = [number for number in range(102) if number not in (1, 100)]
        for exact in (True, False):
            hits = view.nearest("images", QUERIES, top=5, exact=exact)
        assert [[item.id for item in view.items("images", own.keys)] for own in hits] == stored_items.plain(
            QUERIES, numbers
        )
        assert view.renewed and view.counts["images"] == 100 and view.revision == other.manifest.revision
        with pytest.raises(IndexMovedError, match="was changed while it was read for long; do it again"):
            view.items("images", [keys["p1"]])
    check, times = lance.LanceView.damage, [0]

    def checked(*words: Any) -> Any:
        times[0] += 1
        remove(f"p{times[0] + 1}") if times[0] < 3 else None
        return check(*words)

    monkeypatch.setattr(lance.LanceView, "damage", checked)
    assert damage(open_store(store.path)) == [] and times[0] > 3, "seen at one moment, in the end"


def test_images_are_read_to_the_end_when_their_version_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored_items.made(f"lance://{tmp_path}/known", pictures=20)
    other, plain = open_store(store.path), lance.LanceTables.batches
    with store.reading() as view:
        before = {image.id: image for image in view.known_images()}
        by_key = {image.id: image for image in view._known_by_key(view.keys("images"))}
    assert len(before) == 20 and before == by_key and any(image.texts for image in before.values())
    monkeypatch.setattr(lance, "CHUNK", 4)

    def cut_off(tables: lance.LanceTables, columns: list[str], where: str) -> Iterator[Any]:
        batches = plain(tables, columns, where)
        yield next(batches)
        if "record" in columns:
            with other.writing("other") as writer:
                writer.delete("images", ["p19"])
                writer.compact()
            raise SearchIndexError("its files are gone")
        yield from batches

    monkeypatch.setattr(lance.LanceTables, "batches", cut_off)
    with store.reading() as view:
        found = [image.id for image in view.known_images()]
        assert view.renewed and len(found) == len(set(found)) == 19 and set(found) == before.keys() - {"p19"}
    monkeypatch.setattr(lance.LanceView, "renew", lambda view: False)
    with store.reading() as view, pytest.raises(SearchIndexError, match="its files are gone"):
        list(view.known_images())


def test_commit_with_lost_answer_is_applied_once(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calls = library.LanceDataset.commit, [0]

    def lost(*words: Any, **more: Any) -> Any:
        calls[0] += 1
        made = plain(*words, **more) if calls[0] in (1, 3) else None
        if calls[0] != 3:
            raise OSError("the connection was closed")
        return made

    monkeypatch.setattr(library.LanceDataset, "commit", staticmethod(lost))
    with store.writing("add") as writer:
        writer.put(stored_items.images(range(40, 50)))
        assert calls == [1] and store.counts["images"] == 50, "it was committed, and is seen to be"
        writer.put(stored_items.images(range(50, 60)))
        assert calls == [3], "it was not, and is made again"
        calls[0] = -10
        with pytest.raises(
            IndexMovedError, match=r"cannot be reached, .*the connection was closed; no change is half made"
        ):
            writer.put(stored_items.images(range(60, 70)))
    assert store.counts["images"] == 60 and damage(store) == []


def test_change_on_removed_version_is_retried(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    other, plain = open_store(store.path), lance.LanceWriter._write

    def write(self: Any, *words: Any) -> None:
        monkeypatch.setattr(lance.LanceWriter, "_write", plain)
        with other.writing("other") as writer:
            writer.delete("images", ["p1"])
            writer.compact()
        with pytest.raises(SearchIndexError):
            plain(self, *words)
        plain(self, *words)

    monkeypatch.setattr(lance.LanceWriter, "_write", write)
    with store.writing("add") as writer:
        writer.put(stored_items.images(range(40, 44)))
    assert store.counts["images"] == 43 and damage(store) == []


def test_permanently_conflicting_writer_raises(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def conflict(*words: Any, **more: Any) -> None:
        raise library.commit.CommitConflictError("overtaken")

    monkeypatch.setattr(lance, "ATTEMPTS", 3)
    with store.writing("add") as writer, monkeypatch.context() as patch:
        patch.setattr(library.LanceDataset, "commit", staticmethod(conflict))
        with pytest.raises(IndexLockedError, match="changed by others all the time: 3 attempts failed"):
            writer.put(stored_items.images(range(40, 50)))
    assert store.counts["images"] == 40


def test_compaction_tolerates_changes_but_not_another_compaction(
    store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Additions do not disturb it; it begins again where its rows were deleted; of two, one is told."""
    other = open_store(f"{store.path}")
    plain = lance.LanceWriter._compacting

    def meanwhile(step: Callable[[Any], object]) -> None:
        steps = [step]

        def compacting(self: Any, start: Any) -> Any:
            plan = plain(self, start)

            def disturbed(tables: Any) -> Any:
                draft = plan(tables)
                if steps:
                    step = steps.pop()
                    with other.writing("other") as writer:
                        step(writer)
                return draft

            return disturbed

        monkeypatch.setattr(lance.LanceWriter, "_compacting", compacting)

    with store.writing("compact") as writer:
        for number, step in enumerate(
            (
                lambda it: it.put(stored_items.images(range(40, 50))),
                lambda it: it.delete("images", ["p1", "p45"]),
                lambda it: it.put(stored_items.images(range(50, 60))),
            )
        ):
            meanwhile(step)
            writer.compact()
            assert damage(store) == [] and len(stored_items.ids(store)) == (50, 48, 58)[number]
        meanwhile(lambda it: it.compact())
        with pytest.raises(IndexLockedError, match="was compacted by somebody else"):
            writer.compact()
    assert damage(store) == [] and len(stored_items.ids(store)) == 58


def test_changes_during_index_build_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    other, plain = open_store(store.path), lance.ann.train

    def train(*words: Any, **more: Any) -> Any:
        with other.writing("other") as writer:
            writer.put(stored_items.images(range(100, 110)))
        return plain(*words, **more)

    monkeypatch.setattr(lance.ann, "train", train)
    with store.writing("compact") as writer:
        assert "an index of the vectors was built" in writer.compact()
        writer.put(stored_items.images(range(110, 112)))
    for each in (store, open_store(store.path)):
        with each.reading() as view:
            keys = view.select("images")
            assert len(set(keys.tolist())) == len(keys) == view.counts["images"] == 112
        assert stored_items.ids(each) == {f"p{number}" for number in range(112)} and damage(each) == []
    assert_searched(store, list(range(112)))


def test_killed_index_build_leaves_exact_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)

    def killed(*words: Any) -> None:
        raise KeyboardInterrupt

    with store.writing("compact") as writer:
        writer.compact()
        writer.put(stored_items.images(range(100, 140)))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(lance.LanceWriter, "_measured", killed)
            writer.compact()
        assert open_store(store.path).latest().lists == {}
        assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, list(range(140)))
        assert "an index of the vectors was built" in writer.compact()
    assert_searched(store, list(range(140)))


def test_concurrent_external_changes_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)

    def failing(name: str, problem: Exception) -> None:
        def fail(*words: Any, **more: Any) -> None:
            raise problem

        patch.setattr(library.LanceDataset, name, fail)

    with store.writing("compact") as writer:
        with (
            monkeypatch.context() as patch,
            pytest.raises(IndexLockedError, match="was changed by others while its index"),
        ):
            patch.setattr(lance_lists, "coding_error", lambda *words: 0.01)
            failing("create_index", library.commit.CommitConflictError("overtaken"))
            writer.compact()
        writer.compact()
        writer.delete("images", [f"p{number}" for number in range(20, 100)])
        with (
            monkeypatch.context() as patch,
            pytest.raises(IndexMovedError, match=r"cannot be reached.*the line is cut"),
        ):
            failing("drop_index", OSError("the line is cut"))
            writer.compact()
        assert "the index of the vectors was dropped: every vector is compared" in writer.compact()
        writer.delete("images", ["p1"])
        monkeypatch.setattr(lance, "ATTEMPTS", 3)
        with monkeypatch.context() as patch, pytest.raises(IndexLockedError, match="3 attempts failed"):
            failing("commit", library.commit.CommitConflictError("overtaken"))
            writer.compact()
    assert damage(store) == []


def test_damage_is_reported(store: LanceStore) -> None:
    dataset = library.dataset(store.uri)
    dataset.update({"record": '\'["t3",null,"other","{}"]\''}, where="id = 't3'")
    dataset.update({"digest": "digest"}, where="id = 't3'")
    dataset.delete("id = 't9'")
    dataset.delete(f"key = 6 AND kind = {lance.FURTHER}")
    dataset.update({"vector": f"{[0.5] * stored_items.WIDTH}"}, where=f"key = 4 AND kind = {lance.FURTHER}")
    year = store.latest().fields.known[0, "number", "year"].column
    dataset.update({f"number_{year}": "1"}, where="id = 'p7'")
    place = store.latest().fields.known[0, "text", "place"].column
    dataset.update({f"text_{place}": "'elsewhere'"}, where="id = 'p8'")
    told = "\n".join(f"{each.where}: {each.what}" for each in damage(store))
    for what in (
        "items: 1 item changed or damaged: texts/'t3'",
        "items: has 59 of 60 texts",
        "1 item of images with changed or damaged vectors: 'p3'",
        "1 item of images without 2 vectors, or twice there: 'p5'",
        "2 items of images filtered by other values than the metadata: 'p7', 'p8'",
        "1 item of texts whose words differ from the text: 't3'",
        "links changed or damaged",
    ):
        assert what in told, told
    dataset.delete(f"kind = {lance.STATE}")
    with pytest.raises(SearchIndexError, match="needs one row of its state, and has 0; restore a backup"):
        open_store(store.path)


def test_unavailable_or_unusable_index_raises(
    store: LanceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in (f"lance://{tmp_path / 'nothing'}", f"lance://{tmp_path}"):
        with pytest.raises(
            SearchIndexError, match="needs to be an index that `subtext index build` made; there is none"
        ):
            open_store(address)
        assert not LanceStore.exists(address)
    with pytest.raises(SearchIndexError, match="is an index already; name another"):
        LanceStore.create(store.path, stored_items.manifest())
    with pytest.raises(SearchIndexError, match="needs an address such as lance://FOLDER"):
        LanceStore("lance://")
    for address in ("s3://KEY:SECRET@archive/library", "s3://KEY:SE/CRET@archive/x", "gs://archive/x?key=SECRET"):
        for use in (open_store, LanceStore.exists, lambda own: LanceStore.create(own, stored_items.manifest())):
            with pytest.raises(
                SearchIndexError, match=r"without keys or parameters; .* AWS_SECRET_ACCESS_KEY"
            ) as refused:
                use(address)
            assert not any(part in str(refused.value) for part in ("SECRET@", "CRET@", "=SECRET", "KEY:"))
    (tmp_path / "file").write_text("")
    with pytest.raises((OutputError, IndexMovedError, SearchIndexError), match="file"):
        LanceStore.create(f"lance://{tmp_path / 'file'}", stored_items.manifest())
    with pytest.raises(RequirementError, match="no store opens addresses of az://"):
        open_store("az://archive/library")
    import importlib.util

    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "lance" else plain(name))
    with pytest.raises(RequirementError, match=r"at s3:// needs lance; .* pip install '\.\[lance\]'"):
        open_store("s3://archive/library")


def test_numbers_beyond_float64_are_compared_exactly(store: LanceStore) -> None:
    numbers = [2**60, 2**60 + 1, 2**62 + 3, -(2**60) - 1]
    entries = [IndexEntry(f"n{own}", b"x", metadata={"number": own}) for own in numbers]
    with store.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(60, 64), 2)))
    for condition, keep in {
        f"number = {2**60 + 1}": [2**60 + 1],
        f"number > {2**60}": [2**60 + 1, 2**62 + 3],
        f"number <= {2**60}": [2**60, -(2**60) - 1],
        f"number < {10**400}": numbers,
        f"number != {2**60}": [own for own in numbers if own != 2**60],
    }.items():
        with store.reading() as view:
            items = view.items("images", matching(view, "images", [parse(condition), parse("id contains N")]))
        assert [item.id for item in items] == [f"n{own}" for own in keep], condition


def tables(store: LanceStore) -> set[str]:
    return {path.name for path in Path(store.path.removeprefix("lance://")).iterdir()}


@pytest.mark.parametrize("after", [False, True])
def test_move_interrupted_at_any_commit_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """Before the last commit the index has the old vectors, from then on the new ones, and never others."""
    plain, index = library.LanceDataset.commit, f"lance://{tmp_path / 'index'}"
    store = stored_items.made(index, pictures=3, words=0)
    with store.writing("delete") as writer:
        writer.delete("images", ["p1"])
    for last in range(1, 20):
        calls = [0]

        def cut(*words: Any, calls: list[int] = calls, last: int = last, **more: Any) -> Any:
            calls[0] += 1
            result = plain(*words, **more) if after or calls[0] != last else None
            if calls[0] == last:
                raise KeyboardInterrupt
            return result

        width = (4, 3)[last % 2]  # Each takes the place of the one before it that never ended.
        before = open_store(index).manifest.width
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(library.LanceDataset, "commit", staticmethod(cut))
            killed_lance.moved(index, width, range(3))
        now = open_store(index)
        assert isinstance(now, LanceStore) and now.manifest.width in (before, width)
        assert stored_items.ids(now) == {"p0", "p2"} and damage(now) == []
        assert len(tables(now) - {*now.earlier, now.table}) <= 1, "of moves that never ended one is left"
        if calls[0] < last:
            break
        if now.manifest.width == before:
            done = now.pending_move()
            already = 0 if done is None else len(stored_items.ids(done))
            begun = 0 if done is None else done.latest().dataset.version
            now = killed_lance.moved(index, width, range(3))
            versions = now.latest().dataset.version - begun
            assert versions == (2 - already) + 1 + (done is None), "what was done is not done again"
        assert now.manifest.width == width and now.pending_move() is None
        with now.writing("test") as writer:
            assert stored_items.deleted(writer.store, "images", ["p1"]) == {"p1"}
    assert last > 4 and calls[0] < last


def test_deletions_reach_table_of_unfinished_move(store: LanceStore) -> None:
    vectors = stored_items.vectors(range(500, 501), stored_items.VIEWS)
    secret = Change("images", [IndexEntry("secret", b"s", path="secret.png")], vectors)
    caption = Change("texts", [IndexEntry("c", b"s", text="Quincunx")], vectors[:, :1], links=[("secret", "c")])
    since = store.view(store.latest()).revision
    new = store.create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    place = Path(store.path.removeprefix("lance://"))
    for each in (store, new):
        with each.writing("add") as writer:
            writer.put(secret)
            writer.put(caption)

    def left() -> bool:
        content = b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
        return any(own in content for own in (b"secret.png", b"Quincunx", vectors[0, 0].tobytes()))

    assert left()
    with store.writing("delete") as writer:
        assert writer.delete("images", ["secret"]) == {"images": 1, "texts": 1}
        assert new.counts == {"images": 0, "texts": 0}
        writer.compact()
    assert not left(), "also of the table that nobody uses yet"
    with pytest.raises(SearchIndexError, match="was changed while its items were embedded; run the command again"):
        store.replace_with(new, since=since)
    now = store.replace_with(new, since=store.view(store.latest()).revision)
    assert now.manifest.fingerprint == "e" * 32 and store.was_replaced
    with pytest.raises(SearchIndexError, match="was moved to another model meanwhile"), store.writing("add"):
        pass
    former = stored_items.vectors(range(7, 8), stored_items.VIEWS)[0, 0].tobytes()
    assert any(former in file.read_bytes() for file in place.rglob("*.lance") if file.is_file())
    with now.writing("compact") as writer:
        assert "the vectors of an earlier model were removed" in writer.compact()
    assert not any(former in file.read_bytes() for file in place.rglob("*.lance") if file.is_file())
    now.remove()
    assert tables(now) == set()


def test_replaced_move_cannot_finish(store: LanceStore) -> None:
    since = store.view(store.latest()).revision
    first = store.create_replacement(replace(stored_items.manifest(), fingerprint="d" * 32))
    second = LanceStore(store.path).create_replacement(replace(stored_items.manifest(), fingerprint="e" * 32))
    assert tables(store) == {lance.TABLE, second.table}, "the first one is removed"
    with pytest.raises(SearchIndexError):
        store.replace_with(first, since=since)
    assert LanceStore(store.path).replace_with(second, since=since).manifest.fingerprint == "e" * 32


@pytest.mark.parametrize("table", ["../../victim/items.lance", "/victim/items.lance", "items.lance", 7])
@pytest.mark.parametrize("entry", ["moved", "moving"])
def test_table_outside_index_is_neither_read_nor_removed(
    store: LanceStore, tmp_path: Path, entry: str, table: object
) -> None:
    victim = stored_items.made(f"lance://{tmp_path / 'victim'}")
    with store.writing("move") as writer:
        writer.commit(lambda now: lance.PendingCommit({**now.now, entry: table}))
    with pytest.raises(SearchIndexError, match="needs tables of its own"):
        LanceStore(store.path).remove()
    assert len(stored_items.ids(LanceStore(victim.path))) == 40 and tables(store) == {lance.TABLE}


def _of_a_stranger(**changes: object) -> str:
    """A manifest with other values, and with its checksum."""
    content = {**json.loads(stored_items.manifest().to_json()), **changes}
    content.pop("checksum")
    return json.dumps({**content, "checksum": checksum(content)})


JOB = [1, "add", None, "2026", None, 0, 0]
LISTED = {"lists": 4, "probes": 1, "bits": 4, "candidates": 26, "bytes": 9, "recall": {}}
INDEXED = {"name": "", "vectors": {"vector": 9}, "files": {}, "wanted": {}}


@pytest.mark.parametrize(
    "entry, value",
    [
        ("generation", "7"), ("key", None), ("images", -1), ("images", 10**15), ("texts", 2**70), ("worded", 1e400),
        ("words", True), ("job", {}), ("changes", 5), ("changes", None), ("lists", [1]), ("lists", {"images": 3}),
        ("lists", {"audio": LISTED}), ("lists", {"images": {"lists": 0, "probes": 0}}),
        ("lists", {"images": {**LISTED, "probes": 2**40}}), ("index", "x"), ("index", {"name": 1, "vectors": 2}),
        ("lists", {"images": {**LISTED, "bits": 0}}), ("lists", {"images": {**LISTED, "recall": 1}}), ("exact", []),
        ("exact", {"images": 3}), ("exact", {"audio": "x"}), ("index", {**INDEXED, "vectors": {"vector": -1}}),
        ("index", {**INDEXED, "wanted": None}), ("manifest", _of_a_stranger(recall="all")),
        ("manifest", _of_a_stranger(numbers="float16")), ("manifest", _of_a_stranger(cache=-1)),
        ("jobs", {}), ("jobs", ["x"]), ("jobs", [JOB[:6]]), ("jobs", [[*JOB[:2], 5, *JOB[3:]]]),
        ("jobs", [[*JOB[:2], "{", *JOB[3:]]]), ("jobs", [[*JOB[:2], "[" * 10**5, *JOB[3:]]]),
        ("manifest", 7), ("manifest", "{}"), ("manifest", "[" * 10**5), ("manifest", _of_a_stranger(width=2**40)),
        ("manifest", _of_a_stranger(width=0)), ("manifest", _of_a_stranger(views={"images": -1, "texts": 1})),
        ("manifest", _of_a_stranger(exact_up_to=-1)), ("fields", {}), ("fields", [[0, "text", "x"]]), ("unlisted", [1]),
        ("fields", [[2, "text", "x", 0, -2, 1, 0, 0, 0]]), ("fields", [[0, "text", "x", 99, -2, 1, 0, 0, 0]]),
        ("fields", [[0, "date", "x", 0, -2, 1, 0, 2**70, 0]]), ("unlisted", [-1, 0]),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_invalid_state_entry_raises(store: LanceStore, entry: str, value: object) -> None:
    rewrite(store, json.dumps({**store.latest().now, entry: value}))
    with pytest.raises(
        SearchIndexError, match=f"{entry}|images and texts|JSON|width|views|exact_up_to|vectors of|'recall'|'cache'"
    ):
        open_store(store.path)
    assert verify(store.path)


@pytest.mark.parametrize("text", ["7", "null", "{", "[" * 10**5, '{"images": ' + "9" * 5000 + "}", None, "long"])
def test_state_that_is_no_object_raises(store: LanceStore, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(store, json.dumps(store.latest().now) if text == "long" else text)
    monkeypatch.setattr(index_files, "LONGEST", 300 if text == "long" else index_files.LONGEST)
    with pytest.raises(SearchIndexError, match="needs a state with JSON of at most"):
        open_store(store.path)


def test_understated_counts_raise_without_large_allocation(store: LanceStore) -> None:
    good = store.latest().now
    rewrite(store, json.dumps({**good, "images": 1, "worded": 1}))
    with open_store(store.path).reading() as view:
        with pytest.raises(SearchIndexError, match="needs 2 vectors of 1 images; it has 80; "):
            view.nearest("images", QUERIES, top=3)
        with pytest.raises(SearchIndexError, match="it counts 1, and more have words"):
            view.search_text("boat", top=3)
    for kind, column, problem in ((lance.JOB, "record", "jobs as Subtext"), (lance.DELETED, "content", "an empty row")):
        row = {"kind": kind, "key": 1, **({"record": "[1, 2]"} if column == "record" else {})}
        with store.writing("add") as writer:
            draft = lance.PendingCommit(good, rows=[row])
            writer.commit(lambda now, draft=draft: draft)
        with open_store(store.path).reading() as view, pytest.raises(SearchIndexError, match=problem):
            view.records("jobs" if kind == lance.JOB else "deleted")


def rewrite(store: LanceStore, text: str | None) -> None:
    """Write the state as anybody can."""
    dataset = library.dataset(store.uri)
    dataset.update({"record": "NULL" if text is None else lance.literal(text)}, where=f"kind = {lance.STATE}")


def test_circular_tables_raise(store: LanceStore) -> None:
    new = killed_lance.moved(store.path, 8)
    with new.writing("move") as writer:
        writer.commit(lambda now: lance.PendingCommit({**now.now, "moved": new.table}))
    with pytest.raises(SearchIndexError, match="its tables lead to one another"):
        LanceStore(store.path)


@pytest.mark.parametrize("name", ["", "data", "_versions"])
@pytest.mark.parametrize("moved", [False, True])
def test_symlinked_table_raises(store: LanceStore, tmp_path: Path, name: str, moved: bool) -> None:
    place = Path(store.path.removeprefix("lance://"))
    own = place / (killed_lance.moved(store.path, 8).table if moved else lance.TABLE) / name
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    before = {file: file.read_bytes() for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()}
    with pytest.raises(SearchIndexError, match="leads elsewhere"):
        LanceStore(store.path).remove()
    assert {file: file.read_bytes() for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()} == before


@pytest.fixture(scope="module")
def changer() -> Iterator[subprocess.Popen[str]]:
    """A process that makes changes in children; see `killed_lance`."""
    words = [sys.executable, "-W", "ignore", killed_lance.__file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate()


@pytest.mark.parametrize(("call", "seed"), KILLS)
def test_killed_writer_to_an_object_store_loses_no_acknowledged_change(
    call: str, seed: int, bucket: str, changer: subprocess.Popen[str]
) -> None:
    """It is killed before or after one of its writes, or within 40 ms after one of its changes was acknowledged."""
    store = stored_items.made(f"{bucket}/kill{call}{seed}")
    draws = random.Random(seed)
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    assert changer.stdin is not None and changer.stdout is not None
    # Each change and each compaction commits, and writes fragments, at least once; two compactions remove versions.
    number = 1 + seed if call == "cleanup_old_versions" else draws.randint(1, int(3.5 * killed_lance.PIECES))
    asked = ["change", store.path, environment, call, number, seed % 2 == 1]
    print(json.dumps(asked), file=changer.stdin, flush=True)
    child, acknowledged = int(changer.stdout.readline()), set[str]()
    if not call:
        count = draws.randrange(int(3.5 * killed_lance.PIECES))
        acknowledged = {changer.stdout.readline().strip() for _ in range(count)}
        time.sleep(draws.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
    while (line := changer.stdout.readline().strip()) != "killed":
        assert line, "the process that forks has ended"
        acknowledged.add(line)
    assert len(acknowledged) < 3.5 * killed_lance.PIECES or not call, "it was killed at its work"
    images, texts = stored_items.ids(store), stored_items.ids(store, "texts")
    assert damage(store) == []
    for piece in range(killed_lance.PIECES):
        new = range(100 + piece * killed_lance.STEP, 100 + (piece + 1) * killed_lance.STEP)
        old = range(piece * killed_lance.STEP, (piece + 1) * killed_lance.STEP)
        for what, count in (
            (f"images {piece}", len(images & {f"p{number}" for number in new})),
            (f"texts {piece}", len(texts & {f"t{number}" for number in new})),
            (f"deleted {piece}", 4 - len(images & {f"p{number}" for number in old})),
        ):
            assert count in ((4,) if what in acknowledged else (0, 4)), "a change is there, or it is not"
    numbers = [int(name[1:]) for name in images]
    with store.reading() as view:
        (hits,) = view.nearest("images", QUERIES[:1], top=200)
        assert len(hits.keys) == len(numbers) == view.counts["images"], "nothing is there twice"
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, numbers)
    # Vectors of items that it had deleted, and those of unfinished changes.
    with store.writing("delete") as writer:
        writer.delete("images", [f"p{number}" for number in range(100, 116)])
        writer.compact()
    gone = [
        row.tobytes() for number in range(100, 116) for row in stored_items.vectors(range(number, number + 1), 2)[0]
    ]
    assert raw(store, gone) == [] and damage(store) == []
    store.remove()


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n in (4, 8) else pytest.mark.slow) for n in range(1, 9)]
)
def test_killed_move_in_an_object_store_resumes(number: int, bucket: str, changer: subprocess.Popen[str]) -> None:
    """It is killed before or after one of its commits: the index has the old vectors or the new ones."""
    index = f"{bucket}/moved{number}"
    before = stored_items.made(index, pictures=5, words=0)
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    assert changer.stdin is not None and changer.stdout is not None
    asked = ["move", index, environment, "commit", number, number % 2 == 0]
    print(json.dumps(asked), file=changer.stdin, flush=True)
    said = [line.strip() for line in iter(changer.stdout.readline, "killed\n")][1:]
    now = open_store(index)
    # One commit names the new table, five fill it, one takes over what was deleted, and the last puts it in use.
    assert said == [] and now.manifest.width == (killed_lance.WIDTH if number == 8 else before.manifest.width)
    assert stored_items.ids(now) == {f"p{n}" for n in range(5)} and damage(now) == []
    now = now if number == 8 else killed_lance.moved(index, killed_lance.WIDTH, range(5))
    assert isinstance(now, LanceStore) and now.manifest.width == killed_lance.WIDTH and now.pending_move() is None
    assert stored_items.ids(now) == {f"p{n}" for n in range(5)} and damage(now) == []
    now.remove()


def test_object_store_answers_as_folder(bucket: str, tmp_path: Path) -> None:
    store, folder = stored_items.made(f"{bucket}/library"), stored_items.made(tmp_path / "index")
    reader = open_store(f"{bucket}/library")
    for each in (store, folder):
        with each.writing("add") as writer:
            writer.put(stored_items.images(range(40, 60)))
            writer.delete("images", ["p3", "p50"])
            writer.compact()
    with reader.reading() as mine, folder.reading() as theirs:
        stored_items.assert_same_items(mine, theirs)
        assert mine.search_text("boat word7", top=3)[0][0] == theirs.search_text("boat word7", top=3)[0][0]
    assert stored_items.answers(reader, QUERIES) == stored_items.answers(folder, QUERIES)
    for condition, fulfils in stored_items.CASES[::4]:
        if condition != "id contains P1":
            numbers = [n for n in range(60) if n not in (3, 50) and fulfils(n)]
            where = [parse(condition) if isinstance(condition, str) else condition]
            with reader.reading() as view:
                items = view.items("images", matching(view, "images", where))
            assert {item.id for item in items} == {f"p{number}" for number in numbers}, condition
    assert damage(store) == [] and store.bytes > 0
    with pytest.raises(
        MissingBucketError, match="s3://nowhere/library needs a bucket that exists; its storage has none"
    ):
        open_store("s3://nowhere/library")


def test_refusals_of_a_bucket_say_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that is gone is no storage that comes back, and a reader needs no right to write."""
    with s3_server.served() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        stored_items.made("s3://archive/library")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
        with pytest.raises(SearchIndexError, match=r"needs a credential that may read it, .*InvalidAccessKeyId"):
            open_store("s3://archive/library")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        reader = open_store("s3://archive/library")
        with (
            pytest.raises(
                SearchIndexError, match=r"needs a credential that may write it, and its storage refuses this one"
            ),
            reader.writing("add") as writer,
        ):
            writer.put(stored_items.images(range(40, 41)))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        with pytest.raises(MissingBucketError, match="or create the bucket"):
            LanceStore.exists("s3://nowhere/library")
        s3_server.Bucket(environment["AWS_ENDPOINT_URL"]).post("gone")
        with pytest.raises(MissingBucketError, match="s3://archive/library needs a bucket that exists"):
            open_store("s3://archive/library")
        with pytest.raises(MissingBucketError):
            reader.latest()


def test_rows_are_counted_without_gil(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # It held the lock while it waited for threads of the library that waited for the lock: the process stood still.
    monkeypatch.setattr(library.LanceFragment, "count_rows", lambda *_: pytest.fail("this keeps the lock"))
    with store.writing("compact") as writer:
        writer.compact()
        writer.put(stored_items.images(range(200, 202)))
    with store.reading() as view:
        assert view.sides["images"].unindexed == 42 * stored_items.VIEWS


@pytest.mark.parametrize("duration", [2.0, pytest.param(120.0, marks=pytest.mark.slow)])
def test_concurrent_readers_and_writers(bucket: str, duration: float) -> None:
    address = f"{bucket}/busy{duration:.0f}"
    stored_items.made(address)
    problems: list[BaseException] = []
    until = time.monotonic() + duration
    live: dict[int, set[int]] = {200: set(), 5000: set()}
    reads: list[float] = []

    def watched(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as problem:  # Told by the test.
                problems.append(problem)
                raise

        return run

    def write(first: int) -> None:
        number = first
        with open_store(address).writing("add") as writer:
            while time.monotonic() < until:
                writer.put(stored_items.images(range(number, number + 2)))
                live[first] |= {number, number + 1}
                if number % 3 == 0:
                    writer.delete("images", [f"p{number}"])
                    live[first] -= {number}
                if number % 40 == 0:
                    # Of two compactions at once, one is told that the other was first.
                    with contextlib.suppress(IndexLockedError):
                        writer.compact()
                number += 2

    def read() -> None:
        store = open_store(address)
        while time.monotonic() < until:
            started = time.monotonic()
            with store.reading() as view:
                (hits,) = view.nearest("images", QUERIES[:1], top=10_000)
                assert len(hits.keys) == view.counts["images"] == len(set(hits.keys.tolist()))
                assert len(view.items("images", hits.keys[:10])) == 10
            reads.append(time.monotonic() - started)

    patch = pytest.MonkeyPatch()
    patch.setattr(lance, "GRACE", 3.0)
    work = [*(lambda first=first: write(first) for first in live), *[read] * 4]
    threads = [threading.Thread(target=watched(each)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    patch.undo()
    store = open_store(address)
    assert not problems, problems
    assert stored_items.ids(store) == {f"p{number}" for number in {*range(40), *live[200], *live[5000]}}
    assert damage(store) == []
    print(f"{store.manifest.generation} changes; {len(reads)} reads, median {sorted(reads)[len(reads) // 2]:.2f} s")


@pytest.mark.slow
def test_busy_object_store_is_retried() -> None:
    with s3_server.served(fail=50) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        store = stored_items.made("s3://archive/failing")
        with store.writing("add") as writer:
            for number in range(40, 60, 2):
                writer.put(stored_items.images(range(number, number + 2)))
            writer.delete("images", ["p1", "p41"])
            writer.compact()
        remaining = [number for number in range(60) if number not in (1, 41)]
        assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, remaining) and damage(store) == []


def test_vectors_are_read_once(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_items.nearest(store, QUERIES)
    rows: list[int] = []
    plain = lance.LanceTables.vectors_at

    def counting(self: Any, *words: Any) -> np.ndarray:
        rows.append(len(words[0]))
        return plain(self, *words)

    monkeypatch.setattr(lance.LanceTables, "vectors_at", counting)
    with open_store(store.path).writing("add") as writer:
        writer.put(stored_items.images(range(40, 45)))
        writer.delete("images", ["p2"])
    remaining = [number for number in range(45) if number != 2]
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, remaining)
    assert sum(rows) == 10, "only those of new items"


def test_process_may_fork_after_opening(store: LanceStore) -> None:
    """Lance warns of every fork; tests of other stores fork in the process that has run these."""
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and store.counts["images"] == 40


def test_move_killed_before_its_first_commit_is_no_obstacle(store: LanceStore) -> None:
    begun = store.create_replacement(replace(stored_items.manifest(), fingerprint="3" * 32, width=3))
    shutil.rmtree(Path(begun.uri) / "_versions")
    assert store.pending_move() is None
    with store.writing("delete") as writer:
        writer.delete("images", ["p0"])
        writer.compact()
    assert damage(store) == [] and "p0" not in stored_items.ids(store)
    now = killed_lance.moved(store.path, 3, range(1, 5))
    assert now.manifest.width == 3 and not Path(begun.uri).exists() and damage(now) == []


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_attack_of_cut_off_and_missing_files(tmp_path: Path, large: bool) -> None:
    """Each file of an index cut off, emptied or removed: `verify` finds it, or nothing needs it; no traceback."""
    pictures, exact_up_to = (100, 60) if large else (5, 200_000)
    address = f"lance://{tmp_path / 'index'}"
    store = stored_items.made(address, pictures=pictures, words=3, exact_up_to=exact_up_to)
    with store.writing("add") as writer:
        writer.finish(writer.begin("add", source={"data": "a"}, total=1))
        if large:
            writer.compact()
        writer.delete("images", ["p3"])
    wanted, missed = stored_items.answers(store, QUERIES), list[tuple[str, int]]()
    for number, file in enumerate(sorted(own for own in (tmp_path / "index").rglob("*") if own.is_file())):
        content = file.read_bytes()
        sizes = -1, 0, len(content) // 2, len(content) - 1
        for size in sizes if large else sizes[number % 3 :][:1]:  # One after the other; all of them take long.
            file.unlink() if size < 0 else file.write_bytes(content[:size])
            try:
                found = [each.what for each in verify(address)]
            except SubtextError as problem:
                found = [str(problem)]
            assert not any("\n" in line or "Traceback" in line for line in found)
            try:
                same = stored_items.answers(open_store(address), QUERIES) == wanted
            except SubtextError:
                same = False
            missed += [] if found or same else [(file.name, size)]
        file.write_bytes(content)
    assert not missed and damage(store) == []


def test_changed_byte_of_a_vector_index_is_found(tmp_path: Path) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    with store.writing("compact") as writer:
        writer.compact()
    folder = tmp_path / "index" / lance.TABLE / "_indices"
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    assert len(files) >= 4 and damage(store) == []
    for chosen in (files[:1], files[1:]):
        contents = [file.read_bytes() for file in chosen]
        for file, content in zip(chosen, contents, strict=True):
            middle = len(content) // 2
            file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        named = sorted(each.where for each in damage(store))
        assert named == [f"items.lance/_indices/{file.relative_to(folder)}" for file in chosen]
        for file, content in zip(chosen, contents, strict=True):
            file.write_bytes(content)
    assert damage(store) == []


def test_lost_last_version_raises(store: LanceStore, tmp_path: Path) -> None:
    """As in a copy that leaves the newest file behind: what was deleted last would be there again."""
    with store.writing("delete") as writer:
        writer.delete("images", ["p1"])
    max_version = min((tmp_path / "index" / lance.TABLE / "_versions").glob("*.manifest"))
    max_version.rename(tmp_path / "lost")
    told = "acknowledged: the last ones were lost, and deleted items may be back; restore a backup"
    for use in (open_store, lambda path: store.counts):
        with pytest.raises(SearchIndexError, match=told):
            use(store.path)
    assert [told.partition(";")[0] in each.what for each in verify(store.path)] == [True]
    with pytest.raises(SearchIndexError, match=told), store.writing("add"):
        pass
    (tmp_path / "lost").rename(max_version)
    assert store.counts["images"] == 39


def test_backup_restored_into_place_is_read_anew(store: LanceStore, tmp_path: Path) -> None:
    """The same folder, the same identity, and the same keys of other items."""
    shutil.copytree(tmp_path / "index", tmp_path / "backup")
    for address, numbers in ((store.path, range(100, 130)), (f"lance://{tmp_path / 'backup'}", range(200, 230))):
        with open_store(address).writing("add") as writer:
            writer.put(stored_items.images(numbers))
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, [*range(40), *range(100, 130)])
    expected = stored_items.plain(QUERIES, [*range(40), *range(200, 230)])
    with store.writing("delete") as writer, store.reading() as view:
        shutil.rmtree(tmp_path / "index" / lance.TABLE)
        shutil.copytree(tmp_path / "backup" / lance.TABLE, tmp_path / "index" / lance.TABLE)
        # A view has in memory what it has read; the rest is of another history.
        with pytest.raises(IndexMovedError, match="was replaced by another index or a backup meanwhile"):
            view.rows("images", ids=["p1"])
        with pytest.raises(IndexMovedError, match="was replaced by another index or a backup meanwhile"):
            writer.delete("images", ["p1"])
    assert stored_items.nearest(store, QUERIES) == expected
    assert (
        stored_items.ids(store) == {f"p{number}" for number in [*range(40), *range(200, 230)]} and damage(store) == []
    )


def test_commit_notices_a_replacement_in_the_last_moment(
    store: LanceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = stored_items.made(f"lance://{tmp_path / 'other'}", pictures=7, words=0)
    plain = lance.write_fragments

    def swapped(*words: Any, **more: Any) -> Any:
        written = plain(*words, **more)
        if (tmp_path / "other").exists():
            (tmp_path / "index").rename(tmp_path / "aside")
            (tmp_path / "other").rename(tmp_path / "index")
        return written

    monkeypatch.setattr(lance, "write_fragments", swapped)
    with store.writing("add") as writer, pytest.raises(IndexMovedError, match="replaced by another index"):
        writer.put(stored_items.images(range(40, 44)))
    assert open_store(other.path.replace("other", "index")).counts["images"] == 7
    assert open_store(f"lance://{tmp_path / 'aside'}").counts["images"] == 40
    for name in ("aside", "index"):
        assert verify(f"lance://{tmp_path / name}") == []


def test_replaced_index_in_an_object_store_raises(bucket: str) -> None:
    """There nothing is renamed: the objects of one are removed, and those of another copied to their place."""
    store = stored_items.made(f"{bucket}/live", pictures=10, words=3)
    stored_items.made(f"{bucket}/other", pictures=7, words=3)
    wanted = stored_items.answers(store, QUERIES)
    filesystem, _ = fs.FileSystem.from_uri(f"{bucket}/live")

    def replaced(name: str) -> None:
        filesystem.delete_dir_contents("archive/live")
        for info in filesystem.get_file_info(fs.FileSelector(f"archive/{name}", recursive=True)):
            if info.is_file:
                target = info.path.replace(f"archive/{name}", "archive/live", 1)
                with filesystem.open_output_stream(target) as stream:
                    stream.write(filesystem.open_input_file(info.path).read())

    for info in filesystem.get_file_info(fs.FileSelector("archive/live", recursive=True)):
        if info.is_file:
            with filesystem.open_output_stream(info.path.replace("archive/live", "archive/copy", 1)) as stream:
                stream.write(filesystem.open_input_file(info.path).read())
    with store.writing("add") as writer:
        writer.put(stored_items.images(range(20, 22)))
        replaced("other")
        with pytest.raises(IndexMovedError, match="was replaced by another index"):
            writer.put(stored_items.images(range(30, 32)))
    with pytest.raises(IndexMovedError, match="was replaced by another index"):
        stored_items.answers(store, QUERIES)
    assert open_store(f"{bucket}/live").counts["images"] == 7 and verify(f"{bucket}/live") == []
    replaced("copy")
    assert stored_items.answers(store, QUERIES) == wanted and verify(store.path) == [], "an earlier state of its own"


@pytest.mark.slow
def test_attack_of_a_disk_that_fills_up(tmp_path: Path) -> None:
    """A disk of a few MB, filled until a change is refused, used on, and read when it takes no change any more."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("needs the right to mount a disk")
    try:
        store = stored_items.made(f"lance://{tmp_path / 'index'}")
        kept = 40
        with store.writing("add") as writer, pytest.raises(OutputError, match="what stood there before still stands"):
            while True:
                vectors = np.ones((200, stored_items.VIEWS, stored_items.WIDTH), dtype=np.float32)
                noise = [os.urandom(1000).hex() for _ in range(200)]
                entries = [IndexEntry(f"p{kept + n}", b"x", metadata={"noise": own}) for n, own in enumerate(noise)]
                writer.put(Change("images", entries, vectors))
                kept += 200
        assert store.counts["images"] == kept and damage(store) == []
        with contextlib.suppress(OutputError), store.writing("delete") as writer:
            writer.delete("images", [f"p{number}" for number in range(40, kept)])
        assert damage(open_store(store.path)) == []
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        wanted = stored_items.answers(store, QUERIES)
        assert stored_items.answers(open_store(store.path), QUERIES) == wanted
        for verb in (lambda it: it.compact(), lambda it: it.delete("images", ["p1"])):
            told = r"needs to be written, and cannot be: .*Read-only"
            with pytest.raises(OutputError, match=told), store.writing("compact") as writer:
                verb(writer)
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_sentences_are_searched_by_lists_of_their_own(tmp_path: Path) -> None:
    """Lists of the sentence encoder's vectors find nearly what a comparison of all finds, also of later texts."""
    width, random_ = 6, np.random.default_rng(5)
    encoder = EncoderRecord("starter", "e" * 32, width, ("en",))
    store = create_store(f"lance://{tmp_path / 'index'}", replace(stored_items.manifest(60), encoder=encoder))

    def put(numbers: range) -> None:
        drawn = random_.standard_normal((len(numbers), width)).astype(np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        images = [IndexEntry(f"p{n}", b"p%d" % n, path=f"{n}.png") for n in numbers]
        texts = [IndexEntry(f"t{n}", b"t%d" % n, text=f"text {n}") for n in numbers]
        links = [(f"p{n}", f"t{n}") for n in numbers]
        rows = {f"t{n}": DerivedRow(row) for n, row in zip(numbers, drawn, strict=True)}
        lent = {f"p{n}": DerivedRow(row, farthest=-np.inf) for n, row in zip(numbers, -drawn, strict=True)}
        with store.writing("add") as writer:
            writer.put(Change("images", images, stored_items.vectors(numbers, 2)))
            vectors = stored_items.vectors(numbers, 1)
            writer.put(Change("texts", texts, vectors, links=links, derived={"sentences": rows}))
            writer.apply(Change(derived={"neighbours": lent}))

    put(range(400))
    with store.writing("compact") as writer:
        told = writer.compact()
    assert any(line.startswith("sentences: a query searches") for line in told)
    put(range(400, 410))
    asked = random_.standard_normal((8, 1, width)).astype(np.float32)
    with store.reading() as view:
        assert set(view.tables.lists) == set(SPACES) and not view.sides["sentences"].in_memory
        for space in ("sentences", "neighbours"):
            # Rows of ten later items are compared, whichever lists are searched.
            assert view.sides[space].unindexed == 10
            owners, rows = view.owners(space)
            exact = view.nearest(space, asked, top=10, exact=True)
            names = dict(zip(rows.tolist(), owners.tolist(), strict=True))
            found = view.nearest_in(space, asked, top=10)
            same = [
                len({names[key] for key in a.keys.tolist()} & set(b.keys.tolist()))
                for a, b in zip(exact, found, strict=True)
            ]
            assert sum(same) >= 68
            some = owners[:200:2]
            assert all(np.isin(own.keys, some).all() for own in view.nearest_in(space, asked, top=10, among=some))
            last = view.vectors_in(space, owners[-1:])[0]
            assert view.nearest_in(space, last, top=1)[0].keys.tolist() == owners[-1:].tolist()
    assert verify(store.path) == []
    with store.writing("compact") as writer:
        writer.delete("texts", [f"t{n}" for n in range(380)])
        writer.compact()
    with store.reading() as view:
        assert "sentences" not in view.tables.lists and view.sides["sentences"].in_memory
        assert "neighbours" in view.tables.lists or view.sides["neighbours"].in_memory
