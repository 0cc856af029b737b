"""Queries of many clients, answered together: one thread embeds what is waiting as one batch, and searches for it."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.features import FeatureInput
from subtext.data.lengths import cut_note
from subtext.errors import RequirementError, SubtextError
from subtext.search import Answer, Engine, Order, Query
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import Side
from subtext.server.folder import state_of
from subtext.server.kept import Kept
from subtext.server.metrics import Metrics
from subtext.server.refusals import AGAIN, Refusal

T = TypeVar("T")

TOGETHER = 64
"""Questions that are answered as one batch, at most."""
PLAIN = Order()

_Embed = Callable[[], list[NDArray[np.float32]]]


@dataclass(frozen=True)
class Asked:
    """What a client asks for.

    query     words, a picture's bytes, examples, and several of them together
    item      instead of a query: the side and the id of an item whose neighbours are looked for
    target    "images" or "texts": what is looked for
    order, least, why   see `Engine.answer`
    """

    query: Query | None = None
    item: tuple[Side, str] | None = None
    top: int = 10
    target: Side = "images"
    where: tuple[Condition, ...] = ()
    order: Order = PLAIN
    least: float | None = None
    why: bool = False

    @property
    def reach(self) -> int:
        """Hits that have to be found: one more where the item itself will be among them."""
        return self.top + (self.item is not None and self.item[0] == self.target)

    @property
    def of(self) -> Side | None:
        """What is asked with, where that is one thing alone, which can be answered together with others."""
        if not self.order.plain or self.least is not None or self.why:
            return None
        if self.query is None:
            return None if self.item is None else self.item[0]
        parts = self.query.parts
        if len(parts) > 1 or self.query.like:
            return None
        # Of words and a picture one alone is asked with where the other weighs nothing.
        return "images" if parts[0][0] == "image" else "texts"

    @property
    def key(self) -> Hashable:
        """Equal for what has the same answer."""
        image = None if self.query is None else self.query.image
        digest = hashlib.blake2b(image, digest_size=16).digest() if isinstance(image, bytes) else None
        query = None if self.query is None else replace(self.query, text=self.query.text or "", image=None)
        return digest, repr((query, self.item, self.top, self.target, self.where, self.order, self.least, self.why))


@dataclass(frozen=True)
class Answered:
    """What was found.

    words  of the question, and whether the model knows each      state  of the index asked
    cut    a sentence where the question is longer than the model reads
    """

    answer: Answer
    words: tuple[tuple[str, bool], ...] | None
    cut: str | None
    state: Hashable


class Answering:
    """Answers queries on one index.

    engine_of  gives the engine; it is asked for before each batch, so that it may be another one then
    kept       hits of earlier answers that are kept
    seconds    that a client waits at most
    """

    def __init__(self, engine_of: Callable[[], Engine], *, kept: int, seconds: float, metrics: Metrics) -> None:
        self.engine_of = engine_of
        self.seconds = seconds
        self.metrics = metrics
        self.kept: Kept[Answered] = Kept(kept)
        self._waiting: deque[tuple[Asked, Future[Answered]]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answering")

    def ask(self, asked: Asked) -> Answered:
        """The answer, from memory where the index has not changed since it was given.

        Raises Refusal when it takes too long, and what the engine raises.
        """
        key = asked.key
        known = self.kept.get(state_of(self.engine_of()), key)
        self.metrics.event("cache_misses" if known is None else "cache_hits")
        if known is not None:
            return known
        future: Future[Answered] = Future()
        self._waiting.append((asked, future))
        self._thread.submit(self._turn)
        answer = self._wait(future)
        self.kept.put(answer.state, key, answer, weight=1 + len(answer.answer.hits))
        return answer

    def do(self, work: Callable[[Engine], T]) -> T:
        """Something else that needs the model, in its turn."""
        return self._wait(self._thread.submit(lambda: work(self.engine_of())))

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        self._thread.shutdown(wait=True)

    def _wait(self, future: Future[T]) -> T:
        try:
            return future.result(timeout=self.seconds)
        except Late as problem:
            future.cancel()
            sentence = f"no answer within {self.seconds:g} s; the server is busy, ask again"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, again=AGAIN) from problem

    def _turn(self) -> None:
        """Answer all that wait by now; the turns of those that were answered with others find nothing to do."""
        taken: list[tuple[Asked, Future[Answered]]] = []
        while self._waiting and len(taken) < TOGETHER:
            asked, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                taken.append((asked, future))
        if not taken:
            return
        self.metrics.batch(len(taken))
        answers: list[Answered | SubtextError] = []
        try:
            answers = self._together([asked for asked, _ in taken])
        finally:
            # Whatever went wrong is raised where somebody waits for it.
            problem = sys.exc_info()[1]
            for place, (_, future) in enumerate(taken):
                answer = problem if problem is not None else answers[place]
                if isinstance(answer, Answered):
                    future.set_result(answer)
                else:
                    future.set_exception(answer)

    def _together(self, asked: Sequence[Asked]) -> list[Answered | SubtextError]:
        """The answer to each, or why there is none: what is wrong with one question is no other's fault."""
        engine = self.engine_of()
        state = state_of(engine)
        found: dict[int, Answered | SubtextError] = {}
        vectors: dict[int, NDArray[np.float32]] = {}
        for places, embed in _ways(engine, asked):
            try:
                vectors |= dict(zip(places, embed(), strict=True))
            except SubtextError as problem:
                found |= dict.fromkeys(places, problem)
        for places in _alike(asked, vectors):
            one, top = asked[places[0]], max(asked[place].reach for place in places)
            assert one.of is not None
            try:
                queries = np.stack([vectors[place] for place in places])
                answers = engine.answers(queries, of=one.of, top=top, target=one.target, where=one.where)
            except SubtextError as problem:
                found |= dict.fromkeys(places, problem)
            else:
                told = [_told(engine, asked[place], own, state) for place, own in zip(places, answers, strict=True)]
                found |= dict(zip(places, told, strict=True))
        for place, own in enumerate(asked):
            if own.of is None:
                try:
                    found[place] = _told(engine, own, _alone(engine, own), state)
                except SubtextError as problem:
                    found[place] = problem
        return [found[place] for place in range(len(asked))]


