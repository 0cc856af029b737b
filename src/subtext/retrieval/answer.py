"""The answer to a search: hits with scores, probabilities and reasons, and whether anything matches well."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from subtext.data.spreadsheet import Cell as SheetCell, Separator, write_spreadsheet
from subtext.report.text_table import Cell, printable, shortened, table
from subtext.retrieval.ranker import Signal
from subtext.text_helpers import listed

if TYPE_CHECKING:
    import pandas

WIDTH = 72
"""Characters of a caption in the table."""
PROBABILITY = (
    "probability: the share of hits like this that are pairs in the data; others may fit, so it is a lower bound"
)
WORDS_SHOWN = 8
"""Unknown words that a warning lists before it counts the others."""


CREDIT = ("credit", "byline", "photographer", "author", "artist", "creator", "source")
LICENCE = ("licence", "license", "rights", "copyright", "usage_terms")
"""Fields that name whom an image is by, and what may be done with it, as `server/page/selection.js` has them."""
SIGNAL_NAMES: dict[Signal, str] = {
    "pixels": "picture",
    "texts": "caption",
    "words": "keyword",
    "machine_texts": "machine text",
    "machine_words": "keyword of a machine text",
    "fields": "field",
    "neighbours": "captions of similar pictures",
}
"""What a reader calls a signal."""


@dataclass(frozen=True)
class Reason:
    """What one signal adds to the score of a hit: weight * (value - mean) / deviation. The amounts sum to the score.

    Attributes:
        signal: See `retrieval.ranker`.
        amount: What it adds; below 0 where it speaks against the hit.
        share: The amount by the sum of all positive amounts; None for an amount that is not above 0.
        part: Part of the query: "text", "image", "item", or with a minus before it one that is not to be matched.
        value: Of the hit; None where the hit lacks the signal, whose amount is then a constant.
        weight: Of the signal for this hit.
        mean: Of the signal over a sample of the index.
        deviation: Its standard deviation there.
        id: Of the text, or image, that the signal is about; None for the hit itself.
        text: The words that the signal is about: the best text of the hit, or of a similar image; the fields with words
            of the query.
        fields: Names of fields that have words of the query: "id", "file name", or fields of the metadata.
    """

    signal: Signal
    amount: float
    share: float | None = None
    part: str = "text"
    value: float | None = None
    weight: float = 1.0
    mean: float = 0.0
    deviation: float = 1.0
    id: str | None = None
    text: str | None = None
    fields: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The signal and what it is about, in a few words."""
        name = f"{self.part} {SIGNAL_NAMES[self.signal]}" if self.part.startswith("-") else SIGNAL_NAMES[self.signal]
        if self.value is None:
            return f"no {SIGNAL_NAMES[self.signal]}"
        return f"{name}: {shortened(self.text, WIDTH)}" if self.text else name


def as_sentence(reasons: Sequence[Reason]) -> str:
    """The reasons of a hit as one line.

    Args:
        reasons: Of one hit.

    Returns:
        Shares, largest first, and what speaks against it.
    """
    positive = sorted((own for own in reasons if own.share is not None), key=lambda own: -own.amount)
    said = [f"{own.label} {100 * (own.share or 0):.0f} %" for own in positive]
    against = [replace(own, text=None).label for own in reasons if own.amount < 0]
    return " · ".join([*said, *(["against: " + ", ".join(against)] if against else [])])


Level = Literal["strong", "fair", "weak"]
"""How well a hit matches, compared with the best hits of queries that have a match."""


