"""Dates, letters, words and numbers of archives are found alike in every store."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored_items

from subtext.api.index.maintain import delete_from_index
from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.condition import as_conditions, count_dates, matching, parse, places_by_date
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage

ONE, TWO = (unicodedata.normalize(form, "Zürich") for form in ("NFC", "NFD"))
ITEMS: dict[str, dict[str, Any]] = {
    "circa": {"date": "circa 1890", "place": ONE, "code": 12345678901234567890},
    "range": {"date": "1890-1895", "place": TWO, "code": 12345678901234567891},
    "decade": {"date": "189X", "place": "STRASSE", "code": -(2**70)},
    "um": {"date": "um 1900", "place": "ΟΔΟΣ", "code": 7},
    "vor": {"date": "vor 1914", "place": "Ёлка", "code": 2**63},
    "doubt": {"date": "[1923?]", "place": "ﬁne œuvre", "code": 1e300},
    "winter": {"date": "1954/55", "place": "İzmir", "code": "n/a", "flag": [True, 3]},
    "rome": {"date": "-0043", "place": "Paris, Texas", "code": "12"},
    "day": {"date": "12.5.1951", "place": "Paris", "code": 12.5},
    "none": {"date": "o. D.", "place": 'say "hi" [a]', "code": 2**64 + 1},
    "number": {"date": 1893, "place": "O'Brien", "code": [2**64, 2**64 + 2]},
    "long": {"date": "Y170000002", "place": "zurich", "code": "007"},
    f"{TWO}.png": {"title": "x", "nested": {"size": {"width": 7}, "tags": ["a", "b"]}},
    "İd": {"title": "x"}, "id": {"title": "y"}, "iD": {"title": "z"},
}  # fmt: skip
TEXTS = [
    "Große Straße", "STRASSE 7", "ΟΔΟΣ Αθηνών", "οδός", "Ёлка", "елка", "ﬁne oﬃce", "IMG_2041 of 1987-118", "re16tgk",
    "白い犬が雪の中を走る", "犬 dog", "หมาวิ่งในหิมะ", "北京的狗", "Caf\u0065\u0301 Łódź",
]  # fmt: skip


@pytest.fixture(scope="module")
def archive(address_of: Callable[[str], str]) -> Store:
    store = stored_items.made(address_of("archive"), pictures=0, words=0)
    images = [IndexEntry(name, name.encode(), metadata=fields) for name, fields in ITEMS.items()]
    texts = [IndexEntry(f"t{number}", b"t", text=text) for number, text in enumerate(TEXTS)]
    with store.writing("add") as writer:
        writer.put(Change("images", images, stored_items.vectors(range(len(images)), stored_items.VIEWS)))
        writer.put(Change("texts", texts, stored_items.vectors(range(len(texts)), 1)))
    return store


def found(store: Store, *where: str | Condition, certain: bool = False) -> list[str]:
    with store.reading() as view:
        keys = matching(view, "images", as_conditions(where, certain=certain))
        return [item.id for item in view.items("images", keys)]


@pytest.mark.parametrize(
    ("where", "possible", "certain"),
    [
        (("date >= 1885", "date <= 1895"), "circa range decade vor number", "circa range number"),
        (("date = 1890",), "circa range decade vor", ""),
        (("date = 1893-07-01",), "range decade vor number", ""),
        (("date < 0",), "vor rome", "rome"),
        (("date = -0043",), "vor rome", "rome"),
        (("date > 1953",), "winter long", "winter long"),
        (("date in 12.5.1951, 1954",), "winter day", "day"),
        (("date = um 1900",), "decade um vor", "um"),
        (("date != 1951",), "circa range decade um vor doubt winter rome none number long Zürich.png İd id iD", None),
        (("date = o. D.",), "none", "none"),
        (("date > 9999",), "long", "long"),
    ],
)
def test_dates_possibly_and_certainly(
    archive: Store, where: tuple[str, ...], possible: str, certain: str | None
) -> None:
    assert " ".join(found(archive, *where)).replace(TWO, ONE) == possible
    if certain is not None:
        assert " ".join(found(archive, *where, certain=True)) == certain


def test_items_without_a_date_are_counted(archive: Store) -> None:
    with archive.reading() as view:
        counts = count_dates(view, "images", as_conditions(["date >= 1885", "date <= 1895"]))
        assert counts is not None and (counts.possible, counts.certain, counts.undated) == (5, 3, 5)
        assert count_dates(view, "images", as_conditions(["place = Paris"])) is None


def test_items_are_ordered_by_date(archive: Store) -> None:
    with archive.reading() as view:
        for descending in (False, True):
            places = places_by_date(view, "images", view.keys("images"), "date", descending=descending)
            names = [item.id for item in view.items("images", [key for _, key in places])]
            known = ["rome", "circa", "range", "decade", "number", "um", "vor", "doubt", "day", "winter", "long"]
            assert names[:11] == (known[::-1] if descending else known)
            assert names[11:] == [name for name in ITEMS if name not in known]
        with pytest.raises(RequirementError, match="order needs a field with dates; 'place' is text"):
            places_by_date(view, "images", view.keys("images"), "place")


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (f"place = {ONE}", "circa range long"), (f"place = {TWO}", "circa range long"),
        ("place = zurich", "circa range long"),
        ("place = straße", "decade"), ("place = οδος", "um"), ("place = елка", "vor"), ("place = FINE OEUVRE", "doubt"),
        ("place = izmir", "winter"), ("place = ızmır", "winter"), ("place contains ÜRI", "circa range long"),
        ('place in "Paris, Texas", Zürich', "circa range rome long"), ("place in Paris, Texas", "day"),
        ("place = Paris, Texas", "rome"), ("place = O'Brien", "number"), ("place in O'Brien, Paris", "day number"),
        ('place = "say ""hi"" [a]"', "none"), ('place = say "hi" [a]', "none"), ('place in "say ""hi"" [a]"', "none"),
        ("PLACE = paris", "day"), ("nested.size.width = 7", "Z"), ("nested.tags = B", "Z"),
        ("code = 12345678901234567890", "circa"), ("code in 12345678901234567891, 7", "range um"),
        ("code > 12345678901234567890", "range doubt none number"), ("code < 0", "decade"), ("code = 12", "rome"),
        ("code >= 18446744073709551617", "doubt none number"), ("code > 18446744073709551617", "doubt number"),
        ("code = 18446744073709551616", "number"), ("code <= 12.5", "decade um rome day"), ("code = 007", "long"),
        ("code > 9223372036854775807", "circa range vor doubt none number"), ("code = n/A", "winter"),
        ("code > -" + "9" * 400, "circa range decade um vor doubt rome day none number"), ("code < -" + "9" * 400, ""),
        ("code in 12, " + "9" * 400, "rome"), ("code > " + "9" * 400, ""),
    ],
)  # fmt: skip
def test_letters_and_numbers_are_equal_whatever_their_form(archive: Store, where: str, names: str) -> None:
    assert [name if name.isascii() else "Z" for name in found(archive, where)] == names.split()


def test_id_is_found_as_it_is_spelt_and_else_folded(archive: Store) -> None:
    assert found(archive, f"id = {ONE}.PNG") == [f"{TWO}.png"] == found(archive, "id in zurich.png")
    assert found(archive, "id = id") == ["id"] and found(archive, "id = CIRCA") == ["circa"]
    assert len(found(archive, "id != Circa")) == len(ITEMS) - 1
    with pytest.raises(RequirementError, match="'ID' fits 'iD' and 'id' and 'İd'"):
        found(archive, "id = ID")
    with archive.reading() as view:
        assert view.resolve("images", [f"{ONE}.png", "gone", "iD"]) == {f"{ONE}.png": f"{TWO}.png", "iD": "iD"}


@pytest.mark.parametrize(
    ("phrase", "numbers"),
    [
        ("strasse", [0, 1]), ("STRAßE", [0, 1]), ("οδός", [2, 3]), ("елка", [4, 5]), ("fine", [6]), ("office", [6]),
        ("2041", [7]), ("img", [7]), ("1987", [7]), ("118", [7]), ("1987 118", [7]), ("re16tgk", [8]), ("16", []),
        ("犬", [9, 10]), ("白い犬", [9]), ("雪の中", [9]), ("犬雪", []), ("北京", [12]), ("หมา", [11]), ("หิมะ", [11]),
        ("cafe lodz", [13]), ("CAFÉ", [13]), ("犬 dog", [10]),
    ],
)  # fmt: skip
def test_words_are_found_whatever_their_form(archive: Store, phrase: str, numbers: list[int]) -> None:
    with archive.reading() as view:
        keys = view.select("texts", [parse(f"text contains {phrase}")])
        assert [item.id for item in view.items("texts", keys)] == [f"t{number}" for number in numbers]
        best = [item.id for item in view.items("texts", [key for key, _ in view.search_text(phrase, top=9)])]
        assert set(best) >= {f"t{number}" for number in numbers} and bool(best) >= bool(numbers)


def test_list_of_values_has_one_entry_for_each_spelling(archive: Store) -> None:
    with archive.reading() as view:
        places = view.values("images", "place", limit=99)
        assert places.distinct == 10 and dict(places.common)[next(n for n, c in places.common if c == 3)] == 3
        codes = dict(view.values("images", "code", limit=99).common)
        assert {12345678901234567890, 12345678901234567891, -(2**70), 2**64, 2**64 + 1, 2**64 + 2, "007"} <= set(codes)
        assert view.fields("images") == [
            "code", "date", "flag", "nested.size.width", "nested.tags", "place", "title",
        ]  # fmt: skip
    assert damage(archive) == []


def test_truth_in_a_list_is_found(archive: Store) -> None:
    assert found(archive, Condition("flag", "=", True)) == found(archive, Condition("flag", ">", 2)) == ["winter"]


def test_thousands_of_values_in_a_list(archive: Store) -> None:
    numbers = ", ".join(map(str, [*range(-2000, 2000), 2**64, 12345678901234567890]))
    assert found(archive, f"code in {numbers}") == ["circa", "um", "rome", "number"]
    assert found(archive, Condition("code", "in", [2**64 + 3 * number for number in range(3000)])) == ["number"]
    assert found(archive, Condition("place", "in", [f"x{number}" for number in range(20_000)] + ["PARIS"])) == ["day"]
    assert found(archive, Condition("id", "in", [f"x{number}" for number in range(20_000)] + ["um"])) == ["um"]
    assert len(found(archive, Condition("code", "!=", list(range(5000))))) == len(ITEMS) - 2
    years = found(archive, Condition("date", "in", list(range(1000, 2000))))
    assert years == ["circa", "range", "decade", "um", "vor", "doubt", "winter", "day", "number"]


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused_by_name(archive: Store, bad: float) -> None:
    vectors = stored_items.vectors(range(3), stored_items.VIEWS)
    vectors[1, 1] = bad
    entries = [IndexEntry(f"new {number}", b"n") for number in range(3)]
    with archive.writing("add") as writer, pytest.raises(SearchIndexError, match="1 vector of images is not: 'new 1'"):
        writer.put(Change("images", entries, vectors))


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x7fb", "a\x85b", "\ud800", ""])
def test_ids_with_control_characters_are_refused_by_name(archive: Store, name: str) -> None:
    change = Change("images", [IndexEntry(name, b"n")], stored_items.vectors(range(1), stored_items.VIEWS))
    with archive.writing("add") as writer, pytest.raises(SearchIndexError, match=r"an id needs .*; rename item"):
        writer.put(change)
    assert archive.counts["images"] == len(ITEMS)


def test_later_numbers_beside_texts_are_compared(archive: Store) -> None:
    """The table that an item comes from says "12" or 12: the condition means the number."""
    assert "rome" in found(archive, "code < 13") and "rome" in found(archive, "code in 12.0, 99")
    with archive.writing("add") as writer:
        changed = IndexEntry("rome", b"rome", metadata={**ITEMS["rome"], "code": "n/a", "date": "1960"})
        writer.put(Change("images", amended=[changed]))
        assert "rome" not in found(archive, "code < 13") and "rome" in found(archive, "date = 1960")
        writer.put(Change("images", amended=[IndexEntry("rome", b"rome", metadata=ITEMS["rome"])]))
    assert "rome" in found(archive, "code < 13") and damage(archive) == []


def test_deletion_by_an_id_that_fits_two_items_deletes_nothing(
    address_of: Callable[[str], str], archive: Store
) -> None:
    address = address_of("archive")
    with pytest.raises(RequirementError, match="'ID' fits 'iD' and 'id' and 'İd'"):
        delete_from_index(address, ("um", "ID"))
    assert archive.counts["images"] == len(ITEMS)
    report = delete_from_index(address, ("UM", f"{ONE}.png"), dry_run=True)
    assert set(report.lines[1:]) == {"um", f"{TWO}.png"}
