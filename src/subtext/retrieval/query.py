"""A search request: its parts, and how candidates are scored by them, re-ranked and explained."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.data.addresses import joined_path
from subtext.errors import ArgumentError, RequirementError
from subtext.retrieval.answer import WIDTH, WORDS_SHOWN
from subtext.retrieval.condition import SUGGESTED, as_conditions, near_texts
from subtext.retrieval.confidence import Background, sample
from subtext.retrieval.evidence import CANDIDATES, Part
from subtext.retrieval.ranker import SIGNALS, Signal
from subtext.retrieval.stores.facets import TEXT, Condition
from subtext.retrieval.stores.item import SIDES, Hits, Side
from subtext.retrieval.stores.store import Keys, View
from subtext.retrieval.words import words
from subtext.settings import named_fields
from subtext.text_helpers import listed

_AWAY = re.compile(r'(^|\s)-(?:"([^"]+)"|([^\W\d_]\S*))(?=\s|$)')
_QUOTED = re.compile(r'"([^"]*)"')
_STRAIGHT = str.maketrans(dict.fromkeys("“”„‟«»", '"'))


@named_fields()
@dataclass(frozen=True, kw_only=True)
class Query:
    """One search request. Text, an image and examples can be combined.

    Attributes:
        text: Words that the results should match. A phrase in quotes (straight or typographic) is also added to
            `phrases`. A word or phrase after a minus is moved to `not_text`, unless nothing else is left to search for.
        image: Path, bytes, PIL image or precomputed features of an image that the results should match.
        like: Ids of items of the index that are judged to match. They change the text and the image of the query, as
            `retrieval.feedback` says, and are not in the results; alone, they are the query. An id is looked up among
            images, then among texts; ("texts", id) is a text.
        not_like: Ids of items that are judged not to match.
        not_text: Words that the results should not match.
        image_weight: Weight of the image, from 0 to 1; the text has 1 minus this weight. Without an image, that of
            `like` and `not_like`: at 1 they alone are the query.
        not_like_weight: Weight of each item of `not_like`, and of `not_text`, from 0 to 1000; what the results should
            match has weight 1.
        top: Number of results.
        target: "images" or "texts".
        where: Conditions on the metadata, as `Condition` or text such as "year >= 1990", one or several; all must be
            true.
        dates: Which items fulfil a condition on dates, of which only a first and a last day may be known: those that
            "possible" fulfil it, or those that do for "certain".
        order: A metadata field with dates. The best `top` results are shown in its order, the undated ones last.
        descending: The latest date comes first.
        signals: The evidence to use, of the names in `retrieval.ranker`. Empty for all that the index has.
        hubness: Correction for items that are similar to nearly every query: "csls" (Lample et al. 2018), or the
            inverted "softmax" (Smith et al. 2017).
        diversity: From 0 to 1: ranks near-duplicates of better results lower (maximal marginal relevance).
        min_probability: Leaves out results below this probability of being a true match; needs a calibrated index.
        explain: Adds to each result what every signal adds to its score.
        depth: Number of candidates that `hubness` and `diversity` re-rank.
        phrases: Items whose texts contain one of these phrases come first.

    Raises:
        RequirementError: For an empty query, and for values out of range.
        ArgumentError: For a text that is no text.
    """

    text: str | None = None
    image: Any = None
    like: str | Sequence[str | tuple[Side, str]] = ()
    not_like: str | Sequence[str] = ()
    not_text: str | None = None
    image_weight: float = 0.5
    not_like_weight: float = 0.5
    top: int = 10
    target: Side = "images"
    where: str | Condition | Sequence[Condition | str] = ()
    dates: Literal["possible", "certain"] = "possible"
    order: str | None = None
    descending: bool = False
    signals: Sequence[Signal] = ()
    hubness: Literal["csls", "softmax"] | None = None
    diversity: float = 0.0
    min_probability: float | None = None
    explain: bool = False
    depth: int = 200
    phrases: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("where", "like", "not_like", "phrases"):
            # One alone stands for a list of one.
            if isinstance(value := getattr(self, name), str | Condition):
                object.__setattr__(self, name, (value,))
        for name in ("text", "not_text"):
            if (value := getattr(self, name)) is not None and not isinstance(value, str):
                raise ArgumentError(
                    f"{name} needs text; it got {value!r:.60}; several queries are a list: search([...])", field=name
                )
        if self.text is None and self.image is None and not self.like:
            raise RequirementError("a search needs text, an image or an example item (text, image, like); it got none")
        require_target(self.target, self.top)
        ranges = {"image_weight": (0, 1), "diversity": (0, 1), "not_like_weight": (0, 1000), "depth": (1, np.inf)}
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                limits = f"from {least} to {most}" if most < np.inf else f"{least} or more"
                raise RequirementError(f"{name} needs to be {limits}; it got {value}", field=name)
        if self.dates not in ("possible", "certain"):
            raise RequirementError(f"dates needs to be possible or certain; it got '{self.dates}'", field="dates")
        if self.hubness not in (None, "csls", "softmax"):
            raise RequirementError(f"hubness needs to be csls or softmax; it got '{self.hubness}'", field="hubness")
        if unknown := [signal for signal in self.signals if signal not in SIGNALS]:
            names = listed(list(SIGNALS), len(SIGNALS))
            raise RequirementError(f"signals needs some of {names}; it got '{unknown[0]}'", field="signals")

    @property
    def understood(self) -> Query:
        """Parse the quotes and minus signs of the text."""
        straight = self.text.translate(_STRAIGHT) if isinstance(self.text, str) else ""
        if not {'"', "-"}.intersection(straight):
            return self
        without = [several or one for _, several, one in _AWAY.findall(straight)]
        text = " ".join(_AWAY.sub(r"\1", straight).split())
        if without and not (text or self.image is not None or self.like):
            without, text = [], straight  # With nothing else to search for, they are ordinary words.
        phrases = [phrase.strip() for phrase in _QUOTED.findall(text) if words(phrase)]
        text = " ".join(_QUOTED.sub(r"\1", text).split()) if phrases else text
        away = ", ".join([*filter(None, [self.not_text]), *without]) or None
        return replace(self, text=text or None, not_text=away, phrases=(*self.phrases, *phrases))

    @property
    def parts(self) -> list[tuple[str, Any, float]]:
        """("text" | "image" | "items", value, weight); the positive weights sum to 1."""
        combined = self.image is not None or bool(self.like)
        share = self.image_weight if self.text is not None else 1.0
        text_share = 1 - share if combined else 1.0
        positive = [("text", self.text, text_share), ("image", self.image, share)]
        positive = [part for part in positive if part[1] is not None and part[2] > 0]
        total = sum(weight for _, _, weight in positive)
        positive = [(kind, value, weight / total) for kind, value, weight in positive] or [("items", self.like, 1.0)]
        return positive + ([("text", self.not_text, -self.not_like_weight)] if self._is_away else [])

    @property
    def _is_away(self) -> bool:
        return bool(self.not_text) and self.not_like_weight > 0

    @property
    def judged(self) -> list[tuple[str | tuple[Side, str], float, float]]:
        """(id or (side, id), label 1 or -1, weight) of the judged items that change the query."""
        liked = [(name, 1.0, 1.0) for name in self.like]
        return liked + [(name, -1.0, self.not_like_weight) for name in self.not_like if self.not_like_weight > 0]

    @property
    def feedback_strength(self) -> float:
        """How far judged items may lead from the text or image of the query, 1 by default."""
        if self.text is None or self.image is not None or not self.like or self.image_weight == 1:
            return 1.0
        return self.image_weight / (1 - self.image_weight)

    @property
    def texts(self) -> list[str]:
        """The texts that the model embeds."""
        return [value for kind, value, _ in self.parts if kind == "text"]

    @property
    def positive_text(self) -> str | None:
        """The text, if its weight is above 0."""
        return next((value for kind, value, weight in self.parts if kind == "text" and weight > 0), None)

    @property
    def text_only(self) -> bool:
        """Whether text is the only positive part."""
        return not self.like and all(kind == "text" for kind, _, _ in self.parts)

    @property
    def by_score(self) -> bool:
        """Whether the scores alone decide the ranking."""
        return not (self.hubness or self.diversity)

    @property
    def batchable(self) -> bool:
        """Whether this is one text or one image, ranked by score, so that it can be part of a batch."""
        simple = self.by_score and self.min_probability is None and not self.explain and self.order is None
        return simple and len(self.parts) == 1 and not self.judged

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """`where`, parsed, with `dates`."""
        return as_conditions(self.where, certain=self.dates == "certain")

    @property
    def cache_key(self) -> Hashable:
        """A key that is equal for queries with equal answers; an image is compared by a digest of its content."""
        from subtext.data.pixels import ReadImage

        image = self.image.pixels if isinstance(self.image, ReadImage) else self.image
        shape = getattr(image, "shape", getattr(image, "size", None))
        content = image if isinstance(image, bytes) else getattr(image, "tobytes", repr(image).encode)()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return type(self.image), shape, digest, repr(replace(self, text=self.text or "", image=None))


def texts_of(queries: object) -> list[str]:
    """The texts of several queries.

    Args:
        queries: A list, or another sequence or iterable of texts.

    Returns:
        The texts.

    Raises:
        ArgumentError: If it is empty, or something else.
    """
    texts: list[Any] = list(queries) if isinstance(queries, Iterable) and not isinstance(queries, bytes) else [queries]
    if not texts or not all(isinstance(text, str) for text in texts):
        got = next((f"{text!r:.60}" for text in texts if not isinstance(text, str)), "an empty list")
        raise ArgumentError(f"text needs a query, or a list of queries; it got {got}", field="text")
    return texts


def require_target(target: str, top: int) -> Side:
    """The side to search.

    Args:
        target: Name of the side.
        top: Number of results.

    Returns:
        The side.

    Raises:
        RequirementError: For another name, and for a `top` below 1.
    """
    if target not in SIDES:
        raise RequirementError(f"a search looks for 'images' or 'texts'; it got '{target}'")
    if top < 1:
        raise RequirementError(f"a search needs top of 1 or more; it got {top}")
    return "images" if target == "images" else "texts"


def part_scores(part: Part, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """(N) inner products of a part with (N K D) items, of the best matching views.

    Args:
        part: One part of a query.
        vectors: (N K D) float32 vectors of items.

    Returns:
        (N) float64 inner products.
    """
    products = np.einsum("nkd,ld->nkl", vectors, part.vectors, dtype=np.float64, casting="same_kind")
    return products.max(axis=(1, 2)) if len(vectors) else np.zeros(0)


@dataclass(frozen=True)
class CombinedQuery:
    """The parts of a query by pixels alone, as one score: their weighted sum, in standard deviations over a background.

    Cosines of texts with images and of images with images differ in size; in deviations the weights mean what they say.
    A single part keeps its cosine, and needs no background.

    Attributes:
        parts: One part or more.
        background: Sampled items that scores are standardised over; None for a single part that keeps its cosine.
    """

    parts: Sequence[Part]
    background: Background | None

    @property
    def single(self) -> bool:
        """Whether there is one part alone, with its cosine as the score."""
        return len(self.parts) == 1 and self.background is None

    def scaled(self) -> list[tuple[Part, float, float]]:
        """Each part, its mean over the background, and its weight divided by its standard deviation there.

        Returns:
            (part, mean, factor) of each.
        """
        if self.background is None:
            return [(self.parts[0], 0.0, 1.0)]
        scaled = []
        for part in self.parts:
            scores = self.background.scores(part.vectors[None])[0].astype(np.float64)
            mean, deviation = (float(scores.mean()), float(scores.std())) if len(scores) else (0.0, 0.0)
            scaled.append((part, mean, part.weight / (deviation or 1.0)))
        return scaled

    def scores(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """(N) scores of (N K D) items.

        Args:
            vectors: (N K D) float32.

        Returns:
            (N) float64 scores.
        """
        total = np.zeros(len(vectors))
        for part, mean, factor in self.scaled():
            total += factor * (part_scores(part, vectors) - mean)
        return total

    def search(self, view: View, side: Side, count: int, *, among: Keys | None, without: Sequence[int] = ()) -> Hits:
        """The best items, without the examples and judged items of the query.

        Exact where items and parts have one vector each. Else candidates are the best items of each positive part, ten
        times `count`: an item that is good for all parts and among the best of none is missed.

        Args:
            view: The index at one moment.
            side: "images" or "texts".
            count: Number of items.
            among: M keys to search, ascending; None for all.
            without: Keys to leave out.

        Returns:
            At most `count` hits, best first.
        """
        examples = {*without, *(part.key for part in self.parts if part.key is not None)}
        scaled = self.scaled()
        if self.single or (view.manifest.views[side] <= 1 and all(len(part.vectors) == 1 for part in self.parts)):
            vectors = scaled[0][0].vectors if self.single else np.sum([f * p.vectors for p, _, f in scaled], axis=0)
            result = view.nearest(side, vectors[None].astype(np.float32), top=count + len(examples), among=among)[0]
            shift = sum(factor * mean for _, mean, factor in scaled)
            scores = result.scores if self.single else (result.scores - shift).astype(np.float32)
            keys = result.keys
        else:
            positive = np.stack([part.vectors for part in self.parts if part.weight > 0])
            results = view.nearest(side, positive, top=CANDIDATES * (count + len(examples)), among=among)
            keys = np.unique(np.concatenate([result.keys for result in results]))
            totals = self.scores(view.vectors(side, keys))
            order = np.lexsort((keys, -totals))
            keys, scores = keys[order], totals[order].astype(np.float32)
        retained = ~np.isin(keys, list(examples))
        return Hits(keys[retained][:count], scores[retained][:count])


def ids_of(view: View, side: Side, names: Sequence[str]) -> dict[str, str]:
    """The ids of items that are named by their id (`View.resolve`) or by the path of an image as an answer shows it.

    Paths cost a look at every item; a name that is neither an id nor a file of today costs none.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        names: Ids or paths.

    Returns:
        Name -> id of each that is in the index.

    Raises:
        RequirementError: For a name that is no id and fits two.
    """
    ids = view.resolve(side, names)
    root = Path(view.manifest.root)
    unknown = {name: str(root / name) for name in names if name not in ids}
    # `Path.exists` raises for a name that no file can have, such as one that is too long.
    paths = {name: path for name, path in unknown.items() if os.path.exists(path)}  # noqa: PTH110
    if paths and side == "images":
        rows = view.rows(side, keys=view.keys(side).tolist())
        by_path = {str(joined_path(root, row.path)): row.id for row in rows if row.path is not None}
        ids |= {name: by_path[path] for name, path in paths.items() if path in by_path}
    return ids


LOOKED_UP = 8
"""Words that the model does not know that are looked up in the index."""
VOCABULARY = 50_000
"""Texts of an index whose words are suggested."""
LIKE = 0.8
"""Similarity of a suggested word (Ratcliff and Obershelp 1988)."""


def exact_words(view: View, phrases: Sequence[str], doubtful: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The phrases of a query, and the words that its model does not know, that items of the index have.

    Args:
        view: The index at one moment.
        phrases: Phrases in quotes of the query.
        doubtful: Words that the model does not know, or saw a few times.

    Returns:
        Phrases and words that an item has, each once; and a note on phrases that no text has, or none.
    """
    there = [phrase for phrase in phrases if len(view.select("texts", [Condition(TEXT, "contains", phrase)]))]
    absent = [f"'{phrase[:WIDTH]}'" for phrase in phrases if phrase not in there]
    looked_up = [word for word in dict.fromkeys(doubtful) if words(word)][:LOOKED_UP]
    said = [word for word in looked_up if any(view.search_words(side, word, top=1) for side in SIDES)]
    note = ("no text has " + listed(absent, WORDS_SHOWN),) if absent else ()
    return tuple(dict.fromkeys([*there, *said])), note


