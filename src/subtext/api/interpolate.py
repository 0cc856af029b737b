"""Weight interpolation: how much of what `adapt` has learnt is kept, chosen where the figures of selection are best."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api import options as opt
from subtext.api.load import Run, open_run, save_pretrained
from subtext.errors import RecipeError, RequirementError, Setting
from subtext.report.progress import meter
from subtext.report.text_table import Cell, table
from subtext.settings import Metavar, OptionGroup, command

if TYPE_CHECKING:
    from torch import nn

    from subtext.data.dataset import Dataset
    from subtext.models.model import Model

SHARES = tuple(step / 10 for step in range(11))


@dataclass(frozen=True)
class Interpolation:
    """A run between the pretrained model and the adapted one.

    Attributes:
        run: The new run.
        share: What it keeps of the adaptation; 0 is the pretrained model, 1 the adapted one.
        curve: Of each share that was tried: "share", "rsum" of the split that chooses and, with a general set,
            "general rsum".
    """

    run: Run
    share: float
    curve: tuple[dict[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Folder of the run, share and curve.
        """
        return {"run": str(self.run.path), "share": self.share, "curve": list(self.curve)}

    def __str__(self) -> str:
        names = list(self.curve[0])
        rows: list[list[Cell]] = [[f"{row['share']:g}", *(row[name] for name in names[1:])] for row in self.curve]
        return f"{table(names, rows)}\n{self.run.path} keeps {self.share:g} of what was learnt"


@command
def interpolate_run(
    run: Annotated[str | Path, "Folder of a run of `adapt`.", OptionGroup("Run"), Metavar("RUN")],
    *,
    out: Annotated[str | Path, "Folder of the new run; new, or empty.", OptionGroup("Output"), Metavar("RUN")],
    general: Annotated[
        str | Path | None,
        "A general data set: what the run has forgotten is measured there. It chooses nothing.",
        OptionGroup("Data"),
        Metavar("DATA"),
    ] = None,
    general_images: Annotated[
        str | Path | None, "Folder of the images of the general set.", OptionGroup("Data"), Metavar("FOLDER")
    ] = None,
    general_split: Annotated[str, "Split of the general set; all: the complete set.", OptionGroup("Data")] = "all",
    quiet: opt.Quiet = False,
) -> Interpolation:
    """Write the run between the pretrained model and its adaptation that is best on the split of validation.

    The updates of an `adapt` run are scaled by 0, 0.1 ... 1 (WiSE-FT, Wortsman et al. 2022): for adapters after the
    towers the last layer, since z = u + a V relu(U u) is the straight line from the pretrained model to the adapted one
    before unit length; for low-rank adapters inside the towers the matrix B. The sum of recalls on the validation split
    of the run chooses; of equal ones the smallest share. The new run is one like any other; its curve is in
    interpolation.json.

    Args:
        run: Folder of a run of `adapt`, trained with a validation split.
        out: Folder of the new run; new, or empty.
        general: A general data set, such as ordinary captions, on which forgetting is seen.
        general_images: Folder of its images.
        general_split: Its split; "all" for the complete set.
        quiet: Show no progress.

    Returns:
        The new run, its share and the curve.

    Raises:
        RecipeError: For a run of another model.
        RequirementError: For a run without a validation split, or one that reads features, with a general set.
        DataError: If a data set cannot be read.
        CheckpointError: If `out` is not empty or the run cannot be opened.
    """
    from subtext.data.atomic import write_text
    from subtext.data.read import read
    from subtext.evaluation import evaluate_model
    from subtext.models.checkpoint import require_new_folder
    from subtext.training.validation import PROTOCOL

    opened = open_run(run)
    if opened.record.model != "adapt":
        raise RecipeError(
            f"interpolate needs a run of adapt, which has a pretrained model to go back to; {opened.path} is a run of "
            f"{opened.record.model}"
        )
    folder = Path(out).expanduser()
    require_new_folder(folder, "an interpolated run")
    val = _validation(opened)
    reads_features = opened.record.arguments.get("model") == "features"
    if general is not None and reads_features:
        raise RequirementError(
            Setting("general"),
            f" needs a model that reads images and texts; {opened.path} reads features; leave it out",
        )
    broad = None if general is None else read(general, images=general_images)
    broad = broad if broad is None or general_split == "all" else broad.split(general_split)
    with meter("shares", len(SHARES), quiet=quiet) as progress:
        curve = []
        for row in _curve(opened.model, val, broad, SHARES):
            curve.append(row)
            progress(len(curve))
    best = max(curve, key=lambda row: (row["rsum"], -row["share"]))
    scale_updates(opened.model, best["share"])
    record = replace(opened.record, best=dict(evaluate_model(opened.model, val, protocol=PROTOCOL).figures))
    save_pretrained(opened.model, record, folder)
    summary = f"{folder}: {best['share']:g} of what {opened.path} has learnt\nnext:\n  subtext evaluate {folder}"
    found = Interpolation(Run(opened.model, record, folder, summary=summary), best["share"], tuple(curve))
    about = {"of": str(opened.path), **found.to_json()}
    write_text(folder / "interpolation.json", json.dumps(about, indent=1) + "\n")
    return found


def _validation(run: Run) -> Dataset:
    """The validation pairs of a run."""
    from subtext.api.train import read_training_data

    pairs = read_training_data(run.record.data, quiet=True).val
    if pairs is None:
        raise RequirementError(
            f"interpolate needs the validation split that the run was selected by; {run.path} has none; train with one"
        )
    return pairs


def _curve(model: Model, val: Dataset, broad: Dataset | None, shares: Sequence[float]) -> Iterator[dict[str, float]]:
    """The figures of each share; the model is as it was afterwards."""
    from subtext.evaluation import evaluate_model
    from subtext.training.validation import PROTOCOL

    originals = {name: weight.detach().clone() for name, weight in updates_of(model).items()}
    for share in shares:
        scale_updates(model, share)
        row = {"share": share, "rsum": float(evaluate_model(model, val, protocol=PROTOCOL).figures["rsum"])}
        if broad is not None:
            row["general rsum"] = float(evaluate_model(model, broad, protocol=PROTOCOL).figures["rsum"])
        yield row
        for name, weight in updates_of(model).items():
            weight.data.copy_(originals[name])


def updates_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that what was learnt is linear in, and that start at zero.

    Args:
        model: Of a run of `adapt`.

    Returns:
        Name -> weight: the last layer of each adapter, or B of each low-rank update.
    """
    return {
        name: weight
        for name, weight in model.named_parameters()
        if name.endswith("head.perceptron.3.weight") or ".lora_B." in name
    }


def scale_updates(model: nn.Module, share: float) -> None:
    """Keep a share of what was learnt.

    Args:
        model: Of a run of `adapt`; changed in place.
        share: 0 for the pretrained model, 1 for the model as it is.
    """
    for weight in updates_of(model).values():
        weight.data.mul_(share)
