"""Dates as archives write them: intervals from a first to a last second, with the text that was written.

EDTF (ISO 8601-2) is read by the package edtf, as far as it is no plain year, month or day. Other notations, German,
French and English, are those of the tables below. The day stands before the month: 12.5.1951 is 12 May.

Times are those of the clock where the image was taken: the day of a photograph is the one that its photographer had. An
offset from UTC stands in the text, and moves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from unicodedata import normalize

END = 5 * 10**17
"""Seconds from 1970 to the ends of time: an interval without a first or last day begins or ends there."""
DAY = 86_400

_CIRCA = (
    "circa|cca|ca|c|um|etwa|ungefähr|gegen|about|approximately|approx|around|vers|environ|env|wohl|vermutlich|"
    "wahrscheinlich|vielleicht|probably|possibly|perhaps|probablement|peut-être|presumably"
)
_BEFORE = "vor|before|avant|ante|pre"
_UNTIL = (
    "bis|until|till|up to|by|jusqu'en|jusqu'à|jusqu'au|spätestens|not after|no later than|au plus tard|nicht nach|"
    "nicht später als|pas après"
)
_AFTER = "nach|after|après|post"
_SINCE = (
    "ab|seit|since|from|depuis|dès|à partir de|frühestens|not before|no earlier than|au plus tôt|nicht vor|"
    "nicht früher als|pas avant"
)
_ON = (
    "am|im jahre?|in|on|en|le|datiert|dat|dated|daté|anno|montag|dienstag|mittwoch|donnerstag|freitag|samstag|"
    "sonnabend|sonntag|mo|di|mi|do|fr|sa|so|monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|wed|thu|fri|sat|sun|"
    "lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
)
"""Words before a date that say nothing of its length, the days of the week among them."""
_MONTHS = (
    "januar|jänner|jan|january|janvier|janv", "februar|feber|feb|february|février|févr", "märz|mär|march|mar|mars",
    "april|apr|avril|avr", "mai|may", "juni|jun|june|juin", "juli|jul|july|juillet|juil", "august|aug|août",
    "september|sept|sep|septembre", "oktober|okt|october|oct|octobre", "november|nov|novembre",
    "dezember|dez|december|dec|décembre|déc",
)  # fmt: skip
_SEASONS = ("frühling|frühjahr|spring|printemps", "sommer|summer|été", "herbst|autumn|fall|automne",
            "winter|hiver")  # fmt: skip
"""Words of the months from January on, and of EDTF's seasons from 21 on."""
_PARTS = {
    "anfang|frühes|early|début": (0, 3), "mitte|mittleres|mid|milieu": (1, 3), "ende|spätes|late|fin": (2, 3),
    "1. hälfte|erste hälfte|first half|1st half|1re moitié|première moitié": (0, 2),
    "2. hälfte|zweite hälfte|second half|2nd half|2e moitié|seconde moitié|deuxième moitié": (1, 2),
    "1. viertel|erstes viertel|first quarter|1st quarter|1er quart|premier quart": (0, 4),
    "2. viertel|zweites viertel|second quarter|2nd quarter|2e quart|deuxième quart": (1, 4),
    "3. viertel|drittes viertel|third quarter|3rd quarter|3e quart|troisième quart": (2, 4),
    "4. viertel|letztes viertel|fourth quarter|4th quarter|last quarter|4e quart|dernier quart": (3, 4),
    "1. drittel|erstes drittel|first third|premier tiers": (0, 3),
    "2. drittel|zweites drittel|second third|deuxième tiers": (1, 3),
    "3. drittel|letztes drittel|last third|dernier tiers": (2, 3),
}  # fmt: skip
"""Words of a part of a century or decade -> its number, and of how many."""
_BC = r"v\.?\s*chr\.?|v\.?\s*u\.?\s*z\.?|b\.?\s*c\.?(?:\s*e\.?)?|av\.?\s*j\.?-?\s*c\.?|avant\s+j\.?-?\s*c\.?"
_AD = r"n\.?\s*chr\.?|n\.?\s*u\.?\s*z\.?|a\.?\s*d\.?|c\.?\s*e\.?|ap\.?\s*j\.?-?\s*c\.?|après\s+j\.?-?\s*c\.?"
_CENTURY = r"jahrhunderts?|jhdt?s?\.?|jh\.?|century|cent\.?|siècle|s\."
_DECADE = r"(?:er|s|'s)(?:\s*-?jahren?)?"
_ROMAN = {"i": 1, "v": 5, "x": 10}


