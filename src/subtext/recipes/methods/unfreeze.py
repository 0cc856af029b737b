"""Heads first, then everything at a lower rate (Faghri et al. 2018): fine-tuning in two steps."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import Setup


def unfreeze(
    setup: Setup,
    *,
    head_epochs: Annotated[int, "epochs that train the heads alone; 30 in the paper"] = 30,
    lr_scale: Annotated[float, "factor of every learning rate after them; 0.1 in the paper"] = 0.1,
) -> Setup:
    """Trains the heads with frozen encoders, then everything with a lower learning rate (Faghri et al. 2018).

    The plan's epochs count both parts: 45 in the paper (`--epochs 45`). The schedule continues through both. Needs a
    pretrained encoder.

    Args:
        setup: What the model, its objective and its batches are so far.
        head_epochs: Epochs that train the heads alone; 30 in the paper.
        lr_scale: Factor of every learning rate after them; 0.1 in the paper.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For options out of their range, for a model without a pretrained encoder, and for a training that
            has phases already.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError
    from subtext.training.optimiser import body_layers
    from subtext.training.plan import Phase

    if head_epochs < 1 or not lr_scale > 0:
        raise RecipeError(
            f"unfreeze needs head_epochs of 1 or more and an lr_scale above 0; it got {head_epochs} and {lr_scale}"
        )
    if not any(body_layers(branch) for branch in (setup.model.image, setup.model.text)):
        raise RecipeError(
            "unfreeze needs a model with a pretrained encoder; nothing here is pretrained; leave the method out, or "
            "name a backbone"
        )
    if setup.phases:
        raise RecipeError("unfreeze needs a training without phases; it has some already; use one such method alone")
    return replace(setup, phases=(Phase(head_epochs, "heads"), Phase(1, "all", factor=lr_scale)))