def phrased(view: View, query: Query) -> NDArray[np.int64]:
    """The items whose texts have a phrase of a query.

    Args:
        view: The index at one moment.
        query: The query, with quotes and minus signs read.

    Returns:
        (N) int64 keys of the side that is searched, ascending.
    """
    found = [view.select("texts", [Condition(TEXT, "contains", phrase)]) for phrase in query.phrases]
    keys = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))
    if query.target == "texts":
        return keys
    texts, images = view.owner_links()
    return np.unique(images[np.isin(texts, keys)])


def suggest_words(view: View, doubtful: Sequence[str]) -> dict[str, str]:
    """Similar words of the index for words that no text has.

    Args:
        view: The index at one moment.
        doubtful: Words of the query that the model does not know.

    Returns:
        Word -> the most similar word of the index, if one is similar enough; of the first SUGGESTED words.
    """
    asked = (word for word in doubtful if len(word) > 3 and word.isalpha() and not view.search_text(word, top=1))
    missing = list(islice(asked, SUGGESTED))
    if not missing:
        return {}
    if "vocabulary" not in view.cache:
        rows = view.rows("texts", keys=sample(view, "texts", VOCABULARY).tolist())
        counts = Counter(word for row in rows for word in words(row.text or ""))
        view.cache["vocabulary"] = sorted(counts, key=lambda word: (-counts[word], word))
    matches = {word: near_texts("".join(words(word)), view.cache["vocabulary"], 1, cutoff=LIKE) for word in missing}
    return {word: nearest[0] for word, nearest in matches.items() if nearest}


