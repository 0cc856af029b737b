"""PVSE (Song and Soleymani 2019): several views of an item, compared by the best matching pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.recipes.options import ImageOptions, PixelOptions, RankingOptions, RegionOptions, TextOptions
from subtext.training.option_marks import Range, Requires
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Term
    from subtext.training.setup import Setup

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
    images: ImageOptions = ImageOptions(),
    regions: RegionOptions = RegionOptions(append_pooled=True),
    pixels: PixelOptions = PixelOptions(flip=0.5),
    texts: TextOptions = TextOptions(),
    ranking: RankingOptions = RankingOptions(),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Range(1)] = 1024,
    views: Annotated[int, "K, vectors per item; 1 is the paper's baseline with attention", Range(1)] = 2,
    dropout: Annotated[
        float, "dropout of word embeddings, of the global vector and of the attended one", Range(0, 1)
    ] = 0.0,
    margin: Annotated[float, "margin, in cosine", Range(0), _TRIPLET] = 0.1,
    negatives: Annotated[Negatives, "hardest in the paper, all in CVPRW 2022", _TRIPLET] = "hardest",
    mmd_weight: Annotated[float, "several views: weight of the maximum mean discrepancy", Range(0), _VIEWS] = 0.01,
    diversity_weight: Annotated[float, "several views: weight of the view diversity", Range(0), _VIEWS] = 0.1,
    legacy_gru: Annotated[
        bool, "read both directions at the last word, as the published results did", _GRU, _BOTH
    ] = False,
) -> Setup:
    """PVSE: K views per item by attention over its parts, and a triplet loss on the best matching pair of views.

    The text's parts are word embeddings, the image's are cells or regions. Pooled features alone are one part, from
    which attention can make only one view: then images have one view, and texts K.
    """
    from dataclasses import replace

    from subtext.models.heads.pie import Pie
    from subtext.models.model import Model
    from subtext.objectives.objective import Objective, Penalty
    from subtext.objectives.regularisers.mmd import MMD
    from subtext.objectives.regularisers.view_diversity import ViewDiversity
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.model_parts import softmax
    from subtext.training.setup import Setup

    image = image_side(context, images, pixels, regions)
    text = text_side(
        context,
        replace(texts, embedding_dropout=texts.embedding_dropout or dropout),
        embed_dim,
        parts="words",
        legacy_last=legacy_gru,
    )
    heads = []
    for side in (image, text):
        encoder = side.encoder
        count = views if side.several_parts else 1
        # A GRU has the dimension of the joint space; a backbone or features need a map to it.
        project = side is image or encoder.pooled_width != embed_dim
        heads.append(
            Pie(encoder.parts_width, encoder.pooled_width, embed_dim, views=count, project=project, dropout=dropout)
        )
    terms, similarity = _triplet(margin, negatives) if ranking.loss == "triplet" else softmax(ranking.temperature)
    parts: dict[str, Any] = dict(terms)
    if views > 1 and mmd_weight:
        parts["mmd"] = Penalty(MMD(), mmd_weight)
    if views > 1 and diversity_weight:
        parts["image view diversity"] = Penalty(ViewDiversity(of="image"), diversity_weight, share_of="image_to_text")
        parts["text view diversity"] = Penalty(ViewDiversity(of="text"), diversity_weight, share_of="text_to_image")
    model = Model(image.branch(heads[0]), text.branch(heads[1]), similarity)
    return Setup(model=model, objective=Objective(parts), plan=PLAN)


def _triplet(margin: float, negatives: Negatives) -> tuple[dict[str, Term], Cosine]:
    """The paper's ranking terms and similarity.

    Its code takes the mean over all cells, zeros among them, or over queries for the hardest negative.
    """
    from subtext.core import DIRECTIONS
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Term

    reduction: Literal["mean over cells", "mean"] = "mean over cells" if negatives == "all" else "mean"
    loss = Triplet(margin=margin, negatives=negatives)
    return {side: Term(loss, on=side, reduction=reduction) for side in DIRECTIONS}, Cosine()
