"""A model as MTEB 2 wants its encoders, for retrieval between pictures and texts."""

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

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

_MODALITIES = frozenset({"image", "text", "audio", "video"})
Vectors = np.ndarray | Tensor
"""What MTEB passes on: what `encode` gave, or parts of it."""


class MtebEncoder:
    """A model in MTEB's encoder protocol: `mteb.evaluate(MtebEncoder(model), tasks)`.

    model  any model that embeds pictures and texts one by one, with one or several views an item
    name   how MTEB's results call it, as "organisation/model"

    It is for tasks of the kind Any2AnyRetrieval whose queries and documents are pictures or texts. An item that is a
    picture and a text at once is refused: there is one vector for each, and how to mix them is not the model's to say.

    Raises RequirementError when the model only scores pairs.
    """

    def __init__(self, model: Model, *, name: str = "subtext/model") -> None:
        model = model.by_mean("MTEB")
        if name.count("/") != 1:
            raise RequirementError(f"MTEB needs a name as 'organisation/model'; it got '{name}'; put a / in it")
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
        """Vectors of pictures or of texts: (N D) float32, or (N K D) for a model of K views.

        inputs  batches with a column "image" of PIL pictures or "text" of strings
        The task, the split and the prompt type change nothing: the model knows no instructions.

        Raises RequirementError for a batch of both columns or of neither, and for another precision.
        """
        if precision != "float32":
            raise RequirementError(f"MTEB encoding needs precision 'float32'; it got '{precision}'; leave it out")
        pieces = [self._vectors(batch, batch_size) for batch in inputs]
        if not pieces:
            raise RequirementError("MTEB encoding needs at least one batch; it got none")
        vectors = torch.cat(pieces)
        return (vectors[:, 0] if vectors.shape[1] == 1 else vectors).numpy()

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Float[Tensor, "q c"]:
        """Scores of every item of the first with every item of the second, larger is better.

        Either may be pictures or texts: a similarity that an index can use is symmetric in its vectors.
        """
        with torch.inference_mode():
            return self.model.similarity(self._items(embeddings1), self._items(embeddings2)).cpu()

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Float[Tensor, "n"]:
        """Scores of the first with the first, the second with the second, and so on.

        Raises ShapeError when the two differ in number.
        """
        if len(embeddings1) != len(embeddings2):
            raise ShapeError(
                f"pairwise similarity needs as many items on both sides; it got {len(embeddings1)} and "
                f"{len(embeddings2)}"
            )
        cuts = [slice(start, start + TILE) for start in range(0, len(embeddings1), TILE)]
        return torch.cat([self.similarity(embeddings1[cut], embeddings2[cut]).diagonal() for cut in cuts])

    @cached_property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB's results say of the model.

        Raises RequirementError when mteb is not installed.
        """
        try:
            from mteb.models.model_meta import ModelMeta
        except ImportError as problem:
            raise RequirementError(
                "an MTEB evaluation needs the package mteb, which is not installed; pip install 'subtext[mteb]'"
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
            "MTEB encoding needs items that are a picture or a text; this task's have "
            f"{' and '.join(present) or 'none'}; choose a task between pictures and texts"
        )

    def _items(self, vectors: Vectors) -> Embeddings:
        rows = torch.as_tensor(vectors).float()
        device = next((parameter.device for parameter in self.model.parameters()), rows.device)
        shaped = rows[:, None] if rows.ndim == 2 else rows
        return Embeddings(shaped, torch.arange(len(rows))).to(device)
