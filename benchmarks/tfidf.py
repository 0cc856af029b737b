"""Unigram TF-IDF relevance of 5,000 pictures and 25,000 captions, beside a dense product and beside SciPy's sparse one.

The peer is scikit-learn's TfidfVectorizer, as the code released with the metric calls it, and one dense product of the
mean vector of each picture's captions with all captions: less work than that code does, which multiplies every caption
and takes means afterwards. It multiplies one caption in ten, and the time of that is scaled; the vectorizer runs in
full. SciPy multiplies the same vectors sparse, into a dense matrix, in full. With --quick there are 1,000 pictures.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.captions import EACH, PICTURES, captions
from benchmarks.common import Timing, interleaved, options, report
from subtext.evaluation.relevance import tfidf
from subtext.ops.compiled.group_products import group_products

QUICK_PICTURES = 1_000
STEP = 10
"""The dense product takes one caption in so many."""


def means(groups: NDArray[np.int64]) -> sparse.csr_matrix:
    """The matrix that takes the mean over each picture's captions."""
    entries = (np.full(len(groups), 1 / EACH), (groups, np.arange(len(groups))))
    return sparse.csr_matrix(entries)


def main() -> None:
    """Measure and print."""
    asked = options("TF-IDF relevance of all pairs, beside dense and sparse products", repeats=3, quick_repeats=2)
    pictures = QUICK_PICTURES if asked.quick else PICTURES
    texts, groups, source = captions(pictures)
    merge = means(groups)
    found: dict[str, NDArray[np.floating]] = {}
    products: list[float] = []

    def ours() -> None:
        found.pop("ours", None)
        found["ours"] = tfidf.products(texts, groups, texts).all()

    def dense() -> None:
        vectors = TfidfVectorizer(dtype=np.float32).fit_transform(texts)
        queries = torch.from_numpy((merge @ vectors).astype(np.float32).toarray())
        candidates = torch.from_numpy(vectors[::STEP].toarray())
        started = time.perf_counter()
        queries @ candidates.T
        products.append(time.perf_counter() - started)

    def by_scipy() -> None:
        found.pop("scipy", None)
        vectors = TfidfVectorizer().fit_transform(texts)
        found["scipy"] = ((merge @ vectors) @ vectors.T).toarray()

    small = tfidf.products(texts[:50], groups[:50], texts[:50])
    group_products(small, kernel=True)  # compiled before it is measured
    timings = interleaved({"ours": ours, "dense": dense, "scipy": by_scipy}, repeats=asked.repeats)
    whole = [
        seconds + (STEP - 1) * product for seconds, product in zip(timings["dense"].seconds, products[1:], strict=True)
    ]
    facts = {
        "name": "tfidf",
        "peer": "scikit-learn TfidfVectorizer and a dense product",
        "size": f"{pictures} x {len(texts)} pairs, {EACH} references each, {source}",
        "max_difference": float(max(np.abs(a - b).max() for a, b in zip(found["ours"], found["scipy"], strict=True))),
        "compared": "all pairs with SciPy's float64, cosines of 0 to 1",
        "law": f"the peer's product took 1 caption in {STEP}; its time x {STEP}",
        "scipy_seconds": timings["scipy"].best,
        "scipy_ratio": timings["scipy"].best / timings["ours"].best,
        "scipy_peak_mb": round(timings["scipy"].peak_mb, 1),
        "above_0.3": int(sum((row > 0.3).sum() for row in found["ours"])),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], Timing(whole, timings["dense"].peak_mb))


if __name__ == "__main__":
    main()
