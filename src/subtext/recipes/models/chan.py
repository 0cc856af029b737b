"""CHAN (Pan et al. 2023): every word takes its best region, and a triplet loss on the hardest negative."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.models.vse_infinity import PLAN
from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Requires

_LSE = Requires("pooling", ("lse",))


def chan(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(region_dropout=0.2, flip=0.5),
    embed_dim: Annotated[int, "dimension of the joint space, and of each direction of the GRU", Interval(1)] = 1024,
    pooling: Annotated[
        Literal["lse", "mean"], "how the scores of words are combined; the paper uses lse with a GRU, mean with BERT"
    ] = "lse",
    temperature: Annotated[float, "temperature of the soft maximum over words", _LSE] = 0.1,
    bf16: Annotated[bool, "score pairs in bfloat16 if the machine supports it; training uses float32"] = False,
    margin: Annotated[float, "margin, in scores", Interval(0)] = 0.05,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0)] = 1,
) -> Setup:
    """CHAN: each word compared with its best matching region; the fastest of the models that read regions.

    Published with 384 pairs a step for a GRU, 128 for a BERT.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space, and of each direction of the GRU.
        pooling: How the scores of words are combined; the paper uses lse with a GRU, mean with BERT.
        temperature: Temperature of the soft maximum over words.
        bf16: Score pairs in bfloat16 if the machine supports it; training uses float32.
        margin: Margin, in scores.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.similarity.cross_attention import Chan
    from subtext.recipes.parts import hardest_negative_triplet, pair_sides, parts_heads, setup_of

    sides = pair_sides(context, inputs, embed_dim)
    similarity = Chan(pooling=pooling, temperature=temperature, bf16=bf16)
    terms, options = hardest_negative_triplet(margin, all_negatives_epochs), ("margin", "all_negatives_epochs")
    return setup_of(sides, parts_heads(sides, embed_dim), similarity, terms, PLAN, loss_options=options)
