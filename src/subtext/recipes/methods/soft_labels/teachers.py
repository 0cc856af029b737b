"""How much alike items are, by a frozen teacher of images and one of texts, each with vectors of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from subtext.core import Comparison, Direction, Embeddings, Epoch, Scene, Truth
from subtext.data.dataset import Dataset, Items, fingerprint
from subtext.data.feature_file import FeatureFile
from subtext.data.starter import NAME as STARTER
from subtext.errors import DataError, RequirementError
from subtext.evaluation.embedding import embed_items
from subtext.graphs.graph import image_of_text
from subtext.graphs.spaces import FeatureSpace, unit_rows
from subtext.models.heads.mean import Passthrough
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.mining import Cosines
from subtext.objectives.scene import batch_items
from subtext.ops import draw
from subtext.recipes.encoders import Side, image_side, text_side
from subtext.recipes.options import InputOptions
from subtext.training.bank import TrainingBank
from subtext.training.setup import BuildContext

NAME = "soft labels"
"""The name of the relevance that a batch comes with."""
TABLE: dict[Direction, str] = {"image_to_text": "soft labels/image", "text_to_image": "soft labels/text"}
"""Where the bank keeps the teachers' vectors of the queries of a direction."""


@dataclass(frozen=True)
class Alike:
    """The relevance of batches by two teachers.

    Attributes:
        images: See `image_vectors`.
        texts: See `text_vectors`.
        targets: See `soft_labels`.
        temperature: Cosines are divided by it; above 0.
        control: See `soft_labels`.
        within: Whether items are compared within modalities, too.
    """

    images: str = STARTER
    texts: str = STARTER
    targets: Literal["each", "image", "text", "mean", "root"] = "each"
    temperature: float = 1.0
    control: Literal["none", "permuted", "flat"] = "none"
    within: bool = False
    _opened: dict[str, LoadedAlike] = field(default_factory=dict, repr=False, compare=False)

    @property
    def sides(self) -> tuple[str, ...]:
        """The teachers that are read: of "image" and "text"."""
        if self.control == "flat":
            return ()
        return (self.targets,) if self.targets in ("image", "text") and not self.within else ("image", "text")

    def require(self, pairs: Dataset) -> None:
        """Refuse pairs of which an item has no partner.

        Args:
            pairs: Of the training.

        Raises:
            DataError: If a text has no image, or an image no text.
        """
        images = image_of_text(pairs)
        if (images < 0).any():
            name = pairs.texts.ids[int(np.flatnonzero(images < 0)[0])]
            raise DataError(f"soft_labels needs an image for every text; {name!r} has none; leave it out")
        bare = np.setdiff1d(np.arange(len(pairs.images)), pairs.links[:, 0])
        if len(bare):
            raise DataError(
                f"soft_labels needs a text for every image; {pairs.images.ids[int(bare[0])]!r} has none; leave it out"
            )

    def open(self, pairs: Dataset) -> LoadedAlike:
        """Embed all items by the teachers, once for each set of pairs.

        Args:
            pairs: Of the training, or of the validation.

        Returns:
            Their relevance.

        Raises:
            DataError: As `require`, and for an item without features.
            RequirementError: If a teacher cannot be read.
        """
        self.require(pairs)
        key = fingerprint(pairs)
        if key not in self._opened:
            nothing = np.zeros((max(len(pairs.images), len(pairs.texts)), 0), dtype=np.float32)
            images = image_vectors(self.images, pairs) if "image" in self.sides else nothing[: len(pairs.images)]
            texts = text_vectors(self.texts, pairs) if "text" in self.sides else nothing[: len(pairs.texts)]
            if self.control == "permuted":
                images, texts = (
                    vectors[draw.permutation(len(vectors), seed=0, epoch=0, purpose=f"soft labels: {side}")]
                    for side, vectors in (("images", images), ("texts", texts))
                )
            order = np.argsort(pairs.links[:, 0], kind="stable")
            starts = np.searchsorted(pairs.links[order, 0], np.arange(len(pairs.images) + 1))
            self._opened[key] = LoadedAlike(
                torch.from_numpy(images),
                torch.from_numpy(texts),
                image_of_text(pairs).astype(np.int64),
                pairs.links[order, 1].astype(np.int64),
                starts.astype(np.int64),
                self,
            )
        return self._opened[key]