def rerank_hits(
    view: View,
    result: Hits,
    query: Query,
    *,
    background: Background | None,
    temperature: float,
    pixel_weight: float = 1.0,
) -> Hits:
    """Candidates re-ranked by `hubness` and `diversity` of a query; their scores do not change.

    Args:
        view: The index at one moment.
        result: The candidates, best first.
        query: The query.
        background: Items of the query's own modality, for the hubness correction; None for a query of several parts.
        temperature: Of the inverted softmax.
        pixel_weight: What a cosine of 1 adds to a score.

    Returns:
        At most `query.depth` hits in their new order.

    Raises:
        RequirementError: For a hubness correction of a query of several parts, or without items of its modality.
    """
    if not len(result.keys):
        return result
    vectors = view.vectors(query.target, result.keys)
    values = result.scores.astype(np.float64)
    if query.hubness:
        if background is None or not len(background.keys):
            need = "a query of one part" if background is None else "items of the query's modality in the index"
            raise RequirementError(f"hubness needs {need}; leave it out", field="hubness")
        bank = background.scores(vectors).astype(np.float64)
        nothing = np.zeros(len(values))
        # Both corrections take something of the cosine that does not depend on the query.
        taken = (
            local_scaling(nothing, bank) / 2
            if query.hubness == "csls"
            else temperature * inverted_softmax(nothing, bank, temperature=temperature)
        )
        values = values + pixel_weight * taken
    order = np.argsort(-values, kind="stable")[: query.depth]
    if query.diversity:
        chosen = vectors[order]
        flat = chosen.reshape(-1, chosen.shape[2])
        similarity = (flat @ flat.T).reshape(len(order), chosen.shape[1], len(order), chosen.shape[1]).max(axis=(1, 3))
        order = order[
            spread_out(values[order], similarity.astype(np.float64), count=len(order), diversity=query.diversity)
        ]
    return Hits(result.keys[order], result.scores[order])


