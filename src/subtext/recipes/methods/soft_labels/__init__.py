"""Soft labels (Huang et al. 2024, CUSA): how much alike items are, by frozen teachers of one modality each."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval

Targets = Literal["each", "image", "text", "mean", "root"]
Control = Literal["none", "permuted", "flat"]


def soft_labels(
    setup: Setup,
    *,
    image_teacher: Annotated[str, "vectors of images: an image encoder, or a FILE of features"] = "starter",
    text_teacher: Annotated[str, "vectors of texts: a sentence encoder, or a FILE of features"] = "starter",
    targets: Annotated[
        Targets,
        "whose similarities: each query's own modality, one of both, or the mean or the root of the product of both",
    ] = "each",
    weight: Annotated[float, "weight of the loss between images and texts, half a direction", Interval(0)] = 1.0,
    within_weight: Annotated[float, "weight of the loss within modalities, half in each", Interval(0)] = 0.0,
    without_pair: Annotated[
        float, "weight of the loss between images and texts without the pair itself, half a direction", Interval(0)
    ] = 0.0,
    temperature: Annotated[float, "temperature of the model's cosines", Interval(above=0)] = 0.1,
    teacher_temperature: Annotated[float, "temperature of the teachers' cosines", Interval(above=0)] = 0.1,
    replace_loss: Annotated[bool, "in place of the model's own loss between images and texts"] = False,
    control: Annotated[
        Control, "none; permuted: each item has another's teacher; flat: no two items are alike"
    ] = "none",
) -> Setup:
    """Adds a loss by which items should be alike for the model as they are for two frozen teachers (Huang et al. 2024).

    Targets are softmaxes of the teachers' cosines over the batch, between images and texts and, with `within_weight`,
    within each modality (its CSA and USA). A text counts as its image for the image teacher; an image counts as the
    nearest of its texts for the text teacher. `without_pair` is the second term of SoftCLIP (Gao et al. 2024);
    `targets=text,replace_loss=yes` with both temperatures 0.1 is X-CLR (Sobal et al. 2025). CUSA has the temperatures
    0.45 (learnt) and 1, and heads of its own within modalities, where the model's vectors are compared here. Teachers
    embed all items once. Needs a model that compares one vector an item by the cosine.

    Args:
        setup: What the model, its objective and its batches are so far.
        image_teacher: Vectors of images: an image encoder, or a FILE of features.
        text_teacher: Vectors of texts: a sentence encoder, or a FILE of features.
        targets: Whose similarities: each query's own modality, one of both, or the mean or the root of the product of
            both.
        weight: Weight of the loss between images and texts, half a direction.
        within_weight: Weight of the loss within modalities, half in each.
        without_pair: Weight of the loss between images and texts without the pair itself, half a direction.
        temperature: Temperature of the model's cosines.
        teacher_temperature: Temperature of the teachers' cosines.
        replace_loss: In place of the model's own loss between images and texts.
        control: None; permuted: each item has another's teacher; flat: no two items are alike.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For a model that does not compare one vector an item by the cosine or mixes images, if another
            method gives the relevance, and where every weight is 0.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.data.starter import NAME as STARTER
    from subtext.errors import RecipeError
    from subtext.objectives.losses.listwise import Listwise
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.methods.soft_labels.teachers import Alike, AlikeBanks, Soft, Within
    from subtext.recipes.parts import replace_terms, require_cosine

    require_cosine("soft_labels", setup)
    if setup.relevance is not None:
        raise RecipeError("soft_labels gives a batch its relevance, and another method does so already; use one alone")
    if setup.mixing is not None:
        raise RecipeError(
            "soft_labels needs images that are not mixed; this model mixes them; turn that off (mix_prob=0)"
        )
    if not (weight or within_weight or without_pair):
        raise RecipeError("soft_labels needs a weight above 0; weight, within_weight and without_pair are 0")
    if replace_loss and not weight:
        raise RecipeError(
            "replace_loss needs weight above 0, of the loss that takes the other's place; it is 0; leave replace_loss "
            "out, or change that",
            field="replace_loss",
        )
    source = Alike(image_teacher, text_teacher, targets, teacher_temperature, control, bool(within_weight))
    across = bool(weight or without_pair)
    unread = {
        "targets": (targets != "each" and not across, "weight or without_pair above 0"),
        "image_teacher": (image_teacher != STARTER and "image" not in source.sides, "the image teacher to be read"),
        "text_teacher": (text_teacher != STARTER and "text" not in source.sides, "the text teacher to be read"),
    }
    for name, (is_given, need) in unread.items():
        if is_given:
            raise RecipeError(
                f"{name} needs {need}; with targets={targets}, control={control}, weight={weight:g} and "
                f"within_weight={within_weight:g} nothing reads it; leave {name} out, or change that",
                field=name,
            )
    loss = Listwise(temperature)
    parts: dict[str, Term] = {}
    for side in DIRECTIONS:
        if weight:
            name = side if replace_loss else f"soft {side}"
            parts[name] = Term(loss, side, weight / 2, mining=Soft(side))
        if without_pair:
            rest = Soft(side, without_pair=True)
            parts[f"soft {side} without the pair"] = Term(loss, side, without_pair / 2, mining=rest)
        if within_weight:
            parts[f"soft within {side.partition('_')[0]}s"] = Term(
                loss, side, within_weight / 2, mining=Within(side, teacher_temperature)
            )
    if replace_loss:
        setup = replace_terms("soft_labels", setup, {side: parts.pop(side) for side in DIRECTIONS})
    return replace(
        setup,
        objective=Objective({**setup.objective.parts, **parts}),
        relevance=source if across else None,
        banks=(*setup.banks, AlikeBanks(source)) if within_weight else setup.banks,
    )
