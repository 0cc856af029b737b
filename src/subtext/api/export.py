"""`subtext.export`: a run in the formats of other libraries, compared with the model before it is finished."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.options import Metavar, Quiet, Run, Section, verb

if TYPE_CHECKING:
    from subtext.api.load import Run as LoadedRun
    from subtext.data.dataset import Dataset


@dataclass(frozen=True)
class Export:
    """An exported model.

    path         its folder              bytes  their sum over its files
    differences  largest difference of a component of a vector from the model, by side
    checked_on   the inputs that were compared, in words
    usage        how to open it
    """

    path: Path
    bytes: int
    differences: dict[str, float]
    checked_on: str
    usage: str

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return {**vars(self), "path": str(self.path)}

    def __str__(self) -> str:
        from subtext.report.text_table import size

        largest = ", ".join(f"{side} {difference:.1e}" for side, difference in self.differences.items())
        return (
            f"{self.path}: {size(self.bytes)}, checked on {self.checked_on}; largest difference {largest}\n{self.usage}"
        )

    __repr__ = __str__


@verb
def export(
    run: Run,
    *,
    hf: Annotated[str | Path | None, "Folder to write for the Hub.", Section("Output"), Metavar("DIR")] = None,
    onnx: Annotated[
        str | Path | None, "Folder to write with image.onnx and text.onnx.", Section("Output"), Metavar("DIR")
    ] = None,
    quiet: Quiet = False,
) -> Export:
    """Write a run for other libraries, and compare what was written with the model.

    --hf: a fine-tuned CLIP or SigLIP becomes a folder that transformers opens without Subtext; any other model becomes
    a folder that subtext.load opens. --onnx: one graph per side, for any number of items (extra: onnx).

    Raises ArgumentError unless one of hf and onnx is given; RequirementError for ONNX when the model only scores pairs
    or a package is missing; CheckpointError when the folder is not empty, or when the export does not give the model's
    vectors: then nothing of it remains.
    """
    from subtext.api.load import open_run
    from subtext.errors import ArgumentError
    from subtext.models.checkpoint import require_new_folder

    if (hf is None) == (onnx is None):
        raise ArgumentError("an export needs either hf=DIR or onnx=DIR; give one of them")
    folder = Path(str(onnx if hf is None else hf)).expanduser()
    if hf is None:
        from subtext.export.onnx import require_packages

        require_packages()
    require_new_folder(folder, "an export")
    loaded = open_run(run)
    return _to_onnx(loaded, folder, quiet=quiet) if hf is None else _to_hub(loaded, folder)


def _to_hub(run: LoadedRun, folder: Path) -> Export:
    from subtext.api.load import load, save_pretrained
    from subtext.data.atomic import write_folder
    from subtext.export import hub
    from subtext.export.samples import sample_inputs

    samples = sample_inputs(run.model, _dataset(run))
    dual_encoder = hub.is_dual_encoder(run.model)
    differences = {}

    def write(target: Path) -> None:
        if dual_encoder:
            hub.write_dual_encoder(run.model, run.record, target)
            largest = hub.dual_encoder_difference(run.model, target, samples)
        else:
            save_pretrained(run.model, hub.public_record(run.record), target)
            hub.write_config(run.record, target)
            largest = hub.difference(run.model, load(target), samples)
        _require_equal("the folder, opened again,", largest, hub.TOLERANCE, samples.source, run)
        differences["vectors"] = largest

    write_folder(folder, write)
    opener = "transformers.AutoModel.from_pretrained" if dual_encoder else "subtext.load"
    return Export(folder, _bytes(folder), differences, samples.source, f'open it with:\n  {opener}("{folder}")')


def _to_onnx(run: LoadedRun, folder: Path, *, quiet: bool) -> Export:
    from subtext.data.atomic import write_folder
    from subtext.export import onnx
    from subtext.export.samples import SIDES, sample_inputs
    from subtext.report.progress import say

    model = run.model.by_mean("an ONNX export")
    samples = sample_inputs(model, _dataset(run))
    differences = {}

    def write(target: Path) -> None:
        for side in SIDES:
            say(f"{side}: writing the graph", quiet=quiet)
            largest = onnx.write_graph(model, side, samples, target)
            _require_equal(f"{side}.onnx", largest, onnx.TOLERANCE, samples.source, run)
            differences[side] = largest
        onnx.write_description(model, run.record, samples, differences, target)

    write_folder(folder, write)
    usage = f"{folder / 'subtext.json'} describes the inputs of the graphs"
    return Export(folder, _bytes(folder), differences, samples.source, usage)


def _dataset(run: LoadedRun) -> Dataset | None:
    """The data set of the run; None where it cannot be read, because it may have moved since the training."""
    from subtext.api.load import read, remembered
    from subtext.errors import SubtextError

    try:
        return read(remembered(run.record.data), quiet=True)
    except (SubtextError, OSError):
        return None


def _require_equal(subject: str, difference: float, tolerance: float, source: str, run: LoadedRun) -> None:
    from subtext.errors import CheckpointError

    if not difference <= tolerance:
        raise CheckpointError(
            f"an export needs to give the model's vectors; {subject} differs by {difference:.2g} on {source}; the "
            f"export was removed; please report the recipe '{run.record.model}' and its options"
        )


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
