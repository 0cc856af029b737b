"""Answers that were given already, kept while the index stays as it is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The answers that were asked for last, of one state of an index: another one empties it.

    most  total weight of what is kept
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._state: Hashable = None
        self._answers: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, state: Hashable, asked: Hashable) -> T | None:
        """The answer in that state; None where there is none.

        >>> kept = Kept[str](10)
        >>> kept.get(1, "dog"), kept.put(1, "dog", "a dog", weight=3)
        (None, None)
        >>> kept.get(1, "dog"), kept.get(2, "dog"), kept.get(1, "dog")
        ('a dog', None, None)
        """
        with self._lock:
            if state != self._state:
                self._state, self._weight = state, 0
                self._answers.clear()
            found = self._answers.get(asked)
            if found is None:
                return None
            self._answers.move_to_end(asked)
            return found[0]

    def put(self, state: Hashable, asked: Hashable, answer: T, *, weight: int) -> None:
        """Keep an answer of the state that was asked for last; of any other it is not kept."""
        with self._lock:
            if state != self._state or weight > self.most:
                return
            if asked in self._answers:
                self._weight -= self._answers.pop(asked)[1]
            self._answers[asked] = (answer, weight)
            self._weight += weight
            while self._weight > self.most:
                self._weight -= self._answers.popitem(last=False)[1][1]
