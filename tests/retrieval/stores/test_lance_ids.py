"""The fragments of ids, against a plain dictionary, and what a table is asked for with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stored_items

from subtext.retrieval.stores.registry import open_store

lance = pytest.importorskip("subtext.retrieval.stores.lance")
lance_ids = pytest.importorskip("subtext.retrieval.stores.lance_ids")
IdFragments, hashed = lance_ids.IdFragments, lance_ids.hashed


def test_fragments_of_ids_are_those_of_a_dictionary() -> None:
    draws, known, fragments = np.random.default_rng(3), dict[str, set[int]](), IdFragments()
    for number in range(60):
        ids = [f"p{draws.integers(3000)}" for _ in range(draws.integers(0, 90))]
        for name in ids:
            known.setdefault(name, set()).add(number)
        fragments.add([(hashed(ids), np.full(len(ids), number))], [number], range(number))
        asked = [f"p{draws.integers(4000)}" for _ in range(20)]
        assert fragments.of(asked) == set().union(*(known.get(name, set()) for name in asked))
    fragments.add([(hashed(["p1"] * 3), np.full(3, 5))], [5], range(60))  # What another thread has read already.
    assert fragments.of(["p1"]) == known.get("p1", set()) and fragments.read == set(range(60))


def test_fragments_that_are_gone_are_forgotten() -> None:
    fragments = IdFragments()
    for number in range(200):
        fragments.add([(hashed(["p1", f"p{number}"]), np.full(2, number))], [number], [number])
    assert fragments.read == {199} and 199 in fragments.of(["p1"])
    assert sum(len(hashes) for hashes, _ in fragments._blocks) < 20


def test_an_older_view_finds_what_a_later_one_has_no_more(tmp_path: Path) -> None:
    """Also if the fragment was read at the later version first."""
    made = stored_items.made(f"lance://{tmp_path / 'index'}")
    store = open_store(made.path)
    old = store.view(store.latest())
    with made.writing("change") as writer:
        writer.put(stored_items.images(range(5, 6)))
        writer.delete("images", ["p7"])
    later = store.view(store.latest())
    assert later.keys_of("images", ["p5", "p7"]).keys() == {"p5"}
    found = old.keys_of("images", ["p5", "p7"])
    assert found.keys() == {"p5", "p7"} and found["p5"] != later.keys_of("images", ["p5"])["p5"]


def test_new_ids_are_looked_for_in_no_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}")
    other, plain, looked = open_store(store.path), lance.LanceTables.scan, list[list[int]]()

    def scan(self: Any, columns: Any, where: str, options: Any = None) -> Any:
        if "id IN (" in where:
            looked.append([part.fragment_id for part in options["fragments"]])
        return plain(self, columns, where, options)

    monkeypatch.setattr(lance.LanceTables, "scan", scan)
    for number in range(40, 60):
        with store.writing("add") as writer:
            assert writer.rows_of("images", [f"p{number}"]) == {}
            writer.put(stored_items.images(range(number, number + 1)))
    assert looked == []
    for opened in (store, other):  # By the one that wrote them, and by one that reads them the first time.
        with opened.reading() as view:
            keys = view.keys_of("images", ["p3", "p59", "nobody"])
            assert keys.keys() == {"p3", "p59"} and len(view.tables.dataset.get_fragments()) > 2 == len(looked.pop())
    with other.writing("delete") as writer:
        writer.delete("images", ["p59"])
    with store.reading() as view:
        assert view.keys_of("images", ["p3", "p59"]).keys() == {"p3"}
    assert stored_items.ids(store) == {f"p{number}" for number in range(59)} == stored_items.ids(other)


def test_ids_of_indexed_fragments_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of ids tells of them; in thirty million items they would be much to read."""
    monkeypatch.setattr(lance, "GRACE", 0.0)
    made = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=100, exact_up_to=60)
    with made.writing("compact") as writer:
        writer.compact()
        writer.put(stored_items.images(range(100, 102)))
    store = open_store(made.path)
    with store.reading() as view:
        assert view.keys_of("images", ["p3", "p101", "nobody"]).keys() == {"p3", "p101"}
        fragments = {part.fragment_id for part in view.tables.dataset.get_fragments()}
        assert fragments <= view.tables.index[1]["id"] | view.tables.ids.read
        assert view.tables.index[1]["id"].isdisjoint(view.tables.ids.read)


def test_small_changes_leave_few_fragments(tmp_path: Path) -> None:
    store = stored_items.made(f"lance://{tmp_path / 'index'}", pictures=2, words=2)
    counts, written = list[int](), 0
    with store.writing("add") as writer:
        for number in range(2, 150):
            writer.put(stored_items.images(range(number, number + 1)))
            sizes = [part.metadata.physical_rows for part in store.latest().dataset.get_fragments()]
            counts.append(len(sizes))
            written += sizes[-2]
    # Three of each size, a fourth makes them one: 1 to 3 rows, 4 to 15, 16 to 63, 64 to 255; and the state.
    assert max(counts) <= 4 * 3 + 1 and written < 8 * 2 * 150
    assert stored_items.ids(store) == {f"p{number}" for number in range(150)}


@pytest.mark.parametrize("sizes", [(1,), (3000,), (9000,), (4100, 10_000), (1, 50, 700, 3000), (12_000, 5000)])
def test_fragments_of_any_changes_stay_few_and_are_seldom_written_again(sizes: tuple[int, ...]) -> None:
    draws, fragments, written = np.random.default_rng(1), list[int](), 0
    changes = [int(draws.integers(max(1, size // 2), size + 1)) for size in sizes for _ in range(2000 // len(sizes))]
    draws.shuffle(changes)
    for rows in changes:
        count = lance._merged(fragments, rows)
        assert count == 0 or rows + sum(fragments[:count]) <= lance.MERGE_ROWS
        written += rows + sum(fragments[:count])
        fragments = [rows + sum(fragments[:count]), *fragments[count:]]
    assert sum(fragments) == sum(changes) and written <= 9 * sum(changes)
    # As a rule at least a quarter of the most that is merged; and some of each size that are not yet.
    assert len(fragments) <= 4 * sum(changes) / lance.MERGE_ROWS + 30