def require_readable(engine: Engine, query: Query) -> None:
    """Raise RequirementError where the model reads features, and no words or pictures that a client could bring."""
    for given, branch, kind in (
        (query.text, engine.model.text, "words"),
        (query.image, engine.model.image, "pictures"),
    ):
        if given is not None and isinstance(branch.input_spec, FeatureInput):
            raise RequirementError(
                f"this library's model reads precomputed features, and no {kind}; ask with an item of the library"
            )


def vectors_of(engine: Engine, side: Side, name: str) -> NDArray[np.float32]:
    """(K D) of an item. Raises Refusal where it is not there."""
    with engine.folder.reading() as view:
        key = view.keys_of(side, [name]).get(name)
        if key is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {side} of this library")
        return view.shelves[side].vectors_of(np.asarray([key], dtype=np.int64))[0]


def _ways(engine: Engine, asked: Sequence[Asked]) -> list[tuple[list[int], _Embed]]:
    """Places of questions that are embedded together, and how: all words at once, each picture and item by itself."""
    alone = [(place, own) for place, own in enumerate(asked) if own.of is not None]
    words = {place: own.query for place, own in alone if own.query is not None and own.of == "texts"}
    found: list[tuple[list[int], _Embed]] = []
    if words:
        found.append((list(words), partial(_of_words, engine, list(words.values()))))
    for place, own in alone:
        if own.query is not None and own.of == "images":
            found.append(([place], partial(_of_picture, engine, own.query)))
        elif own.item is not None:
            found.append(([place], partial(_of_item, engine, own.item)))
    return found


def _of_words(engine: Engine, queries: Sequence[Query]) -> list[NDArray[np.float32]]:
    require_readable(engine, queries[0])
    return list(engine.model.embed_texts([query.text for query in queries]).vectors.float().numpy())


def _of_picture(engine: Engine, query: Query) -> list[NDArray[np.float32]]:
    require_readable(engine, query)
    return list(engine.model.embed_images([query.image]).vectors.float().numpy())


def _of_item(engine: Engine, item: tuple[Side, str]) -> list[NDArray[np.float32]]:
    return [vectors_of(engine, *item)]


def _alone(engine: Engine, asked: Asked) -> Answer:
    """The answer to what cannot be asked together with others."""
    assert asked.query is not None
    require_readable(engine, asked.query)
    return engine.answer(
        asked.query,
        top=asked.top,
        target=asked.target,
        where=asked.where,
        order=asked.order,
        min_probability=asked.least,
        why=asked.why,
    )


def _alike(asked: Sequence[Asked], vectors: Mapping[int, NDArray[np.float32]]) -> list[list[int]]:
    """Places of questions that one search can answer: of the same sides, conditions and number of views."""
    groups: dict[Hashable, list[int]] = {}
    for place, own in vectors.items():
        key = (asked[place].of, asked[place].target, repr(asked[place].where), own.shape)
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def _told(engine: Engine, asked: Asked, answer: Answer, state: Hashable) -> Answered:
    text = None if asked.query is None else asked.query.words
    known = None if text is None else engine.words(text)
    own = asked.item[1] if asked.item is not None and asked.item[0] == asked.target else None
    kept = [hit for hit in answer.hits if hit.id != own][: asked.top]
    texts = [] if asked.query is None else [what for kind, what, _ in asked.query.parts if kind == "text"]
    cut = cut_note(engine.model.text.input_spec, texts)
    return Answered(replace(answer, hits=kept), None if known is None else tuple(known.items()), cut, state)
