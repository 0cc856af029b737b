"""A plain dual encoder with a softmax over the batch: the recommended model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from subtext.recipes.options import BuildContext, InputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

Pooling = Literal["mean", "last", "learnt"]
_GRU = Requires("text", ("gru",))
_PARTS = Requires("text", ("parts",), needs="a text of several parts, words or regions")
PLAN = Plan(
    epochs=24,
    batch_size=1280,
    caption_sampling="together",
    lr=2e-3,
    optimiser="adamw",
    weight_decay=1e-4,
    schedule="one_cycle",
    warmup=0.1,
    weight_average="ema",
    ema_decay=0.99,
)


def dual(
    context: BuildContext,
    *,
    inputs: InputOptions = InputOptions(feature_scaling="unit", min_count=2, word_dim=0, token_mask=0.3),
    embed_dim: Annotated[int, "dimension of the joint space", Interval(1)] = 1024,
    gru_dim: Annotated[int, "dimension of its states; 0 for embed_dim", Interval(0), _GRU] = 0,
    pooling: Annotated[Pooling, "how words become one vector", _PARTS] = "mean",
    dropout: Annotated[float, "texts: dropout before the joint space", Interval(0, below=1)] = 0.3,
    image_dropout: Annotated[float, "images: dropout before the joint space", Interval(0, below=1)] = 0.2,
    mlp: Annotated[bool, "images: add an MLP beside the linear map"] = True,
    text_mlp: Annotated[bool, "texts: add an MLP beside the linear map", Requires("pooling", ("mean", "last"))] = False,
    temperature: Annotated[float, "temperature of the softmax, or its initial value"] = 0.05,
    learn_temperature: Annotated[bool, "learn the temperature"] = False,
    label_smoothing: Annotated[float, "share of the target that is spread over the batch", Interval(0, below=1)] = 0.0,
) -> Setup:
    """Plain dual encoder: linear and MLP layers for images, a bag of words or another text encoder, and InfoNCE.

    `image=auto` and `text=auto` are given features, else the starter towers where they are installed, else a small
    network and a bag of words: on a few ten thousand captions that beat every GRU that was tried, at a fraction of the
    time. Starter towers stay frozen, unless freeze_epochs says otherwise, and training then stops early; a frozen text
    encoder learns more with `text_mlp`. All texts of an image in the batch count as right. By default the batch is a
    twentieth of the training pairs, a fifth where both towers are the starter's: 64 to 1,280 of them, at most 256 from
    pixels.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space.
        gru_dim: Dimension of its states; 0 for embed_dim.
        pooling: How words become one vector.
        dropout: Texts: dropout before the joint space.
        image_dropout: Images: dropout before the joint space.
        mlp: Images: add an MLP beside the linear map.
        text_mlp: Texts: add an MLP beside the linear map.
        temperature: Temperature of the softmax, or its initial value.
        learn_temperature: Learn the temperature.
        label_smoothing: Share of the target that is spread over the batch.

    Returns:
        The model, its objective and its plan.

    Raises:
        RecipeError: For pooling=last with a bag of words.
        RequirementError: For an encoder or a feature file that is not available.
    """
    from dataclasses import replace

    from subtext.data.starter import NAME as STARTER
    from subtext.errors import RecipeError, Setting
    from subtext.models.encoders.words import Bag
    from subtext.models.heads.gpo import Gpo
    from subtext.models.heads.mean import Mean
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import setup_of, softmax

    image = image_side(context, inputs)
    text = text_side(
        context,
        inputs,
        gru_dim or embed_dim,
        default="bag",
        parts="mean" if pooling == "mean" else "states",
        # The words of a bag are in the joint space.
        bag_width=embed_dim,
        dropout=dropout if pooling == "learnt" else 0.0,
    )
    image_head = Mean(image.encoder.pooled_width, embed_dim, dropout=image_dropout, residual=mlp)
    encoder, bag = text.encoder, isinstance(text.encoder, Bag)
    if pooling == "last" and bag:
        raise RecipeError(
            Setting("pooling", "last"),
            " needs words in order (",
            Setting("text", "gru"),
            "); a bag of words has no last one; use mean",
        )
    # The starter's own mean over words has unit length.
    by_parts = pooling == "mean" and encoder.parts_width is not None and inputs.text != STARTER
    source: Literal["parts", "pooled"] = "parts" if by_parts else "pooled"
    width = encoder.parts_width if by_parts else encoder.pooled_width
    if pooling == "learnt":
        text_head: Any = Gpo(encoder.parts_width, embed_dim)
    else:
        # Words of dimension embed_dim are in the joint space already: a map after their mean only overfits.
        project = not bag or width != embed_dim
        text_head = Mean(width, embed_dim, source=source, dropout=dropout, project=project, residual=text_mlp)
    terms, similarity = softmax(temperature, learnable=learn_temperature, label_smoothing=label_smoothing)
    # A twentieth of the pairs, so that few pairs still make many steps; fewer where images are decoded.
    plan, most, steps = PLAN, PLAN.batch_size, 20
    if STARTER in (inputs.image, inputs.text):
        plan = replace(plan, freeze_epochs=-1)
    if STARTER == inputs.image == inputs.text:
        # Frozen features need few steps, and a softmax over more texts ranks better (reproduce/notes/starter.md).
        steps = 5
    if context.image_features is None and inputs.image != STARTER:
        most = 256
    if context.texts:
        plan = replace(plan, batch_size=max(64, min(most, len(context.texts) // steps)))
    options = ("temperature", "learn_temperature", "label_smoothing")
    return setup_of((image, text), (image_head, text_head), similarity, terms, plan, loss_options=options)