@dataclass(frozen=True)
class LoadedAlike:
    """The teachers' unit vectors of the items of some pairs.

    Attributes:
        images: (I D) of the images.
        texts: (T E) of the texts.
        image_of: (T) the image of each text.
        texts_of: (L) texts by image.
        starts: (I + 1) where the texts of each image begin in `texts_of`.
        source: Targets, temperature and control.
        name: Of the relevance.
        notes: Sentences for the user before a training begins.
    """

    images: Tensor
    texts: Tensor
    image_of: NDArray[np.int64]
    texts_of: NDArray[np.int64]
    starts: NDArray[np.int64]
    source: Alike
    name: str = NAME
    notes: tuple[str, ...] = ()

    def __call__(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Targets of images as queries, before their softmax.

        Args:
            images: (I) rows of images.
            texts: (T) rows of texts.

        Returns:
            (I T) float32.
        """
        return self._targets(images, texts, "image")

    def of_texts(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Targets of texts as queries, likewise.

        Args:
            images: (I) rows of images.
            texts: (T) rows of texts.

        Returns:
            (I T) float32.
        """
        return self._targets(images, texts, "text")

    def _targets(
        self, images: NDArray[np.int64], texts: NDArray[np.int64], query: Literal["image", "text"]
    ) -> Float[Tensor, "i t"]:
        source = self.source
        if source.control == "flat":
            alike = torch.from_numpy((images[:, None] == self.image_of[texts]).astype(np.float32))
            return alike / source.temperature
        wanted = query if source.targets == "each" else source.targets
        if wanted in ("image", "text"):
            alike = self._by_images(images, texts) if wanted == "image" else self._by_texts(images, texts)
        else:
            one, other = self._by_images(images, texts), self._by_texts(images, texts)
            alike = (one + other) / 2 if wanted == "mean" else (one.clamp_min(0) * other.clamp_min(0)).sqrt()
        return alike / source.temperature

    def _by_images(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Cosines of images with the images of texts."""
        return self.images[torch.from_numpy(images)] @ self.images[torch.from_numpy(self.image_of[texts])].T

    def _by_texts(self, images: NDArray[np.int64], texts: NDArray[np.int64]) -> Float[Tensor, "i t"]:
        """Cosines of texts with the nearest text of each image."""
        counts = self.starts[images + 1] - self.starts[images]
        rows = np.concatenate([self.texts_of[self.starts[row] : self.starts[row + 1]] for row in images.tolist()])
        cosines = self.texts[torch.from_numpy(rows)] @ self.texts[torch.from_numpy(texts)].T
        owner = torch.from_numpy(np.repeat(np.arange(len(images)), counts))[:, None].expand_as(cosines)
        nearest = cosines.new_full((len(images), len(texts)), -torch.inf)
        return nearest.scatter_reduce_(0, owner, cosines, "amax")


@dataclass(frozen=True)
class AlikeBanks:
    """The teachers' vectors beside every batch, for the losses within modalities.

    Attributes:
        source: The teachers.
    """

    source: Alike
    needs_pairs: ClassVar[None] = None

    def open(self, pairs: Dataset, *, device: torch.device) -> TrainingBank:
        """Open the bank; its table never changes.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            The bank.

        Raises:
            DataError: As `Alike.open`.
        """
        loaded = self.source.open(pairs)
        table = {TABLE["image_to_text"]: loaded.images.to(device), TABLE["text_to_image"]: loaded.texts.to(device)}
        content = sha256(loaded.images.numpy().tobytes() + loaded.texts.numpy().tobytes()).hexdigest()
        return TrainingBank(f"soft-labels-{content[:12]}", table=table)


@dataclass(frozen=True)
class Soft:
    """A loss's comparison of plain cosines with every candidate counted, texts of the same image, too.

    Args:
        direction: Direction whose queries they are.
        without_pair: Leaves out what matches the query (the second term of SoftCLIP).
    """

    direction: Direction
    without_pair: bool = False

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison that the loss is to read.

        Args:
            scene: With the embeddings of the items.
            epoch: Not read.

        Returns:
            (Q C) cosines of the vectors.

        Raises:
            RequirementError: If the scene has scores alone, or items have several vectors.
        """
        comparison = Cosines(self.direction)(scene, epoch)
        require_one_view(comparison.queries)
        truth = comparison.truth
        match = torch.zeros_like(truth.match) if self.without_pair else truth.match
        return replace(
            comparison, truth=replace(truth, match=match, ignored=truth.match if self.without_pair else None)
        )


def require_one_view(items: Embeddings | None) -> Embeddings:
    """Require items of one vector each.

    Args:
        items: Of a comparison.

    Returns:
        The items.

    Raises:
        RequirementError: Without embeddings, or if items have several vectors.
    """
    if items is None or items.views > 1:
        got = "scores alone" if items is None else f"{items.views} an item"
        raise RequirementError(f"soft_labels needs one vector an item; this model gives {got}; choose another model")
    return items


@dataclass(frozen=True)
class Within:
    """A loss's comparison of the queries of a direction with all items of their own modality, themselves included.

    Args:
        direction: Direction whose queries they are.
        temperature: Of the teacher's cosines.
    """

    direction: Direction
    temperature: float

    def __call__(self, scene: Scene, epoch: Epoch) -> Comparison:
        """The comparison that the loss is to read.

        Args:
            scene: With the embeddings of the items.
            epoch: With the teachers' vectors.

        Returns:
            (Q N); without teachers' vectors, as in a validation, of each query with itself alone.

        Raises:
            RequirementError: If the scene has scores alone, or items have several vectors.
        """
        queries = require_one_view(scene.comparison(self.direction).queries)
        name = TABLE[self.direction]
        if epoch.table is None or name not in epoch.table:
            nothing = queries.vectors.new_zeros(len(queries), 1)
            return Comparison(nothing, Truth(nothing == 0, relevance=nothing, scale=NAME), queries)
        others = batch_items(scene, "soft_labels")[self.direction == "text_to_image"]
        cosines = normalize(queries.vectors[:, 0], dim=1) @ normalize(others.vectors[:, 0], dim=1).T
        same = queries.ids[:, None] == others.ids[None, :]
        teacher = epoch.table[name]
        # Flat targets have no teacher.
        alike = teacher[queries.ids] @ teacher[others.ids].T if teacher.shape[1] else same.to(cosines.dtype)
        return Comparison(cosines, Truth(same, relevance=alike / self.temperature, scale=NAME), queries, others)


def image_vectors(teacher: str, pairs: Dataset) -> Float[np.ndarray, "i d"]:
    """Unit vectors of images by a teacher.

    Args:
        teacher: A file of features, of which a grid is averaged, or an image encoder as `--image` takes it.
        pairs: The data set.

    Returns:
        (I D) float32.

    Raises:
        DataError: If an image has no features, or cannot be read.
        RequirementError: If the teacher cannot be read.
    """
    if (file := _features(teacher)) is not None:
        rows = file.rows(pairs.images.ids, pairs.images.values)
        taken = file.take("pooled" if file.pooled is not None else "grid", rows)
        return unit_rows(taken if taken.ndim == 2 else taken.mean(axis=1, dtype=np.float32))
    side = image_side(BuildContext(), InputOptions(image=teacher, image_weights="frozen"))
    return _embedded(side, pairs.images, pairs.root)


def text_vectors(teacher: str, pairs: Dataset) -> Float[np.ndarray, "t e"]:
    """Unit vectors of texts by a teacher.

    Args:
        teacher: A file of features, or a text backbone as `--text` takes it; the states of its subwords are averaged.
        pairs: The data set.

    Returns:
        (T E) float32.

    Raises:
        DataError: If a text has no features, or is none.
        RequirementError: If the teacher cannot be read.
    """
    if (file := _features(teacher, "text")) is not None:
        space = FeatureSpace(file, of="texts")
        return unit_rows(space(pairs, np.ones(len(pairs.texts), dtype=bool)).vectors)
    options = InputOptions(text=teacher, text_weights="frozen", text_pooling="mean")
    return _embedded(text_side(BuildContext(), options, 0), pairs.texts, pairs.root)


def _features(teacher: str, side: Literal["image", "text"] = "image") -> FeatureFile | None:
    path = Path(teacher).expanduser()
    return FeatureFile.open(path, side) if path.is_file() else None


def _embedded(side: Side, items: Items, root: Path) -> Float[np.ndarray, "n d"]:
    """The pooled vectors of a frozen encoder, from the user's cache where they are in it."""
    branch = Branch(side.input_spec, side.encoder.requires_grad_(False), Passthrough())
    branch.frozen = True
    embedded = embed_items(Model(branch, branch, Cosine()), branch, items, root)
    return np.asarray(embedded.vectors[:, 0].float().numpy())
