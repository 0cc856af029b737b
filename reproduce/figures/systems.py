"""The systems of a figure: the pairs, their relevance, and the scores that runs or files give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce.figures.config import FigureConfig, is_run
from subtext.core import Embeddings
from subtext.data import external_outputs
from subtext.data.dataset import fingerprint
from subtext.data.image_files import thumbnail
from subtext.errors import ArgumentError, DataError, RequirementError
from subtext.evaluation import embed_pairs
from subtext.evaluation.metrics import ASP, default_metrics
from subtext.evaluation.relevance.graded import Graded, graded
from subtext.evaluation.scoring import matrix
from subtext.models.checkpoint import load_record
from subtext.models.similarity.cosine import Cosine
from subtext.report.progress import meter, say


def pairs_of(config: FigureConfig) -> tuple[st.Dataset, str]:
    """The split to measure and its name, without opening images: of the named data, or of the runs' own.

    Raises what reading raises; RequirementError where no data is named and no run remembers any, and where runs
    remember different data.
    """
    runs: list[Path | None] = [path for _, path in config.systems if is_run(path)]
    sources = dict.fromkeys(_source_of(config, run) for run in runs or [None])
    (pairs, split), *splits = [_read(config, *source) for source in sources]
    if any(fingerprint(different) != fingerprint(pairs) for different, _ in splits):
        raise RequirementError(
            f"{config.name} compares on the same pairs; these runs remember different ones; name them (--data, --split)"
        )
    return pairs, split


def _source_of(config: FigureConfig, run: Path | None) -> tuple[Any, ...]:
    """Data, images, seed of the split, handling of errors and split: those of the options, else those of a run."""
    remembered = vars(load_record(run).data) if run is not None else {}
    names = ("data", "images", "split_seed", "on_error")
    values = [remembered.get(name) if (value := config.options.get(name)) is None else value for name in names]
    return (*values, config.split or remembered.get("val_split"))


def _read(
    config: FigureConfig, data: Any, images: Any, split_seed: Any, on_error: Any, split: str | None
) -> tuple[st.Dataset, str]:
    if not data:
        raise RequirementError(f"{config.name} needs a data set; none is named and no run remembers one; give --data")
    pairs = st.read(data, images=images, split_seed=split_seed or 0, on_error=on_error or "raise", need_images=False)
    splits = sorted(pairs.counts())
    if split is None and len(splits) > 1:
        raise ArgumentError(f"{config.name} needs --split; this data has {', '.join(splits)}; or --split all")
    return pairs.split(split or "all"), split or "all"


def evaluate(config: FigureConfig, path: Path, pairs: st.Dataset, *, asp_top: Sequence[int] = ()) -> st.Result:
    """The figures of a run, or of a file of scores or vectors: recall, ranks and ASP."""
    options = config.running
    data = st.DataConfig(pairs, **{n: options.pop(n, None) for n in ("features", "text_features")})
    subject: dict[str, Any] = {"model": path}
    if not is_run(path):
        subject = {"scores": path} if holds_scores(path) else {"image_embeddings": path, "text_embeddings": path}
    quiet = bool(options.pop("quiet", False))
    return st.evaluate(
        **subject,
        data=data,
        split="all",
        metrics=[*default_metrics(), *(ASP(config.relevance, config.asp_ties, top) for top in (0, *asp_top))],
        protocol=st.Protocol(bootstrap=0, references=config.references),
        config=st.ComputeConfig(cache=config.cache, **options),
        quiet=quiet,
    )


def holds_scores(path: Path) -> bool:
    """Whether a file has scores of pairs, which can be read, rather than vectors of items; an npy has scores."""
    try:
        external_outputs.read_scores(path)
    except DataError:
        return False
    return True


def scores_of(config: FigureConfig, name: str, path: Path, pairs: st.Dataset) -> Tensor:
    """(I T) scores of all images and texts by a run, or from a file of scores or vectors."""
    if is_run(path):
        options = config.running
        files = {option: options.pop(option, None) for option in ("features", "text_features")}
        model = st.open_run(path, **files, device=options.pop("device", "auto")).model
        options.pop("quiet", None)
        with meter(f"embedding, {name}", len(pairs.images) + len(pairs.texts), quiet=config.quiet) as progress:
            return matrix(model.similarity, *embed_pairs(model, pairs, **options, progress=progress))
    if holds_scores(path):
        output = external_outputs.read_scores(path)
        rows, columns = output.rows(pairs.images), output.rows(pairs.texts, axis=1)
        return torch.from_numpy(np.asarray(output.values[np.ix_(rows, columns)]))
    sides: list[Embeddings] = []
    for modality, items in (("image", pairs.images), ("text", pairs.texts)):
        output = external_outputs.read_vectors(path, modality)
        vectors = torch.from_numpy(np.array(output.values[output.rows(items)], dtype=np.float32))
        vectors = torch.nn.functional.normalize(vectors if vectors.ndim == 3 else vectors[:, None], dim=-1)
        sides.append(Embeddings(vectors, torch.arange(len(vectors))))
    images, texts = sides
    return matrix(Cosine(), images, texts)


def relevance_of(config: FigureConfig, pairs: st.Dataset) -> Graded:
    """The relevance of all texts to all images.

    Raises what `relevance.graded.graded` raises.
    """
    say(f"relevance {config.relevance}: {len(pairs.images):,} images x {len(pairs.texts):,} texts", quiet=config.quiet)
    return graded(pairs, config.relevance, references=config.references, cache=config.cache)


def facts_of(config: FigureConfig, pairs: st.Dataset, split: str) -> list[tuple[str, str]]:
    """How a figure was made, for its page."""
    references = "" if config.references is None else f", of the first {config.references} texts of an image"
    return [
        ("figure", f"{config.name}, after {config.kind.where}"),
        *[(name, str(path)) for name, path in config.systems],
        ("data", f"split {split}, {fingerprint(pairs)}"),
        ("relevance", config.relevance + references),
    ]


def about(config: FigureConfig, pairs: st.Dataset, split: str) -> dict[str, object]:
    """The first entries of every figure's JSON."""
    return {
        "figure": config.name,
        "relevance": config.relevance,
        "references": config.references,
        "split": split,
        "data_fingerprint": fingerprint(pairs),
        "pictures": len(pairs.images),
        "texts": len(pairs.texts),
    }


def texts_of(pairs: st.Dataset) -> list[str]:
    """The words of each text; its id where only its features are known."""
    return [
        name if value is None else str(value) for name, value in zip(pairs.texts.ids, pairs.texts.values, strict=True)
    ]


def thumbnail_of(pairs: st.Dataset, row: int) -> str | None:
    """An image for a page; None where it cannot be shown."""
    value = pairs.images.values[row]
    return None if value is None else thumbnail(value, pairs.root)
