"""`subtext.embed`: the vectors of a data set's images and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from subtext.api.load import EvaluationSubject, ModelSource, open_subject
from subtext.api.options import DEFAULTS, DataOptions, OnProgress, OptionalRun, Pretrained, TextPrompt
from subtext.errors import ArgumentError
from subtext.report.progress import with_progress
from subtext.report.text_table import Report
from subtext.settings import Metavar, OptionGroup, command
from subtext.text_helpers import counted, size

if TYPE_CHECKING:
    import pandas

    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset, Items


@dataclass(frozen=True, repr=False)
class EmbeddedDataset(Report):
    """The vectors of a data set.

    Attributes:
        dataset: Its images, texts and pairs.
        image_vectors: Their embeddings, (N, K, D).
        text_vectors: See `image_vectors`.
        path: Their file; None if none was written.
    """

    dataset: Dataset
    image_vectors: Embeddings
    text_vectors: Embeddings
    path: Path | None = None

    @property
    def images(self) -> Items:
        """Ids, groups and splits of the images."""
        return self.dataset.images

    @property
    def texts(self) -> Items:
        """The same of the texts."""
        return self.dataset.texts

    def _lines(self) -> list[str]:
        vectors = self.image_vectors
        shape = f"{vectors.views} x {vectors.width}" if vectors.views > 1 else str(vectors.width)
        shape += " (means)" if vectors.uncertainty is not None else ""
        text = f"{counted(len(self.images), 'image')} and {counted(len(self.texts), 'text')}, vectors of {shape}"
        return [text if self.path is None else f"{self.path}: {text}, {size(self.path.stat().st_size)}"]

    def to_json(self) -> dict[str, Any]:
        """Return the file, the numbers of items and the shape of their vectors.

        Returns:
            Plain JSON values.
        """
        items = {"images": len(self.images), "texts": len(self.texts)}
        shape = {"views": self.image_vectors.views, "width": self.image_vectors.width}
        return {"path": None if self.path is None else str(self.path), **items, **shape}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the items, images first. Needs pandas.

        Returns:
            Columns: modality, id, split, group and vector, (D) or (K, D).
        """
        from subtext.data.dataset import frame

        columns = {"image": _columns(self.images, self.image_vectors), "text": _columns(self.texts, self.text_vectors)}
        return frame(
            [
                {"modality": modality, **{name.removesuffix("s"): column[row] for name, column in of_modality.items()}}
                for modality, of_modality in columns.items()
                for row in range(len(of_modality["ids"]))
            ]
        )

    def entries(self) -> Iterator[dict[str, Any]]:
        """The items as plain data, images first.

        Yields:
            "modality", "id", "group", "split" and "vector" of each; of a probabilistic model also "uncertainty".
        """
        columns = {"image": _columns(self.images, self.image_vectors), "text": _columns(self.texts, self.text_vectors)}
        for modality, of_modality in columns.items():
            names = [name.removesuffix("s") for name in of_modality]
            for values in zip(*of_modality.values(), strict=True):
                plain = [value.tolist() if hasattr(value, "tolist") else str(value) for value in values]
                yield {"modality": modality, **dict(zip(names, plain, strict=True))}

    def save(self, path: str | Path) -> EmbeddedDataset:
        """Write a .npz or .parquet file. A failed write leaves no file.

        Args:
            path: The file.

        Returns:
            This object with its `path`.

        Raises:
            ArgumentError: If the suffix is another.
            OutputError: If the file cannot be written.
        """
        from subtext.data.atomic import write_file

        path = _checked(path)
        columns = {"image": _columns(self.images, self.image_vectors), "text": _columns(self.texts, self.text_vectors)}
        write = _write_npz if path.suffix == ".npz" else _write_parquet
        write_file(path, lambda target: write(target, columns))
        return replace(self, path=path)


@command(defaults=DEFAULTS)
@with_progress
def embed(
    run: OptionalRun = None,
    *,
    model: Pretrained = None,
    text_prompt: TextPrompt = None,
    split: Annotated[str, "Split to embed; all: the complete data set.", OptionGroup("Data")] = "all",
    out: Annotated[
        str | Path | None, "A .npz or .parquet file to write.", OptionGroup("Output"), Metavar("FILE")
    ] = None,
    progress: OnProgress = None,
    **options: Unpack[DataOptions],
) -> EmbeddedDataset:
    """Compute the vectors of a data set's images and texts, and write them to a file.

    An npz file has the arrays image_ids, image_vectors, image_groups and image_splits, and the same arrays for texts.
    Vectors are (N, D) float32, or (N, K, D) for a model with K views. A Parquet file has one row per item: modality,
    id, group, split and vector. For a probabilistic model, vectors are means. The file then also has the uncertainty of
    each item: image_uncertainty and text_uncertainty, or the column uncertainty. This is the root mean square of its
    standard deviations.

    Args:
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter, a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        split: Split to embed; all: the complete data set.
        out: A .npz or .parquet file to write.
        progress: Called with the numbers of finished items and of all, in each part of the work: checking images,
            embedding.
        options: Settings of the model and of the data set, such as `features`, `device` or `batch_size`; the command's
            `--help` lists them.

    Returns:
        The vectors, with ids, groups and splits.

    Raises:
        RequirementError: If the model only scores pairs.
        ArgumentError: If the suffix is unknown.
        OutputError: If the file cannot be written. The suffix and the file are checked before the work begins.
    """
    from subtext.data.atomic import require_file

    work = EvaluationSubject.of(ModelSource.of(run, model, text_prompt), split, **options)
    if out is not None:
        require_file(_checked(out))
    opened = open_subject(work, need_pairs=False).to_means("embed")
    embedded = EmbeddedDataset(opened.pairs, *opened.embed(work))
    return embedded if out is None else embedded.save(out)


def _checked(out: str | Path) -> Path:
    path = Path(out).expanduser()
    if path.suffix not in (".npz", ".parquet"):
        raise ArgumentError(f"out needs a name that ends in .npz or .parquet; it got {path.name}", field="out")
    return path


def _columns(items: Items, embeddings: Embeddings) -> dict[str, Any]:
    """The columns of a modality; vectors are (N D), or (N K D) for more than one view."""
    import numpy as np

    vectors = embeddings.vectors.float().numpy()
    columns = {
        "ids": np.asarray(items.ids, dtype=np.str_),
        "groups": items.groups,
        "splits": np.asarray(items.splits, dtype=np.str_),
        "vectors": vectors[:, 0] if embeddings.views == 1 else vectors,
    }
    uncertainty = embeddings.uncertainty
    return columns if uncertainty is None else {**columns, "uncertainty": uncertainty.float().numpy()}


def _write_npz(path: Path, columns: Mapping[str, Mapping[str, Any]]) -> None:
    import numpy as np

    arrays = {f"{modality}_{name}": column for modality in columns for name, column in columns[modality].items()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _write_parquet(path: Path, columns: Mapping[str, Mapping[str, Any]]) -> None:
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for modality, of_modality in columns.items():
        table = {"modality": pa.array([modality] * len(of_modality["ids"]))}
        for name, values in of_modality.items():
            column = pa.array(values.reshape(-1))
            for length in reversed(values.shape[1:]):
                column = pa.FixedSizeListArray.from_arrays(column, length)
            table[name.removesuffix("s")] = column
        tables.append(pa.table(table))
    joined = pa.concat_tables(tables)
    pq.write_table(joined.replace_schema_metadata({"subtext": json.dumps({"layout": "one row an item"})}), path)
