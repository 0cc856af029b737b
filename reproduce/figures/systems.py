"""What a figure is drawn of: pairs, their relevance, and the scores that runs or files give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reproduce.figures.config import FigureConfig, is_run
from subtext.api.evaluate import Files, read_output, read_split
from subtext.api.load import Work, open_work, remembered
from subtext.data.dataset import Dataset, fingerprint
from subtext.data.external_outputs import holds_scores
from subtext.data.image_files import thumbnail
from subtext.errors import RequirementError
from subtext.evaluation import embed_pairs
from subtext.evaluation.relevance.graded import Graded, graded
from subtext.evaluation.scoring import Embedded, Source
from subtext.models.checkpoint import load_record
from subtext.report.progress import meter, say


@dataclass(frozen=True)
class System:
    """Scores of all pictures and texts, and what they are called."""

    name: str
    source: Source
    path: Path


def pairs_of(config: FigureConfig) -> tuple[Dataset, str]:
    """The split that is config for, without looking at pictures: of the data named, or of the first run's own.

    Raises what reading raises; RequirementError where no data is named and no run remembers any.
    """
    sources, split = config.work.sources, config.work.split
    run = next((path for _, path in config.systems if is_run(path)), None)
    if run is not None:
        record = load_record(run)
        sources = sources.over(remembered(record.data))
        split = split or record.data.val_split
    if sources.data is None:
        raise RequirementError(f"{config.name} needs a data set; none is named and no run remembers one; give --data")
    return read_split(replace(config.work, sources=sources, split=split))


def systems_of(config: FigureConfig) -> tuple[list[System], Dataset, str]:
    """Every system with its scores of the same pairs, these pairs, and the name of their split.

    Raises RequirementError when runs remember different data; what opening and reading raise.
    """
    found: dict[str, System] = {}
    known: list[tuple[Dataset, str]] = []
    for name, path in config.systems:
        if is_run(path):
            source, pairs, split = _of_run(name, replace(config.work, run=path))
            known.append((pairs, split))
            found[name] = System(name, source, path)
    pairs, split = known[0] if known else read_split(config.work)
    if any(fingerprint(other) != fingerprint(pairs) for other, _ in known):
        raise RequirementError(
            f"{config.name} compares on the same pairs; these runs remember different ones; name them (--data, --split)"
        )
    for name, path in config.systems:
        if name not in found:
            found[name] = System(name, _of_file(path, pairs), path)
    return [found[name] for name, _ in config.systems], pairs, split


def relevance_of(config: FigureConfig, pairs: Dataset) -> Graded:
    """The relevance that is config for.

    Raises what `relevance.graded.graded` raises.
    """
    say(
        f"relevance {config.relevance}: {len(pairs.images):,} pictures x {len(pairs.texts):,} texts",
        quiet=config.work.quiet,
    )
    return graded(pairs, config.relevance, references=config.references, cache=config.cache)


def facts_of(config: FigureConfig, pairs: Dataset, split: str, systems: Sequence[System] = ()) -> list[tuple[str, str]]:
    """How a figure was made, for its page."""
    references = "" if config.references is None else f", of the first {config.references} texts of a picture"
    return [
        ("figure", f"{config.name}, after {config.kind.where}"),
        *[(system.name, str(system.path)) for system in systems],
        ("data", f"split {split}, {fingerprint(pairs)}"),
        ("relevance", config.relevance + references),
    ]


def about(config: FigureConfig, pairs: Dataset, split: str) -> dict[str, object]:
    """What stands at the head of every figure's JSON."""
    return {
        "figure": config.name,
        "relevance": config.relevance,
        "references": config.references,
        "split": split,
        "data_fingerprint": fingerprint(pairs),
        "pictures": len(pairs.images),
        "texts": len(pairs.texts),
    }


def texts_of(pairs: Dataset) -> list[str]:
    """What each text says; its name where only its features are known."""
    return [
        name if value is None else str(value) for name, value in zip(pairs.texts.ids, pairs.texts.values, strict=True)
    ]


def thumbnail_of(pairs: Dataset, row: int) -> str | None:
    """A picture for a page; None where it cannot be shown."""
    value = pairs.images.values[row]
    return None if value is None else thumbnail(value, pairs.root)


def _of_run(name: str, work: Work) -> tuple[Source, Dataset, str]:
    opened = open_work(work)
    pairs = opened.pairs
    with meter(f"embedding, {name}", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
    whole = (np.arange(len(each), dtype=np.int64) for each in items)
    return Embedded(opened.model.similarity, *items).part(*whole), pairs, opened.split


def _of_file(path: Path, pairs: Dataset) -> Source:
    files = Files(scores=path) if holds_scores(path) else Files(image_embeddings=path, text_embeddings=path)
    return read_output(files, pairs).source
