"""Small batches for tests: the fixtures of the literature's worked examples, and random ones of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from subtext.core import Comparison, Embeddings, Scene, Truth
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.scene import compose

S3 = [[0.60, 0.50, 0.55], [0.30, 0.40, 0.45], [0.65, 0.35, 0.70]]
"""Scores of three pairs, images in rows."""

KINDS = ("pairs", "several", "ignored", "one", "all positive", "no positive")
"""What a batch may hold: see `comparison`."""


def doubles(values: Sequence[object]) -> Tensor:
    """A float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


def items(vectors: Tensor, residuals: Tensor | None = None) -> Embeddings:
    """Embeddings of (N D) or (N K D) vectors, ids in order."""
    vectors = vectors[:, None] if vectors.ndim == 2 else vectors
    return Embeddings(vectors, torch.arange(len(vectors)), residuals=residuals)


def scene_of(scores: Sequence[Sequence[float]]) -> Scene:
    """Pairs whose plain cosines are these scores: images are the axes, texts the columns."""
    matrix = doubles(scores)
    return compose(
        Cosine(), items(torch.eye(len(matrix), dtype=torch.float64)), items(matrix.T), torch.arange(len(matrix))
    )


def q2() -> Scene:
    """Two pairs with two views each, and residuals: the pooled scores are [[.80, .96], [.96, .80]]."""
    images = items(
        doubles([[[1, 0], [0, 1]], [[0.6, 0.8], [-1, 0]]]), residuals=doubles([[[1, 0], [3, 4]], [[0, 2], [0, 5]]])
    )
    texts = items(
        doubles([[[0.8, 0.6], [0, -1]], [[0.6, -0.8], [0.96, 0.28]]]),
        residuals=doubles([[[1, 1], [1, -1]], [[2, 0], [1, 0]]]),
    )
    return compose(Cosine(), images, texts, torch.arange(2))


def random_items(count: int, *, views: int = 2, width: int = 5, seed: int = 0) -> Embeddings:
    """Unit float64 vectors with residuals, parts and deviations, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)

    mask = torch.ones(count, 3, dtype=torch.bool)
    mask[::2, 2] = False
    return Embeddings(
        draw(count, views, width),
        torch.arange(count),
        residuals=draw(count, views, width),
        parts=draw(count, 3, width),
        mask=mask,
        log_std=draw(count, 1, width) - 1,
    )


def comparison(kind: str) -> Comparison:
    """A random comparison in float64.

    pairs 6 x 6, one positive a row | several 6 x 9, one to three positives | ignored 6 x 6, same-group cells ignored |
    one 1 x 1 | all positive, no negative at all | no positive, in two of the rows

    Positives are the most relevant; no two relevances are equal.
    """
    queries, candidates = {"several": (6, 9), "one": (1, 1)}.get(kind, (6, 6))
    groups = torch.tensor([0, 0, 1, 2, 1, 3])[:queries]
    truth = {
        "pairs": Truth(torch.eye(6, dtype=torch.bool)),
        "several": Truth.from_groups(groups, torch.tensor([0, 1, 2, 3, 0, 2, 2, 3, 4])),
        "ignored": Truth.of_pairs(groups, groups),
        "one": Truth.from_groups(groups, groups),
        "all positive": Truth(torch.ones(6, 6, dtype=torch.bool)),
        "no positive": Truth(torch.eye(6, dtype=torch.bool) & (torch.arange(6) < 4)[:, None]),
    }[kind]
    rows, columns = random_items(queries, seed=1), random_items(candidates, seed=2)
    drawn = torch.rand(queries, candidates, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    truth = replace(truth, relevance=(drawn + truth.match) / 2, scale="made")
    return Comparison(Cosine()(rows, columns), truth, rows, columns)


def scene(kind: str) -> Scene:
    """A random scene in float64 of six pairs (one for "one"), all different, in groups, or with ignored cells."""
    count = 1 if kind == "one" else 6
    groups = torch.arange(count) if kind == "pairs" else torch.tensor([0, 0, 1, 2, 1, 3])[:count]
    positives = "pair" if kind == "ignored" else "group"
    return compose(Cosine(), random_items(count, seed=1), random_items(count, seed=2), groups, positives=positives)


SCENES = ("pairs", "several", "ignored", "one")
"""The kinds that `scene` makes."""


def take(whole: Comparison, *, queries: Tensor | None = None, candidates: Tensor | None = None) -> Comparison:
    """The comparison with its rows or columns in another order."""
    rows = torch.arange(whole.scores.shape[0]) if queries is None else queries
    columns = torch.arange(whole.scores.shape[1]) if candidates is None else candidates

    def cut(matrix: Tensor | None) -> Tensor | None:
        return None if matrix is None else matrix[rows][:, columns]

    return Comparison(
        scores=whole.scores[rows][:, columns],
        truth=replace(
            whole.truth,
            match=whole.truth.match[rows][:, columns],
            ignored=cut(whole.truth.ignored),
            relevance=cut(whole.truth.relevance),
        ),
        queries=None if whole.queries is None else whole.queries[rows],
        candidates=None if whole.candidates is None else whole.candidates[columns],
        origin=None if whole.origin is None else whole.origin[columns],
    )


def cast(whole: Embeddings, dtype: torch.dtype) -> Embeddings:
    """The items in another precision."""
    return replace(
        whole,
        vectors=whole.vectors.to(dtype),
        residuals=None if whole.residuals is None else whole.residuals.to(dtype),
        parts=None if whole.parts is None else whole.parts.to(dtype),
        log_std=None if whole.log_std is None else whole.log_std.to(dtype),
    )


def cast_comparison(whole: Comparison, dtype: torch.dtype) -> Comparison:
    """The comparison in another precision."""
    return replace(
        whole,
        scores=whole.scores.to(dtype),
        queries=None if whole.queries is None else cast(whole.queries, dtype),
        candidates=None if whole.candidates is None else cast(whole.candidates, dtype),
    )
