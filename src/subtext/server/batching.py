"""Queries of many clients: one thread answers those that wait as one batch; answers are cached."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from http import HTTPStatus
from typing import Generic, TypeVar

from subtext.errors import SubtextError
from subtext.search import Answer, Index, Query
from subtext.server.monitoring import Metrics
from subtext.server.security import RETRY_SECONDS, Refusal

T = TypeVar("T")

BATCH = 64
"""Queries in a batch, at most."""


class Cache(Generic[T]):
    """The most recent values for one state of an index; another state empties it.

    limit  total weight of the values
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._state: Hashable = None
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, state: Hashable, key: Hashable) -> T | None:
        """The value in that state; None where there is none.

        >>> cache = Cache[str](10)
        >>> cache.get(1, "dog"), cache.put(1, "dog", "a dog", weight=3)
        (None, None)
        >>> cache.get(1, "dog"), cache.get(2, "dog"), cache.get(1, "dog")
        ('a dog', None, None)
        """
        with self._lock:
            if state != self._state:
                self._state, self._weight = state, 0
                self._values.clear()
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, state: Hashable, key: Hashable, value: T, *, weight: int) -> None:
        """Store a value of the state of the last `get`; one of another state is dropped."""
        with self._lock:
            if state != self._state or weight > self.limit:
                return
            if key in self._values:
                self._weight -= self._values.pop(key)[1]
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self.limit:
                self._weight -= self._values.popitem(last=False)[1][1]


def state_of(index: Index) -> Hashable:
    """Differs whenever answers may: by the model, the store, its changes, and its calibration."""
    store = index.store
    with store.reading() as view:
        manifest = store.manifest
        return manifest.fingerprint, manifest.store, view.generation, store.calibration_mark()


class Batcher:
    """Answers queries on one index, from one thread.

    current_index  gives the index; it is called before each batch, as the index may be opened again
    cached_hits    hits of earlier answers that are cached
    seconds        that a client waits at most
    """

    def __init__(
        self, current_index: Callable[[], Index], *, cached_hits: int, seconds: float, metrics: Metrics
    ) -> None:
        self.current_index = current_index
        self.seconds = seconds
        self.metrics = metrics
        self._cache: Cache[Answer] = Cache(cached_hits)
        self._queue: deque[tuple[Query, Future[tuple[Answer, Hashable]]]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")

    def answer(self, query: Query) -> Answer:
        """The answer, from the cache where the index has not changed.

        Raises Refusal where it takes too long, and what `Index.answer` raises.
        """
        key = query.cache_key
        cached = self._cache.get(state_of(self.current_index()), key)
        self.metrics.event("cache_misses" if cached is None else "cache_hits")
        if cached is not None:
            return cached
        future: Future[tuple[Answer, Hashable]] = Future()
        self._queue.append((query, future))
        self._thread.submit(self._answer_queue)
        answer, state = self._wait(future)
        self._cache.put(state, key, answer, weight=1 + len(answer))
        return answer

    def run(self, work: Callable[[Index], T]) -> T:
        """Run other work that needs the model, in its turn."""
        return self._wait(self._thread.submit(lambda: work(self.current_index())))

    def close(self) -> None:
        """Finish the queue, then end the thread."""
        self._thread.shutdown(wait=True)

    def _wait(self, future: Future[T]) -> T:
        try:
            return future.result(timeout=self.seconds)
        except FutureTimeout as problem:
            future.cancel()
            sentence = f"no answer within {self.seconds:g} s; the server is busy; try again"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS) from problem

    def _answer_queue(self) -> None:
        """Answer all queries that wait; the turns of queries that joined another's batch have nothing to do."""
        batch: list[tuple[Query, Future[tuple[Answer, Hashable]]]] = []
        while self._queue and len(batch) < BATCH:
            query, future = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                batch.append((query, future))
        if not batch:
            return
        self.metrics.batch(len(batch))
        answers: list[Answer | SubtextError] = []
        state: Hashable = None
        try:
            index = self.current_index()
            state = state_of(index)
            answers = index.answer_many([query for query, _ in batch])
        finally:
            # Any failure is raised where a client waits.
            problem = sys.exc_info()[1]
            for position, (_, future) in enumerate(batch):
                result = problem if problem is not None else answers[position]
                if isinstance(result, Answer):
                    future.set_result((result, state))
                else:
                    future.set_exception(result)
