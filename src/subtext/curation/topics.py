"""Topics of texts and visual kinds of images, and whether weights of neighbourhoods could tell pairs that are loose.

A data set whose looseness follows topics (`data.noise.plant_topics`) is worth a training only if what the weights read
says something about it: on features that were not trained on it, the diversity and the discrepancy of images tell its
loose pairs, those of texts do not, and the weights are not nearly uniform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.graph import image_of_text
from subtext.graphs.spaces import LsaSpace, unit_rows
from subtext.objectives.weighting import Neighbourhood
from subtext.ops import draw
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.ops.roc import auc

TEXT_WIDTH, IMAGE_WIDTH = 100, 128
"""Dimensions of latent semantic analysis of the texts, and of the principal components of the images' features."""
BATCH = 32
"""Pairs of a batch whose weights are described: the papers'."""
SHARP = Neighbourhood(total=1.0, batch=0, sign=-20.0, combine="image")
"""Weights that the limit is about: the softmax of -20 times the score of the images."""
PUBLISHED = Neighbourhood(total=196.0, batch=BATCH)
"""Weights as `diversity` and `discrepancy` make them by default, with the lambda of the paper for COCO."""
TELLS, SILENT, EVEN = 0.7, (0.4, 0.65), 0.8
"""An AUC of images above the first, of texts between the second; an effective sample size of the third at most."""


def image_vectors(dataset: Dataset, features: FeatureFile) -> Float[np.ndarray, "i d"]:
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


def cluster(dataset: Dataset, images: Float[np.ndarray, "i d"], *, topics: int, visual: int, seed: int = 0) -> Clusters:
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


@dataclass(frozen=True)
class Acceptance:
    """What the weights of neighbourhoods can know of loose pairs, from features that were not trained on them.

    Attributes:
        auc: "diversity/image" and so on -> how well a low score tells loose pairs; 0.5 is chance.
        effective: "diversity" and "discrepancy" -> effective sample size of `SHARP` weights in batches, as a share.
        published: The same of `PUBLISHED` weights, which no limit is about.
        pairs: Numbers.
        loose: See `pairs`.
        neighbours: See `pairs`.
    """

    auc: Mapping[str, float]
    effective: Mapping[str, float]
    published: Mapping[str, float]
    pairs: int
    loose: int
    neighbours: int

    @property
    def failures(self) -> tuple[str, ...]:
        """What the data set does not keep of the limits; nothing if it is accepted."""
        low, high = SILENT
        wrong = []
        for name, value in self.auc.items():
            score, side = name.split("/")
            if side == "image" and not value > TELLS:
                wrong.append(f"AUC of {score} of images {value:.2f}, not above {TELLS}")
            if side == "text" and not low <= value <= high:
                wrong.append(f"AUC of {score} of texts {value:.2f}, not in [{low}, {high}]")
        for score, value in self.effective.items():
            if not value <= EVEN:
                wrong.append(f"effective sample size of {score} {100 * value:.1f} %, above {100 * EVEN:.0f} %")
        return tuple(wrong)

    @property
    def accepted(self) -> bool:
        """Whether it keeps all limits."""
        return not self.failures

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {**asdict(self), "accepted": self.accepted, "failures": list(self.failures)}

    def lines(self) -> list[str]:
        """The figures and the verdict, in words."""
        told = [f"{name.replace('/', ' of ')}s {value:.3f}" for name, value in self.auc.items()]
        return [
            f"AUC of the {self.loose:,} loose among {self.pairs:,} training pairs, by {self.neighbours} neighbours: "
            + ", ".join(told),
            f"effective sample size of weights softmax({SHARP.sign:g} x score of images) in batches of {BATCH}: "
            + _shares(self.effective),
            f"the same of the methods' default weights (lambda {PUBLISHED.total:g}, both modalities): "
            + _shares(self.published),
            "accepted" if self.accepted else f"not accepted: {'; '.join(self.failures)}",
        ]


def _shares(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in values.items())


def accept(
    pairs: Dataset,
    images: Float[np.ndarray, "i d"],
    loose: Bool[np.ndarray, "t"],
    *,
    neighbours: int = 200,
    seed: int = 0,
) -> Acceptance:
    """Measure pairs of one text an image, whose neighbours are those of latent semantic analysis.

    Args:
        images: (I D) vectors of the images of `pairs`.
        loose: (T) which texts belong to loose pairs.

    Raises:
        DataError: For fewer texts than neighbours.
    """
    everywhere = np.ones(len(pairs.texts), dtype=bool)
    space = LsaSpace(TEXT_WIDTH, seed)
    graph = build_graph(pairs, space, GraphOptions(neighbours, "all"))
    lists = torch.from_numpy(graph.neighbours)
    banks = {"image": images[image_of_text(pairs)], "text": space(pairs, everywhere).vectors}
    scores: dict[str, Float[np.ndarray, "t"]] = {}
    for side, bank in banks.items():
        both = neighbour_scores(torch.from_numpy(bank), lists)
        scores |= {f"diversity/{side}": both.diversity.numpy(), f"discrepancy/{side}": both.discrepancy.numpy()}
    sizes = {
        weighting: {
            score: effective_size(scores[f"{score}/image"], scores[f"{score}/text"], weighting, seed=seed)
            for score in ("diversity", "discrepancy")
        }
        for weighting in (SHARP, PUBLISHED)
    }
    return Acceptance(
        auc={name: auc(-values, loose) for name, values in scores.items()},
        effective=sizes[SHARP],
        published=sizes[PUBLISHED],
        pairs=len(loose),
        loose=int(loose.sum()),
        neighbours=neighbours,
    )


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
