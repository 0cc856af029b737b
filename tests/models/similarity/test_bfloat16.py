"""bfloat16 in pairwise similarities: emulated here, as torch does where a machine has no such products."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from math import prod
from pathlib import Path

import pytest
import torch
from regions_and_words import of_parts
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils._python_dispatch import TorchDispatchMode

from subtext.core import Embeddings
from subtext.evaluation.scoring import matrix
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cross_attention import Chan, CrossAttention, Imram
from subtext.models.similarity.sgraf import Saf, Sgr
from subtext.ops.numerics import supported as multiplies

pytestmark = pytest.mark.identity

Made = Callable[[int, int], nn.Module]
SIMILARITIES: dict[str, Made] = {
    "scan": lambda width, nodes: CrossAttention(bf16=True),
    "saf": lambda width, nodes: Saf(width=width, nodes=nodes, bf16=True),
    "sgr": lambda width, nodes: Sgr(width=width, nodes=nodes, bf16=True),
    "chan": lambda width, nodes: Chan(bf16=True),
    "ascl": lambda width, nodes: Ascl(width=width, temperature=1.0, bf16=True),
    "imram": lambda width, nodes: Imram(width=width, bf16=True),
}
NEAR = {"scan": 0.01, "saf": 0.015, "sgr": 0.05, "chan": 0.01, "ascl": 0.01, "imram": 0.015}
"""Root mean square difference from float32 in standard deviations of the scores: what sets pairs apart is whole ones.

A product in bfloat16 is off by up to 0.4 % of itself. SGR exchanges its nodes three times, and each rounds again.
"""
PICTURES, WIDTH, NODES = 60, 32, 16


@pytest.fixture
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that multiplies in bfloat16."""
    monkeypatch.setattr("subtext.ops.numerics.supported", lambda device="cpu": True)


@pytest.mark.skipif(
    not (sys.platform == "linux" and platform.machine() == "x86_64"), reason="only Linux on x86-64 lists these flags"
)
def test_bfloat16_detection_agrees_with_cpu_flags() -> None:
    told = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None
    assert multiplies("cpu") == bool({"avx512_bf16", "amx_bf16"} & set(told[1].split()))


@pytest.mark.parametrize("has", [("avx512_bf16",), ("amx_tile",), ("avx512_bf16", "amx_tile"), ()], ids=" and ".join)
def test_either_cpu_flag_enables_bfloat16(has: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are torch's own, which may rename them: then they cannot be replaced here either."""
    for name in ("avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in has)
    assert multiplies.__wrapped__("cpu") == bool(has)
    assert not multiplies.__wrapped__("mps")


class Products(TorchDispatchMode):
    """Counts multiplications of matrix products by the precision of what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.found = {torch.float32: 0, torch.bfloat16: 0}

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            left = args[1 if "add" in name else 0]
            self.found[left.dtype] += prod(made.shape) * left.shape[-1]
        return made


@pytest.mark.parametrize("name", SIMILARITIES)
def test_most_multiplications_run_in_bfloat16(name: str, supported: None) -> None:
    """36 regions, 12 words, width 1,024: what is left are products of gathered weights and of regions with regions."""
    similarity = SIMILARITIES[name](1024, 256).eval()
    g = torch.Generator().manual_seed(0)
    images, texts = (of_parts(normalize(torch.randn(2, parts, 1024, generator=g), dim=-1)) for parts in (36, 12))
    prepare = getattr(similarity, "prepare", None)
    with torch.no_grad():
        made = () if prepare is None else (prepare(images),)
        with Products() as watch:
            similarity(images, texts, *made)
    half, single = watch.found[torch.bfloat16], watch.found[torch.float32]
    assert half / (half + single) > 0.93, watch.found


def shown(seed: int) -> tuple[Embeddings, Embeddings]:
    """Pictures of six regions, and two texts each of four words that name some of these; of every tenth, another's."""
    g = torch.Generator().manual_seed(seed)
    regions = normalize(torch.randn(PICTURES, 6, WIDTH, generator=g), dim=-1)
    owners = torch.arange(2 * PICTURES) // 2
    owners[::10] = (owners[::10] + 7) % PICTURES
    words = regions[owners, :4] + 0.12 * torch.randn(2 * PICTURES, 4, WIDTH, generator=g)
    return of_parts(regions), of_parts(normalize(words, dim=-1))


def learnt(similarity: nn.Module) -> nn.Module:
    """The similarity after a few steps on other pictures: weights as they are drawn tell nothing apart."""
    weights = list(similarity.parameters())
    if isinstance(similarity, Ascl):
        # Words gather the regions that they are alike to from the start.
        with torch.no_grad():
            for direction in (similarity.by_words, similarity.by_regions):
                for layer, size in (
                    (direction.query, 60),
                    (direction.key, 1),
                    (direction.out, 1),
                    (direction.whole, 1),
                ):
                    layer.weight.copy_(size * torch.eye(WIDTH))
    if not weights or isinstance(similarity, Ascl):
        return similarity.eval()
    images, texts = shown(1)
    optimiser = torch.optim.Adam(weights, lr=5e-3)
    rows = torch.arange(1, 64, 2)
    for _ in range(40):
        scores = similarity.train()(images[rows // 2], texts[rows])
        optimiser.zero_grad()
        scale = 10 / float(scores.detach().std())
        cross_entropy(scale * scores, torch.arange(len(rows))).backward()
        optimiser.step()
    return similarity.eval()


def recalls(scores: Tensor) -> list[float]:
    """Recall at 1 in points: of texts, and of pictures by the better of their two texts."""
    own = torch.arange(2 * PICTURES) // 2
    hits = scores[own, torch.arange(2 * PICTURES)]
    by_text = (scores > hits).sum(dim=0)
    best = hits.view(-1, 2).amax(dim=1)
    by_picture = (scores > best[:, None]).sum(dim=1)
    return [100 * float((rank == 0).double().mean()) for rank in (by_text, by_picture)]


@pytest.mark.parametrize("name", SIMILARITIES)
def test_bfloat16_scores_are_close_with_equal_recall(name: str, supported: None) -> None:
    torch.manual_seed(0)
    half = learnt(SIMILARITIES[name](WIDTH, NODES))
    single = deepcopy(half)
    for part in single.modules():
        if hasattr(part, "bf16"):
            part.bf16 = False
    images, texts = shown(2)
    found, exact = (matrix(similarity, images, texts) for similarity in (half, single))
    apart = float((found - exact).square().mean().sqrt() / exact.std())
    assert 0 < apart < NEAR[name]
    assert recalls(exact)[0] == pytest.approx(90) and recalls(exact)[1] > 90
    assert recalls(found) == pytest.approx(recalls(exact), abs=0.1)
