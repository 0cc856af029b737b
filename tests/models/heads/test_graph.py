"""DSRAN against numbers of its authors' modules, and one graph layer against its equations as literal loops.

The numbers come from the authors' GATLayer, Fusion and DSRAN.forward (K = 1 and 2), run once in float64 without dropout
on the inputs below, in eval and in training mode. Their keys have a bias, which a softmax does not see, and their gate
has two biases where one has their sum; both were zero here.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.models.heads.graph import GraphAttention, GraphAttentionLayer
from subtext.ops.attention import Fusion

pytestmark = pytest.mark.golden

F64 = torch.float64
WIDTH, FEATURES, HEADS = 4, 3, 2


def sine(shape: tuple[int, ...] | torch.Size, phase: float, step: float = 0.7) -> Tensor:
    return torch.sin(phase + step * torch.arange(math.prod(shape), dtype=F64)).reshape(shape)


CELLS, REGIONS = sine((2, 2, FEATURES), 0.3), sine((2, 3, FEATURES), 1.3, 1.1)

LAYER = {
    "eval": [
        [
            [0.82670962, -0.03917742, -0.39141259, 0.48464743],
            [-0.16155783, -0.56621189, 1.38915634, -0.83143479],
            [0.57488297, 0.17414331, -0.32659207, 0.17183472],
        ],
        [
            [0.10853399, -0.7284077, 1.21526314, -0.40062836],
            [0.26371427, 0.39332523, -0.24262502, -0.10990481],
            [0.40591449, -0.87716224, 1.02877157, -0.02925577],
        ],
    ],
    "train": [
        [
            [1.72551972, 0.62742709, -1.18622172, 1.61049596],
            [-1.59217884, -0.42345909, 1.23217777, -1.62614546],
            [0.87065323, 1.1245503, -1.02788865, 0.69940892],
        ],
        [
            [-0.72494761, -0.90958449, 1.13897623, -0.71969336],
            [-0.12007215, 1.60403563, -0.83011278, -0.11753058],
            [0.38025051, -1.44103554, 1.02401947, 0.10837384],
        ],
    ],
}
HEAD = {
    ("eval", 1): [
        [0.61301203, -0.49857771, 0.55222163, -0.26587174],
        [0.40861747, -0.45367792, 0.68551804, -0.39657677],
    ],
    ("eval", 2): [
        [-0.7849977, 0.46090552, -0.24861615, 0.33096032],
        [-0.78345576, 0.45044522, -0.25384112, 0.34476204],
    ],
    ("train", 1): [
        [0.83576506, 0.02086953, -0.43347171, 0.33639783],
        [-0.62534848, 0.04283972, 0.28496782, -0.72518782],
    ],
    ("train", 2): [[-0.6450152, 0.18386593, -0.020643, 0.74143279], [-0.09675909, -0.56605411, 0.77687411, 0.25823833]],
}
WORDS = {
    "eval": [[0.58293805, -0.45790081, 0.45402048, -0.49434349], [0.63339331, -0.23928749, 0.58527743, -0.44609947]],
    "train": [[-0.1578763, -0.85560616, -0.36660905, -0.32956179], [0.10516338, 0.98439212, 0.01343699, 0.14047155]],
}
FUSED = [[-0.88247676, 1.00241745, -1.20792388, 1.39675193], [0.27285053, -0.83738714, 1.17363231, -1.09071987]]


def set_linear(layer: nn.Linear, phase: float) -> None:
    with torch.no_grad():
        layer.weight.copy_(0.6 * sine(layer.weight.shape, phase))
        if layer.bias is not None:
            layer.bias.copy_(0.2 * sine(layer.bias.shape, phase + 0.5))


def set_norm(norm: nn.Module, phase: float) -> None:
    assert isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        norm.weight.copy_(1 + 0.1 * sine(norm.weight.shape, phase))
        norm.bias.copy_(0.1 * sine(norm.bias.shape, phase + 0.3))
        norm.running_mean.copy_(0.05 * sine(norm.running_mean.shape, phase + 0.6))
        norm.running_var.copy_(1 + 0.2 * sine(norm.running_var.shape, phase + 0.9))


def set_graph(layer: GraphAttentionLayer, number: int) -> None:
    layer.heads = HEADS
    linear = (layer.query, layer.key, layer.value, layer.out, layer.first, layer.second)
    for step, each in enumerate(linear):
        set_linear(each, 10 * number + 0.1 + step)
    set_norm(layer.inner_norm, 10 * number + 0.1 + 6)
    set_norm(layer.outer_norm, 10 * number + 0.1 + 7)


def set_fusion(fusion: Fusion) -> None:
    for phase, layer in enumerate((fusion.first, fusion.second, fusion.gate_first, fusion.gate_second), start=61):
        set_linear(layer, float(phase))


def image_head(joint: int) -> GraphAttention:
    head = GraphAttention(FEATURES, WIDTH, cells=2, joint=joint, dropout=0.0).double()
    set_graph(head.own, 0)
    set_graph(head.own_cells, 1)
    for number, layer in enumerate(head.joint, start=2):
        set_graph(layer, number)  # type: ignore[arg-type]
    set_linear(head.project, 51.0)
    set_linear(head.project_cells, 52.0)
    if head.fusion is not None:
        set_fusion(head.fusion)
    return head


def assert_exactly(found: Tensor, wanted: object) -> None:
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=F64), atol=2e-8, rtol=0)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_graph_layer_equals_reference_values(mode: str) -> None:
    head = image_head(2).train(mode == "train")
    with torch.no_grad():
        assert_exactly(head.own(head.project(REGIONS)), LAYER[mode])


@pytest.mark.parametrize("joint", [1, 2])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_image_head_equals_reference_values(mode: str, joint: int) -> None:
    head = image_head(joint).train(mode == "train")
    with torch.no_grad():
        found = head(Encoded(parts=torch.cat([CELLS, REGIONS], dim=1)), torch.arange(2))
    assert_exactly(found.vectors[:, 0], HEAD[mode, joint])


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_unit_length_words_equal_reference_values(mode: str) -> None:
    """Their text side has no map before its graph, and scales words to unit length: here the map is the identity."""
    head = GraphAttention(WIDTH, WIDTH, joint=0, dropout=0.0).double().train(mode == "train")
    set_graph(head.own, 4)
    with torch.no_grad():
        head.project.weight.copy_(torch.eye(WIDTH))
        head.project.bias.zero_()
        words = nn.functional.normalize(sine((2, 3, WIDTH), 2.3, 0.9), dim=2)
        found = head(Encoded(parts=words), torch.arange(2))
    assert_exactly(found.vectors[:, 0], WORDS[mode])


def test_gate_equals_reference_values() -> None:
    fusion = Fusion(WIDTH, "gated").double()
    set_fusion(fusion)
    with torch.no_grad():
        assert_exactly(fusion(sine((2, WIDTH), 0.4), sine((2, WIDTH), 1.4)), FUSED)


def test_graph_layer_equals_plain_loops() -> None:
    layer = GraphAttentionLayer(WIDTH, heads=HEADS).double().eval()
    set_graph(layer, 3)
    nodes = sine((4, WIDTH), 0.8, 1.3)

    def mapped(linear: nn.Linear, row: list[float]) -> list[float]:
        bias = [0.0] * WIDTH if linear.bias is None else linear.bias.tolist()
        return [
            sum(w * x for w, x in zip(weights, row, strict=True)) + b
            for weights, b in zip(linear.weight.tolist(), bias, strict=True)
        ]

    def normed(norm: nn.BatchNorm1d, row: list[float]) -> list[float]:
        columns = zip(
            row,
            norm.running_mean.tolist(),
            norm.running_var.tolist(),
            norm.weight.tolist(),
            norm.bias.tolist(),
            strict=True,
        )
        return [(x - mean) / math.sqrt(variance + 1e-5) * w + b for x, mean, variance, w, b in columns]

    rows = nodes.tolist()
    queries, keys, values = ([mapped(each, row) for row in rows] for each in (layer.query, layer.key, layer.value))
    wanted = []
    for place, row in enumerate(rows):
        gathered: list[float] = []
        for start in range(0, WIDTH, WIDTH // HEADS):
            part = range(start, start + WIDTH // HEADS)
            logits = [sum(queries[place][d] * key[d] for d in part) / math.sqrt(len(part)) for key in keys]
            shares = [math.exp(logit) / sum(math.exp(each) for each in logits) for logit in logits]
            gathered += [sum(share * value[d] for share, value in zip(shares, values, strict=True)) for d in part]
        hidden = normed(layer.inner_norm, [x + y for x, y in zip(row, mapped(layer.out, gathered), strict=True)])
        lifted = mapped(layer.second, [max(x, 0.0) for x in mapped(layer.first, hidden)])
        wanted.append(normed(layer.outer_norm, [x + y for x, y in zip(hidden, lifted, strict=True)]))
    with torch.no_grad():
        assert_exactly(layer(nodes[None])[0], wanted)
