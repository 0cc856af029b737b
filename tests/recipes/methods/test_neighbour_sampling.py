"""Neighbours of a batch: who is drawn, what they are compared with, and the losses of Thomas and Kovashka on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
import word_graph
from scenes import doubles, items, random_items
from torch import nn

from subtext.core import DIRECTIONS, Embeddings, Epoch, Origin, Scene
from subtext.data.dataset import Items
from subtext.data.inputs import Draw, Tensors
from subtext.errors import DataError, RecipeError, RequirementError
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.scene import Grouped, Groups, compare_neighbours, compare_with_random, compose
from subtext.recipes.build import build
from subtext.recipes.methods.hal import hal
from subtext.recipes.methods.mithun import mithun
from subtext.recipes.methods.neighbourhoods import neighbourhoods
from subtext.recipes.methods.neighbourhoods.sampling import (
    RANDOM,
    SIDES,
    Neighbours,
    RandomTextSampler,
    SampledNeighbours,
    Sampler,
)
from subtext.recipes.methods.struc import struc
from subtext.recipes.methods.uniform import uniform
from subtext.training.plan import Plan
from subtext.training.processes import Processes
from subtext.training.setup import BuildContext
from subtext.training.step import StepInput, Stepper, StepReader

pytestmark = pytest.mark.identity

PAIRS = small_training.pairs()
U3 = {
    "X": doubles([[1, 0], [0.6, 0.8], [-0.8, 0.6]]),
    "Y": doubles([[0.8, 0.6], [0, 1], [-0.6, -0.8]]),
    "X'": doubles([[0.6, -0.8], [1, 0], [-1, 0]]),
    "Y'": doubles([[0.6, 0.8], [-0.6, 0.8], [0, -1]]),
    "Z": doubles([[0, 1], [0.28, 0.96], [0.8, -0.6]]),
}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return word_graph.save(PAIRS, tmp_path / "graph")


def test_sample_depends_on_pool_and_pair_alone(graph: Path) -> None:
    samplers = SampledNeighbours(graph=graph, pool_size=4).open(PAIRS)
    nearest = word_graph.graph(PAIRS).neighbours[:, :4]
    text = samplers.by_side["text"]
    seen = np.stack([text(PAIRS.links, seed=3, epoch=epoch) for epoch in range(200)], axis=1)
    for row, drawn in zip(PAIRS.links[:, 1], seen, strict=True):
        assert set(drawn.tolist()) == set(nearest[row].tolist())
    counts = np.stack([(seen == nearest[PAIRS.links[:, 1], place, None]).sum() for place in range(4)])
    assert (abs(counts / seen.size - 0.25) < 0.02).all()
    order = np.random.default_rng(0).permutation(len(PAIRS.links))
    assert (text(PAIRS.links[order], seed=3, epoch=7) == seen[order, 7]).all()
    assert (text(PAIRS.links, seed=4, epoch=7) != seen[:, 7]).any()
    # One neighbour, and its picture with it.
    drawn = samplers.by_side["image"](PAIRS.links, seed=3, epoch=7)
    assert (drawn == seen[:, 7]).all()
    assert (PAIRS.images.groups[samplers.by_side["image"].images[drawn]] == PAIRS.texts.groups[drawn]).all()


def test_empty_neighbour_list_samples_text_of_another_group() -> None:
    choices = np.full((len(PAIRS.texts), 2), -1, dtype=np.int32)
    sampler = Sampler(PAIRS, choices)
    assert sampler.without == len(PAIRS.texts)
    seen = np.stack([sampler(PAIRS.links[6:7], seed=0, epoch=epoch) for epoch in range(900)])[:, 0]
    own = PAIRS.texts.groups == PAIRS.texts.groups[PAIRS.links[6, 1]]
    assert set(seen.tolist()) == set(np.flatnonzero(~own).tolist())


def test_neighbour_without_image_is_never_sampled(graph: Path) -> None:
    nearest = word_graph.graph(PAIRS).neighbours
    gone = int(nearest[0, 0])
    cut = replace(PAIRS, links=PAIRS.links[PAIRS.links[:, 1] != gone])
    sampler = SampledNeighbours(graph=graph, pool_size=4).open(cut).by_side["image"]
    drawn = np.stack([sampler(cut.links, seed=0, epoch=epoch) for epoch in range(60)])
    assert gone not in drawn
    assert (sampler.images[drawn] >= 0).all()


def test_pool_is_restricted_to_training_texts(graph: Path) -> None:
    """A graph of all texts serves a part of them; texts whose neighbours are all gone are counted."""
    part = PAIRS.subset(np.arange(6), np.arange(12))
    samplers = SampledNeighbours(graph=graph, pool_size=6).open(part)
    assert "without a neighbour" in "".join(samplers.notes(small_training.setup().model))
    drawn = samplers.by_side["text"](part.links, seed=0, epoch=0)
    assert (drawn < 12).all()
    assert (part.texts.groups[drawn] != part.texts.groups[part.links[:, 1]]).all()


def test_other_texts_of_image_are_sampled_without_graph() -> None:
    sampler = SampledNeighbours(("text",)).open(PAIRS).by_side["text"]
    assert (sampler(PAIRS.links, seed=0, epoch=0) == (PAIRS.links[:, 1] ^ 1)).all()
    one = PAIRS.subset(np.arange(40), np.arange(0, 80, 2))
    with pytest.raises(DataError, match="every image has one; draw neighbours"):
        SampledNeighbours(("text",)).open(one)


def test_graph_of_other_data_raises(graph: Path, tmp_path: Path) -> None:
    draw = SampledNeighbours(graph=graph, pool_size=4)
    with pytest.raises(DataError, match="built for other data: it knows 0 of 24"):
        draw.open(small_training.pairs(12, "val"))
    other = replace(PAIRS, texts=replace(PAIRS.texts, values=["other words", *PAIRS.texts.values[1:]]))
    with pytest.raises(DataError, match="79 of 80"):
        draw.open(other)
    with pytest.raises(DataError, match=r"pool_size=7 needs a graph of 7 neighbours or more; .* has 6 .*pool_size=6"):
        replace(draw, pool_size=7).open(PAIRS)
    with pytest.raises(DataError, match="pool_size=4 needs more than 4 texts; it got 4"):
        draw.open(PAIRS.subset(np.arange(2), np.arange(4)))
    with pytest.raises(DataError, match="needs to be a folder that `subtext neighbours build` wrote"):
        replace(draw, graph=tmp_path / "nothing").open(PAIRS)
    with pytest.raises(RequirementError, match="an image needs a graph"):
        SampledNeighbours(("image",))
    one = Items(["a", "b"], [None, None], np.zeros(2, np.int64), np.array(["train"] * 2))
    with pytest.raises(DataError, match="all texts are of one"):
        Sampler(replace(PAIRS, images=one, texts=one, links=np.array([[0, 0], [1, 1]])), np.zeros((2, 1), np.int32))


@pytest.mark.parametrize("negatives", ["anchors", "neighbours", "both"])
@pytest.mark.parametrize("more", [False, True])
def test_comparison_of_own_neighbours_and_batch(negatives: str, more: bool) -> None:
    """Cell by cell: its own neighbour is right, others are wrong unless of its group or of its neighbour's."""
    own, around = random_items(4, seed=1), random_items(4, seed=2)
    groups, near_groups = torch.tensor([0, 1, 1, 2]), torch.tensor([1, 5, 6, 5])
    others = None
    if more:
        groups_more, near_more = torch.tensor([7, 0]), torch.tensor([5, 9])
        others = (Grouped(random_items(2, seed=3), groups_more), Grouped(random_items(2, seed=4), near_more))
    found = compare_neighbours(
        Cosine(scale=20.0), Grouped(own, groups), Grouped(around, near_groups), negatives=negatives, gathered=others
    )
    columns = [(Origin.NEIGHBOUR, group) for group in near_groups.tolist()]
    columns += [(Origin.NEIGHBOUR, group) for group in ([5, 9] if more else [])]
    if negatives != "neighbours":
        columns += [(Origin.PAIR, group) for group in [*groups.tolist(), *([7, 0] if more else [])]]
    assert found.scores.shape == (4, len(columns))
    torch.testing.assert_close(found.scores, Cosine()(own, found.candidates))
    for query, (mine, neighbour) in enumerate(zip(groups.tolist(), near_groups.tolist(), strict=True)):
        for column, (origin, group) in enumerate(columns):
            right = column == query
            wrong = not right and group not in (mine, neighbour)
            wrong &= negatives != "anchors" or origin is Origin.PAIR
            assert bool(found.truth.match[query, column]) is right
            assert bool(found.truth.negative[query, column]) is wrong
            assert int(found.origin[column]) == origin


