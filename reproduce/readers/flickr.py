"""Flickr30K and Flickr8k as their authors publish them (Young et al. 2014, Hodosh et al. 2013): a token file.

`results_20130124.token` (or `Flickr8k.token.txt`) has a line per caption, IMAGE#NUMBER, a tab, and the words; the
images lie in `flickr30k-images` (or `Flicker8k_Dataset`, as that archive spells it). Lists of images give the
splits: `train.txt`, `val.txt` and `test.txt` (those of Flickr30k Entities) or `Flickr_8k.trainImages.txt`,
`Flickr_8k.devImages.txt` and `Flickr_8k.testImages.txt`; without them the split is 80-10-10 at random. Karpathy's
`dataset_flickr30k.json` in the same folder is read instead, with its own splits.
"""

from __future__ import annotations

from pathlib import Path

from reproduce.readers.split_lists import filled_lines, rows_with_splits
from subtext.data.dataset import RowIssue
from subtext.data.rows import Source, lines_of

PRIORITY = 20
LOOKS_FOR = "*.token (Flickr30K)"
_IMAGES = ("flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset", "images", "")
_LISTS = {
    "train": ("train.txt", "flickr30k_train.txt", "Flickr_8k.trainImages.txt"),
    "val": ("val.txt", "flickr30k_val.txt", "Flickr_8k.devImages.txt"),
    "test": ("test.txt", "flickr30k_test.txt", "Flickr_8k.testImages.txt"),
}


def recognises(path: Path) -> bool:
    """Whether it is a token file, or a folder with just one."""
    return _token_file(path) is not None


def _token_file(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name.endswith((".token", ".token.txt")) else None
    files = [file for pattern in ("*.token", "*.token.txt") for file in sorted(path.glob(pattern))]
    # The Flickr8k archive also has lemmatised captions, and judgements of experts and of the crowd.
    files = [file for file in files if "lemma" not in file.name.lower()]
    return files[0] if len(files) == 1 else None


def read(path: Path, images: Path | None) -> Source:
    """Images with all their captions; a text's name is that of its line (IMAGE#NUMBER)."""
    file = _token_file(path)
    assert file is not None
    root = images if images is not None else file.parent
    texts: dict[str, dict[str, str]] = {}
    problems = []
    for number, line in enumerate(lines_of(file), start=1):
        name, tab, words = line.partition("\t")
        image, mark, _ = name.rpartition("#")
        if not line.strip():
            continue
        if not tab or not mark:
            problems.append(RowIssue(f"line {number}", "needs IMAGE#NUMBER, a tab and the caption"))
            continue
        texts.setdefault(image, {})[name] = words.strip()
    rows = {
        image: {"id": image, "image": image, "captions": list(lines.values()), "text_ids": list(lines)}
        for image, lines in texts.items()
    }
    splits = {
        Path(line).stem: split
        for split, names in _LISTS.items()
        for name in names
        for line in filled_lines(file.parent / name)
    }
    return Source([*problems, *rows_with_splits(rows, splits, "the lists of the splits name", root, _IMAGES)], root)
