"""What the benchmarks of SAF and SGR share: a caption's similarity vectors with every picture, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from benchmarks.pairs import LENGTHS, REGIONS, WIDTH
from subtext.core import Embeddings
from subtext.models.similarity.sgraf import _Nodes

NODES = 256
WORDS = sum(LENGTHS) // len(LENGTHS)
PRODUCTS = WORDS * WIDTH * (2 * REGIONS + NODES) + WIDTH * NODES
"""Multiplications of a pair up to its similarity vectors."""


def unit(values: Tensor) -> Tensor:
    """Over their length."""
    return values / (values.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)


def plain_nodes(layers: _Nodes, images: Embeddings, text: Embeddings) -> Tensor:
    """One caption with every picture: (I L+1 m)."""
    assert images.parts is not None and text.parts is not None
    regions, words = images.parts, text.parts.expand(len(images), -1, -1).contiguous()
    fits = unit(leaky_relu(torch.bmm(regions, words.mT), 0.1))
    weights = torch.softmax(fits.mT.contiguous() * 9, dim=2)
    contexts = unit(torch.bmm(weights, regions))
    local = unit(layers.local((contexts - words).pow(2)))
    whole = unit(layers.whole((images.vectors[:, 0] - text.vectors[:, 0]).pow(2)))
    return torch.cat([whole[:, None], local], dim=1)
