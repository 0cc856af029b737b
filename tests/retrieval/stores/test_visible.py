"""A view of the visible items, in each store: it answers as an index from which the others were deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import stored_items

from subtext.errors import RequirementError
from subtext.retrieval.condition import as_conditions, matching, parse
from subtext.retrieval.pictures import missing_pictures
from subtext.retrieval.stores.item import SIDES, Change, IndexEntry
from subtext.retrieval.stores.registry import create_store
from subtext.retrieval.stores.store import Store, View
from subtext.retrieval.visible import VisibleStore

WORDS = ["a dog in the snow", "the ruling stands", "two cooks", "Zürich, the lake", "snow on the lake", "quetzal"]


def filled(location: str) -> Store:
    """Twelve images with a text each, one that two share, and one without an image."""
    store = create_store(location, stored_items.manifest())
    images = [
        IndexEntry(
            f"P{n}",
            b"c%d" % n,
            path=f"box {n % 2}/{n}.png",
            metadata={
                "rights": "open" if n % 3 else "closed",
                "taken": f"19{50 + n}",
                "tags": ["Köln", "köln", f"t{n}"],
            },
        )
        for n in range(12)
    ]
    texts = [
        IndexEntry(f"T{n}", b"t%d" % n, text=f"{WORDS[n % 6]} {n}", metadata={"language": "en"} if n % 2 else {})
        for n in range(12)
    ]
    texts += [
        IndexEntry("shared", b"s", text="shared by two"),
        IndexEntry("alone", b"a", text="without image"),
        IndexEntry("alone open", b"o", text="without image, open", metadata={"rights": "open"}),
        IndexEntry("withdrawn", b"w", text="said of an open image", metadata={"rights": "closed"}),
    ]
    links = [(f"P{n}", f"T{n}") for n in range(12)]
    links += [("P0", "shared"), ("P1", "shared"), ("P1", "withdrawn")]
    with store.writing("build") as writer:
        writer.put(Change("images", images, stored_items.vectors(range(12), 2)))
        writer.put(Change("texts", texts, stored_items.vectors(range(20, 36), 1), links=links))
    return store


@pytest.fixture
def places(address_of: Callable[[str], str]) -> Iterator[tuple[Store, Store]]:
    """The visible part of an index, and another index without the hidden items."""
    whole, other = filled(address_of("whole")), filled(address_of("other"))
    with other.writing("delete") as writer:
        writer.delete("images", [f"P{n}" for n in range(0, 12, 3)])
        writer.delete("texts", ["alone", "withdrawn"])
    yield VisibleStore(whole, as_conditions(["rights = open"])), other
    for store in (whole, other):
        store.remove()
        store.close()


def told(view: View, *, scored: bool) -> dict[str, object]:
    """All that a view says of its items, with the scores of words where the store has BM25."""
    found: dict[str, object] = {"counts": dict(view.counts)}
    for side in SIDES:
        keys = view.keys(side)
        rows = view.rows(side, keys=keys.tolist(), links=True)
        found[f"rows of {side}"] = sorted((row.id, row.text, row.metadata, len(row.links)) for row in rows)
        found[f"items of {side}"] = [(item.id, item.captions, item.metadata) for item in view.items(side, keys)]
        found[f"fields of {side}"] = view.fields(side)
        for name in (*view.fields(side), "rights", "nothing"):
            found[f"{name} of {side}"] = view.values(side, name, limit=20)
            found[f"dates {name} of {side}"] = sorted(view.dates(side, name).values())
        names = {row.key: row.id for row in rows}
        for words in ("snow", "the lake ruling", "quetzal", "Köln t4", "closed", "p3", "withdrawn open image"):
            hits = view.search_words(side, words, top=None)
            found[f"{words} in {side}"] = sorted((names[key], round(score, 4) if scored else 0) for key, score in hits)
        for typed in (
            "text contains snow",
            "text contains quetzal",
            "id = p3",
            "id = p4",
            "taken < 1955",
            "tags = koln",
        ):
            condition = parse(typed)
            chosen = matching(view, side, [condition], strict=False)
            found[f"{typed} of {side}"] = sorted(names[key] for key in chosen.tolist())
        found[f"folded {side}"] = view.folded(side, ["p3", "p4", "t3", "t4", "SHARED", "ALONE"])
        query = stored_items.vectors(range(50, 52), 2 if side == "images" else 1)
        for hits in view.nearest(side, query, top=5):
            found.setdefault(f"nearest {side}", []).append(  # type: ignore[attr-defined]
                [
                    (names[key], round(float(score), 5))
                    for key, score in zip(hits.keys.tolist(), hits.scores, strict=True)
                ]
            )
        owners, _ = view.owners(side)
        assert np.array_equal(owners, keys)
    texts, images = view.owner_links()
    found["links"] = len(texts), len(images)
    return found


def test_visible_items_answer_as_if_the_others_had_been_deleted(places: tuple[Store, Store]) -> None:
    visible, other = places
    with visible.reading() as view, other.reading() as wanted:
        scored = "memory" not in str(other.path)
        ours, theirs = told(view, scored=scored), told(wanted, scored=scored)
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert ours[name] == theirs[name], name
        assert view.whole.counts["images"] == 12 and wanted.whole is wanted
        assert "withdrawn" not in {row.id for row in view.rows("texts", ids=["withdrawn", "shared", "alone open"])}
    assert visible.counts == other.counts == {"images": 8, "texts": 10}
    assert missing_pictures(visible).total == 8


def test_a_condition_on_no_field_is_refused(places: tuple[Store, Store]) -> None:
    with pytest.raises(RequirementError, match="right"):
        VisibleStore(places[0].whole, as_conditions(["right = open"]))


def test_what_is_changed_is_the_whole_index(places: tuple[Store, Store], tmp_path: Path) -> None:
    visible = places[0]
    with visible.writing("delete") as writer:
        assert writer.delete("images", ["P0"])["images"] == 1
    assert visible.counts["images"] == 8 and visible.whole.counts["images"] == 11
