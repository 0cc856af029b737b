"""`subtext index calibrate`: what the scores of an index are worth, measured on pairs that its model never saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from subtext.api.load import Opened, Work, open_work, read, remembered
from subtext.data.dataset import Dataset
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError, counted
from subtext.evaluation import embed_pairs
from subtext.report.plots import Reliability, reliability_diagrams
from subtext.report.progress import meter
from subtext.search.calibration_fit import HeldOutPairs, fit_calibration
from subtext.search.growing import require_model
from subtext.search.stores.calibration import Calibration
from subtext.search.stores.opened import open_store

LONG = 10
"""Words from which a text that was trained on is known by its words alone: shorter ones are said of many pictures."""
ALLOWED = 0.01
"""Share of pictures, or of texts, that may have been seen: names and sentences coincide."""
TOLD = {"images": "words for pictures", "texts": "a picture for texts"}


def calibrate(work: Work, index: Path | str, *, unchecked: bool = False, seed: int = 0) -> str:
    """Calibrate an index by a split of a data set, keep that in it, and say how well it came out.

    unchecked  takes the user's word that the pairs were not trained on

    Raises RequirementError where pairs were trained on, or where nobody can say; IndexError_ for another model; what
    opening, reading and calibrating raise.
    """
    folder = open_store(index)
    run = work.run if work.run is not None else Path(folder.manifest.run)
    opened = open_work(replace(work, run=run))
    require_model(folder.manifest, opened.model)
    if not unchecked:
        require_unseen(opened, work)
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        images, texts = embed_pairs(
            opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told
        )
    data = {"data": str(work.sources.data), "split": opened.split, "checked": not unchecked}
    found = fit_calibration(folder, HeldOutPairs(pairs, images, texts), data=data, seed=seed)
    kept = folder.keep_calibration(found, plot(found))
    return "\n".join([f"{folder.path}: calibrated by {about(found)}", *lines(found), f"plot: {kept}"])


def require_unseen(opened: Opened, work: Work) -> None:
    """Raise RequirementError where the run was trained on, or selected by, some of the pairs, or nobody can say."""
    record = opened.record
    assert record is not None
    source = record.data
    used = [name for name in (source.train_split, source.val_split) if name is not None]
    try:
        every = read(remembered(source), quiet=True)
    except (DataError, RequirementError) as problem:
        raise RequirementError(
            "calibration needs pairs that were neither trained on nor selected by, and the run's own data cannot be "
            f"looked at ({problem}); put it back, or say that these are others (--unchecked)"
        ) from problem
    for name in used:
        if name == "all" or name in every.counts():
            _refuse_seen(opened.pairs, every.split(name), f"split '{name}' of the run's data")


def _refuse_seen(pairs: Dataset, used: Dataset, where: str) -> None:
    """By the names of pictures, and by the words of longer texts."""
    known = {*used.images.ids, *(value for value in used.images.values if isinstance(value, str))}
    pictures = [
        n in known or (isinstance(v, str) and v in known)
        for n, v in zip(pairs.images.ids, pairs.images.values, strict=True)
    ]
    said = {value for value in used.texts.values if isinstance(value, str) and len(tokenise(value)) >= LONG}
    texts = [value in said for value in pairs.texts.values if isinstance(value, str)]
    for seen, noun in ((pictures, "picture"), (texts, "text")):
        if seen and float(np.mean(seen)) > ALLOWED:
            raise RequirementError(
                "calibration needs pairs that were neither trained on nor selected by; of "
                f"{counted(len(seen), noun)} {sum(seen):,} stand in {where}, which the model was made with: its scores "
                "there are better than they will be; give another split, or other data"
            )


def about(found: Calibration) -> str:
    """By what an index was calibrated, in words."""
    data = found.data
    pictures, texts = counted(data["pictures"], "picture"), counted(data["texts"], "text")
    return f"{pictures} and {texts} of split {data['split']} of {data['data']}; one half fitted, the other measured"


def lines(found: Calibration) -> list[str]:
    """How well each way of asking came out."""
    told = []
    for side, way in found.ways.items():
        own = way.measured
        told.append(
            f"  {TOLD[side]}: calibration error {own['calibration_error']:.3f} (in bins of equal counts "
            f"{own['calibration_error_equal_counts']:.3f}, of first hits {own['calibration_error_first']:.3f}); "
            f"{own['hits']:,.0f} hits, {100 * own['right']:.1f} % right; {100 * own['refused']:.1f} % of "
            "questions with an answer are refused"
        )
    own_pairs = found.pairs
    told.append(
        f"  single pairs: calibration error {own_pairs['calibration_error']:.3f}, {own_pairs['pairs']:,} right pairs"
    )
    return told


def plot(found: Calibration) -> str:
    """The reliability plot."""
    return reliability_diagrams(
        [
            Reliability(
                TOLD[side],
                f"calibration error {way.measured['calibration_error']:.3f}, {way.measured['hits']:,.0f} hits",
                way.bins["predicted"],
                way.bins["came_true"],
                way.bins["counts"],
            )
            for side, way in found.ways.items()
        ]
    )
