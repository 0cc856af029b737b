"""SGRAF (Diao et al. 2021): similarity vectors of words and regions, filtered by attention or reasoned over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_SGR = Requires("reasoning", ("sgr",))
PLAN = Plan(epochs=40, batch_size=128, lr=2e-4, schedule="step", step_epochs=30, lr_factor=0.1, positives="pair")


def sgraf(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(flip=0.5, embedding_dropout=0.4),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of the GRU", Interval(1)] = 1024,
    reasoning: Annotated[
        Literal["sgr", "saf"], "reason over similarity vectors by a graph (sgr), or weight them by attention (saf)"
    ] = "sgr",
    similarity_dim: Annotated[int, "dimension of the similarity vectors", Interval(1)] = 256,
    steps: Annotated[int, "graph steps", Interval(1), _SGR] = 3,
    dropout: Annotated[float, "dropout of the attention that pools an item", Interval(0, below=1)] = 0.4,
    num_regions: Annotated[int, "fixed number of regions, as in published weights (36); 0: any", Interval(0)] = 0,
    bf16: Annotated[bool, "score pairs in bfloat16 if the machine supports it; training uses float32"] = False,
    margin: Annotated[float, "margin, in scores", Interval(0)] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0)] = 0,
) -> Setup:
    """SGR or SAF: a network turns similarity vectors of words and regions into a score; loss on the hardest negative.

    The published SGRAF is the mean of the scores of two runs, one of each. Filtration (saf) trains ten epochs less.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space, and of each direction of the GRU.
        reasoning: Reason over similarity vectors by a graph (sgr), or weight them by attention (saf).
        similarity_dim: Dimension of the similarity vectors.
        steps: Graph steps.
        dropout: Dropout of the attention that pools an item.
        num_regions: Fixed number of regions, as in published weights (36); 0: any.
        bf16: Score pairs in bfloat16 if the machine supports it; training uses float32.
        margin: Margin, in scores.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.heads.parts import SelfAttention
    from subtext.models.similarity.sgraf import Saf, Sgr
    from subtext.recipes.parts import hardest_negative_triplet, pair_sides, parts_heads, setup_of

    sides = pair_sides(context, inputs, embed_dim)
    image, text = parts_heads(sides, embed_dim)
    heads = (
        SelfAttention(image, embed_dim, dropout=dropout, normalise=True, regions=num_regions),
        SelfAttention(text, embed_dim, dropout=dropout),
    )
    if reasoning == "saf":
        plan = replace(PLAN, epochs=30, step_epochs=20)
        similarity: Saf | Sgr = Saf(width=embed_dim, nodes=similarity_dim, bf16=bf16)
    else:
        plan, similarity = PLAN, Sgr(width=embed_dim, nodes=similarity_dim, steps=steps, bf16=bf16)
    terms, options = hardest_negative_triplet(margin, all_negatives_epochs), ("margin", "all_negatives_epochs")
    return setup_of(sides, heads, similarity, terms, plan, loss_options=options)
