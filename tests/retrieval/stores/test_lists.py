"""Saved lists in each store: what survives, and what a deletion takes out of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import stored_items

from subtext.errors import RequirementError
from subtext.retrieval import lists
from subtext.retrieval.condition import as_conditions
from subtext.retrieval.lists import change_lists, copy_lists, new_list, rename_images, stored_lists
from subtext.retrieval.stores.documents import LISTS
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.registry import create_store, open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage
from subtext.retrieval.visible import VisibleStore


@pytest.fixture
def place(address_of: Callable[[str], str]) -> Iterator[Store]:
    store = create_store(address_of("lists"), stored_items.manifest())
    entries = [
        IndexEntry(f"p{number}", b"c%d" % number, path=f"{number}.png", metadata={"open": number % 2})
        for number in range(6)
    ]
    with store.writing("build") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(6), 2)))
    yield store
    store.remove()
    store.close()


def saved(store: Store) -> list[tuple[str, ...]]:
    with store.reading() as view:
        return [one.ids for one in stored_lists(view)]


def test_a_list_is_kept_and_a_deleted_image_leaves_it_in_the_same_change(place: Store) -> None:
    first = new_list("Ausstellung", ["p3", "p1", "p1"], "a dog", {"like": ["p1", "p2"], "not_like": ["p3"]})
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [*known, first])
        change_lists(writer, lambda known: [*known, new_list("other", ["p5"])])
        generation = writer.manifest.generation
        writer.delete("images", ["p1"])
        assert writer.manifest.generation == generation + 1
    again = open_store(place.path) if "memory" not in str(place.path) else place
    with again.reading() as view:
        one = next(one for one in stored_lists(view) if one.link == first.link)
        assert (one.name, one.query, one.created) == ("Ausstellung", "a dog", first.created)
        assert one.ids == ("p3",) and one.judged == {"like": ("p2",), "not_like": ("p3",)}
        assert "p1" not in view.records(LISTS)[0][0], "its id is not there any more"
    assert not damage(place)
    with place.writing("compact") as writer:
        writer.compact()
    assert sorted(saved(place)) == [("p3",), ("p5",)]


def test_a_list_that_names_no_image_of_the_index_is_damage(place: Store) -> None:
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [new_list("a", ["p1"])])
        with place.reading() as view:
            ((text,),) = view.records(LISTS)
        writer.apply(Change(documents={LISTS: text.replace("p1", "gone")}))
    assert [(issue.where, "gone" in issue.what) for issue in damage(place)] == [(LISTS, True)]
    assert saved(place) == [()], "nothing is shown that is not there"
    with place.writing("list") as writer:
        writer.apply(Change(documents={LISTS: json.dumps({"lists": [{"name": 1}]})}))
    assert "damaged" in damage(place)[0].what


def test_what_others_change_meanwhile_is_kept(place: Store) -> None:
    """A list that another writer saves between reading and writing is not lost."""
    with place.writing("list") as writer:
        met = list[str]()

        def edit(known: list[lists.SavedList]) -> list[lists.SavedList]:
            if not met:
                met.append("others")
                change_lists(writer, lambda former: [*former, new_list("others", ["p2"])])
            return [*known, new_list("own", ["p1"])]

        change_lists(writer, edit)
    assert sorted(saved(place)) == [("p1",), ("p2",)]


def test_a_renamed_image_stays_in_its_lists(place: Store) -> None:
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [new_list("a", ["p1", "p2"], None, {"like": ["p1"]})])
        rename_images(writer, {"p1": "p4"})
    with place.reading() as view:
        (one,) = stored_lists(view)
    assert one.ids == ("p4", "p2") and one.judged["like"] == ("p4",)


def test_lists_are_copied_with_the_images_that_stay(place: Store, address_of: Callable[[str], str]) -> None:
    other = create_store(address_of("copied"), stored_items.manifest())
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [new_list("a", ["p1", "p2"])])
    with other.writing("build") as writer:
        writer.put(Change("images", [IndexEntry("p2", b"c", path="2.png")], stored_items.vectors(range(1), 2)))
        copy_lists(place, writer)
    assert saved(other) == [("p2",)]
    other.remove()
    other.close()


def test_a_hidden_image_is_in_no_list(place: Store) -> None:
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [new_list("both", ["p1", "p2"]), new_list("none", ["p2", "p4"])])
    assert saved(VisibleStore(place, as_conditions(["open = 1"]))) == [("p1",)]


def test_there_is_a_limit(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MOST_LISTS", 1)
    with place.writing("list") as writer:
        change_lists(writer, lambda known: [*known, new_list("a", ["p1"])])
        with pytest.raises(RequirementError, match="delete some"):
            change_lists(writer, lambda known: [*known, new_list("b", ["p1"])])
    assert saved(place) == [("p1",)]
