"""Topics of texts and kinds of images, by clusters; and how uneven the weights of neighbourhoods are.

Texts are clustered by latent semantic analysis, images by their features, on the training split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.graphs.spaces import LsaSpace, unit_rows
from subtext.objectives.weighting import Neighbourhood
from subtext.ops import draw

TEXT_WIDTH, IMAGE_WIDTH = 100, 128
"""Dimensions of latent semantic analysis of the texts, and of the principal components of the images' features."""
BATCH = 32
"""Pairs of a batch whose weights are described: the papers'."""
SHARP = Neighbourhood(total=1.0, batch=0, sign=-20.0, combine="image")
"""The softmax of -20 times the score of the images."""
PUBLISHED = Neighbourhood(total=196.0, batch=BATCH)
"""Weights as `diversity` and `discrepancy` make them by default, with the lambda of the paper for COCO."""
EVEN = 0.8
"""An effective sample size, as a share, above which weights are too even to show an effect."""


def image_vectors(dataset: st.Dataset, features: FeatureFile) -> Float[np.ndarray, "i d"]:
    """(I D) unit rows: principal components of the images' features, fitted on the training split.

    A grid is averaged over its cells.

    Raises:
        DataError: If an image has no features.
    """
    from sklearn.decomposition import PCA

    block = features.take(
        "pooled" if features.pooled is not None else "grid", features.rows(dataset.images.ids, dataset.images.values)
    )
    vectors = unit_rows(block if block.ndim == 2 else block.mean(axis=1, dtype=np.float32))
    train = vectors[dataset.images.splits == "train"]
    components = PCA(min(IMAGE_WIDTH, *train.shape), svd_solver="full").fit(train)
    return unit_rows(components.transform(vectors))


@dataclass(frozen=True)
class Clusters:
    """Clusters of texts and of images, fitted on the training split.

    Attributes:
        topics: (T) of each text, -1 for a text without known words.
        visual: (I) of each image.
        centres: (V D) of the visual clusters.
    """

    topics: NDArray[np.int64]
    visual: NDArray[np.int64]
    centres: NDArray[np.float64]


def cluster(
    dataset: st.Dataset, images: Float[np.ndarray, "i d"], *, topics: int, visual: int, seed: int = 0
) -> Clusters:
    """k-means of the texts in latent semantic analysis, and of the images by their vectors.

    Raises:
        DataError: If the training split has fewer texts or images than clusters.
    """
    from sklearn.cluster import KMeans

    learn = (dataset.texts.splits == "train").astype(bool)
    places = LsaSpace(TEXT_WIDTH, seed)(dataset, learn)
    of_image = dataset.images.splits == "train"

    def fitted(vectors: Float[np.ndarray, "n d"], rows: Bool[np.ndarray, "n"], count: int, name: str) -> KMeans:
        if int(rows.sum()) < count:
            raise DataError(
                f"{count} clusters need as many {name} in the split train; it has {int(rows.sum())}; use fewer"
            )
        return KMeans(count, n_init=3, random_state=seed % 2**32).fit(vectors[rows])

    of_texts = fitted(places.vectors, learn & places.known, topics, "texts")
    of_images = fitted(images, of_image, visual, "images")
    labels = np.where(places.known, of_texts.predict(places.vectors), -1).astype(np.int64)
    return Clusters(labels, of_images.predict(images).astype(np.int64), of_images.cluster_centers_.astype(np.float64))


def far_apart(centres: Float[np.ndarray, "v d"], free: NDArray[np.bool_], size: int, drawn: float) -> tuple[int, ...]:
    """Up to `size` of the free clusters: one drawn by a number in [0, 1), then the farthest from those before it."""
    clusters = np.flatnonzero(free)
    if not len(clusters):
        return ()
    chosen = [int(clusters[int(drawn * len(clusters))])]
    while len(chosen) < min(size, len(clusters)):
        gaps = np.linalg.norm(centres[clusters][:, None] - centres[chosen], axis=2).min(axis=1)
        chosen.append(int(clusters[int(gaps.argmax())]))
    return tuple(chosen)


def effective_size(
    image: Float[np.ndarray, "n"],
    text: Float[np.ndarray, "n"],
    weighting: Neighbourhood,
    *,
    batch: int = BATCH,
    seed: int = 0,
) -> float:
    """Effective sample size of the weights of one score, over the sample size: mean over random batches of
    (sum w)^2 / (B sum w^2). It is 1 for uniform weights.

    Args:
        image: The score of each pair in either modality.
        text: Pairs without one are left out.
        weighting: Weights of a batch from the scores.
        batch: Pairs of a random batch.
        seed: Of the batches.

    Returns:
        In (0, 1]; NaN for fewer pairs than a batch.
    """
    valid = ~(np.isnan(image) | np.isnan(text))
    logits = [weighting.sign * torch.from_numpy(side[valid].astype(np.float64)) for side in (image, text)]
    order: Int[np.ndarray, "n"] = draw.permutation(int(valid.sum()), seed=seed, epoch=0, purpose="effective size")
    sizes = []
    for start in range(0, len(order) - batch + 1, batch):
        rows = torch.from_numpy(order[start : start + batch])
        weights = weighting.weights(*(side[rows] for side in logits))
        sizes.append(float(weights.sum() ** 2 / (len(rows) * weights.square().sum())))
    return float(np.mean(sizes)) if sizes else float("nan")
