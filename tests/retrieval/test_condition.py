"""Filters give exactly what a loop over all items gives, and never fewer hits than there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import stored_items

from subtext.data.dates import DateInterval, read_date, year_interval
from subtext.errors import RequirementError
from subtext.retrieval import condition
from subtext.retrieval.condition import (
    count_dates,
    is_of_dates,
    matching,
    missed,
    named,
    near_texts,
    parse,
    places_by_date,
    require_dates,
)
from subtext.retrieval.stores.facets import Condition
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change, IndexEntry

QUERIES = stored_items.vectors(range(1000, 1003), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return stored_items.made(tmp_path_factory.mktemp("filters") / "index")


def test_all_conditions_must_hold(folder: Folder) -> None:
    where = [parse("year < 1930"), parse("tags = odd"), parse("place in Paris, Wien"), parse("text contains rowing")]
    with folder.reading() as view:
        found = [item.id for item in view.items("images", matching(view, "images", where))]
        assert found == [f"p{n}" for n in range(30) if n % 2 and n % 3 < 2]
        texts = view.items("texts", matching(view, "texts", [parse("text contains word5"), parse("language = en")]))
        assert [item.id for item in texts] == ["t5"]
        assert view.fields("images") == ["place", "rare", "tags", "taken", "weight", "year"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("year", "needs the form FIELD TEST VALUE"),
        ("year ~ 3", "needs the form FIELD TEST VALUE"),
        ("year == 1990", "tests equality by one =; it got 'year == 1990'; write 'year = VALUE'"),
        ("text = boat", "'text' takes only contains"),
        ("id < 5", "'id <' has no meaning; ids have no order"),
        ("place contains '  '", "'place contains' needs a text"),
        ("place in (Paris, Wien)", r"without brackets; it got \(Paris, Wien\); write 'place in Paris, Wien'"),
        ("place in [Paris, Wien]", "write 'place in Paris, Wien'"),
        ("taken > 2021-03-05T10:00+01:00", "leave out the offset from UTC"),
        ("taken <= 2021-03-05 10:00:00Z", "compares the clock where an image was taken"),
    ],
)
def test_invalid_conditions_raise(written: str, told: str) -> None:
    with pytest.raises(RequirementError, match=told):
        parse(written)


@pytest.mark.parametrize(("query", "shown"), [("p7", []), ("P7", []), ("p7", ["p7"]), ("Paris", []), ("p99", [])])
def test_query_that_is_an_inventory_number_gets_a_note(folder: Folder, query: str, shown: list[str]) -> None:
    with folder.reading() as view:
        notes = named(view, "images", query, shown)
    wanted = ("an image has the id 'p7': `id = p7` as a condition finds it",)
    assert notes == (wanted if query.casefold() == "p7" and not shown else ())


DAY, MONTH = read_date("2021-03-05"), read_date("2021-03")


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        ("code = x", Condition("code", "=", "x")),
        ("code = '7'", Condition("code", "=", "7")),
        ('code = "', Condition("code", "=", '"')),
        ("code = ''", Condition("code", "=", "")),
        ("code = 'a\"", Condition("code", "=", "'a\"")),
        ('code = "a" or "b"', Condition("code", "=", '"a" or "b"')),
        ('code = "say ""a"""', Condition("code", "=", 'say "a"')),
        ("code = 007", Condition("code", "=", "007")),
        ("code = NaN", Condition("code", "=", "NaN")),
        ("code = 1_000", Condition("code", "=", "1_000")),
        ("code = 9223372036854775808", Condition("code", "in", [2**63, str(2**63)])),
        ('code in "a, b", c, \'d\', O\'Brien, "e" f', Condition("code", "in", ["a, b", "c", "d", "O'Brien", '"e" f'])),
        ("code in (a), [b]", Condition("code", "in", ["(a)", "[b]"])),
        ("code in [a]", Condition("code", "in", ["[a]"])),
        ("code in (a), b, (c)", Condition("code", "in", ["(a)", "b", "(c)"])),
        ("code in (a, b))", Condition("code", "in", ["(a", "b))"])),
        ("code in a,, 'b' ,", Condition("code", "in", ["a", "", "b"])),
        ("code = 1E3", Condition("code", "in", [1000.0, "1E3"])),
        ("code = 1.5", Condition("code", "in", [1.5, "1.5"])),
        ("Code of it = x", Condition("Code of it", "=", "x")),
        ("code-in = x", Condition("code-in", "=", "x")),
        ("made by in a = b, c", Condition("made by", "in", ["a = b", "c"])),
        ("code = true", Condition("code", "in", [1, "true"])),
        ("code != false", Condition("code", "!=", [0, "false"])),
        ("code != x", Condition("code", "!=", "x")),
        ("code in 1, x", Condition("code", "in", [1, "1", "x"])),
        ("code in x", Condition("code", "in", ["x"])),
        ("code = a, b", Condition("code", "=", "a, b")),
        ("taken < 2021-03-05", Condition("taken", "<", DAY)),
        ("taken = 2021-03-05", Condition("taken", "in", [DAY, "2021-03-05"])),
        ("taken>=2021-03-05T01:00", Condition("taken", ">=", read_date("2021-03-05T01:00"))),
        ("taken < 2021-03", Condition("taken", "<", MONTH)),
        ("taken != 2021-03", Condition("taken", "!=", [MONTH, "2021-03"])),
        ("taken < um 1900", Condition("taken", "<", read_date("um 1900"))),
        ("taken = -0043", Condition("taken", "in", [read_date("-0043"), "-0043"])),
        ("taken < 2021-13", Condition("taken", "<", "2021-13")),
        ("taken < 2021", Condition("taken", "<", 2021)),
        (" title  contains  'a dog' ", Condition("title", "contains", "a dog")),
        ("text contains 7", Condition("text", "contains", "7")),
        ("title contains 7", Condition("title", "contains", "7")),
    ],
)
def test_typed_conditions_are_parsed(written: str, condition: Condition) -> None:
    read = parse(written)
    assert read == condition and list(map(type, read.values)) == list(map(type, condition.values))


