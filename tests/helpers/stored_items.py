"""A small index of made vectors, without any model: what the tests of stores share."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from subtext.retrieval import calibration as calibrations
from subtext.retrieval.calibration import Calibration
from subtext.retrieval.condition import count_dates, matching, parse
from subtext.retrieval.confidence import sample
from subtext.retrieval.journal import deleted_before
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.facets import DATE, NUMBER, Condition
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.registry import create_store
from subtext.retrieval.stores.store import Store, View

WIDTH, VIEWS = 8, 2
PLACES = ("Paris", "Wien", "Łódź")


def deleted(store: Store, side: str, names: list[str]) -> set[str]:
    with store.reading() as view:
        return deleted_before(view, side, names)


def manifest(exact_up_to: int = 200_000) -> Manifest:
    return Manifest(
        fingerprint="f" * 32,
        run="/runs/first",
        model_name="dual",
        width=WIDTH,
        scale=14.0,
        views={"images": VIEWS, "texts": 1},
        data={"split": "all"},
        exact_up_to=exact_up_to,
    )


def vectors(numbers: range, views: int) -> np.ndarray:
    """Unit vectors, each a function of its item's number alone."""
    drawn = [np.random.default_rng([number, views]).standard_normal((views, WIDTH)) for number in numbers]
    found = np.asarray(drawn, dtype=np.float32).reshape(-1, views, WIDTH)
    return found / np.linalg.norm(found, axis=2, keepdims=True)


def picture(number: int) -> IndexEntry:
    metadata: dict[str, object] = {
        "year": 1900 + number % 50,
        "place": PLACES[number % 3],
        "tags": ["even" if number % 2 == 0 else "odd", f"t{number % 7}"],
        "taken": f"2021-03-{1 + number % 28:02d}{'T10:11:12' if number % 3 else ''}",
        "weight": number / 4,
    }
    if number % 5 == 0:
        metadata["rare"] = True
    return IndexEntry(f"p{number}", b"c%d" % number, path=f"{number}.png", metadata=metadata)


def text(number: int) -> IndexEntry:
    return IndexEntry(
        f"t{number}", b"d%d" % number, text=f"Rowing boat {number}, word{number} 🚣🏽", metadata={"language": "en"}
    )


def images(numbers: range) -> Change:
    return Change("images", [picture(number) for number in numbers], vectors(numbers, VIEWS))


def texts(numbers: range) -> Change:
    links = [(f"p{number % 40}", f"t{number}") for number in numbers]
    return Change("texts", [text(number) for number in numbers], vectors(numbers, 1), links=links)


def made(place: Path | str, *, pictures: int = 40, words: int = 60, exact_up_to: int = 200_000) -> Any:
    """An index of so many pictures and texts, in a folder or at an address; text n goes with picture n modulo 40."""
    store = create_store(place, manifest(exact_up_to))
    with store.writing("build") as writer:
        writer.put(images(range(pictures)))
        writer.put(texts(range(words)))
    return store


def ids(folder: Store, side: str = "images") -> set[str]:
    with folder.reading() as view:
        return {item.id for item in view.items(side, matching(view, side, []))}  # type: ignore[arg-type]


def nearest(
    folder: Store, queries: np.ndarray, *, side: str = "images", top: int = 5, **more: object
) -> list[list[str]]:
    with folder.reading() as view:
        found = view.nearest(side, queries, top=top, **more)  # type: ignore[index, arg-type]
        return [[item.id for item in view.items(side, each.keys)] for each in found]  # type: ignore[arg-type]


def plain(
    queries: np.ndarray, numbers: list[int], *, views: int = VIEWS, prefix: str = "p", top: int = 5
) -> list[list[str]]:
    """The same in a loop over every pair of views."""
    known = {number: vectors(range(number, number + 1), views)[0].astype(np.float64) for number in numbers}
    answers = []
    for query in queries.astype(np.float64):
        scored = [(-max(float(u @ v) for u in query for v in own), number) for number, own in known.items()]
        answers.append([f"{prefix}{number}" for _, number in sorted(scored)[:top]])
    return answers


def year(number: int) -> int:
    return 1900 + number % 50


