"""Which images, texts and words the audited split shares with the training split, under whatever name.

Whether a model's vocabulary is that of its training texts and of no others.

Images are compared by signatures of a few bytes, which recognise a copy that was scaled or compressed again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureFile
from subtext.data.image_files import difference_hash, open_image, read_bytes
from subtext.data.prepare import near_copies
from subtext.data.text import MARKS, Vocabulary, WordInput
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.evaluation.checks.check import Check, Outcome
from subtext.text_helpers import counted, listed

BITS = 8
"""Bits of 64 in which the hashes of two copies may differ."""
ALIKE = 0.98
"""Correlation of the greys of two copies: hashes alone confuse images of much sky."""
SIDE = 16
"""Greys a side."""
_BLOCK = 512
IMAGES_ALLOWED = 0.1
"""Per cent of audited images that may have a copy among the training images."""
TEXTS_ALLOWED = 1.0
"""Per cent of audited texts, of those that are long enough, that may have a near copy among the training texts."""
_WORDS = 10
"""Texts shorter than this are not compared: people describe different images by the same few words."""
_JACCARD = 0.8
_SHOWN = 5
"""Examples in a sentence."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class ImageFingerprint:
    """An image's bytes by their hash, what is seen by another, and its greys, of mean 0 and length 1.

    Greys are None where all are the same: such an image is like every other of its kind.

    Attributes:
        digest: Hash of the bytes.
        bits: Hash of what is seen, as one number.
        greys: Grey values, of mean 0 and length 1; None where all are the same.
    """

    digest: bytes
    bits: int
    greys: NDArray[np.float32] | None


def fingerprint_images(
    items: Items, root: Path, workers: int, progress: Progress | None, before: int
) -> list[ImageFingerprint | None]:
    """What every image looks like; None for one that cannot be read.

    Args:
        items: Images.
        root: Folder that paths start from.
        workers: Threads that read images.
        progress: Is called with how many images are done, `before` included.
        before: Images that are done already, for the progress.

    Returns:
        One fingerprint per image.
    """
    looks: list[ImageFingerprint | None] = []
    for look in read_ahead(items.values, lambda value: _fingerprint(value, root), workers=workers):
        looks.append(look)
        if progress is not None:
            progress(before + len(looks))
    return looks


def _fingerprint(value: str | bytes | None, root: Path) -> ImageFingerprint | None:
    if value is None:
        return None
    try:
        digest = hashlib.blake2b(read_bytes(value, root), digest_size=16).digest()
        image = open_image(value, root, at_least=2 * SIDE, thumbnail=True)
    except DataError:
        # Images that cannot be read are counted; `data check` reports them.
        return None
    small = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32).ravel()
    centred = small - small.mean()
    length = float(np.linalg.norm(centred))
    return ImageFingerprint(digest, difference_hash(image), centred / length if length > SIDE else None)


def alike(left: list[ImageFingerprint | None], right: list[ImageFingerprint | None]) -> Iterator[tuple[int, int]]:
    """Rows of each two images with nearly the same hash and greys; in one list, given twice, the lower row first.

    Args:
        left: Fingerprints of one list of images; None for one that cannot be read.
        right: Those of the other list.

    Yields:
        A row of `left` and a row of `right`.
    """
    looks = [
        [(row, look.bits, look.greys) for row, look in enumerate(side) if look is not None and look.greys is not None]
        for side in (left, right)
    ]
    bits = [np.array([bits for _, bits, _ in side], dtype=np.uint64) for side in looks]
    for start in range(0, len(looks[0]), _BLOCK):
        first = start if left is right else 0
        near = np.bitwise_count(bits[0][start : start + _BLOCK, None] ^ bits[1][None, first:]) <= BITS
        for position, other in zip(*np.nonzero(np.triu(near, 1) if left is right else near), strict=True):
            (row, _, greys), (train_row, _, train_greys) = looks[0][start + position], looks[1][first + other]
            if float(greys @ train_greys) >= ALIKE:
                yield row, train_row


