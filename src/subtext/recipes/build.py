"""A host, methods and a plan by name -> Setup: what training runs, and what opening a saved run repeats.

What was chosen, and which options are read by it: an option that nothing would read is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from subtext.errors import RecipeError, SubtextError
from subtext.recipes import catalogue
from subtext.recipes.catalogue import Option, Recipe, plan_options, read_options, unknown
from subtext.training.option_marks import Facts
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext, FeatureShape
    from subtext.data.features import FeatureInput
    from subtext.models.model import Branch
    from subtext.training.setup import Setup


Methods = Sequence[tuple[str, dict[str, object]]]


def build(
    host: str,
    arguments: Mapping[str, object],
    *,
    methods: Methods = (),
    plan: Mapping[str, object] | None = None,
    context: BuildContext,
) -> Setup:
    """The Setup of a host with its methods, in the order given.

    host, arguments  a name of `catalogue.hosts()` and its options; those left out keep their defaults
    methods          names of `catalogue.methods()` with their options
    plan             fields of Plan that replace the host's own
    context           what the data set, or the saved run, offers

    Initial weights are drawn from `context.seed` and from nothing else; torch's own generator is left as it was.
    Raises RecipeError for a name, option or value that there is not, for an option of a new run that was changed and
    that nothing would read, and for a method that the host cannot carry.
    """
    import torch

    from subtext.ops import draw

    known = catalogue.hosts()
    if host not in known:
        raise RecipeError(unknown("host", host, known))
    recipe = known[host]
    keywords = recipe.arguments(arguments)
    steps = [(name, *_method(name, given)) for name, given in methods]
    given = plan or {}
    values = _values(recipe, arguments) | read_options("training option", plan_options(recipe.plan), given)
    if context.assets is None:
        # Before anything heavy is built or fetched.
        refuse(_options(recipe), values, asked(values, context))
        refuse_features(host, values, context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.number(seed=context.seed, epoch=0, purpose="initial weights") & 0xFFFF_FFFF)
        setup = _built(recipe, keywords, steps, context)
    changes = {name: values[name] for name in given}
    if context.assets is None:
        facts = asked(values, context) | found(setup)
        refuse(_options(recipe), values, facts)
        # What a host was published with and nothing reads here goes back to what is common.
        acts = read(plan_options(recipe.plan), values, facts)
        changes = {f.name: f.default for f in fields(Plan) if f.name not in acts} | changes
    unsaid = ({o.name: o.unsaid for o in _options(recipe)}, *map(_unsaid, methods))
    setup = replace(setup, plan=replace(setup.plan, **changes), unsaid=unsaid)
    if (first := sum(phase.epochs for phase in setup.phases[:-1])) >= setup.plan.epochs:
        raise RecipeError(
            f"epochs needs more than the {first} of the first phases; it got {setup.plan.epochs}; train longer, or "
            "shorten them"
        )
    return setup


def acting(host: str, arguments: Mapping[str, object], setup: Setup) -> dict[str, object]:
    """Every option of a host that the Setup built with these arguments reads, those left at their defaults too."""
    from subtext.data.build_context import BuildContext

    recipe = catalogue.hosts()[host]
    values = _values(recipe, arguments)
    facts = asked(values, BuildContext()) | found(setup)
    return read(recipe.options, values, facts)


def _built(
    recipe: Recipe,
    keywords: dict[str, object],
    steps: Sequence[tuple[str, Callable[..., Setup], dict[str, object]]],
    context: BuildContext,
) -> Setup:
    """The recipe and its methods called. Raises RecipeError where their weights have no room."""
    try:
        setup: Setup = replace(recipe.function(context, **keywords), opened=context.assets is not None)
        for name, function, options in steps:
            with _of(name):
                setup = function(setup, **options)
        return setup
    except (RuntimeError, MemoryError, TypeError) as error:
        if not _too_large(error):
            raise
        raise RecipeError(
            f"'{recipe.name}' needs memory for its weights, and there is not so much; torch says: "
            f"{str(error).splitlines()[0]:.120}; take smaller widths"
        ) from error


def _too_large(error: Exception) -> bool:
    """Whether torch found no room for weights, or their size is more than it can count."""
    told = ("can't allocate memory", "out of memory", "Storage size calculation overflowed", "Overflow when unpacking")
    return isinstance(error, MemoryError) or any(words in str(error) for words in told)


def _values(recipe: Recipe, given: Mapping[str, object]) -> dict[str, Any]:
    return read_options(f"option of '{recipe.name}'", recipe.options, given)


def _options(recipe: Recipe) -> list[Option]:
    return [*recipe.options, *plan_options(recipe.plan)]


def _unsaid(method: tuple[str, dict[str, object]]) -> dict[str, object]:
    """What holds for options of a method that an older record lacks; of one that nothing reads its value of now."""
    options, given = catalogue.methods()[method[0]].options, method[1]
    values = {o.name: given.get(o.name, o.default) for o in options}
    facts = {name: (str(value),) for name, value in values.items()}
    return {o.name: o.unsaid if all(w.holds(facts) for w in o.when) else values[o.name] for o in options}


def _method(name: str, given: Mapping[str, object]) -> tuple[Callable[..., Setup], dict[str, object]]:
    known = catalogue.methods()
    if name not in known:
        raise RecipeError(unknown("method", name, known))
    recipe = known[name]
    with _of(name):
        values = _values(recipe, given)
        refuse(recipe.options, values, {option: (str(value),) for option, value in values.items()})
        return recipe.function, recipe.arguments(given)


@contextmanager
def _of(method: str) -> Iterator[None]:
    """What is refused meanwhile says which method did."""
    try:
        yield
    except SubtextError as error:
        error.method = method
        raise


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

    encoder, reads = branch.encoder, branch.input_spec
    several = reads.grid is not None if isinstance(reads, FeatureInput) else not isinstance(encoder, Tower)
    built = ("parts",) * several + ("whole",) * ("pooled" in getattr(branch.head, "inputs", ()))
    for kind, name in ((Bag, "bag"), (Recurrent, "gru"), (Precomputed, "features"), (Tower, "open_clip")):
        if isinstance(encoder, kind):
            return (name, *built)
    return ("a text backbone", "backbone", *built)
