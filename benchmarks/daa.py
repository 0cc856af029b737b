"""DAA and its gradient at B = 128, 512 and 2048: soft ranks in memory of the scores' size, beside the cube.

The peer is what published code does: all differences of all pairs of candidates of every query, B^3 numbers, and
autograd's copies of them. At 512 those are 2 GB, and there it ends; at 2048 the cube alone would be 34 GB. One
direction of a batch, relevance ranked anew in every step, at temperatures 0.01 (cosines) and 0.001 (scores that are
sigmoids). The figures at the top are those of B = 512 at 0.01; `--quick` stops there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.common import Timing, interleaved, options, report
from subtext.core import Comparison, Truth
from subtext.objectives.losses.daa import DAA

SIZES = (128, 512)
"""Of both; ours alone goes on to `LARGEST`."""
LARGEST = 2048
TEMPERATURES = (0.01, 0.001)


def made(size: int) -> Comparison:
    """Scores about as wide as those of a trained model: cosines of deviation 0.1, and 0.5 for partners."""
    generator = torch.Generator().manual_seed(size)
    own = torch.eye(size, dtype=torch.bool)
    scores = 0.1 * torch.randn(size, size, generator=generator) + 0.5 * own
    relevance = torch.rand(size, size, generator=generator).pow(3)
    return Comparison(scores.requires_grad_(), Truth(own, relevance=relevance, scale="made"))


def cube(whole: Comparison, temperature: float) -> Tensor:
    """The same value with every difference written down."""

    def ranks(lists: Tensor) -> Tensor:
        return 0.5 + torch.sigmoid((lists[:, None, :] - lists[:, :, None]) / temperature).sum(dim=2)

    assert whole.truth.relevance is not None
    given, wanted = ranks(whole.scores), ranks(whole.truth.relevance)
    return 1 - (torch.minimum(given, wanted) / torch.maximum(given, wanted)).mean(dim=1)


def main() -> None:
    """Measure and print."""
    asked = options("DAA by soft ranks, beside the cube of all differences", repeats=5, quick_repeats=2)
    sizes, found = {}, {}
    for temperature in TEMPERATURES:
        for size in (*SIZES, *(() if asked.quick else (LARGEST,))):
            whole = made(size)
            last: dict[str, list[Tensor]] = {}

            def run(
                name: str,
                whole: Comparison = whole,
                temperature: float = temperature,
                last: dict[str, list[Tensor]] = last,
            ) -> None:
                values = DAA(temperature)(whole) if name == "ours" else cube(whole, temperature)
                last[name] = [values.detach(), *torch.autograd.grad(values.mean(), whole.scores)]

            contestants = {"ours": lambda run=run: run("ours")}
            if size <= SIZES[-1]:
                contestants["peer"] = lambda run=run: run("peer")
            timings = interleaved(contestants, repeats=asked.repeats)
            found[size, temperature] = timings
            sizes[f"{size} at {temperature:g}"] = _told(timings, last)
    timings = found[SIZES[-1], TEMPERATURES[0]]
    facts = {
        "name": "daa",
        "peer": "all differences of every query's candidates at once, with autograd",
        "size": f"B = {SIZES[-1]}, temperature {TEMPERATURES[0]:g}, float32, value and gradient of one direction",
        "max_difference": max(each["max_difference"] for each in sizes.values() if "max_difference" in each),
        "compared": "value of every query, and gradient of their mean relative to its largest",
        "law": "peer ran in full",
        "sizes": sizes,
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"])


def _told(timings: dict[str, Timing], last: dict[str, list[Tensor]]) -> dict[str, float]:
    ours = timings["ours"]
    told = {"ours_seconds": ours.best, "peak_mb": round(ours.peak_mb, 1)}
    if "peer" not in timings:
        return told
    peer, ((values, gradient), (peer_values, peer_gradient)) = timings["peer"], (last["ours"], last["peer"])
    told |= {"peer_seconds": peer.best, "ratio": peer.best / ours.best, "peer_peak_mb": round(peer.peak_mb, 1)}
    relative = (gradient - peer_gradient).abs().max() / peer_gradient.abs().max()
    told["max_difference"] = max(float((values - peer_values).abs().max()), float(relative))
    return told


if __name__ == "__main__":
    main()
