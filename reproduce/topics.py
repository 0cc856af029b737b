"""Pairs that are loosely aligned by topic, planted; and whether weights of neighbourhoods could detect them.

Each image keeps one text. Texts are clustered by latent semantic analysis, images by their features. `plant_topics`
makes all pairs of some topics loose, so that the images of their texts' neighbours lie apart.

Such a data set is accepted for training only if what the weights read says something about it: on features that were
not trained on it, the diversity and the discrepancy of images tell its loose pairs (AUC above 0.7), those of texts do
not (0.4 to 0.65), and weights softmax(-20 x score) have an effective sample size of at most 80 %. The size of the
methods' default weights is given, too: near 100 %, a training cannot show whether they help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from subtext.data import noise
from subtext.data.dataset import fingerprint
from subtext.data.feature_file import FeatureFile
from subtext.data.write import write_dataset
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


@dataclass(frozen=True)
class PlantedTopics(noise.Planted):
    """A data set with abstract topics, whose texts have the kind "topic".

    Attributes:
        topics: (T) number of the abstract topic of a text; -1 for others.
        views: Abstract topic -> the numbers of the visual clusters that its texts are paired with.
    """

    topics: NDArray[np.int64]
    views: Mapping[int, tuple[int, ...]]


MOST_TAKEN = 0.5
"""Share of the training images of a visual cluster that texts of abstract topics may get; the rest stay literal."""
VIEWS = (3, 4, 5)
"""Numbers of visual clusters of an abstract topic, equally likely."""


def plant_topics(
    dataset: st.Dataset,
    topics: Int[np.ndarray, "t"],
    visual: Int[np.ndarray, "i"],
    centres: Float[np.ndarray, "v d"],
    *,
    share: float = 0.2,
    seed: int = 0,
) -> PlantedTopics:
    """Make a share of the topics abstract: their texts are paired with images of several kinds that lie far apart.

    Every image has one text, drawn from its own. Each abstract topic gets three to five visual clusters: one that is
    drawn, and then each time the one that is farthest from those before it, among clusters with room for the topic. Its
    texts get images of these clusters at random, as many of each, never their own image nor one of the same topic.
    Topics and their clusters are the same in all splits; texts stay in their split. An image whose text has moved away,
    and a text whose image was taken, leave the data set: the pairs of the other topics are those of the original. As
    with `plant`, items keep their names: a text that was moved has the name of the text whose image it got.

    Args:
        dataset: One text per image.
        topics: Topic of each text, from 0; -1 for a text that has none and stays out.
        visual: Visual cluster of each image.
        centres: Of the clusters.
        share: Of the topics that are abstract.
        seed: Of the choice of topics, clusters and images.

    Returns:
        The new data set, and what was planted in it.

    Raises:
        DataError: If no topic would be abstract, or there is no room for one.
    """
    count = int(topics.max(initial=-1)) + 1
    abstract_count = round(share * count)
    if not 0 < abstract_count < count:
        raise DataError(
            f"a share of {share:g} of {count} topics makes {abstract_count} abstract; some, not all, are needed"
        )
    texts, images = dataset.texts, dataset.images
    slot, image_of = _one_text(dataset, topics, seed)
    drawn = draw.uniform(np.arange(count), seed=seed, epoch=0, purpose="topics: abstract", count=3)
    abstract = np.argsort(drawn[:, 0], kind="stable")[:abstract_count]
    own_topic = np.where(slot >= 0, topics[slot], -1)
    train = images.splits == "train"
    room = np.floor(MOST_TAKEN * np.bincount(visual[train & (slot >= 0)], minlength=len(centres))).astype(np.int64)
    order = np.argsort(draw.uniform(images.keys, seed=seed, epoch=0, purpose="topics: images")[:, 0], kind="stable")
    source = np.arange(len(texts), dtype=np.int64)
    kinds, topic_of = np.full(len(texts), "", dtype="<U9"), np.full(len(texts), -1, dtype=np.int64)
    taken, views = np.zeros(len(images), dtype=bool), {}
    for topic in abstract.tolist():
        size = VIEWS[int(drawn[topic, 1] * len(VIEWS))]
        members = (slot >= 0) & (own_topic == topic)
        needed = -(-int((members & train).sum()) // size)
        views[topic] = far_apart(centres, room >= max(needed, 1), size, float(drawn[topic, 2]))
        if len(views[topic]) < size:
            raise DataError(
                f"an abstract topic needs {size} visual clusters with room for {needed:,} images each; "
                f"{len(views[topic])} have it; use more topics, fewer visual clusters or a lower rate"
            )
        room[list(views[topic])] -= needed
        for split in np.unique(images.splits[members]).tolist():
            here = (images.splits == split) & (slot >= 0)
            moving = slot[order[(members & here)[order]]]
            pools = [order[(here & ~taken & (own_topic != topic) & (visual == view))[order]] for view in views[topic]]
            deal = [pool[turn] for turn in range(max(map(len, pools))) for pool in pools if turn < len(pool)]
            for text, image in zip(moving.tolist(), deal, strict=False):
                taken[image] = True
                source[slot[image]], kinds[slot[image]], topic_of[slot[image]] = text, "topic", topic
    keep = np.zeros(len(texts), dtype=bool)
    keep[slot[taken | ((slot >= 0) & ~np.isin(own_topic, abstract))]] = True
    rows = np.flatnonzero(keep)
    values, metadata = [texts.values[row] for row in source], dict(texts.metadata)
    if "language" in metadata:
        metadata["language"] = [metadata["language"][row] for row in source]
    moved = replace(dataset, texts=replace(texts, values=values, metadata=metadata))
    left = moved.subset(np.unique(image_of[rows]), rows)
    # Groups are numbered as reading the file will number them: the labels name its fingerprint.
    groups, of_image = np.unique(left.images.groups, return_inverse=True)
    of_text = np.searchsorted(groups, left.texts.groups)
    left = replace(left, images=replace(left.images, groups=of_image), texts=replace(left.texts, groups=of_text))
    nowhere = np.full(len(rows), np.nan)
    return PlantedTopics(left, dataset, source[rows], kinds[rows], nowhere, topic_of[rows], views)


def _one_text(
    dataset: st.Dataset, topics: Int[np.ndarray, "t"], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(I) the row of the text that is drawn for each image, -1 for none; (T) the image of each text.

    Texts without words, of several images or without a topic are not drawn.
    """
    texts = dataset.texts
    image_of = np.full(len(texts), -1, dtype=np.int64)
    image_of[dataset.links[:, 1]] = dataset.links[:, 0]
    counts = np.bincount(dataset.links[:, 1], minlength=len(texts))
    usable = (counts == 1) & (topics >= 0) & [isinstance(value, str) for value in texts.values]
    rows = np.flatnonzero(usable)
    drawn = draw.uniform(texts.keys[rows], seed=seed, epoch=0, purpose="topics: text")[:, 0]
    slot = np.full(len(dataset.images), -1, dtype=np.int64)
    # The least number wins: it is written last.
    order = rows[np.argsort(-drawn, kind="stable")]
    slot[image_of[order]] = order
    return slot, image_of


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
        aucs = [f"{name.replace('/', ' of ')}s {value:.3f}" for name, value in self.auc.items()]
        return [
            f"AUC of the {self.loose:,} loose among {self.pairs:,} training pairs, by {self.neighbours} neighbours: "
            + ", ".join(aucs),
            f"effective sample size of weights softmax({SHARP.sign:g} x score of images) in batches of {BATCH}: "
            + _shares(self.effective),
            f"the same of the methods' default weights (lambda {PUBLISHED.total:g}, both modalities): "
            + _shares(self.published),
            "accepted" if self.accepted else f"not accepted: {'; '.join(self.failures)}",
        ]


