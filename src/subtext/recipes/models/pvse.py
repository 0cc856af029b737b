"""PVSE (Song and Soleymani 2019): several views of an item, compared by the two that fit best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.recipes.options import Pictures, Pixels, Ranking, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Term
    from subtext.training.setup import Setup

Negatives = Literal["all", "hardest", "semi-hard"]
_TRIPLET = When("loss", ("triplet",))
_GRU = When("text", ("gru",))
_BOTH = When("both_directions", ("True",), needs="both_directions=True")
_VIEWS = When("views", ("1",), needs="views above 1", but=True)
PLAN = Plan(
    epochs=30,
    batch_size=128,
    lr=2e-4,
    amsgrad=True,
    schedule="plateau",
    factor=0.5,
    plateau_epochs=10,
    positives="pair",
)


def pvse(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(append_pooled=True),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    ranking: Ranking = Ranking(),
    width: Annotated[int, "width of the joint space, and of the GRU", Span(1)] = 1024,
    views: Annotated[int, "K, vectors an item; 1 is the paper's baseline with attention", Span(1)] = 2,
    dropout: Annotated[float, "dropout of words, of the global vector and of what attention adds", Span(0, 1)] = 0.0,
    margin: Annotated[float, "margin, in cosine", Span(0), _TRIPLET] = 0.1,
    negatives: Annotated[Negatives, "hardest in the paper, all in CVPRW 2022", _TRIPLET] = "hardest",
    mmd: Annotated[float, "several views: weight of the maximum mean discrepancy", Span(0), _VIEWS] = 0.01,
    diversity: Annotated[float, "several views: weight of the view diversity", Span(0), _VIEWS] = 0.1,
    legacy_gru: Annotated[bool, "both directions at the last word, as published numbers need", _GRU, _BOTH] = False,
) -> Setup:
    """PVSE: K views an item by attention over its parts, and a triplet loss on the pair of views that fits best.

    Words' embeddings are the text's parts, cells or regions the picture's. Pooled features alone are one part, of which
    attention can make one view only: then pictures have one view, and texts K.
    """
    from dataclasses import replace

    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.heads.pie import Pie
    from subtext.models.model import Branch, Model
    from subtext.objectives.objective import Objective, Penalty
    from subtext.objectives.regularisers.mmd import MMD
    from subtext.objectives.regularisers.view_diversity import ViewDiversity
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.pairwise import softmax
    from subtext.training.setup import Setup

    image = image_side(context, pictures, pixels, regions)
    text = text_side(
        context,
        replace(words, word_dropout=words.word_dropout or dropout),
        GruShape(width, words.word_width, words.gru_layers, words.both_directions),
        parts="words",
        legacy_last=legacy_gru,
    )
    heads = []
    for side in (image, text):
        encoder = side.encoder
        own = views if side.several else 1
        # A GRU gives the joint space's width itself; a backbone or features need a map to it.
        project = side is image or encoder.pooled_width != width
        heads.append(Pie(encoder.parts_width, encoder.pooled_width, width, views=own, project=project, dropout=dropout))
    terms, similarity = _triplet(margin, negatives) if ranking.loss == "triplet" else softmax(ranking.temperature)
    parts: dict[str, Any] = dict(terms)
    if views > 1 and mmd:
        parts["mmd"] = Penalty(MMD(), mmd)
    if views > 1 and diversity:
        parts["image view diversity"] = Penalty(ViewDiversity(of="image"), diversity, share_of="image_to_text")
        parts["text view diversity"] = Penalty(ViewDiversity(of="text"), diversity, share_of="text_to_image")
    branches = [Branch(side.input_spec, side.encoder, head) for side, head in zip((image, text), heads, strict=True)]
    return Setup(model=Model(branches[0], branches[1], similarity), objective=Objective(parts), plan=PLAN)


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
