"""SCAN's "precomp" folders (Lee et al. 2018): region features and captions, without images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from subtext.data.arrays import SPLIT_FILES, scan_names, scan_splits
from subtext.data.dataset import RowIssue
from subtext.data.feature_file import FeatureFile
from subtext.data.rows import Row, Source, lines_of, valid
from subtext.text_helpers import counted

PRIORITY = 80
LOOKS_FOR = "*_ims.npy with *_caps.txt (SCAN)"


def recognises(path: Path) -> bool:
    """Recognise a folder with arrays of features named as SCAN's.

    Args:
        path: Folder; it need not exist.

    Returns:
        Whether it has such arrays.
    """
    return path.is_dir() and any(path.glob("*_ims.npy"))


def read(path: Path, images: Path | None) -> Source:
    """Read images named "train/0", "train/1", ..., each with its run of lines of the captions file (usually five).

    The features come as `Source.features`, under the same names.

    Args:
        path: Folder with arrays and captions.
        images: Folder of the images; None for `path`.

    Returns:
        The rows, with `features`.

    Raises:
        DataError: If there is no array, or one has no captions.
    """
    return Source(_rows(path), images if images is not None else path, features=FeatureFile.open(path))


def _rows(folder: Path) -> Iterator[Row | RowIssue]:
    for prefix, (array, captions, step) in scan_splits(folder).items():
        lines = lines_of(captions)
        names = scan_names(prefix, -(-len(array) // step))
        if not len(array) or len(lines) % len(names):
            problem = f"needs as many lines for each of {counted(len(names), 'image')}; it has {len(lines):,}"
            yield RowIssue(captions.name, problem)
            continue
        per_image = len(lines) // len(names)
        for number, name in enumerate(names):
            row = Row(f"{captions.name} line {number * per_image + 1}", None, name, [], split=SPLIT_FILES[prefix])
            for index in range(number * per_image, (number + 1) * per_image):
                line = lines[index].strip()
                where = f"{captions.name} line {index + 1}"
                if not line:
                    yield RowIssue(where, "is empty; give a caption")
                elif not valid(line):
                    yield RowIssue(where, "is not valid UTF-8; save the file as UTF-8")
                else:
                    row.texts.append(line)
            if row.texts:
                yield row