@dataclass(frozen=True)
class DateInterval:
    """A date: something lies between its first and its last second.

    Attributes:
        first: Seconds since 1970 on the clock of the place, from `-END` on.
        last: See `first`; up to `END`.
        text: As it was written.

    Example:
        >>> read_date("1890/1895") == DateInterval(-2524521600, -2335219201, "1890/1895")
        True
    """

    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return self.text


def read_date(text: str) -> DateInterval | None:
    """Read a date of any notation.

    Args:
        text: What was written: EDTF, ISO 8601, EXIF's 2019:07:14 09:05:00, or German, French or English.

    Returns:
        Its interval; None for a text that is no date, such as "o. D.".

    Example:
        >>> [days(read_date(written)) for written in ("circa 1890", "1954/55", "[1923?]", "vor 1914")]
        [('1889-01-01', '1891-12-31'), ('1954-01-01', '1955-12-31'), ('1922-01-01', '1924-12-31'), ('', '1913-12-31')]
        >>> days(read_date("12.5.1951")), days(read_date("44 v. Chr.")), read_date("o. D.")
        (('1951-05-12', '1951-05-12'), ('-0043-01-01', '-0043-12-31'), None)
    """
    # Nothing longer is a date, and nothing without a digit or the Roman number of a century.
    if len(text) > 80 or not _HOPEFUL.search(normalize("NFKC", text)):
        return None
    span = _span(text)
    return None if span is None else DateInterval(*span, text)


def interval_of(value: DateInterval | date) -> DateInterval:
    """A Python date as an interval: a day, or one second.

    Args:
        value: An interval, which stays, a date or a datetime; the offset of a datetime is not looked at.

    Returns:
        The interval.
    """
    if isinstance(value, DateInterval):
        return value
    start = seconds_of(value.year, value.month, value.day)
    if isinstance(value, datetime):
        start += 3600 * value.hour + 60 * value.minute + value.second
        return DateInterval(start, start, value.isoformat())
    return DateInterval(start, start + DAY - 1, value.isoformat())


def year_interval(year: int) -> DateInterval:
    """The days of a year.

    Args:
        year: The year; 0 is the one before 1, as in ISO 8601.

    Returns:
        The interval from 1 January to 31 December.
    """
    text = f"{year:05d}" if year < 0 else f"{year:04d}"
    return DateInterval(seconds_of(year, 1, 1), seconds_of(year + 1, 1, 1) - 1, text)


def days(interval: DateInterval | None) -> tuple[str, str]:
    """First and last day of an interval as ISO 8601; "" for an open end.

    Args:
        interval: The interval; None for none.

    Returns:
        The first and the last day.
    """
    if interval is None:
        return "", ""
    return (
        day_text(interval.first) if interval.first > -END else "",
        day_text(interval.last) if interval.last < END else "",
    )


