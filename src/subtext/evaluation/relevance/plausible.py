"""Plausible matches (Chun et al. 2021): images with nearly the same objects might have each other's texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.errors import RequirementError
from subtext.evaluation.relevance.match import Match
from subtext.ops.sparse import CandidateLists


@dataclass(frozen=True)
class Labelled:
    """The part of a gallery whose images have labels, I images and T texts; the rest neither asks nor answers.

    Attributes:
        image_rows: (I) and (T) int64, which items of the gallery they are.
        text_rows: See `image_rows`.
        image_codes: (I) int64, the label set of each image.
        text_codes: (T) that of each text's image.
        codes: (U V) float32 of 0 and 1, the label sets.
    """

    image_rows: Int[np.ndarray, "i"]
    text_rows: Int[np.ndarray, "t"]
    image_codes: Int[np.ndarray, "i"]
    text_codes: Int[np.ndarray, "t"]
    codes: Float[np.ndarray, "u v"]

    def take(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Labelled | None:
        """The labelled items among the chosen ones, numbered anew; None where no image or no text is.

        Args:
            images: (I) int64 rows.
            texts: (T) int64 rows.

        Returns:
            The labelled items among them; None where there is none.
        """
        fields: dict[str, NDArray[np.int64]] = {}
        for name, rows, chosen in (("image", self.image_rows, images), ("text", self.text_rows, texts)):
            row_of = np.full(max(int(rows.max(initial=-1)), int(chosen.max(initial=-1))) + 1, -1, dtype=np.int64)
            row_of[chosen] = np.arange(len(chosen))
            present = row_of[rows] >= 0
            fields[f"{name}_rows"] = row_of[rows][present]
            fields[f"{name}_codes"] = getattr(self, f"{name}_codes")[present]
        return replace(self, **fields) if len(fields["image_rows"]) and len(fields["text_rows"]) else None

    def match(self, zeta: int) -> Match:
        """Who is plausible for whom: labels of the two images differ in at most `zeta` places.

        An image's own texts are at distance 0. Rows are those of `image_rows` and `text_rows`.

        Args:
            zeta: Number of labels that may differ, 0 or more.

        Returns:
            Positives among the labelled items.

        Raises:
            RequirementError: If the zeta is below 0.

        Complexity:
            U^2 V for U different label sets, and memory for every positive of each of these.
        """
        if zeta < 0:
            raise RequirementError(f"zeta needs to be 0 or more labels; it got {zeta}")
        sizes = self.codes.sum(axis=1)
        distances = sizes[:, None] + sizes[None, :] - 2 * self.codes @ self.codes.T
        close = distances < zeta + 0.5
        return Match(_cells(close, self.image_codes, self.text_codes), _cells(close, self.text_codes, self.image_codes))


def labelled(labels: Sequence[Collection[str] | None], owners: NDArray[np.int64]) -> Labelled:
    """From the labels of all images of a gallery, and (T) the image row that each text goes with (-1 for none).

    Images without any label, and their texts, are left out, as in the authors' code.

    Args:
        labels: Labels of each image; None or empty for none.
        owners: (T) image row of each text, -1 for none.

    Returns:
        The items with labels.

    Raises:
        RequirementError: If none has a label.

    Example:
        >>> found = labelled([{"dog"}, {"dog", "cat"}, None], np.array([0, 1, 2]))
        >>> found.text_rows.tolist(), [found.match(zeta).image_to_text.lengths.tolist() for zeta in (0, 1)]
        ([0, 1], [[1, 1], [2, 2]])
    """
    labelled_rows = np.array([row for row, label_set in enumerate(labels) if label_set], dtype=np.int64)
    if not len(labelled_rows):
        raise RequirementError(
            f"plausible matches need images with labels; none of {len(labels)} has any; give a column 'labels', or "
            "COCO's instances_*.json beside its captions"
        )
    sets = [frozenset(labels[row] or ()) for row in labelled_rows]
    numbers: dict[frozenset[str], int] = {}
    codes_of = np.array([numbers.setdefault(label_set, len(numbers)) for label_set in sets], dtype=np.int64)
    names = {name: index for index, name in enumerate(sorted(set().union(*sets)))}
    codes = np.zeros((len(numbers), len(names)), dtype=np.float32)
    for label_set, code in numbers.items():
        codes[code, [names[name] for name in label_set]] = 1
    code_of_row = np.full(len(labels) + 1, -1, dtype=np.int64)
    code_of_row[labelled_rows] = codes_of
    text_codes = code_of_row[owners]
    texts = np.flatnonzero(text_codes >= 0).astype(np.int64)
    return Labelled(labelled_rows, texts, codes_of, text_codes[texts], codes)


def of_pairs(pairs: Dataset) -> Labelled:
    """The same of a data set with a column "labels"; a text goes with the first image that names it.

    Args:
        pairs: With the column "labels" of its images.

    Returns:
        The items with labels.

    Raises:
        RequirementError: If they have none.
    """
    labels = pairs.images.metadata.get("labels", [None] * len(pairs.images))
    owners = np.full(len(pairs.texts), len(pairs.images), dtype=np.int64)
    np.minimum.at(owners, pairs.links[:, 1], pairs.links[:, 0])
    owners[owners == len(pairs.images)] = -1
    return labelled([[label_set] if isinstance(label_set, str) else label_set for label_set in labels], owners)


def _cells(close: NDArray[np.bool_], query_rows: NDArray[np.int64], answers: NDArray[np.int64]) -> CandidateLists:
    """Queries of one label set share one run of candidates."""
    order = np.argsort(answers, kind="stable").astype(np.int64)
    starts = np.searchsorted(answers[order], np.arange(len(close) + 1)).astype(np.int64)
    runs = [
        np.sort(np.concatenate([order[starts[code] : starts[code + 1]] for code in np.flatnonzero(row)]))
        for row in close
    ]
    ends = np.cumsum([len(run) for run in runs], dtype=np.int64)
    begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return CandidateLists(np.concatenate(runs), begins[query_rows], ends[query_rows])
