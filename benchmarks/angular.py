"""The N-pair angular loss and its gradient at B = 32 and 64: one row a pair, beside repeating pairs to line them up.

The peer does what the public code of the 2020 paper does: every pair is repeated once for each of B negatives, the
negatives once for each pair, and all B^2 rows are compared with all B^2 rows, a matrix of B^4 angles. Its value is
log(1 + B sum_j exp(f_ij)); the closed form has the factor as log B, on B^2 angles. `sizes` has both; the figures
at the top are those of the larger.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.common import interleaved, options, report
from subtext.core import Comparison, Embeddings, Truth
from subtext.objectives.losses.angular import Angular

SIZES = (32, 64)
WIDTH = 256
"""Of the joint space, as in the paper."""


def made(size: int) -> tuple[Tensor, Tensor]:
    """Free vectors of pictures and texts: their gradients are compared."""
    generator = torch.Generator().manual_seed(size)
    images, texts = (torch.randn(size, WIDTH, generator=generator).requires_grad_() for _ in range(2))
    return images, texts


def ours(images: Tensor, texts: Tensor) -> Tensor:
    """The mean of the library's loss, the positive itself among the negatives as in that code."""
    anchors, positives = normalize(images), normalize(texts)
    rows = torch.arange(len(anchors))
    queries, candidates = Embeddings(anchors[:, None], rows), Embeddings(positives[:, None], rows)
    whole = Comparison(anchors @ positives.T, Truth.from_groups(rows, rows), queries, candidates)
    return Angular(repeated=True, include_positive=True)(whole).mean()


def repeated(images: Tensor, texts: Tensor) -> Tensor:
    """The same by repetition."""
    anchors, positives = normalize(images), normalize(texts)
    count = len(anchors)
    a, p = anchors.repeat_interleave(count, dim=0), positives.repeat_interleave(count, dim=0)
    n = positives.repeat(count, 1)
    angles = 4 * (a + p) @ n.T - 4 * (a * p).sum(dim=1, keepdim=True)
    return (1 + angles.exp().sum(dim=1)).log().mean()


def main() -> None:
    """Measure and print."""
    asked = options("N-pair angular loss in closed form, beside repeated pairs", repeats=9, quick_repeats=3)
    sizes, found = {}, {}
    for size in SIZES:
        vectors = made(size)
        last: dict[str, list[Tensor]] = {}

        def run(name: str, vectors: tuple[Tensor, Tensor] = vectors, last: dict[str, list[Tensor]] = last) -> None:
            value = (ours if name == "ours" else repeated)(*vectors)
            last[name] = [value.detach(), *torch.autograd.grad(value, vectors)]

        timings = interleaved({"ours": lambda: run("ours"), "peer": lambda: run("peer")}, repeats=asked.repeats)
        difference = max(float((m - t).abs().max()) for m, t in zip(last["ours"], last["peer"], strict=True))
        found[size] = timings, difference
        sizes[str(size)] = {
            "ours_seconds": timings["ours"].best,
            "peer_seconds": timings["peer"].best,
            "ratio": timings["peer"].best / timings["ours"].best,
            "peak_mb": round(timings["ours"].peak_mb, 1),
            "peer_peak_mb": round(timings["peer"].peak_mb, 1),
            "max_difference": difference,
        }
    timings, _ = found[SIZES[-1]]
    facts = {
        "name": "angular",
        "peer": "every pair repeated for every negative, all rows against all rows",
        "size": f"B = {SIZES[-1]}, width {WIDTH}, float32, value and gradient",
        "max_difference": max(difference for _, difference in found.values()),
        "compared": "value of the loss and its gradient for every vector",
        "law": "peer ran in full",
        "sizes": sizes,
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"])


if __name__ == "__main__":
    main()
