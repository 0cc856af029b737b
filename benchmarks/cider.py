"""CIDEr-D of all pairs of 5,000 pictures and 25,000 captions, beside pycocoevalcap's scorer.

The peer scores one pair at a time in Python: it gets every picture with its five references once, and one caption, the
picture's own or another's, so that its document frequencies are ours and the scores can be compared. Its time is scaled
by the number of pairs, because each costs the same. Texts are cut into words once for the peer, outside its time, and
inside of ours. With --quick there are 1,000 pictures.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pycocoevalcap.cider.cider_scorer import CiderScorer

from benchmarks.captions import EACH, PICTURES, captions
from benchmarks.common import interleaved, options, report
from subtext.evaluation.relevance import cider
from subtext.evaluation.relevance.grams import treebank_words
from subtext.ops.compiled.group_products import group_products

QUICK_PICTURES = 1_000


def main() -> None:
    """Measure and print."""
    asked = options("CIDEr-D of all pairs, beside pycocoevalcap", repeats=3, quick_repeats=2)
    pictures = QUICK_PICTURES if asked.quick else PICTURES
    texts, groups, source = captions(pictures)
    words = [" ".join(treebank_words(text)) for text in texts]
    chosen = np.random.default_rng(0).permutation(len(texts))[:pictures]
    chosen[::2] = np.arange(0, pictures, 2) * EACH
    found: dict[str, NDArray[np.floating]] = {}

    def ours() -> None:
        found.pop("ours", None)
        found["ours"] = cider.products(texts, groups, texts).all()

    def peer() -> None:
        scorer = CiderScorer(n=4, sigma=6.0)
        for picture, row in enumerate(chosen):
            scorer += (words[row], words[picture * EACH : (picture + 1) * EACH])
        found["peer"] = scorer.compute_score()[1]

    small = cider.products(texts[:50], groups[:50], texts[:50])
    group_products(small, kernel=True)  # compiled before it is measured
    timings = interleaved({"ours": ours, "peer": peer}, repeats=asked.repeats)
    mine = found["ours"][np.arange(pictures), chosen]
    law = len(texts)
    facts = {
        "name": "cider",
        "peer": "pycocoevalcap 1.2 CiderScorer",
        "size": f"{pictures} x {len(texts)} pairs, {EACH} references each, {source}",
        "max_difference": float(np.abs(mine - found["peer"]).max()),
        "compared": f"{pictures} pairs, scores of 0 to 10",
        "law": f"peer scored {pictures} pairs; time x {law:g}",
        "pairs_per_second": pictures * len(texts) / timings["ours"].best,
        "peer_pairs_per_second": pictures / timings["peer"].best,
        "above_3": int((found["ours"] > 3).sum()),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"], peer_scale=law)


if __name__ == "__main__":
    main()