def test_day_matches_one_of_several_dates(tmp_path: Path) -> None:
    """Two dates, one before a day and one after it, are not that day."""
    folder = Folder.create(tmp_path / "index", stored_items.manifest())
    with folder.writing("add") as writer:
        entry = IndexEntry("a", b"c", metadata={"shot": ["2021-03-01", "2021-03-09T10:00:00"]})
        writer.put(Change("images", [entry], stored_items.vectors(range(1), stored_items.VIEWS)))
    with folder.reading() as view:
        for day, found in {"01": 1, "05": 0, "09": 1}.items():
            assert len(matching(view, "images", [parse(f"shot = 2021-03-{day}")])) == found
        days = [date.fromordinal(date(2021, 3, 1).toordinal() + number) for number in range(-1500, 1500)]
        for chosen, found in ((days, 1), (days[:1500], 0)):
            named = ", ".join(day.isoformat() for day in chosen)
            assert len(matching(view, "images", [parse(f"shot in {named}")])) == found


@pytest.fixture(scope="module")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder.create(tmp_path_factory.mktemp("dates") / "index", stored_items.manifest())
    known = {"a": "1958", "b": "1958-07", "c": "1958-07-03", "d": "1959-12-31T23:59:59", "e": "1960-01-01", "f": 1958}
    entries = [IndexEntry(name, name.encode(), metadata={"date": value}) for name, value in known.items()]
    entries.append(IndexEntry("g", b"g", metadata={"date": ["1957-01-01", "1961-01-01"], "year": 1958}))
    with folder.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(7), stored_items.VIEWS)))
    return folder


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("date = 1958", "abcf"), ("date = 1958-07", "abcf"), ("date = 1958-07-03", "abcf"), ("date = 1959", "d"),
        ("date = 1958-08", "af"), ("date = 1950", ""), ('date = "1958"', "a"), ("date in 1958-07, 1960", "abcef"),
        ("date != 1958", "deg"), ("date != 1958-07", "adefg"), (Condition("date", "=", 1958), "abcf"),
        ("date < 1959", "abcfg"), ("date <= 1959", "abcdfg"), ("date > 1959", "eg"), ("date >= 1959", "deg"),
        ("date < 1958", "g"), ("date > 1961", ""), ("date > 1958-07", "adefg"), ("date >= 1958-07", "abcdefg"),
        ("date <= 1958-07", "abcfg"), ("date < 1958-07", "afg"), (Condition("date", ">=", 1960), "eg"),
        ("year = 1958", "g"), ("year >= 1958", "g"), ("year > 1958", ""), ("Year = 1958", "g"),
    ],
)  # fmt: skip
def test_date_possibly_meets_a_condition(dates: Folder, written: str | Condition, found: str) -> None:
    where = [parse(written) if isinstance(written, str) else written]
    with dates.reading() as view:
        assert "".join(item.id for item in view.items("images", matching(view, "images", where))) == found


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("date = 1958", "abcf"), ("date = 1958-07", "bc"), ("date = 1958-07-03", "c"), ("date in 1958-07, 1960", "bce"),
        ("date = 1958-08", ""), ("date != 1958", "deg"), ("date != 1958-07", "deg"), ("date != 1958-08", "bcdeg"),
        ("date < 1958-08", "bcg"), ("date <= 1958-07", "bcg"), ("date < 1959", "abcfg"), ("date > 1958-06", "bcdeg"),
        ("date >= 1958-07", "bcdeg"), ("date >= 1958", "abcdefg"), ("date > 1957-12", "abcdefg"),
    ],
)  # fmt: skip
def test_date_certainly_meets_a_condition(dates: Folder, written: str, found: str) -> None:
    with dates.reading() as view:
        keys = matching(view, "images", [replace(parse(written), certain=True)])
        assert "".join(item.id for item in view.items("images", keys)) == found


