"""A plain dual encoder with a softmax over the batch: what Subtext recommends when a user names no host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.recipes.options import Pictures, Pixels, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

Pooling = Literal["mean", "last", "learnt"]
_GRU = When("text", ("gru",))
_PARTS = When("text", ("parts",), needs="a text of several parts, words or regions")
PLAN = Plan(
    epochs=24,
    batch_size=1280,
    captions="together",
    lr=2e-3,
    optimiser="adamw",
    weight_decay=1e-4,
    schedule="one_cycle",
    warmup=0.1,
    average="ema",
    average_decay=0.99,
)


def dual(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(feature_scaling="unit"),
    pixels: Pixels = Pixels(),
    words: Words = Words(min_count=2, word_width=0, token_mask=0.3),
    width: Annotated[int, "width of the joint space", Span(1)] = 1024,
    gru_width: Annotated[int, "width of its states; 0 for the joint width", Span(0), _GRU] = 0,
    pooling: Annotated[Pooling, "how words become one vector", _PARTS] = "mean",
    dropout: Annotated[float, "texts: dropout before the joint space", Span(0, 1)] = 0.3,
    image_dropout: Annotated[float, "pictures: dropout before the joint space", Span(0, 1)] = 0.2,
    perceptron: Annotated[bool, "pictures: a perceptron beside the linear map"] = True,
    temperature: Annotated[float, "temperature of the softmax, or what it starts from"] = 0.05,
    learn_temperature: Annotated[bool, "whether the temperature is learnt"] = False,
    label_smoothing: Annotated[float, "share of the target spread over the batch", Span(0, 1)] = 0.0,
) -> Setup:
    """Plain dual encoder: a map of pictures, a bag of words or another text encoder, and InfoNCE.

    A bag of words is what `text=auto` means here: on a few ten thousand captions it beat every GRU that was tried, at a
    fraction of the time. All texts of a picture that are in the batch count as right. Unless told, the batch is a
    twentieth of the training pairs: 64 to 1,280 of them, from pixels 256 at most.
    """
    from dataclasses import replace

    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.heads.mean import Mean
    from subtext.models.model import Branch, Model
    from subtext.objectives.objective import Objective
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.pairwise import softmax
    from subtext.training.setup import Setup

    image = image_side(context, pictures, pixels)
    # 0 is what suits the encoder: a bag's words live in the joint space, a GRU reads narrower ones.
    shape = GruShape(gru_width or width, words.word_width or 300, words.gru_layers, words.both_directions)
    words = replace(words, word_width=words.word_width or width)
    parts: Literal["mean", "states"] = "mean" if pooling == "mean" else "states"
    inside = dropout if pooling == "learnt" else 0.0
    text = text_side(context, words, shape, otherwise="bag", parts=parts, dropout=inside)
    image_head = Mean(image.encoder.pooled_width, width, dropout=image_dropout, residual=perceptron)
    text_head = _text_head(text.encoder, width, pooling=pooling, dropout=dropout)
    terms, similarity = softmax(temperature, learnable=learn_temperature, label_smoothing=label_smoothing)
    return Setup(
        model=Model(
            Branch(image.input_spec, image.encoder, image_head),
            Branch(text.input_spec, text.encoder, text_head),
            similarity,
        ),
        objective=Objective(dict(terms)),
        plan=replace(PLAN, batch_size=_batch_size(context)),
    )


def _text_head(encoder: Any, width: int, *, pooling: Pooling, dropout: float) -> Any:
    """What makes one vector of a text's words."""
    from subtext.errors import RecipeError
    from subtext.models.encoders.bag import Bag
    from subtext.models.heads.gpo import Gpo
    from subtext.models.heads.mean import Mean

    bag = isinstance(encoder, Bag)
    if pooling == "learnt":
        return Gpo(encoder.parts_width, width)
    if pooling == "last" and bag:
        raise RecipeError("pooling=last needs words in order (text=gru); a bag of words has no last; take mean")
    by_parts = pooling == "mean" and encoder.parts_width is not None
    source: Literal["parts", "pooled"] = "parts" if by_parts else "pooled"
    width_in = encoder.parts_width if by_parts else encoder.pooled_width
    # Words of the joint width live in the joint space: a map after their mean only helps to overfit.
    return Mean(width_in, width, source=source, dropout=dropout, project=not bag or width_in != width)


def _batch_size(context: BuildContext) -> int:
    """A twentieth of the pairs, so that few pairs still make many steps; fewer where each picture is decoded."""
    most = PLAN.batch_size if context.image_features is not None else 256
    return max(64, min(most, len(context.texts) // 20)) if context.texts else PLAN.batch_size
