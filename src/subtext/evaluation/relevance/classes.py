"""Classes: what is of one kind belongs together, as CUB Captions is measured (Chun et al. 2021, Li et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.errors import DataError, RequirementError
from subtext.evaluation.relevance.grams import corpus
from subtext.evaluation.relevance.tfidf import unit_rows
from subtext.ops.compiled.group_products import Terms, group_products

NAME = "class_tfidf1"
_EPSILON = 1e-6
_ROUNDING = 4e-7
_BLOCK_CELLS = 2**25
_COMPILED_CELLS = 2**24
"""Cells of texts by texts from which compiling the kernel pays."""


def of_pairs(pairs: Dataset) -> tuple[list[str], list[str]]:
    """The class of every image and of every text of a data set; a text has that of the image that names it.

    Args:
        pairs: With the column "labels" of its images.

    Returns:
        (I) and (T) names of the classes.

    Raises:
        RequirementError: If an image has no label in the column "labels" or several, or a text no image.
    """
    images = []
    column = pairs.images.metadata.get("labels", [None] * len(pairs.images))
    for name, value in zip(pairs.images.ids, column, strict=True):
        labels = [value] if isinstance(value, str) else list(value or ())
        if len(labels) != 1:
            raise RequirementError(
                f"classes need one label an image in 'labels'; '{name}' has {len(labels)}; plausible matches read "
                "several"
            )
        images.append(str(labels[0]))
    owners = np.full(len(pairs.texts), len(images), dtype=np.int64)
    np.minimum.at(owners, pairs.links[:, 1], pairs.links[:, 0])
    single = np.flatnonzero(owners == len(images))
    if len(single):
        raise RequirementError(f"classes need an image for every text; '{pairs.texts.ids[single[0]]}' has none")
    return images, [images[row] for row in owners]


def relevance(
    references: Sequence[str],
    groups: Sequence[int] | NDArray[np.int64],
    candidates: Sequence[str],
    classes: Sequence[int] | NDArray[np.int64],
    *,
    count: int | None = None,
) -> Float[np.ndarray, "g c"]:
    """The relevance of Li et al. 2022 for CUB: how near a text is to the texts of a class, (G C).

        m[k, c] = mean over texts r of class k of -ln(1 - x(r) . x(c) + 1e-6)        x as in `tfidf.products`
        C[k, c] = m[k, c] + (c is of class k) * mean over c' of class k of m[k, c']

    A text against itself counts 13.8, where two that share nothing count 0. The authors' release trains on it and
    measures nothing by it; the term of the own class is as in their code.

    Args:
        references: Texts.
        groups: (R) the class of each, from 0.
        candidates: Texts.
        classes: (C) the class of each.
        count: G; None for as many as groups names.

    Returns:
        (G C) float32.

    Raises:
        DataError: If texts and classes do not agree.

    Complexity:
        One cosine for every two texts, in blocks.
    """
    texts = corpus(references, groups, candidates, count)
    kinds = np.asarray(classes, dtype=np.int64)
    if kinds.shape != (len(candidates),):
        raise DataError(f"a class is needed for each of {len(candidates)} candidates; it got shape {kinds.shape}")
    rows = unit_rows(texts)
    answers = rows.take(texts.candidates)
    sums = np.zeros((texts.count, len(candidates)), dtype=np.float64)
    order = np.argsort(texts.groups, kind="stable")
    step = max(1, _BLOCK_CELLS // max(1, len(candidates)))
    compiled = len(order) * len(candidates) >= _COMPILED_CELLS
    for start in range(0, len(order), step):
        chosen = order[start : start + step]
        terms = Terms(rows.take(texts.references[chosen]), np.arange(len(chosen)), answers, len(chosen))
        cosines = group_products(terms, kernel=compiled)
        # The logarithm would magnify the rounding of a text against the same words.
        cosines[cosines > 1 - _ROUNDING] = 1
        distances = -np.log(1 - cosines + np.float32(_EPSILON))
        for kind in np.unique(texts.groups[chosen]):
            sums[kind] += distances[texts.groups[chosen] == kind].sum(axis=0, dtype=np.float64)
    means = sums / np.maximum(texts.sizes, 1)[:, None]
    for kind in np.unique(kinds[(kinds >= 0) & (kinds < texts.count)]):
        means[kind, kinds == kind] += means[kind, kinds == kind].mean()
    return means.astype(np.float32)


def relevance_of(
    pairs: Dataset, references: Sequence[str], images: NDArray[np.int64], candidates: Sequence[str]
) -> Float[np.ndarray, "i c"]:
    """The same for every image of a data set, whose texts are the candidates.

    Args:
        pairs: With the column "labels" of its images.
        references: Texts of images.
        images: (R) the image of each.
        candidates: (C) texts.

    Returns:
        (I T) float32.
    """
    image_classes, text_classes = of_pairs(pairs)
    codes = {label: code for code, label in enumerate(dict.fromkeys(image_classes))}
    of_image, of_text = (
        np.array([codes[label] for label in labels], dtype=np.int64) for labels in (image_classes, text_classes)
    )
    return relevance(references, of_image[images], candidates, of_text, count=len(codes))[of_image]
