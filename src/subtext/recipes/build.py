"""Build a model recipe with methods and a plan into a Setup, for training and for opening a saved run.

An option that nothing would read is refused and not ignored: `refuse_unused` compares what each option requires with
what was chosen and, once the model is built, with what it turned out to be.
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

Methods = Sequence[tuple[str, Mapping[str, object]]]

_NO_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking",
)
_BUILT = ("parts", "whole")
"""Facts about a text side that hold once it is built: it has several parts, and the whole text is read."""


def build(
    model: str,
    options: Mapping[str, object],
    *,
    methods: Methods = (),
    plan: Mapping[str, object] | None = None,
    context: BuildContext,
) -> Setup:
    """The Setup of a model with its methods, applied in order.

    model, options  a name of `catalogue.models()` and its options; those left out keep their defaults
    methods         names of `catalogue.methods()` with their options
    plan            fields of Plan that replace the model's own
    context         what the data set, or the saved run, offers

    Initial weights depend on `context.seed` alone; torch's own generator is left as it was.
    Raises RecipeError for an unknown name, option or value, for an option of a new run that was changed and that
    nothing would read, and for a method that does not fit the model.
    """
    import torch

    from subtext.ops import draw

    recipes = catalogue.models()
    if model not in recipes:
        raise RecipeError(unknown("model", model, recipes))
    recipe, new = recipes[model], context.assets is None
    arguments = recipe.arguments(options)
    steps = [(name, *_method(name, values, new=new)) for name, values in methods]
    planned = plan_options(recipe.plan)
    values = _values(recipe, options) | read_options("training option", planned, plan or {})
    every = [*recipe.options, *planned]
    if new:
        # Before anything heavy is built or fetched.
        refuse_unused(every, values, chosen_facts(values, context))
        refuse_features(model, values, context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.number(seed=context.seed, epoch=0, purpose="initial weights") & 0xFFFF_FFFF)
        setup = _built(recipe, arguments, steps, context)
    changes = {o.name: values[o.name] for o in planned if {o.name, o.old_name} & set(plan or {})}
    if new:
        facts = chosen_facts(values, context) | built_facts(setup)
        refuse_unused(every, values, facts)
        # A published setting that nothing reads here returns to the common default.
        used = used_options(planned, values, facts)
        changes = {f.name: f.default for f in fields(Plan) if f.name not in used} | changes
    defaults_before = ({option.name: option.before for option in every}, *(_before(*method) for method in methods))
    setup = replace(setup, plan=replace(setup.plan, **changes), defaults_before=defaults_before)
    if (first := sum(phase.epochs for phase in setup.phases[:-1])) >= setup.plan.epochs:
        raise RecipeError(
            f"epochs needs more than the {first} of the first phases; it got {setup.plan.epochs}; train longer, or "
            "shorten them"
        )
    return setup


def recorded_options(model: str, options: Mapping[str, object], setup: Setup) -> dict[str, object]:
    """Every option of a model that the Setup built with these options reads, those left at their defaults too."""
    from subtext.data.build_context import BuildContext

    recipe = catalogue.models()[model]
    values = _values(recipe, options)
    return used_options(recipe.options, values, chosen_facts(values, BuildContext()) | built_facts(setup))


def chosen_facts(values: Mapping[str, object], context: BuildContext) -> dict[str, tuple[str, ...]]:
    """What is known before anything is built or fetched: every option's value, and what encodes the two sides.

    values  every option of the model and of the plan
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
        # The model's own encoder; known once it is built.
        facts.pop("text", None)
    else:
        facts["text"] = (text, *_BUILT) if text in ("gru", "bag") else (text, "backbone", *_BUILT)
    return facts


def built_facts(setup: Setup) -> dict[str, tuple[str, ...]]:
    """What a built model turned out to be: what encodes the two sides, and what of it is pretrained."""
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


def refuse_unused(options: Iterable[Option], values: Mapping[str, object], facts: Facts) -> None:
    """Raise RecipeError for the first option that was changed from its default and that nothing reads."""
    for option in options:
        if values.get(option.name, option.default) == option.default:
            continue
        for requirement in option.requires:
            if not requirement.holds(facts):
                fact, name = requirement.fact, option.name
                reason = f"{fact} is {facts[fact][0]}" if fact in values else "it got none"
                raise RecipeError(f"{name} needs {requirement.words}; {reason}; leave {name} out, or change that")


def refuse_features(model: str, values: Mapping[str, object], context: BuildContext) -> None:
    """Raise RecipeError for precomputed features that the model does not read."""
    for side, features, shape in (
        ("image", "features", context.image_features),
        ("text", "text_features", context.text_features),
    ):
        if shape is not None and values.get(side) not in ("auto", "features"):
            needs = (
                f"{side}=features; {side} is {values[side]}" if side in values else f"another model; {model} reads none"
            )
            raise RecipeError(f"{features} needs {needs}; leave {features} out, or change that")


def used_options(options: Iterable[Option], values: Mapping[str, object], facts: Facts) -> dict[str, object]:
    """The value of every option that something reads."""
    return {option.name: values.get(option.name, option.default) for option in options if option.holds(facts)}


def _built(
    recipe: Recipe,
    arguments: dict[str, object],
    steps: Sequence[tuple[str, Callable[..., Setup], dict[str, object]]],
    context: BuildContext,
) -> Setup:
    """Call the recipe and its methods. Raises RecipeError where memory does not suffice for the weights."""
    try:
        setup: Setup = replace(recipe.function(context, **arguments), opened=context.assets is not None)
        for name, function, options in steps:
            with _naming(name):
                setup = function(setup, **options)
        return setup
    except (RuntimeError, MemoryError, TypeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise RecipeError(
            f"'{recipe.name}' needs more memory for its weights than there is; torch says: "
            f"{str(error).splitlines()[0]:.120}; choose smaller dimensions"
        ) from error


def _values(recipe: Recipe, options: Mapping[str, object]) -> dict[str, Any]:
    return read_options(f"option of '{recipe.name}'", recipe.options, options)


def _before(method: str, options: Mapping[str, object]) -> dict[str, object]:
    """The values that hold for options that an older record lacks; for an unused one, its value of now."""
    recipe = catalogue.methods()[method]
    values = _values(recipe, options)
    facts = {name: (str(value),) for name, value in values.items()}
    return {o.name: o.before if o.holds(facts) else values[o.name] for o in recipe.options}


def _method(name: str, options: Mapping[str, object], *, new: bool) -> tuple[Callable[..., Setup], dict[str, object]]:
    recipes = catalogue.methods()
    if name not in recipes:
        raise RecipeError(unknown("method", name, recipes))
    recipe = recipes[name]
    with _naming(name):
        values = _values(recipe, options)
        if new:
            refuse_unused(recipe.options, values, {option: (str(value),) for option, value in values.items()})
        return recipe.function, recipe.arguments(options)


@contextmanager
def _naming(method: str) -> Iterator[None]:
    """Errors raised meanwhile carry the method's name."""
    try:
        yield
    except SubtextError as error:
        error.method = method
        raise


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

    encoder, spec = branch.encoder, branch.input_spec
    several = spec.grid is not None if isinstance(spec, FeatureInput) else not isinstance(encoder, Tower)
    built = ("parts",) * several + ("whole",) * ("pooled" in getattr(branch.head, "inputs", ()))
    for kind, name in ((Bag, "bag"), (Recurrent, "gru"), (Precomputed, "features"), (Tower, "open_clip")):
        if isinstance(encoder, kind):
            return (name, *built)
    return ("a text backbone", "backbone", *built)
