"""Dates of museums and desks are intervals, in whatever notation they are written."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from subtext.data.dates import END, civil, day_text, days, interval_of, read_date, seconds_of, year_interval, year_of

WRITTEN = {
    # EDTF, as far as it is figures, and by the package edtf.
    "1890": ("1890-01-01", "1890-12-31"),
    "1890-06": ("1890-06-01", "1890-06-30"),
    "-0043": ("-0043-01-01", "-0043-12-31"),
    "1890/1895": ("1890-01-01", "1895-12-31"),
    "189X": ("1890-01-01", "1899-12-31"),
    "1890~": ("1889-01-01", "1891-12-31"),
    "1890%": ("1888-01-01", "1892-12-31"),
    "../1914": ("", "1914-12-31"),
    "1914/": ("1914-01-01", ""),
    "1984-06?": ("1984-05-01", "1984-07-31"),
    "2001-21": ("2001-03-01", "2001-05-31"),
    "1901-25": ("1901-01-01", "1925-12-31"),
    "Y12345": ("12345-01-01", "12345-12-31"),
    "[1667,1668,1670..1672]": ("1667-01-01", "1672-12-31"),
    "1890~/1895?": ("1889-01-01", "1896-12-31"),
    "-0043/0014": ("-0043-01-01", "0014-12-31"),
    "2004-02-XX": ("2004-02-01", "2004-02-29"),
    "Y14000000000": ("14000000000-01-01", "14000000000-12-31"),
    # Figures: the day before the month.
    "12.5.1951": ("1951-05-12", "1951-05-12"),
    "12. 5. 1951": ("1951-05-12", "1951-05-12"),
    "12/5/1951": ("1951-05-12", "1951-05-12"),
    "5/13/1951": ("1951-05-13", "1951-05-13"),
    "5.1951": ("1951-05-01", "1951-05-31"),
    "1951/5/12": ("1951-05-12", "1951-05-12"),
    "2019:07:14 09:05:00": ("2019-07-14", "2019-07-14"),
    "2024-01-01T23:30:00-05:00": ("2024-01-01", "2024-01-01"),
    "1951-05-00": ("1951-05-01", "1951-05-31"),
    "1954/55": ("1954-01-01", "1955-12-31"),
    "1899/00": ("1899-01-01", "1900-12-31"),
    "1890-95": ("1890-01-01", "1895-12-31"),
    "1909-10": ("1909-10-01", "1909-10-31"),
    "1909–10": ("1909-01-01", "1910-12-31"),
    "1921-23": ("1921-01-01", "1923-12-31"),
    "1951/05": ("1951-05-01", "1951-05-31"),
    "1951/1": ("1951-01-01", "1951-01-31"),
    "1951/12": ("1951-12-01", "1951-12-31"),
    "1951-12": ("1951-12-01", "1951-12-31"),
    "12/1951": ("1951-12-01", "1951-12-31"),
    "5/12/1951": ("1951-12-05", "1951-12-05"),
    "1912-13": ("1912-01-01", "1913-12-31"),
    "1951-00-00": ("1951-01-01", "1951-12-31"),
    "20190714T090500": ("2019-07-14", "2019-07-14"),
    "20.III.1848": ("1848-03-20", "1848-03-20"),
    # Words of doubt, before and after.
    "circa 1890": ("1889-01-01", "1891-12-31"),
    "c1890": ("1889-01-01", "1891-12-31"),
    "um 1900": ("1899-01-01", "1901-12-31"),
    "[1923?]": ("1922-01-01", "1924-12-31"),
    "1923 (?)": ("1922-01-01", "1924-12-31"),
    "vermutlich 1923": ("1922-01-01", "1924-12-31"),
    "1. Mai 1951?": ("1951-04-30", "1951-05-02"),
    "vor 1914": ("", "1913-12-31"),
    "bis 1914": ("", "1914-12-31"),
    "nach 1945": ("1946-01-01", ""),
    "ab 1945": ("1945-01-01", ""),
    "not before 1900": ("1900-01-01", ""),
    "avant le 12 mai 1951": ("", "1951-05-11"),
    "1945 oder später": ("1945-01-01", ""),
    "o. J. [1900]": ("1900-01-01", "1900-12-31"),
    "after 1945 and before 1950": ("1946-01-01", "1949-12-31"),
    "nach 1890, vor 1895": ("1891-01-01", "1894-12-31"),
    # Months, seasons, decades, centuries and eras.
    "12. Mai 1951": ("1951-05-12", "1951-05-12"),
    "May 12, 1951": ("1951-05-12", "1951-05-12"),
    "1er mai 1951": ("1951-05-01", "1951-05-01"),
    "März 1848": ("1848-03-01", "1848-03-31"),
    "déc. 1951": ("1951-12-01", "1951-12-31"),
    "Sommer 1951": ("1951-06-01", "1951-08-31"),
    "Winter 1951": ("1951-12-01", "1952-02-29"),
    "1890er Jahre": ("1890-01-01", "1899-12-31"),
    "années 1890": ("1890-01-01", "1899-12-31"),
    "late 1920s": ("1926-01-01", "1929-12-31"),
    "19. Jh.": ("1800-01-01", "1900-12-31"),
    "XIXe siècle": ("1800-01-01", "1900-12-31"),
    "2. Hälfte des 19. Jahrhunderts": ("1850-01-01", "1900-12-31"),
    "17./18. Jh.": ("1600-01-01", "1800-12-31"),
    "44 v. Chr.": ("-0043-01-01", "-0043-12-31"),
    "AD 79": ("0079-01-01", "0079-12-31"),
    "1. Jh. v. Chr.": ("-0099-01-01", "0000-12-31"),
    # Ranges in words.
    "1890 - 1895": ("1890-01-01", "1895-12-31"),
    "zwischen 1890 und 1895": ("1890-01-01", "1895-12-31"),
    "entre 1890 et 1895": ("1890-01-01", "1895-12-31"),
    "von 1890 bis 1895": ("1890-01-01", "1895-12-31"),
    "12.-14.5.1951": ("1951-05-12", "1951-05-14"),
    "12.5. - 3.6.1951": ("1951-05-12", "1951-06-03"),
    "Mai - Juni 1951": ("1951-05-01", "1951-06-30"),
    "1890 oder 1891": ("1890-01-01", "1891-12-31"),
    "20 v. Chr. - 14 n. Chr.": ("-0019-01-01", "0014-12-31"),
    "44 - 40 v. Chr.": ("-0043-01-01", "-0039-12-31"),
    "44 v. Chr. - 40 v. Chr.": ("-0043-01-01", "-0039-12-31"),
    "Ende Mai 1999": ("1999-05-01", "1999-05-31"),
    "um 1920/30": ("1919-01-01", "1931-12-31"),
    "1890 u. 1895": ("1890-01-01", "1895-12-31"),
    # Cataloguers: a full stop, dashes for figures that are not known, a word that says nothing.
    "[1890].": ("1890-01-01", "1890-12-31"),
    "189-": ("1890-01-01", "1899-12-31"),
    "[189-?]": ("1889-01-01", "1900-12-31"),
    "18--": ("1800-01-01", "1899-12-31"),
    "18??": ("1800-01-01", "1899-12-31"),
    "dat. 1890": ("1890-01-01", "1890-12-31"),
    "anno 1890": ("1890-01-01", "1890-12-31"),
    "im Jahre 1890": ("1890-01-01", "1890-12-31"),
    "nicht vor 1900": ("1900-01-01", ""),
    "nicht nach 1900": ("", "1900-12-31"),
    "pas avant 1900": ("1900-01-01", ""),
    # Desks: days of the week, hours of one figure, months between hyphens, figures of full width.
    "Donnerstag, 12. Mai 1951": ("1951-05-12", "1951-05-12"),
    "jeudi 12 mai 1951": ("1951-05-12", "1951-05-12"),
    "14.7.2019 9:05": ("2019-07-14", "2019-07-14"),
    "12.5.1951, 14:30 Uhr": ("1951-05-12", "1951-05-12"),
    "14-Jul-2019": ("2019-07-14", "2019-07-14"),
    "１８９０": ("1890-01-01", "1890-12-31"),
    "XIXᵉ siècle": ("1800-01-01", "1900-12-31"),
}


@pytest.mark.parametrize(("text", "expected"), WRITTEN.items(), ids=list(WRITTEN))
def test_notation_is_an_interval(text: str, expected: tuple[str, str]) -> None:
    interval = read_date(text)
    assert days(interval) == expected and str(interval) == text
    assert days(read_date(f"  {text} ")) == expected, "spaces around it say nothing"


@pytest.mark.parametrize(
    "text",
    [
        "o. D.",
        "o.J.",
        "s.d.",
        "undated",
        "",
        "1985-02-30",
        "31.4.1951",
        "1890-13",
        "12345",
        "240101",
        "1987-118",
        "007",
        "IMG_2041",
        "3.5",
        "1,250",
        "12.5.51",
        "189--",
        "1951/0",
        "1951/13",
        "0.5.1951",
        "22. Jh.",
        "Anfang 1890-1895",
        "Y17000000000",
        "99--",
        "in 3 Farben",
        "Di 12345",
        "Paris 1900",
        "1895-1890",
        "1890/1880",
        "0000-00-00",
        "25:61",
        "1951-05-12T25:00",
        "1951-05-12T10:60",
        "1951-05-12T10:30:61",
        "1951-00",
        "0. Jh.",
        "1890" * 30,
        "[" * 40 + "1",
        "X" * 60,
        "-" * 50,
        "circa " * 12 + "1",
    ],
)
def test_other_texts_are_no_date(text: str) -> None:
    assert read_date(text) is None


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ("Anfang|early|début", 0, 33), ("Mitte|mid|milieu", 33, 66), ("Ende|late|fin", 66, 100),
        ("1. Hälfte|erste Hälfte|first half|1re moitié", 0, 50), ("2. Hälfte|second half|2e moitié", 50, 100),
        ("1. Viertel|first quarter|1er quart", 0, 25), ("2. Viertel|second quarter|2e quart", 25, 50),
        ("3. Viertel|third quarter|3e quart", 50, 75), ("4. Viertel|letztes Viertel|last quarter", 75, 100),
        ("1. Drittel|first third|premier tiers", 0, 33), ("2. Drittel|second third|deuxième tiers", 33, 66),
        ("3. Drittel|last third|dernier tiers", 66, 100),
    ],
)  # fmt: skip
def test_part_of_a_century_is_its_years(words: str, first: int, last: int) -> None:
    for word in words.split("|"):
        assert days(read_date(f"{word} 19. Jh.")) == (f"{1800 + first}-01-01", f"{1800 + last}-12-31"), word


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("1951", (1951, 1, 1), (1952, 1, 1)), ("1951-05", (1951, 5, 1), (1951, 6, 1)),
        ("12.5.1951", (1951, 5, 12), (1951, 5, 13)), ("20190714", None, None),
        ("1890/95", (1890, 1, 1), (1896, 1, 1)), ("19. Jh.", (1800, 1, 1), (1901, 1, 1)),
        ("um 1890", (1889, 1, 1), (1892, 1, 1)),
    ],
)  # fmt: skip
def test_interval_ends_with_its_last_second(
    text: str, first: tuple[int, int, int] | None, last: tuple[int, int, int] | None
) -> None:
    found = read_date(text)
    if first is None or last is None:
        assert found is None
    else:
        assert found is not None and (found.first, found.last) == (seconds_of(*first), seconds_of(*last) - 1)


def test_open_ends_and_spans_end_beside_the_next_second() -> None:
    year_1914, year_1952, hour = seconds_of(1914, 1, 1), seconds_of(1952, 1, 1), seconds_of(1950, 5, 3) + 10 * 3600
    for text, span in {
        "vor 1914": (-END, year_1914 - 1), "[..1913]": (-END, year_1914 - 1), "nach 1913": (year_1914, END),
        "[1914..]": (year_1914, END), "early 1952": (year_1952, seconds_of(1953, 1, 1) - 1),
        "3.5.1950 10:00 uhr": (hour, hour + 59), "3.5.1950 10:00 utc": (hour, hour + 59),
    }.items():  # fmt: skip
        found = read_date(text)
        assert found is not None and (found.first, found.last) == span, text
    assert read_date("early 1950-1953") is None and read_date("\u0663.5.1950") is None


def test_second_that_was_written_is_one() -> None:
    found, of_exif = read_date("2019-07-14 09:05:30"), read_date("20190714T090530")
    assert found is not None and of_exif is not None and (found.first, found.last) == (of_exif.first, of_exif.last)
    assert found.first == found.last == seconds_of(2019, 7, 14) + 9 * 3600 + 5 * 60 + 30
    assert year_interval(1951).last == seconds_of(1952, 1, 1) - 1


def test_longest_text_that_is_a_date_has_80_characters() -> None:
    assert read_date("1890" + 76 * " ") is not None and read_date("1890" + 77 * " ") is None


def test_time_is_that_of_the_place() -> None:
    morning, plain = read_date("2024-01-01T08:30:00+09:00"), read_date("2024-01-01 08:30")
    assert morning is not None and plain is not None
    assert morning.first == morning.last == plain.first == seconds_of(2024, 1, 1) + 8 * 3600 + 1800
    assert plain.last - plain.first == 59, "a minute is all its seconds"


def test_calendar_reaches_beyond_that_of_python() -> None:
    for number in range(1, date.max.toordinal(), 9973):
        day = date.fromordinal(number)
        assert seconds_of(day.year, day.month, day.day) == 86_400 * (number - date(1970, 1, 1).toordinal())
    for number in (*range(-146_100 * 2, 146_100 * 2, 146_097), *range(-3000, 3000)):
        for day_number in range(number - 1, number + 2):  # Around the ends of eras of 400 years, and of common ones.
            assert seconds_of(*civil(day_number)) == 86_400 * day_number
    for year in (*range(-12_000, 12_000, 37), -(10**9), 10**9):
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            assert civil(seconds_of(year, month, day) // 86_400) == (year, month, day)
    assert day_text(seconds_of(-43, 3, 15)) == "-0043-03-15" and year_of(seconds_of(-43, 3, 15) - 1) == -43
    assert seconds_of(0, 3, 1) - seconds_of(0, 2, 29) == 86_400, "the year 0 is a leap year"
    assert days(year_interval(-1)) == ("-0001-01-01", "-0001-12-31") and days(None) == ("", "")


def test_python_dates_are_intervals() -> None:
    assert days(interval_of(date(1951, 5, 12))) == ("1951-05-12", "1951-05-12")
    moment = interval_of(datetime(1951, 5, 12, 10, 30))
    assert moment.first == moment.last and interval_of(moment) is moment
    exact, day = interval_of(datetime(1951, 5, 12, 10, 30, 15)), interval_of(date(1951, 5, 12))
    assert (exact.first - day.first, day.last - day.first) == (10 * 3600 + 30 * 60 + 15, 86_399)
    open_ended = read_date("nach 1945")
    assert open_ended is not None and open_ended.last == END
