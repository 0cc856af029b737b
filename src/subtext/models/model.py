"""A model: a branch per modality (input, encoder, head) and a similarity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.folders import IMAGES
from subtext.data.inputs import Draw, Input, InputBatch, Tensors
from subtext.errors import RequirementError
from subtext.models.heads.gaussian import DistanceVectors, Gaussian
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.probabilistic import ClosedFormDistance
from subtext.ops import draw as draws
from subtext.ops.numerics import supported


class Branch(nn.Module):
    """The path of one modality into the joint space: tensors -> encoder -> head -> Embeddings.

    A head that samples (`heads.gaussian`) gets its noise with the tensors and needs no generator.

    Args:
        input_spec: Values of items -> tensors.
        encoder: Tensors -> Encoded.
        head: Encoded, ids -> Embeddings.

    Attributes:
        frozen: Whether no weight of the encoder has learnt here: its outputs are then worth a place in the cache that
            all models share.
    """

    frozen = False

    def __init__(self, input_spec: Input, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.input_spec = input_spec
        self.encoder = encoder
        self.head = head

    def read(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """The tensors of a batch.

        Args:
            batch: Values of N items.
            draw: Seed and epoch of random inputs; None in evaluation.

        Returns:
            Tensors by name; "noise" (N K D) where the head samples.
        """
        tensors = self.input_spec(batch, draw)
        if isinstance(self.head, Gaussian):
            seed, epoch = (None, 0) if draw is None else (draw.seed, draw.epoch)
            noise = self.head.noise(batch.keys, seed=seed, epoch=epoch)
            if noise is not None:
                tensors["noise"] = noise
        return tensors

    def forward(self, inputs: Tensors) -> Embeddings:
        """Embeddings of items.

        Args:
            inputs: Their tensors, as `read` returns them.

        Returns:
            Embeddings of N items.
        """
        encoded = self.encoder(inputs)
        if "noise" in inputs:
            return self.head(encoded, inputs["ids"], inputs["noise"])
        return self.head(encoded, inputs["ids"])

    def save_assets(self, folder: Path) -> None:
        """Write what rebuilds the branch beside its tensors: the vocabulary, tokeniser or configuration.

        Args:
            folder: An existing folder.
        """
        self.input_spec.save(folder)
        save = getattr(self.encoder, "save_assets", None)
        if callable(save):
            save(folder)

    def to_means(self) -> Branch:
        """A branch with the same weights that gives the mean of every item, for a head that samples.

        Returns:
            The branch; this one where its head does not sample.
        """
        if not isinstance(self.head, Gaussian):
            return self
        return self._with(self.head.to_means())

    def uncertainty(self, items: Embeddings) -> Tensor | None:
        """The uncertainty of items of this branch, see `Embeddings.uncertainty`.

        Args:
            items: N items.

        Returns:
            (N) above 0; None for a model without uncertainty.
        """
        if isinstance(self.head, DistanceVectors):
            return torch.from_numpy(self.head.uncertainty(items.vectors.numpy()))
        return items.uncertainty

    def to_distances(self, side: Literal["image", "text"], kind: Literal["sampled", "wasserstein"]) -> Branch:
        """A branch with the same weights whose products are expected distances; see `heads.gaussian.DistanceVectors`.

        Args:
            side: "image" or "text".
            kind: Of the distance.

        Returns:
            The branch.
        """
        return self._with(DistanceVectors(self.to_means().head, side=side, kind=kind))

    def _with(self, head: nn.Module) -> Branch:
        """The branch with another head."""
        branch = Branch(self.input_spec, self.encoder, head).train(self.training)
        branch.frozen = self.frozen
        return branch


class Model(nn.Module):
    """Maps images and texts to one space and compares them in this space.

    Use `embed_images`, `embed_texts` and `compare`; `forward` is for training.

    Args:
        image: Branch of images.
        text: Branch of texts.
        similarity: Embeddings of images and texts -> (I T) scores.
    """

    def __init__(self, image: Branch, text: Branch, similarity: nn.Module) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.similarity = similarity
        if next(chain(similarity.parameters(), similarity.buffers()), None) is None:
            # A similarity without weights needs a buffer that says on which device the model is.
            similarity.register_buffer("place", torch.zeros(1, dtype=torch.int8, device=self._device), persistent=False)

    def __repr__(self) -> str:
        names = {side: type(getattr(self, side).encoder).__name__ for side in ("image", "text")}
        size = sum(parameter.numel() for parameter in self.parameters())
        encoders = ", ".join(f"{side}={name}" for side, name in names.items())
        return f"Model({encoders}, similarity={type(self.similarity).__name__}, {size:,} parameters)"

    def forward(self, images: Tensors, texts: Tensors) -> tuple[Embeddings, Embeddings]:
        """The embeddings of both modalities of a batch, in one call for distributed training.

        Args:
            images: Tensors of images.
            texts: Tensors of texts.

        Returns:
            Embeddings of the images and of the texts.
        """
        return self.image(images), self.text(texts)

    @property
    def indexable(self) -> bool:
        """Whether items have vectors that an index can search."""
        return bool(self.similarity.indexable)

    def to_indexable(self, purpose: str) -> Model:
        """A model with the same weights whose vectors an index can search.

        For closed-form distances (PCME++), vectors have two more numbers and the scores stay the same
        (`DistanceVectors`). For sampled items (PCME), vectors cannot give the scores, so this is `to_means`.

        Args:
            purpose: What the model is needed for, for the message.

        Returns:
            The model; this one where its vectors decide the score already.

        Raises:
            RequirementError: If the score depends on more than vectors, or rises with the distance.
        """
        similarity = self.similarity
        if not isinstance(similarity, ClosedFormDistance):
            return self.to_means(purpose)
        scale, shift = similarity.scale.item(), similarity.shift.item()
        if scale <= 0:
            raise RequirementError(
                f"{purpose} needs a model whose score falls as distances grow; it learnt a scale of {scale:.3g}; train "
                "it further, or again"
            )
        # shift - scale * d, with d = 2 - 2 * product
        cosine = Cosine(scale=2 * scale, shift=shift - 2 * scale)
        image, text = self.image.to_distances("image", similarity.kind), self.text.to_distances("text", similarity.kind)
        return Model(image, text, cosine).train(self.training)

    def to_means(self, purpose: str) -> Model:
        """A model with means as vectors and their cosine as score, for a probabilistic model.

        Use it for comparisons within one modality, and for plain vectors.

        Args:
            purpose: What the model is needed for, for the message.

        Returns:
            The model; this one where its vectors decide the score already.

        Raises:
            RequirementError: If the score depends on more than vectors.
        """
        if self.indexable:
            return self
        if not all(isinstance(branch.head, Gaussian) for branch in (self.image, self.text)):
            raise RequirementError(
                f"{purpose} needs a model whose vectors decide the score; {type(self.similarity).__name__} only scores "
                "pairs; use two stages: index a dual encoder, and re-order what it finds with this model"
            )
        return Model(self.image.to_means(), self.text.to_means(), Cosine()).train(self.training)

    @property
    def installed(self) -> dict[str, Branch]:
        """The tensors that an installed package holds and that never learn: no file of the model repeats them.

        Returns:
            Name of each -> its branch, whose encoder loads it.
        """
        return {
            f"{prefix}.encoder.{name}": branch
            for prefix, branch in self.named_modules()
            if isinstance(branch, Branch) and branch.frozen and (held := getattr(branch.encoder, "installed", ()))
            for name in branch.encoder.state_dict()
            if name.startswith(held)
        }

    def score_in_bf16(self, bf16: bool = True) -> bool:
        """Score pairs in bfloat16, or in float32.

        This is independent of the option of the training and does not change the weights. If the machine does not
        support bfloat16, scores stay in float32, because bfloat16 would be slower.

        Args:
            bf16: False for float32.

        Returns:
            Whether bfloat16 is used.

        Raises:
            RequirementError: If the model does not score pairs of parts.
        """
        parts = self._multiplying()
        if not parts:
            raise RequirementError(
                "bfloat16 is for the scores of models that compare regions with words; "
                f"{type(self.similarity).__name__} compares vectors, in float32"
            )
        for part in parts:
            part.bf16 = bf16
        return self.scores_in_bf16

    @property
    def scores_in_bf16(self) -> bool:
        """Whether pairs are scored in bfloat16: if it was requested and the machine supports it."""
        parts = self._multiplying()
        return bool(parts) and all(part.bf16 for part in parts) and supported(self._device.type)

    def embed_images(
        self, images: Sequence[Any] | NDArray[Any] | Tensor, *, batch_size: int = 64, root: Path | str = "."
    ) -> Embeddings:
        """Embeddings of images; their ids are their positions.

        Args:
            images: N paths (relative to root), bytes or PIL images. For a model that reads features: for each image an
                array, (G) or (P E); where it reads both {"pooled": (G), "grid": (P E)}; or its name in the file of
                features that the run was loaded with.
            batch_size: Number of images at a time.
            root: Folder that paths start from.

        Returns:
            Embeddings of N items, on the CPU.

        Raises:
            DataError: If an image cannot be read, or if features have a wrong shape.
        """
        return self.embed(self.image, _batches(self.image.input_spec, images, batch_size, Path(root)))

    def embed_texts(self, texts: Sequence[Any] | NDArray[Any] | Tensor, *, batch_size: int = 256) -> Embeddings:
        """Embeddings of texts; their ids are their positions.

        Args:
            texts: N strings, or features as in `embed_images`.
            batch_size: Number of texts at a time.

        Returns:
            Embeddings of N items, on the CPU.
        """
        return self.embed(self.text, _batches(self.text.input_spec, texts, batch_size, Path()))

    def encode(self, items: Sequence[Any], *, batch_size: int = 64, root: Path | str = ".") -> NDArray[np.float32]:
        """The vectors of a list of texts, or of a list of images, as an array.

        Args:
            items: N strings, which are texts; or N images: pathlib paths, bytes, PIL images or arrays of uint8.
            batch_size: Number of items at a time.
            root: Folder that paths start from.

        Returns:
            (N, D) float32, or (N, K, D) for a model with K views; means for a probabilistic model.

        Raises:
            RequirementError: If the items are of both kinds, the model reads features, or it only scores pairs.
            DataError: If an image cannot be read.

        Example:
            >>> model.encode(["a gavel", "a ship"]).shape  # doctest: +SKIP
            (2, 1024)
        """
        if isinstance(items, str | bytes | Path) or not isinstance(items, Iterable):
            raise RequirementError(f"encode needs a list of items; it got {items!r:.60}; put it in a list")
        items = list(items)
        for item in items:
            if item is None or isinstance(item, int | float):
                raise RequirementError(f"encode needs texts or images; it got {item!r}; leave it out")
            if isinstance(item, str) and _names_image(item, Path(root)):
                raise RequirementError(
                    f"encode reads a string as a text; {item!r} is an image here; write pathlib.Path({item!r}) for "
                    "the image, or embed_texts for these words"
                )
        kinds = {"texts" if isinstance(item, str) else "images" for item in items}
        if len(kinds) > 1:
            raise RequirementError(
                "encode needs texts alone, or images alone; it got both; a path is an image as pathlib.Path(...)"
            )
        side: Literal["image", "text"] = "text" if kinds == {"texts"} else "image"
        if isinstance(getattr(self, side).input_spec, FeatureInput):
            raise RequirementError(
                f"encode needs a model that reads {side}s; this one reads precomputed features of {side}s; use "
                f"embed_{side}s"
            )
        model = self.to_means("encode")
        if side == "text":
            embedded = model.embed_texts(items, batch_size=batch_size)
        else:
            embedded = model.embed_images(items, batch_size=batch_size, root=root)
        vectors: NDArray[np.float32] = embedded.vectors.float().numpy()
        return vectors[:, 0] if vectors.shape[1] == 1 else vectors

    def embed(self, branch: Branch, batches: Iterator[InputBatch]) -> Embeddings:
        """Embeddings of batches in eval mode, on the CPU.

        Args:
            branch: Of the images or of the texts.
            batches: At least one.

        Returns:
            Embeddings of all items.
        """
        device = self._device
        was_training = self.training
        self.eval()
        embedded: list[Embeddings] = []
        try:
            with torch.inference_mode():
                for batch in batches:
                    inputs = {name: value.to(device) for name, value in branch.read(batch).items()}
                    embedded.append(branch(inputs).to("cpu"))
        finally:
            self.train(was_training)
        return Embeddings.cat(embedded)

    def compare(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """Scores of every image with every text, on the CPU and without gradient.

        All pairs are scored in one block, so the other items may change a score by 1e-6 of the largest score. For IMRAM
        and a text of one word, the change is up to 1e-4. For models that score pairs, `scoring.matrix` computes the
        scores of an evaluation, which depend on their pair only.

        Args:
            images: I items.
            texts: T items.

        Returns:
            (I T) scores, larger is better.
        """
        device = self._device
        with torch.inference_mode():
            return self.similarity(images.to(device), texts.to(device)).cpu()

    def _multiplying(self) -> list[Any]:
        """The parts of the similarity that can multiply in bfloat16."""
        return [part for part in self.similarity.modules() if hasattr(part, "bf16")]

    @property
    def _device(self) -> torch.device:
        """The device of the weights; the CPU for a model without any."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))


