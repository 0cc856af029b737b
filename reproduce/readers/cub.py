"""CUB Captions (Wah et al. 2011, Reed et al. 2016): 11,788 images of 200 species of birds, ten captions each.

A folder with `images` (of CUB-200-2011; or `CUB_200_2011/images`) and `text_c10` (of Reed's release; or
`cvpr2016_cub/text_c10`), each with a folder per class: `images/001.Black_footed_Albatross/NAME.jpg` goes with
`text_c10/001.Black_footed_Albatross/NAME.txt`, a line per caption.

A class is a group: each of its images belongs to each of its texts, as Chun et al. 2021 evaluate it; training pairs an
image with its own captions. Splits are classes (the proposed split of Xian et al. 2017): 50 to test, and of
the 150 others 50 for validation (its first fold of three). Files of that release in the folder take their place:
`testclasses.txt` and one of `valclasses1.txt`, `valclasses2.txt`, `valclasses3.txt`. With `seen_test_images.txt` the
images that it lists (of training and validation classes) become the split "seen".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reproduce.readers.split_lists import filled_lines
from subtext.data.rows import Record, Source, folder_of, rows_of
from subtext.errors import DataError

PRIORITY = 53
LOOKS_FOR = "text_c10 (CUB Captions)"
_TEXTS = ("text_c10", "cvpr2016_cub/text_c10")
_IMAGES = ("images", "CUB_200_2011/images", "")
# fmt: off
TEST_CLASSES = frozenset((
    4, 12, 23, 26, 28, 31, 33, 43, 45, 49, 52, 55, 70, 72, 77, 84, 87, 91, 94, 97, 98, 103, 104, 111, 113, 119, 123,
    124, 127, 130, 132, 136, 138, 139, 143, 148, 156, 157, 161, 163, 164, 165, 168, 169, 173, 180, 188, 190, 191, 200,
))
"""The 50 classes of the test split, by the number that their names begin with."""

VAL_CLASSES = frozenset((
    5, 7, 9, 18, 29, 34, 36, 48, 51, 56, 59, 61, 63, 64, 66, 69, 73, 74, 76, 80, 83, 86, 89, 100, 109, 114, 116, 117,
    118, 121, 128, 140, 141, 144, 150, 151, 153, 155, 158, 162, 174, 177, 179, 182, 184, 189, 192, 194, 195, 198,
))
"""The 50 classes of the validation split."""
# fmt: on


def recognises(path: Path) -> bool:
    """Whether it is a folder with such captions."""
    return path.is_dir() and _captions(path) is not None


def _captions(path: Path) -> Path | None:
    return next((folder for name in _TEXTS if any((folder := path / name).glob("[0-9][0-9][0-9].*"))), None)


def read(path: Path, images: Path | None) -> Source:
    """Images, each with its own captions, in the group of their class; the class is also their label."""
    captions = _captions(path)
    assert captions is not None
    root = images if images is not None else path
    files = sorted(captions.glob("[0-9][0-9][0-9].*/*.txt"))
    names = [f"{file.parent.name}/{file.stem}.jpg" for file in files]
    return Source(rows_of(_records(files, path), None, folder=folder_of(names, root, _IMAGES)), root)


def _records(files: list[Path], folder: Path) -> Iterator[Record]:
    test = _numbers(folder, "testclasses.txt") or TEST_CLASSES
    folds = sorted(folder.glob("valclasses*.txt"))
    if len(folds) > 1:
        raise DataError(
            f"{folder} needs one file of validation classes; it has {len(folds)}; keep only that of your fold"
        )
    val = _numbers(folder, folds[0].name) if folds else VAL_CLASSES
    seen_images = set(filled_lines(folder / "seen_test_images.txt"))
    for file in files:
        class_name = file.parent.name
        class_number = int(class_name[:3])
        name = f"{class_name}/{file.stem}.jpg"
        captions = filled_lines(file)
        split, group = "test" if class_number in test else "val" if class_number in val else "train", class_name
        if name in seen_images and split != "test":
            split, group = "seen", f"{class_name} (seen)"
        text_ids = [f"{name}#{number}" for number in range(len(captions))]
        columns = {"id": name, "image": name, "captions": captions, "text_ids": text_ids}
        yield f"{class_name}/{file.name}", {**columns, "split": split, "group": group, "labels": [class_name]}


def _numbers(folder: Path, name: str) -> frozenset[int]:
    """The class numbers of a list; none where there is no list."""
    numbers = [line.partition(".")[0].strip() for line in filled_lines(folder / name)]
    if not all(number.isdecimal() for number in numbers) or (not numbers and (folder / name).is_file()):
        raise DataError(f"{folder / name} needs a class per line, such as 004.Groove_billed_Ani; it has others")
    return frozenset(map(int, numbers))
