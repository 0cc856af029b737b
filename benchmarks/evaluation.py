"""Recall of a 5,000 x 25,000 score matrix in both directions: counting in one read, beside sorting every query.

The peer is the plain numpy evaluation: argsort every row (then every column) of the matrix and look up where partners
of each query are. With --quick it sorts a sample of the queries, and its time is scaled by how many there are, because
every query of a direction costs the same; its memory is then that of the sample, and is not scaled. Sorting one query
at a time in a loop, as the field's public scripts do, takes as long and next to no memory: see `loop_peak_mb`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common import interleaved, options, peak_megabytes, report
from subtext.evaluation.metrics.recall import Recall
from subtext.ops.rank import Counts, both_directions
from subtext.ops.sparse import CandidateLists

PICTURES, EACH = 5_000, 5
KS = (1, 5, 10)
SAMPLE = 50
"""With --quick, one query in so many is sorted."""


def made() -> NDArray[np.float32]:
    """Scores of noise with partners raised, so that recall is neither 0 nor 100, and without a tie.

    Noise is rounded to whole steps of 2^-19 and partners stand on half steps: no candidate has a partner's score, so
    sorting, which breaks ties as it likes, has one right answer.
    """
    g = np.random.default_rng(0)
    scores = g.standard_normal((PICTURES, PICTURES * EACH), dtype=np.float32)
    texts = np.arange(PICTURES * EACH)
    scores[texts // EACH, texts] += 3
    np.multiply(scores, 2**19, out=scores)
    np.rint(scores, out=scores)
    np.multiply(scores, 2.0**-19, out=scores)
    scores[texts // EACH, texts] += 2.0**-20
    return scores


def sorted_ranks(scores: NDArray[np.float32], step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank of the best partner of every step-th query, by sorting: pictures, then texts."""
    pictures, texts = np.arange(0, PICTURES, step), np.arange(0, PICTURES * EACH, step)
    order = np.argsort(-scores[::step], axis=1)
    i2t = (order // EACH == pictures[:, None]).argmax(axis=1)
    order = np.argsort(-scores.T[::step], axis=1)
    return i2t, (order == texts[:, None] // EACH).argmax(axis=1)


def sort_in_a_loop(scores: NDArray[np.float32]) -> None:
    """The first hundred queries of each direction, one at a time."""
    for query in range(100):
        np.flatnonzero(np.argsort(scores[query])[::-1] // EACH == query)
        np.flatnonzero(np.argsort(scores[:, query])[::-1] == query // EACH)


def recalls(ranks: NDArray[np.int64]) -> dict[str, float]:
    """Recall of sorted ranks, in per cent."""
    return {f"recall@{k}": 100 * float((ranks < k).mean()) for k in KS}


def counted(counts: Counts, step: int) -> dict[str, float]:
    """Recall of counts, in per cent, over the same queries."""
    return {f"recall@{k}": 100 * float(Recall(k).of(counts)[::step].mean()) for k in KS}


def main() -> None:
    """Measure and print."""
    asked = options("recall by counting, beside sorting", repeats=9, quick_repeats=5)
    step = SAMPLE if asked.quick else 1
    scores = made()
    ours_scores = torch.from_numpy(scores)
    groups = np.arange(PICTURES), np.arange(PICTURES * EACH) // EACH
    found: dict[str, tuple[Counts, Counts]] = {}
    peer_found: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def ours() -> None:
        forward, backward = (
            CandidateLists.of_groups(groups[0], groups[1]),
            CandidateLists.of_groups(groups[1], groups[0]),
        )
        found["both"] = both_directions(ours_scores, forward, backward)

    def peer() -> None:
        peer_found["both"] = sorted_ranks(scores, step)

    both_directions(
        ours_scores[:8, :40],
        CandidateLists.of_groups(groups[0][:8], groups[1][:40]),
        CandidateLists.of_groups(groups[1][:40], groups[0][:8]),
        kernel=True,
    )  # compiled before it is measured
    timings = interleaved({"ours": ours, "peer": peer}, repeats=asked.repeats if asked.quick else 1)
    if not asked.quick:
        timings["ours"].seconds += interleaved({"ours": ours}, repeats=asked.repeats)["ours"].seconds
    mine = [counts.rank()[::step] for counts in found["both"]]
    theirs = peer_found["both"]
    figures = [counted(counts, step) for counts in found["both"]]
    peer_figures = [recalls(ranks) for ranks in theirs]
    facts = {
        "name": "evaluation",
        "peer": "numpy argsort of every query",
        "size": f"{PICTURES} x {PICTURES * EACH} float32, both directions",
        "max_difference": max(
            max(float(np.abs(m - t).max()) for m, t in zip(mine, theirs, strict=True)),
            max(abs(m[k] - t[k]) for m, t in zip(figures, peer_figures, strict=True) for k in m),
        ),
        "compared": "rank of every query sorted, and recall in per cent",
        "law": f"peer sorted 1 query in {step}; time x {step}" if step > 1 else "peer ran in full",
        "loop_peak_mb": round(peak_megabytes(lambda: sort_in_a_loop(scores)), 1),
        "image_to_text": figures[0],
        "text_to_image": figures[1],
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"], peer_scale=float(step))


if __name__ == "__main__":
    main()
