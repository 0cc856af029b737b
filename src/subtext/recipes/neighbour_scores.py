"""Diversity and discrepancy of the training pairs, for methods that weight pairs by them.

A pair of image and text has the row of its text, and both modalities share the graph's lists: an image's neighbours
are the images of its text's neighbours. The bank of embeddings is overwritten while an epoch goes on; the tables are
made at its start and stay, so that one bank is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.evaluation.embedding import Rows
from subtext.graphs.graph import Graph, image_of_text
from subtext.ops.neighbour_scores import (
    AS_PRINTED,
    NeighbourLists,
    Scoring,
    ascending,
    neighbour_scores,
    pooled_scores,
    second_sums,
    select_neighbours,
)
from subtext.text_helpers import counted
from subtext.training.bank import Embed, TrainingBank

_AT_ONCE = 4096
"""Items that are written together: writing after each step took as long as the tables of `diversity` do."""


class EmbeddingBank:
    """The latest embedding of every image and text.

    A text without an embedding uses that of the image's most recent text, where images have several texts and an epoch
    reads one of them.

    Args:
        pairs: Training pairs.
        mean: Keep the mean of an item's views, (1 H) instead of (K H).
        storage: The dtype that they are kept in.
        device: That they are kept on.
    """

    def __init__(self, pairs: Dataset, *, mean: bool, storage: torch.dtype, device: torch.device) -> None:
        self._mean, self._storage = mean, storage
        self._sizes = {"image": len(pairs.images), "text": len(pairs.texts)}
        self._images = torch.from_numpy(image_of_text(pairs)).to(device)
        self._all_have = bool((self._images >= 0).all())
        self._latest = self._images.new_full((len(pairs.images),), -1)
        self._banks: dict[str, Tensor] = {}
        self._filled: dict[str, Tensor] = {}
        self._read = {side: self._images.new_zeros(size, dtype=torch.bool) for side, size in self._sizes.items()}
        self._waiting: list[tuple[Embeddings, Embeddings]] = []

    def update(self, images: Embeddings, texts: Embeddings, *, at_once: bool = False) -> None:
        """Keep embeddings in place of older ones; of an item that comes twice the last.

        Args:
            images: Ids are training rows.
            texts: Likewise.
            at_once: Write them now, not together with those of later steps.
        """
        # Of an item no more than its vectors: its graph, regions or words may be many times as large.
        image, text = (Embeddings(items.vectors.detach(), items.ids) for items in (images, texts))
        self._waiting.append((image, text))
        if at_once or sum(map(len, chain.from_iterable(self._waiting))) >= _AT_ONCE:
            self._write()

    def clear(self) -> None:
        """Clear the bank."""
        self._waiting.clear()
        self._banks, self._filled = {}, {}
        self._latest.fill_(-1)
        self.start_epoch()

    def start_epoch(self) -> None:
        """From here on, no row has been visited in this epoch."""
        self._write()
        for read in self._read.values():
            read.fill_(False)

    def unread(self) -> Rows:
        """The rows not yet visited in this epoch.

        Returns:
            Rows of images, and rows of texts.
        """
        self._write()
        images, texts = (torch.nonzero(~self._read[side])[:, 0].cpu().numpy() for side in ("image", "text"))
        return images, texts

    def vectors(self) -> Mapping[str, Float[Tensor, "m v h"]]:
        """The embeddings.

        Returns:
            Modality -> (M V H) of all images or texts; empty before the first update.
        """
        self._write()
        return self._banks

    def rows(self) -> dict[str, Int[Tensor, "t"]]:
        """The row of the bank that stands for every text's pair. Needs a first update.

        Returns:
            Modality -> (T) row; -1 where there is no embedding.
        """
        self._write()
        has = self._images >= 0
        images = self._images.clamp_min(0)
        image = torch.where(has & self._filled["image"][images], images, -1)
        all_texts = torch.arange(len(has), device=has.device)
        text = torch.where(self._filled["text"], all_texts, torch.where(has, self._latest[images], -1))
        return {"image": image, "text": text}

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint.

        Returns:
            Name -> tensor; empty before the first update.
        """
        tensors = {f"kept/{name}": value for name, value in self.vectors().items()}
        tensors |= {f"seen/{name}": value for name, value in self._filled.items()}
        tensors |= {f"read/{name}": value for name, value in self._read.items()} if tensors else {}
        return {**tensors, "latest": self._latest} if tensors else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: On any device.
        """
        self.clear()
        for modality in self._sizes:
            if f"kept/{modality}" in tensors:
                vectors = tensors[f"kept/{modality}"]
                self._banks[modality] = self._compared(vectors).to(vectors)
                self._filled[modality] = tensors[f"seen/{modality}"]
            if f"read/{modality}" in tensors:
                self._read[modality] = tensors[f"read/{modality}"]
        if tensors:
            self._latest = tensors["latest"]

    def _write(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        images, texts = (Embeddings.cat(items) for items in zip(*self._waiting, strict=True))
        self._waiting.clear()
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
            self._read[modality][ids] = True
        rows = texts.ids.to(self._images.device)
        images_of_texts = self._images[rows]
        if not self._all_have:
            rows, images_of_texts = rows[images_of_texts >= 0], images_of_texts[images_of_texts >= 0]
        self._latest[images_of_texts] = rows[_last(images_of_texts, len(self._latest))]

    def _compared(self, vectors: Float[Tensor, "n k h"]) -> Float[Tensor, "n v h"]:
        return vectors.float().mean(dim=1, keepdim=True) if self._mean else vectors


def _last(ids: Int[Tensor, "n"], size: int) -> Int[Tensor, "n"]:
    """(N) the last position of each id below `size`: with the value there, the order of writing does not matter."""
    positions = torch.arange(len(ids), device=ids.device)
    # Only what ids name is written, and only that is read.
    return positions.new_empty(size).scatter_reduce_(0, ids, positions, "amax", include_self=False)[ids]


MODALITIES = ("image", "text")
SCORES = ("diversity", "discrepancy")
_DTYPES = {"float32": torch.float32, "float16": torch.float16}

Views = Literal["max", "mean", "aligned"]


@dataclass(frozen=True)
class NeighbourScores:
    """How diversity and discrepancy of the training pairs are computed; the defaults are the paper's.

    Attributes:
        graph: Folder of a `Graph` of these texts, or of more of them.
        neighbours: Nearest neighbours of each text that are used; 0 for all in the graph.
        scoring: What is averaged.
        views: Comparison of items with several views: best pair of views, mean of all pairs, or view by view.
        samples: For the best pair: neighbours of neighbours that are sampled per pair and epoch; 0 for all of them.
        bank: Embeddings of the training's own steps; those, and of what the epoch before did not read a pass without
            augmentation ("complete"); or such a pass over everything ("evaluation").
        first: The first epoch: no tables, or those of a pass before it.
        current: Also what the embeddings of now are multiplied by for their discrepancy, as Epoch.bank.
        moments: Mean and deviation of the scores: of each epoch, or of the first that has scores.
        every: Score all pairs at each epoch's start, as moments need it, or only those that the epoch reads: where one
            text of every image is sampled, about a fifth of them. There are no moments then.
        storage: What the bank is held and saved in.
    """

    graph: Path
    neighbours: int = 0
    scoring: Scoring = AS_PRINTED
    views: Views = "max"
    samples: int = 1000
    bank: Literal["training", "complete", "evaluation"] = "training"
    first: Literal["uniform", "encode"] = "uniform"
    current: bool = False
    moments: Literal["refreshed", "fixed"] = "refreshed"
    every: bool = True
    storage: Literal["float32", "float16"] = "float32"

    @property
    def needs_pairs(self) -> tuple[str, str] | None:
        """What needs one text for each image, and how to do without, for a message; None where any batch is fine."""
        return ("weights from present embeddings", "leave use_current out") if self.current else None

    def open(self, pairs: Dataset, *, device: torch.device) -> NeighbourBank:
        """Open the bank, empty.

        Args:
            pairs: Training pairs.
            device: Of the training.

        Returns:
            The bank.

        Raises:
            DataError: If a graph cannot be read or was built for other data, or if it, or the data, have fewer texts
                than `neighbours`.
        """
        graph = Graph.load(self.graph.expanduser())
        nearest = graph.restrict_to(pairs.texts)
        count = self.neighbours or graph.width
        if graph.width < count:
            raise DataError(
                f"neighbours={count} needs a graph of as many; {self.graph} has {graph.width} for each text; ask for "
                "fewer, or build a wider graph (subtext neighbours build)"
            )
        if len(pairs.texts) <= count:
            raise DataError(
                f"scores of {count} neighbours need more than {count} texts; it got {len(pairs.texts):,}; ask for "
                "fewer (neighbours=N)"
            )
        lists = torch.from_numpy(np.ascontiguousarray(nearest.neighbours[:, :count]))
        return NeighbourBank(self, pairs, ascending(lists).to(device), graph.fingerprint)


@dataclass(frozen=True)
class _Neighbours:
    """(T E) neighbours of every text, and the same as lists: these take as long to make as a product with them."""

    rows: Tensor

    @cached_property
    def lists(self) -> NeighbourLists:
        return NeighbourLists(self.rows)


class NeighbourBank(TrainingBank):
    """The bank of a training, and the tables of the present epoch.

    Table names: "diversity/image" and so on (T), by row of the text, NaN where a pair has no neighbours with
    embeddings, or was not to be read; "moments/diversity/both" and so on (2), mean and standard deviation over the data
    set.

    Args:
        options: How the scores are computed.
        pairs: Training pairs.
        neighbours: (T E) rows of the neighbours of every text, ascending; -1 for none.
        graph: Fingerprint of the graph.
    """

    def __init__(self, options: NeighbourScores, pairs: Dataset, neighbours: Int[Tensor, "t e"], graph: str) -> None:
        self.options = options
        self._keys, self._neighbours = pairs.texts.keys, _Neighbours(neighbours)
        self._bank = EmbeddingBank(
            pairs, mean=options.views == "mean", storage=_DTYPES[options.storage], device=neighbours.device
        )
        notes = []
        if options.first == "uniform":
            notes.append("weights begin with the second epoch; first=encode has them in the first, too")
        if without := int((neighbours < 0).all(dim=1).sum()):
            notes.append(f"{counted(without, 'text')} without neighbours: such a pair counts as the mean of its batch")
        super().__init__(graph, notes)

    def on_epoch_start(self, *, epoch: int, seed: int, embed: Embed, reads: Int[Tensor, "d"] | None = None) -> None:
        """Compute the tables of an epoch, where there are embeddings.

        Args:
            epoch: Counted from 0.
            seed: Of the training.
            embed: Embeds training pairs with the present model.
            reads: (D) training rows of the texts that the epoch will read, ascending; None for all.
        """
        full_pass = (epoch == 0 and self.options.first == "encode") or (epoch > 0 and self.options.bank == "evaluation")
        if full_pass:
            self._bank.update(*embed(), at_once=True)
        elif self.options.bank == "complete" and epoch > 0:
            unread = self._bank.unread()
            if any(map(len, unread)):
                # `embed` needs a row of either side; the first is taken out again where nothing of it is unread.
                first = np.zeros(1, dtype=np.int64)
                sides = embed((unread[0] if len(unread[0]) else first, unread[1] if len(unread[1]) else first))
                images, texts = (items[: len(rows)] for items, rows in zip(sides, unread, strict=True))
                self._bank.update(images, texts, at_once=True)
        self._bank.start_epoch()
        banks = self._bank.vectors()
        if not banks:
            return
        rows_of, scoring = self._bank.rows(), self.options.scoring
        has_embeddings = (rows_of["image"] >= 0) & (rows_of["text"] >= 0)
        neighbours = self._neighbours
        if not bool(has_embeddings.all()):
            neighbours = _Neighbours(select_neighbours(neighbours.rows, has_embeddings))
        items = None if self.options.every or reads is None else reads.to(has_embeddings.device)
        table: dict[str, Tensor] = {}
        sums: dict[str, Embeddings] = {}
        for modality in MODALITIES:
            bank, rows = banks[modality], rows_of[modality]
            positions, views = rows.clamp_min(0), bank.shape[1]
            # One vector an item whose inner products are the scores; of several views all of them, aligned.
            flat = bank.float().flatten(1) / (views**0.5 if views > 1 else 1)
            if views > 1 and self.options.views == "max":
                samples = self.options.samples
                both_scores = pooled_scores(
                    bank[positions].float(),
                    neighbours.rows,
                    scoring,
                    keys=self._keys,
                    samples=samples,
                    seed=seed,
                    epoch=epoch,
                    items=items,
                )
            else:
                both_scores = neighbour_scores(flat, neighbours.lists, scoring, rows=positions, items=items)
            for name, values in zip(SCORES, both_scores, strict=True):
                if name == "discrepancy" and scoring.second == "none":
                    continue
                # One table a pair: half precision would tie pairs.
                scores = values.float()
                if items is not None:
                    scores = torch.full_like(rows, torch.nan, dtype=torch.float32).index_copy_(0, items, scores)
                table[f"{name}/{modality}"] = scores.masked_fill(rows < 0, torch.nan)
            if self.options.current:
                vectors = second_sums(flat, neighbours.lists, scoring, rows=positions) / views**0.5
                sums[f"discrepancy/{modality}"] = Embeddings(
                    vectors.unflatten(1, bank.shape[1:]), torch.arange(len(rows), device=rows.device)
                )
        before = {name: value for name, value in (self.table or {}).items() if name.startswith("moments/")}
        fixed = before if self.options.moments == "fixed" else {}
        self.table = table | (fixed or (moments(table) if items is None else {}))
        self.bank = sums or None
        if full_pass:
            # A pass is for one epoch: a text that is not read must not keep what an untrained model made of it.
            self._bank.clear()

    def update(self, images: Embeddings, texts: Embeddings) -> None:
        """Keep the embeddings of a step, unless the tables are computed from passes without augmentation.

        Args:
            images: Ids are training rows.
            texts: Likewise.
        """
        if self.options.bank != "evaluation":
            self._bank.update(images, texts)

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint.

        Returns:
            Name -> tensor.
        """
        tensors = self._bank.tensors()
        tensors |= {f"table/{name}": value for name, value in (self.table or {}).items()}
        return tensors | {f"bank/{name}": value.vectors for name, value in (self.bank or {}).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state returned by `tensors`.

        Args:
            tensors: On any device.
        """
        parts: dict[str, dict[str, Tensor]] = {"table": {}, "bank": {}}
        bank_tensors: dict[str, Tensor] = {}
        for name, value in tensors.items():
            kind, _, key = name.partition("/")
            moved = value.to(self._neighbours.rows.device)
            if kind in parts:
                parts[kind][key] = moved
            else:
                bank_tensors[name] = moved
        self._bank.restore(bank_tensors)
        self.table = parts["table"] or None
        rows = torch.arange(len(self._neighbours.rows), device=self._neighbours.rows.device)
        self.bank = {name: Embeddings(value, rows) for name, value in parts["bank"].items()} or None


def moments(table: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mean and population standard deviation of each score: of either modality, and of both together.

    Args:
        table: Name -> (T) scores, as in a `NeighbourBank`; NaN is left out.

    Returns:
        "moments/SCORE/SIDE" -> (2) mean and deviation.
    """
    moments_of = {}
    for name in [score for score in SCORES if f"{score}/image" in table]:
        sides = {modality: table[f"{name}/{modality}"] for modality in MODALITIES}
        for side, values in {**sides, "both": torch.cat(list(sides.values()))}.items():
            scores = values[~values.isnan()].double()
            pair = [scores.mean(), scores.std(correction=0)] if len(scores) else [scores.new_zeros(())] * 2
            moments_of[f"moments/{name}/{side}"] = torch.stack(pair).float()
    return moments_of
