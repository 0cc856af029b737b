"""A model recipe with methods and a plan as a Setup; a run's folder as the model of its recipe; ensembles of runs.

An option that nothing would read is refused and not ignored: `refuse_unused` compares what each option requires with
what was chosen and, once the model is built, with what it turned out to be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from subtext.data.feature_file import FeatureShape
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.given import is_given, require_callable, required_objects
from subtext.data.starter import NAME as STARTER
from subtext.errors import (
    OUT_OF_MEMORY_MESSAGES,
    CheckpointError,
    DataError,
    RecipeError,
    RequirementError,
    Setting,
    SubtextError,
)
from subtext.models.checkpoint import ASSETS, Record, library_versions, load_run
from subtext.models.encoders.precomputed import Precomputed
from subtext.models.encoders.words import Bag, Recurrent
from subtext.models.ensemble import MEMBERS, build_ensemble
from subtext.models.model import Branch, Model
from subtext.ops import draw
from subtext.recipes import catalogue
from subtext.recipes.catalogue import Recipe, plan_options, read_options, requirements
from subtext.settings import Field, did_you_mean
from subtext.training.optimiser import FreezeSchedule, body_layers, body_norms
from subtext.training.plan import Facts, Plan
from subtext.training.setup import BuildContext, Setup
from subtext.version import __version__, require_same_draws

Methods = Sequence[tuple[str, Mapping[str, object]]]
Step = tuple[Recipe, dict[str, object]]
"""A method, and the keyword arguments of its function."""

ENSEMBLE = "ensemble"
"""What the record of an ensemble names as its model; no recipe has this name."""
PATIENCE = 4
"""Epochs without improvement after which a training on frozen encoders ends, unless it says otherwise."""
_DEFERRED_CAPABILITIES = ("parts", "whole")
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

    Initial weights depend on `context.seed` alone; torch's own generator is left as it was.

    Args:
        model: A name of `catalogue.models()` and its options.
        options: Those left out keep their defaults.
        methods: Names of `catalogue.methods()` with their options.
        plan: Fields of Plan that replace the model's own.
        context: What the data set, or the saved run, offers.

    Returns:
        Model, objective, plan and hooks; the weights are new ones.

    Raises:
        RecipeError: For an unknown name, option or value, for an option of a new run that was changed and that nothing
            would read, and for a method that does not fit the model.
    """
    recipes, known_methods = catalogue.models(), catalogue.methods()
    if model not in recipes:
        raise RecipeError(did_you_mean("model", model, recipes))
    recipe, new = recipes[model], context.assets is None
    arguments = recipe.arguments(options)
    planned = plan_options(recipe.plan)
    every = [*recipe.options, *planned]
    values = _values(recipe, options) | read_options("training option", planned, plan or {})
    steps: list[Step] = []
    for name, chosen in methods:
        if name not in known_methods:
            raise RecipeError(did_you_mean("method", name, known_methods))
        method = known_methods[name]
        with _naming(name):
            if new:
                method_values = _values(method, chosen)
                method_facts = {option: (str(value),) for option, value in method_values.items()}
                refuse_unused(method.options, method_values, method_facts)
            steps.append((method, method.arguments(chosen)))
    if new:
        # Before anything heavy is built or fetched.
        refuse_unused(every, values, chosen_facts(values, context))
        for side, features, shape in (
            ("image", "features", context.image_features),
            ("text", "text_features", context.text_features),
        ):
            if shape is not None and values.get(side, values.get("model")) not in ("auto", "features"):
                needs: tuple[object, ...] = (f"another model; {model} reads none",)
                if (read := "model" if recipe.name == "adapt" else side) in values:
                    needs = Setting(read, "features"), "; ", Setting(read), f" is {values[read]}"
                raise RecipeError(
                    f"{features} needs ", *needs, "; leave ", Setting(features), " out, or change that", field=features
                )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.number(seed=context.seed, epoch=0, purpose="initial weights") & 0xFFFF_FFFF)
        try:
            setup: Setup = recipe.function(context, **arguments)
            for method, options in steps:
                with _naming(method.name):
                    changed = method.function(setup, **options)
                if not isinstance(changed, Setup):
                    raise RecipeError(
                        f"the method '{method.name}' needs to return a Setup; it returned {changed!r:.60}"
                    )
                setup = changed
        except (RuntimeError, MemoryError, TypeError) as error:
            if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY_MESSAGES):
                raise
            raise RecipeError(
                f"'{model}' needs more memory for its weights than there is; torch says: "
                f"{str(error).splitlines()[0]:.120}; choose smaller dimensions"
            ) from error
    changes = {name: values[name] for name in plan or {}}
    if new:
        refuse_replaced(recipe, values, setup.unread)
        facts = chosen_facts(values, context) | built_facts(setup)
        if "freeze_epochs" not in changes:
            facts["freeze_epochs"] = (str(setup.plan.freeze_epochs),)
        refuse_unused(every, values, facts)
        # A published setting that nothing reads here returns to the common default.
        used = used_options(planned, values, facts)
        changes = {f.name: f.default for f in fields(Plan) if f.name not in used} | changes
    setup = replace(setup, plan=replace(setup.plan, **changes))
    if (first := sum(phase.epochs for phase in setup.phases[:-1])) >= setup.plan.epochs:
        raise RecipeError(
            f"epochs needs more than the {first} of the first phases; it got {setup.plan.epochs}; train longer, or "
            "shorten them",
            field="epochs",
        )
    freezer = FreezeSchedule(setup.model)
    for branch in (setup.model.image, setup.model.text):
        branch.frozen = freezer.never_learns(branch, setup.plan, setup.phases)
    frozen = setup.model.image.frozen or setup.model.text.frozen
    for branch in (setup.model.image, setup.model.text):
        # Nothing says what the code of an object is: its outputs are no business of other trainings.
        branch.frozen = branch.frozen and not is_given(branch.input_spec)
    if frozen and not setup.plan.patience and "patience" not in changes and setup.plan.select != "last":
        setup = replace(setup, plan=replace(setup.plan, patience=PATIENCE))
    return setup