def local_scaling(
    scores: Float[np.ndarray, "c"], bank_scores: Float[np.ndarray, "c b"], *, nearest: int = 10
) -> Float[np.ndarray, "c"]:
    """Cross-domain similarity local scaling (CSLS, Lample and others 2018) of one query's scores: 2 s_c - r_c.

    The query's own mean is the same for all candidates and is left out. Cost time C B.

    Args:
        scores: (C) scores of the candidates.
        bank_scores: Scores of each candidate with a bank of B other queries.
        nearest: How many of the largest are averaged for r_c, which is large for a hub.

    Returns:
        (C) corrected scores.

    Example:
        >>> local_scaling(np.array([0.5, 0.375]), np.array([[0.5, 0.5], [0.125, 0.125]]), nearest=2).tolist()
        [0.5, 0.625]
    """
    count = min(nearest, bank_scores.shape[1])
    if not count:
        return 2 * scores
    return 2 * scores - np.partition(bank_scores, -count, axis=1)[:, -count:].mean(axis=1)


def inverted_softmax(
    scores: Float[np.ndarray, "c"], bank_scores: Float[np.ndarray, "c b"], *, temperature: float
) -> Float[np.ndarray, "c"]:
    """Inverted softmax (Smith and others 2017) of one query: log of exp(s_c / t) / sum_b exp(s_cb / t).

    The probability that a candidate chooses this query among a bank of B others. Cost time C B.

    Args:
        scores: (C) scores of the candidates.
        bank_scores: (C B) scores of each candidate with a bank of B other queries.
        temperature: t, above 0.

    Returns:
        (C) log probabilities up to a constant.

    Example:
        >>> inverted_softmax(np.array([0.0, 0.0]), np.array([[0.0], [1.0]]), temperature=1.0).tolist()
        [0.0, -1.0]
    """
    scaled = bank_scores / temperature
    highest = scaled.max(axis=1, keepdims=True)
    total = highest[:, 0] + np.log(np.exp(scaled - highest).sum(axis=1))
    return scores / temperature - total


