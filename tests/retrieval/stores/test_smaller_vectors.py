"""Vectors of 16 bits, and lists and graphs that are chosen for a recall, in each store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stored_items

import subtext
from subtext.api.index.maintain import compact_index
from subtext.errors import ArgumentError, SearchIndexError
from subtext.retrieval.manifest import EncoderRecord, Manifest
from subtext.retrieval.stores.folder import VECTORS, Folder
from subtext.retrieval.stores.item import Change, DerivedRow
from subtext.retrieval.stores.registry import create_store, open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage

QUERIES = stored_items.vectors(range(1000, 1008), 1)
HALF = replace(stored_items.manifest(60), numbers="float16", encoder=EncoderRecord("starter", "e" * 32, 8, ("en",)))


@pytest.fixture(autouse=True)
def _small(store_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of so few vectors are of no use."""
    if store_kind == "lance":
        from subtext.retrieval.stores import lance, lance_lists

        monkeypatch.setattr(lance, "QUERIES", 16)
        monkeypatch.setattr(lance_lists, "ASKED", 4)
        monkeypatch.setattr(lance_lists, "BITS", (1, 5))
        monkeypatch.setattr(lance_lists, "REQUEST", 0)
        monkeypatch.setattr(lance_lists, "PER_LIST", 0)


def filled(address: str, manifest: Manifest, pictures: int = 100) -> Any:
    store = create_store(address, manifest)
    with store.writing("build") as writer:
        writer.put(stored_items.images(range(pictures)))
        texts = stored_items.texts(range(20))
        if manifest.encoder is not None:
            rows = zip((entry.id for entry in texts.entries), stored_items.vectors(range(50, 70), 1)[:, 0], strict=True)
            texts = replace(texts, derived={"sentences": {name: DerivedRow(own) for name, own in rows}})
        writer.put(texts)
    return store


@pytest.fixture
def half(address_of: Callable[[str], str]) -> Iterator[Store]:
    store = filled(address_of("half"), HALF)
    yield store
    store.close()
    open_store(store.path).remove()


def rounded(numbers: range, views: int) -> np.ndarray:
    return stored_items.vectors(numbers, views).astype(np.float16).astype(np.float64)


def assert_as_a_loop_over_rounded_vectors(store: Store, numbers: list[int], *, exact: bool) -> None:
    """Scores are those of the rounded vectors and of queries that are not rounded."""
    known = {number: rounded(range(number, number + 1), stored_items.VIEWS)[0] for number in numbers}
    with store.reading() as view:
        for query, hits in zip(QUERIES, view.nearest("images", QUERIES, top=6, exact=exact), strict=True):
            scores = {f"p{n}": float((own @ query[0].astype(np.float64)).max()) for n, own in known.items()}
            wanted = sorted(scores, key=lambda name: -scores[name])[:6]
            ids = [item.id for item in view.items("images", hits.keys)]
            assert ids == wanted or not exact
            np.testing.assert_array_equal(hits.scores, np.float32([scores[name] for name in ids]))
        keys = view.keys_of("images", [f"p{number}" for number in numbers])
        stored = view.vectors("images", np.array([keys[f"p{number}"] for number in numbers]))
        # Lists put the views of an item in another order.
        np.testing.assert_array_equal(np.sort(stored, axis=1), np.sort(np.stack(list(known.values())), axis=1))
        (sentence,), there = view.vectors_in("sentences", np.array([view.keys_of("texts", ["t3"])["t3"]]))
        assert there.all()
        np.testing.assert_array_equal(sentence, rounded(range(53, 54), 1)[0])


def stored_types(store: Any) -> set[str]:
    """Types of the numbers on the disk."""
    if isinstance(store, Folder):
        return {np.load(file, mmap_mode="r").dtype.name for file in store.path.rglob(VECTORS)}
    if hasattr(store, "uri"):
        schema = store.latest().dataset.schema
        return {str(schema.field(name).type.value_type) for name in ("vector", "sentence")}
    with store.reading() as view:
        found = view.tables.run(
            "SELECT DISTINCT format_type(atttypid, NULL) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "WHERE attname = 'vector' AND relkind = 'r' AND relnamespace = to_regnamespace(?)",
            view.tables.schema,
        )
    return {name.rpartition(".")[2] for (name,) in found}