def _names_image(text: str, root: Path) -> bool:
    """Whether a text is the path of an image that is there."""
    path = root / text.strip()
    try:
        return path.suffix.lower() in IMAGES and path.is_file()
    except (OSError, ValueError):  # A long text is no path.
        return False


def _batches(input_spec: Input, values: Any, size: int, root: Path) -> Iterator[InputBatch]:
    values = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else values
    if not isinstance(values, Sequence | np.ndarray) and hasattr(values, "to_list"):
        values = values.to_list()  # A column of a frame.
    one_array = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiub"
    if one_array or isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise RequirementError(
            f"embedding needs a list of items; it got one {type(values).__name__}, {str(values)[:40]!r}; "
            "put it in a list"
        )
    if not len(values):
        raise RequirementError("embedding needs at least one item; the list is empty")
    for start in range(0, len(values), size):
        chosen = [str(value) if isinstance(value, Path) else value for value in values[start : start + size]]
        if isinstance(input_spec, FeatureInput):
            # Items are named by their positions here, which a file of features may happen to use as names.
            input_spec.require(chosen)
        rows = np.arange(start, start + len(chosen), dtype=np.int64)
        ids = [value if isinstance(value, str) else str(row) for value, row in zip(chosen, rows, strict=True)]
        yield InputBatch(values=chosen, ids=ids, rows=rows, keys=draws.keys(ids), root=root)