CASES: list[tuple[str | Condition, Callable[[int], bool]]] = [
    ("year = 1907", lambda n: year(n) == 1907),
    ("year=1907", lambda n: year(n) == 1907),
    ("year != 1907", lambda n: year(n) != 1907),
    ("year >= 1930", lambda n: year(n) >= 1930),
    ("year < 1910.5", lambda n: year(n) < 1910.5),
    ("weight > 4.25", lambda n: n / 4 > 4.25),
    ("weight <= 4.25", lambda n: n / 4 <= 4.25),
    ("year in 1901, 1902,1950", lambda n: year(n) in (1901, 1902, 1950)),
    ("place = Łódź", lambda n: n % 3 == 2),
    ("place in Paris,Wien", lambda n: n % 3 < 2),
    ("place contains PAR", lambda n: n % 3 == 0),
    ("place contains łÓ", lambda n: n % 3 == 2),
    ("tags = odd", lambda n: n % 2 == 1),
    ("tags != odd", lambda n: n % 2 == 0),
    ("rare = true", lambda n: n % 5 == 0),
    ("rare != true", lambda n: n % 5 != 0),
    ("taken < 2021-03-05", lambda n: n % 28 < 4),
    ("taken = 2021-03-05", lambda n: n % 28 == 4),
    ("taken != 2021-03-05", lambda n: n % 28 != 4),
    ("taken <= 2021-03-05", lambda n: n % 28 <= 4),
    # A day without a time is possibly after its noon.
    ("taken >= 2021-03-04T12:00:00", lambda n: n % 28 >= 4 or (n % 28 == 3 and n % 3 == 0)),
    (Condition("taken", ">", datetime.date(2021, 3, 5)), lambda n: n % 28 > 4),
    (Condition("taken", "in", [datetime.date(2021, 3, 1), datetime.date(2021, 3, 9)]), lambda n: n % 28 in (0, 8)),
    (Condition("year", "in", []), lambda n: False),
    (Condition("year", "!=", [1901, 1902]), lambda n: year(n) not in (1901, 1902)),
    ("id = p7", lambda n: n == 7),
    ("id in p7, p8", lambda n: n in (7, 8)),
    ("id != p7", lambda n: n != 7),
    ("id contains P1", lambda n: str(n).startswith("1")),
    ("text contains word7", lambda n: n == 7),
    ("text contains BOAT 7 word7", lambda n: n == 7),
    ("text contains word", lambda n: False),
    ('text contains ""weird"" (AND', lambda n: False),
    ("text contains ?!", lambda n: False),
    ('year = "1907"', lambda n: False),
]
"""Conditions, and which pictures fulfil them."""


def assert_as_a_loop_says(
    store: Store, condition: str | Condition, wanted: Callable[[int], bool], queries: np.ndarray
) -> None:
    """Assert that a condition gives those of 40 pictures that a loop gives, and that a search among them does too."""
    where = [parse(condition) if isinstance(condition, str) else condition]
    numbers = [number for number in range(40) if wanted(number)]
    with store.reading() as view:
        keys = matching(view, "images", where)
        held = [item.id for item in view.items("images", np.asarray(keys))]
        found = view.nearest("images", queries, top=6, among=keys)
        got = [[item.id for item in view.items("images", each.keys)] for each in found]
    assert held == [f"p{number}" for number in numbers], (held, numbers)
    looped = plain(queries, numbers, top=6)
    assert got == looped, (got, looped)


def answers(store: Store, queries: np.ndarray, *, side: str = "images", top: int = 7) -> list[list[tuple[str, float]]]:
    """The ids and scores of the hits of each query."""
    with store.reading() as view:
        found = view.nearest(side, queries, top=top)  # type: ignore[arg-type]
        items = [view.items(side, each.keys) for each in found]  # type: ignore[arg-type]
    each = zip(items, found, strict=True)
    return [list(zip([item.id for item in own], one.scores.tolist(), strict=True)) for own, one in each]


def assert_same_items(mine: View, theirs: View) -> None:
    """Assert that two stores have the same items and vectors, whatever they are kept in."""
    for side in ("images", "texts"):
        keys = matching(mine, side, [])
        np.testing.assert_array_equal(keys, matching(theirs, side, []))
        for what in ("items", "partners"):
            got, wanted = (getattr(view, what)(side, keys[::-1]) for view in (mine, theirs))
            assert got == wanted, (side, what)
        assert mine.fields(side) == theirs.fields(side), side
        for some in ([3, 1, 3], [3, 1, 33]):
            np.testing.assert_array_equal(mine.vectors(side, keys[some]), theirs.vectors(side, keys[some]))
        np.testing.assert_array_equal(sample(mine, side, 5), sample(theirs, side, 5))
        assert mine.counts == theirs.counts, side


def calibration(store: Store) -> Calibration | None:
    """What the scores of an index are worth, as it keeps it."""
    with store.reading() as view:
        return calibrations.stored_calibration(view)


def calibration_mark(store: Store) -> float:
    with store.reading() as view:
        return calibrations.calibration_mark(view)


