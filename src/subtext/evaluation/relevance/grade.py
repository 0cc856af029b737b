"""The relevance of a data set by its name: "tfidf1", "ciderd", "sentence:all-MiniLM-L6-v2", ...

Matrices of relevance on disk, by what they were made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.data.atomic import write_file
from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError
from subtext.evaluation.relevance import cider, classes, sentence, tfidf
from subtext.evaluation.relevance.graded import Graded, of_judgements
from subtext.models.encoders.language import SentenceEncoder

NAMES = ("tfidf1", "ciderd", "cider", "class_tfidf1", "judged", "sentence:MODEL")
_SENTENCE = "sentence:"
_OTHERS = "-others"


@dataclass(frozen=True)
class Asked:
    """How a relevance is computed.

    references    texts of a picture that it is known by, the first so many of them; None for all. DAA's tables: 5
    exclude_self  a picture's own text is compared with its other texts only; the published figures keep it in. The
                  relevance then is another one, and is called NAME-others
    precision     of the values; float16 takes half the memory and makes ties of what differs by less than 0.0005
    cache         a folder where matrices are kept; None computes them each time
    device        what a sentence encoder runs on
    """

    references: int | None = None
    exclude_self: bool = False
    precision: Literal["float32", "float16"] = "float32"
    cache: Path | None = None
    device: str = "cpu"


def check(name: str) -> None:
    """Raise RequirementError unless `graded` knows this name."""
    if name not in NAMES[:-1] and not (name.startswith(_SENTENCE) and name != _SENTENCE):
        raise RequirementError(f"a relevance is one of {', '.join(NAMES)}; it got '{name}'")


def graded(pairs: Dataset, name: str = tfidf.NAME, asked: Asked | None = None) -> Graded:
    """How related every picture and text of a data set, or of one of its splits, are under the named relevance.

    A picture is known by the texts that rows of the data name it with; word counts are learnt from these.

    name  of `NAMES`: unigram TF-IDF cosine; CIDEr-D; plain CIDEr; CUB's by class, whose classes are the column
          "labels"; the judgements that the data brings; the cosine of any sentence encoder, by hub name or folder

    Raises RequirementError for an unknown name, or where the data has not what it reads; DataError for items without
    words.
    """
    check(name)
    how = asked or Asked()
    if name == "judged":
        if pairs.judgements is None:
            raise RequirementError("the relevance 'judged' needs judgements; this data set brings none; name another")
        return of_judgements(pairs.judgements, images=len(pairs.images), texts=len(pairs.texts))
    texts = _words(pairs)
    links = _first(pairs.links, how.references)
    shown = name
    if name.startswith(_SENTENCE):
        shown = _SENTENCE + Path(name.removeprefix(_SENTENCE)).name
    self_columns = links[:, 1] if how.exclude_self else None
    fill: Callable[..., object]
    if name == classes.NAME:
        if how.exclude_self:
            raise RequirementError(f"'{name}' compares each text with itself, too; leave exclude_self out")
        fill = partial(_by_class, pairs, links, texts)
    else:
        fill = partial(_filled, name, [texts[row] for row in links[:, 1]], links[:, 0], texts, self_columns, how)
    shape = (len(pairs.images), len(pairs.texts))
    if how.cache is None:
        values: NDArray[np.floating] = np.empty(shape, dtype=how.precision)
        fill(values)
    else:
        about = {
            "relevance": name,
            "texts": digest(texts),
            "links": digest_numbers(links[:, 0], links[:, 1]),
            "self": how.exclude_self,
            "model": _stamp(name.removeprefix(_SENTENCE)) if name.startswith(_SENTENCE) else "",
            "labels": digest(classes.of_pairs(pairs)[0]) if name == classes.NAME else "",
        }
        values = kept(how.cache, about, shape=shape, precision=how.precision, fill=fill)
    return Graded(shown + _OTHERS if how.exclude_self else shown, values)


def _filled(
    name: str,
    references: list[str],
    groups: NDArray[np.int64],
    texts: list[str],
    self_columns: NDArray[np.int64] | None,
    how: Asked,
    out: NDArray[np.floating],
) -> None:
    count = out.shape[0]
    if name == tfidf.NAME:
        tfidf.relevance(references, groups, texts, count=count, self_columns=self_columns, out=out)
    elif name in ("ciderd", "cider"):
        variant: cider.Variant = "ciderd" if name == "ciderd" else "cider"
        cider.relevance(references, groups, texts, variant=variant, count=count, self_columns=self_columns, out=out)
    else:
        encoder = SentenceEncoder(name.removeprefix(_SENTENCE), device=how.device)
        sentence.relevance(references, groups, texts, encoder=encoder, count=count, self_columns=self_columns, out=out)


def _by_class(pairs: Dataset, links: NDArray[np.int64], texts: list[str], out: NDArray[np.floating]) -> None:
    images, mine = classes.of_pairs(pairs)
    codes = {label: code for code, label in enumerate(dict.fromkeys(images))}
    of_image = np.array([codes[label] for label in images], dtype=np.int64)
    of_text = np.array([codes[label] for label in mine], dtype=np.int64)
    references = [texts[row] for row in links[:, 1]]
    out[:] = classes.relevance(references, of_image[links[:, 0]], texts, of_text, count=len(codes))[of_image]


def _words(pairs: Dataset) -> list[str]:
    texts = [value for value in pairs.texts.values if isinstance(value, str)]
    if len(texts) != len(pairs.texts):
        name = next(n for n, v in zip(pairs.texts.ids, pairs.texts.values, strict=True) if not isinstance(v, str))
        raise DataError(f"relevance needs words for every text; '{name}' has none, it is known by features alone")
    return texts


def _first(links: NDArray[np.int64], count: int | None) -> NDArray[np.int64]:
    """The first so many links of each picture, in the order of the rows."""
    if count is None:
        return links
    if count < 1:
        raise RequirementError(f"a picture needs at least one reference; it got {count}")
    order = np.argsort(links[:, 0], kind="stable")
    ordered = links[order, 0]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    return links[np.sort(order[rank < count])]


def _stamp(model: str) -> list[list[object]]:
    """The files of a model that is a folder: its weights may change while its name stays."""
    folder = Path(model)
    if not folder.is_dir():
        return []
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(folder.iterdir())]


_FORM = 1
"""Raised when the same texts and settings come to give other numbers."""


def kept(
    folder: Path,
    about: Mapping[str, object],
    *,
    shape: tuple[int, int],
    precision: str,
    fill: Callable[[NDArray[np.floating]], object],
) -> Float[np.ndarray, "g c"]:
    """The matrix of these settings, mapped: as `fill` wrote it into an array of that shape, now or another time.

    about      whatever the numbers depend on, as JSON; texts by their `digest`
    precision  "float32" or "float16"

    Raises DataError when the file is damaged; OutputError when it cannot be written.
    """
    settings = {"form": _FORM, "shape": shape, "precision": precision, **about}
    name = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()
    path = folder / f"{name}.npy"
    if not path.is_file():

        def write(new: Path) -> None:
            array = np.lib.format.open_memmap(new, mode="w+", dtype=np.dtype(precision), shape=shape)
            fill(array)
            array.flush()

        write_file(path, write)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}; remove it, it is made again") from error
    if values.shape != shape or values.dtype != np.dtype(precision):
        raise DataError(f"{path} is damaged: it holds {values.shape} of {values.dtype}; remove it, it is made again")
    return values


def digest(texts: Iterable[str]) -> str:
    """32 hexadecimal digits that change with any text and with their order."""
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        coded = text.encode("utf-8", "surrogatepass")
        hasher.update(len(coded).to_bytes(8, "little"))
        hasher.update(coded)
    return hasher.hexdigest()


def digest_numbers(*arrays: NDArray[np.int64]) -> str:
    """The same of numbers."""
    hasher = hashlib.blake2b(digest_size=16)
    for array in arrays:
        hasher.update(len(array).to_bytes(8, "little"))
        hasher.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return hasher.hexdigest()
