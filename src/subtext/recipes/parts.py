"""What recipes share: sides and heads that keep parts, terms of an objective, and how a method changes these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from subtext.core import DIRECTIONS, Direction
from subtext.errors import RecipeError
from subtext.models.encoders.words import Recurrent
from subtext.models.heads.gaussian import Gaussian
from subtext.models.heads.parts import Parts, Pie
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.probabilistic import ClosedFormDistance
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.mining import Cosines
from subtext.objectives.objective import Loss, Objective, Penalty, Reduction, Term, Weighting
from subtext.objectives.regularisers import KL
from subtext.objectives.weighting import Neighbourhood
from subtext.ops.neighbour_scores import Scoring
from subtext.recipes.encoders import Side, image_side, text_side
from subtext.recipes.neighbour_scores import NeighbourScores
from subtext.recipes.options import DiscrepancyOptions, NeighbourOptions, RegionInputOptions, WeightOptions
from subtext.training.plan import Plan
from subtext.training.setup import BuildContext, Setup

BATCH = 128
"""Pairs of a batch in published code whose losses are sums over them."""
EDITED = ("image_to_noised", "image_to_rewritten", "rewritten_to_image")
"""Comparisons with texts that are edited."""


def setup_of(
    sides: tuple[Side, Side],
    heads: tuple[nn.Module, nn.Module],
    similarity: nn.Module,
    parts: Mapping[str, Term | Penalty],
    plan: Plan,
    *,
    loss_options: tuple[str, ...] = (),
) -> Setup:
    """The setup of images and texts with their heads, and of the parts of its objective.

    Args:
        sides: Of images and of texts.
        heads: See `sides`.
        similarity: Compares images with texts.
        parts: Of the objective, by name.
        plan: The model's own.
        loss_options: Options that the losses between images and texts, and the scale of their scores, alone read.

    Returns:
        A setup without methods.
    """
    image, text = (Branch(side.input_spec, side.encoder, head) for side, head in zip(sides, heads, strict=True))
    return Setup(Model(image, text, similarity), Objective(dict(parts)), plan, loss_options=loss_options)


def pair_sides(context: BuildContext, inputs: RegionInputOptions, width: int) -> tuple[Side, Side]:
    """Images by region and texts by word, for models that score pairs.

    A GRU of both directions has `width` in each, as published: they are averaged, not concatenated.

    Args:
        context: What the data set, or the saved run, offers.
        inputs: Which encoders, and how items are read.
        width: Of the joint space.

    Returns:
        Sides of the images and of the texts.
    """
    image = image_side(context, inputs)
    return image, text_side(context, inputs, 2 * width if inputs.bidirectional else width)


def parts_heads(
    sides: tuple[Side, Side], width: int, *, unit: bool = True, pooled: bool = False
) -> tuple[Parts, Parts]:
    """Heads that keep the parts in the joint space: regions are mapped to it; the words of a GRU are in it already.

    Args:
        sides: Of images and of texts.
        width: Of the joint space.
        unit: Parts of unit length.
        pooled: The image's vector is a map of its pooled feature, not the mean of its regions.

    Returns:
        Heads of the images and of the texts.
    """
    image, text = (side.encoder for side in sides)
    gru = isinstance(text, Recurrent)
    vector: Literal["pooled", "mean"] = "pooled" if pooled else "mean"
    return (
        Parts(image.parts_width, width, normalise=unit, vector=vector, pooled_width=image.pooled_width),
        Parts(text.parts_width, width, project=not gru, halves=gru and bool(text.rnn.bidirectional), normalise=unit),
    )


def both_directions(loss: Loss, weight: float = 1.0, *, reduction: Reduction = "mean") -> dict[str, Term]:
    """A loss from images to texts and from texts to images.

    Args:
        loss: Comparison (Q C) -> (Q) values.
        weight: Of each direction.
        reduction: Over the queries of a direction.

    Returns:
        Direction -> term.
    """
    return {side: Term(loss, on=side, weight=weight, reduction=reduction) for side in DIRECTIONS}


def hardest_negative_triplet(
    margin: float, all_negatives_epochs: int, *, reduction: Literal["mean", "sum"] = "sum", weight: float = 1.0
) -> dict[str, Term]:
    """A triplet loss on the hardest negative of the batch in each direction, summed as most publish it.

    Args:
        margin: Of the triplet loss.
        all_negatives_epochs: Epochs over all negatives before that.
        reduction: Over the queries of a direction.
        weight: Of each direction.

    Returns:
        Name -> term; "DIRECTION, all negatives" for the first epochs.
    """
    terms: dict[str, Term] = {}
    for side in DIRECTIONS:
        hard = Term(Triplet(margin=margin, negatives="hardest"), on=side, weight=weight, reduction=reduction)
        if all_negatives_epochs:
            easy = replace(hard, loss=Triplet(margin=margin, negatives="all"), until_epoch=all_negatives_epochs)
            terms[f"{side}, all negatives"] = easy
        terms[side] = replace(hard, from_epoch=all_negatives_epochs)
    return terms


def softmax(
    temperature: float, *, learnable: bool = False, label_smoothing: float = 0.0
) -> tuple[dict[str, Term], Cosine]:
    """InfoNCE in both directions, half of the objective each, and a cosine over `temperature`.

    Args:
        temperature: Divides the cosines; above 0.
        learnable: Whether the temperature is learnt.
        label_smoothing: Of the loss, in [0, 1).

    Returns:
        The terms by direction, and the similarity.
    """
    terms = both_directions(InfoNCE(label_smoothing=label_smoothing), 0.5)
    return terms, Cosine(temperature=temperature, learnable=learnable)


def gaussian_terms(loss: Any, divergence: KL, *, reduction: Reduction, weight: float) -> dict[str, Term | Penalty]:
    """The objective of models whose items are distributions.

    Args:
        loss: In both directions.
        divergence: Of the distributions of either modality, times `weight`; 0 leaves it out.
        reduction: Of its values.
        weight: Of each divergence; 0 leaves them out.

    Returns:
        Name -> part of the objective.
    """
    terms: dict[str, Term | Penalty] = {**both_directions(loss, reduction=reduction)}
    if weight:
        terms["image divergence"] = Penalty(replace(divergence, modality="image"), weight, share_of="image_to_text")
        terms["text divergence"] = Penalty(replace(divergence, modality="text"), weight, share_of="text_to_image")
    return terms


def ranking_terms(setup: Setup) -> dict[str, tuple[Term, Direction]]:
    """The terms between images and texts by name, each with its direction.

    Args:
        setup: Its objective is read.

    Returns:
        Name -> (term, direction).
    """
    return {
        name: (part, part.on)
        for name, part in setup.objective.parts.items()
        if isinstance(part, Term) and part.on in DIRECTIONS
    }


def losses_of(setup: Setup) -> str:
    """The losses of an objective, for a message.

    Args:
        setup: Its objective is read.

    Returns:
        Names of classes, with commas.
    """
    return ", ".join(type(getattr(part, "loss", part)).__name__ for part in setup.objective.parts.values())


def uses_cosine(setup: Setup) -> bool:
    """Whether items are compared by the cosine of their vectors, scaled or not.

    Args:
        setup: Its similarity is read.

    Returns:
        True for `Cosine`.
    """
    return isinstance(setup.model.similarity, Cosine)


def has_cosines(setup: Setup) -> bool:
    """Whether items have cosines: they are compared by these, or by means and variances (`pcme_plus`).

    Args:
        setup: Its similarity is read.

    Returns:
        True for `Cosine` and `ClosedFormDistance`.
    """
    return isinstance(setup.model.similarity, Cosine | ClosedFormDistance)


def require_cosine(method: str, setup: Setup) -> None:
    """Raise RecipeError unless items are compared by the cosine of their vectors.

    Args:
        method: Name of the method, for the message.
        setup: Its similarity is read.

    Raises:
        RecipeError: For another similarity than `Cosine`.
    """
    if not uses_cosine(setup):
        raise RecipeError(
            f"{method} needs a model that compares items by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; choose another model"
        )


def require_plain_texts(method: str, setup: Setup) -> None:
    """Raise RecipeError where the losses between images and texts read edited or random texts.

    Args:
        method: Name of the method, for the message.
        setup: Its objective is read.

    Raises:
        RecipeError: If a term reads edited or random texts.
    """
    if any(getattr(part, "on", "") in EDITED for part in setup.objective.parts.values()):
        raise RecipeError(
            f"{method} changes the losses between images and texts, and asymmetry has extended them; use one of "
            "these methods alone"
        )
    if any(getattr(part, "on", "") == "image_to_random" for part in setup.objective.parts.values()):
        raise RecipeError(
            f"{method} changes the losses between images and texts; with neighbourhoods:form=reference one of them "
            "reads random texts, as in the published code; choose another form, or use one of these methods alone"
        )


def weight_terms(
    method: str, setup: Setup, make: Callable[[Direction], Weighting], *, average: bool, drop_last: bool
) -> Setup:
    """The setup with sample weights on its losses between images and texts, in both directions.

    Args:
        method: Name of the method, for messages.
        setup: Of the model and the methods before.
        make: The weighting of a direction.
        average: Halves those losses: the mean of both directions, 1 / (2 B^2) over the cells, where PVSE's is their
            sum.
        drop_last: As in Plan.

    Returns:
        The setup with weighted terms.

    Raises:
        RecipeError: If there is no such loss, and if one is weighted already.
    """
    require_plain_texts(method, setup)
    terms = ranking_terms(setup)
    for name, (term, _) in terms.items():
        if term.weighting is not None:
            raise RecipeError(
                f"{method} weights a loss that has no weights yet; '{name}' has; use one weighting alone, or "
                "combined, which joins both scores"
            )
    if not terms:
        raise RecipeError(
            f"{method} needs a model with a loss between images and texts; this objective has "
            f"{', '.join(setup.objective.parts)}; leave the method out, or choose another model"
        )
    weighted = {
        name: replace(term, weighting=make(direction), weight=term.weight / 2 if average else term.weight)
        for name, (term, direction) in terms.items()
    }
    objective = Objective({**setup.objective.parts, **weighted})
    return replace(setup, objective=objective, plan=replace(setup.plan, drop_last=drop_last))


def replace_terms(method: str, setup: Setup, terms: Mapping[str, Term]) -> Setup:
    """The setup with new losses between images and texts, and the plain cosine.

    Penalties stay. A learnt scale and shift are removed, because they belong to the old losses.

    Args:
        method: Name of the method, for messages.
        setup: Of the model and the methods before.
        terms: The new losses by name, on plain cosines.

    Returns:
        The setup with the new terms and `Cosine()` as its similarity.

    Raises:
        RecipeError: If the old losses have sample weights or sampled negatives, which would be lost.
    """
    require_plain_texts(method, setup)
    replaced = ranking_terms(setup)
    for name, (term, _) in replaced.items():
        if term.weighting is not None or term.mining is not None:
            lost, verb = ("sample weights", "weights") if term.mining is None else ("sampled negatives", "samples")
            raise RecipeError(
                f"{method} replaces the losses between images and texts; '{name}' has {lost} that would be lost; "
                f"name {method} before the method that {verb}"
            )
    remaining = {name: part for name, part in setup.objective.parts.items() if name not in replaced}
    model = Model(setup.model.image, setup.model.text, Cosine())
    unread = dict.fromkeys(setup.loss_options, f"{method} replaces the losses between images and texts")
    return replace(setup, model=model, objective=Objective({**terms, **remaining}), unread={**setup.unread, **unread})


def add_terms(method: str, setup: Setup, loss: Loss, *, weight: float, sum_weight: float) -> Setup:
    """The setup with this loss beside its own, in both directions.

    A loss whose value for a query sums over all candidates (`pcme`) grows with the batch by itself, and the share of
    what is added falls by as much.

    Where items have cosines (`has_cosines`) the loss reads plain ones; else the model's own scores.

    Args:
        method: Name of the method, for messages and in the names of the terms.
        setup: Of the model and the methods before.
        loss: Comparison (Q C) -> (Q) values.
        weight: Of each direction, for the mean over its queries; below 0 for the one that relates to the model's loss
            as `sum_weight` does to a sum over a batch of 128, whatever the batch of the plan is: the added loss is
            reduced as the model's is, at `sum_weight` / 128 a query.
        sum_weight: For a `weight` below 0: the weight beside a loss that is a sum over a batch of 128.

    Returns:
        The setup with one more term per direction.

    Raises:
        RecipeError: If the model has no loss between images and texts.
    """
    parts, own_terms = setup.objective.parts, [term for term, _ in ranking_terms(setup).values()]
    if not own_terms:
        raise RecipeError(
            f"{method} is added to a loss between images and texts; this objective has {', '.join(parts)}; leave "
            "the method out, or choose another model"
        )
    reduction: Reduction = "mean"
    if weight < 0:
        weight, reduction = sum_weight / BATCH, own_terms[0].reduction
    cosine = has_cosines(setup)
    terms = {
        f"{method} {side}": Term(
            loss, on=side, weight=weight, reduction=reduction, mining=Cosines(side) if cosine else None
        )
        for side in DIRECTIONS
    }
    if repeated := sorted(terms.keys() & parts.keys()):
        raise RecipeError(f"{method} is named twice: '{repeated[0]}' is there already; name it once")
    return replace(setup, objective=replace(setup.objective, parts={**parts, **terms}))


def neighbour_weights(
    method: str,
    setup: Setup,
    weighting: Neighbourhood,
    neighbours: NeighbourOptions,
    *,
    weights: WeightOptions,
    comparison: DiscrepancyOptions = DiscrepancyOptions(),
    diagonal: bool = True,
    moments: Literal["refreshed", "fixed"] = "refreshed",
) -> Setup:
    """The setup with weights from a graph, and with the bank that they need.

    Args:
        method: Name of the method, for messages.
        setup: Of the model and the methods before.
        weighting: beta, gamma and statistics; the rest comes from `weights` and `comparison`.
        neighbours: The graph, and which of its neighbours and embeddings are used.
        weights: How large the weights are, and how those of the modalities are combined.
        comparison: What discrepancy compares a pair with.
        diagonal: Whether the diagonal counts in the scores; see `Scoring`.
        moments: "refreshed": mean and deviation of the scores are computed each epoch; "fixed": in the first alone.

    Returns:
        The setup with weighted terms and the bank.

    Raises:
        RecipeError: Without a graph, for a model whose items are no vectors, for options of several views where there
            is one, and for what cannot be computed for the best pair of views.
    """
    branches = setup.model.image, setup.model.text
    if not neighbours.graph:
        raise RecipeError(
            f"{method} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    # The samples of a distribution, or its mean, are vectors, whatever compares them.
    if not setup.model.indexable and not all(isinstance(branch.head, Gaussian) for branch in branches):
        raise RecipeError(
            f"{method} needs a model whose items are vectors; {type(setup.model.similarity).__name__} scores pairs; "
            "choose another model"
        )
    heads, default = [branch.head for branch in branches], NeighbourOptions()
    views = [head.draws for head in heads if isinstance(head, Gaussian)]
    several = max(views + [head.outer.out_features for head in heads if isinstance(head, Pie)], default=1) > 1
    for name in ("views", "samples"):
        if not several and getattr(neighbours, name) != getattr(default, name):
            raise RecipeError(
                f"{method}: {name} needs a model with several views of an item (pvse, views above 1; pcme); this one "
                f"has one; leave {name} out"
            )
    if neighbours.bank == "complete" and any(isinstance(head, Gaussian) and head.drawn == "learning" for head in heads):
        raise RecipeError(
            f"{method}: bank=complete keeps embeddings of training beside those of a pass after it; this model samples "
            "in training alone (rank_by=mean); use bank=evaluation, or rank_by=samples"
        )
    if weights.control != "none" and comparison.use_current:
        raise RecipeError(
            f"{method}: control={weights.control} gives a pair the stored scores of another; leave use_current out"
        )
    # These need scores that are sums.
    for name, value in (("second_order", "unique"), ("average", "lists"), ("use_current", True)):
        if several and neighbours.views == "max" and getattr(comparison, name) == value:
            raise RecipeError(
                f"{method}: {name}={value} needs views=mean or aligned, where a model has several views of an item; "
                "views is max; change one of them"
            )
    weighting = replace(
        weighting,
        total=weights.total_weight,
        batch=weights.reference_batch,
        sign=weights.sign,
        combine=weights.combine,
        placement=weights.total_placement,
        control=weights.control,
        current=comparison.use_current,
    )
    bank = NeighbourScores(
        Path(neighbours.graph),
        neighbours=neighbours.neighbours,
        # The second product is half of the cost, so it is made only where a weight reads it.
        scoring=Scoring(comparison.second_order if weighting.discrepancy else "none", diagonal, comparison.average),
        views=neighbours.views,
        samples=neighbours.samples,
        bank=neighbours.bank,
        first=neighbours.first_epoch,
        current=comparison.use_current,
        moments=moments,
        # Statistics of the data set, and controls, need the scores of all pairs; a weight within a batch needs those it
        # reads.
        every=neighbours.weight_tables == "all" or weighting.statistics != "none" or weights.control != "none",
        storage=neighbours.storage_dtype,
    )
    setup = weight_terms(
        method,
        setup,
        lambda direction: replace(weighting, direction=direction),
        average=weights.average_directions,
        drop_last=weights.drop_last,
    )
    return replace(setup, banks=(*setup.banks, bank))