@contextmanager
def _naming(method: str) -> Iterator[None]:
    """Errors raised meanwhile carry the method's name."""
    try:
        yield
    except SubtextError as error:
        error.method = method
        raise


def recorded_options(model: str, options: Mapping[str, object], setup: Setup) -> dict[str, object]:
    """Every option of a model that the Setup built with these options reads, those left at their defaults too.

    Args:
        model: Name of the recipe.
        options: Values by name, as they were given to `build`.
        setup: What `build` made of them.

    Returns:
        Name -> value.
    """
    recipe = catalogue.models()[model]
    values = _values(recipe, options)
    return used_options(recipe.options, values, chosen_facts(values) | built_facts(setup))


def _values(recipe: Recipe, options: Mapping[str, object]) -> dict[str, Any]:
    return read_options(f"option of '{recipe.name}'", recipe.options, options)


def refuse_unused(options: Iterable[Field], values: Mapping[str, object], facts: Facts) -> None:
    """Raise RecipeError for the first option that was changed from its default and that nothing reads.

    Args:
        options: Of a model, a method or a plan.
        values: Value by name; an option left out has its default.
        facts: What is known of the choices and of the built model.

    Raises:
        RecipeError: For an option that was changed and that nothing reads.
    """
    for option in options:
        if values.get(option.name, option.default) == option.default:
            continue
        for requirement in requirements(option):
            if not requirement.holds(facts):
                fact, name = requirement.fact, option.name
                reason = (Setting(fact), f" is {facts[fact][0]}") if fact in values else ("it got none",)
                advice = "; leave ", Setting(name), " out, or change that"
                raise RecipeError(f"{name} needs ", *requirement.words, "; ", *reason, *advice, field=name)


def refuse_replaced(recipe: Recipe, values: Mapping[str, object], unread: Mapping[str, str]) -> None:
    """Raise RecipeError for the first changed option of a model that a method left without a reader.

    Args:
        recipe: The model.
        values: Value by name of all its options.
        unread: Option -> why nothing reads it.

    Raises:
        RecipeError: For an option that was changed and that nothing reads.
    """
    for option in recipe.options:
        if option.name in unread and values[option.name] != option.default:
            raise RecipeError(
                f"{option.name} needs a loss of the model that reads it; {unread[option.name]}; leave ",
                Setting(option.name),
                " out, or leave the method out",
                field=option.name,
            )