def _scene() -> Scene:
    groups = torch.arange(3)
    made = compose(Cosine(), items(U3["X"]), items(U3["Y"]), groups)
    near_by = {
        side: compare_neighbours(Cosine(), Grouped(items(U3[mine]), groups), Grouped(items(U3[f"{mine}'"]), groups + 3))
        for side, mine in (("image", "X"), ("text", "Y"))
    }
    return replace(made, image_neighbours=near_by["image"], text_neighbours=near_by["text"])


@pytest.mark.parametrize(
    ("options", "wanted", "total"),
    [
        (
            {"form": "angular"},
            {"image_to_text": 1.2779368855, "text_to_image": 1.2498909202, "image": 1.4347918670, "text": 0.7634452576},
            3.1109544174,
        ),
        (
            {"form": "hinge", "angle": np.degrees(np.arctan(0.5)).item()},
            {"image_to_text": 0.12, "text_to_image": 0.02, "image": 0.20, "text": 0.0},
            0.20,
        ),
        # Squared distances are twice cosines: half of each, with half of the margin 0.1.
        (
            {"form": "triplet", "margin": 0.05},
            {"image_to_text": 0.5733333333 / 2, "text_to_image": 0.07, "image": 0.0666666667 / 2, "text": 0.0},
            0.36,
        ),
    ],
)
def test_loss_terms_equal_worked_example(options: dict[str, object], wanted: dict[str, float], total: float) -> None:
    made = neighbourhoods(small_training.setup(), graph="somewhere", **options)
    scene = _scene()
    whole, _ = made.objective(scene, Epoch(number=0, seed=0))
    for name, value in wanted.items():
        term = made.objective.parts[name if "_to_" in name else f"{name} neighbours"]
        unweighted = replace(term, weight=1.0)(scene, Epoch(number=0, seed=0))
        assert unweighted.item() == pytest.approx(value, abs=1e-9)
    assert whole.item() == pytest.approx(total, abs=1e-9)


