"""Similarities of one image and one text in plain loops: the oracles beside the fast ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subtext.models.similarity.ascl import Ascl


def scan_slowly(regions: Tensor, words: Tensor, attending: str, pooling: str) -> float:
    """One pair: what asks is `ours`, what is attended to `theirs`; every sum is a loop."""
    ours, theirs = (words, regions) if attending == "text_to_image" else (regions, words)
    attention_scale, pooling_scale = (9, 6) if attending == "text_to_image" else (4, 20)
    fits = [[max(f := float(o @ t), 0.1 * f) for t in theirs] for o in ours]
    cosines = []
    lengths = [sum(row[k] ** 2 for row in fits) ** 0.5 + 1e-8 for k in range(len(theirs))]
    for one, row in zip(ours, fits, strict=True):
        raised = [float(torch.tensor(attention_scale * row[k] / lengths[k]).exp()) for k in range(len(theirs))]
        context = sum(r / sum(raised) * t for r, t in zip(raised, theirs, strict=True))
        cosines.append(float(one @ context / (one.norm() * context.norm())))
    if pooling == "mean":
        return sum(cosines) / len(cosines)
    return float((pooling_scale * torch.tensor(cosines, dtype=torch.float64)).exp().sum().log()) / pooling_scale


def cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


def imram_slowly(memory: nn.Module, own: Tensor, others: Tensor, steps: int) -> float:
    asked, total = own, 0.0
    for _ in range(steps):
        fits = torch.tensor([[max(f := float(q @ o), 0.1 * f) for o in others] for q in asked], dtype=torch.float64)
        weights = (9 * fits / (fits.norm(dim=0) + 1e-8)).softmax(dim=1)
        contexts = weights @ others
        total += sum(cosine(w, c) for w, c in zip(own, contexts, strict=True)) / len(own)
        both = torch.cat([asked, contexts], dim=1)
        gate = torch.sigmoid(memory.gate(both))
        asked = gate * asked + (1 - gate) * torch.tanh(memory.new(both))
    return total


def gathered(part: Ascl, direction: nn.Module, own: Tensor, others: Tensor) -> Tensor:
    """What each of `own` gathers of the others, formed head by head."""
    asking, keys = direction.query(own), direction.key(others)
    each = own.shape[1] // part.heads
    found = []
    for h in range(part.heads):
        cut = slice(h * each, (h + 1) * each)
        weights = (asking[:, cut] @ keys[:, cut].T / math.sqrt(each)).softmax(dim=1)
        found.append(weights @ keys[:, cut])
    return direction.out(torch.cat(found, dim=1))


def ascl_slowly(part: Ascl, regions: Tensor, words: Tensor, picture: Tensor) -> float:
    """Contexts formed head by head, and fused by the module itself."""
    v, w = gathered(part, part.by_words, words, regions), gathered(part, part.by_regions, regions, words)
    local = sum(map(cosine, regions, w)) / len(regions) / 2 + sum(map(cosine, words, v)) / len(words) / 2
    seen, said = part.by_words.whole(v.mean(dim=0)), part.by_regions.whole(w.mean(dim=0))
    if part.fusion is not None:
        seen = part.fusion(seen, part.image_map(picture))
    return (part.local_share * local + (1 - part.local_share) * cosine(seen, said)) / part.temperature
