"""Which of the formats a data set is in."""

from __future__ import annotations

from pathlib import Path

from subtext.data.readers.coco import coco_files, read_coco
from subtext.data.readers.conceptual import conceptual_files, read_conceptual
from subtext.data.readers.cub import cub_texts, read_cub
from subtext.data.readers.flickr import read_flickr, token_file
from subtext.data.readers.goodnews import goodnews_file, read_goodnews
from subtext.data.readers.image_folder import metadata_files, read_image_folder
from subtext.data.readers.karpathy import is_karpathy, read_karpathy
from subtext.data.readers.mteb import is_mteb, read_mteb
from subtext.data.readers.politics import is_politics, read_politics
from subtext.data.readers.precomp import read_precomp
from subtext.data.readers.table import TABLES, read_table, read_tables
from subtext.data.readers.webdataset import read_webdataset, shards
from subtext.data.rows import Source
from subtext.data.splits import split_in_name
from subtext.errors import DataError

_LOOKED_FOR = (
    "metadata.csv, metadata.jsonl or metadata.parquet (ImageFolder); *_ims.npy with *_caps.txt (SCAN); corpus, queries "
    "and qrels (MTEB); *.tar (WebDataset); dataset_*.json (Karpathy); captions_*.json (COCO); *.token (Flickr30K); "
    "text_c10 (CUB Captions); captioning_dataset.json (GoodNews); *GCC*.tsv (Conceptual Captions); politics.jsonl; "
    "Parquet shards; or one JSON-lines, CSV or Parquet file"
)


def open_source(path: Path, images: Path | None) -> Source:
    """The data set at a path, in whatever format it is.

    Raises DataError that says what was looked for when it is in none.
    """
    if images is not None and not images.is_dir():
        raise DataError(
            f"the folder of the pictures needs to be there; {images} is {'a file' if images.exists() else 'not'}"
        )
    if path.is_dir():
        return _open_folder(path, images)
    if path.is_file():
        return _open_file(path, images)
    if shards(path):
        return read_webdataset(path, images)
    raise DataError(f"a data set needs a file, a folder or a pattern of tars; {path} is not there")


def _open_file(path: Path, images: Path | None) -> Source:
    if path.stat().st_size == 0:
        raise DataError(f"{path} needs rows; the file is empty")
    if shards(path):
        return read_webdataset(path, images)
    if coco_files(path):
        return read_coco(path, images)
    if token_file(path):
        return read_flickr(path, images)
    if path.suffix.lower() == ".json" and is_karpathy(path):
        return read_karpathy(path, images)
    if path.suffix.lower() in TABLES:
        return read_table(path, images)
    raise DataError(
        f"a data set needs a file that ends in {', '.join(TABLES)} or .tar; it got {path.name}; or name a folder"
    )


def _open_folder(folder: Path, images: Path | None) -> Source:
    if metadata_files(folder):
        return read_image_folder(folder, images)
    if any(folder.glob("*_ims.npy")):
        return read_precomp(folder, images)
    if is_mteb(folder):
        return read_mteb(folder, images)
    if shards(folder):
        return read_webdataset(folder, images)
    parquet = sorted({*folder.glob("*.parquet"), *folder.glob("data/*.parquet")})
    if parquet:
        splits = [split_in_name(file.name) for file in parquet]
        return read_tables(parquet, splits if all(splits) else [None] * len(parquet), images, folder)
    published = _open_published(folder, images)
    if published is not None:
        return published
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in TABLES and file.is_file())
    karpathy = [file for file in files if file.suffix.lower() == ".json" and is_karpathy(file)]
    if len(karpathy) == 1:
        return read_karpathy(karpathy[0], images)
    if token_file(folder):
        return read_flickr(folder, images)
    if len(files) == 1:
        return read_table(files[0], images)
    have = ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"
    raise DataError(f"{folder} is in no format that is known; looked for {_LOOKED_FOR}; found {have}")


def _open_published(folder: Path, images: Path | None) -> Source | None:
    """A data set in the form of its authors, told by the names of its files; None for others."""
    if cub_texts(folder):
        return read_cub(folder, images)
    if goodnews_file(folder):
        return read_goodnews(folder, images)
    if conceptual_files(folder):
        return read_conceptual(folder, images)
    if is_politics(folder):
        return read_politics(folder, images)
    # A table of one's own beside COCO's annotations was made from them.
    own = [file for file in folder.iterdir() if file.suffix.lower() in TABLES and file.suffix.lower() != ".json"]
    return read_coco(folder, images) if coco_files(folder) and not own else None