def test_dates_are_counted_possibly_certainly_and_undated(dates: Folder) -> None:
    with dates.reading() as view:
        for written, counts in {
            ("date = 1958-07",): (4, 2, 0), ("date >= 1958", "date < 1958-08"): (5, 3, 0), ("year = 1958",): None,
            ("date >= 1958", "year = 1958"): (1, 1, 0), ("id contains a",): None,
        }.items():  # fmt: skip
            counted = count_dates(view, "images", [parse(text) for text in written])
            assert (counted and (counted.possible, counted.certain, counted.undated)) == counts, written
    with pytest.raises(RequirementError, match="order needs a field that some images have; it got 'taken'"):
        require_dates(view, "images", "taken")


def test_unmatched_values_suggest_nearest(folder: Folder) -> None:
    def told(*written: str) -> list[str]:
        where = [parse(text) for text in written]
        return list(missed(view, "images", where, nothing=not len(matching(view, "images", where))))

    with folder.reading() as view:
        paris = "no image has place 'pariss'; the nearest: 'Paris'"
        assert told("place = pariss") == told("place != pariss") == told("place = Wien", "place = pariss") == [paris]
        others = "'place' is text (Paris, Łódź, Wien)"
        assert told("place in pariss, Rom") == [paris, f"no image has place 'Rom'; {others}"]
        assert told("id = p99") == ["no image has id 'p99'"] and told("rare = no")[0].startswith(
            "no image has rare 'no'"
        )
        for known in ("place = Paris", "place in paris, Wien", "place != Wien", "place contains paris", "year != 1907"):
            assert told(known) == []
        for known in ("place in Paris, Wien", "taken = 2021-03-01", "year = 1901", "place contains Rom", "year > 1900"):
            assert told(known, "place = Paris", "place = Wien") == []
        assert told("taken = 2021") == [] and told("taken = 1890")[0].startswith(
            "no image has taken '1890'; 'taken' is a"
        )