def day_text(seconds: int) -> str:
    """The day of a second as ISO 8601, also before the year 0 and after 9999.

    Args:
        seconds: Seconds since 1970.

    Returns:
        Such as 1951-05-12 or -0043-03-15.
    """
    year, month, day = civil(seconds // DAY)
    return f"{f'{year:05d}' if year < 0 else f'{year:04d}'}-{month:02d}-{day:02d}"


def year_of(seconds: int) -> int:
    """The year of a second.

    Args:
        seconds: Seconds since 1970.

    Returns:
        The year; 0 is the one before 1.
    """
    return civil(seconds // DAY)[0]


def seconds_of(year: int, month: int, day: int) -> int:
    """Seconds from 1970 to the beginning of a day of the Gregorian calendar, at any distance.

    Args:
        year: The year; 0 is the one before 1.
        month: From 1 to 12.
        day: From 1 on.

    Returns:
        Seconds; negative before 1970.
    """
    # Years that begin in March, in eras of 400 years (H. Hinnant, chrono-compatible low-level date algorithms).
    shifted = year - (month <= 2)
    of_era = shifted % 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return DAY * (shifted // 400 * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468)


def civil(number: int) -> tuple[int, int, int]:
    """Year, month and day of a day.

    Args:
        number: Days since 1 January 1970.

    Returns:
        Year, month from 1 to 12, and day from 1 on.
    """
    era, rest = divmod(number + 719_468, 146_097)
    of_era = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * of_era + of_era // 4 - of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return era * 400 + of_era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


Span = tuple[int, int]
"""First and last second."""


_HOPEFUL = re.compile(r"\d|\b[ivx]+(?:e|th|\.)?\s*(?:jahrhundert|jh|century|cent|si[eè]cle)", re.I)
_MONTH = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split("|")}
_SEASON = {word: number for number, words in enumerate(_SEASONS, 21) for word in words.split("|")}
_PART = {word: part for words, part in _PARTS.items() for word in words.split("|")}
_MONTH_WORD, _SEASON_WORD = "|".join(sorted(_MONTH, key=len)[::-1]), "|".join(_SEASON)
_NUMBER = r"(?:(\d{1,2})(?:\.|th|st|nd|rd|er|e|ème|eme)?|([ivx]{1,5})(?:\.|e|th|ème)?)"

_TIME = r"(?:(?:T|,?\s)\s?(\d\d|\d(?=:)):?(\d\d)(?::?(\d\d)(?:[.,]\d*)?)?\s*(?:Z|UTC|Uhr|[+-]\d\d(?::?\d\d)?)?)"
_DAY_OR_TIME = re.compile(rf"(-?\d{{4}})([-:./])(\d\d?)\2(\d\d?){_TIME}?", re.A | re.I)
_COMPACT = re.compile(rf"(\d{{4}})(\d\d)(\d\d){_TIME}", re.A | re.I)
_YEAR_OR_MONTH = re.compile(r"(-?\d{4})(?:-(\d\d))?", re.A)
_DAY_FIRST = re.compile(rf"(\d\d?)\s?([./-])\s?(\d\d?)\s?\2\s?(\d{{4}}){_TIME}?", re.A | re.I)
_MONTH_FIRST = re.compile(r"(\d\d?)\s?[./-]\s?(\d{4})", re.A)
_YEAR_MONTH = re.compile(r"(\d{4})[/.](\d\d?)", re.A)
_DASHES = re.compile(r"([012]\d{1,2})(-|\?|_)\2{0,1}", re.A)
"""189- and 18--: a decade and a century as libraries write them."""
_SHORT_YEARS = re.compile(r"(\d\d)(\d\d)\s?(/|-|–|—)\s?(\d\d)", re.A)
_EDTF = re.compile(
    r"Y-?\d{5,18}|[~?%]?-?(?=[\dX]*[\dX]{4})[\dX]{4,5}(?:S\d\d?)?[~?%]?(?:-[~?%]?[\dX]{2}[~?%]?){0,2}|"
    r"[\[{][-\dX~?%.,\s]+[\]}]",
    re.A,
)
_SPLIT = re.compile(r"\s*(?:\s-\s|--|–|—|/|\s(?:bis|to|until|till|and|und|u\.|et|à|au|or|oder|ou)\s)\s*", re.I)
_DAYS = re.compile(r"(\d\d?)\.?\s?(?:-|–|—|/|bis|to|au)\s?(\d\d?)\.?\s?((?:\d\d?\.|[^\W\d_]).*\d{4})", re.I)
_WORDED = [
    re.compile(
        rf"(?P<day>\d\d?)(?:\.|th|st|nd|rd|er)?[\s-]*(?:of\s+)?(?P<month>{_MONTH_WORD})\b\.?,?[\s-]*(?P<year>\d{{4}})"
    ),
    re.compile(rf"(?P<month>{_MONTH_WORD})\b\.?\s*(?P<day>\d\d?)(?:th|st|nd|rd)?,?\s+(?P<year>\d{{4}})"),
    re.compile(rf"(?P<month>{_MONTH_WORD})\b\.?,?\s*(?P<year>\d{{4}})"),
    re.compile(rf"(?P<year>\d{{4}}),?\s+(?P<month>{_MONTH_WORD})\b\.?(?:\s*(?P<day>\d\d?)\.?)?"),
    re.compile(r"(?P<day>\d\d?)\.?\s?(?P<roman>x?[iv]+|i?x|xi{1,2})\.?\s?(?P<year>\d{4})"),
    re.compile(rf"(?P<season>{_SEASON_WORD})\s*(?:of\s+|de\s+)?(?P<year>\d{{4}})"),
]
_OF_CENTURY = re.compile(
    rf"(?:({'|'.join(map(re.escape, sorted(_PART, key=len)[::-1]))})[\s-]*(?:des|du|of the|of|de)?\s*)?{_NUMBER}"
    rf"[\s-]*(?:{_CENTURY})(?:\s*({_BC})|\s*(?:{_AD}))?"
)
_OF_DECADE = re.compile(
    rf"(?:({'|'.join(map(re.escape, sorted(_PART, key=len)[::-1]))})[\s-]*(?:der|des|of the|of|the|de)?\s*)?"
    rf"(?:the\s+|années\s+)?(\d{{3}})0(?:{_DECADE})?"
)
_OF_PERIOD = re.compile(rf"(?:{'|'.join(map(re.escape, _PART))})[\s-]*(?:des|of the|of|de|du)?\s*(.+)")
"""A part of a year or a month, which counts as all of it."""
_ERA = re.compile(rf"(?:(?P<before>{_AD})\s*)?(?P<year>\d{{1,5}})\s*(?:(?P<bc>{_BC})|(?P<ad>{_AD}))?")


_FULL_STOP = re.compile(r"[\d\])?]\.$")


@lru_cache(1 << 16)
def _span(text: str) -> Span | None:
    """First and last second of a date; a text is often that of many items."""
    # 1ᵉʳ and figures of full width become those of everybody; a cataloguer's full stop ends no date.
    text = " ".join(normalize("NFKC", text).replace("’", "'").split())
    text = text[:-1] if _FULL_STOP.search(text) else text
    span = _numeric(text) or _edtf(text) or _written(text.casefold())
    return span if span is not None and -END <= span[0] <= span[1] <= END else None


def _numeric(text: str) -> Span | None:
    """Years, months, days and times in figures."""
    if match := _YEAR_OR_MONTH.fullmatch(text):
        if match[2] is None or 1 <= int(match[2]) <= 12:
            return _period(int(match[1]), int(match[2]) if match[2] else None)
    elif match := _DAY_OR_TIME.fullmatch(text):
        # Programs write zeros for a month and a day that are not known.
        year, month, day = int(match[1]), int(match[3]), int(match[4])
        if not day:
            return _period(year, month or None) if year or month else None
        return _period(year, month, day, match.groups()[4:])
    elif match := _COMPACT.fullmatch(text):
        return _period(int(match[1]), int(match[2]), int(match[3]), match.groups()[3:])
    elif match := _DAY_FIRST.fullmatch(text):
        day, month = int(match[1]), int(match[3])
        if match[2] == "/" and month > 12:  # It can only be the order of the United States.
            day, month = month, day
        return _period(int(match[4]), month, day, match.groups()[4:])
    elif match := _MONTH_FIRST.fullmatch(text):
        return _period(int(match[2]), int(match[1]))
    elif (match := _DASHES.fullmatch(text)) and len(text) == 4:
        length = 10 if len(match[1]) == 3 else 100
        return _years(length * int(match[1]), length * int(match[1]) + length - 1)
    if match := _SHORT_YEARS.fullmatch(text):
        century, year, until = int(match[1]), int(match[2]), int(match[4])
        # With a hyphen 1909-10 is a month, and 2001-21 the spring; 1921-23 is more likely three years, spring and all.
        is_range = match[3] != "-" or (until > 12 and (until > 24 or until - year <= 10))
        if is_range and until > year:
            return _years(100 * century + year, 100 * century + until)
        if is_range and (until - year) % 100 == 1:
            return _years(100 * century + year, 100 * century + 100 + until)
    if (match := _YEAR_MONTH.fullmatch(text)) and 1 <= int(match[2]) <= 12:
        return _period(int(match[1]), int(match[2]))
    return None


def _years(first: int, last: int) -> Span:
    return seconds_of(first, 1, 1), seconds_of(last + 1, 1, 1) - 1


def _period(
    year: int, month: int | None = None, day: int | None = None, time: tuple[str | None, ...] = (None,)
) -> Span | None:
    """First and last second of a year, month, day, minute or second; None where there is none of that name."""
    if month is None:
        return _years(year, year)
    if not 1 <= month <= 12:
        return None
    end = seconds_of(year + month // 12, month % 12 + 1, 1)
    if day is None:
        return seconds_of(year, month, 1), end - 1
    start = seconds_of(year, month, day)
    if not seconds_of(year, month, 1) <= start < end:
        return None
    if time[0] is None:
        return start, start + DAY - 1
    hour, minute, second = (int(part or 0) for part in time)
    if hour > 24 or minute > 59 or second > 60:
        return None
    start += 3600 * hour + 60 * minute + second
    return start, start + (59 if time[2] is None else 0)


def _edtf(text: str) -> Span | None:
    """A date of EDTF with signs beyond figures and hyphens, and intervals of such dates."""
    if text.count("/") == 1:
        parts = text.split("/")
        ends = [None if part in ("", "..") else _numeric(part) or _edtf(part) for part in parts]
        if all(end is not None or part in ("", "..") for end, part in zip(ends, parts, strict=True)) and any(ends):
            begin, end = ends
            return begin[0] if begin else -END, end[1] if end else END
        return None
    if not _EDTF.fullmatch(text):
        return None
    # It takes 0.1 s to load, and milliseconds a date.
    from edtf import parse_edtf
    from edtf.parser.edtf_exceptions import EDTFParseException

    try:
        date = parse_edtf(text)
        bounds = date.lower_strict(), date.upper_strict()
    except (EDTFParseException, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        return None
    first = seconds_of(*bounds[0][:3]) if not isinstance(bounds[0], float) else -END
    last = seconds_of(*bounds[1][:3]) + DAY - 1 if not isinstance(bounds[1], float) else END
    doubts = 2 if "%" in text else int("~" in text or "?" in text)
    return _widened((first, last), doubts)


def _widened(span: Span | None, times: int = 1) -> Span | None:
    """A date that is approximate or uncertain: longer by a day, a month or a year at both ends, as it is precise.

    So does the package edtf; but a day or month stays one of that year.
    """
    if span is None or not times:
        return span
    first, last = span
    if last - first < DAY:
        return first - times * DAY, last + times * DAY

    def moved(seconds: int, step: int) -> int:
        if abs(seconds) >= END:
            return seconds
        year, month, day = civil(seconds // DAY)
        year, month = divmod(12 * year + month - 1 + step, 12)
        return seconds_of(year, month + 1, day)

    step = times * (1 if last - first < 31 * DAY else 12)
    return moved(first, -step), moved(last + 1, step) - 1 if last < END else last


def _before(span: Span | None) -> Span | None:
    return None if span is None else (-END, span[0] - 1)


def _until(span: Span | None) -> Span | None:
    return None if span is None else (-END, span[1])


def _after(span: Span | None) -> Span | None:
    return None if span is None else (span[1] + 1, END)


def _since(span: Span | None) -> Span | None:
    return None if span is None else (span[0], END)


def _same(span: Span | None) -> Span | None:
    return span


_QUALIFIED: list[tuple[re.Pattern[str], Callable[[Span | None], Span | None]]] = [
    (re.compile(rf"(?:{words})\b\.?[:,]?\s*(?:dem\s+|the\s+|le\s+|den\s+)?(?=\S)(.*)"), meaning)
    for words, meaning in (
        (_CIRCA, _widened), (_UNTIL, _until), (_SINCE, _since), (_BEFORE, _before), (_AFTER, _after), (_ON, _same),
    )
]  # fmt: skip
"""Words before a date -> what they make of its interval."""
_GLUED = re.compile(r"(?:ca?|circa|um)\.?\s*(\d{4}.*)")
_DOUBTED = re.compile(r"(.*?\S)[\s,]*(?:[(\[]\?[)\]]|\?|\(?\b(?:ca\.?|circa|um)\)?)")
_BRACKETED = re.compile(r"(?:(?:o\.?\s?[jd]|[sn]\.?\s?d)\.?\s?)?[\[(<]\s*(.*\S)\s*[\])>]")
_BOTH = re.compile(r"(.+?)(?:,\s*|\s+(?:und|and|et|but|aber)\s+)(.+)")
_OR_LATER = re.compile(r"(.*?[^-])(?:\s*-|,?\s*(?:or later|oder später|ou plus tard|u\.\s?später|ff\.?))")
_OR_EARLIER = re.compile(r"(.+?),?\s*(?:or earlier|oder früher|ou avant|ou plus tôt)")
_BETWEEN = re.compile(r"(?:zwischen|between|entre|von|vom|from|de|du|années)\s+(.*)")


def _written(text: str) -> Span | None:
    """A date in words, or in figures with words and brackets; the text is case-folded."""
    if match := _BRACKETED.fullmatch(text):
        return _any(match[1])
    if match := _BETWEEN.fullmatch(text):
        parts = _SPLIT.split(match[1].replace(" und ", " bis ").replace(" and ", " to ").replace(" et ", " au "))
        if len(parts) == 2 and (joined := _joined(*parts)):
            return joined
    if span := _century(text):
        return span
    if (match := _BOTH.fullmatch(text)) and (one := _open(match[1])) and (other := _open(match[2])):
        return max(one[0], other[0]), min(one[1], other[1])
    for pattern, meaning in _QUALIFIED:
        if (match := pattern.fullmatch(text)) and (span := meaning(_any(match[1]))):
            return span
    if match := _GLUED.fullmatch(text):
        return _widened(_any(match[1]))
    for pattern, meaning in ((_OR_LATER, _since), (_OR_EARLIER, _until)):
        if match := pattern.fullmatch(text):
            return meaning(_any(match[1]))
    if match := _DOUBTED.fullmatch(text):
        return _widened(_any(match[1]))
    for pattern in _WORDED:
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            if found.get("roman"):
                return _period(int(found["year"]), _number(found["roman"]), int(found["day"]))
            if found.get("season"):
                first = 3 * (_SEASON[found["season"]] - 21) + 3
                return _joined(f"{found['year']}-{first:02d}", _month_after(int(found["year"]), first, 2))
            return _period(int(found["year"]), _MONTH[found["month"]], int(found["day"]) if found.get("day") else None)
    if (match := _OF_DECADE.fullmatch(text)) and (not text.endswith("0") or text.startswith("années")):
        return _share(10 * int(match[2]), 10, *(_PART[match[1]] if match[1] else (0, 1)))
    if match := _OF_PERIOD.fullmatch(text):
        span = _any(match[1])
        return span if span is not None and span[1] - span[0] <= 366 * DAY else None
    if (match := _ERA.fullmatch(text)) and (match["bc"] or match["ad"] or match["before"]):
        return _period(1 - int(match["year"]) if match["bc"] else int(match["year"]))
    if match := _DAYS.fullmatch(text):
        rest = match[3]
        if joined := _joined(f"{match[1]}. {rest}", f"{match[2]}. {rest}") or _joined(
            f"{match[1]}.{rest}", f"{match[2]}.{rest}"
        ):
            return joined
    for parts in (_SPLIT.split(text), re.split(r"\s*-\s*", text)):
        if len(parts) == 2 and all(parts) and (joined := _joined(*parts)):
            return joined
    return None


def _open(text: str) -> Span | None:
    """A date with "before" or "after"."""
    for pattern, meaning in _QUALIFIED[1:5]:
        if match := pattern.fullmatch(text):
            return meaning(_any(match[1]))
    return None


def _any(text: str) -> Span | None:
    """A date inside another notation."""
    return _numeric(text) or _edtf(text.upper()) or _written(text)


def _joined(first: str, last: str) -> Span | None:
    """From the beginning of one date to the end of another; what both share may stand with the second alone."""
    end = _any(last)
    if end is None:
        return None
    begin = _any(first)
    if begin is None and (century := re.search(rf"(?:{_CENTURY})(?:\s*(?:{_BC}))?$", last)):
        begin = _any(f"{first} {century[0]}")  # "17./18. Jh."
    if begin is None and (year := re.search(r"\d{4}(?=\D*$)", last)):
        # "Mai - Juni 1951", "12.5. - 3.6.1951", "44 - 40 v. Chr."
        begin = _any(f"{first} {year[0]}") or _any(f"{first}{year[0]}")
    if era := re.search(rf"(?:{_BC})$", last):
        begin = _any(f"{first} {era[0]}") or begin
    return None if begin is None or begin[0] > end[1] else (begin[0], end[1])


def _month_after(year: int, month: int, more: int) -> str:
    year, month = divmod(12 * year + month - 1 + more, 12)
    return f"{year:04d}-{month + 1:02d}"


def _number(roman: str) -> int:
    """A Roman number of lower-case letters."""
    values = [_ROMAN[letter] for letter in roman]
    return sum(-one if any(later > one for later in values[n + 1 : n + 2]) else one for n, one in enumerate(values))


def _century(text: str) -> Span | None:
    """A century, or a part of one: the 19th is 1801 to 1900, and 1800 as well, since many mean 1800 to 1899."""
    match = _OF_CENTURY.fullmatch(text)
    if match is None:
        return None
    number = int(match[2]) if match[2] else _number(match[3])
    if not 1 <= number <= 21:
        return None
    part = _PART[match[1]] if match[1] else (0, 1)
    return _share(1 - 100 * number, 100, *part) if match[4] else _share(100 * (number - 1), 100, *part, more=1)


def _share(start: int, length: int, number: int, of: int, *, more: int = 0) -> Span:
    """A part of some years, which may end a year later."""
    first, last = start + length * number // of, start + length * (number + 1) // of
    return seconds_of(first, 1, 1), seconds_of(last + more, 1, 1) - 1
