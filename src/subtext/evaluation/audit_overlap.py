"""Whether pictures or texts of the audited split stand in the training split too, under whatever name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.data.dedup import near_copies
from subtext.data.feature_file import FeatureFile
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError, counted
from subtext.evaluation.audit import Check, Outcome
from subtext.evaluation.audit_looks import ALIKE, BITS, SIDE, copies_of, looks_of

PICTURES_ALLOWED = 0.1
"""Per cent of audited pictures that may have a copy among the training pictures."""
TEXTS_ALLOWED = 1.0
"""Per cent of audited texts, of those that are long enough, that may have a near copy among the training texts."""
_WORDS = 10
"""Words below which equal texts say nothing: people describe different pictures by the same few words."""
_JACCARD = 0.8
_SHOWN = 5
_BLOCK = 512

Told = Callable[[int], None]


def pictures(audited: Dataset, train: Dataset, *, workers: int = 2, told: Told | None = None) -> Check:
    """Copies by bytes, and by what is seen: scaled, compressed again, or in another format; no crops and no mirrors.

    told  hears how many pictures of both were looked at
    """
    did = (
        "Bytes of all audited and training pictures were compared by hash; then a difference hash of 8 x 8 cells "
        f"({BITS} of 64 bits may differ), confirmed by greys of {SIDE} x {SIDE} (correlation {ALIKE:g} or more). "
        f"{PICTURES_ALLOWED:g} % of the audited pictures may have a copy. Crops and mirrored copies are not found; "
        "pictures of one colour are compared by their bytes alone."
    )
    looks = [
        looks_of(each.images, each.root, workers, told, before)
        for each, before in ((audited, 0), (train, len(audited.images)))
    ]
    missing = sum(look is None for side in looks for look in side)
    if missing == len(audited.images) + len(train.images):
        return Check("picture-overlap", did, "not applicable", "no picture is on disk")
    equal, near = copies_of(*looks)
    check = _check("picture", did, (audited.images, train.images), {**near, **equal}, PICTURES_ALLOWED)
    kinds = (
        f" ({len(equal):,} to the byte, {len(near.keys() - equal.keys()):,} by what is seen)" if equal or near else ""
    )
    lacking = f"; {counted(missing, 'picture')} could not be read" if missing else ""
    figures = {**check.figures, "equal": len(equal), "near": len(near), "unread": missing}
    return replace(check, found=f"{check.found}{kinds}{lacking}", figures=figures)


def features(audited: Dataset, train: Dataset, file: FeatureFile) -> Check:
    """Pictures known by their features: rows that are equal to the bit."""
    did = (
        "Features of all audited and training pictures were compared, number by number, since the pictures themselves "
        f"are not read. {PICTURES_ALLOWED:g} % of the audited pictures may have a copy."
    )
    try:
        seen = [_rows(file, each.images) for each in (audited, train)]
    except DataError as error:
        return Check("picture-overlap", did, "not applicable", str(error))
    known = {digest: row for row, digest in enumerate(seen[1])}
    copies = {row: known[digest] for row, digest in enumerate(seen[0]) if digest in known}
    return _check("picture", did, (audited.images, train.images), copies, PICTURES_ALLOWED)


def texts(audited: Dataset, train: Dataset, *, told: Told | None = None) -> Check:
    """Near copies by MinHash, confirmed exactly."""
    did = (
        f"Texts of {_WORDS} words or more were compared by MinHash and then by the runs of three words that they "
        f"share: near copies share {_JACCARD:g} of them or more (Jaccard). {TEXTS_ALLOWED:g} % of the audited texts "
        "may have one."
    )
    mine, theirs = (_long(each.texts) for each in (audited, train))
    if not len(mine) or not len(theirs):
        return Check("text-overlap", did, "not applicable", f"there are no texts of {_WORDS} words or more to compare")
    both = _joined(audited.texts.take(mine), train.texts.take(theirs))
    try:
        copies = near_copies(both, threshold=_JACCARD, told=told)
    except RequirementError as error:
        return Check("text-overlap", did, "not applicable", str(error))
    stands_for = np.where(copies.copy_of < 0, np.arange(len(both.texts)), copies.copy_of)
    source = {int(stands_for[row]): row - len(mine) for row in range(len(mine), len(both.texts))}
    pairs = {
        int(mine[row]): int(theirs[source[stands_for[row]]]) for row in range(len(mine)) if stands_for[row] in source
    }
    return _check("text", did, (audited.texts, train.texts), pairs, TEXTS_ALLOWED, out_of=len(mine))


def _rows(file: FeatureFile, items: Items) -> list[bytes]:
    """A hash of each item's features."""
    rows = file.rows(items.ids, items.values)
    found: list[bytes] = []
    for start in range(0, len(rows), _BLOCK):
        some = rows[start : start + _BLOCK]
        arrays = [source.take(some) for source in (file.pooled, file.grid) if source is not None]
        for place in range(len(some)):
            digest = hashlib.blake2b(digest_size=16)
            for array in arrays:
                digest.update(np.ascontiguousarray(array[place]).tobytes())
            found.append(digest.digest())
    return found


def _long(items: Items) -> NDArray[np.int64]:
    """Rows of texts that are long enough to be told apart."""
    texts = enumerate(items.values)
    return np.array([row for row, t in texts if isinstance(t, str) and len(tokenise(t)) >= _WORDS], dtype=np.int64)


def _joined(mine: Items, theirs: Items) -> Dataset:
    """Audited texts, then training texts, as a data set without pictures in which no group is in both."""
    count = len(mine) + len(theirs)
    names = [f"{side}/{name}" for side, items in (("audited", mine), ("train", theirs)) for name in items.ids]
    both = Items(
        ids=names,
        values=[*mine.values, *theirs.values],
        groups=np.arange(count, dtype=np.int64),
        splits=np.array(["test"] * len(mine) + ["train"] * len(theirs)),
    )
    none = Items([], [], np.empty(0, np.int64), np.empty(0, "<U5"))
    return Dataset(none, both, np.empty((0, 2), np.int64), Path())


def _check(
    what: str,
    did: str,
    items: tuple[Items, Items],
    copies: dict[int, int],
    allowed: float,
    *,
    out_of: int | None = None,
) -> Check:
    """The verdict on copies: audited row -> training row."""
    audited, train = items
    count = out_of or len(audited)
    share = 100 * len(copies) / max(1, count)
    examples = [[audited.ids[row], train.ids[other]] for row, other in sorted(copies.items())]
    told = f"{len(copies):,} of {counted(count, what)} ({share:.2g} %) have a copy among {len(train):,} of training"
    shown = ", ".join(f"'{mine}' = '{theirs}'" for mine, theirs in examples[:_SHOWN])
    figures = {"copies": len(copies), "of": count, "per_cent": share, "allowed": allowed, "pairs": examples}
    outcome: Outcome = "fail" if share > allowed else "pass"
    return Check(f"{what}-overlap", did, outcome, told + (f", such as {shown}" if shown else ""), figures)
