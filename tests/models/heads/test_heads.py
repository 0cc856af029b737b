"""PIE-Net and generalised pooling against numbers of their authors' modules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.models.heads.gpo import Gpo
from subtext.models.heads.graph import GraphAttention, GraphAttentionLayer
from subtext.models.heads.mean import Mean, Passthrough
from subtext.models.heads.parts import Pie

pytestmark = pytest.mark.golden

F64 = torch.float64
PARTS = torch.tensor([[[1, 0], [0, 1], [2, 2]], [[0.5, -1], [1, 1], [9, 9]]], dtype=F64)
MASK = torch.tensor([[True, True, True], [True, True, False]])
WHOLE = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], dtype=F64)


def det(shape: torch.Size | tuple[int, ...], phase: float = 0.0, step: float = 0.7) -> Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.sin(phase + step * torch.arange(count, dtype=F64)).reshape(shape)


def fill(module: nn.Module, amplitude: float, offset: float) -> None:
    with torch.no_grad():
        for k, (_, parameter) in enumerate(module.named_parameters()):
            parameter.copy_(offset + amplitude * det(parameter.shape, 0.5 * k + 0.1))


def pie(views: int) -> Pie:
    head = Pie(2, 3, 3, views=views, project=False).double()
    with torch.no_grad():
        head.inner.weight.copy_(torch.tensor([[1.0, 0.0]]))
        head.outer.weight.copy_(torch.tensor([[1.0], [-1.0]])[:views])
        head.lift.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
    return head


def test_pie_net_equals_reference_attention_residuals_and_views() -> None:
    views, residuals, attention = pie(2).views(WHOLE, PARTS, MASK)
    reference_attention = [
        [[0.37156764, 0.25262550], [0.17349291, 0.54104493], [0.45493945, 0.20632957]],
        [[0.42568534, 0.57431466], [0.57431466, 0.42568534], [0, 0]],
    ]
    reference_residuals = [
        [[0.78269591, 0.74713154, 0.54935741], [0.66044651, 0.72185949, 0.42839086]],
        [[0.68722063, 0.53708908, 0.65442064], [0.67102898, 0.46291092, 0.70296810]],
    ]
    reference_vectors = [
        [[-0.14746501, 0.76921115, -0.62174615], [-0.29404294, 0.80668355, -0.51264061]],
        [[0.81492371, -0.45133112, -0.36359259], [0.72752796, -0.68474264, -0.04278533]],
    ]
    torch.testing.assert_close(attention, torch.tensor(reference_attention, dtype=F64), atol=1e-8, rtol=0)
    torch.testing.assert_close(residuals, torch.tensor(reference_residuals, dtype=F64), atol=1e-8, rtol=0)
    torch.testing.assert_close(views, torch.tensor(reference_vectors, dtype=F64), atol=1e-8, rtol=0)


def test_one_view_equals_first_of_two() -> None:
    ids = torch.arange(2)
    one = pie(1)(Encoded(PARTS, MASK, WHOLE), ids)
    two = pie(2)(Encoded(PARTS, MASK, WHOLE), ids)
    torch.testing.assert_close(one.vectors[:, 0], two.vectors[:, 0], atol=1e-12, rtol=0)
    assert one.views == 1 and two.views == 2


def test_generalised_pooling_equals_reference_values() -> None:
    head = Gpo(4, 4, place_width=4)
    head.places = type(head.places)(width=4, hidden=3)
    head = head.double()
    fill(head.places, 0.3, 0.0)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    pooled, weights = head.pool(det((2, 5, 4), 0.4), mask)
    wanted = [
        [-0.10352628, -0.01786426, 0.02291908, 0.03271949],
        [0.08128164, 0.05672132, 0.00257348, -0.23881585],
    ]
    places = [
        [0.16374704, 0.18075926, 0.20645051, 0.20581256, 0.24323063],
        [0.25119455, 0.30641113, 0.44239432, 0, 0],
    ]
    torch.testing.assert_close(pooled, torch.tensor(wanted, dtype=F64), atol=1e-8, rtol=0)
    torch.testing.assert_close(weights, torch.tensor(places, dtype=F64), atol=1e-8, rtol=0)


def test_generalised_pooling_equals_plain_loop() -> None:
    torch.manual_seed(1)
    head = Gpo(6, 5).double()
    parts = torch.randn(4, 7, 5, dtype=F64)
    mask = torch.tensor([[True] * n + [False] * (7 - n) for n in (7, 4, 1, 4)])
    with torch.no_grad():
        pooled, weights = head.pool(parts, mask)
    for item in range(4):
        count = int(mask[item].sum())
        alone = head.places(torch.tensor([count]), count)[0].detach()
        torch.testing.assert_close(weights[item, :count], alone)
        for d in range(5):
            values = sorted((float(v) for v in parts[item, :count, d]), reverse=True)
            by_hand = sum(float(w) * v for w, v in zip(alone, values, strict=True))
            assert abs(float(pooled[item, d]) - by_hand) < 1e-12


def test_mean_head_by_hand() -> None:
    head = Mean(2, 2, source="parts", normalise=False).double()
    with torch.no_grad():
        head.project.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
    found = head(Encoded(PARTS, MASK), torch.arange(2))
    # means of the parts that exist: (1, 1) and (0.75, 0)
    wanted = torch.tensor([[[2.0, 2.0]], [[0.75, 0.0]]], dtype=F64)
    torch.testing.assert_close(found.vectors, wanted)


def test_passthrough_only_normalises_length() -> None:
    found = Passthrough()(Encoded(pooled=torch.tensor([[3.0, 4.0], [0.0, 0.0]])), torch.tensor([5, 2]))
    torch.testing.assert_close(found.vectors, torch.tensor([[[0.6, 0.8]], [[0.0, 0.0]]]))
    assert found.ids.tolist() == [5, 2]


def test_pie_net_of_parts_equals_plain_loop() -> None:
    """PCME-bert's: the whole is the mean over the parts of relu(p / |p|)."""
    torch.manual_seed(2)
    head = Pie(4, 4, 3, views=2, base="parts").double()
    parts = torch.randn(2, 3, 4, dtype=F64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    with torch.no_grad():
        found = head(Encoded(parts, mask), torch.arange(2))
        for item, count in enumerate((3, 2)):
            own = [parts[item, p] for p in range(count)]
            whole = torch.zeros(3, dtype=F64)
            for part in own:
                mapped = head.project.weight @ part + head.project.bias
                whole += torch.relu(mapped / mapped.norm()) / count
            for view in range(2):
                logits = [head.outer.weight[view] @ torch.tanh(head.inner.weight @ part) for part in own]
                raised = [math.exp(float(logit)) for logit in logits]
                gathered = sum(r / sum(raised) * part for r, part in zip(raised, own, strict=True))
                moved = whole + torch.sigmoid(head.lift.weight @ gathered + head.lift.bias)
                centred = moved - moved.mean()
                normed = centred / (centred.square().mean() + head.norm.eps).sqrt()
                normed = normed * head.norm.weight + head.norm.bias
                torch.testing.assert_close(found.vectors[item, view], normed / normed.norm(), atol=1e-12, rtol=0)


def attended(layer: GraphAttentionLayer, nodes: list[Tensor]) -> list[Tensor]:
    """One graph layer over the nodes of one item in eval mode, every sum a loop; its batch norms by what they keep."""

    def normed(norm: nn.Module, value: Tensor) -> Tensor:
        scaled = (value - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        return scaled * norm.weight + norm.bias

    each = len(nodes[0]) // layer.heads
    found = []
    for node in nodes:
        pieces = []
        for h in range(layer.heads):
            cut = slice(h * each, (h + 1) * each)
            query = (layer.query.weight @ node + layer.query.bias)[cut]
            raised = [math.exp(float(query @ (layer.key.weight @ other)[cut]) / math.sqrt(each)) for other in nodes]
            values = [(layer.value.weight @ other + layer.value.bias)[cut] for other in nodes]
            pieces.append(sum(r / sum(raised) * value for r, value in zip(raised, values, strict=True)))
        hidden = normed(layer.inner_norm, node + layer.out.weight @ torch.cat(pieces) + layer.out.bias)
        inner = torch.relu(layer.first.weight @ hidden + layer.first.bias)
        found.append(normed(layer.outer_norm, hidden + layer.second.weight @ inner + layer.second.bias))
    return found


@pytest.mark.parametrize(("cells", "joint"), [(2, 2), (2, 1), (0, 2), (0, 0)])
def test_graph_head_equals_plain_loop(cells: int, joint: int) -> None:
    """Cells and regions by themselves, then all together twice, and a gate between the two means (DSRAN)."""
    torch.manual_seed(3)
    head = GraphAttention(3, 4, cells=cells, joint=joint).double().eval()
    for module in head.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.running_mean), nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 2), nn.init.uniform_(module.bias)
    parts = torch.randn(2, 5, 3, dtype=F64)
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    with torch.no_grad():
        found = head(Encoded(parts.masked_fill(~mask[..., None], 50.0), mask), torch.arange(2)).vectors[:, 0]
        for item, count in enumerate((5, 4)):
            given = [parts[item, p] for p in range(count)]
            nodes = []
            if cells:
                nodes += attended(
                    head.own_cells, [head.project_cells.weight @ x + head.project_cells.bias for x in given[:cells]]
                )
            nodes += attended(head.own, [head.project.weight @ x + head.project.bias for x in given[cells:]])
            means = [sum(attended(graph, nodes)) / count for graph in head.joint] or [sum(nodes) / count]
            wanted = means[0]
            if joint == 2:
                gate = head.fusion
                first = gate.first.weight @ means[0] + gate.first.bias
                second = gate.second.weight @ means[1] + gate.second.bias
                told = gate.gate_first.weight @ first + gate.gate_second.weight @ second + gate.gate_second.bias
                share = 1 / (1 + (-told).exp())
                wanted = share * first + (1 - share) * second
            torch.testing.assert_close(found[item], wanted / wanted.norm(), atol=1e-10, rtol=0)
