"""Drawings with texts as a data set: small images, and splits by what is drawn."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subtext.data.rows import components
from subtext.errors import RequirementError
from subtext.ops import draw
from subtext.text_helpers import install_hint

SIDE = 128
"""Pixels of an image's side."""
_ABOUT = """# Drawings

{count:,} images with names in {languages}, aliases and tags. `split` holds out whole concepts: skin tones, genders and
directions of one emoji, variants of one icon, an emoji and an icon of the same name, and images that are drawn alike
are never in two splits. Texts that are queries of the demonstration are left out.

{credit}
"""


@dataclass(frozen=True)
class Drawing:
    """One image and its texts.

    Attributes:
        id: Name of the image's file, without suffix.
        symbol: The emoji itself; empty for an icon.
        base: What its variants share.
        texts: (language, words): English first; aliases have the language "alias".
        svg: The drawing, or its file.
    """

    id: str
    symbol: str
    base: str
    texts: tuple[tuple[str, str], ...]
    svg: str | Path


def distinct(texts: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Remove repetitions of texts, whatever their case, and double spaces.

    Args:
        texts: Language and text.

    Returns:
        The distinct ones in order.
    """
    unique: dict[str, tuple[str, str]] = {}
    for language, text in texts:
        words = " ".join(text.split())
        unique.setdefault(words.casefold(), (language, words))
    return tuple(unique.values())


def concepts(drawings: Sequence[Drawing], alike: Sequence[object]) -> list[str]:
    """Name the concept of each drawing: its base, joined with others that are drawn alike or have the same name.

    Args:
        drawings: The drawings.
        alike: One value per drawing, equal for those that are drawn alike.

    Returns:
        (N) concepts.
    """
    # An emoji and an icon of one name: the base of an icon is a name.
    names = {entry.base for entry in drawings if not entry.symbol}
    edges: list[tuple[object, object]] = []
    for entry, image in zip(drawings, alike, strict=True):
        edges.append((entry.base, ("drawn", image)))
        english = {text.casefold() for language, text in entry.texts if language in ("en", "alias")}
        edges += [(entry.base, text) for text in sorted(english & names) if entry.symbol]
    joined = components(edges)
    return [str(joined[entry.base]) for entry in drawings]


def split(bases: Sequence[str], *, seed: int, share: float = 0.1, test: Collection[str] = ()) -> list[str]:
    """Split whole bases into train, val and test, `share` of all images for val and for test each.

    A base goes where its own draw puts it, so every variant of a held-out emoji is held out. Those of `test` are in
    the test split beside the drawn ones.

    Args:
        bases: (N) base of each image.
        seed: Seed of the split.
        share: Of all images, in (0, 0.5).
        test: Bases that are always in the test split.

    Returns:
        (N) "train", "val" or "test".
    """
    names, counts = np.unique(np.array(bases), return_counts=True)
    samples = draw.uniform(draw.keys([str(name) for name in names]), seed=seed, epoch=0, purpose="demo split")[:, 0]
    order = np.argsort(samples, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    edges = share * len(bases)
    part = {
        str(names[row]): "test" if start < edges else "val" if start < 2 * edges else "train"
        for row, start in zip(order, before, strict=True)
    }
    return ["test" if base in test else part[base] for base in bases]


def write_drawings(
    folder: Path,
    drawings: Sequence[Drawing],
    *,
    seed: int,
    credit: str,
    held_out: Callable[[Drawing], bool],
    left_out: Collection[str],
    progress: Callable[[int], None],
) -> None:
    """Draw all into `folder`/images and write `folder`/metadata.jsonl, complete or not at all.

    Args:
        folder: The new folder.
        drawings: The drawings.
        seed: Of the split.
        credit: Of those who drew.
        held_out: Whether the concept of a drawing is always in the test split.
        left_out: Texts that are not written, in lower case.
        progress: Gets the number of images.

    Raises:
        RequirementError: If a package of the demonstration is missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise missing("resvg-py") from error
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)

    def draw_image(entry: Drawing) -> bytes:
        source: dict[str, Any] = (
            {"svg_path": str(entry.svg)} if isinstance(entry.svg, Path) else {"svg_string": entry.svg}
        )
        png = bytes(svg_to_bytes(**source, width=SIDE, height=SIDE, background="#ffffff", skip_system_fonts=True))
        (temporary / "images" / f"{entry.id}.png").write_bytes(png)
        return hashlib.blake2b(png).digest()

    try:
        (temporary / "images").mkdir(parents=True)
        digests = []
        with ThreadPoolExecutor(4) as threads:
            for digest in threads.map(draw_image, drawings):
                digests.append(digest)
                progress(len(digests))
        bases = concepts(drawings, digests)
        test = {base for base, entry in zip(bases, drawings, strict=True) if held_out(entry)}
        splits = split(bases, seed=seed, test=test)
        with (temporary / "metadata.jsonl").open("w", encoding="utf-8") as file:
            for entry, base, split_name in zip(drawings, bases, splits, strict=True):
                texts = [(language, words) for language, words in entry.texts if words.casefold() not in left_out]
                row = {
                    "file_name": f"images/{entry.id}.png",
                    "id": entry.id,
                    "captions": [words for _, words in texts],
                    "language": ["en" if language == "alias" else language for language, _ in texts],
                    "split": split_name,
                    "set": "emoji" if entry.symbol else "lucide",
                    "emoji": entry.symbol,
                    "base": base,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        languages = ", ".join(sorted({language for entry in drawings for language, _ in entry.texts} - {"alias"}))
        about = _ABOUT.format(count=len(drawings), languages=languages, credit=credit)
        (temporary / "README.md").write_text(about, encoding="utf-8")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def missing(package: str) -> RequirementError:
    """Make the error for a package of the demonstration that is not installed.

    Args:
        package: Its name.

    Returns:
        The error.
    """
    return RequirementError(
        f"the demonstration needs the package {package}, which is not installed; {install_hint('demo')}"
    )