def _shares(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in values.items())


def accept(
    pairs: st.Dataset,
    images: Float[np.ndarray, "i d"],
    loose: Bool[np.ndarray, "t"],
    *,
    neighbours: int = 200,
    seed: int = 0,
) -> Acceptance:
    """Measure pairs of one text an image, whose neighbours are those of latent semantic analysis.

    Args:
        pairs: One text per image.
        images: (I D) vectors of the images of `pairs`.
        loose: (T) which texts belong to loose pairs.
        neighbours: Nearest neighbours of each text.
        seed: Of the space, and of the batches.

    Returns:
        What was measured.

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


def corrupt_topics(
    data: Path,
    *,
    images: Path,
    features: Path,
    out: Path,
    labels: Path,
    topics: int = 60,
    visual_clusters: int = 30,
    neighbours: int = 100,
    share: float = 0.2,
    seed: int = 0,
) -> Acceptance:
    """Plant abstract topics in a data set, and write it with its noise labels, which have the acceptance figures.

    The labels are written first: a corrupted file without labels never exists.

    Args:
        data: Data set of which each image keeps one text.
        images: Folder of the images.
        features: Features of the images, for their clusters.
        out: New file of pairs.
        labels: New file of noise labels.
        topics: Clusters of the texts.
        visual_clusters: Clusters of the images.
        neighbours: Neighbours per text for the acceptance figures.
        share: Of the topics that become abstract, in (0, 1).
        seed: Of the clusters and of the random choice; choose it before any training.

    Returns:
        The acceptance figures of the training pairs.

    Raises:
        DataError: If the data cannot be read, or has no room for such topics.
        OutputError: If a file cannot be written.
    """
    file = FeatureFile.open(features)
    dataset = st.read(data, images=images)
    vectors = image_vectors(dataset, file)
    clusters = cluster(dataset, vectors, topics=topics, visual=visual_clusters, seed=seed)
    planted = plant_topics(dataset, clusters.topics, clusters.visual, clusters.centres, share=share, seed=seed)
    pairs, loose = planted.dataset.split("train"), planted.kinds[planted.dataset.texts.splits == "train"] != ""
    row_of = {name: row for row, name in enumerate(dataset.images.ids)}
    own = vectors[[row_of[name] for name in pairs.images.ids]]
    acceptance = accept(pairs, own, loose, neighbours=neighbours, seed=seed)
    settings = {
        "kind": "topic",
        "share": share,
        "seed": seed,
        "of": fingerprint(dataset),
        "version": st.__version__,
        "topics": topics,
        "visual_clusters": visual_clusters,
        "features": file.fingerprint,
        "views": {str(topic): list(views) for topic, views in planted.views.items()},
        "acceptance": acceptance.to_json(),
    }
    noise.write_labels(planted, labels, settings)
    write_dataset(planted.dataset, out)
    return acceptance