def used_options(options: Iterable[Field], values: Mapping[str, object], facts: Facts) -> dict[str, object]:
    """The value of every option that something reads.

    Args:
        options: Of a model or a plan.
        values: Value by name; an option left out has its default.
        facts: What is known of the choices and of the built model.

    Returns:
        Name -> value.
    """
    return {option.name: values.get(option.name, option.default) for option in options if is_read(option, facts)}


def is_read(option: Field, facts: Facts) -> bool:
    """Whether anything reads the option, as far as the facts are known.

    Args:
        option: Of a model, a method or a plan.
        facts: What is known of the choices and of the built model.

    Returns:
        False if a known fact excludes it.
    """
    return all(requirement.holds(facts) for requirement in requirements(option))


def chosen_facts(values: Mapping[str, object], context: BuildContext | None = None) -> dict[str, tuple[str, ...]]:
    """What is known before anything is built or fetched: every option's value, and what encodes the two sides.

    `is_read` compares it with the choices that an option requires.

    Args:
        values: Every option of the model and of the plan.
        context: What the data set offers; None for nothing.

    Returns:
        Fact -> values; what is known only after the model is built is left out.
    """
    context = context or BuildContext()
    facts: dict[str, tuple[str, ...]] = {name: (str(value),) for name, value in values.items()}
    image, text = str(values.get("image", "")), str(values.get("text", ""))
    if "image" not in values:
        facts["image"] = ("pixels",)
    elif image == "features" or (image == "auto" and context.image_features is not None):
        facts["image"] = _features(context.image_features)
    else:
        facts["image"] = (image, "pixels", *(("detector",) if image.startswith("detector:") else ()))
    if text == "features" or (text == "auto" and context.text_features is not None):
        facts["text"] = ("features", *_DEFERRED_CAPABILITIES)
    elif text in ("", "auto"):
        # The model's own encoder; known once it is built.
        facts.pop("text", None)
    else:
        facts["text"] = (
            (text, *_DEFERRED_CAPABILITIES)
            if text in ("gru", "bag", STARTER)
            else (text, "backbone", *_DEFERRED_CAPABILITIES)
        )
    return facts


def built_facts(setup: Setup) -> dict[str, tuple[str, ...]]:
    """What a built model turned out to be: what encodes the two sides, and what of it is pretrained.

    Args:
        setup: The built model.

    Returns:
        "text", "body" and, for precomputed images, "image" -> values.
    """
    image, text = setup.model.image, setup.model.text
    spec, encoder = text.input_spec, text.encoder
    # Only a model with towers has imported their module, and with it transformers, which takes seconds.
    towers = sys.modules.get("subtext.models.encoders.dual")
    is_tower = towers is not None and isinstance(encoder, towers.TextTower)
    several = spec.grid is not None if isinstance(spec, FeatureInput) else not is_tower
    kinds = ((Bag, "bag"), (Recurrent, "gru"), (Precomputed, "features"))
    names = next(((name,) for kind, name in kinds if isinstance(encoder, kind)), ("a text backbone", "backbone"))
    if is_tower:
        names = ("open_clip",)
    elif getattr(encoder, "normalise", False):  # Of the backbones the starter's alone: nothing changes its pooling.
        names = (STARTER,)
    pooled = "pooled" in getattr(text.head, "inputs", ())
    facts: dict[str, tuple[str, ...]] = {"text": (*names, *("parts",) * several, *("whole",) * pooled)}
    if isinstance(image.input_spec, FeatureInput):
        facts["image"] = _features(image.input_spec)
    bodies = [layers for layers in map(body_layers, (image, text)) if layers]
    facts["body"] = ("pretrained",) * bool(bodies) + ("layers",) * any(len(layers) > 1 for layers in bodies)
    facts["body"] += ("norms",) * any(map(body_norms, (image, text)))
    return facts


def _features(shape: FeatureShape | FeatureInput | None) -> tuple[str, ...]:
    if shape is None or shape.grid is None:
        return ("features",)
    return ("features", "regions") if shape.pooled is None else ("features", "regions", "regions beside a vector")


def known_methods(methods: Methods) -> Methods:
    """The methods of a run that this process knows: a method changes the training, and weights do not need it.

    Args:
        methods: Of the record.

    Returns:
        Those of this package, and those that were registered here.
    """
    return [(name, options) for name, options in methods if name in catalogue.methods()]


