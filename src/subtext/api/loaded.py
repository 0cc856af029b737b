"""A model and the pairs that something is to be done with, from what was asked for and what a run remembers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from subtext.api.job import Sources, Work
from subtext.errors import RequirementError
from subtext.report.progress import image_meter, say

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.data.read import Reading
    from subtext.models.checkpoint import DataSource, Record
    from subtext.models.model import Model

SHOWN = 5
"""How many kinds of problems of a data set a command shows before it counts the others."""


@dataclass(frozen=True)
class Opened:
    """A model in eval mode, the chosen split and its name, and the run's record (None for a pretrained model)."""

    model: Model
    pairs: Dataset
    split: str
    record: Record | None

    def indexed(self, purpose: str) -> Opened:
        """The same with a model whose vectors decide; see `Model.indexed`."""
        return replace(self, model=self.model.indexed(purpose))

    def by_mean(self, purpose: str) -> Opened:
        """The same with a model whose vectors are means; see `Model.by_mean`."""
        return replace(self, model=self.model.by_mean(purpose))


def open_work(work: Work, *, decoded: bool = True) -> Opened:
    """Open the run, or the pretrained model, and read the split.

    decoded  see `read`

    Raises what opening and reading raise, and RequirementError when no data is named and none is remembered.
    """
    from subtext.data.lengths import cut_note

    device = choose_device(work.device)
    if work.run is None:
        assert work.model is not None
        model, record, sources = pretrained(work.model, device), None, work.sources
    else:
        from subtext.api.load import open_run

        run = open_run(
            work.run, features=work.sources.features, text_features=work.sources.text_features, device=device
        )
        model, record, sources = run.model, run.record, work.sources.over(remembered(run.record.data))
    reading = read(sources, quiet=work.quiet, decoded=decoded)
    if reading.features is not None and work.sources.data is not None and work.sources.features is None:
        from subtext.api.load import attach

        attach(model.image, reading.features, "image")
    split = work.split or (record is not None and record.data.val_split) or "val"
    pairs = reading.pairs.split(split)
    require_features(model, pairs)
    if (note := cut_note(model.text.input_spec, pairs.texts.values)) is not None:
        say(f"note: {note}", quiet=work.quiet)
    return Opened(model, pairs, split, record)


def require_features(model: Model, pairs: Dataset) -> None:
    """Raise DataError where items lack the features that the model reads: here, and not after half of the work."""
    from subtext.data.features import FeatureInput

    for branch, items in ((model.image, pairs.images), (model.text, pairs.texts)):
        if isinstance(branch.input_spec, FeatureInput):
            branch.input_spec.rows(items.ids, items.values)
            branch.input_spec.require_boxes(items.ids, items.values)


def pretrained(name: str, device: str) -> Model:
    """A dual encoder of the CLIP or SigLIP family by name or folder, as it is: the recipe `clip`, untrained.

    Raises RequirementError when it cannot be had.
    """
    from subtext.data.build_context import BuildContext
    from subtext.recipes.build import build

    return build("clip", {"model": name}, context=BuildContext()).model.to(device).eval()


def read(sources: Sources, *, quiet: bool = False, decoded: bool = True) -> Reading:
    """The pairs; problems that do not forbid their use are told on standard error.

    decoded  decodes all pictures that are to be read once, so that a bad one shows here and not in the middle of an
             epoch. Without it they are decoded only where bad ones are to be skipped

    Raises DataError when they cannot be used, and RequirementError when no data set is named.
    """
    from subtext.data.read import read_pairs, told

    if sources.data is None:
        raise RequirementError("this needs a data set; the run remembers none; say where it is (--data DATA)")
    verify = sources.features is None and (decoded or sources.bad == "skip")
    with image_meter(quiet=quiet or not verify) as heard:
        reading = read_pairs(
            sources.data.expanduser(),
            images=sources.images,
            seed=sources.split_seed or 0,
            bad=sources.bad or "refuse",
            verify=verify,
            need_images=sources.features is None,
            progress=heard,
        )
    sentences = told(reading.problems)
    for sentence in sentences[:SHOWN]:
        say(f"note: {sentence}", quiet=quiet)
    if len(sentences) > SHOWN:
        say(f"note: {len(sentences) - SHOWN:,} more; `subtext data check` lists them", quiet=quiet)
    return reading


def remembered(source: DataSource) -> Sources:
    """Where a run's data was."""
    return Sources.from_json(
        {
            "data": source.data or None,
            "images": source.images,
            "features": source.features,
            "text_features": source.text_features,
            "split_seed": source.split_seed,
            "bad": source.bad,
        }
    )


def choose_precision(model: Model, bf16: bool | None, *, quiet: bool = False) -> None:
    """Have the model score pairs as an option asks; None leaves it as it was trained.

    Raises RequirementError for a model that compares vectors.
    """
    if bf16 is not None and model.score_in_bf16(bf16) is not bf16:
        say("note: --bf16: this machine does not multiply in bfloat16; scores are made in float32", quiet=quiet)


def choose_device(name: str) -> str:
    """The device that an option asks for; "auto" is the first GPU, or the processor.

    Raises RequirementError when the machine does not have it.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise RequirementError(f"--device {name} cannot be used here: {reason}; take cpu or auto") from None
    return name