def vocabulary(
    input_spec: object, train: Sequence[str], audited: Sequence[str], *, min_count: int | None = None
) -> Check:
    """Build the vocabulary anew from the training texts and compare.

    Args:
        input_spec: The input of the text branch.
        train: Texts that the run learnt from.
        audited: Texts of the audited split.
        min_count: Occurrences below which the run treats a word as unknown; None if it does not say.

    Returns:
        How the check ended.
    """
    did = (
        "The vocabulary was built anew from the texts of the training split"
        f"{'' if min_count is None else f', words seen {min_count} times or more'}, and compared with the model's."
    )
    if not isinstance(input_spec, WordInput):
        why = f"texts are read by {type(input_spec).__name__}, which has no vocabulary made from this data"
        return Check("vocabulary", did, "not applicable", why)
    own = input_spec.vocabulary.tokens[len(MARKS) :]
    counts_of_words = Counter(word for text in train for word in tokenise(text))
    foreign = [word for word in own if not counts_of_words[word]]
    rare = [word for word in own if 0 < counts_of_words[word] < (min_count or 1)]
    lacking: list[str] = []
    if min_count is not None:
        # Where no word is frequent enough, every word that the model has is too many.
        with contextlib.suppress(DataError):
            lacking = sorted({*Vocabulary.build(train, min_count=min_count).tokens[len(MARKS) :]} - {*own})

    figures = {"words": len(own), "foreign": foreign, "rare": rare, "lacking": lacking}
    sentences = []
    if foreign:
        in_vocabulary = {word for text in audited for word in tokenise(text)}.intersection(foreign)
        sentences.append(
            f"{len(foreign):,} of {counted(len(own), 'word')} are in no training text, {len(in_vocabulary):,} of them "
            f"in the audited split ({listed(foreign, _SHOWN)})"
        )
    if rare:
        sentences.append(
            f"{counted(len(rare), 'word')} seen less than {min_count} times in training ({listed(rare, _SHOWN)})"
        )
    if lacking:
        sentences.append(f"{counted(len(lacking), 'word')} of the training texts lacking ({listed(lacking, _SHOWN)})")
    if sentences:
        return Check("vocabulary", did, "fail", "; ".join(sentences), figures)
    return Check("vocabulary", did, "pass", f"{counted(len(own), 'word')}, all of the training texts alone", figures)


def images(audited: Dataset, train: Dataset, *, workers: int = 2, progress: Progress | None = None) -> Check:
    """Copies by bytes, and by what is seen: scaled, compressed again, or in another format; no crops and no mirrors.

    Args:
        audited: The audited split.
        train: The training split.
        workers: Threads that read images.
        progress: Is called with how many images of both splits are done.

    Returns:
        How the check ended.
    """
    did = (
        "Bytes of all audited and training images were compared by hash; then a difference hash of 8 x 8 cells "
        f"({BITS} of 64 bits may differ), confirmed by greys of {SIDE} x {SIDE} (correlation {ALIKE:g} or more). "
        f"{IMAGES_ALLOWED:g} % of the audited images may have a copy. Crops and mirrored copies are not found; "
        "images of one colour are compared by their bytes alone."
    )
    looks = [
        fingerprint_images(dataset.images, dataset.root, workers, progress, before)
        for dataset, before in ((audited, 0), (train, len(audited.images)))
    ]
    missing = sum(look is None for side in looks for look in side)
    if missing == len(audited.images) + len(train.images):
        return Check("image-overlap", did, "not applicable", "no image is on disk")
    left, right = looks
    rows_of = {look.digest: row for row, look in enumerate(right) if look is not None}
    equal = {row: rows_of[look.digest] for row, look in enumerate(left) if look is not None and look.digest in rows_of}
    # Of several that are alike, the first.
    similar: dict[int, int] = {}
    for row, train_row in alike(left, right):
        similar.setdefault(row, train_row)
    check = _check("image", did, (audited.images, train.images), {**similar, **equal}, IMAGES_ALLOWED)
    kinds = (
        f" ({len(equal):,} to the byte, {len(similar.keys() - equal.keys()):,} by what is seen)"
        if equal or similar
        else ""
    )
    lacking = f"; {counted(missing, 'image')} could not be read" if missing else ""
    figures = {**check.figures, "equal": len(equal), "near": len(similar), "unread": missing}
    return replace(check, found=f"{check.found}{kinds}{lacking}", figures=figures)


