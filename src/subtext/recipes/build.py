"""A host, methods and a plan by name -> Setup: what training runs, and what opening a saved run repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from subtext.errors import RecipeError
from subtext.recipes import catalogue
from subtext.recipes.catalogue import unknown
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.supply import Supply
    from subtext.training.setup import Setup

Methods = Sequence[tuple[str, dict[str, object]]]


def build(
    host: str,
    arguments: Mapping[str, object],
    *,
    methods: Methods = (),
    plan: Mapping[str, object] | None = None,
    supply: Supply,
) -> Setup:
    """The Setup of a host with its methods, in the order given.

    host, arguments  a name of `catalogue.hosts()` and its options; those left out keep their defaults
    methods          names of `catalogue.methods()` with their options
    plan             fields of Plan that replace the host's own
    supply           what the data set, or the saved run, offers

    Initial weights are drawn from `supply.seed` and from nothing else; torch's own generator is left as it was.
    Raises RecipeError for a name, option or value that there is not, and for a method that the host cannot carry.
    """
    import torch

    from subtext.ops import draw

    known = catalogue.hosts()
    if host not in known:
        raise RecipeError(unknown("host", host, known))
    recipe = known[host]
    keywords = recipe.arguments(arguments)
    steps = [_method(name, given) for name, given in methods]
    changes = _plan_changes(plan or {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.number(seed=supply.seed, epoch=0, purpose="initial weights") & 0xFFFF_FFFF)
        setup: Setup = recipe.function(supply, **keywords)
        for function, options in steps:
            setup = function(setup, **options)
    return replace(setup, plan=replace(setup.plan, **changes))


def _method(name: str, given: Mapping[str, object]) -> tuple[Callable[..., Setup], dict[str, object]]:
    known = catalogue.methods()
    if name not in known:
        raise RecipeError(unknown("method", name, known))
    return known[name].function, known[name].arguments(given)


def _plan_changes(given: Mapping[str, object]) -> dict[str, Any]:
    names = {field.name: field for field in fields(Plan)}
    for name in given:
        if name not in names:
            raise RecipeError(unknown("training option", name, names))
    return dict(given)
