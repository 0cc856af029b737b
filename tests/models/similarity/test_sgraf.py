"""SAF and SGR: the card's numbers (B3), made by the authors' code, and one pair at a time in plain loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from regions_and_words import assign, card_items, det, of_parts, random_pairs
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.models.heads.parts import Parts, SelfAttention
from subtext.models.similarity import sgraf
from subtext.models.similarity.sgraf import Saf, Sgr, score_nodes
from subtext.ops.attention import context_differences, gram, over_regions, products, unit_vectors
from subtext.ops.pairwise import PairSimilarity

pytestmark = pytest.mark.golden

CARD = {
    "saf": [[0.43883682, 0.42194544, 0.44803774], [0.42133401, 0.42290479, 0.42211389]],
    "sgr": [[0.37639673, 0.37467618, 0.37767382], [0.37547484, 0.37527458, 0.37642578]],
}


def built(which: str) -> tuple[SelfAttention, SelfAttention, Saf | Sgr]:
    """Heads and similarity of width 4 with the card's weights, in the card's order."""
    plain = [Parts(4, 4, project=False) for _ in range(2)]
    image, text = SelfAttention(plain[0], 4, normalise=True, regions=5), SelfAttention(plain[1], 4)
    similarity = Saf(width=4, nodes=3) if which == "saf" else Sgr(width=4, nodes=3)
    modules: list[nn.Module] = [image.local, image.local_norm, image.whole, image.whole_norm, image.common]
    modules += [text.local, text.whole, text.common, similarity.nodes.local, similarity.nodes.whole, similarity.decide]
    for module in (image, text, similarity):
        module.double().eval()
    weights: list[Tensor] = []
    if isinstance(similarity, Saf):
        weights = [p for module in [*modules, similarity.attend, similarity.norm] for p in module.parameters()]
    else:
        weights = [p for module in modules for p in module.parameters()]
        for step in similarity.steps:
            # The authors' keys have a bias, which changes nothing: it takes its place in the order.
            keys = [step.key.weight, torch.empty(3, dtype=torch.float64)]
            weights += [*step.query.parameters(), *keys, *step.graph.parameters()]
    assign(weights, 0.5, 0.3)
    return image, text, similarity


def through(head: SelfAttention, items: Embeddings) -> Embeddings:
    return head(Encoded(items.parts, items.mask), items.ids)


@pytest.mark.parametrize("which", CARD)
def test_scores_equal_worked_values(which: str) -> None:
    image, text, similarity = built(which)
    images, texts = card_items()
    with torch.inference_mode():
        scores = similarity(through(image, images), through(text, texts))
    torch.testing.assert_close(scores, torch.tensor(CARD[which], dtype=torch.float64), atol=1e-8, rtol=0)


def test_single_exchange_equals_worked_values() -> None:
    """The card's single step: width 4, weights 0.5 sin + 0.3; its first row is the node of the whole."""
    step = Sgr(width=4, nodes=4, steps=1).double().steps[0]
    keys = [step.key.weight, torch.empty(4, dtype=torch.float64)]
    assign([*step.query.parameters(), *keys, *step.graph.parameters()], 0.5, 0.3)
    given = det((2, 3, 4), 0.3)
    for last in (False, True):
        found = step(given, step.merged(), last=last)[0, 0]
        wanted = torch.tensor([1.18185658, 0.88812166, 1.28231766, 0], dtype=torch.float64)
        torch.testing.assert_close(found, wanted, atol=1e-8, rtol=0)


def test_attention_equals_worked_values() -> None:
    """The card's contexts of unit length: words det((2, 3, 4), .3), regions of the same items, scale 9."""
    words, regions = unit_vectors(det((2, 3, 4), 0.3)), unit_vectors(det((2, 5, 4), 1.3))
    weights = over_regions(products(words, regions, bf16=False), None, 9.0)
    contexts = context_differences(words, weights, regions, gram(regions)) + words
    first = torch.tensor([0.6222743, 0.66952426, 0.40188651, -0.05476475], dtype=torch.float64)
    last = torch.tensor([0.71931458, 0.59530239, 0.19131019, -0.30265819], dtype=torch.float64)
    torch.testing.assert_close(contexts[0, 0, 0], first, atol=1e-8, rtol=0)
    torch.testing.assert_close(contexts[1, 1, 2], last, atol=1e-8, rtol=0)


def test_filtration_equals_worked_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card's module of width 4, weights 0.3 sin, on nodes det((2, 3, 4), .3) as they are."""
    similarity = Saf(width=4, nodes=4).double().eval()
    assign([*similarity.attend.parameters(), *similarity.norm.parameters()], 0.3, 0.0)
    seen: list[Tensor] = []
    monkeypatch.setattr(sgraf, "score_nodes", lambda nodes, layer: seen.append(nodes) or score_nodes(nodes, layer))
    similarity.nodes.forward = lambda images, gram, texts: det((2, 1, 3, 4), 0.3)
    images, texts = of_parts(det((2, 2, 4), 0.1)), of_parts(det((1, 2, 4), 0.5))
    with torch.no_grad():
        similarity(images, texts)
    filtered = seen[-1].reshape(2, 4)
    wanted = [
        [-0.02630917, 0.42266093, 0.67284699, 0.6065826],
        [0.67038801, 0.28490579, -0.23457208, -0.64372703],
    ]
    torch.testing.assert_close(filtered, torch.tensor(wanted, dtype=torch.float64), atol=1e-8, rtol=0)