def test_sixteen_bits_are_kept_through_every_change(half: Store) -> None:
    types = {"folder": {"float16"}, "lance": {"halffloat"}, "postgresql": {"halfvec"}}
    assert stored_types(half) in types.values()
    assert_as_a_loop_over_rounded_vectors(half, list(range(100)), exact=True)
    with half.writing("change") as writer:
        writer.put(stored_items.images(range(100, 130)))
        writer.apply(Change(amended=[replace(stored_items.picture(5), metadata={"year": 7})]))
        writer.delete("images", [f"p{number}" for number in range(100, 110)])
    there = [*range(100), *range(110, 130)]
    for exact in (True, False):
        assert_as_a_loop_over_rounded_vectors(half, there, exact=exact)
    with half.writing("compact") as writer:
        writer.compact()
    again = open_store(half.path)
    for exact in (True, False):
        assert_as_a_loop_over_rounded_vectors(again, there, exact=exact)
    assert damage(again) == [] and again.manifest.numbers == "float16" and stored_types(again) in types.values()
    moved = replace(HALF, fingerprint="e" * 32, numbers="float32").with_settings_of(again.manifest)
    with again.writing("move") as writer:
        since = writer.manifest.revision
    new = again.create_replacement(moved)
    with new.writing("move") as writer:
        writer.put(stored_items.images(range(30)))
    after = again.replace_with(new, since=since)
    assert stored_types(after) in types.values() and after.manifest.numbers == "float16"
    after.close()


def test_numbers_that_sixteen_bits_cannot_hold_are_refused(half: Store) -> None:
    for factor in (1e6, 1e-9):
        change = stored_items.images(range(200, 201))
        assert change.vectors is not None
        large = replace(change, vectors=change.vectors * np.float32(factor))
        with half.writing("add") as writer, pytest.raises(SearchIndexError, match=r"float16 has numbers from 6e-8 to"):
            writer.put(large)
    assert half.counts["images"] == 100


@pytest.mark.parametrize("numbers", [pytest.param("float32", marks=pytest.mark.slow), "float16"])
def test_a_recall_is_kept_and_reached(address_of: Callable[[str], str], numbers: str) -> None:
    address = address_of(f"recall-{numbers}")
    filled(address, replace(stored_items.manifest(60), numbers=numbers), pictures=150).close()
    told = compact_index(address, recall=0.8).lines
    assert any("images" in line and "recall@10" in line for line in told), told
    store = open_store(address)
    assert store.manifest.recall == 0.8
    with store.reading() as view:
        exact = view.nearest("images", QUERIES, top=10, exact=True)
        found = view.nearest("images", QUERIES, top=10)
        shares = [np.isin(a.keys, b.keys).mean() for a, b in zip(exact, found, strict=True)]
        assert np.mean(shares) >= 0.7
        assert "recall" in json.dumps(view.stats().facts)
    assert not any("images: " in line for line in compact_index(address).lines), "nothing is chosen again"
    assert any("images" in line and "recall@10" in line for line in compact_index(address, recall=0.9).lines)
    assert open_store(address).manifest.recall == 0.9 and damage(store) == []
    store.close()
    open_store(address).remove()


def test_what_was_chosen_for_a_lower_recall_is_not_searched(address_of: Callable[[str], str], store_kind: str) -> None:
    """As where a compaction for a higher one was killed."""
    address = address_of("raised")
    filled(address, stored_items.manifest(60), pictures=150).close()
    compact_index(address, recall=0.5)
    store = open_store(address)
    with store.writing("compact") as writer:
        writer.change_manifest(replace(writer.manifest, recall=0.9999))
    store = open_store(address)
    with store.reading() as view:
        for mine, exact in zip(
            view.nearest("images", QUERIES, top=10), view.nearest("images", QUERIES, top=10, exact=True), strict=True
        ):
            np.testing.assert_array_equal(mine.keys, exact.keys)
    if store_kind == "folder":
        assert "lists were chosen for a recall of 0.5, and 0.9999 is asked" in str(subtext.index_info(address))
    store.close()
    open_store(address).remove()


