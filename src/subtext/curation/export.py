"""What is kept of a data set, as files that others read; and what is not, with the reasons."""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subtext.curation.judged import Judged
from subtext.data import atomic
from subtext.data.dataset import Dataset
from subtext.data.image_files import read_bytes
from subtext.data.write import SUFFIXES, write_dataset
from subtext.errors import DataError

TAR = ".tar"


def kept_pairs(pairs: Dataset, links: NDArray[np.int64]) -> Dataset:
    """The data set with the chosen links alone, and the items that these join; graded judgements stay behind.

    Raises DataError where nothing is left.
    """
    if not len(links):
        raise DataError("an export needs one pair or more; every pair was left out; drop for fewer reasons")
    chosen = pairs.links[links]
    selected = replace(pairs, links=chosen, judgements=None)
    return selected.subset(np.unique(chosen[:, 0]), np.unique(chosen[:, 1]))


def export(judgement: Judged, links: NDArray[np.int64], out: Path) -> None:
    """Write the chosen pairs to a file: .jsonl, .parquet, or .tar for WebDataset.

    Raises DataError for another ending and where nothing is left, OutputError where it cannot be written.
    """
    if out.suffix == TAR:
        _webdataset(judgement, links, out)
    elif out.suffix in SUFFIXES:
        write_dataset(kept_pairs(judgement.pairs, links), out)
    else:
        raise DataError(f"an export needs a file that ends in {', '.join((*SUFFIXES, TAR))}; it got {out.name}")


def write_rows(judgement: Judged, why: Sequence[Sequence[str]], links: NDArray[np.int64], out: Path) -> None:
    """Write all that is known of the chosen pairs: a row a pair, with "left_out", as .jsonl or .parquet."""
    rows = [{**judgement.row(int(link)), "left_out": list(why[int(link)])} for link in links]
    if out.suffix == ".parquet":
        atomic.write_file(out, lambda place: _parquet(rows, place))
        return
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    def fill(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    atomic.write_file(out, fill)


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _webdataset(judgement: Judged, links: NDArray[np.int64], out: Path) -> None:
    """A sample a picture: its bytes, its first text, and all that is known of its pairs as JSON."""
    pairs = kept_pairs(judgement.pairs, links).images  # Refuses an empty export before anything is written.
    of_picture: dict[int, list[int]] = defaultdict(list)
    for link in links.tolist():
        of_picture[int(judgement.pairs.links[link, 0])].append(link)
    assert len(of_picture) == len(pairs)

    def fill(path: Path) -> None:
        with tarfile.open(path, "w") as tar:
            for number, (row, texts) in enumerate(sorted(of_picture.items())):
                value = judgement.pairs.images.values[row]
                if value is None:
                    raise DataError(
                        f"a tar needs pictures; '{judgement.pairs.images.ids[row]}' is known by features alone; export "
                        "to .jsonl or .parquet"
                    )
                data = read_bytes(value, judgement.pairs.root)
                facts = [judgement.row(link) for link in texts]
                captions = [fact["caption"] for fact in facts]
                about = {
                    "id": judgement.pairs.images.ids[row], "captions": captions, "split": facts[0]["split"],
                    "text_ids": [fact["text"] for fact in facts], "pairs": facts,
                }  # fmt: skip
                name = f"{number:09d}"
                _add(tar, f"{name}.{_ending(data)}", data)
                _add(tar, f"{name}.txt", str(captions[0] or "").encode("utf-8", "surrogatepass"))
                _add(tar, f"{name}.json", json.dumps(about, ensure_ascii=False).encode())

    atomic.write_file(out, fill)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    # No time and no owner: the same pairs make the same bytes.
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def _ending(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        return {"JPEG": "jpg"}.get(str(image.format), str(image.format).lower())
