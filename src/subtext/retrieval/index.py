"""Search: a search index with its model, and text, images and examples to the items that match them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.addresses import as_path, is_address, joined_path
from subtext.data.features import FeatureInput
from subtext.data.languages import foreign_note, is_foreign, language_of, said_language
from subtext.data.text import UNKNOWN, WordInput, cut_note, tokenise
from subtext.errors import ArgumentError, DataError, RequirementError, Setting, SubtextError
from subtext.retrieval.answer import Answer, Fit, Hit, Reason
from subtext.retrieval.condition import as_conditions, count_dates, matching, missed, named, require_dates
from subtext.retrieval.confidence import Confidence, Judgement
from subtext.retrieval.evidence import Gatherer, ItemScores, Part, judge_evidence, text_space
from subtext.retrieval.explain import explain, part_name, with_shares
from subtext.retrieval.feedback import JudgedVectors, said_by, with_feedback
from subtext.retrieval.mapped_weights import MissingWeightsError
from subtext.retrieval.query import (
    CombinedQuery,
    Query,
    exact_words,
    ids_of,
    part_scores,
    phrased,
    require_target,
    rerank_hits,
    suggest_words,
    texts_of,
)
from subtext.retrieval.ranker import FIXED, LEXICAL, SIGNALS, Ranker, Signal, stored_ranker
from subtext.retrieval.rerank import Reranker
from subtext.retrieval.stores.facets import Condition, earliest, place_of
from subtext.retrieval.stores.item import SIDES, Hits, Side, require_directions
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store, View, are_among
from subtext.retrieval.text_side import TextSide
from subtext.text_helpers import listed

if TYPE_CHECKING:
    from subtext.core import Embeddings
    from subtext.data.inputs import Input
    from subtext.models.heads.gaussian import DistanceVectors
    from subtext.models.model import Model

__all__ = ["Answer", "Fit", "Hit", "Index", "Query", "Reason"]

Embedded = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""(L D) vectors of a text by the model, and (1 E) by the sentence encoder."""
JudgedItem = tuple[Side, int, float, float]
"""Side, key, label 1 or -1, and weight of a judged item."""
RARE = 10
"""Occurrences in the training texts below which a word says little: no score of such a query is a probability."""
_SAYS_LITTLE, _LOOKED_AT = 3, 100
"""Words up to which a query says little about its language, and texts with such words that are looked at."""
TEMPERATURE = 0.05
"""Of the inverted softmax, where neither a calibration nor the model has one, in units of the cosine."""