def nodes_slowly(similarity: Saf | Sgr, regions: Tensor, words: Tensor, image: Tensor, text: Tensor) -> Tensor:
    """The similarity vectors of one pair, word by word."""
    layers = similarity.nodes
    clip = nn.functional.leaky_relu(words @ regions.T, 0.1)
    clip = clip / (clip.norm(dim=0) + 1e-8)
    found = [layers.whole((image - text) ** 2)]
    for word, row in zip(words, clip, strict=True):
        context = (9 * row).softmax(dim=0) @ regions
        found.append(layers.local((context / context.norm() - word) ** 2))
    return torch.stack([node / node.norm() for node in found])


def saf_slowly(part: Saf, nodes: Tensor) -> Tensor:
    told = part.attend(nodes)[:, 0]
    told = (told - part.norm.running_mean) / (part.norm.running_var + part.norm.eps).sqrt()
    beta = torch.sigmoid(told * part.norm.weight + part.norm.bias)
    filtered = sum(b * node for b, node in zip(beta / beta.sum(), nodes, strict=True))
    return torch.sigmoid(part.decide(filtered / filtered.norm()))


def sgr_slowly(part: Sgr, nodes: Tensor) -> Tensor:
    for step in part.steps:
        edges = torch.stack([torch.stack([step.query(a) @ step.key(b) for b in nodes]).softmax(dim=0) for a in nodes])
        nodes = torch.stack([torch.relu(step.graph(row @ nodes)) for row in edges])
    return torch.sigmoid(part.decide(nodes[0]))


@pytest.mark.parametrize(("part", "slowly"), [(Saf, saf_slowly), (Sgr, sgr_slowly)])
def test_pair_scores_equal_plain_loops(part: type, slowly: Callable[[nn.Module, Tensor], Tensor]) -> None:
    similarity = part(width=8, nodes=6).double().eval()
    if part is Saf:
        similarity.norm.running_mean.fill_(0.3)
        similarity.norm.running_var.fill_(0.5)
    images, texts, alone = random_pairs()
    with torch.no_grad():
        scores = similarity(images, texts)
        for i, t, regions, words in alone:
            nodes = nodes_slowly(similarity, regions, words, images.vectors[i, 0], texts.vectors[t, 0])
            assert float(scores[i, t]) == pytest.approx(float(slowly(similarity, nodes)), abs=1e-7)


def test_filtration_computes_statistics_only_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []

    all_pairs = PairSimilarity.all_pairs

    def watched(*given: object) -> Tensor:
        found = all_pairs(*given)  # type: ignore[arg-type]
        made.append(tuple(found.shape))
        return found

    monkeypatch.setattr(PairSimilarity, "all_pairs", watched)
    similarity = Saf(width=4, nodes=3).double()
    images, texts = of_parts(det((3, 2, 4), 0.2)), of_parts(det((4, 3, 4), 0.9), [3, 2, 1, 3])
    for learning in (True, False):
        assert similarity.train(learning)(images, texts).shape == (3, 4)
    assert made == [(3, 4, 3), (3, 4)]


def test_filtration_normalises_per_text_and_tracks_statistics() -> None:
    similarity, plain = (Saf(width=4, nodes=3).double().train() for _ in range(2))
    plain.load_state_dict(similarity.state_dict())
    images, texts = of_parts(det((3, 2, 4), 0.2)), of_parts(det((4, 3, 4), 0.9), [3, 2, 1, 3])
    scores = similarity(images, texts)
    for t in range(4):
        one = texts[t : t + 1]
        length = int(one.mask.sum())
        nodes = plain.nodes(images, plain.prepare(images), replace(one, parts=one.parts[:, :length], mask=None))[
            ..., :3
        ]
        told = plain.norm(plain.attend(nodes[:, 0]).transpose(1, 2))[:, 0]
        beta = torch.sigmoid(told)
        beta = beta / beta.sum(dim=1, keepdim=True)
        filtered = torch.nn.functional.normalize((beta[..., None] * nodes[:, 0]).sum(dim=1), dim=1)
        torch.testing.assert_close(scores[:, t], torch.sigmoid(plain.decide(filtered))[:, 0], atol=1e-6, rtol=0)
    torch.testing.assert_close(similarity.norm.running_mean, plain.norm.running_mean)
    torch.testing.assert_close(similarity.norm.running_var, plain.norm.running_var)
