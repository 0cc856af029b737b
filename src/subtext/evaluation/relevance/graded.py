"""Graded relevance: a number for each image and each text, by one named definition.

The relevance of a data set by its name ("tfidf1", "ciderd", "sentence:all-MiniLM-L6-v2", ...), and its matrix on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.core import Direction, Truth
from subtext.data.atomic import write_file
from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError, ShapeError
from subtext.evaluation.relevance import cider, classes, tfidf
from subtext.evaluation.relevance.grams import corpus
from subtext.evaluation.relevance.match import Match, positions_in_groups

SHORT = {"tfidf": tfidf.NAME}
"""Short names."""
NAMES = ("tfidf1", "ciderd", "cider", "class_tfidf1", "judged", "sentence:MODEL")
_SENTENCE = "sentence:"
BLOCK_BYTES = 2**26
"""About as much of a matrix is read at a time."""
SENTENCE_GROUPS = 512
"""Groups whose mean vectors are multiplied at a time."""
_FORM = 1
"""Raised when the same texts and settings come to give other numbers."""


@dataclass(frozen=True)
class Graded:
    """Relevance in degrees between I images and T texts; one matrix serves both directions.

    Attributes:
        name: What it was computed with ("tfidf1", "ciderd", ...): part of the name of every metric that reads it,
            because figures under two relevances cannot be compared.
        values: (I T) float16 or float32, finite, larger is more; in memory or mapped from a file, and never transposed.

    Raises:
        ShapeError: If the values are no such matrix.

    Example:
        >>> graded = Graded("made", np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]], dtype=np.float32))
        >>> graded.block("text_to_image", 1, 3).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """

    name: str
    values: Float[np.ndarray, "i t"]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype not in (np.float16, np.float32):
            raise ShapeError(
                f"Graded.values needs (images, texts) of float16 or float32; it got {self.values.shape} of "
                f"{self.values.dtype}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """I and T."""
        return (self.values.shape[0], self.values.shape[1])

    def block(self, direction: Direction, start: int, stop: int) -> Float[np.ndarray, "q c"]:
        """Queries start to stop against all candidates, float32 row after row.

        Args:
            direction: Which side asks.
            start: First query.
            stop: Query after the last.

        Returns:
            (Q C) float32.

        Raises:
            DataError: If it names the first value which is no finite number.
        """
        cut = self.values[start:stop] if direction == "image_to_text" else self.values[:, start:stop].T
        block = np.ascontiguousarray(cut, dtype=np.float32)
        # A sum is finite where all are, but for an overflow that float32 values of any known relevance never reach.
        if not np.isfinite(block.sum(dtype=np.float64)):
            query, candidate = np.argwhere(~np.isfinite(block))[0]
            raise DataError(
                f"the relevance {self.name} needs finite numbers; {direction} query {start + query}, candidate "
                f"{candidate} has {block[query, candidate]}"
            )
        return block

    def blocks(
        self, direction: Direction, block_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[int, int, Float[np.ndarray, "q c"]]]:
        """All queries of a direction in order: start, stop and their block.

        Args:
            direction: Which side asks.
            block_bytes: Memory of a block.

        Returns:
            First query, query after the last, and (Q C) relevance of each block.
        """
        queries, candidates = self.shape if direction == "image_to_text" else self.shape[::-1]
        rows = max(1, block_bytes // (4 * max(1, candidates)))
        for start in range(0, queries, rows):
            stop = min(queries, start + rows)
            yield start, stop, self.block(direction, start, stop)

    def take(self, image_rows: NDArray[np.int64], text_rows: NDArray[np.int64]) -> Graded:
        """The chosen images and texts, as one fold of a gallery needs them; what was learnt from all stays so.

        Args:
            image_rows: (I) int64.
            text_rows: (T) int64.

        Returns:
            The relevance among them.
        """
        return replace(self, values=np.ascontiguousarray(self.values[image_rows][:, text_rows]))

    def truth(self, direction: Direction, start: int, stop: int, match: Match) -> Truth:
        """Queries start to stop as a Comparison needs them: who belongs together, and how much all others do.

        Args:
            direction: Which side asks.
            start: First query.
            stop: Query after the last.
            match: Who belongs together.

        Returns:
            (Q C) positives and relevance.
        """
        matches = match.truth(direction, start, stop)
        relevance = torch.from_numpy(self.block(direction, start, stop))
        return Truth(match=matches.match, ignored=matches.ignored, relevance=relevance, scale=self.name)


def check(name: str) -> None:
    """Check that `graded` knows a name.

    Args:
        name: Of `NAMES`, or "tfidf".

    Raises:
        RequirementError: If it does not.
    """
    if SHORT.get(name, name) not in NAMES[:-1] and not (name.startswith(_SENTENCE) and name != _SENTENCE):
        raise RequirementError(f"a relevance is one of {', '.join(NAMES)}; it got '{name}'")


def graded(
    pairs: Dataset,
    name: str = tfidf.NAME,
    *,
    references: int | None = None,
    cache: Path | None = None,
    device: str = "cpu",
) -> Graded:
    """How related every image and text of a data set, or of one of its splits, are under the named relevance.

    An image is known by the texts that rows of the data name it with; word counts are learnt from these.

    Args:
        pairs: I images and T texts.
        name: Of `NAMES`: unigram TF-IDF cosine; CIDEr-D; plain CIDEr; CUB's by class, whose classes are the column
            "labels"; the judgements that the data brings; the cosine of any sentence encoder, by hub name or folder.
        references: Texts of an image that it is known by, the first N of them; None for all. DAA's tables: 5.
        cache: A folder where matrices are kept; None computes them each time.
        device: What a sentence encoder runs on.

    Returns:
        (I T) relevance.

    Raises:
        RequirementError: For an unknown name, or where the data has not what it reads.
        DataError: For items without words, and for a damaged file in the cache.
        OutputError: If the cache cannot be written.
    """
    check(name)
    name = SHORT.get(name, name)
    shape = (len(pairs.images), len(pairs.texts))
    if name == "judged":
        if pairs.judgements is None:
            raise RequirementError("the relevance 'judged' needs judgements; this data set brings none; name another")
        # What nobody judged is 0.
        degrees = np.zeros(shape, dtype=np.float32)
        degrees[pairs.judgements.images, pairs.judgements.texts] = pairs.judgements.scores
        return Graded(name, degrees)
    if references is not None and references < 1:
        raise RequirementError(f"an image needs at least one reference; it got {references}")
    texts = [value for value in pairs.texts.values if isinstance(value, str)]
    if len(texts) != len(pairs.texts):
        item = next(n for n, v in zip(pairs.texts.ids, pairs.texts.values, strict=True) if not isinstance(v, str))
        raise DataError(
            f"relevance needs words for every text; '{item}' has none, it is known by features alone", field="relevance"
        )
    links = pairs.links
    if references is not None:
        links = links[positions_in_groups(links[:, 0]) < references]
    encoder = name.removeprefix(_SENTENCE) if name.startswith(_SENTENCE) else ""

    def fill(out: NDArray[np.floating]) -> None:
        words = [texts[row] for row in links[:, 1]], links[:, 0], texts
        if name == classes.NAME:
            out[:] = classes.relevance_of(pairs, *words)
        elif encoder:
            from subtext.models.encoders.language import SentenceEncoder  # transformers takes seconds to import

            sentence_relevance(*words, encoder=SentenceEncoder(encoder, device=device), count=len(out), out=out)
        elif name == tfidf.NAME:
            tfidf.products(*words, count=len(out)).all(out)
        else:
            variant: cider.Variant = "ciderd" if name == "ciderd" else "cider"
            cider.products(*words, variant=variant, count=len(out)).all(out)

    if cache is None:
        values: NDArray[np.floating] = np.empty(shape, dtype=np.float32)
        fill(values)
    else:
        # The weights of a model that is a folder may change while its name stays.
        files = sorted(Path(encoder).iterdir()) if encoder and Path(encoder).is_dir() else []
        stamps = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
        about = {
            "relevance": name,
            "texts": _digest(texts),
            "links": _digest(links.T),
            "self": False,  # As in the names of files that are there already.
            "model": stamps if encoder else "",
            "labels": _digest(classes.of_pairs(pairs)[0]) if name == classes.NAME else "",
        }
        values = cached(cache, about, shape=shape, fill=fill)
    return Graded(_SENTENCE + Path(encoder).name if encoder else name, values)


def cached(
    folder: Path, about: Mapping[str, object], *, shape: tuple[int, int], fill: Callable[[NDArray[np.floating]], object]
) -> Float[np.ndarray, "g c"]:
    """The matrix of these settings, mapped: as `fill` wrote it into an array of that shape, now or another time.

    Args:
        folder: Where matrices are kept.
        about: Whatever the numbers depend on, as JSON.
        shape: Of the matrix.
        fill: Writes the matrix into an array.

    Returns:
        The matrix, mapped read-only.

    Raises:
        DataError: If a file is damaged.
    """
    settings = {"form": _FORM, "shape": shape, "precision": "float32", **about}
    name = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()
    path = folder / f"{name}.npy"
    if not path.is_file():

        def write(new: Path) -> None:
            array = np.lib.format.open_memmap(new, mode="w+", dtype=np.dtype(np.float32), shape=shape)
            fill(array)
            array.flush()

        write_file(path, write)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; remove it, it is made again") from error
    if values.shape != shape or values.dtype != np.float32:
        raise DataError(f"{path} is damaged: it holds {values.shape} of {values.dtype}; remove it, it is made again")
    return values


def _digest(parts: Iterable[str] | NDArray[np.int64]) -> str:
    """32 hexadecimal digits that change with any text or row of numbers, and with their order."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part.astype("<i8").tobytes()
        hasher.update((len(content) if isinstance(part, str) else len(part)).to_bytes(8, "little"))
        hasher.update(content)
    return hasher.hexdigest()