class Index:
    """A search index and the model that made it.

    Args:
        store: Vectors, texts and metadata of the items.
        model: The model that embeds queries; with `text_side` or `later`, a function that loads it for the first query
            that needs it.
        text_side: Embeds text queries without the model and without torch.
        later: Load the model for the first query that needs it: an index of imported vectors may name none, and
            answers queries by its own items.

    Raises:
        SearchIndexError: If another model made the vectors.
        RequirementError: If the model only scores pairs. With `text_side` or `later`, both are raised when the model is
            loaded.
    """

    def __init__(
        self,
        store: Store,
        model: Model | Callable[[], Model],
        text_side: TextSide | None = None,
        *,
        later: bool = False,
    ) -> None:
        self.store = store
        self._model = model
        self._text_side = text_side
        self._later = later or text_side is not None
        if not self._later:
            _ = self.model  # Opened here, where its errors belong.

    @cached_property
    def model(self) -> Model:
        """The model that made the index."""
        from subtext.models.model import Model
        from subtext.retrieval.build import require_model

        model = (self._model if isinstance(self._model, Model) else self._model()).to_indexable("a search")
        require_model(self.store, self.store.manifest, model)
        return model

    def with_model(self) -> Index:
        """Load the model now, which is faster for many queries.

        Returns:
            The same index, which embeds texts with the loaded model.
        """
        return Index(self.store, self.model) if self._later else self

    @cached_property
    def _distanced(self) -> Mapping[str, DistanceVectors]:
        """Heads of each side whose vectors stand for distributions; a model of such heads is always loaded."""
        if self._later:
            return {}
        from subtext.models.heads.gaussian import DistanceVectors

        heads = {"images": self.model.image.head, "texts": self.model.text.head}
        return {side: head for side, head in heads.items() if isinstance(head, DistanceVectors)}

    @property
    def _text_input(self) -> Input:
        return self.model.text.input_spec if self._text_side is None else self._text_side.input_spec

    def _embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N K D) vectors of texts; raises as `embed_text`."""
        self._require_texts(texts)
        if self._text_side is not None:
            vectors = self._text_side(texts)
        else:
            vectors = self.model.embed_texts(texts).vectors.float().numpy()
        for text, own in zip(texts, vectors, strict=True):
            require_directions(own, f"the query {text[:60]!r}")
        return vectors

    def sentence_encoder(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts by the sentence encoder of the index, without PyTorch where it can be.

        Args:
            texts: N texts.

        Returns:
            (N E) float32, of unit length.

        Raises:
            RequirementError: For an index without a sentence encoder.
            SearchIndexError: If the encoder is not there any more.
        """
        return self._sentence_vectors(texts)[:, 0]

    @cached_property
    def _sentence_vectors(self) -> Callable[[Sequence[str]], NDArray[np.float32]]:
        record = self.store.manifest.encoder
        if record is None:
            raise RequirementError(
                f"{self.store.path} needs a sentence encoder to compare texts with texts; it has none; build it with "
                "one (",
                Setting("text_encoder"),
                ")",
            )
        if record.of_model:
            return self._embed_texts
        folder = self.store.sentence_side
        if folder is not None and folder.exists():
            with suppress(MissingWeightsError):
                return TextSide.open(folder, record.fingerprint)
        from subtext.retrieval.sentences import open_recorded

        encoder = open_recorded(record, self.store.path)
        return lambda texts: encoder.embed_texts(texts).vectors.float().numpy()

    @staticmethod
    def open(index: Path | str, model: Model) -> Index:
        """Open an index with a model.

        Args:
            index: Folder or address of the index.
            model: The model that made it.

        Returns:
            The open index.
        """
        return Index(open_store(index), model)

    def __len__(self) -> int:
        """Images in the index."""
        return self.store.counts["images"]

    def __repr__(self) -> str:
        counts = self.store.counts
        return f"Index({self.store.path}: {counts['images']:,} images, {counts['texts']:,} texts)"

    def search(
        self,
        text: str | Sequence[str] | None = None,
        *,
        image: Any = None,
        like: str | Sequence[str | tuple[Side, str]] = (),
        not_like: str | Sequence[str] = (),
        not_text: str | None = None,
        image_weight: float = 0.5,
        not_like_weight: float = 0.5,
        top: int = 10,
        target: Literal["images", "texts"] = "images",
        where: str | Condition | Sequence[Condition | str] = (),
        dates: Literal["possible", "certain"] = "possible",
        order: str | None = None,
        descending: bool = False,
        signals: Sequence[Signal] = (),
        hubness: Literal["csls", "softmax"] | None = None,
        diversity: float = 0.0,
        min_probability: float | None = None,
        explain: bool = False,
        depth: int = 200,
        rerank: Reranker | None = None,
    ) -> Any:
        """Search with text, an image, items of the index, or a combination; see `Query`.

        An image is a path, bytes or a PIL image. For a model with precomputed features, it is the name of an image in
        the feature file, or an npy or npz file. Arrays as in `Model.embed_images` are also possible.

        Args:
            text: Words that the results should match; see `Query` for quotes and minus signs. A list of queries is
                answered as one batch.
            image: Image that the results should match.
            like: Ids of items that match; they change the query, or are the query where there is no other.
            not_like: Ids of items that do not match.
            not_text: Words that the results should not match.
            image_weight: Weight of the image, or of judged items where there is no image, from 0 to 1. The text has 1
                minus this weight.
            not_like_weight: Weight of each item of `not_like`, and of `not_text`, from 0 to 1000.
            top: Number of results, 1 or more.
            target: "images" or "texts".
            where: Conditions on the metadata, one or several; all must be true.
            dates: "possible": items whose dates may fulfil the conditions; "certain": those whose dates do on every
                day that they may be.
            order: A metadata field with dates, in whose order the best `top` results are shown; undated ones last.
            descending: The latest date comes first.
            signals: The evidence to use; empty for all that the index has. See `Query`.
            hubness: Correction of items that are similar to nearly every query: "csls" or "softmax".
            diversity: From 0 to 1: ranks near-duplicates lower.
            min_probability: Leaves out less probable results; needs a calibrated index.
            explain: Adds to each result what every signal adds to its score.
            depth: Number of candidates that are re-ranked.
            rerank: A second model that orders the results; None for none.

        Returns:
            The results, best first; for a list of queries, a list of them.

        Raises:
            RequirementError: For an empty query, an unknown id or metadata field, missing features, and
                `min_probability` without a calibration.
            DataError: For an empty text, or an image that cannot be read.

        Example:
            >>> index.search("a dog that waits", where=["year < 1950"], top=5)     # doctest: +SKIP
            Answer(5 images; best: 1936-041 (0.412))
        """
        texts = [text] if text is None or isinstance(text, str) else texts_of(text)
        queries = [
            Query(
                text=each,
                image=image,
                like=like,
                not_like=not_like,
                not_text=not_text,
                image_weight=image_weight,
                not_like_weight=not_like_weight,
                top=top,
                target=target,
                where=where,
                dates=dates,
                order=order,
                descending=descending,
                signals=tuple(signals),
                hubness=hubness,
                diversity=diversity,
                min_probability=min_probability,
                explain=explain,
                depth=depth,
            )
            for each in texts
        ]
        if text is None or isinstance(text, str):
            return self.answer(queries[0], rerank=rerank)
        return self.answers(queries, rerank=rerank)

    def answers(self, queries: Sequence[Query], *, rerank: Reranker | None = None) -> list[Answer]:
        """Answer several queries, those that can be together as one batch.

        Args:
            queries: The queries.
            rerank: A second model that orders the results; None for none.

        Returns:
            An answer per query.

        Raises:
            SubtextError: Of the first query that cannot be answered.
        """
        if rerank is not None:
            return [self.answer(query, rerank=rerank) for query in queries]
        answers = list[Answer]()
        for answer in self.answer_many(queries):
            if isinstance(answer, SubtextError):
                raise answer
            answers.append(answer)
        return answers

    def answer(
        self,
        query: Query,
        *,
        rerank: Reranker | None = None,
        hints: bool = True,
        embedded: Mapping[str, Embedded] | None = None,
    ) -> Answer:
        """Answer one query.

        Args:
            query: The query.
            rerank: A second model that orders the results; None for none.
            hints: Adds what `with_hints` adds.
            embedded: Text -> its vectors, where texts of several queries were embedded together.

        Returns:
            The results, best first.

        Raises:
            RequirementError: As `search`.
            DataError: As `search`.
        """
        if rerank is not None:
            return _ordered(rerank.rerank(query, self.answer(rerank.first_stage(query), hints=hints)), query)
        query = self._read(query)
        side, conditions = query.target, query.conditions
        text = query.positive_text
        vocabulary = self.known_words(text) if isinstance(text, str) else None
        rare = self.rare_words(text) if isinstance(text, str) else {}
        doubtful = [word for word, is_known in (vocabulary or {}).items() if not is_known]
        with self.store.reading() as view:
            confidence, ranker = Confidence(view), stored_ranker(view)
            looks_up = not query.signals or set(LEXICAL).intersection(query.signals)
            exact, notes = exact_words(view, query.phrases, [*doubtful, *rare]) if looks_up else ((), ())
            if foreign := self._foreign(view, query):
                query, note = self._without_foreign(view, query, foreign)
                notes = (note, *notes)
            parts, examples, learns = self._parts(view, query, embedded)
            if query.order is not None:
                require_dates(view, side, query.order)
            among = matching(view, side, conditions) if conditions else None
            counts = count_dates(view, side, conditions)
            depth = query.top if query.by_score else max(query.top, query.depth)
            gatherer = self._gatherer(view, query, parts, ranker, confidence)
            scored: ItemScores | None = None
            judgement: Judgement | None = None
            by_pixels: NDArray[np.float32] | None = None
            modality, single = parts[0].modality, len(parts) == 1 and not learns
            combined = CombinedQuery(parts, None if single else confidence.background(side))
            if gatherer is not None:
                having, first = gatherer.with_words(parts), phrased(view, query)
                chosen = among if having is None else having if among is None else having[are_among(having, among)]
                scored = gatherer.gather(parts, count=depth, among=chosen, without=examples, first=first)
                result = scored.best(depth, among=chosen, without=examples, first=first)
                if single and side == "images" and not query.signals:
                    judgement, by_pixels = self._judged(view, ranker, confidence, scored)
            else:
                result = combined.search(view, side, depth, among=among, without=examples)
                if single:
                    complete = [result] if among is None else []
                    judgement = confidence.judge(side, modality, parts[0].vectors[None], complete)[0]
            if not query.by_score:
                scale = self.store.manifest.scale
                result = rerank_hits(
                    view,
                    result,
                    query,
                    background=confidence.background(modality) if query.hubness and len(parts) == 1 else None,
                    temperature=confidence.temperature(side) or (1 / scale if scale > 1 else TEMPERATURE),
                    pixel_weight=1.0 if scored is None else scored.parts[0].slope("pixels"),
                )
            result = Hits(result.keys[: query.top], result.scores[: query.top])
            count = len(result.keys)
            # What probabilities are computed of: all evidence, or the cosines of the hits.
            judged = result.scores
            if by_pixels is not None and scored is not None:
                judged = by_pixels[np.searchsorted(scored.keys, result.keys)]
            if query.min_probability is not None:
                if judgement is None or judgement.direction is None:
                    raise RequirementError(
                        "min_probability needs an index that is calibrated for such queries (text for images, an image "
                        "for texts); this one is not; calibrate it (subtext index calibrate), or leave it out",
                        field="min_probability",
                    )
                probable = judgement.probabilities(judged) >= query.min_probability
                result, judged = Hits(result.keys[probable], result.scores[probable]), judged[probable]
            why = None
            if query.explain and gatherer is not None and scored is not None:
                why = explain(gatherer, scored, result.keys)
            elif query.explain:
                why = self._pixel_reasons(view, side, query, combined, result.keys)
            filtered = query.min_probability is not None
            shown = judgement if filtered or not rare else None
            answer = self._answer(view, side, result, shown, why, even_if_weak=filtered, judged=judged)
            answer = replace(answer, notes=notes, left_out=count - len(result.keys), dates=counts)
        unit: Literal["evidence", "cosine", "deviations"]
        unit = "evidence" if scored is not None else "cosine" if single else "deviations"
        answer = replace(
            answer,
            unit=unit,
            # What the model makes of the query says nothing about words that it does not know.
            fit=None if exact and scored is None else answer.fit,
            text_only=query.text_only,
            exact_words=exact,
            rare_words=rare,
            approximate=scored is not None and not scored.exact,
        )
        answer = _ordered(self._described(answer, query), query)
        return self.with_hints(answer, query) if hints else answer

    def _gatherer(
        self, view: View, query: Query, parts: Sequence[Part], ranker: Ranker | None, confidence: Confidence
    ) -> Gatherer | None:
        """What gathers the evidence of a query; None where pixels are the only signal.

        Raises:
            RequirementError: For signals that the index does not have for this query.
        """
        wanted: Sequence[Signal] = query.signals or SIGNALS
        has_own = ranker is not None and ranker.direction is not None
        if query.min_probability is not None and not has_own and confidence.calibration is not None:
            wanted = [signal for signal in wanted if signal == "pixels"]
        weights = FIXED if ranker is None else ranker.weights
        gatherer = Gatherer(view, query.target, weights, wanted)
        there = [gatherer.signals(part) for part in parts]
        if any(set(own) - {"pixels"} for own in there):
            return gatherer
        if "pixels" not in wanted:
            own = Gatherer(view, query.target, weights)
            has = listed(sorted({signal for part in parts for signal in own.signals(part)}), len(SIGNALS))
            raise RequirementError(
                f"signals needs evidence that the index has for this query ({has or 'pixels'}); it got "
                f"{listed(list(query.signals), len(SIGNALS))}; leave it out, or name another",
                field="signals",
            )
        return None

    @staticmethod
    def _judged(
        view: View, ranker: Ranker | None, confidence: Confidence, scored: ItemScores
    ) -> tuple[Judgement | None, NDArray[np.float32] | None]:
        """The judgement on a query of text by all evidence, or by pixels where given pairs have taught these alone.

        With the latter come the cosines of all items, which it is about.
        """
        own = scored.parts[0]
        pixels = own.values.get("pixels")
        calibrated = confidence.calibration is not None and "images" in confidence.calibration.directions
        if calibrated and pixels is not None and (ranker is None or ranker.direction is None):
            judged = confidence.judge("images", own.part.modality, own.part.vectors[None], [])[0]
            return judged, pixels.astype(np.float32)
        return (None if ranker is None else judge_evidence(view, ranker, scored, confidence.background("images"))), None

    def _pixel_reasons(
        self, view: View, side: Side, query: Query, combined: CombinedQuery, keys: NDArray[np.int64]
    ) -> list[list[Reason]]:
        """The reasons of hits that pixels alone have ranked."""
        kinds = [kind for kind, _, _ in query.parts]
        vectors = view.vectors(side, keys)
        rows: list[list[Reason]] = [[] for _ in keys]
        for kind, (part, mean, factor) in zip(kinds, combined.scaled(), strict=True):
            name = part_name(part, is_text=kind == "text")
            for row, value in zip(rows, part_scores(part, vectors).tolist(), strict=True):
                row.append(Reason("pixels", factor * (value - mean), None, name, value, factor, mean))
        return [with_shares(row) for row in rows]

    def with_hints(self, answer: Answer, query: Query) -> Answer:
        """Add what helps to ask again: words and values that are like the first of those that the index lacks.

        They cost more than the answer: a server adds them where no other query waits.

        Args:
            answer: The answer to the query.
            query: The query.

        Returns:
            The answer with suggestions and notes.
        """
        query = self._read(query)
        text, doubtful = query.positive_text, list[str]()
        if isinstance(text, str):
            vocabulary = self.known_words(text)
            if vocabulary is not None:
                doubtful = [word for word, is_known in vocabulary.items() if not is_known]
            else:
                doubtful = [word for word in re.findall(r"\w+", text) if word[0].isupper()]
        with self.store.reading() as view:
            suggestions = suggest_words(view, doubtful)
            nothing = not answer.hits and not answer.left_out
            notes = missed(view, query.target, query.conditions, nothing=nothing)
            if isinstance(text, str):
                notes += named(view, query.target, text, [hit.id for hit in answer.hits[:1]])
        return replace(answer, suggestions=suggestions, notes=(*answer.notes, *notes))

    def _read(self, query: Query) -> Query:
        """The query with its quotes and minus signs read; a name in precomputed text features stays as it is."""
        return query if query.text is None or isinstance(self._text_input, FeatureInput) else query.understood

    def _foreign(self, view: View, query: Query) -> str:
        """The language of a query of text that the model does not read; "" for another, and for words in quotes."""
        alone = query.text is not None and query.text_only and not query.phrases and query.min_probability is None
        if not alone or query.signals or isinstance(self._text_input, FeatureInput):
            return ""
        text, reads = str(query.text), self.store.manifest.languages
        language = language_of(text)
        if not is_foreign(language, reads) and reads and len(text.split()) <= _SAYS_LITTLE:
            language = _declared_language(view, text) or language
        return language if is_foreign(language, reads) else ""

    def _without_foreign(self, view: View, query: Query, language: str) -> tuple[Query, str]:
        """The query by the signals that read its language, and a note; by all where there are none."""
        manifest, text = self.store.manifest, str(query.text)
        encoder = manifest.encoder
        read = encoder is not None and bool(encoder.languages) and not is_foreign(language, encoder.languages)
        has_words = _has_words(view, query, text)
        decide: tuple[Signal, ...] = LEXICAL if has_words else ()
        decide = tuple(signal for signal in SIGNALS if signal != "pixels") if read else decide
        note = foreign_note(language, manifest.languages, by_encoder=read, by_words=has_words)
        return replace(query, signals=decide), note

    def answer_many(self, queries: Sequence[Query], *, hints: bool = True) -> list[Answer | SubtextError]:
        """The answer to each query, or its error; similar text queries are embedded and searched as one batch.

        An error in one query does not affect the others.

        Args:
            queries: The queries.
            hints: Adds what `with_hints` adds.

        Returns:
            An answer or an error per query, in their order.
        """
        groups: dict[Hashable, list[int]] = {}
        queries = [self._read(query) for query in queries]
        for row, query in enumerate(queries):
            key = (query.target, repr(query.where), query.dates)
            groups.setdefault(key if self.batches(query) else row, []).append(row)
        answers: dict[int, Answer | SubtextError] = {}
        for rows in groups.values():
            group = [queries[row] for row in rows]
            try:
                results: Sequence[Answer | SubtextError]
                results = [self.answer(group[0], hints=False)] if len(group) == 1 else self._answer_texts(group)
                if hints:
                    pairs = zip(results, group, strict=True)
                    results = [self.with_hints(one, query) if isinstance(one, Answer) else one for one, query in pairs]
            except SubtextError as problem:
                alone = partial(self.answer_many, hints=hints)
                results = [problem] if len(group) == 1 else [alone([query])[0] for query in group]
            answers |= dict(zip(rows, results, strict=True))
        return [answers[row] for row in range(len(queries))]

    def batches(self, query: Query) -> bool:
        """Whether `answer_many` answers a query together with others, so that it costs little.

        Args:
            query: The query.

        Returns:
            False where it is answered by itself.
        """
        query = self._read(query)
        return query.batchable and query.positive_text is not None

    def _has_evidence(self, query: Query) -> bool:
        """Whether more than pixels can rank the answer to a query of text."""
        if query.signals:
            return set(query.signals) != {"pixels"}
        with self.store.reading() as view:
            if view.counts["texts"] or isinstance(self._text_input, FeatureInput):
                return view.counts["texts"] > 0
            return bool(view.search_words("images", query.positive_text or "", top=1))

    def _answer_texts(self, queries: Sequence[Query]) -> list[Answer]:
        """The answers of batchable queries of text, of one target and set of conditions."""
        texts = [str(query.positive_text) for query in queries]
        first, vectors = queries[0], self._embed_texts(texts)
        if any(query.phrases or self._has_evidence(query) for query in queries):
            encoded = self._sentences(texts)
            embedded = {
                text: (vectors[row], None if encoded is None else encoded[row]) for row, text in enumerate(texts)
            }
            return [self.answer(query, hints=False, embedded=embedded) for query in queries]
        top = max(query.top for query in queries)
        answers = self._nearest(vectors, modality="texts", top=top, target=first.target, where=first.conditions)
        return [
            self._described(replace(answer, hits=answer.hits[: query.top]), query)
            for query, answer in zip(queries, answers, strict=True)
        ]

    def nearest(
        self,
        vectors: NDArray[np.float32],
        *,
        modality: Literal["images", "texts"] | None = None,
        top: int = 10,
        target: Literal["images", "texts"] = "images",
        where: Sequence[Condition | str] = (),
        exact: bool = False,
    ) -> list[Answer]:
        """Find the nearest items to vectors of the model.

        Args:
            vectors: (Q L D) float32: Q queries of L vectors each.
            modality: Modality of the vectors. Default: that of `target`, for which the answers have no probabilities.
            top: Number of results per query, 1 or more.
            target: "images" or "texts".
            where: Conditions on the metadata; all must be true.
            exact: Compares every vector, even if the index has inverted lists.

        Returns:
            An answer per query.

        Raises:
            RequirementError: For vectors of another shape, and for an unknown metadata field.
        """
        answers = self._nearest(vectors, modality=modality, top=top, target=target, where=where, exact=exact)
        with self.store.reading() as view:
            notes = (
                missed(view, answers[0].target, as_conditions(where), nothing=not answers[0].hits) if answers else ()
            )
        return [replace(answer, notes=notes) for answer in answers]

    def _nearest(
        self,
        vectors: NDArray[np.float32],
        *,
        modality: Literal["images", "texts"] | None,
        top: int,
        target: Literal["images", "texts"],
        where: Sequence[Condition | str],
        exact: bool = False,
    ) -> list[Answer]:
        """As `nearest`, without notes on values that no item has."""
        side, source = require_target(target, top), require_target(modality or target, top)
        if vectors.ndim != 3 or vectors.shape[2] != self.store.manifest.width:
            raise RequirementError(
                f"a search needs vectors of (queries, views, {self.store.manifest.width}); it got {vectors.shape}"
            )
        if side == source and source in self._distanced:
            vectors = self._distanced[source].means_alone(vectors)
        for row, own in enumerate(vectors):
            require_directions(own, f"query {row}")
        conditions = as_conditions(where)
        with self.store.reading() as view:
            among = matching(view, side, conditions) if conditions else None
            counts = count_dates(view, side, conditions)
            results = view.nearest(side, vectors, top=top, among=among, exact=exact)
            judgements = Confidence(view).judge(side, source, vectors, results if among is None else [])
            return [
                replace(self._answer(view, side, result, judgement), dates=counts)
                for result, judgement in zip(results, judgements, strict=True)
            ]

    def vectors_of(self, side: Side, name: str) -> NDArray[np.float32] | None:
        """The vectors of an item.

        Args:
            side: "images" or "texts".
            name: Id of the item.

        Returns:
            (K D) float32; None if there is no such item.
        """
        with self.store.reading() as view:
            known = view.resolve(side, [name])
            return view.vectors_of(side, list(known.values()))[0] if known else None

    def known_words(self, text: str) -> dict[str, bool] | None:
        """Check which words of a text are in the model's vocabulary.

        If no word is in it, the answer is meaningless, even with high scores.

        Args:
            text: Any text.

        Returns:
            Word -> whether it is in the vocabulary; None for a model of subwords.
        """
        spec = self._text_input
        if not isinstance(spec, WordInput):
            return None
        words = tokenise(text)[: spec.max_tokens - 2]
        return {word: code != UNKNOWN for word, code in zip(words, spec.vocabulary.encode(words), strict=True)}

    def rare_words(self, text: str) -> dict[str, int]:
        """Count the known words of a text that occur fewer than `RARE` times in the training texts.

        Args:
            text: Any text.

        Returns:
            Word -> number of its occurrences in the training texts.
        """
        spec = self._text_input
        if not isinstance(spec, WordInput):
            return {}
        counts = {
            word: spec.vocabulary.count(word) for word, is_known in (self.known_words(text) or {}).items() if is_known
        }
        return {word: count for word, count in counts.items() if count < RARE}

    def feature_name(self, image: Any) -> str | None:
        """The name of an image in the model's features: its path as typed, its path in the index, or its file name.

        The names are tried in this order.

        Args:
            image: Path or name of an image.

        Returns:
            A name in the feature file; None if the model reads images, or the file has no such name.
        """
        spec = self.model.image.input_spec
        if not isinstance(spec, FeatureInput) or spec.file is None or not isinstance(image, str | Path):
            return None
        path, root = Path(image).expanduser().resolve(), Path(self.store.manifest.root)
        inside = [path.relative_to(root).as_posix()] if path.is_relative_to(root) else []
        return spec.file.name_of(str(image), *inside)

    def embed_text(self, text: str) -> Embeddings:
        """The vectors of a text.

        Args:
            text: One text.

        Returns:
            One embedding.

        Raises:
            DataError: For an empty text.
            RequirementError: If the model reads precomputed text features.
            ArgumentError: For a value that is no text.
        """
        self._require_texts([text])
        return self.model.embed_texts([text])

    def embed_image(self, image: Any) -> Embeddings:
        """The vectors of an image or of its features.

        Args:
            image: As in `search`.

        Returns:
            One embedding.

        Raises:
            DataError: If there is no such file, or it cannot be read.
            RequirementError: If the model reads features, and there are none of this image.
        """
        spec = self.model.image.input_spec
        place = as_path(image) if isinstance(image, str | Path) else None
        if is_address(place) and self.feature_name(image) is None:
            from subtext.data.image_files import LARGEST_FILE, most_pixels
            from subtext.data.object_store import content

            address = image if isinstance(image, str) else str(place)
            image = content(address, most=LARGEST_FILE * most_pixels(), keep=False)
        elif (
            isinstance(image, str | Path) and self.feature_name(image) is None and not Path(image).expanduser().exists()
        ):
            features = spec.file if isinstance(spec, FeatureInput) else None
            names = "" if features is None else f", and {features.path} has no features of that name"
            raise DataError(f"a query image needs a file; {Path(image).expanduser().absolute()} does not exist{names}")
        if isinstance(spec, FeatureInput) and not isinstance(image, np.ndarray | Mapping):
            name = self.feature_name(image)
            if name is None and isinstance(image, str | Path) and Path(image).suffix in (".npy", ".npz"):
                image = spec.of_file(Path(image).expanduser())
            elif name is None:
                got = str(image) if isinstance(image, str | Path) else f"a value of type {type(image).__name__}"
                file = "a file of features (there is none)" if spec.file is None else str(spec.file.path)
                raise RequirementError(
                    f"this model reads precomputed image features, not images: it needs an image that {file} names, or "
                    f"an .npy or .npz with the features of one image; it got {got}; compute them as in training, or "
                    "search with text"
                )
            else:
                image = name
        # Passed on as it is: a JPEG is decoded at the same scale as when it was indexed.
        return self.model.embed_images([image])

    def _require_texts(self, texts: Sequence[str]) -> None:
        spec = self._text_input
        for text in texts:
            if not isinstance(text, str):
                raise ArgumentError(f"a query needs text; it got {text!r:.60}; search for one text at a time")
            if not text.strip():
                raise DataError("a search needs words; the text is empty")
            if isinstance(spec, FeatureInput) and (spec.file is None or spec.file.name_of(text) is None):
                raise RequirementError(
                    "this model reads precomputed text features, not words: it needs a text that its file names; it "
                    f"got {text[:60]!r}; search with an image, or embed features and call `Index.nearest`"
                )

    def _parts(
        self, view: View, query: Query, embedded: Mapping[str, Embedded] | None = None
    ) -> tuple[list[Part], list[int], bool]:
        """The parts of a query, as judged items have changed them; keys of these; and whether they have."""
        items = [(*self._item(view, name), label, weight) for name, label, weight in query.judged]
        parts = [self._part(view, query.target, *part, items=items, embedded=embedded) for part in query.parts]
        # One liked item alone is the query.
        learns = len(items) > (query.parts[0][0] == "items") and query.feedback_strength > 0
        if learns:
            parts = self._judged_parts(view, query.target, parts, items, query.feedback_strength)
        return parts, [key for side, key, _, _ in items if side == query.target], learns

    def _part(
        self,
        view: View,
        target: Side,
        kind: str,
        value: Any,
        weight: float,
        *,
        items: Sequence[JudgedItem] = (),
        embedded: Mapping[str, Embedded] | None = None,
    ) -> Part:
        """One part of a query as vectors; of several items the mean."""
        if kind == "text":
            return self.part_of_text(view, target, value, weight, embedded=embedded)
        if kind == "image":
            vectors = self.embed_image(value).vectors[0].float().numpy()
            require_directions(vectors, "the image of the query")
            return Part(weight, self._toward(target, "images", vectors), "images")
        liked = [(own, key) for own, key, label, _ in items if label > 0]
        rows = [self._toward(target, own, view.vectors(own, np.array([key]))[0]) for own, key in liked]
        side, key = liked[0]
        vectors = rows[0] if len(rows) == 1 else np.mean([row.mean(axis=0) for row in rows], axis=0, keepdims=True)
        return Part(weight, vectors.astype(np.float32), side, key if side == target else None)

    @staticmethod
    def _item(view: View, value: str | tuple[Side, str]) -> tuple[Side, int]:
        """Side and key of an item by its id; an image where both sides have that id."""
        sides, name = (SIDES, value) if isinstance(value, str) else ((value[0],), value[1])
        for side in sides:
            known = ids_of(view, side, [name]).get(name)
            if known is not None:
                return side, view.keys_of(side, [known])[known]
        raise RequirementError(
            f"an example needs the id of an item of the index, or the path of its image; there is no '{name}'; give "
            "another"
        )

    def _judged_parts(
        self, view: View, target: Side, parts: Sequence[Part], items: Sequence[JudgedItem], strength: float
    ) -> list[Part]:
        """The positive parts of a query as judged items have changed them: for pixels, and for texts."""
        pixels = JudgedVectors.of(
            [
                (self._toward(target, side, view.vectors(side, np.array([key]))[0]).mean(axis=0), side, label, weight)
                for side, key, label, weight in items
            ]
        )
        space = text_space(view)
        said = said_by(view, space, [(side, key) for side, key, _, _ in items])
        texts = JudgedVectors.of(
            [(said[side, key], space, label, weight) for side, key, label, weight in items if (side, key) in said]
        )
        changed = []
        assert pixels is not None
        for part in parts:
            if part.weight > 0:
                vectors = with_feedback(view, target, part.vectors, pixels, strength=strength)
                part = replace(part, vectors=vectors)
                if texts is not None and part.sentence is not None and space == "sentences":
                    sentence = with_feedback(view, space, part.sentence, texts, strength=strength)
                    part = replace(part, sentence=sentence)
                elif texts is not None and part.toward_texts is not None and space == "texts":
                    toward = with_feedback(view, space, part.toward_texts, texts, strength=strength)
                    part = replace(part, toward_texts=toward)
            changed.append(part)
        return changed

    def part_of_text(
        self,
        view: View,
        target: Side,
        text: str,
        weight: float = 1.0,
        *,
        embedded: Mapping[str, Embedded] | None = None,
    ) -> Part:
        """A text as a part of a query, with all that its signals compare.

        Args:
            view: The index at one moment.
            target: "images" or "texts": what is searched.
            text: The text.
            weight: Of the part.
            embedded: See `answer`.

        Returns:
            The part; a name in a file of features has no words and no sentence.
        """
        is_text = not isinstance(self._text_input, FeatureInput)
        if embedded is not None and text in embedded:
            vectors, sentence = embedded[text]
        else:
            encoded = self._sentences([text])
            vectors, sentence = self._embed_texts([text])[0], None if encoded is None else encoded[0]
        return Part(
            weight,
            self._toward(target, "texts", vectors),
            "texts",
            text=text if is_text else None,
            sentence=sentence,
            toward_texts=self._toward("texts", "texts", vectors),
            readable=any((self.known_words(text) or {"": True}).values()),
        )

    def _sentences(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """(N 1 E) vectors of texts by the sentence encoder; None where it compares nothing, or they are names."""
        none = self.store.manifest.encoder is None or not self.store.counts["texts"]
        if none or isinstance(self._text_input, FeatureInput):
            return None
        return self.sentence_encoder(texts)[:, None]

    def _toward(self, target: Side, modality: Side, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors as they are compared with a side; a distribution is compared by its mean with those of its own."""
        head = self._distanced.get(modality) if target == modality else None
        return vectors if head is None else head.means_alone(vectors[None])[0]

    def _answer(
        self,
        view: View,
        side: Side,
        result: Hits,
        judgement: Judgement | None,
        why: Sequence[list[Reason]] | None = None,
        *,
        even_if_weak: bool = False,
        judged: NDArray[np.float32] | None = None,
    ) -> Answer:
        """An answer with these items, their probabilities and uncertainties.

        Args:
            view: The index at one moment.
            side: "images" or "texts".
            result: (T) keys and scores.
            judgement: Of the query; None for an index that is not calibrated.
            why: Reasons of each hit; None for none.
            even_if_weak: Gives probabilities where nothing matches well, too.
            judged: (T) that probabilities are computed of; the scores by default.

        Returns:
            The hits in the order of `result`.
        """
        missing = [None] * len(result.keys)
        chances = (
            missing
            if judgement is None or judgement.direction is None or (judgement.fit.has_no_match and not even_if_weak)
            else judgement.probabilities(result.scores if judged is None else judged).tolist()
        )
        head, root = self._distanced.get(side), Path(self.store.manifest.root)
        spread = missing if head is None else head.uncertainty(view.vectors(side, result.keys)).tolist()
        explained = [[] for _ in missing] if why is None else why
        levels = missing if judgement is None else judgement.levels(result.scores)
        rows = zip(
            view.items(side, result.keys), result.scores.tolist(), chances, explained, spread, levels, strict=True
        )
        hits = [
            Hit(
                item.id,
                score,
                item.path and str(joined_path(root, item.path)),
                item.captions,
                item.metadata,
                chance,
                grounds,
                std,
                level,
            )
            for item, score, chance, grounds, std, level in rows
        ]
        fit, stale = (None, None) if judgement is None else (judgement.fit, judgement.stale)
        return Answer(hits, target=side, fit=fit, stale=stale)

    def _described(self, answer: Answer, query: Query) -> Answer:
        """The answer with what is known of the query's text, and the query as plain data, without defaults."""
        text = query.positive_text
        words = None if text is None else self.known_words(text)
        note = cut_note(self._text_input, query.texts) if query.texts else None
        about: dict[str, Any] = {} if query.text is None else {"text": query.text}
        if isinstance(query.image, str | Path):
            about |= {"image": str(query.image), "features_of": self.feature_name(query.image)}
        if query.text is not None and (query.image is not None or query.like):
            about["image_weight"] = query.image_weight
        lists = {"like": list(query.like), "not_like": list(query.not_like), "not_text": query.not_text}
        about |= {name: value for name, value in lists.items() if value}
        about |= {"phrases": list(query.phrases)} if query.phrases else {}
        about |= {"order": query.order, "descending": query.descending} if query.order is not None else {}
        conditions = [query.where] if isinstance(query.where, str | Condition) else query.where
        where = [c if isinstance(c, str) else f"{c.field} {c.test} {c.value}" for c in conditions]
        return replace(
            answer,
            words=None if words is None else tuple(words.items()),
            notes=(*answer.notes, *(() if note is None else (note,))),
            fit=answer.fit if answer.hits or answer.left_out else None,
            request={"query": about, "where": where, "index": str(self.store.path)},
        )


def _declared_language(view: View, text: str) -> str:
    """The language that all the best texts with words of a query name in their field "language"; else "".

    A word such as "Liebe" says little about its language; where every text that has it says that it is German, it is.
    """
    if view.search_words("images", text, top=1):
        return ""
    keys = [key for key, _ in view.search_words("texts", text, top=_LOOKED_AT)]
    languages = {said_language(item.metadata) for item in view.items("texts", keys)}
    return languages.pop() if len(languages) == 1 else ""


def _has_words(view: View, query: Query, text: str) -> bool:
    """Whether an item that meets the conditions of a query has one of its words, or is linked with one that has."""
    if not query.conditions:
        return any(view.search_words(side, text, top=1) for side in SIDES)
    among, (texts, images) = matching(view, query.target, query.conditions), view.owner_links()
    for side in SIDES:
        keys = np.array([key for key, _ in view.search_words(side, text, top=None)], dtype=np.int64)
        if side != query.target:
            own, linked = (texts, images) if side == "texts" else (images, texts)
            keys = linked[np.isin(own, keys)]
        if are_among(keys, among).any():
            return True
    return False


def _ordered(answer: Answer, query: Query) -> Answer:
    """The answer with its hits in the order of the query."""
    if query.order is None:
        return answer
    field = query.order
    places = [place_of(earliest(hit.metadata, field), descending=query.descending) for hit in answer.hits]
    return replace(answer, hits=[answer.hits[row] for row in sorted(range(len(places)), key=lambda row: places[row])])