def test_suggestions_have_a_budget(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(word: str, candidates: list[str], *_: object) -> list[str]:
        compared.append(len(word) * len(candidates))
        return []

    monkeypatch.setattr(condition, "get_close_matches", counted)
    where = [Condition("place", test, [f"nowhere {n}" for n in range(200)]) for test in ("!=", "in")]
    with folder.reading() as view:
        notes = missed(view, "images", where, nothing=True)
        assert near_texts("x" * 1000, ["y"] * 10_000, 1, cutoff=0.6) == []
    assert len(compared) == condition.SUGGESTED + 1 and max(compared) <= condition.LETTERS
    assert len(notes) == 12 and notes[10] == "of the 200 values of 'place' the first 10 were looked up"
    assert sum("'place' is text" in note for note in notes) == condition.SUGGESTED


def test_lenient_conditions_match_nothing_without_error(folder: Folder) -> None:
    with folder.reading() as view:
        for written in ("gone = 3", "place > Paris'", "taken = foo", "taken < 2015"):
            where = [parse(written)] if "'" not in written else [Condition("year", ">", date(2021, 1, 1))]
            assert not len(matching(view, "images", where, strict=False))


def test_condition_takes_one_or_several_values() -> None:
    for value in ("a", 1, 1.5, date(2021, 3, 5)):
        assert Condition("code", "=", value).values == [value]
    assert Condition("code", "!=", [1, 2]).values == [1, 2]
    with pytest.raises(RequirementError, match="one of =, !=, <, <=, >, >=, in, contains; it got '~'"):
        Condition("code", "~", 1)  # type: ignore[arg-type]
    with pytest.raises(RequirementError, match="'code contains' needs a text; it got 3"):
        Condition("code", "contains", 3)
    for test in ("<", "<=", ">", ">="):
        assert Condition("code", test, 1).values == [1]  # type: ignore[arg-type]
        with pytest.raises(RequirementError, match=f"'id {test}' has no meaning; ids have no order"):
            Condition("id", test, 1)  # type: ignore[arg-type]


def test_conditions_are_type_checked(folder: Folder) -> None:
    with pytest.raises(RequirementError, match="'year in' needs several values; it got 3"):
        Condition("year", "in", 3)
    with pytest.raises(RequirementError, match="'year =' needs one value"):
        Condition("year", "=", [3, 4])
    with (
        folder.reading() as view,
        pytest.raises(RequirementError, match=r"none has 'yaer'; there are place, rare, tags.* the nearest: 'year'"),
    ):
        matching(view, "images", [parse("zebra = 3"), parse("yaer = 3")])


def test_quoting_cannot_escape_the_value(folder: Folder) -> None:
    for value in ("'; DROP TABLE items; --", '" OR 1=1 --', "x') UNION SELECT key FROM items --"):
        with folder.reading() as view:
            assert len(matching(view, "images", [Condition("place", "=", value)])) == 0
            assert len(matching(view, "images", [Condition("text", "contains", value)])) == 0
            assert len(matching(view, "images", [Condition("place", "contains", value)])) == 0
            assert len(view.search_text(value, top=3)) <= 1, "1 is a word of one text"
    assert folder.counts["images"] == 40


def test_filters_follow_changes_and_deletions(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    with folder.writing("add") as writer:
        writer.delete("images", ["p7"])
        writer.put(Change("images", amended=[replace(stored_items.picture(8), metadata={"year": 1907, "place": 7})]))
    with folder.reading() as view:
        assert [i.id for i in view.items("images", matching(view, "images", [parse("year = 1907")]))] == ["p8"]
        assert [i.id for i in view.items("images", matching(view, "images", [parse("place > 3")]))] == ["p8"]


@pytest.mark.parametrize("condition", ["place = Paris", "tags = odd", "rare = true", "year >= 0", "id in p3, p4"])
def test_filtered_list_search_returns_all_matches(tmp_path: Path, condition: str) -> None:
    """Beyond the size where all vectors are compared a filter is exact still, or looks at more lists."""
    folder = stored_items.made(tmp_path / "index", pictures=300, exact_up_to=60)
    with folder.writing("compact") as writer:
        writer.compact()
    with folder.reading() as view:
        assert view.sides["images"].by_lists
        keys = matching(view, "images", [parse(condition)])
        exact = view.nearest("images", QUERIES, top=10, among=keys, exact=True)
        found = view.nearest("images", QUERIES, top=10, among=keys)
    same = [len(set(a.keys.tolist()) & set(b.keys.tolist())) for a, b in zip(exact, found, strict=True)]
    assert [len(each.keys) for each in found] == [min(10, len(keys))] * 3
    assert set(found[0].keys.tolist()) <= set(keys.tolist())
    assert sum(same) >= (0.9 if len(keys) > 60 else 1.0) * sum(len(each.keys) for each in exact)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "place > Paris",
            r"'place >' needs a number or a date .* it got 'Paris'; 'place' is text \(.*, .*, .*\); test it",
        ),
        ("place >= 3", r"'place >=' needs .* it got '3'; 'place' is text \("),
        *(
            (
                f"taken {test} {value}",
                rf"'taken {test}' needs a number or a date .*; it got '{value}'; 'taken' is a date "
                r"\(.*, .*, .*\); name a day, a month or a year, as in 2021-03-05, or um 1900",
            )
            for test in ("=", "!=", "<", ">=")
            for value in ("foo", "2021-13", "o. D.")
        ),
        ("taken in foo, bar", "'taken =' needs a number or a date to compare with; it got 'foo'"),
        ("place = Paris and year > 1907", "it got 'Paris and year > 1907'; give each condition its own --where"),
        ("place != Paris AND year > 1907", "'place !=' needs a value without a further condition"),
        ("text contains boat and place = Paris", "'text contains' needs a value without a further condition"),
        ("taken > 2021 and rare and id = p7", "'taken >' needs a value without a further condition"),
        ("place in Paris Wien", "needs commas between its values; it got 'Paris Wien'; write 'place in Paris, Wien'"),
        ("year < 2021-03-05", r"'year' is a number \(\d+, \d+, \d+\); name a number"),
        ("yaer < 5", r"none has 'yaer'; there are .*; the nearest: 'year' is a number"),
    ],
)
def test_limit_of_wrong_type_raises_with_values(folder: Folder, written: str, told: str) -> None:
    with folder.reading() as view, pytest.raises(RequirementError, match=told):
        matching(view, "images", [parse(written)])
    with folder.reading() as view:
        assert not len(matching(view, "images", [parse("year < -99")])), "a limit of the right type may match nothing"