def spread_out(
    relevance: Float[np.ndarray, "c"], similarity: Float[np.ndarray, "c c"], *, count: int, diversity: float
) -> Int[np.ndarray, "t"]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): `count` candidates, each the best after those before.

    Equal candidates stay in their order. Cost time count C.

    Args:
        relevance: Of each candidate, larger is better; brought to [0, 1] over the candidates.
        similarity: Similarity of candidates, as cosines.
        count: Number of candidates to select.
        diversity: d in [0, 1]: (1 - d) relevance - d * (the largest similarity to a selected one); 0 sorts by
            relevance.

    Returns:
        (T) int64 positions of the selected candidates, T the smaller of `count` and C.

    Example:
        >>> alike = np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> spread_out(np.array([1.0, 0.9, 0.5]), alike, count=2, diversity=0.5).tolist()
        [0, 2]
    """
    span = float(np.ptp(relevance)) if len(relevance) else 0.0
    scaled = (relevance - relevance.min()) / span if span else np.zeros(len(relevance))
    nearest = np.full(len(relevance), -1.0)
    available = np.ones(len(relevance), dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(min(count, len(relevance))):
        # The first has no selected ones to differ from: it is the best.
        value = (1 - diversity) * scaled - (diversity * nearest if chosen else 0)
        best = int(np.argmax(np.where(available, value, -np.inf)))
        chosen.append(best)
        available[best] = False
        nearest = np.maximum(nearest, similarity[best])
    return np.array(chosen, dtype=np.int64)
