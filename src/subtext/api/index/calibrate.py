"""`subtext.calibrate`: what the scores of an index are worth, measured on pairs that its model never saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.index.build import IndexArgument, IndexRun
from subtext.api.options import (
    BatchSize,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)

if TYPE_CHECKING:
    from subtext.api.load import Opened
    from subtext.data.dataset import Dataset
    from subtext.search.stores.manifest import Calibration

LONG = 10
"""Words from which a text is recognised by its words alone: shorter ones are said of many images."""
ALLOWED = 0.01
"""Share of images, or of texts, that may be in the training data: names and sentences coincide."""
DIRECTIONS = {"images": "text to image", "texts": "image to text"}


@dataclass(frozen=True, repr=False)
class CalibrationReport:
    """A calibration that an index keeps from now on.

    path  the index        plot  where its reliability plot is
    calibration  ways, pairs, and what was measured of each
    """

    path: str
    plot: str
    calibration: Calibration

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        import json

        return {"index": self.path, "plot": self.plot, **json.loads(self.calibration.to_json())}

    def __str__(self) -> str:
        from subtext.errors import counted

        data = self.calibration.data
        images, texts = counted(data["pictures"], "image"), counted(data["texts"], "text")
        split = f"split {data['split']} of {data['data']}"
        lines = [f"{self.path}: calibrated by {images} and {texts} of {split}; one half fitted, the other measured"]
        for side, way in self.calibration.ways.items():
            measured = way.measured
            lines.append(
                f"  {DIRECTIONS[side]}: calibration error {measured['calibration_error']:.3f} (in bins of equal counts "
                f"{measured['calibration_error_equal_counts']:.3f}, of first hits "
                f"{measured['calibration_error_first']:.3f}); {measured['hits']:,.0f} hits, "
                f"{100 * measured['right']:.1f} % right; {100 * measured['refused']:.1f} % of queries with an answer "
                "are refused"
            )
        pairs = self.calibration.pairs
        error = f"calibration error {pairs['calibration_error']:.3f}"
        return "\n".join([*lines, f"  single pairs: {error}, {pairs['pairs']:,} right pairs", f"plot: {self.plot}"])

    def __repr__(self) -> str:
        return f"CalibrationReport({self.path!r})"


@verb
def calibrate(
    index: IndexArgument,
    *,
    data: Annotated[str | Path, "Data set of the held-out pairs.", Section("Held-out pairs"), Metavar("DATA")],
    split: Annotated[str, "A split used neither for training nor for model selection.", Section("Held-out pairs")],
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    skip_leak_check: Annotated[
        bool, "Do not check that the pairs were used neither for training nor for selection.", Section("Held-out pairs")
    ] = False,
    seed: Annotated[int, "Seed of the two halves and of random pairs.", Section("Held-out pairs")] = 0,
    run: IndexRun = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> CalibrationReport:
    """Turn the scores of an index into probabilities of a true match, with pairs that its model has not seen.

    One half of the pairs is fitted; the calibration error is measured on the other. The calibration and its reliability
    plot are kept in the index: `subtext search` then shows probabilities, takes --min-probability, and says when
    nothing matches well. It is stale when more than a tenth of the items were added or deleted since.

    Raises RequirementError for pairs that the model was trained on, or where that cannot be checked; IndexError_ when
    another model made the index.
    """
    from subtext.api.index.build import _work
    from subtext.api.load import open_work
    from subtext.evaluation import embed_pairs
    from subtext.report.progress import meter
    from subtext.search.build import require_model
    from subtext.search.confidence import HeldOutPairs, fit_calibration
    from subtext.search.stores.store import open_store

    store = open_store(index)
    run = run if run is not None else store.manifest.run
    opened = open_work(
        _work(
            run, data, images, features, text_features, split_seed, on_error, split, device, batch_size, workers, quiet
        )
    )
    require_model(store, store.manifest, opened.model)
    if not skip_leak_check:
        _require_unseen(opened)
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=quiet) as progress:
        vectors = embed_pairs(opened.model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    source = {"data": str(Path(data)), "split": opened.split, "checked": not skip_leak_check}
    calibration = fit_calibration(store, HeldOutPairs(pairs, *vectors), data=source, seed=seed)
    return CalibrationReport(str(store.path), store.keep_calibration(calibration, plot(calibration)), calibration)


def plot(calibration: Calibration) -> str:
    """The reliability plot, an SVG document."""
    from subtext.report.plots import Reliability, reliability_diagrams

    return reliability_diagrams(
        [
            Reliability(
                DIRECTIONS[side],
                f"calibration error {way.measured['calibration_error']:.3f}, {way.measured['hits']:,.0f} hits",
                way.bins["predicted"],
                way.bins["came_true"],
                way.bins["counts"],
            )
            for side, way in calibration.ways.items()
        ]
    )


def _require_unseen(opened: Opened) -> None:
    """Raise RequirementError where the run was trained on, or selected by, some of the pairs, or nobody can say."""
    from subtext.api.load import read, remembered
    from subtext.errors import DataError, RequirementError

    record = opened.record
    assert record is not None
    source = record.data
    used = [name for name in (source.train_split, source.val_split) if name is not None]
    try:
        every = read(remembered(source), quiet=True)
    except (DataError, RequirementError) as problem:
        raise RequirementError(
            "calibration needs pairs used neither for training nor for model selection, and the run's own data "
            f"cannot be read ({problem}); put it back, or skip this check (--skip-leak-check)"
        ) from problem
    for name in used:
        if name == "all" or name in every.counts():
            _refuse_seen(opened.pairs, every.split(name), f"split '{name}' of the run's data")


def _refuse_seen(pairs: Dataset, used: Dataset, where: str) -> None:
    """By the names of images, and by the words of longer texts."""
    import numpy as np

    from subtext.data.text import tokenise
    from subtext.errors import RequirementError, counted

    names = {*used.images.ids, *(value for value in used.images.values if isinstance(value, str))}
    images = [
        name in names or (isinstance(value, str) and value in names)
        for name, value in zip(pairs.images.ids, pairs.images.values, strict=True)
    ]
    long_texts = {value for value in used.texts.values if isinstance(value, str) and len(tokenise(value)) >= LONG}
    texts = [value in long_texts for value in pairs.texts.values if isinstance(value, str)]
    for seen, noun in ((images, "image"), (texts, "text")):
        if seen and float(np.mean(seen)) > ALLOWED:
            raise RequirementError(
                "calibration needs pairs used neither for training nor for model selection; of "
                f"{counted(len(seen), noun)} {sum(seen):,} are in {where}, which the model was made with: its scores "
                "there are too good; give another split, or other data"
            )