YEARS = range(1986, 1995)


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Images whose date is a number, and one whose date is a day: a field of numbers alone has no dates."""
    folder = Folder.create(tmp_path_factory.mktemp("years") / "index", stored_items.manifest())
    entries = [IndexEntry(f"{year}", b"x", metadata={"made": year}) for year in YEARS]
    entries.append(IndexEntry("1990-06-15", b"x", metadata={"made": "1990-06-15"}))
    with folder.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(len(entries)), stored_items.VIEWS)))
    return folder


def meets(test: str, own: DateInterval, asked: DateInterval, *, certain: bool) -> bool:
    """Whether some second of a date fulfils a test with some second of another, or whether it does for certain."""
    # The second that decides: the most favourable one of the item, or the least.
    early, late = (own.last, own.first) if certain else (own.first, own.last)
    return {
        "=": asked.first <= late and early <= asked.last,
        "<": early < asked.first,
        "<=": early <= asked.last,
        ">": late > asked.last,
        ">=": late >= asked.first,
    }[test]


@pytest.mark.identity
@pytest.mark.parametrize(
    "value", ["1990-06", "1990-01-01", "1990-12-31", "1989-03/1991-02", "1988-12-31/1990-01-01", "1990-01-01T00:00:01"]
)
def test_years_meet_conditions_on_days_as_a_loop_has_it(years: Folder, value: str) -> None:
    asked = read_date(value)
    assert asked is not None
    for test in ("=", "<", "<=", ">", ">="):
        for certain in (False, True):
            known = {name: read_date(name) for name in [*map(str, YEARS), "1990-06-15"]}
            expected = {name for name, own in known.items() if own and meets(test, own, asked, certain=certain)}
            with years.reading() as view:
                keys = matching(view, "images", [Condition("made", test, asked, certain)])
                assert {item.id for item in view.items("images", keys)} == expected, (test, certain)


def test_dates_are_counted_beside_conditions_that_nothing_fulfils(dates: Folder) -> None:
    with dates.reading() as view:
        for other in ("colour = red", "year = nowhere", "year > x"):
            counted = count_dates(view, "images", [parse("date >= 1958"), parse(other)])
            assert counted is not None and (counted.possible, counted.certain, counted.undated) == (0, 0, 0)


def test_three_similar_values_are_named_and_long_ones_are_cut(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "index", stored_items.manifest())
    entries = [IndexEntry(f"{n}", b"x", metadata={"town": f"Neustadt {n}"}) for n in range(6)]
    with folder.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(6), stored_items.VIEWS)))
    with folder.reading() as view:
        (near,) = missed(view, "images", [Condition("town", "=", "Neustadt 9")], nothing=True)
        (long,) = missed(view, "images", [Condition("town", "=", "z" * 100)], nothing=True)
    assert near.count("'Neustadt") == 4, "the one that was asked for, and three"
    assert long.startswith(f"no image has town '{'z' * 72}'")


@pytest.mark.parametrize(
    ("written", "value"),
    [(".5", 0.5), ("-.25", -0.25), ("1e3", 1000.0), ("2.5E2", 250.0), ("1.0", 1.0), ("+7", 7), ("-3", -3)],
)
def test_numbers_are_read_in_every_notation(written: str, value: float) -> None:
    read = parse(f"weight > {written}").value
    assert read == value and type(read) is type(value)


CELLS: dict[str, list[object]] = {
    "dated": [
        1950, 9999, -44, 10_000, "1950", "12.50", "007", "1950-03", "um 1900", "N/A", ["1950-03-04", 1900], None,
    ],
    "sized": [1950, 12.5, True, "12.50", "007", "n/a", ["7", "x"], None],
    "counted": [1950, 12.5, -44, [7, 1], None],
}  # fmt: skip
"""Values of fields: with dates, with texts of which none is a date, and of numbers alone."""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder.create(tmp_path_factory.mktemp("mixed") / "index", stored_items.manifest())
    cells = [(f"{name} {row}", name, cell) for name, own in CELLS.items() for row, cell in enumerate(own)]
    entries = [IndexEntry(item, b"x", metadata={} if cell is None else {name: cell}) for item, name, cell in cells]
    with folder.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(len(entries)), stored_items.VIEWS)))
    return folder


def holds(own: object, test: str, value: object, *, has_dates: bool, certain: bool) -> bool:
    """Whether one value of an item fulfils a condition of one value."""

    def as_date(it: object) -> DateInterval | None:
        if isinstance(it, DateInterval):
            return it
        if isinstance(it, str):
            return read_date(it) if it is own else None
        return year_interval(it) if type(it) is int and (abs(it) <= 9999 or it is own) and has_dates else None

    if isinstance(value, str):
        return test == "=" and isinstance(own, str) and own.casefold() == value.casefold()
    numbers = {int: own, float: own, bool: own, str: {"12.50": 12.5, "7": 7, "1950": 1950}.get(own)}[type(own)]
    compared = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[test]
    if isinstance(value, int | float) and numbers is not None and getattr(float(numbers), compared)(float(value)):
        return True
    mine, asked = as_date(own), as_date(value)
    both_numbers = not isinstance(own, str) and isinstance(value, int | float)
    return not both_numbers and bool(mine and asked) and meets(test, mine, asked, certain=certain)


@pytest.mark.identity
@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("field", list(CELLS))
def test_values_of_every_kind_are_compared_as_a_loop_compares_them(mixed: Folder, field: str, certain: bool) -> None:
    every = [
        (f"{name} {row}", cell if name == field else None) for name in CELLS for row, cell in enumerate(CELLS[name])
    ]

    def loop(condition: Condition) -> set[str]:
        sure = certain != (condition.test == "!=")
        test = "=" if condition.test in ("in", "!=") else condition.test
        found = {
            item
            for item, cell in every
            for own in ([] if cell is None else cell if isinstance(cell, list) else [cell])
            if any(holds(own, test, it, has_dates=field == "dated", certain=sure) for it in condition.values)
        }
        return {item for item, _ in every} - found if condition.test == "!=" else found

    typed = [
        "1950",
        "12.5",
        "9999",
        "10000",
        "-44",
        "1",
        "007",
        "n/A",
        "1950-03",
        "1900-02-03",
        "um 1900",
        "1950, x, 7",
    ]
    written = [f"{field} {test} {value}" for value in typed for test in ("=", "!=", "<", "<=", ">", ">=", "in")]
    where = [parse(text) for text in written if ", x" not in text or "in" in text]
    where = [replace(one, certain=certain) for one in where if one.test in ("=", "!=", "in") or one.value not in typed]
    with mixed.reading() as view:
        for one, other in zip(where, [*where[5:], *where[:5]], strict=True):
            for chosen in ([one], [one, other]):
                keys = matching(view, "images", chosen, strict=False)
                expected = set.intersection(*map(loop, chosen))
                assert {item.id for item in view.items("images", keys)} == expected, chosen


def index_of(folder: Path, *metadata: dict[str, object]) -> Folder:
    """An index of images that have this metadata; their ids are 0, 1, 2 ..."""
    index = Folder.create(folder / "index", stored_items.manifest())
    entries = [IndexEntry(f"{number}", b"x", metadata=dict(own)) for number, own in enumerate(metadata)]
    with index.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(len(entries)), stored_items.VIEWS)))
    return index


def test_items_without_a_date_or_year_in_one_of_two_fields_are_counted(tmp_path: Path) -> None:
    dates = ["1950-02-03", 1950, -44, "n/a", None]
    rows = [{"made": one, "found": other, "kind": "x"} for one in dates for other in dates]
    index = index_of(tmp_path, *({name: value for name, value in row.items() if value is not None} for row in rows))
    with index.reading() as view:
        for written, undated in {
            ("made > 0",): 10, ("found != 1950",): 10, ("made > 0", "found < 2000"): 16, ("made > 0", "kind = y"): 0,
        }.items():  # fmt: skip
            counted = count_dates(view, "images", [parse(text) for text in written])
            assert counted is not None and counted.undated == undated, written
        assert count_dates(view, "images", [parse("kind = 1950")]) is None is count_dates(view, "images", [])
        found = [key for _, key in places_by_date(view, "images", view.keys("images")[:5], "made")]
        assert found == view.keys("images")[:5].tolist()


def test_items_are_ordered_by_days_or_by_years_but_by_nothing_else(tmp_path: Path) -> None:
    index = index_of(tmp_path, {"day": "1950-02-03", "year": 1950, "both": 7, "place": "Rome"}, {"both": "1950"})
    with index.reading() as view:
        for field in ("day", "year", "both"):
            require_dates(view, "images", field)
        with pytest.raises(RequirementError, match="order needs a field with dates; 'place' is text"):
            require_dates(view, "images", "place")
        with pytest.raises(RequirementError, match=r"it got 'gone'; there are both, day, place, year$"):
            require_dates(view, "images", "gone")


@pytest.mark.parametrize("cells", [(["a"], False), (["1950"], True), (["1950", "a"], False), (["1950", "a", 3], False)])
@pytest.mark.parametrize("dated", [False, True])
def test_field_is_of_dates_where_more_than_half_of_its_values_are(
    tmp_path: Path, cells: tuple[list[object], bool], dated: bool
) -> None:
    values = [*cells[0], *(["1951", "1952", "1953"] if dated else [])]
    index = index_of(tmp_path, *({"made": value} for value in values))
    with index.reading() as view:
        assert is_of_dates(view, "images", "made") == (cells[1] or dated)


def test_ten_values_are_looked_up_and_three_get_a_suggestion(tmp_path: Path) -> None:
    index = index_of(tmp_path, *({"town": f"town {letter}"} for letter in "abc"))

    def told(count: int) -> tuple[str, ...]:
        with index.reading() as view:
            return missed(view, "images", [Condition("town", "in", [f"toun {n}" for n in range(count)])], nothing=True)

    assert [len(told(count)) for count in (9, 10, 11)] == [9, 10, 11]
    assert ["the first 10" in told(count)[-1] for count in (9, 10, 11)] == [False, False, True]
    assert ["the nearest" in note for note in told(5)] == [True, True, True, False, False]
    many = Condition("town", "!=", [f"toun {n}" for n in range(9)])
    with index.reading() as view:
        assert len(missed(view, "images", [many, many, many], nothing=False)) == 18, "ten or more are enough"
        assert missed(view, "images", [Condition("town", "=", "")], nothing=True) == (
            "no image has town ''; 'town' is text (town a, town b, town c)",
        )


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11])
def test_values_without_commas_are_told_from_one_value_of_many_words(tmp_path: Path, count: int) -> None:
    index = index_of(tmp_path, *({"town": f"t{number}"} for number in range(11)))
    where = [Condition("town", "in", [" ".join(f"t{number}" for number in range(count))])]
    with index.reading() as view:
        assert not len(matching(view, "images", [Condition("town", "in", ["", " ", "t0 u"])]))
        if not 1 < count <= 10:
            assert len(matching(view, "images", where)) == (count == 1)
            return
        with pytest.raises(RequirementError, match="needs commas between its values"):
            matching(view, "images", where)


@pytest.mark.parametrize(("length", "is_seen"), [(299, True), (300, True), (301, False)])
def test_further_condition_is_looked_for_in_a_value_of_up_to_300_letters(
    tmp_path: Path, length: int, is_seen: bool
) -> None:
    index = index_of(tmp_path, {"town": "Rome", "year": 7})
    for further, seen in ((" and year > 5", is_seen), (" and month > 5", False), (" and year and 5", False)):
        where = [Condition("town", "=", "x" * (length - len(further)) + further)]
        with index.reading() as view:
            if not seen:
                assert not len(matching(view, "images", where))
                continue
            with pytest.raises(RequirementError, match="needs a value without a further condition"):
                matching(view, "images", where)


def test_only_three_values_and_three_ands_of_one_are_looked_at(tmp_path: Path) -> None:
    index = index_of(tmp_path, {"town": "Rome", "year": 7})
    further = [f"{'x and ' * number}x and year > 5" for number in range(4)]
    listed = [["x"] * number + ["x and year > 5"] for number in range(4)]
    with index.reading() as view:
        for number, (value, values) in enumerate(zip(further, listed, strict=True)):
            for where in ([Condition("town", "=", value)], [Condition("town", "in", values)]):
                if number == 3:
                    assert not len(matching(view, "images", where))
                else:
                    with pytest.raises(RequirementError, match="needs a value without a further condition"):
                        matching(view, "images", where)


def test_letters_that_are_compared_are_50_000() -> None:
    for length in (1, 49_999, 50_000, 50_001):
        assert near_texts("x" * length, ["x" * length], 1, cutoff=0.6) == ["x" * length] * (length <= 50_000)
    for place in (48, 49, 50):
        found = near_texts("x" * 1000, ["y"] * place + ["x" * 1000], 1, cutoff=0.6)
        assert len(found) == (place < 50), "of texts of a thousand letters fifty are compared"


def test_four_ids_that_are_folded_alike_get_three_notes(tmp_path: Path) -> None:
    index = Folder.create(tmp_path / "index", stored_items.manifest())
    entries = [IndexEntry(name, b"x") for name in ("ab7", "Ab7", "aB7", "AB7")]
    with index.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(4), stored_items.VIEWS)))
    with index.reading() as view:
        assert len(named(view, "images", "ab7", [])) == 3


def test_name_of_a_field_is_taken_as_meant_where_one_is_folded_alike(tmp_path: Path) -> None:
    index = index_of(tmp_path, {"Year": 7, "Town": "x", "town": "y", "tOwn": "z"})
    with index.reading() as view:
        assert len(matching(view, "images", [parse("YEAR = 7")])) == 1
        assert len(matching(view, "images", [parse("town = y")])) == 1
        with pytest.raises(RequirementError, match="none has 'TOWN'"):
            matching(view, "images", [parse("TOWN = y")])