class Table(nn.Module):
    """An encoder and head that know the vector of every item by its row."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, inputs: Tensors, ids: torch.Tensor | None = None) -> Embeddings | Tensors:
        return inputs if ids is None else Embeddings(self.rows[ids][:, None], ids)


@pytest.mark.parametrize("chunk", [0, 2])
def test_reference_form_equals_worked_example_in_a_step(chunk: int) -> None:
    """Rows 0 to 2 are pairs, 3 to 5 their neighbours, 6 to 8 the texts that were drawn; all read in one step."""
    tables = {"image": torch.cat([U3["X"], U3["X'"], U3["X"]]), "text": torch.cat([U3["Y"], U3["Y'"], U3["Z"]])}
    branches = {side: Branch(small_training.Traits(), nn.Identity(), Table(rows)) for side, rows in tables.items()}
    host = replace(small_training.setup(), model=Model(branches["image"], branches["text"], Cosine(temperature=0.1)))
    made = neighbourhoods(host, graph="somewhere", form="reference")
    assert made.extras[0].random_texts

    def rows(start: int) -> Tensors:
        return {"ids": torch.arange(start, start + 3)}

    near_by = Neighbours(
        {"image neighbour": ("image", rows(3)), "text neighbour": ("text", rows(3)), RANDOM: ("text", rows(6))},
        dict.fromkeys(SIDES, torch.arange(3) + 3),
    )
    share = dict.fromkeys(DIRECTIONS, 1.0)
    reading = StepInput(rows(0), rows(0), Groups.of(torch.arange(3)), share, extras=(near_by,))
    stepper = Stepper(made.model, made.objective, Plan(grad_cache_chunk=chunk), Processes("cpu"))
    whole, parts = stepper(reading, Epoch(number=0, seed=0), name="step 0")
    found = dict(zip(made.objective.parts, parts.tolist(), strict=True))
    assert found == pytest.approx(
        {
            "image_to_text": 3.3423952831,
            "text_to_image": 5.2177426387,
            "image neighbours": 0.3 * 5.3367435212,
            "text neighbours": 0.2 * 3.5764285965,
        },
        abs=1e-9,
    )
    assert whole.item() == pytest.approx(10.8764466974, abs=1e-9)
    # What was drawn learns, too.
    assert bool((made.model.text.head.rows.grad[6:].norm(dim=1) > 0).all())
    # Validation draws nothing: other texts of the batch stand for what was drawn.
    assert made.objective.of_pairs().parts["image_to_text"].on == "image_to_text"
    assert stepper.loss(reading, Epoch(number=0, seed=0)).isfinite()


def test_random_texts_are_uniform_and_depend_on_pair_alone() -> None:
    """Every text that has a picture is drawn about as often, a pair's own too, whatever batch it stands in."""
    drawn = RandomTextSampler(PAIRS)
    seen = np.stack([drawn(PAIRS.links, seed=3, epoch=epoch) for epoch in range(300)], axis=1)
    counts = np.bincount(seen.ravel(), minlength=len(PAIRS.texts))
    assert counts.min() > 0.75 * counts.mean() and counts.max() < 1.25 * counts.mean()
    assert (seen == PAIRS.links[:, 1, None]).any()
    order = np.random.default_rng(0).permutation(len(PAIRS.links))
    assert (drawn(PAIRS.links[order], seed=3, epoch=7) == seen[order, 7]).all()
    assert (drawn(PAIRS.links, seed=4, epoch=7) != seen[:, 7]).any()
    cut = replace(PAIRS, links=PAIRS.links[PAIRS.links[:, 1] != 5])
    assert 5 not in np.stack([RandomTextSampler(cut)(cut.links, seed=3, epoch=epoch) for epoch in range(60)])


