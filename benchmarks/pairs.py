"""What the benchmarks of pairwise similarities share: made items, a contest in float32 and bfloat16, and the peak."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.common import Options, interleaved, report
from subtext.core import Embeddings
from subtext.evaluation.scoring import matrix
from subtext.ops.numerics import supported

REGIONS, WIDTH = 36, 1024
LENGTHS = (9, 10, 11, 12, 12, 13, 14, 15)
"""Words of the texts, in turn: 12 on average."""


@dataclass(frozen=True)
class Contest:
    """A similarity and a plain loop over captions, as the reference has it.

    ours   makes the similarity, with half precision or without
    peer   regions (I R D), words of one caption (L D), vectors of both, the similarity -> (I) scores
    """

    name: str
    peer_name: str
    ours: Callable[[bool], nn.Module]
    peer: Callable[[nn.Module, Embeddings, Embeddings], Tensor]


def made(pictures: int, texts: int) -> tuple[Embeddings, Embeddings]:
    """Unit regions and words that share some directions, so that scores differ."""
    g = torch.Generator().manual_seed(0)
    topics = torch.randn(40, WIDTH, generator=g)

    def items(count: int, parts: int) -> Tensor:
        chosen = topics[torch.randint(0, 40, (count, parts), generator=g)]
        return normalize(chosen + torch.randn(count, parts, WIDTH, generator=g), dim=-1)

    regions, words = items(pictures, REGIONS), items(texts, max(LENGTHS))
    lengths = torch.tensor([LENGTHS[k % len(LENGTHS)] for k in range(texts)])
    mask = torch.arange(max(LENGTHS)) < lengths[:, None]
    return (
        Embeddings(normalize(regions.mean(dim=1, keepdim=True), dim=-1), torch.arange(pictures), parts=regions),
        Embeddings(normalize(words.mean(dim=1, keepdim=True), dim=-1), torch.arange(texts), parts=words, mask=mask),
    )


def one_text(texts: Embeddings, row: int) -> Embeddings:
    """A caption by itself, without padding."""
    assert texts.parts is not None and texts.mask is not None
    length = int(texts.mask[row].sum())
    return replace(texts[row : row + 1], parts=texts.parts[row : row + 1, :length], mask=None)


def peak(*, half: bool) -> float:
    """Multiplications and additions a second of one large product, in 1e9."""
    kind = torch.bfloat16 if half else torch.float32
    left, right = torch.randn(2048, 1024).to(kind), torch.randn(1024, 2048).to(kind)
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        left @ right
        seconds.append(time.perf_counter() - started)
    return 2 * 2048 * 1024 * 2048 / min(seconds) / 1e9


def run(asked: Options, contest: Contest, *, products: int) -> None:
    """Measure and print: 64 pictures and 128 texts (--quick), or 128 and 512; the peer on some of the texts.

    products  multiplications of a pair that no way of computing avoids, for the share of the machine's peak
    """
    pictures = 64 if asked.quick else 128
    texts, sample = (2 * pictures, 8) if asked.quick else (4 * pictures, 32)
    images, words = made(pictures, texts)
    torch.manual_seed(0)
    models = {"ours": contest.ours(False).eval()}
    if supported():
        models["ours, bf16"] = contest.ours(True).eval()
        models["ours, bf16"].load_state_dict(models["ours"].state_dict())
    found: dict[str, Tensor] = {}

    def scored(name: str) -> None:
        found[name] = matrix(models[name], images, words)

    def reference() -> None:
        with torch.inference_mode():
            columns = [contest.peer(models["ours"], images, one_text(words, row)) for row in range(sample)]
        found["peer"] = torch.stack(columns, dim=1)

    contestants: dict[str, Callable[[], object]] = {name: lambda name=name: scored(name) for name in models}
    timings = interleaved({**contestants, "peer": reference}, repeats=asked.repeats)
    pairs = pictures * texts
    scale = texts / sample
    rates = {name: pairs / timing.best for name, timing in timings.items()} | {
        "peer": pairs / (timings["peer"].best * scale)
    }
    exact = found["ours"][:, :sample]
    facts = {
        "name": contest.name,
        "peer": contest.peer_name,
        "size": f"{pictures} pictures x {texts} texts, {REGIONS} regions, 12 words, width {WIDTH}, float32",
        "max_difference": float((exact - found["peer"]).abs().max()),
        "compared": "scores of the sampled texts with every picture",
        "law": f"peer scored {sample} of {texts} texts; time x {scale:g}",
        "pairs_per_second": {name: round(rate) for name, rate in rates.items()},
        "share_of_peak": round(2 * products * rates["ours"] / 1e9 / peak(half=False), 3),
        "threads": torch.get_num_threads(),
        "bf16": "not native here",
    }
    if "ours, bf16" in found:
        facts["bf16"] = {
            "ratio": rates["ours, bf16"] / rates["peer"],
            "max_difference": float((found["ours, bf16"] - found["ours"]).abs().max()),
            "share_of_peak": round(2 * products * rates["ours, bf16"] / 1e9 / peak(half=True), 3),
        }
    report(asked, facts, timings["ours"], timings["peer"], peer_scale=scale)