def sentence_relevance(
    references: Sequence[str],
    groups: Sequence[int] | NDArray[np.int64],
    candidates: Sequence[str],
    *,
    encoder: Callable[[Sequence[str]], Float[np.ndarray, "n d"]],
    count: int | None = None,
    out: Float[np.ndarray, "g c"] | None = None,
) -> Float[np.ndarray, "g c"]:
    """Mean over the references of a group of their cosine with a candidate, (G C) in [-1, 1].

    The other arguments are those of `tfidf.products`, and of its `all`. A group without references is a row of 0.

    Args:
        references: (R) texts of the groups.
        groups: (R) group of each reference, from 0.
        candidates: (C) texts.
        encoder: Reads each different text once, such as a `SentenceEncoder`; vectors of any length but zero.
        count: Number of groups; None for the largest plus one.
        out: (G C) array to write to; None for a new one.

    Returns:
        (G C) float32.

    Raises:
        DataError: If texts and groups do not agree, or the encoder gives a vector without a direction.
        ShapeError: If `out` is not (G C).
    """
    texts = corpus(references, groups, candidates, count)
    vectors = np.asarray(encoder(texts.texts), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        broken = texts.texts[int(np.argmin(np.isfinite(lengths) & (lengths > 0)))]
        raise DataError(f"a cosine needs vectors with a direction; the encoder gave none for {broken[:80]!r}")
    vectors = vectors / lengths
    sizes = texts.sizes
    means = np.zeros((texts.count, vectors.shape[1]), dtype=np.float32)
    np.add.at(means, texts.groups, vectors[texts.references])
    means /= np.maximum(sizes, 1)[:, None]
    shape = (texts.count, len(texts.candidates))
    values = np.empty(shape, dtype=np.float32) if out is None else out
    if values.shape != shape:
        raise ShapeError(f"sentence relevance needs out of (groups, candidates) = {shape}; it got {values.shape}")
    answers = torch.from_numpy(np.ascontiguousarray(vectors[texts.candidates].T))
    for start in range(0, texts.count, SENTENCE_GROUPS):
        values[start : start + SENTENCE_GROUPS] = (
            torch.from_numpy(means[start : start + SENTENCE_GROUPS]) @ answers
        ).numpy()
    return values
