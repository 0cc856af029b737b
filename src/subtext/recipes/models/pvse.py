"""PVSE (Song and Soleymani 2019): several views of an item, compared by the best matching pair."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from subtext.recipes.options import BuildContext, RankingOptions, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

Negatives = Literal["all", "hardest", "semi-hard"]
_TRIPLET = Requires("loss", ("triplet",))
_GRU = Requires("text", ("gru",))
_BOTH = Requires("bidirectional", ("True",), needs="bidirectional=True")
_VIEWS = Requires("views", ("1",), needs="views above 1", negated=True)
PLAN = Plan(
    epochs=30,
    batch_size=128,
    lr=2e-4,
    amsgrad=True,
    schedule="plateau",
    lr_factor=0.5,
    plateau_patience=10,
    positives="pair",
)


def pvse(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(append_pooled=True, flip=0.5),
    ranking: RankingOptions = RankingOptions(),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    views: Annotated[
        int, "K, the number of vectors per item; 1 is the paper's baseline with attention", Interval(1)
    ] = 2,
    dropout: Annotated[
        float, "dropout of the word embeddings, the global vector and the attended vector", Interval(0, below=1)
    ] = 0.0,
    margin: Annotated[float, "margin, in cosine", Interval(0), _TRIPLET] = 0.1,
    negatives: Annotated[Negatives, "hardest: as in the paper; all: as in CVPRW 2022", _TRIPLET] = "hardest",
    mmd_weight: Annotated[float, "several views: weight of the maximum mean discrepancy", Interval(0), _VIEWS] = 0.01,
    diversity_weight: Annotated[float, "several views: weight of the view diversity", Interval(0), _VIEWS] = 0.1,
    legacy_gru: Annotated[
        bool, "use both directions at the last word, as in the published results", _GRU, _BOTH
    ] = False,
) -> Setup:
    """PVSE: K views per item by attention over its parts, and a triplet loss on the best matching pair of views.

    The text's parts are word embeddings, the image's are cells or regions. Pooled features alone are one part, from
    which attention can make only one view: then images have one view, and texts K.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        ranking: What hits are ranked by.
        embed_dim: Dimension of the joint space and of the GRU.
        views: K, the number of vectors per item; 1 is the paper's baseline with attention.
        dropout: Dropout of the word embeddings, the global vector and the attended vector.
        margin: Margin, in cosine.
        negatives: Hardest: as in the paper; all: as in CVPRW 2022.
        mmd_weight: Several views: weight of the maximum mean discrepancy.
        diversity_weight: Several views: weight of the view diversity.
        legacy_gru: Use both directions at the last word, as in the published results.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from dataclasses import replace

    from subtext.models.heads.parts import Pie
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Penalty
    from subtext.objectives.regularisers import MMD, ViewDiversity
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import both_directions, setup_of, softmax

    inputs = replace(inputs, embedding_dropout=inputs.embedding_dropout or dropout)
    image = image_side(context, inputs)
    text = text_side(context, inputs, embed_dim, parts="words", legacy_last=legacy_gru)
    heads = []
    for side in (image, text):
        widths = side.encoder.parts_width, side.encoder.pooled_width
        count = views if side.several_parts else 1
        # A GRU has the dimension of the joint space; a backbone or features need a map to it.
        project = side is image or widths[1] != embed_dim
        heads.append(Pie(*widths, embed_dim, views=count, project=project, dropout=dropout))
    # The paper's code takes the mean over all cells, zeros among them, or over queries for the hardest negative.
    reduction: Literal["mean over cells", "mean"] = "mean over cells" if negatives == "all" else "mean"
    terms, similarity = both_directions(Triplet(margin=margin, negatives=negatives), reduction=reduction), Cosine()
    if ranking.loss == "softmax":
        terms, similarity = softmax(ranking.temperature)
    parts: dict[str, Any] = dict(terms)
    if views > 1 and mmd_weight:
        parts["mmd"] = Penalty(MMD(), mmd_weight)
    if views > 1 and diversity_weight:
        parts["image view diversity"] = Penalty(
            ViewDiversity(modality="image"), diversity_weight, share_of="image_to_text"
        )
        parts["text view diversity"] = Penalty(
            ViewDiversity(modality="text"), diversity_weight, share_of="text_to_image"
        )
    options = ("loss", "temperature", "margin", "negatives")
    return setup_of((image, text), (heads[0], heads[1]), similarity, parts, PLAN, loss_options=options)
