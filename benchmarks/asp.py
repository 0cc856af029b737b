"""ASP in both directions: a radix sort of each row, beside the published loop of two argsorts a list.

The peer is the released evaluation's way: for each query, argsort twice the scores and twice the relevance, and take
the mean of smaller rank over larger. Ranks of the relevance are made once for all models that are judged by it, so ours
are timed apart (`semantic_seconds`); `both_seconds` has them in. --quick measures 1,000 x 5,000; else 5,000 x 25,000 is
measured too, where the peer loops over one query in a hundred, and its time is scaled: every query costs the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common import interleaved, options, peak_megabytes, report
from subtext.ops.compiled.semantic_rank import agreement, ranks

QUERIES_SAMPLED = 100
BLOCK = 512
"""Queries ranked together at the large size: a block of ranks, and none larger, is held."""
Matrix = NDArray[np.float32]


def made(pictures: int) -> tuple[Matrix, Matrix]:
    """Relevance with 15 % of zeros, as COCO's has, and scores that follow it loosely."""
    g = np.random.default_rng(0)
    relevance = g.random((pictures, 5 * pictures), dtype=np.float32)
    np.maximum(relevance - np.float32(0.15), 0, out=relevance)
    scores = g.standard_normal(relevance.shape, dtype=np.float32)
    scores *= np.float32(0.3)
    scores += relevance
    return relevance, scores


def loop(relevance: Matrix, scores: Matrix, step: int) -> list[float]:
    """Mean ASP of each direction over every step-th query, one list at a time."""
    found = []
    for semantic, scored in ((relevance, scores), (relevance.T, scores.T)):
        values = []
        for query in range(0, len(semantic), step):
            lists = torch.from_numpy(semantic[query].copy()), torch.from_numpy(scored[query].copy())
            mine = [(-one).argsort(stable=True).argsort().double() + 1 for one in lists]
            values.append(float((torch.minimum(*mine) / torch.maximum(*mine)).mean()))
        found.append(float(np.mean(values)))
    return found


def semantic(relevance: Matrix) -> list[NDArray[Any]]:
    """Ranks of the relevance, both directions."""
    return [ranks(np.ascontiguousarray(one), kernel=True) for one in (relevance, relevance.T)]


def cached(places: list[NDArray[Any]], scores: Matrix) -> list[float]:
    """ASP of each direction from ranks of the relevance that are there."""
    sides = (scores, scores.T)
    return [
        float(agreement(np.ascontiguousarray(one), mine, kernel=True).mean())
        for mine, one in zip(places, sides, strict=True)
    ]


def streamed(relevance: Matrix, scores: Matrix, step: int = 1) -> list[float]:
    """ASP of each direction over every step-th query, ranks of the relevance and all, some queries at a time."""
    found = []
    for mine, theirs in ((relevance, scores), (relevance.T, scores.T)):
        values = []
        for start in range(0, len(mine), BLOCK):
            cut = slice(start, start + BLOCK)
            places = ranks(np.ascontiguousarray(mine[cut]), kernel=True)
            values.append(agreement(np.ascontiguousarray(theirs[cut]), places, kernel=True)[:, 0])
        found.append(float(np.concatenate(values)[::step].mean()))
    return found


def large(repeats: int) -> dict[str, Any]:
    """The size of COCO's test set."""
    relevance, scores = made(5_000)
    timings = interleaved(
        {
            "ours": lambda: streamed(relevance, scores),
            "peer": lambda: loop(relevance, scores, QUERIES_SAMPLED),
        },
        repeats=repeats,
    )
    seconds, peer = timings["ours"].best, timings["peer"].best * QUERIES_SAMPLED
    mine, theirs = streamed(relevance, scores, QUERIES_SAMPLED), loop(relevance, scores, QUERIES_SAMPLED)
    return {
        "size": "5000 x 25000",
        "both_seconds": seconds,
        "peer_seconds": peer,
        "ratio": peer / seconds,
        "peak_mb": round(timings["ours"].peak_mb, 1),
        "max_difference": max(abs(m - t) for m, t in zip(mine, theirs, strict=True)),
        "law": f"peer looped over 1 query in {QUERIES_SAMPLED}; time x {QUERIES_SAMPLED}",
    }


def main() -> None:
    """Measure and print."""
    asked = options("ASP by radix sort, beside two argsorts a list", repeats=5, quick_repeats=3)
    relevance, scores = made(1_000)
    places = semantic(relevance)
    cached(places, scores)  # compiled before it is measured
    found: dict[str, list[float]] = {}
    timings = interleaved(
        {
            "ours": lambda: found.update(ours=cached(places, scores)),
            "semantic": lambda: semantic(relevance),
            "both": lambda: cached(semantic(relevance), scores),
            "peer": lambda: found.update(peer=loop(relevance, scores, 1)),
        },
        repeats=asked.repeats,
    )
    facts = {
        "name": "asp",
        "peer": "torch, two stable argsorts of scores and two of relevance a query",
        "size": "1000 x 5000 float32, both directions",
        "max_difference": max(abs(m - t) for m, t in zip(found["ours"], found["peer"], strict=True)),
        "asp": [round(100 * value, 4) for value in found["ours"]],
        "semantic_seconds": timings["semantic"].best,
        "both_seconds": timings["both"].best,
        "ratio_with_semantic": timings["peer"].best / timings["both"].best,
        "threads": torch.get_num_threads(),
    }
    if not asked.quick:
        facts["large"] = large(2)
    facts["semantic_peak_mb"] = round(peak_megabytes(lambda: semantic(relevance)), 1)
    report(asked, facts, timings["ours"], timings["peer"])


if __name__ == "__main__":
    main()
