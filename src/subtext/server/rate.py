"""How often a client may ask: a bucket of tokens each, that fills at a steady rate."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS = 10_000
"""Clients that are remembered; the one that was heard of longest ago is forgotten first."""


class Rate:
    """Counts requests of clients.

    rate   tokens a second; 0 for no limit     burst  tokens of a full bucket
    clock  seconds
    """

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = float(burst)
        self.clock = clock
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, *, cost: float = 1.0) -> int:
        """Take `cost` tokens; 0, or the whole seconds after which there will be as many.

        >>> rate = Rate(2, 1, clock=lambda: 0.0)
        >>> rate.wait("a"), rate.wait("a"), rate.wait("b")
        (0, 1, 0)
        """
        if self.rate <= 0:
            return 0
        now = self.clock()
        tokens, since = self.buckets.pop(client, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate)
        enough = tokens >= cost
        self.buckets[client] = (tokens - cost if enough else tokens, now)
        while len(self.buckets) > CLIENTS:
            self.buckets.popitem(last=False)
        return 0 if enough else max(1, math.ceil((cost - tokens) / self.rate))