def test_random_texts_are_read_only_in_reference_form(graph: Path) -> None:
    with_them = ({"image_weight": 0.0}, {"image_weight": 0.0, "text_weight": 0.0}, {"cross_modal": "model"}, {})
    for options in with_them:
        read = {} if options.get("text_weight") == 0 else {"graph": str(graph), "pool_size": 4}
        made = neighbourhoods(small_training.setup(), **read, form="reference", **options)
        reading = StepReader(made.model, PAIRS, Draw(1, 2), extras=[made.extras[0].open(PAIRS)])(PAIRS.links[:9])
        wanted = RandomTextSampler(PAIRS)(PAIRS.links[:9], seed=1, epoch=2)
        assert reading.extras[0].items[RANDOM][1]["ids"].tolist() == wanted.tolist()
    host = neighbourhoods(
        small_training.setup(), graph=str(graph), form="reference", cross_modal="model", text_weight=0.0
    )
    for made in (host, neighbourhoods(small_training.setup(), graph=str(graph))):
        assert not made.extras[0].random_texts
    told = {
        one.extras[0].open(PAIRS).fingerprint
        for one in (word_graph.setup(graph), word_graph.setup(graph, form="reference"))
    }
    assert len(told) == 2


def test_other_methods_reject_loss_that_reads_random_texts() -> None:
    for method in (uniform, mithun, hal):
        with pytest.raises(RecipeError, match=r"neighbourhoods:form=reference one of them reads random texts"):
            method(neighbourhoods(small_training.setup(), form="reference", image_weight=0.0, text_weight=0.0))
    assert (
        neighbourhoods(uniform(small_training.setup()), graph="somewhere", form="reference", cross_modal="model")
        .extras[0]
        .random_texts
    )


def test_random_candidates_without_embeddings_raise() -> None:
    bare = replace(_scene().image_to_text, queries=None, candidates=None)
    with pytest.raises(RequirementError, match="a random negative needs the embeddings"):
        compare_with_random(Cosine(), bare, items(U3["Z"]))


def test_methods_without_their_requirements_raise() -> None:
    host = small_training.setup()
    with pytest.raises(RecipeError, match="neighbourhoods needs graph=FOLDER"):
        neighbourhoods(host)
    with pytest.raises(RecipeError, match="structure=texts needs graph=FOLDER"):
        struc(host, structure="texts")
    with pytest.raises(RecipeError, match=r"^graph needs structure=texts\|images"):
        build("vse", {}, methods=[("struc", {"graph": "somewhere"})], context=BuildContext(texts=("a dog",)))
    with pytest.raises(RecipeError, match="graph needs image_weight or text_weight above 0; both are 0"):
        neighbourhoods(host, graph="somewhere", image_weight=0.0, text_weight=0.0)
    with pytest.raises(RecipeError, match="image_graph needs image_weight above 0"):
        neighbourhoods(host, graph="somewhere", image_graph="elsewhere", image_weight=0.0)
    with pytest.raises(RecipeError, match="another method does so already"):
        struc(neighbourhoods(host, graph="somewhere"))
    with pytest.raises(RecipeError, match="name neighbourhoods before the method that weights"):
        neighbourhoods(mithun(host), graph="somewhere")
    with pytest.raises(RecipeError, match="compares by BestWord"):
        neighbourhoods(small_training.setup_with_parts(), graph="somewhere")


def test_methods_keep_or_replace_model_losses() -> None:
    host = small_training.setup_with_penalty()
    kept = neighbourhoods(host, graph="somewhere", cross_modal="model", image_weight=0.0)
    assert [*host.objective.parts, "text neighbours"] == list(kept.objective.parts)
    assert kept.model is host.model
    assert kept.extras[0] == SampledNeighbours(("text",), Path("somewhere"))
    alone = neighbourhoods(host, image_weight=0.0, text_weight=0.0, text_to_image_weight=0.0)
    assert list(alone.objective.parts) == ["image_to_text", "mmd"]
    assert alone.extras == ()
    assert not list(alone.model.similarity.parameters())
    pictures = struc(host, structure="images", graph="somewhere")
    assert pictures.objective.parts["structure"].on == "image_neighbours"
    assert pictures.extras[0].sides == ("image",)
