"""VSE-infinity (Chen et al. 2021): a strong plain model whose pooling is learnt on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.recipes.options import Pictures, Pixels, Ranking, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

_TRIPLET = When("loss", ("triplet",))
PLAN = Plan(
    epochs=25,
    batch_size=128,
    lr=5e-4,
    optimiser="adamw",
    weight_decay=1e-4,
    schedule="step",
    step_epochs=15,
    factor=0.1,
    encoder_factor=0.1,
    positives="pair",
)


def vse_infinity(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(region_drop=0.2, append_pooled=True),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(token_mask=0.1, word_drop=0.1),
    ranking: Ranking = Ranking(),
    width: Annotated[int, "width of the joint space, and of the GRU", Span(1)] = 1024,
    margin: Annotated[float, "margin, in cosine", Span(0), _TRIPLET] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0), _TRIPLET] = 1,
    perceptron: Annotated[bool, "a perceptron beside the linear map of regions"] = True,
) -> Setup:
    """VSE-infinity: regions and words pooled by learnt weights of ranks, and a triplet loss on the hardest negative.

    The first epoch sums over all negatives, as published: the hardest one alone collapses a model that knows nothing.
    """
    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.heads.gpo import Gpo
    from subtext.models.model import Branch, Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Objective
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.pairwise import hinges, softmax
    from subtext.training.setup import Setup

    image = image_side(context, pictures, pixels, regions)
    text = text_side(context, words, GruShape(width, words.word_width, words.gru_layers, words.both_directions))
    image_head = Gpo(image.encoder.parts_width, width, perceptron=perceptron)
    text_head = Gpo(text.encoder.parts_width, width)
    if ranking.loss == "softmax":
        parts, similarity = softmax(ranking.temperature)
    else:
        parts, similarity = hinges(margin, easy_epochs), Cosine()
    return Setup(
        model=Model(
            Branch(image.input_spec, image.encoder, image_head),
            Branch(text.input_spec, text.encoder, text_head),
            similarity,
        ),
        objective=Objective({**parts}),
        plan=PLAN,
    )
