"""What was chosen, and which options are read by it: an option that nothing would read is refused, not ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from subtext.errors import RecipeError
from subtext.recipes.catalogue import Option
from subtext.training.when import Facts

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext, FeatureShape
    from subtext.data.features import FeatureInput
    from subtext.models.model import Branch
    from subtext.training.setup import Setup

_BUILT = ("parts", "whole")
"""What is known of a text side once it is built: whether it has several parts, and whether the whole text is read."""


def asked(values: Mapping[str, object], context: BuildContext) -> dict[str, tuple[str, ...]]:
    """What is known before anything is built or fetched: every option's value, and what encodes the two sides.

    values  every option of the host and of the plan
    """
    facts: dict[str, tuple[str, ...]] = {name: (str(value),) for name, value in values.items()}
    image, text = str(values.get("image", "")), str(values.get("text", ""))
    if "image" not in values:
        facts["image"] = ("pixels",)
    elif image == "features" or (image == "auto" and context.image_features is not None):
        facts["image"] = _features(context.image_features)
    else:
        facts["image"] = (image, "pixels", *(("detector",) if image.startswith("detector:") else ()))
    if text == "features" or (text == "auto" and context.text_features is not None):
        facts["text"] = ("features", *_BUILT)
    elif text in ("", "auto"):
        # The host's own; known once it is built.
        facts.pop("text", None)
    else:
        facts["text"] = (text, *_BUILT) if text in ("gru", "bag") else (text, "backbone", *_BUILT)
    return facts


def found(setup: Setup) -> dict[str, tuple[str, ...]]:
    """What a built host turned out to be: what encodes the two sides, and what of it is pretrained."""
    from subtext.data.features import FeatureInput
    from subtext.training.phases import body_layers, body_norms

    image, branches = setup.model.image.input_spec, (setup.model.image, setup.model.text)
    bodies = [layers for layers in map(body_layers, branches) if layers]
    facts = {"text": _text(setup.model.text)}
    if isinstance(image, FeatureInput):
        facts["image"] = _features(image)
    facts["body"] = ("pretrained",) * bool(bodies) + ("layers",) * any(len(layers) > 1 for layers in bodies)
    facts["body"] += ("norms",) * any(map(body_norms, branches))
    return facts


def refuse(options: Iterable[Option], values: Mapping[str, object], facts: Facts) -> None:
    """Raise RecipeError for the first option that was changed from its default and that nothing reads."""
    for option in options:
        if values.get(option.name, option.default) == option.default:
            continue
        for when in option.when:
            if not when.holds(facts):
                got = f"{when.fact} is {facts[when.fact][0]}" if when.fact in values else "it got none"
                raise RecipeError(f"{option.name} needs {when.words}; {got}; leave {option.name} out, or change that")


def refuse_features(host: str, values: Mapping[str, object], context: BuildContext) -> None:
    """Raise RecipeError for precomputed features that the host was told not to read, or cannot."""
    for side, features, shape in (
        ("image", "features", context.image_features),
        ("text", "text_features", context.text_features),
    ):
        if shape is not None and values.get(side) not in ("auto", "features"):
            needs = (
                f"{side}=features; {side} is {values[side]}" if side in values else f"another host; {host} reads none"
            )
            raise RecipeError(f"{features} needs {needs}; leave {features} out, or change that")


def read(options: Iterable[Option], values: Mapping[str, object], facts: Facts) -> dict[str, object]:
    """The value of every option that is read: what a run was made with."""
    return {
        option.name: values.get(option.name, option.default)
        for option in options
        if all(when.holds(facts) for when in option.when)
    }


def _features(shape: FeatureShape | FeatureInput | None) -> tuple[str, ...]:
    if shape is None or shape.grid is None:
        return ("features",)
    return ("features", "regions") if shape.pooled is None else ("features", "regions", "regions beside a vector")


def _text(branch: Branch) -> tuple[str, ...]:
    from subtext.data.features import FeatureInput
    from subtext.models.encoders.bag import Bag
    from subtext.models.encoders.open_clip_dual import Tower
    from subtext.models.encoders.precomputed import Precomputed
    from subtext.models.encoders.recurrent import Recurrent

    encoder, input_spec = branch.encoder, branch.input_spec
    several = input_spec.grid is not None if isinstance(input_spec, FeatureInput) else not isinstance(encoder, Tower)
    built = ("parts",) * several + ("whole",) * ("pooled" in getattr(branch.head, "inputs", ()))
    for kind, name in ((Bag, "bag"), (Recurrent, "gru"), (Precomputed, "features"), (Tower, "open_clip")):
        if isinstance(encoder, kind):
            return (name, *built)
    return ("a text backbone", "backbone", *built)
