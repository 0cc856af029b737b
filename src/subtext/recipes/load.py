"""A run's folder as the model that its recipe makes, with its weights; and runs joined into an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from subtext.errors import CheckpointError, DataError, RecipeError, RequirementError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from subtext.data.build_context import BuildContext
    from subtext.data.features import FeatureFile
    from subtext.models.checkpoint import Record
    from subtext.models.model import Branch, Model


@dataclass(frozen=True)
class Reopened:
    """A model in eval mode with the kept weights, and the record of its run."""

    model: Model
    record: Record


def reopened(folder: Path, *, features: Path | None = None, text_features: Path | None = None) -> Reopened:
    """The model of a run's folder on the CPU.

    features, text_features  files that replace those which the run remembers. A remembered file that is gone is no
                             error until an item is looked up in it by name

    Raises CheckpointError when the folder is no run, or is damaged or of another recipe; DataError when a file that was
    given cannot be read or has other widths; RecipeError when a file is given for a modality that reads none.
    """
    from pathlib import Path

    from subtext.data.build_context import BuildContext
    from subtext.data.features import FeatureFile, FeatureInput
    from subtext.models.checkpoint import ASSETS, load_run

    record, tensors = load_run(folder)
    context = BuildContext(assets=folder / ASSETS, seed=record.seed)
    model = _rebuilt(folder, record, context)
    _fill(model, tensors, folder)
    for modality, path, remembered in (
        ("image", features, record.data.features),
        ("text", text_features, record.data.text_features),
    ):
        branch = getattr(model, modality)
        if path is not None:
            attach(branch, FeatureFile.open(path.expanduser()), modality)
        elif remembered is not None and Path(remembered).exists() and isinstance(branch.input_spec, FeatureInput):
            attach(branch, FeatureFile.open(Path(remembered)), modality)
    return Reopened(model.eval(), record)


def attach(branch: Branch, file: FeatureFile, modality: str) -> None:
    """Let a branch look its items up in a file of features.

    Raises RecipeError when the branch reads something else, and DataError when the widths differ.
    """
    from subtext.data.features import FeatureInput

    if not isinstance(branch.input_spec, FeatureInput):
        option = "features" if modality == "image" else "text features"
        raise RecipeError(
            f"{option} need a model whose {modality} side reads them; "
            f"this one reads by {type(branch.input_spec).__name__}; leave the {option} out"
        )
    branch.input_spec = branch.input_spec.with_file(file)


def _rebuilt(folder: Path, record: Record, context: BuildContext) -> Model:
    """The recipe called again, as it was for training; its weights are still to be filled in."""
    from subtext.recipes.build import build

    try:
        if record.model == ENSEMBLE:
            return _ensemble_model(record, context)
        return build(record.model, record.arguments, methods=record.methods, plan=record.plan, context=context).model
    except (RecipeError, RequirementError, DataError) as error:
        raise CheckpointError(
            f"{folder} needs the recipe '{record.model}' as it was (Subtext {record.version}), and its assets; {error}"
        ) from error


def _fill(model: Model, tensors: dict[str, Tensor], folder: Path) -> None:
    state = model.state_dict()
    missing, unexpected = sorted(state.keys() - tensors.keys()), sorted(tensors.keys() - state.keys())
    shaped = [
        f"{name} {tuple(tensors[name].shape)} for {tuple(value.shape)}"
        for name, value in state.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    wrong = [
        f"{len(names)} {problem}, first {names[0]}"
        for problem, names in (("missing", missing), ("unknown", unexpected), ("of another shape", shaped))
        if names
    ]
    if wrong:
        raise CheckpointError(
            f"{folder} needs weights of the recipe that its record names; its tensors are of another: "
            f"{'; '.join(wrong)}; put back the run.json and model.safetensors that belong together"
        )
    model.load_state_dict(tensors, strict=True)


ENSEMBLE = "ensemble"
"""What the record of an ensemble names as its model; no recipe has this name."""


def ensemble_record(runs: Sequence[Path], records: Sequence[Record]) -> Record:
    """The record of the ensemble of these runs: each member's recipe, and what they have in common.

    Raises RecipeError for runs trained on other pairs than the first, and for a member that is an ensemble.
    """
    from subtext.models.checkpoint import Record, library_versions
    from subtext.version import __version__

    first = records[0]
    for run, record in zip(runs, records, strict=True):
        if record.model == ENSEMBLE:
            raise RecipeError(f"an ensemble needs runs of recipes; {run} is an ensemble itself; name its runs instead")
        if record.data.fingerprint != first.data.fingerprint:
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
        seed=first.seed,
        status="finished" if all(record.status == "finished" for record in records) else "stopped",
        epochs=max(record.epochs for record in records),
        steps=sum(record.steps for record in records),
        seconds=sum(record.seconds for record in records),
        version=__version__,
        versions=library_versions(),
    )


def _ensemble_model(record: Record, context: BuildContext) -> Model:
    """The ensemble of a record before its weights are loaded.

    Raises CheckpointError for a record without members; what building the members raises.
    """
    from subtext.models.ensemble import MEMBERS, ensemble
    from subtext.recipes.build import build

    try:
        members: list[dict[str, Any]] = [dict(member) for member in record.arguments["members"]]
        recipes = [
            (
                str(member["model"]),
                dict(member["arguments"]),
                [(str(name), dict(options)) for name, options in member["methods"]],
                dict(member["plan"]),
            )
            for member in members
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise CheckpointError(
            f"the record of an ensemble needs its members' recipes; {problem!r}; join the runs again"
        ) from problem
    return ensemble(
        [
            build(
                model, options, methods=methods, plan=plan, context=replace(context, member=f"{MEMBERS}/{number}")
            ).model
            for number, (model, options, methods, plan) in enumerate(recipes)
        ]
    )