ODD: list[dict[str, object]] = [
    *(
        {"n": value}
        for value in (5, "5", [5, "five"], 2**60, 2**60 + 1, 1e300, 10**40, True, -0.0, [1, 9], [2**60 + 1, 3])
    ),
    *({"s": value} for value in ("Straße", "STRASSE", ["straße", "Zürich"], "it's 100 %_\\", "\u0301", ["a", 7, "b"])),
    *({"s": value} for value in ("x" * 300, ["y" * 300, "strasse"], "abc " * 90, "x" * 299 + "z")),
    *({"d": value} for value in ("1923", "um 1900", "before 1900", "after 1945", ["1890", "1950-05-05"], 1923, 1923.5)),
    *({"d": value} for value in (["1890", 1950], "someday", "1923-06-07T10:11:12", ["1923", "before 1800"])),
    {"m": {"x": 1, "y": "z"}, "n": 5, "s": "strasse", "d": "1923-06"},
    {"s": ["b", "a"], "n": [5, 6, 7], "d": ["1923-06-07", "1999"], "Ort.ä b": "here"},
    {},
]
"""Metadata of pictures that is not of one kind: fields of texts and numbers, lists, texts of any length, open dates."""
ODD_CONDITIONS: list[str | Condition] = [
    *(f"n {test} {value}" for test in ("=", "!=", "<", ">=") for value in (5, 0, 1.5, 2**60 + 1, "1e300")),
    *(Condition("n", test, value) for test in ("<=", ">") for value in (2**60, 10**40, float("inf"))),  # type: ignore[arg-type]
    *(f"n in {values}" for values in ("5, five", "7, 9, true", str(10**40))),
    *(
        f"s {test} {value}"
        for test in ("=", "!=", "contains")
        for value in ("STRASSE", "zuRICH", "x" * 300, "abc", "a")
    ),
    *(f"s contains {value}" for value in ("it's 100 %_\\", "%", "_", "z", "0", "x" * 250)),
    *(f"s in {values}" for values in ("a, 7", "strasse, b", "nothing")),
    *(f"d {test} {value}" for test in ("=", "!=", "<", "<=", ">", ">=") for value in ("1923", "1923-06-07", "um 1900")),
    *(
        Condition("d", test, parse(f"d = {value}").values[0], certain=True)
        for test in ("=", "!=", "<", ">=")
        for value in ("1923", "1899-12-31")
    ),  # type: ignore[arg-type]
    *("m.x = 1", "m.y = Z", "m.y != z", "Ort.ä b = HERE", "late = 3", "late != 3", "late contains x", "late < 1950"),
]


def assert_odd_metadata_is_filtered(store: Store, plain: Store) -> None:
    """Assert that two stores give the same items, through changes, and fields and kinds of values that come later."""
    changes = []
    entries = [IndexEntry(f"o{number}", b"%d" % number, metadata=own) for number, own in enumerate(ODD)]
    later = [
        IndexEntry(f"l{number}", b"l", metadata={"late": own}) for number, own in enumerate([3, "3", ["x", 3], "1923"])
    ]
    for name in (entries[1::2], entries[::2], later):
        changes.append(Change("images", name, vectors(range(500, 500 + len(name)), VIEWS)))
    other = {"n": "fünf", "s": ["Straße"], "late": "x"}
    amended = [replace(entry, metadata=own) for entry, own in zip(entries[::5], [other, {}] * 9, strict=False)]
    changes += [Change("images", amended=amended), Change("images", deleted=["o1", "l0", "l2", "o7"])]
    for own in (store, plain):
        with own.writing("add") as writer:
            for change in changes:
                writer.apply(change)
    wanted = [parse(own) if isinstance(own, str) else own for own in ODD_CONDITIONS]

    def compare(cases: list[list[Condition]]) -> None:
        with store.reading() as mine, plain.reading() as theirs:
            assert mine.fields("images") == theirs.fields("images")
            for name in (own + more for own in theirs.fields("images") for more in ("", DATE, NUMBER)):
                found = [view.values("images", name, limit=9) for view in (mine, theirs)]
                # A folder has the ends of numbers beyond 64 bits as floats.
                got, right = (replace(own, range=own.range and tuple(map(float, own.range))) for own in found)
                assert got == right, (name, got, right)
                assert mine.dates("images", name) == theirs.dates("images", name), name
            for where in cases:
                got, right = (
                    {item.id for item in view.items("images", matching(view, "images", where, strict=False))}
                    for view in (mine, theirs)
                )
                assert got == right, (where, got - right, right - got)
                assert mine.count("images", where) == theirs.count("images", where), where
                if where[0].field == "d":
                    assert count_dates(mine, "images", where) == count_dates(theirs, "images", where), where

    compare([[own] for own in wanted])
    with store.writing("compact") as writer:
        writer.compact()
    compare([[wanted[n], wanted[-7 * n % len(wanted)]] for n in range(0, len(wanted), 4)])
