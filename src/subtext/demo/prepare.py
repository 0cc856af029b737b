"""The data folder of the demonstration: drawings as small pictures, and a line of texts for each."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from subtext.demo.emoji import Emoji, emoji, pictures_folder, split
from subtext.errors import RequirementError

SIDE = 72
"""Pixels of a picture's side: what a page shows it at; training scales it down further."""

CREDIT = "All emojis designed by OpenMoji – the open-source emoji and icon project. License: CC BY-SA 4.0"
_ABOUT = """# Emoji

{count:,} pictures with names in {languages} and English aliases. `split` holds out whole emoji: skin tones, genders and
directions of one emoji are never in two splits, and neither are emoji that are drawn alike.

{credit}
Names: Unicode CLDR, through the Python package `emoji`.
"""


def prepare(folder: Path, *, seed: int, limit: int | None = None, progress: Callable[[int], None] | None = None) -> int:
    """Draw every emoji into `folder`/pictures and write `folder`/metadata.jsonl; gives how many there are.

    The folder is made under another name and renamed when it is whole.

    seed   of the split          limit  the first so many emoji alone, for tests
    progress   hears how many pictures are drawn

    Raises RequirementError when a package of the demonstration is missing.
    """
    emojis = emoji()[:limit]
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        (temporary / "pictures").mkdir(parents=True)
        _draw(emojis, temporary / "pictures", progress or (lambda done: None))
        _describe(emojis, temporary, seed)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return len(emojis)


def _draw(emojis: list[Emoji], folder: Path, progress: Callable[[int], None]) -> None:
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise RequirementError(
            "the demonstration needs the package resvg-py, which is not installed; pip install 'subtext[demo]'"
        ) from error
    source = pictures_folder()

    def one(entry: Emoji) -> None:
        image = svg_to_bytes(
            svg_path=str(source / f"{entry.file}.svg"),
            width=SIDE,
            height=SIDE,
            background="#ffffff",
            skip_system_fonts=True,
        )
        (folder / f"{entry.file}.png").write_bytes(bytes(image))

    with ThreadPoolExecutor(4) as threads:
        for done, _ in enumerate(threads.map(one, emojis), start=1):
            progress(done)


def _bases(emojis: list[Emoji], pictures: Path) -> list[str]:
    """The base of each emoji; bases of which two are drawn alike, as some flags are, take the first one's name."""
    first: dict[bytes, str] = {}
    name = {entry.base: entry.base for entry in emojis}
    for entry in emojis:
        drawing = hashlib.blake2b((pictures / f"{entry.file}.png").read_bytes()).digest()
        mine, theirs = name[entry.base], name[first.setdefault(drawing, entry.base)]
        if mine != theirs:
            name = {base: theirs if joined == mine else joined for base, joined in name.items()}
    return [name[entry.base] for entry in emojis]


def _describe(emojis: list[Emoji], folder: Path, seed: int) -> None:
    splits = split(_bases(emojis, folder / "pictures"), seed=seed)
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as file:
        for entry, part in zip(emojis, splits, strict=True):
            row = {
                "file_name": f"pictures/{entry.file}.png",
                "id": entry.file,
                "captions": [words for _, words in entry.texts],
                "language": ["en" if language == "alias" else language for language, _ in entry.texts],
                "split": part,
                "emoji": entry.symbol,
                "base": entry.base,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    languages = ", ".join(sorted(Counter(language for e in emojis for language, _ in e.texts if language != "alias")))
    about = _ABOUT.format(count=len(emojis), languages=languages, credit=CREDIT)
    (folder / "README.md").write_text(about, encoding="utf-8")
