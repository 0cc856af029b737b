"""The scores or the vectors of any model, from files, matched with a data set by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.api.load import Sources
from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.data.external_outputs import Output, read_scores, read_vectors
from subtext.data.read import read_pairs
from subtext.errors import DataError, RequirementError
from subtext.evaluation import ExtraMetrics, Protocol, Result, evaluate_embeddings, evaluate_matrix
from subtext.evaluation.scoring import Embedded, Matrix, Source
from subtext.evaluation.space import with_space
from subtext.models.similarity.cosine import Cosine


@dataclass(frozen=True)
class Files:
    """What was made elsewhere: one file of scores, or two of vectors (which may be the same).

    image_ids, text_ids  files of names, where those do not hold them
    similarity           of vectors: "cosine", or "dot" as they are
    """

    scores: Path | None = None
    images: Path | None = None
    texts: Path | None = None
    image_ids: Path | None = None
    text_ids: Path | None = None
    similarity: Literal["cosine", "dot"] = "cosine"

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Files | None:
        """The files among a command's options; None where there are none.

        Raises RequirementError for some that do not go together.
        """
        found = Files(
            values["scores"],
            values["image_embeddings"],
            values["text_embeddings"],
            values["image_ids"],
            values["text_ids"],
            values["similarity"],
        )
        if (found.images is None) != (found.texts is None) or (found.scores is not None and found.images is not None):
            raise RequirementError(
                "evaluation of files needs --scores, or --image-embeddings and --text-embeddings (the same file may "
                "hold both); it got another choice of these"
            )
        if found.scores is None and found.images is None:
            if found.image_ids is not None or found.text_ids is not None:
                raise RequirementError("--image-ids and --text-ids need --scores or embeddings, whose names they are")
            return None
        return found


def read_split(sources: Sources, split: str | None) -> tuple[Dataset, str]:
    """The pairs of the split, without looking at pictures; all of them where the data has no splits to choose from.

    Raises RequirementError when no data set is named, or it has several splits and none of them is named.
    """
    if sources.data is None:
        raise RequirementError("scores and embeddings need --data: the pictures, texts and pairs that they are of")
    reading = read_pairs(
        sources.data.expanduser(),
        images=sources.images,
        seed=sources.split_seed or 0,
        bad=sources.bad or "refuse",
        verify=False,
        need_images=False,
    )
    splits = sorted(reading.pairs.counts())
    if split is None and len(splits) > 1:
        raise RequirementError(f"scores and embeddings need --split: this data has {', '.join(splits)}; or --split all")
    return reading.pairs.split(split or "all"), split or "all"


@dataclass(frozen=True)
class Given:
    """What files hold, in the order of a data set.

    scores         (I T); None where there are vectors
    images, texts  vectors; None where there are scores            about  which files these are
    """

    scores: Float[Tensor, "i t"] | None
    images: Embeddings | None
    texts: Embeddings | None
    about: dict[str, Any]

    @property
    def source(self) -> Source:
        """The scores, as an evaluation reads them."""
        if self.scores is not None:
            return Matrix(self.scores)
        assert self.images is not None and self.texts is not None
        return Embedded(Cosine(), self.images, self.texts)

    def evaluated(self, pairs: Dataset, protocol: Protocol, extra: ExtraMetrics | None = None) -> Result:
        """What an evaluation finds."""
        if self.scores is not None:
            return evaluate_matrix(self.scores, pairs, protocol=protocol, extra=extra)
        assert self.images is not None and self.texts is not None
        return evaluate_embeddings(Cosine(), self.images, self.texts, pairs, protocol=protocol, extra=extra)


def opened_files(files: Files, pairs: Dataset) -> Given:
    """Read scores or vectors, and put them into the order of the pairs.

    Raises DataError for files that cannot be read or lack an item of the split.
    """
    if files.scores is not None:
        found = read_scores(files.scores, image_ids=files.image_ids, text_ids=files.text_ids)
        matrix = _matrix(found, found.rows(pairs.images), found.rows(pairs.texts, axis=1))
        return Given(matrix, None, None, {"scores": str(files.scores)})
    assert files.images is not None and files.texts is not None
    images = _embeddings(read_vectors(files.images, "image", ids=files.image_ids), pairs.images, files.similarity)
    texts = _embeddings(read_vectors(files.texts, "text", ids=files.text_ids), pairs.texts, files.similarity)
    if images.width != texts.width:
        raise DataError(
            f"pictures and texts need vectors of one width; {files.images.name} has {images.width}, {files.texts.name} "
            f"{texts.width}"
        )
    about = {"image_embeddings": str(files.images), "text_embeddings": str(files.texts), "similarity": files.similarity}
    return Given(None, images, texts, about)


def judge(
    files: Files, pairs: Dataset, protocol: Protocol, extra: ExtraMetrics, *, space: bool = False
) -> tuple[Result, dict[str, Any]]:
    """The result, and what the files are.

    space  measure alignment and uniformity too

    Raises DataError for files that cannot be read or lack an item of the split; RequirementError for `space` with
    scores.
    """
    if files.scores is not None and space:
        raise RequirementError("--space needs embeddings: scores alone have no distances among texts or pictures")
    given = opened_files(files, pairs)
    result = given.evaluated(pairs, protocol, extra)
    if space:
        assert given.images is not None and given.texts is not None
        result = with_space(result, given.images, given.texts, pairs)
    return result, given.about


def _matrix(found: Output, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> torch.Tensor:
    """The scores in the order of the data, in memory; half precision becomes float32."""
    values = found.values
    for axis, wanted in enumerate((rows, columns)):
        if len(wanted) != values.shape[axis] or not (wanted == np.arange(len(wanted))).all():
            values = values.take(wanted, axis=axis)
    return torch.from_numpy(np.array(values, dtype=np.float64 if values.dtype == np.float64 else np.float32))


def _embeddings(found: Output, items: Items, similarity: str) -> Embeddings:
    vectors = torch.from_numpy(np.array(found.values[found.rows(items)], dtype=np.float32))
    vectors = vectors[:, None] if vectors.ndim == 2 else vectors
    if similarity == "cosine":
        lengths = vectors.norm(dim=-1, keepdim=True)
        if not bool((lengths > 0).all()):
            name = items.ids[int((lengths == 0).flatten(1).any(dim=1).nonzero()[0])]
            raise DataError(f"{found.path} needs vectors that are not 0, as that of '{name}' is; or --similarity dot")
        vectors = vectors / lengths
    return Embeddings(vectors, torch.arange(len(vectors)))