@dataclass(frozen=True)
class Hit:
    """One result.

    Attributes:
        id: Its id in the data set.
        score: See `Answer.unit`. A cosine is that of the best matching views, in [-1, 1]; the inner product for a model
            without normalisation.
        path: Absolute path of an image; None for a text, and for an image without a file.
        captions: The texts of an image; for a text hit, the text itself.
        metadata: "split" and other columns of the data set; for a text also "images", the ids of its images.
        probability: Of a true match; None if the index is not calibrated for this kind of query, or nothing matches
            well.
        reasons: What each signal adds to the score, if `explain` was set.
        uncertainty: Root mean square of its standard deviations, for a model that compares distributions (`pcme_plus`):
            its score is then the cosine of the means minus half of both sums of variances. None for other models.
        level: How well it matches, by the ranker of the index; None where the ranker has not learnt what a match
            scores, or the query has other parts than text.
    """

    id: str
    score: float
    path: str | None
    captions: list[str]
    metadata: dict[str, Any] = field(default_factory=dict)
    probability: float | None = None
    reasons: list[Reason] = field(default_factory=list)
    uncertainty: float | None = None
    level: Level | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data; `uncertainty` only if there is one.

        Returns:
            The fields; `uncertainty` only if there is one.
        """
        return {name: value for name, value in asdict(self).items() if name != "uncertainty" or value is not None}


@dataclass(frozen=True)
class Fit:
    """Whether the index contains a good match for the query.

    Attributes:
        percentile: Share of answerable queries that are as weak as this query or weaker: 0.5 for a typical query, 0 for
            a query that is weaker than all.
        threshold: Percentile below which there is no good match: the share of answerable queries with a wrong message.
        everyday: Whether everyday captions stand for answerable queries, as nobody has given any: a bare folder.
    """

    percentile: float
    threshold: float
    everyday: bool = False

    @property
    def has_no_match(self) -> bool:
        """Whether nothing in the index matches well."""
        return self.percentile < self.threshold

    @property
    def sentence(self) -> str:
        """The judgement as a sentence."""
        share = f"{100 * self.percentile:.0f} %"
        if self.everyday:
            told = f"{share} of 200 everyday captions fit these images as little as this query or less"
            return f"nothing here seems to match: only {told}" if self.has_no_match else told
        if not self.has_no_match:
            return f"{share} of queries that have a match in this index look as weak as this one or weaker"
        weak = "no queries" if self.percentile < 0.005 else f"only {share} of the queries"
        return f"nothing here matches well: {weak} that have a match in this index look as weak as this one"

    def to_json(self) -> dict[str, Any]:
        """As plain data, with a sentence.

        Returns:
            percentile, threshold, has_no_match and sentence.
        """
        fields = {"percentile": self.percentile, "threshold": self.threshold}
        return {**fields, "has_no_match": self.has_no_match, "sentence": self.sentence}


@dataclass(frozen=True)
class DateCounts:
    """Items that meet conditions on dates.

    Attributes:
        possible: That meet all conditions if their dates are any of the days that they may be.
        certain: That meet them whichever of these days their dates are.
        undated: That meet the other conditions, and have no date in a field of one.
    """

    possible: int
    certain: int
    undated: int

    @property
    def sentence(self) -> str:
        """The counts as a sentence."""
        return f"dates: {self.possible:,} possibly meet the conditions, {self.certain:,} certainly; " + (
            f"{self.undated:,} without a date" if self.undated else "none is without a date"
        )


@dataclass(frozen=True)
class Answer:
    """The results of one query. It iterates over its hits, best first.

    Attributes:
        hits: The results, best first.
        unit: Unit of the scores: "evidence", the weighted sum of all signals; "cosine" where pixels are the only one;
            "deviations" for several parts by pixels alone, and "score" after re-ranking.
        target: "images" or "texts": what was searched.
        fit: Whether there is a good match. None if the index is not calibrated for this kind of query, or no item meets
            the conditions.
        text_only: Whether text is the only positive part of the query.
        left_out: Hits below `min_probability`.
        stale: Share of items that changed since the calibration, if it is too large for reliable probabilities.
        words: (word, whether it is in the model's vocabulary) for each word of the query. None for a subword model or a
            query without text.
        notes: Notes on texts that are too long for the model, and on words and values that do not occur in the index.
        exact_words: Phrases of the query, and words that the model does not know, that items of the index have.
        suggestions: Word that no text of the index contains -> the most similar word of the index.
        approximate: Whether better items may have been missed, as the store gives candidates of each signal.
        rare_words: Rare word of the query -> its count in the training texts. With such words, there are no
            probabilities.
        dates: For conditions on dates, how many items meet them possibly and certainly, and how many have no date.
        request: The query as plain data, for the JSON.
    """

    hits: list[Hit]
    unit: Literal["evidence", "cosine", "deviations", "score"] = "cosine"
    target: Literal["images", "texts"] = "images"
    fit: Fit | None = None
    text_only: bool = True
    left_out: int = 0
    stale: float | None = None
    words: tuple[tuple[str, bool], ...] | None = None
    notes: tuple[str, ...] = ()
    exact_words: tuple[str, ...] = ()
    suggestions: Mapping[str, str] = field(default_factory=dict)
    approximate: bool = False
    rare_words: Mapping[str, int] = field(default_factory=dict)
    dates: DateCounts | None = None
    request: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of hits."""
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        """The hits, best first."""
        return iter(self.hits)

    def __getitem__(self, rank: int) -> Hit:
        """The hit at a rank, from 0."""
        return self.hits[rank]

    def __repr__(self) -> str:
        best = f"; best: {self.hits[0].id} ({self.hits[0].score:.3f})" if self.hits else ""
        return f"Answer({len(self.hits)} {self.target}{best})"

    @property
    def unknown_words(self) -> list[str]:
        """Words of the query that the model does not know."""
        return [word for word, known in self.words or () if not known]

    @property
    def unused_words(self) -> list[str]:
        """Unknown words that no item of the index has."""
        has = {word.casefold() for phrase in self.exact_words for word in phrase.split()}
        return [word for word in self.unknown_words if word not in has]

    @property
    def meaningless(self) -> bool:
        """Whether neither the model nor an item of the index has a word of the query."""
        return self.words is not None and not self.exact_words and not any(known for _, known in self.words)

    @property
    def rare_words_message(self) -> str:
        """A message about words that are rare in the training texts; "" for none."""
        seen = ", ".join(f"'{word}' ({count})" for word, count in list(self.rare_words.items())[:WORDS_SHOWN])
        return f"the model saw these words a few times only: {seen}; the scores mean little" if seen else ""

    @property
    def did_you_mean(self) -> str:
        """A question with the nearest words; "" where there are none."""
        return f"did you mean {', '.join(self.suggestions.values())}?" if self.suggestions else ""

    @property
    def summary(self) -> list[str]:
        """Lines to show above the hits: no good match, number of hits left out, no hits."""
        lines = [self.fit.sentence] if self.fit is not None and self.fit.has_no_match else []
        lines += [self.dates.sentence] if self.dates is not None else []
        if self.left_out:
            lines.append(f"{self.left_out} left out, below the minimum probability")
        return lines if self.hits or self.left_out else [*lines, "nothing meets these conditions"]

    @property
    def warnings(self) -> list[str]:
        """Reasons why the hits may be unreliable."""
        unknown = self.unused_words
        names = listed([f"'{word[:WIDTH]}'" for word in unknown], WORDS_SHOWN)
        warnings = []
        if self.meaningless:
            cause = f": {names}" if unknown else "; it has no words"
            effect = "this answer means nothing" if self.text_only else "they add nothing; leave them out"
            warnings.append(f"the model knows no word of the query{cause}; {effect}")
        elif unknown:
            warnings.append(f"the model does not know {names}; the answer uses only the other words")
        warnings += [*filter(None, [self.rare_words_message, self.did_you_mean]), *self.notes]
        if self.stale is not None:
            warnings.append(
                f"{100 * self.stale:.0f} % of the items were added or deleted since the index was calibrated; its "
                "probabilities may be wrong; calibrate it again (subtext index calibrate)"
            )
        return warnings

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            The query, the messages, and the hits.
        """
        return {
            **self.request,
            "unknown_words": self.unknown_words,
            "exact_words": list(self.exact_words),
            "did_you_mean": dict(self.suggestions),
            "warning": "; ".join(self.warnings) or None,
            "target": self.target,
            "unit": self.unit,
            "has_no_match": None if self.fit is None else self.fit.has_no_match,
            "fit": None if self.fit is None else self.fit.to_json(),
            "left_out": self.left_out,
            "approximate": self.approximate,
            "dates": None if self.dates is None else asdict(self.dates),
            "hits": [hit.to_json() for hit in self.hits],
        }

    def to_frame(self) -> pandas.DataFrame:
        """The hits as a table of pandas.

        Returns:
            A row per hit: id, score, probability, path, captions, and a column per metadata field.
        """
        import pandas

        rows = [
            {"id": h.id, "score": h.score, "probability": h.probability, "path": h.path, "captions": h.captions}
            | {name: value for name, value in h.metadata.items() if name not in ("id", "score")}
            for h in self.hits
        ]
        return pandas.DataFrame(rows)

    def to_csv(self, file: str | os.PathLike[str], *, separator: Separator = "auto") -> None:
        """Write the hits as CSV, for a spreadsheet; see `write_csv`.

        Args:
            file: The file; one that is there is replaced.
            separator: "comma", "semicolon" or "tab"; "auto" for a semicolon where the locale writes a decimal comma.

        Raises:
            ArgumentError: For an unknown separator.
            OutputError: If it cannot be written.
        """
        write_csv(file, [self], separator=separator)

    def text(self) -> str:
        """The answer for a terminal: whether anything matches, and the hits as a table with explanations.

        Returns:
            Lines of text; the warnings are not among them.
        """
        lines = [*self.summary, *([self._table()] if self.hits else [])]
        for rank, hit in enumerate(self.hits, start=1):
            if hit.reasons:
                lines.append(f"why {rank}: {as_sentence(hit.reasons)}")
        return printable("\n".join(lines))

    __str__ = text

    def _table(self) -> str:
        calibrated = any(hit.probability is not None for hit in self.hits)
        rows: list[list[Cell]] = []
        for rank, hit in enumerate(self.hits, start=1):
            image = hit.path if self.target == "images" else ", ".join(hit.metadata.get("images", [])[:3])
            chance = "-" if hit.probability is None else f"{hit.probability:.2f}"
            caption = shortened(" | ".join(hit.captions) or "-", WIDTH)
            rows.append([str(rank), f"{hit.score:.3f}", *([chance] if calibrated else []), caption, image or hit.id])
        texts = "texts" if self.target == "images" else "text"
        shown = table(["", self.unit, *(["probability"] if calibrated else []), texts, "image"], rows)
        return f"{shown}\n{PROBABILITY}" if calibrated else shown

    def _repr_html_(self) -> str:
        """The hits as thumbnails with captions, for a notebook."""
        from subtext.data.image_files import thumbnail

        cards = []
        for hit in self.hits:
            source = None if hit.path is None else thumbnail(hit.path)
            image = "" if source is None else f'<img src="{escape(source)}" alt="{escape(hit.id)}">'
            score = f"{hit.score:.3f}" if hit.probability is None else f"{100 * hit.probability:.0f} %"
            caption = escape(shortened(" | ".join(hit.captions[:2]) or hit.id, WIDTH))
            cards.append(
                '<figure style="display:inline-block;width:170px;margin:4px;vertical-align:top">'
                f'{image}<figcaption style="font-size:85%"><b>{score}</b> {caption}</figcaption></figure>'
            )
        return "".join(f"<p>{escape(line)}</p>" for line in [*self.summary, *self.warnings]) + "".join(cards)


def write_csv(file: str | os.PathLike[str], answers: Sequence[Answer], *, separator: Separator = "auto") -> None:
    """Write the hits of some queries as CSV, for a spreadsheet: a row each, credit and licence beside it.

    The columns are query, rank, id, file, captions, credit, licence, score, probability, and one for each field of the
    metadata.

    Args:
        file: The file; one that is there is replaced.
        answers: The answers.
        separator: See `Answer.to_csv`.

    Raises:
        ArgumentError: For an unknown separator.
        OutputError: If it cannot be written.
    """
    hits = [(answer, rank, hit) for answer in answers for rank, hit in enumerate(answer.hits, start=1)]
    first = ["query", "rank", "id", "file", "captions", "credit", "licence", "score", "probability"]
    fields = [
        name for name in dict.fromkeys(name for *_, hit in hits for name in hit.metadata) if name not in first[:7]
    ]
    rows = [
        [
            _asked(answer),
            rank,
            hit.id,
            hit.path,
            hit.captions,
            _field(hit.metadata, CREDIT),
            _field(hit.metadata, LICENCE),
            hit.score,
            hit.probability,
            *(_cell(hit.metadata.get(name)) for name in fields),
        ]
        for answer, rank, hit in hits
    ]
    write_spreadsheet(file, [*first, *fields], rows, separator=separator)


def _asked(answer: Answer) -> str:
    """The query as one cell."""
    query = answer.request.get("query", {})
    return str(query.get("text") or query.get("image") or ", ".join(map(str, query.get("like", ()))))


def _field(metadata: Mapping[str, Any], names: Sequence[str]) -> SheetCell:
    """The first of some fields that has a value, whatever its case."""
    lower = {name.lower(): value for name, value in metadata.items()}
    return next((_cell(lower[name]) for name in names if lower.get(name) not in (None, "")), None)


def _cell(value: Any) -> SheetCell:
    if isinstance(value, list | tuple):
        return [str(own) for own in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
