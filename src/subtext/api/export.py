"""`subtext.export_run`: a run in the formats of other libraries, compared with the model before it is finished."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from subtext.api.load import load, open_run, read, save_pretrained
from subtext.api.options import Quiet, Run
from subtext.errors import ArgumentError, CheckpointError, RequirementError, Setting, SubtextError
from subtext.report.progress import say
from subtext.report.text_table import Report
from subtext.settings import Metavar, OptionGroup, command
from subtext.text_helpers import size


@dataclass(frozen=True, repr=False)
class Export(Report):
    """An exported model.

    Attributes:
        path: Its folder.
        bytes: Total size of its files.
        differences: For images and texts, the largest difference of a vector component from the model.
        checked_on: A description of the inputs that were compared.
        usage: How to open it.
    """

    path: Path
    bytes: int
    differences: dict[str, float]
    checked_on: str
    usage: str

    def _lines(self) -> list[str]:
        largest = ", ".join(f"{side} {difference:.1e}" for side, difference in self.differences.items())
        about = f"{self.path}: {size(self.bytes)}, checked on {self.checked_on}; largest difference {largest}"
        return [about, self.usage]


@command
def export_run(
    run: Run,
    *,
    hf: Annotated[str | Path | None, "Folder to write for the Hub.", OptionGroup("Output"), Metavar("DIR")] = None,
    onnx: Annotated[
        str | Path | None, "Folder to write with image.onnx and text.onnx.", OptionGroup("Output"), Metavar("DIR")
    ] = None,
    quiet: Quiet = False,
) -> Export:
    """Write a run for other libraries, and compare the written files with the model.

    --hf: a fine-tuned CLIP or SigLIP becomes a folder that transformers opens without Subtext; any other model becomes
    a folder that subtext.load opens. --onnx: one ONNX graph for images and one for texts, for any batch size (extra:
    onnx).

    Args:
        run: Folder of a trained run.
        hf: Folder to write for the Hub.
        onnx: Folder to write with image.onnx and text.onnx.
        quiet: Show no progress.

    Returns:
        The written folder, and the largest difference from the model.

    Raises:
        ArgumentError: Unless exactly one of hf and onnx is set.
        RequirementError: For ONNX if the model only scores pairs, if it reads texts in several ways, or if a package is
            missing.
        CheckpointError: If the folder is not empty, or if the export does not give the model's vectors; the export is
            then removed.
    """
    from subtext.data.atomic import write_folder
    from subtext.data.inputs import SeveralInputs
    from subtext.interop import hub
    from subtext.models.checkpoint import require_new_folder

    if (hf is None) == (onnx is None):
        raise ArgumentError(
            "an export needs either ", Setting("hf", "DIR"), " or ", Setting("onnx", "DIR"), "; give one of them"
        )
    folder = Path(str(onnx if hf is None else hf)).expanduser()
    tolerance = hub.TOLERANCE
    if hf is None:
        from subtext.interop import onnx as graphs

        graphs.require_packages()
        tolerance = graphs.TOLERANCE
    require_new_folder(folder, "an export")
    loaded = open_run(run)
    if hf is None:
        if isinstance(loaded.model.text.input_spec, SeveralInputs):
            raise RequirementError(
                "an ONNX graph needs texts that are read in one way; the members of this ensemble read them "
                "differently; export each member"
            )
        loaded = replace(loaded, model=loaded.model.to_means("an ONNX export"))
    try:
        dataset = read(loaded.record.data, quiet=True)
    except (SubtextError, OSError):
        dataset = None  # It may have moved since the training.
    samples = hub.sample_inputs(loaded.model, dataset)
    differences: dict[str, float] = {}

    def write(target: Path) -> None:
        if hf is None:
            for side in samples.batches:
                say(f"{side}: writing the graph", quiet=quiet)
                differences[side] = graphs.write_graph(loaded.model, side, samples, target)
            graphs.write_description(loaded.model, loaded.record, samples, differences, target)
        else:
            if hub.is_dual_encoder(loaded.model):
                hub.write_dual_encoder(loaded.model, loaded.record, target)
                exported = hub.open_dual_encoder(target)
            else:
                save_pretrained(loaded.model, hub.public_record(loaded.record), target)
                hub.write_config(loaded.record, target)
                exported = partial(hub.vectors_of, load(target))
            differences["vectors"] = hub.difference(loaded.model, exported, samples)
        for name, difference in differences.items():
            if not difference <= tolerance:
                subject = f"{name}.onnx" if hf is None else "the folder, opened again,"
                raise CheckpointError(
                    f"an export needs to give the model's vectors; {subject} differs by {difference:.2g} on "
                    f"{samples.source}; the export was removed; please report the recipe '{loaded.record.model}' and "
                    "its options"
                )

    write_folder(folder, write)
    used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if hf is None:
        usage = f"{folder / 'subtext.json'} describes the inputs of the graphs"
    else:
        opener = "transformers.AutoModel.from_pretrained" if hub.is_dual_encoder(loaded.model) else "subtext.load"
        usage = f'open it with:\n  {opener}("{folder}")'
    return Export(folder, used, differences, samples.source, usage)
