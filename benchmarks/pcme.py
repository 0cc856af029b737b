"""PCME's match probability by products of draws, beside differences of all draws, a caption at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.common import interleaved, options, report
from benchmarks.pairs import peak
from subtext.core import Embeddings
from subtext.evaluation.scoring import matrix
from subtext.models.similarity.probabilistic import MatchProbability

DRAWS, WIDTH, START = 7, 1024, 15.0


def made(count: int, *, seed: int) -> Embeddings:
    """Draws around unit means that share directions, so that probabilities lie anywhere between 0 and 1."""
    g = torch.Generator().manual_seed(seed)
    topics = torch.randn(40, WIDTH, generator=torch.Generator().manual_seed(0))
    means = normalize(
        topics[torch.randint(0, 40, (count,), generator=g)] + torch.randn(count, WIDTH, generator=g), dim=-1
    )
    spread = 0.3 / WIDTH**0.5 * torch.rand(count, 1, 1, generator=g)
    return Embeddings(means[:, None] + spread * torch.randn(count, DRAWS, WIDTH, generator=g), torch.arange(count))


def plain(images: Tensor, text: Tensor) -> Tensor:
    """One caption's draws (1 K D) with every picture's (I K D), pair by pair of draws, as the reference has it."""
    apart = images.unsqueeze(2) - text.unsqueeze(1)
    logits = -START * torch.sqrt((apart**2).sum(-1) + 1e-6) + START
    logits = logits.flatten(1)
    return (torch.exp(logits) / (torch.exp(logits) + torch.exp(-logits))).mean(1)


def main() -> None:
    """Measure and print: 128 pictures and 512 texts (--quick), or 512 and 2,048; the reference on some of the texts."""
    asked = options("PCME's match probability, beside differences of all draws", repeats=5, quick_repeats=2)
    pictures = 128 if asked.quick else 512
    texts, sample = 4 * pictures, 8 if asked.quick else 16
    images, captions = made(pictures, seed=1), made(texts, seed=2)
    similarity = MatchProbability(scale=START, shift=START).eval()
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["ours"] = torch.sigmoid(matrix(similarity, images, captions))

    def reference() -> None:
        with torch.inference_mode():
            columns = [plain(images.vectors, captions.vectors[row : row + 1]) for row in range(sample)]
        found["peer"] = torch.stack(columns, dim=1)

    timings = interleaved({"ours": ours, "peer": reference}, repeats=asked.repeats)
    pairs, scale = pictures * texts, texts / sample
    rate = pairs / timings["ours"].best
    exact = MatchProbability(scale=START, shift=START).double()
    with torch.inference_mode():
        whole = exact.probability(
            *(Embeddings(each.vectors[:sample].double(), each.ids[:sample]) for each in (images, captions))
        )
    facts = {
        "name": "pcme",
        "peer": "differences of all draws, a caption at a time (as the reference)",
        "size": f"{pictures} pictures x {texts} texts, {DRAWS} draws each, width {WIDTH}, float32",
        "max_difference": float((found["ours"][:, :sample] - found["peer"]).abs().max()),
        "compared": "probabilities of the sampled texts with every picture",
        "from_float64": float((found["ours"][:sample, :sample] - whole).abs().max()),
        "peer_from_float64": float((found["peer"][:sample] - whole).abs().max()),
        "law": f"peer scored {sample} of {texts} texts; time x {scale:g}",
        "pairs_per_second": {"ours": round(rate), "peer": round(pairs / (timings["peer"].best * scale))},
        "share_of_peak": round(2 * DRAWS**2 * WIDTH * rate / 1e9 / peak(half=False), 3),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"], peer_scale=scale)


if __name__ == "__main__":
    main()
