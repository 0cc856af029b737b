"""Diversity and discrepancy of 100,000 pairs with 200 neighbours each, both modalities: two sparse products a modality,
beside scores of pairs computed batch by batch.

The peer is the paper's way in batched PyTorch: of every item the 200 x 200 inner products of its neighbours (bmm) for
diversity, and 1,000 gathered neighbours of neighbours for discrepancy. It runs on some batches of 32 items, and its
time is scaled by their number: every item costs the same. Ours runs in full, or with --quick on one slab of columns of
one modality, scaled by their number: slabs are alike and follow one another. Neighbours are random, the worst case for
a cache. The ratio is that of both scores together; each is also told apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.common import Timing, interleaved, options, report
from subtext.ops import neighbour_scores as ops
from subtext.ops.neighbour_scores import Scoring, neighbour_scores

ITEMS, NEIGHBOURS, WIDTH, MODALITIES = 100_000, 200, 1024, 2
BATCH, BATCHES, DRAWN = 32, 2, 1000


def made() -> tuple[list[Tensor], Tensor]:
    """A bank of unit vectors for each modality, and neighbours."""
    generator = torch.Generator().manual_seed(0)
    banks = [torch.randn(ITEMS, WIDTH, generator=generator) for _ in range(MODALITIES)]
    for bank in banks:
        bank /= bank.norm(dim=1, keepdim=True)
    neighbours = torch.randint(0, ITEMS, (ITEMS, NEIGHBOURS), generator=generator, dtype=torch.int32)
    return banks, neighbours


def diversity(bank: Tensor, neighbours: Tensor, items: Tensor) -> Tensor:
    """Of a batch of items, by all pairs of their neighbours."""
    near = bank[neighbours[items].long()]
    return torch.bmm(near, near.mT).mean(dim=(1, 2))


def discrepancy(bank: Tensor, neighbours: Tensor, items: Tensor) -> Tensor:
    """Of a batch of items, against 1,000 drawn neighbours of their neighbours."""
    drawn = torch.randint(0, NEIGHBOURS**2, (len(items), DRAWN))
    first = neighbours[items].long().gather(1, drawn // NEIGHBOURS)
    far = bank[neighbours[first, drawn % NEIGHBOURS].long()]
    return torch.bmm(far, bank[items][:, :, None]).mean(dim=(1, 2))


def exact_discrepancy(bank: Tensor, neighbours: Tensor, item: int) -> float:
    """Of one item, against all neighbours of its neighbours."""
    far = neighbours[neighbours[item].long()].long().flatten()
    return float((bank[far] @ bank[item]).double().mean())


def in_batches(score: Callable[[Tensor, Tensor, Tensor], Tensor], bank: Tensor, neighbours: Tensor) -> Tensor:
    """A score of the first batches of items."""
    return torch.cat([score(bank, neighbours, items) for items in torch.arange(BATCH * BATCHES).split(BATCH)])


def difference(bank: Tensor, neighbours: Tensor) -> float:
    """Largest difference of either score of some items from pairs computed one by one."""
    ours = neighbour_scores(bank, neighbours)
    near = in_batches(diversity, bank, neighbours)
    far = [abs(float(ours.discrepancy[item]) - exact_discrepancy(bank, neighbours, item)) for item in range(8)]
    return max(float((ours.diversity[: len(near)] - near).abs().max()), *far)


def main() -> None:
    """Measure and print."""
    asked = options("sample weights by sparse products, beside batches of pairs", repeats=1, quick_repeats=1)
    banks, neighbours = made()
    part = slice(0, ops.SLAB) if asked.quick else slice(0, WIDTH)
    chosen = [bank[:, part] for bank in (banks[:1] if asked.quick else banks)]
    law = (WIDTH // ops.SLAB) * MODALITIES if asked.quick else 1

    def ours(scoring: Scoring) -> Callable[[], object]:
        return lambda: [neighbour_scores(bank, neighbours, scoring) for bank in chosen]

    found = interleaved(
        {
            "both": ours(Scoring()),
            "diversity": ours(Scoring(second="direct")),
            "peer diversity": lambda: in_batches(diversity, banks[0], neighbours),
            "peer discrepancy": lambda: in_batches(discrepancy, banks[0], neighbours),
        },
        repeats=asked.repeats,
    )
    scale = ITEMS * MODALITIES / (BATCH * BATCHES)
    apart = {name: found[name].best * (law if "peer" not in name else scale) for name in found}
    mine = Timing([seconds * law for seconds in found["both"].seconds], found["both"].peak_mb)
    pairs = zip(found["peer diversity"].seconds, found["peer discrepancy"].seconds, strict=True)
    peak = max(found["peer diversity"].peak_mb, found["peer discrepancy"].peak_mb)
    small = [values[:, : ops.SLAB].contiguous() for values in banks[:1]] if asked.quick else banks[:1]
    facts = {
        "name": "neighbour_weights",
        "peer": "batched PyTorch: bmm of neighbours for diversity, 1,000 gathered for discrepancy",
        "size": f"{ITEMS} items, {NEIGHBOURS} neighbours, width {WIDTH}, {MODALITIES} modalities, float32",
        "max_difference": difference(small[0], neighbours),
        "compared": "both scores of some items with all their pairs, computed one by one",
        "law": f"peer ran {BATCHES} batches of {BATCH} items of one modality; time x {scale:g}"
        + (f"; ours one slab of {ops.SLAB} columns of one modality; time x {law}" if asked.quick else "; ours in full"),
        "diversity_seconds": apart["diversity"],
        "discrepancy_seconds": apart["both"],
        "discrepancy_says": "discrepancy needs both products, and diversity comes with them",
        "peer_diversity_seconds": apart["peer diversity"],
        "peer_discrepancy_seconds": apart["peer discrepancy"],
        "diversity_ratio": apart["peer diversity"] / apart["diversity"],
        "discrepancy_ratio": apart["peer discrepancy"] / apart["both"],
        "held_mb": round(sum(bank.nbytes for bank in banks) / 2**20 + neighbours.nbytes / 2**20),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, mine, Timing([sum(pair) for pair in pairs], peak), peer_scale=scale)


if __name__ == "__main__":
    main()
