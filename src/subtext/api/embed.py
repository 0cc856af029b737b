"""`subtext.embed`: the vectors of a data set's images and texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.options import (
    BatchSize,
    Data,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Run,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)

if TYPE_CHECKING:
    from subtext.core import Embeddings
    from subtext.data.dataset import Items


@dataclass(frozen=True)
class EmbeddedDataset:
    """The vectors of a data set.

    images, texts                ids, groups and splits
    image_vectors, text_vectors  their embeddings, (N, K, D)
    path                         the file that holds them; None where none was written
    """

    images: Items
    texts: Items
    image_vectors: Embeddings
    text_vectors: Embeddings
    path: Path | None = None

    def __str__(self) -> str:
        from subtext.errors import counted
        from subtext.report.text_table import size

        vectors = self.image_vectors
        shape = f"{vectors.views} x {vectors.width}" if vectors.views > 1 else str(vectors.width)
        shape += " (means)" if vectors.uncertainty is not None else ""
        text = f"{counted(len(self.images), 'image')} and {counted(len(self.texts), 'text')}, vectors of {shape}"
        return text if self.path is None else f"{self.path}: {text}, {size(self.path.stat().st_size)}"

    __repr__ = __str__

    def save(self, path: str | Path) -> EmbeddedDataset:
        """Write a .npz or .parquet file, complete or not at all; returns this with its `path`.

        Raises ArgumentError for another suffix, OutputError when the file cannot be written.
        """
        from dataclasses import replace

        from subtext.data.atomic import write_file

        path = _checked(path)
        write = _npz if path.suffix == ".npz" else _parquet
        write_file(path, lambda target: write(target, self.images, self.image_vectors, self.texts, self.text_vectors))
        return replace(self, path=path)


@verb
def embed(
    run: Run,
    *,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Annotated[str, "Split to embed; all for the complete set.", Section("Data")] = "all",
    out: Annotated[str | Path | None, "A .npz or .parquet file to write.", Section("Output"), Metavar("FILE")] = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> EmbeddedDataset:
    """Compute the vectors of a data set's images and texts, and write them to a file.

    npz, not compressed: image_ids, image_vectors, image_groups, image_splits and the same for text; vectors are (N, D)
    float32, or (N, K, D) for a model of K views. Parquet: one row per item, with modality, id, group, split and vector.
    For a probabilistic model the vectors are means, and the uncertainty of each item, the root mean square of its
    standard deviations, is stored beside them (image_uncertainty, text_uncertainty; a column uncertainty).

    Raises RequirementError when the model only scores pairs and has no vectors, ArgumentError for an unknown suffix,
    and OutputError when the file cannot be written; both before the work begins.
    """
    from subtext.api.load import Sources, Work, open_work
    from subtext.data.atomic import require_file
    from subtext.evaluation import embed_pairs
    from subtext.report.progress import meter

    if out is not None:
        require_file(_checked(out))
    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    opened = open_work(Work(Path(run), None, sources, split, device, batch_size, workers, quiet)).by_mean("embed")
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=quiet) as progress:
        vectors = embed_pairs(opened.model, pairs, batch_size=batch_size, workers=workers, progress=progress)
    embedded = EmbeddedDataset(pairs.images, pairs.texts, *vectors)
    return embedded if out is None else embedded.save(out)


def _checked(out: str | Path) -> Path:
    from subtext.errors import ArgumentError

    path = Path(out).expanduser()
    if path.suffix not in (".npz", ".parquet"):
        raise ArgumentError(f"out needs a name that ends in .npz or .parquet; it got {path.name}")
    return path


def _npz(path: Path, images: Items, image_vectors: Embeddings, texts: Items, text_vectors: Embeddings) -> None:
    import numpy as np

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
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

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
