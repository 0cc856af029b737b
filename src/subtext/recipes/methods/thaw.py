"""Heads first, then everything at a lower rate (Faghri et al. 2018): fine-tuning in two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def thaw(
    setup: Setup,
    *,
    heads: Annotated[int, "epochs in which only what is new learns; 30 in the paper"] = 30,
    rate: Annotated[float, "what every learning rate is multiplied by after them; 0.1 in the paper"] = 0.1,
) -> Setup:
    """Trains what is new beside frozen pretrained encoders, then all at a lower rate (Faghri et al. 2018).

    The epochs of the plan count both parts: 45 in the paper, for which `--epochs 45` has to be given. The rate of the
    schedule goes on through both. Needs an encoder with a pretrained body.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError
    from subtext.training.phases import body_layers
    from subtext.training.plan import Phase

    if heads < 1 or not rate > 0:
        raise RecipeError(f"thaw needs heads of 1 epoch or more and a rate above 0; it got {heads} and {rate}")
    if not any(body_layers(branch) for branch in (setup.model.image, setup.model.text)):
        raise RecipeError(
            "thaw needs a host with a pretrained encoder; nothing here is pretrained; leave the method out, or name a "
            "backbone"
        )
    if setup.phases:
        raise RecipeError("thaw needs a training without phases; it has some already; take one such method alone")
    return replace(setup, phases=(Phase(heads, "heads"), Phase(1, "all", factor=rate)))
