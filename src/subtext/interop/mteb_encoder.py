"""A model as an encoder of MTEB 2, for retrieval between images and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Embeddings
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.scoring import TILE
from subtext.models.model import Model
from subtext.text_helpers import install_hint

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

_MODALITIES = frozenset({"image", "text", "audio", "video"})
Vectors = np.ndarray | Tensor
"""Arguments of the similarities: results of `encode`, or slices of them."""


class MtebEncoder:
    """A model in MTEB's encoder protocol: `mteb.evaluate(MtebEncoder(model), tasks)`.

    Use it for tasks of the type Any2AnyRetrieval whose queries and documents are images or texts. An item with both an
    image and a text is refused, because the model cannot combine the two vectors.

    Args:
        model: Any model that embeds images and texts one by one, with one or several views per item.
        name: Its name in MTEB's results, as "organisation/model".

    Raises:
        RequirementError: If the model only scores pairs.
    """

    def __init__(self, model: Model, *, name: str = "subtext/model") -> None:
        model = model.to_means("MTEB")
        if name.count("/") != 1:
            raise RequirementError(f"MTEB needs a name as 'organisation/model'; it got '{name}'; add one slash")
        self.model = model
        self.name = name

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: object,
        hf_split: str,
        hf_subset: str,
        prompt_type: object = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        precision: str = "float32",
    ) -> np.ndarray:
        """Compute vectors of images or texts.

        Task, split and prompt type have no effect: the model has no instructions.

        Args:
            inputs: Batches with a column "image" of PIL images or "text" of strings.
            task_metadata: Not used.
            hf_split: Not used.
            hf_subset: Not used.
            prompt_type: Not used.
            batch_size: Items that are computed at once.
            show_progress_bar: Not used.
            precision: "float32".

        Returns:
            (N D) float32, or (N K D) for a model of K views.

        Raises:
            RequirementError: For a batch of both columns or of neither, and for another precision.
        """
        if precision != "float32":
            raise RequirementError(f"MTEB encoding needs precision 'float32'; it got '{precision}'; leave it out")
        batches = [self._vectors(batch, batch_size) for batch in inputs]
        if not batches:
            raise RequirementError("MTEB encoding needs at least one batch; it got none")
        vectors = torch.cat(batches)
        return (vectors[:, 0] if vectors.shape[1] == 1 else vectors).numpy()

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Float[Tensor, "q c"]:
        """Score all items of one argument with all of the other; larger is better.

        Either argument may be images or texts, because the similarity of an indexable model is symmetric.

        Args:
            embeddings1: (Q D) or (Q K D).
            embeddings2: (C D) or (C K D).

        Returns:
            (Q C) scores.
        """
        with torch.inference_mode():
            return self.model.similarity(self._items(embeddings1), self._items(embeddings2)).cpu()

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Float[Tensor, "n"]:
        """Score items with the same position: first with first, second with second, and so on.

        Args:
            embeddings1: (N D) or (N K D).
            embeddings2: (N D) or (N K D).

        Returns:
            (N) scores.

        Raises:
            ShapeError: If the two differ in number.
        """
        if len(embeddings1) != len(embeddings2):
            raise ShapeError(
                f"pairwise similarity needs the same number of items on both sides; it got {len(embeddings1)} and "
                f"{len(embeddings2)}"
            )
        blocks = [slice(start, start + TILE) for start in range(0, len(embeddings1), TILE)]
        return torch.cat([self.similarity(embeddings1[rows], embeddings2[rows]).diagonal() for rows in blocks])

    @cached_property
    def mteb_model_meta(self) -> ModelMeta:
        """The description of the model in MTEB's results.

        Raises:
            RequirementError: If mteb is not installed.
        """
        try:
            from mteb.models.model_meta import ModelMeta
        except ImportError as problem:
            raise RequirementError(
                f"an MTEB evaluation needs the package mteb, which is not installed; {install_hint('mteb')}"
            ) from problem
        return ModelMeta.create_empty(
            {
                "name": self.name,
                "n_parameters": sum(parameter.numel() for parameter in self.model.parameters()),
                "framework": ["PyTorch"],
                "modalities": ["image", "text"],
                "use_instructions": False,
            }
        )

    def _vectors(self, batch: Mapping[str, Any], batch_size: int) -> Float[Tensor, "n k d"]:
        present = sorted(_MODALITIES & set(batch))
        if present == ["image"]:
            return self.model.embed_images(batch["image"], batch_size=batch_size).vectors.float()
        if present == ["text"]:
            return self.model.embed_texts(batch["text"], batch_size=batch_size).vectors.float()
        raise RequirementError(
            "MTEB encoding needs items that are an image or a text; the items of this task have "
            f"{' and '.join(present) or 'none'}; choose a task between images and texts"
        )

    def _items(self, vectors: Vectors) -> Embeddings:
        rows = torch.as_tensor(vectors).float()
        device = next((parameter.device for parameter in self.model.parameters()), rows.device)
        vectors_by_view = rows[:, None] if rows.ndim == 2 else rows
        return Embeddings(vectors_by_view, torch.arange(len(rows))).to(device)
