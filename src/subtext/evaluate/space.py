"""The shape of a joint space, beside a Result's figures: alignment, uniformity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.pairs import Pairs
from subtext.evaluate.result import Result
from subtext.metrics.geometry import alignment, uniformity
from subtext.ops.numerics import masked_mean
from subtext.relevance import match as matching


def with_space(result: Result, images: Embeddings, texts: Embeddings, pairs: Pairs) -> Result:
    """The result, with the figures of `space`."""
    return replace(result, figures=result.figures | space(images, texts, pairs))


def space(images: Embeddings, texts: Embeddings, pairs: Pairs) -> dict[str, float]:
    """How near partners are in the joint space, and how far apart everything else; what has no value is left out.

    alignment           mean distance of a picture and a text that belong together
    text/alignment      of two texts of one picture, each with the next
    image/uniformity, text/uniformity   mean distance of different pictures, and of texts of different groups; with
                        _variance and _potential (log mean exp(-2 d^2))
    image/uncertainty, text/uncertainty  of distributions: the mean over items of `Embeddings.uncertainty`, with
                        _deviation

    Distances are Euclidean, of unit vectors; of an item with several views the mean of its views counts, and of one
    that is compared by its parts the mean of its regions or words: its pair has no say in that.
    Cost   N^2 distances of each modality.
    """
    rows, columns = matching.of_pairs(pairs).image_to_text.expand()
    pictures, words = _whole(images), _whole(texts)
    order = np.argsort(pairs.texts.groups, kind="stable")
    same = pairs.texts.groups[order][1:] == pairs.texts.groups[order][:-1]
    found = {
        "alignment": alignment(pictures[_tensor(rows)], words[_tensor(columns)]),
        "text/alignment": alignment(words[_tensor(order[:-1][same])], words[_tensor(order[1:][same])]),
    }
    for side, vectors, groups in (("image", pictures, pairs.images.groups), ("text", words, pairs.texts.groups)):
        spread = uniformity(vectors, _tensor(groups))
        found[f"{side}/uniformity"] = spread["mean"]
        found |= {f"{side}/uniformity_{name}": spread[name] for name in ("variance", "potential")}
    for side, items in (("image", images), ("text", texts)):
        if (own := items.uncertainty) is not None:
            found |= {f"{side}/uncertainty": float(own.mean())}
            found |= {f"{side}/uncertainty_deviation": float(own.std(correction=0))}
    return {name: value for name, value in found.items() if not np.isnan(value)}


def _whole(items: Embeddings) -> Tensor:
    """(N D) one vector an item."""
    return items.vectors.mean(dim=1) if items.parts is None else masked_mean(items.parts, items.mask)


def _tensor(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))
