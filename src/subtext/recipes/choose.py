"""What `image=auto` and `text=auto` of the recommended model are: given features, the starter towers, or new encoders.

The published models keep the encoders of their papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from subtext.data.starter import NAME as STARTER, STARTER as FILES, is_installed
from subtext.errors import RecipeError
from subtext.recipes import catalogue
from subtext.recipes.build import chosen_facts, refuse_unused
from subtext.recipes.catalogue import RECOMMENDED, read_options
from subtext.text_helpers import install_hint
from subtext.training.setup import BuildContext

_NEW: Mapping[str, tuple[str, str]] = {
    "image": ("tiny", "a small network that learns from these images alone"),
    "text": ("bag", "a bag of the words of these texts"),
}
"""What takes the place of a tower that is not installed, and what it is."""


def choose_encoders(
    model: str, options: Mapping[str, object], context: BuildContext, *, recorded: Mapping[str, object] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The options of a model with an encoder in place of each "auto", and why it was taken.

    Args:
        model: Name of the recipe; only the recommended one chooses.
        options: Its options, as given.
        context: What the data set offers.
        recorded: Options of the run that goes on, which chose before; None for a new run.

    Returns:
        The options, and a sentence for each side that was chosen.
    """
    chosen, notes = dict(options), list[str]()
    if model != RECOMMENDED:
        return chosen, notes
    side: Literal["image", "text"]
    for side in ("image", "text"):
        if chosen.get(side, "auto") != "auto":
            continue
        file, (name, what) = FILES[side], _NEW[side]
        if recorded is not None:
            chosen[side] = recorded.get(side, "auto")
        elif (context.image_features if side == "image" else context.text_features) is not None:
            chosen[side], why = "features", "the features that were given"
        elif not is_installed(side):
            chosen[side] = name
            why = f"{what}, since the package {file.package} is not installed ({install_hint('starter')})"
        elif (reason := _why_not(model, {**chosen, side: STARTER}, context)) is not None:
            chosen[side], why = name, f"{what}, since {reason}"
        else:
            chosen[side] = STARTER
            why = f"{file.model}, frozen, since no features are given and its package is installed"
        if recorded is None:
            notes.append(f"{side}s: {chosen[side]} ({why})")
    return chosen, notes


def _why_not(model: str, options: Mapping[str, object], context: BuildContext) -> str | None:
    """Which given option a tower would not read; None if there is none."""
    recipe = catalogue.models()[model]
    values = read_options(f"option of '{model}'", recipe.options, options)
    try:
        refuse_unused(recipe.options, values, chosen_facts(values, context))
    except RecipeError as refusal:
        return f"{refusal.field} is given, which the starter tower does not read"
    return None
