"""SAF's scores, beside a loop over captions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.common import options
from benchmarks.pairs import WIDTH, Contest, run
from benchmarks.similarity_vectors import NODES, PRODUCTS, plain_nodes, unit
from subtext.core import Embeddings
from subtext.models.similarity.sgraf import Saf


def plain(similarity: nn.Module, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture."""
    assert isinstance(similarity, Saf)
    nodes = plain_nodes(similarity.nodes, images, text)
    beta = torch.sigmoid(similarity.norm(similarity.attend(nodes).permute(0, 2, 1)))
    beta = beta / (beta.sum(dim=2, keepdim=True) + 1e-8)
    return torch.sigmoid(similarity.decide(unit(torch.bmm(beta, nodes)[:, 0])))[:, 0]


def main() -> None:
    """Measure and print."""
    asked = options("SAF, beside a loop over captions", repeats=3, quick_repeats=2)
    contest = Contest(
        "saf", "a loop over captions (as the reference)", lambda bf16: Saf(width=WIDTH, nodes=NODES, bf16=bf16), plain
    )
    run(asked, contest, products=PRODUCTS)


if __name__ == "__main__":
    main()