def test_numbers_set_by_hand_are_kept_and_checked(address_of: Callable[[str], str], store_kind: str) -> None:
    address = address_of("hand")
    filled(address, stored_items.manifest(60), pictures=150).close()
    if store_kind == "postgresql":
        with pytest.raises(ArgumentError, match="by_hand takes nothing, as this store has m and ef_search in its addr"):
            compact_index(address, by_hand="probes=3")
    else:
        for wrong in ("probes=0", "probes=x", "links=3", "probes", f"probes={2**21}"):
            with pytest.raises(ArgumentError, match=r"by_hand takes lists=1 to 1,048,576, probes=.*; it got"):
                compact_index(address, by_hand=wrong)
        told = compact_index(address, by_hand="lists=8, probes=3").lines
        assert any("images: a query searches 3 of 8 lists" in line for line in told), told
        assert not any("images: " in line for line in compact_index(address).lines)
        assert open_store(address).manifest.by_hand == {"lists": 8, "probes": 3}
        compact_index(address, recall=0.9)
        assert open_store(address).manifest.by_hand == {}, "another recall chooses them again"
    store = open_store(address)
    assert damage(store) == []
    store.remove()


def test_what_finds_too_little_is_not_searched(
    address_of: Callable[[str], str], store_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said with the best that was found, and `info` says it as well."""
    address = address_of("poor")
    filled(address, stored_items.manifest(60), pictures=150).close()
    if store_kind == "lance":
        from subtext.retrieval.stores.lance import LanceVectors

        monkeypatch.setattr(LanceVectors, "found", lambda *words, **more: {"images": 0.42, "texts": 0.5})
        said = "lists find 0.420 for images and 0.500 for texts at most, and 0.98 is asked; ask for less"
    elif store_kind == "postgresql":
        from subtext.retrieval.stores import postgres

        monkeypatch.setattr(postgres, "_recalls", lambda *words, **more: {200: {"images": 0.42, "texts": 0.5}})
        said = "find 0.420 of the nearest items at most, of 0.98 that are asked: not searched"
    else:
        from subtext.retrieval import ann

        monkeypatch.setattr(ann, "probes_needed", lambda queries, vectors, lists, *words: (len(lists), [0.99, 0.99]))
        said = "lists, which takes longer"
    told = compact_index(address).lines
    assert any(said in line for line in told), told
    store = open_store(address)
    with store.reading() as view:
        for mine, exact in zip(
            view.nearest("images", QUERIES, top=10), view.nearest("images", QUERIES, top=10, exact=True), strict=True
        ):
            np.testing.assert_array_equal(mine.keys, exact.keys)
    shown = str(subtext.index_info(address))
    assert "every vector is compared" in shown and "worth while" not in shown
    again = compact_index(address).lines
    assert not any(said in line for line in again), "what was tried is not tried again"
    assert damage(store) == []
    store.remove()


def test_the_cache_of_lists_is_kept(address_of: Callable[[str], str], store_kind: str) -> None:
    address = address_of("cached")
    store = filled(address, stored_items.manifest())
    if store_kind == "lance":
        compact_index(address, cache_size=3)
        again: Any = open_store(address)
        assert again.manifest.cache == again._cache == 3 * 2**20
        assert stored_items.nearest(again, QUERIES) == stored_items.nearest(store, QUERIES)
    else:
        with pytest.raises(ArgumentError, match="cache_size is of an index in LanceDB"):
            compact_index(address, cache_size=3)
    store.close()
    open_store(address).remove()


def test_a_manifest_out_of_range_is_refused(tmp_path: Path) -> None:
    for wrong in ({"numbers": "int8"}, {"recall": 0}, {"recall": 2}, {"by_hand": {"probes": 0}}, {"cache": 0}):
        text = replace(stored_items.manifest(), **wrong).to_json()
        with pytest.raises(SearchIndexError, match=f"needs '{next(iter(wrong))}'"):
            Manifest.from_json(text, where="there")


@pytest.mark.parametrize("recall", [0.05, 1.5])
def test_a_recall_out_of_range_is_refused(address_of: Callable[[str], str], recall: float) -> None:
    with pytest.raises(ArgumentError, match=r"recall.*0\.1"):
        compact_index(address_of("none"), recall=recall)
