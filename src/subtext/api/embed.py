"""`subtext embed`: the vectors of a data set's pictures and texts, in one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subtext.api.job import Work
from subtext.api.loaded import open_work
from subtext.core import Embeddings
from subtext.data.atomic import write_file
from subtext.data.dataset import Items
from subtext.data.output import require_file
from subtext.errors import counted
from subtext.evaluation import embed_pairs
from subtext.report.progress import meter
from subtext.report.text_table import size


def embed(work: Work, out: Path) -> str:
    """Embed the split, write `out` (.npz or .parquet), say what is in it.

    Of a probabilistic model the vectors are the means of its items, and how uncertain each is stands beside them.

    Raises RequirementError when the run's model only scores pairs and so has no vectors to keep, and OutputError
    when the file cannot be written, before the work begins.
    """
    require_file(out)
    opened = open_work(work).by_mean("embed")
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        images, texts = embed_pairs(
            opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told
        )
    write: Callable[[Path, Items, Embeddings, Items, Embeddings], None] = _npz if out.suffix == ".npz" else _parquet
    write_file(out, lambda place: write(place, pairs.images, images, pairs.texts, texts))
    shape = f"{images.views} x {images.width}" if images.views > 1 else str(images.width)
    shape += " (means)" if images.uncertainty is not None else ""
    counts = f"{counted(len(images), 'picture')} and {counted(len(texts), 'text')}"
    return f"{out}: {counts}, vectors of {shape}, {size(out.stat().st_size)}"


def _npz(path: Path, images: Items, image_vectors: Embeddings, texts: Items, text_vectors: Embeddings) -> None:
    columns: dict[str, Any] = {}
    for modality, items, embeddings in (("image", images, image_vectors), ("text", texts, text_vectors)):
        columns[f"{modality}_ids"] = np.asarray(items.ids, dtype=np.str_)
        columns[f"{modality}_groups"] = items.groups
        columns[f"{modality}_splits"] = np.asarray(items.splits, dtype=np.str_)
        columns[f"{modality}_vectors"] = _vectors(embeddings)
        if embeddings.uncertainty is not None:
            columns[f"{modality}_uncertainty"] = embeddings.uncertainty.float().numpy()
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **columns)


def _parquet(path: Path, images: Items, image_vectors: Embeddings, texts: Items, text_vectors: Embeddings) -> None:
    tables = []
    for modality, items, embeddings in (("image", images, image_vectors), ("text", texts, text_vectors)):
        vectors = _vectors(embeddings)
        column = pa.array(vectors.reshape(-1))
        for length in reversed(vectors.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, length)
        columns = {
            "modality": pa.array([modality] * len(items)),
            "id": pa.array(items.ids),
            "group": pa.array(items.groups),
            "split": pa.array([str(split) for split in items.splits]),
            "vector": column,
        }
        if embeddings.uncertainty is not None:
            columns["uncertainty"] = pa.array(embeddings.uncertainty.float().numpy())
        tables.append(pa.table(columns))
    joined = pa.concat_tables(tables)
    pq.write_table(joined.replace_schema_metadata({"subtext": json.dumps({"layout": "one row an item"})}), path)


def _vectors(embeddings: Embeddings) -> Any:
    """(N D), or (N K D) for more than one view."""
    vectors = embeddings.vectors.float().numpy()
    return vectors[:, 0] if embeddings.views == 1 else vectors
