"""Flickr30K and Flickr8k as their authors publish them (Young et al. 2014, Hodosh et al. 2013): a token file.

`results_20130124.token` (or `Flickr8k.token.txt`) has a line a caption, PICTURE#NUMBER, a tab, and the words; the
pictures lie in `flickr30k-images` (or `Flicker8k_Dataset`, as that archive spells it). Lists of pictures give the
splits: `train.txt`, `val.txt` and `test.txt` (those of Flickr30k Entities) or `Flickr_8k.trainImages.txt`,
`Flickr_8k.devImages.txt` and `Flickr_8k.testImages.txt`; without them 80-10-10 are drawn. Karpathy's
`dataset_flickr30k.json` in the same folder is read instead, with its own splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.data.columns import rows_of
from subtext.data.places import folder_of, joined, lines_of
from subtext.data.rows import Problem, Source
from subtext.errors import counted

_PICTURES = ("flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset", "images", "")
_LISTS = {
    "train": ("train.txt", "flickr30k_train.txt", "Flickr_8k.trainImages.txt"),
    "val": ("val.txt", "flickr30k_val.txt", "Flickr_8k.devImages.txt"),
    "test": ("test.txt", "flickr30k_test.txt", "Flickr_8k.testImages.txt"),
}


def token_file(path: Path) -> Path | None:
    """The one token file of a folder, or the file itself; None when it is none."""
    if path.is_file():
        return path if path.name.endswith((".token", ".token.txt")) else None
    found = [file for ending in ("*.token", "*.token.txt") for file in sorted(path.glob(ending))]
    # The Flickr8k archive also has lemmatised captions, and expert's and crowd's judgements.
    found = [file for file in found if "lemma" not in file.name.lower()]
    return found[0] if len(found) == 1 else None


def read_flickr(path: Path, images: Path | None) -> Source:
    """Pictures with all their captions; a text's name is that of its line (PICTURE#NUMBER)."""
    file = token_file(path)
    assert file is not None
    root = images if images is not None else file.parent
    texts: dict[str, dict[str, str]] = {}
    problems = []
    for number, line in enumerate(lines_of(file), start=1):
        name, tab, words = line.partition("\t")
        picture, mark, _ = name.rpartition("#")
        if not line.strip():
            continue
        if not tab or not mark:
            problems.append(Problem(f"line {number}", "needs PICTURE#NUMBER, a tab and the caption"))
            continue
        texts.setdefault(picture, {})[name] = words.strip()
    splits = _splits(file.parent)
    if splits and (left := [picture for picture in texts if Path(picture).stem not in splits]):
        what = f"the lists of the splits name no split for {counted(len(left), 'picture')}; left out"
        problems.append(Problem(left[0], what, fatal=False))
        texts = {picture: lines for picture, lines in texts.items() if Path(picture).stem in splits}
    folder = folder_of(texts, root, _PICTURES)
    return Source([*problems, *rows_of(_raws(texts, splits, folder), None)], root)


def _raws(
    texts: Mapping[str, Mapping[str, str]], splits: Mapping[str, str], folder: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for picture, lines in texts.items():
        columns = {
            "id": picture,
            "image": joined(folder, picture),
            "captions": list(lines.values()),
            "text_ids": list(lines),
            "split": splits.get(Path(picture).stem),
        }
        yield f"picture {picture}", columns


def _splits(folder: Path) -> dict[str, str]:
    """Picture, without its ending -> split; empty where there are no lists."""
    found = {}
    for split, names in _LISTS.items():
        for file in (folder / name for name in names if (folder / name).is_file()):
            found.update({Path(line.strip()).stem: split for line in lines_of(file) if line.strip()})
    return found
