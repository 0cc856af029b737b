"""Dates as texts of digits, and the order of items by date."""

from __future__ import annotations

from itertools import product

import pytest

from subtext.data.dates import END, DateInterval, read_date, year_interval
from subtext.retrieval.stores.facets import DIGITS, earliest, interval_at, interval_tests, place_of, sortable

INTERVALS = [
    (-END, -400), (-END, 5), (-END, END), (-400, -300), (-400, 90), (0, 0), (0, 1), (5, 5), (5, END), (7, 10**15),
]  # fmt: skip


def test_interval_is_read_back_from_its_digits_which_sort_as_it_does() -> None:
    written = [sortable(DateInterval(first, last, "")) for first, last in INTERVALS]
    assert [interval_at(text) for text in written] == INTERVALS == sorted(INTERVALS)
    assert written == sorted(written) and {len(text) for text in written} == {2 * DIGITS}


@pytest.mark.identity
@pytest.mark.parametrize("certain", [False, True])
def test_tests_of_intervals_are_those_of_their_seconds(certain: bool) -> None:
    """Every second of the stored interval fulfils the test with some second of the value, or one of them does."""
    small = [(first, last) for first, last in product(range(6), repeat=2) if first <= last]
    compare = {
        "=": lambda second, first, last: first <= second <= last,
        "<": lambda second, first, last: second < first,
        "<=": lambda second, first, last: second <= last,
        ">": lambda second, first, last: second > last,
        ">=": lambda second, first, last: second >= first,
    }
    for stored, value in product(small, repeat=2):
        text = sortable(DateInterval(*stored, ""))
        ends = {"first": text[:DIGITS], "last": text[DIGITS:]}
        for test, meets in compare.items():
            seconds = [meets(second, *value) for second in range(stored[0], stored[1] + 1)]
            held = []
            for end, limit in interval_tests(test, DateInterval(*value, ""), certain=certain).items():
                name, sign = end.split()
                held.append(ends[name] < limit if sign == "<" else ends[name] >= limit)
            assert all(held) == (all(seconds) if certain else any(seconds)), (stored, test, value)


@pytest.mark.parametrize(
    ("metadata", "year"),
    [
        ({"made": 1950}, 1950), ({"made": 9999}, 9999), ({"made": -9999}, -9999), ({"made": [1990, 1950]}, 1950),
        ({"made": 10_000}, None), ({"made": -10_000}, None), ({"made": 1950.0}, None), ({"found": 1950}, None),
        ({"made": [10_000, 1990], "found": 1950}, 1990), ({}, None),
    ],
)  # fmt: skip
def test_whole_number_of_a_field_of_dates_is_a_year(metadata: dict[str, object], year: int | None) -> None:
    own = None if year is None else year_interval(year)
    assert earliest(metadata, "made") == (own and (own.first, own.last))


def test_earliest_of_several_dates_and_years_counts() -> None:
    day = read_date("1950-02-03")
    assert day is not None
    assert earliest({"made": ["1950-02-03", 1990, "1960"]}, "made") == (day.first, day.last)
    year = year_interval(1949)
    assert earliest({"made": ["1950-02-03", 1949]}, "made") == (year.first, year.last)


def test_items_stand_by_the_first_second_or_the_last_that_is_known() -> None:
    dates = [None, (5, 6), (1, 2), (5, 5), (-END, 3), (4, END), (1, 9)]
    ascending = sorted(range(7), key=lambda row: place_of(dates[row], descending=False))
    assert [dates[row] for row in ascending] == [(1, 2), (1, 9), (-END, 3), (4, END), (5, 5), (5, 6), None]
    descending = sorted(range(7), key=lambda row: place_of(dates[row], descending=True))
    assert [dates[row] for row in descending] == [(5, 6), (5, 5), (4, END), (-END, 3), (1, 9), (1, 2), None]
    assert place_of((1, 2), descending=True) == (0, -1, -2) and place_of(None, descending=True) == (1, 0, 0)
