"""Two stages beside scoring every pair: what is scored, how long it takes, and what it costs in scores and in recall.

Pictures and texts are made, and neither model is trained: the second sees regions and words, the first a blurred mean
of them. What a candidate list loses on real data is told by `subtext evaluate RUN --rerank RUN2 --candidates N,N,...`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks.common import interleaved, options, report
from subtext.core import DIRECTIONS, Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.evaluation import Protocol, Result, evaluate_embeddings, evaluate_matrix, scoring
from subtext.evaluation.two_stages.evaluate import RankingStage, evaluate_two_stages
from subtext.evaluation.two_stages.scores import reranked_scores, shortlists
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import CrossAttention

CANDIDATES = 100
REGIONS, WORDS = 36, 12
PROTOCOL = Protocol(bootstrap=0)
COUNTS = (10, 20, 50, 100, 200, 300, 500, 700)


def made(pictures: int, width: int) -> tuple[RankingStage, RankingStage, Dataset]:
    """Pictures of regions that share topics, five texts each whose words are some of them, seen by both stages."""
    g = torch.Generator().manual_seed(0)
    topics = torch.randn(4 * pictures, width, generator=g)
    chosen = topics[torch.randint(0, len(topics), (pictures, REGIONS), generator=g)]
    regions = normalize(chosen + 0.3 * torch.randn(chosen.shape, generator=g), dim=-1)
    owners = torch.arange(pictures).repeat_interleave(5)
    named = torch.randint(0, REGIONS, (len(owners), WORDS), generator=g)
    words = regions[owners[:, None], named] + 0.09 * torch.randn(len(owners), WORDS, width, generator=g)
    lengths = torch.randint(8, WORDS + 1, (len(owners),), generator=g)
    mask = torch.arange(WORDS) < lengths[:, None]
    words = normalize(words, dim=-1)
    images, texts = torch.arange(pictures), torch.arange(len(owners))

    def blurred(parts: torch.Tensor) -> torch.Tensor:
        mean = normalize(parts.mean(dim=1, keepdim=True), dim=-1)
        return normalize(mean + 0.03 * torch.randn(mean.shape, generator=g), dim=-1)

    groups = owners.numpy()
    pairs = Dataset(
        _items("p", np.arange(pictures, dtype=np.int64)),
        _items("t", groups),
        np.stack([groups, texts.numpy()], 1),
        Path(),
    )
    first = RankingStage(Cosine(), Embeddings(blurred(regions), images), Embeddings(blurred(words), texts))
    second = RankingStage(
        CrossAttention().eval(),
        Embeddings(normalize(regions.mean(dim=1, keepdim=True), dim=-1), images, parts=regions),
        Embeddings(normalize(words.mean(dim=1, keepdim=True), dim=-1), texts, parts=words, mask=mask),
    )
    return first, second, pairs


def apart(first: RankingStage, second: RankingStage, every: torch.Tensor) -> float:
    """The largest difference between a pair's score in two stages and among all pairs, of those that are listed."""
    lists = shortlists(*first, CANDIDATES)
    scores = reranked_scores(*second, lists)
    whole = every.numpy()
    texts = np.arange(whole.shape[1])[:, None]
    wanted = {
        "image_to_text": np.take_along_axis(whole, lists.image_to_text, axis=1),
        "text_to_image": whole[lists.text_to_image, texts],
    }
    return max(float(np.abs(scores[way] - wanted[way]).max()) for way in DIRECTIONS)


def _items(letter: str, groups: np.ndarray) -> Items:
    names = [f"{letter}{row}" for row in range(len(groups))]
    return Items(names, ["a"] * len(names), groups, np.array(["val"] * len(names)))


def main() -> None:
    """Measure and print."""
    asked = options("Two stages, beside scoring every pair", repeats=2, quick_repeats=1)
    pictures, width = (400, 128) if asked.quick else (1000, 1024)
    first, second, pairs = made(pictures, width)
    found: dict[str, Result] = {}
    kept: dict[str, torch.Tensor] = {}

    def two() -> None:
        found["two"] = evaluate_two_stages(first, second, pairs, candidates=[CANDIDATES], protocol=PROTOCOL)

    def every() -> None:
        kept["every"] = scoring.matrix(*second)
        found["every"] = evaluate_matrix(kept["every"], pairs, protocol=PROTOCOL)

    timings = interleaved({"two": two, "every": every}, repeats=asked.repeats)
    told = found["two"].about["two_stage"]
    alone = evaluate_embeddings(*first, pairs, protocol=PROTOCOL)
    sweep = evaluate_two_stages(first, second, pairs, candidates=COUNTS, protocol=PROTOCOL).about["two_stage"]
    recalls = {
        name: {way: round(one.figures[f"{way}/recall@1"], 2) for way in DIRECTIONS}
        for name, one in (("first alone", alone), ("two stages", found["two"]), ("every pair", found["every"]))
    }
    whole = pictures * 5 * pictures
    facts = {
        "name": "rerank",
        "peer": "the second model (SCAN) on every pair",
        "size": f"{pictures} pictures x {5 * pictures} texts, {REGIONS} regions, {WORDS} words at most, width {width}, "
        f"{CANDIDATES} candidates",
        "max_difference": apart(first, second, kept["every"]),
        "compared": "scores of the listed pairs with those that an exhaustive run gives them",
        "largest_score": float(kept["every"].abs().max()),
        "pairs": {**told["pairs"], "every": whole},
        "pairs_per_second": {
            "two stages": round(told["pairs"]["together"] / timings["two"].best),
            "every pair": round(whole / timings["every"].best),
        },
        "one_in": {way: round(whole / told["pairs"][way], 1) for way in DIRECTIONS},
        "recall@1": recalls,
        "lost_of_r@1": {row["candidates"]: row["lost"] for row in sweep["sweep"]},
        "allowed": sweep["allowed"],
        "enough": sweep["enough"],
        "enough_of": sweep["enough_of"],
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["two"], timings["every"])


if __name__ == "__main__":
    main()
