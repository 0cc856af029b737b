"""The ranker of an index: how much each kind of evidence counts, learnt from the archive itself.

An item has up to five signals for a query, each a number that is larger where the item fits better:

    pixels      the model's score of the image and the query
    texts       the score of its best text, by the sentence encoder, or by the model where the index has no encoder
    words       words of the query in its best text (BM25)
    fields      words of the query in its id, file name and metadata (BM25)
    neighbours  the texts of the images that look like it, by the sentence encoder

Signals have different units. So each is expressed in standard deviations above its mean over a fixed sample of the
index, for this query. The score of an item is the weighted sum of these deviations. An item may lack a signal. One
without texts gets a constant in place of its texts and words, and its other signals weigh more; both are learnt. (Zero
would be the mean, which lifts it above half of all items with texts.)

The weights maximise the likelihood that the right item is chosen among all, for queries whose item is known: a
multinomial logit (McFadden 1974), with an L2 penalty, and without negative weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import STALE, DirectionCalibration, changed_since
from subtext.retrieval.manifest import Manifest, checksum, with_checksum
from subtext.retrieval.stores.documents import RANKER
from subtext.retrieval.stores.item import SIDES, Change, Side
from subtext.retrieval.stores.store import View, Writer
from subtext.version import FORMAT, __version__, require_format

Signal = Literal["pixels", "texts", "words", "fields", "neighbours"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
OWN: tuple[Signal, ...] = ("texts", "words")
"""Signals of an image's own texts: it has all of them or none."""
WordSignals: tuple[Signal, ...] = ("words", "fields")
FitName = Literal["fixed weights", "made queries", "given pairs"]
PENALTY = 1e-3
"""L2 penalty on the squared weights, in units of one query."""


def fit_choices(
    inputs: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    truth: NDArray[np.int64],
    *,
    signed: Sequence[int] = (),
    penalty: float = PENALTY,
) -> NDArray[np.float64]:
    """Weights under which the right item of each query is likeliest to be chosen among the allowed ones.

    Minimises the mean over queries of -log(exp(x_t w) / sum_i exp(x_i w)) + penalty |w|^2 / 2 by Newton's method; a weight
    that would become negative stays at 0. The function is convex, so there is one minimum.

    Args:
        inputs: (Q N F) inputs of N items for Q queries.
        allowed: (Q N) the items that can be chosen; among them the right one.
        truth: (Q) the right item of each query.
        signed: Inputs whose weights may be negative.
        penalty: On the squared weights, above 0.

    Returns:
        (F) weights.

    Complexity:
        Q N F^2 for each of some ten steps.

    Example:
        >>> inputs = np.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 3.0]]])
        >>> weights = fit_choices(inputs, np.ones((2, 2), dtype=bool), np.array([0, 0]), penalty=0.1)
        >>> weights.round(2).tolist()
        [1.63, 0.0]
    """
    count, _, width = inputs.shape
    chosen = inputs[np.arange(count), truth]
    least = np.zeros(width)
    least[list(signed)] = -np.inf

    def value(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = np.where(allowed, inputs @ weights, -np.inf)
        highest = scores.max(axis=1, keepdims=True)
        odds = np.exp(scores - highest)
        total = odds.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) + highest[:, 0] - chosen @ weights))
        return loss + penalty * float(weights @ weights) / 2, odds / total

    weights = np.zeros(width)
    loss, shares = value(weights)
    for _ in range(100):
        expected = np.einsum("qn,qnf->qf", shares, inputs)
        gradient = (expected - chosen).mean(axis=0) + penalty * weights
        # (F F): the mean covariance of the inputs under the shares.
        spread = np.einsum("qn,qnf,qng->fg", shares, inputs, inputs, optimize=True) - expected.T @ expected
        curvature = spread / count + penalty * np.eye(width)
        free = (weights > least) | (gradient < 0)
        step = np.zeros(width)
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        size = 1.0
        while True:
            tried = np.maximum(weights + size * step, least)
            tried_loss, tried_shares = value(tried)
            if tried_loss <= loss or size < 1e-6:
                break
            size /= 2
        if tried_loss > loss - 1e-10:
            break
        weights, loss, shares = tried, tried_loss, tried_shares
    return weights
