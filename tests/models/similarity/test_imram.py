"""IMRAM against numbers of its authors' code, and against its equations as literal loops.

The numbers come from the published functions (HuiChen24/IMRAM, model.py), run once in float64 on the inputs below with
the flag that all their scripts pass (no_IMRAM_norm: queries keep their length).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.models.similarity.cross_attention import Imram

pytestmark = pytest.mark.golden

F64 = torch.float64
WIDTH = 3
LENGTHS = (3, 2, 1)


def sine(shape: tuple[int, ...], phase: float, step: float = 0.7) -> Tensor:
    return torch.sin(phase + step * torch.arange(math.prod(shape), dtype=F64)).reshape(shape)


IMAGES = sine((2, 3, WIDTH), 0.2, 1.0)
TEXTS = sine((3, 3, WIDTH), 0.9, 1.1)

PUBLISHED = {
    ("text", 1, 9.0): [[0.45949461, 0.1379484, 0.30407019], [0.21606982, 0.34217378, 0.66711108]],
    ("text", 2, 9.0): [[0.91496721, 0.32025761, 0.60814039], [0.55081333, 0.49334042, 1.33422217]],
    ("text", 3, 11.0): [[1.45469996, 0.46207259, 0.91221058], [0.60962874, 0.84014288, 2.00133325]],
    ("image", 1, 9.0): [[0.46054935, 0.05573393, -0.10000997], [0.21607183, 0.36510213, 0.21832162]],
    ("image", 2, 9.0): [[0.92994165, 0.09754627, -0.20001993], [0.43435625, 0.36379292, 0.43664323]],
    ("image", 3, 11.0): [[1.41064033, 0.15102367, -0.3000299], [0.52984658, 0.36222212, 0.65496485]],
}
"""(side that asks, steps, scale) -> scores of two images with three texts."""


def fill(new: nn.Linear, gate: nn.Linear, phase: float) -> None:
    with torch.no_grad():
        for number, layer in enumerate((new, gate)):
            layer.weight.copy_(0.5 * sine(tuple(layer.weight.shape), phase + number))
            layer.bias.copy_(0.1 * sine(tuple(layer.bias.shape), phase + number + 0.5))


def similarity(asking: str, steps: int, scale: float) -> Imram:
    made = Imram(width=WIDTH, queries=asking, steps=steps, attention_scale=scale).double()  # type: ignore[arg-type]
    for side, memory in made.memories.items():
        fill(memory.new, memory.gate, {"text": 0.1, "image": 2.1}[side])  # type: ignore[arg-type, union-attr]
    return made.eval()


def items(parts: Tensor, mask: Tensor | None = None) -> Embeddings:
    return Embeddings(parts.mean(dim=1, keepdim=True), torch.arange(len(parts)), parts=parts, mask=mask)


def scores(made: Imram) -> NDArray[np.float64]:
    mask = torch.arange(3) < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        return made(items(IMAGES), items(TEXTS, mask)).numpy()


def literal(asks: NDArray, answers: NDArray, weights: list[NDArray], steps: int, scale: float) -> float:
    """The score of one pair, number by number: words or regions that ask, and regions or words that answer."""
    new, new_bias, gate, gate_bias = weights
    queries = [[float(number) for number in row] for row in asks]
    total = 0.0
    for _ in range(steps):
        products = [[sum(q * v for q, v in zip(query, part, strict=True)) for part in answers] for query in queries]
        clipped = [[value if value > 0 else 0.1 * value for value in row] for row in products]
        cosines, following = [], []
        for place, query in enumerate(queries):
            logits = []
            for column in range(len(answers)):
                length = math.sqrt(sum(row[column] ** 2 for row in clipped)) + 1e-8
                logits.append(scale * clipped[place][column] / length)
            shares = [math.exp(value - max(logits)) for value in logits]
            shares = [share / sum(shares) for share in shares]
            context = [sum(share * part[d] for share, part in zip(shares, answers, strict=True)) for d in range(WIDTH)]
            own = asks[place]
            lengths = math.sqrt(sum(x * x for x in own)) * math.sqrt(sum(x * x for x in context))
            cosines.append(sum(x * y for x, y in zip(own, context, strict=True)) / max(lengths, 1e-8))
            joined = [*query, *context]
            follows = []
            for d in range(WIDTH):
                update = math.tanh(sum(w * x for w, x in zip(new[d], joined, strict=True)) + new_bias[d])
                opened = 1 / (1 + math.exp(-sum(w * x for w, x in zip(gate[d], joined, strict=True)) - gate_bias[d]))
                follows.append(opened * query[d] + (1 - opened) * update)
            following.append(follows)
        total += sum(cosines) / len(cosines)
        queries = following
    return total


@pytest.mark.parametrize(("asking", "steps", "scale"), PUBLISHED)
def test_scores_equal_reference_code(asking: str, steps: int, scale: float) -> None:
    found = scores(similarity(asking, steps, scale))
    np.testing.assert_allclose(found, PUBLISHED[asking, steps, scale], atol=2e-8, rtol=0)


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("asking", ["text", "image"])
def test_scores_equal_plain_equations(asking: str, steps: int) -> None:
    made = similarity(asking, max(steps, 2), 9.0)
    memory = made.memories[asking]
    weights = [
        value.detach().numpy()
        for layer in (memory.new, memory.gate)
        for value in (layer.weight, layer.bias)  # type: ignore[union-attr]
    ]
    found = scores(similarity(asking, steps, 9.0))
    for image, regions in enumerate(IMAGES.numpy()):
        for text, (words, length) in enumerate(zip(TEXTS.numpy(), LENGTHS, strict=True)):
            pair = (words[:length], regions) if asking == "text" else (regions, words[:length])
            assert found[image, text] == pytest.approx(literal(*pair, weights, steps, 9.0), abs=1e-9)


def test_full_score_is_sum_of_both_sides() -> None:
    sides = [scores(similarity(asking, 3, 9.0)) for asking in ("text", "image")]
    np.testing.assert_allclose(scores(similarity("full", 3, 9.0)), sum(sides), atol=1e-12, rtol=0)
