"""Pictures and texts of a split that an audit scores again and again, each time in another company."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset, Items
from subtext.errors import RequirementError
from subtext.models.model import Branch, Model
from subtext.ops import draw

BLOCK = 64
"""Items a side that are compared at once, where nothing else is tried."""
_CAPTIONS = 5
"""Texts of a picture that are taken at most."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Rows of a split, and the model that scores them.

    images, texts  (I), (T) int64 rows into pairs         batch_size  items that are embedded at once
    """

    model: Model
    pairs: Dataset
    images: Rows
    texts: Rows
    batch_size: int = 128

    @staticmethod
    def drawn(model: Model, pairs: Dataset, *, pictures: int, seed: int, batch_size: int = 128) -> Sample:
        """So many pictures, drawn, with their first texts, at most five each.

        Raises RequirementError for fewer than two pictures: a score has no neighbours then.
        """
        linked = np.unique(pairs.links[:, 0])
        if len(linked) < 2 or pictures < 2:
            raise RequirementError(
                f"an audit needs 2 pictures with texts or more; the split has {len(linked)}, asked for are {pictures}"
            )
        drawn = draw.uniform(pairs.images.keys[linked], seed=seed, epoch=0, purpose="audit sample")[:, 0]
        images = np.sort(linked[np.argsort(drawn, kind="stable")[:pictures]])
        links = pairs.links[np.isin(pairs.links[:, 0], images)]
        links = links[np.lexsort((links[:, 1], links[:, 0]))]
        begins = np.flatnonzero(np.diff(links[:, 0], prepend=-1))
        place = np.arange(len(links)) - np.repeat(begins, np.diff(np.append(begins, len(links))))
        return Sample(model, pairs, images, np.unique(links[place < _CAPTIONS, 1]), batch_size)

    @property
    def chosen(self) -> Dataset:
        """The sample as pairs of its own."""
        return self.pairs.subset(self.images, self.texts)

    def image_embeddings(
        self, rows: Rows, *, batch_size: int | None = None, numbers: Rows | None = None, contents: Rows | None = None
    ) -> Embeddings:
        """Pictures in the order of `rows`.

        numbers   what the model is told their rows are; their own by default
        contents  rows of what is read in their places; their own by default
        """
        return self._embed(self.model.image, self.pairs.images, rows, batch_size, numbers, contents)

    def text_embeddings(self, rows: Rows, *, batch_size: int | None = None, numbers: Rows | None = None) -> Embeddings:
        """Texts in the order of `rows`."""
        return self._embed(self.model.text, self.pairs.texts, rows, batch_size, numbers, None)

    def scores(
        self, images: Embeddings, texts: Embeddings, *, height: int = BLOCK, width: int = BLOCK
    ) -> Float[Tensor, "i t"]:
        """Scores of all pairs, `height` pictures and `width` texts at a time, as the similarity gives them."""
        device = self._device
        with torch.inference_mode():
            rows = []
            for top in range(0, len(images), height):
                upper = images[top : top + height].to(device)
                cells = [
                    self.model.similarity(upper, texts[left : left + width].to(device)).float().cpu()
                    for left in range(0, len(texts), width)
                ]
                rows.append(torch.cat(cells, dim=1))
            return torch.cat(rows)

    @property
    def _device(self) -> torch.device:
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def _embed(
        self,
        branch: Branch,
        items: Items,
        rows: Rows,
        batch_size: int | None,
        numbers: Rows | None,
        contents: Rows | None,
    ) -> Embeddings:
        size = batch_size or self.batch_size
        read = rows if contents is None else contents
        told = rows if numbers is None else numbers
        was_training = self.model.training
        self.model.eval()
        pieces: list[Embeddings] = []
        try:
            with torch.inference_mode():
                for start in range(0, len(rows), size):
                    batch = item_batch(items, read[start : start + size], self.pairs.root)
                    inputs = branch.read(replace(batch, rows=told[start : start + size]))
                    embedded = branch({name: value.to(self._device) for name, value in inputs.items()})
                    pieces.append(replace(embedded, residuals=None).to("cpu"))
        finally:
            self.model.train(was_training)
        return Embeddings.cat(pieces)