def require_objects(folder: Path, record: Record, objects: Mapping[str, Any]) -> None:
    """Require the objects that a run was trained with, and no others.

    Args:
        folder: Of the run.
        record: Of the run.
        objects: Option -> object.

    Raises:
        RequirementError: If one is missing, or one is given that the run does not read.
    """
    needed: dict[str, str] = {}
    for modality in ("image", "text"):
        needed |= required_objects(folder / ASSETS / modality)
    if lacking := {option: name for option, name in needed.items() if option not in objects}:
        named = " and ".join(f"{option}={name}" for option, name in lacking.items())
        given = ", ".join(f"'{option}': ..." for option in lacking)
        raise RequirementError(
            f"{folder} was trained with {'an object' if len(lacking) == 1 else 'objects'} in place of a name, {named}, "
            f"and needs it again; open it in Python: open_run('{folder}', options={{{given}}})"
        )
    if unknown := next((option for option in objects if option not in needed), ""):
        takes = ", ".join(needed) or "none"
        raise RequirementError(f"{folder} needs no object for {unknown}; it reads these: {takes}", field=unknown)
    for option, given_object in objects.items():
        require_callable(option, given_object)


def reopen(
    folder: Path, *, features: Any = None, text_features: Any = None, objects: Mapping[str, Any] | None = None
) -> tuple[Model, Record]:
    """The model of a run's folder on the CPU, in eval mode with the kept weights, and the record of the run.

    Args:
        folder: Of a run.
        features: Files, or features in memory, that replace those which the run remembers. A remembered file that is
            gone is no error until an item is looked up in it by name.
        text_features: See `features`.
        objects: "image", "text", "tokeniser" -> what the run was trained with in place of a name.

    Returns:
        The model and the record.

    Raises:
        CheckpointError: If the folder is no run, or is damaged or of another recipe.
        DataError: If a file that was given cannot be read or has other widths.
        RequirementError: If it was trained with objects that are not given.
        RecipeError: If a file is given for a modality that reads none.
    """
    record, tensors = load_run(folder)
    require_objects(folder, record, objects or {})
    context = BuildContext(assets=folder / ASSETS, seed=record.seed, objects=objects or {})
    try:
        if record.model == ENSEMBLE:
            model = _ensemble_model(record, context)
        else:
            methods = known_methods(record.methods)
            model = build(record.model, record.arguments, methods=methods, plan=record.plan, context=context).model
    except (RecipeError, RequirementError, DataError) as error:
        raise CheckpointError(
            f"{folder} needs the recipe '{record.model}' as it was (Subtext {record.version}), and its assets; {error}"
        ) from error
    try:
        tensors = _installed(model, tensors) | tensors
    except RequirementError as error:
        raise CheckpointError(f"{folder} needs the starter towers that it was trained on; {error}") from error
    unknown = [name for name, _ in record.methods if name not in catalogue.methods()]
    _fill(model, tensors, folder, unknown=unknown)
    for modality, path, remembered in (
        ("image", features, record.data.features),
        ("text", text_features, record.data.text_features),
    ):
        branch = getattr(model, modality)
        if path is not None:
            attach(branch, FeatureFile.open(expanded(path), modality), modality)
        elif (
            isinstance(remembered, str | Path)
            and Path(remembered).exists()
            and isinstance(branch.input_spec, FeatureInput)
        ):
            attach(branch, FeatureFile.open(Path(remembered), modality), modality)
    return model.eval(), record


def expanded(path: Any) -> Any:
    """A path with the folder of its user; an object as it is.

    Args:
        path: A path, or what is given in place of one.

    Returns:
        The path with `~` expanded, or the object.
    """
    return Path(path).expanduser() if isinstance(path, str | os.PathLike) else path


def attach(branch: Branch, file: FeatureFile, modality: str) -> None:
    """Let a branch look its items up in a file of features.

    Args:
        branch: A side of the model.
        file: Features by name.
        modality: "image" or "text".

    Raises:
        RecipeError: If the branch reads something else.
        DataError: If the widths differ.
    """
    if not isinstance(branch.input_spec, FeatureInput):
        option = "features" if modality == "image" else "text features"
        raise RecipeError(
            f"{option} need a model whose {modality} side reads them; "
            f"this one reads by {type(branch.input_spec).__name__}; leave the {option} out"
        )
    branch.input_spec = branch.input_spec.with_file(file)


