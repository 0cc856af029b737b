"""SGR's scores, beside a loop over captions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.common import options
from benchmarks.pairs import WIDTH, Contest, run
from benchmarks.similarity_vectors import NODES, PRODUCTS, WORDS, plain_nodes
from subtext.core import Embeddings
from subtext.models.similarity.sgraf import Sgr

STEPS = 3


def plain(similarity: nn.Module, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture: queries, keys and all nodes in every step."""
    assert isinstance(similarity, Sgr)
    nodes = plain_nodes(similarity.nodes, images, text)
    for step in similarity.steps:
        edges = torch.softmax(torch.bmm(step.query(nodes), step.key(nodes).permute(0, 2, 1)), dim=2)
        nodes = torch.relu(step.graph(torch.bmm(edges, nodes)))
    return torch.sigmoid(similarity.decide(nodes[:, 0]))[:, 0]


def main() -> None:
    """Measure and print."""
    asked = options("SGR, beside a loop over captions", repeats=3, quick_repeats=2)
    contest = Contest(
        "sgr", "a loop over captions (as the reference)", lambda bf16: Sgr(width=WIDTH, nodes=NODES, bf16=bf16), plain
    )
    run(asked, contest, products=PRODUCTS + (2 * STEPS - 1) * (WORDS + 1) * NODES * NODES)


if __name__ == "__main__":
    main()
