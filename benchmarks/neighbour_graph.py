"""Exact graph of the 200 nearest of 100,000 rows of 200 numbers, beside FAISS's flat index and scikit-learn.

All contestants find, for unit rows of noise, the 200 other rows of the largest inner product. FAISS and scikit-learn
answer every row alone; ours takes each product once for both of its rows. In full, the peers answer a sample of the
rows, and their time is scaled by how many there are, because every row costs them the same; FAISS's and ours are
checked against each other on the sample. With --quick the whole set is smaller, and nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from benchmarks.common import interleaved, options, report
from subtext.ops.compiled.nearest import NearestRows, nearest_rows

ROWS, WIDTH, COUNT = 100_000, 200, 200
QUICK_ROWS = 20_000
SAMPLE = 10_000
"""Rows that the peers answer in a full run."""


def made(rows: int) -> NDArray[np.float32]:
    """Unit rows of Gaussian noise: no structure that a search could use."""
    vectors = np.random.default_rng(0).standard_normal((rows, WIDTH), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def main() -> None:
    """Measure and print."""
    asked = options("exact nearest neighbours of every row, beside FAISS and scikit-learn", repeats=2, quick_repeats=2)
    rows = QUICK_ROWS if asked.quick else ROWS
    queries = min(rows, SAMPLE)
    step = rows // queries
    vectors = made(rows)
    sample = np.ascontiguousarray(vectors[::step])
    faiss.omp_set_num_threads(torch.get_num_threads())
    flat = faiss.IndexFlatIP(WIDTH)
    flat.add(vectors)
    brute = NearestNeighbors(algorithm="brute", metric="euclidean", n_jobs=torch.get_num_threads()).fit(vectors)
    found: dict[str, NearestRows] = {}
    peer_found: dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}

    def ours() -> None:
        found["all"] = nearest_rows(vectors, count=COUNT)

    def by_faiss() -> None:
        # One more than is asked for: every row finds itself first.
        peer_found["faiss"] = flat.search(sample, COUNT + 1)

    def by_sklearn() -> None:
        peer_found["sklearn"] = brute.kneighbors(sample, COUNT + 1)

    nearest_rows(vectors[: rows // 4], count=16)  # compiled before it is measured
    contestants: dict[str, Callable[[], object]] = {"ours": ours, "faiss": by_faiss, "sklearn": by_sklearn}
    timings = interleaved(contestants, repeats=asked.repeats)
    scores, names = peer_found["faiss"]
    mine = found["all"]
    same = [len(set(a) & set(b)) for a, b in zip(mine.rows[::step].tolist(), names[:, 1:].tolist(), strict=True)]
    facts = {
        "name": "neighbour_graph",
        "peer": "faiss IndexFlatIP",
        "size": f"{rows} x {WIDTH} float32, {COUNT} neighbours of every row",
        "max_difference": float(np.abs(1 + mine.scores[::step] - scores[:, 1:]).max()),
        "compared": f"scores of {queries} rows, in order",
        "same_neighbours": sum(same) / (COUNT * len(same)),
        "law": f"peers answered 1 row in {step}; time x {step}" if step > 1 else "peers ran in full",
        "sklearn_seconds": timings["sklearn"].best * step,
        "sklearn_ratio": timings["sklearn"].best * step / timings["ours"].best,
        "sklearn_spread": round(timings["sklearn"].spread, 3),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["faiss"], peer_scale=float(step))


if __name__ == "__main__":
    main()
