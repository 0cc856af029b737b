"""The embeddings that training images and texts had when they were last seen."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.neighbours.graph import pictures_of_texts

_AT_ONCE = 4096
"""Items that wait to be written together: step by step, writing took as long as the tables of DIVERSITY do."""


class EmbeddingBank:
    """A bank of images and one of texts, where what is seen takes the place of what was.

    Where images have several texts and one is drawn a time, a text that was never seen is stood in for by the text of
    its image that was seen last.

    mean     an item's views are kept as their mean, (1 H) instead of (K H)
    storage  the dtype that they are kept in
    """

    def __init__(self, pairs: Dataset, *, mean: bool, storage: torch.dtype, device: torch.device) -> None:
        self._mean, self._storage = mean, storage
        self._sizes = {"image": len(pairs.images), "text": len(pairs.texts)}
        self._images = torch.from_numpy(pictures_of_texts(pairs)).to(device)
        self._all_have = bool((self._images >= 0).all())
        self._latest = self._images.new_full((len(pairs.images),), -1)
        self._banks: dict[str, Tensor] = {}
        self._filled: dict[str, Tensor] = {}
        self._waiting: list[tuple[Embeddings, Embeddings]] = []

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Keep some, in the place of older ones."""
        # Of an item no more than its vectors: its graph, regions or words may be many times as large.
        image, text = (Embeddings(items.vectors.detach(), items.ids) for items in (images, texts))
        self._waiting.append((image, text))
        if sum(map(len, chain.from_iterable(self._waiting))) >= _AT_ONCE:
            self._write_all()

    def write(self, images: Embeddings, texts: Embeddings) -> None:
        """Keep some at once, of an item that comes twice the last."""
        self._write_all()
        self._write(images, texts)

    def forget(self) -> None:
        """Have seen nothing."""
        self._waiting.clear()
        self._banks, self._filled = {}, {}
        self._latest.fill_(-1)

    def vectors(self) -> Mapping[str, Float[Tensor, "m v h"]]:
        """Modality -> its bank; nothing before the first look."""
        self._write_all()
        return self._banks

    def rows(self) -> dict[str, Int[Tensor, "t"]]:
        """Modality -> the row of its bank for every text's pair; -1 where there is none. Needs a first look."""
        self._write_all()
        has = self._images >= 0
        images = self._images.clamp_min(0)
        image = torch.where(has & self._filled["image"][images], images, -1)
        all_texts = torch.arange(len(has), device=has.device)
        text = torch.where(self._filled["text"], all_texts, torch.where(has, self._latest[images], -1))
        return {"image": image, "text": text}

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint; nothing before the first look."""
        found = {f"kept/{name}": value for name, value in self.vectors().items()}
        found |= {f"seen/{name}": value for name, value in self._filled.items()}
        return {**found, "latest": self._latest} if found else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        self.forget()
        for modality in self._sizes:
            if f"kept/{modality}" in tensors:
                vectors = tensors[f"kept/{modality}"]
                self._banks[modality] = self._compared(vectors).to(vectors)
                self._filled[modality] = tensors[f"seen/{modality}"]
        if tensors:
            self._latest = tensors["latest"]

    def _write_all(self) -> None:
        if self._waiting:
            images, texts = zip(*self._waiting, strict=True)
            self._write(Embeddings.cat(images), Embeddings.cat(texts))
            self._waiting.clear()

    def _write(self, images: Embeddings, texts: Embeddings) -> None:
        for modality, items in (("image", images), ("text", texts)):
            size = self._sizes[modality]
            vectors = self._compared(items.vectors)
            if modality not in self._banks:
                shape, device = (size, *vectors.shape[1:]), self._images.device
                self._banks[modality] = torch.zeros(shape, dtype=self._storage, device=device)
                self._filled[modality] = self._images.new_zeros(size, dtype=torch.bool)
            bank = self._banks[modality]
            ids = items.ids.to(bank.device)
            bank[ids] = vectors.to(bank)[_last(ids, size)]
            self._filled[modality][ids] = True
        rows = texts.ids.to(self._images.device)
        images_of_texts = self._images[rows]
        if not self._all_have:
            rows, images_of_texts = rows[images_of_texts >= 0], images_of_texts[images_of_texts >= 0]
        self._latest[images_of_texts] = rows[_last(images_of_texts, len(self._latest))]

    def _compared(self, vectors: Float[Tensor, "n k h"]) -> Float[Tensor, "n v h"]:
        return vectors.float().mean(dim=1, keepdim=True) if self._mean else vectors


def _last(ids: Int[Tensor, "n"], size: int) -> Int[Tensor, "n"]:
    """(N) the last place of each id, of so many: writing what stands there, the order of writing does not matter."""
    positions = torch.arange(len(ids), device=ids.device)
    # Only what ids name is written, and only that is read.
    return positions.new_empty(size).scatter_reduce_(0, ids, positions, "amax", include_self=False)[ids]