def features(audited: Dataset, train: Dataset, file: FeatureFile) -> Check:
    """Images known by their features: rows that are equal to the bit.

    Args:
        audited: The audited split.
        train: The training split.
        file: Features of both splits.

    Returns:
        How the check ended.
    """
    did = (
        "Features of all audited and training images were compared, number by number, since the images themselves "
        f"are not read. {IMAGES_ALLOWED:g} % of the audited images may have a copy."
    )
    try:
        digests = [_rows(file, dataset.images) for dataset in (audited, train)]
    except DataError as error:
        return Check("image-overlap", did, "not applicable", str(error))
    rows_of = {digest: row for row, digest in enumerate(digests[1])}
    copies = {row: rows_of[digest] for row, digest in enumerate(digests[0]) if digest in rows_of}
    return _check("image", did, (audited.images, train.images), copies, IMAGES_ALLOWED)


def texts(audited: Dataset, train: Dataset, *, progress: Progress | None = None) -> Check:
    """Near copies by MinHash, confirmed exactly.

    Args:
        audited: The audited split.
        train: The training split.
        progress: Called with how many items are done.

    Returns:
        How the check ended.
    """
    did = (
        f"Texts of {_WORDS} words or more were compared by MinHash and then by the runs of three words that they "
        f"share: near copies share {_JACCARD:g} of them or more (Jaccard). {TEXTS_ALLOWED:g} % of the audited texts "
        "may have one."
    )
    left, right = (
        np.array(
            [row for row, t in enumerate(dataset.texts.values) if isinstance(t, str) and len(tokenise(t)) >= _WORDS],
            dtype=np.int64,
        )
        for dataset in (audited, train)
    )
    if not len(left) or not len(right):
        return Check("text-overlap", did, "not applicable", f"there are no texts of {_WORDS} words or more to compare")
    # Audited texts, then training texts, as a data set without images in which no group is in both.
    sides = (("audited", "test", audited.texts.take(left)), ("train", "train", train.texts.take(right)))
    items = Items(
        ids=[f"{side}/{name}" for side, _, texts in sides for name in texts.ids],
        values=[value for _, _, texts in sides for value in texts.values],
        groups=np.arange(len(left) + len(right), dtype=np.int64),
        splits=np.array([split for _, split, texts in sides for _ in texts.ids]),
    )
    none = Items([], [], np.empty(0, np.int64), np.empty(0, "<U5"))
    both = Dataset(none, items, np.empty((0, 2), np.int64), Path())
    try:
        copies = near_copies(both, threshold=_JACCARD, progress=progress)
    except RequirementError as error:
        return Check("text-overlap", did, "not applicable", str(error))
    stands_for = np.where(copies.copy_of < 0, np.arange(len(both.texts)), copies.copy_of)
    source = {int(stands_for[row]): row - len(left) for row in range(len(left), len(both.texts))}
    pairs = {
        int(left[row]): int(right[source[stands_for[row]]]) for row in range(len(left)) if stands_for[row] in source
    }
    return _check("text", did, (audited.texts, train.texts), pairs, TEXTS_ALLOWED, out_of=len(left))


def _rows(file: FeatureFile, items: Items) -> list[bytes]:
    """A hash of each item's features."""
    rows = file.rows(items.ids, items.values)
    digests: list[bytes] = []
    for start in range(0, len(rows), _BLOCK):
        some = rows[start : start + _BLOCK]
        arrays = [source.take(some) for source in (file.pooled, file.grid) if source is not None]
        for row in range(len(some)):
            digest = hashlib.blake2b(digest_size=16)
            for array in arrays:
                digest.update(np.ascontiguousarray(array[row]).tobytes())
            digests.append(digest.digest())
    return digests


def _check(
    kind: str,
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
    examples = [[audited.ids[row], train.ids[train_row]] for row, train_row in sorted(copies.items())]
    sentence = f"{len(copies):,} of {counted(count, kind)} ({share:.2g} %) have a copy among {len(train):,} of training"
    shown = ", ".join(f"'{left}' = '{right}'" for left, right in examples[:_SHOWN])
    figures = {"copies": len(copies), "of": count, "per_cent": share, "allowed": allowed, "pairs": examples}
    outcome: Outcome = "fail" if share > allowed else "pass"
    return Check(f"{kind}-overlap", did, outcome, sentence + (f", such as {shown}" if shown else ""), figures)