def _installed(model: Model, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of installed packages that a run's own files leave out.

    Raises the errors of `starter_file`.
    """
    missing = {name: branch for name, branch in model.installed.items() if name not in tensors}
    encoders: dict[Any, None] = dict.fromkeys(branch.encoder for branch in missing.values())
    for encoder in encoders:
        encoder.load_installed()
    state = model.state_dict()
    return {name: state[name] for name in missing}


def _fill(model: Model, tensors: dict[str, torch.Tensor], folder: Path, *, unknown: Sequence[str] = ()) -> None:
    """Load weights into a model.

    Raises:
        CheckpointError: If they are of another one.
    """
    state = model.state_dict()
    shaped = [
        f"{name} {tuple(tensors[name].shape)} for {tuple(value.shape)}"
        for name, value in state.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    wrong = [
        f"{len(names)} {problem}, first {names[0]}"
        for problem, names in (
            ("missing", sorted(state.keys() - tensors.keys())),
            ("unknown", sorted(tensors.keys() - state.keys())),
            ("of another shape", shaped),
        )
        if names
    ]
    if wrong and unknown:
        raise CheckpointError(
            f"{folder} needs the method {', '.join(unknown)}, which gave its model other tensors ({'; '.join(wrong)}); "
            "import the module that registers it (register_method) first"
        )
    if wrong:
        raise CheckpointError(
            f"{folder} needs weights of the recipe that its record names; its tensors are of another: "
            f"{'; '.join(wrong)}; put back the run.json and model.safetensors that belong together"
        )
    model.load_state_dict(tensors, strict=True)


def ensemble_record(runs: Sequence[Path], records: Sequence[Record]) -> Record:
    """The record of the ensemble of these runs: each member's recipe, and what they have in common.

    Args:
        runs: Folders of the runs.
        records: Their records, in the same order.

    Returns:
        A record without results.

    Raises:
        RecipeError: For runs trained on other pairs or with other random draws than the first, and for a member that is
            an ensemble.
    """
    first = records[0]
    require_same_draws([(str(run), record.draws) for run, record in zip(runs, records, strict=True)], RecipeError)
    for run, record in zip(runs, records, strict=True):
        if record.model == ENSEMBLE:
            raise RecipeError(f"an ensemble needs runs of recipes; {run} is an ensemble itself; name its runs instead")
        if record.fingerprint != first.fingerprint:
            raise RecipeError(
                f"an ensemble needs runs that were trained on the same pairs; {run} was trained on others than "
                f"{runs[0]}: test items of one may be training items of the other; train both on the same split"
            )
    members = [
        {
            "run": str(run.expanduser().resolve()),
            "model": record.model,
            "arguments": record.arguments,
            "methods": [list(method) for method in record.methods],
            "plan": record.plan,
            "seed": record.seed,
            "epoch": record.best_epoch,
        }
        for run, record in zip(runs, records, strict=True)
    ]
    return Record(
        model=ENSEMBLE,
        arguments={"members": members},
        plan={"select": first.plan.get("select", "rsum")},
        data=first.data,
        fingerprint=first.fingerprint,
        seed=first.seed,
        draws=first.draws,
        status="finished" if all(record.status == "finished" for record in records) else "stopped",
        epochs=max(record.epochs for record in records),
        steps=sum(record.steps for record in records),
        seconds=sum(record.seconds for record in records),
        version=__version__,
        versions=library_versions(),
    )


def _ensemble_model(record: Record, context: BuildContext) -> Model:
    """The ensemble of a record before its weights are loaded.

    Raises:
        CheckpointError: For a record without members; what building the members raises.
    """
    try:
        members = [
            (
                str(member["model"]),
                dict(member["arguments"]),
                [(str(name), dict(options)) for name, options in member["methods"]],
                dict(member["plan"]),
            )
            for member in map(dict, record.arguments["members"])
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise CheckpointError(
            f"the record of an ensemble needs its members' recipes; {problem!r}; join the runs again"
        ) from problem
    models = []
    for number, (model, options, methods, plan) in enumerate(members):
        of_member = replace(context, member=f"{MEMBERS}/{number}")
        models.append(build(model, options, methods=known_methods(methods), plan=plan, context=of_member).model)
    return build_ensemble(models)
