"""Tables of an epoch: the diversity and discrepancy of every training pair, from embeddings seen before it began.

A pair of image and text has the row of its text, and both modalities share the graph's lists: an image's neighbours
are the images of its text's neighbours. The bank of embeddings is overwritten while an epoch goes on; the tables are
made at its start and stay, so that one bank does for two (`latest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import DataError, counted
from subtext.neighbours.graph import Graph
from subtext.ops.neighbour_scores import (
    AS_PRINTED,
    NeighbourLists,
    Scores,
    Scoring,
    ascending,
    neighbour_scores,
    pooled_scores,
    second_sums,
    select_neighbours,
)
from subtext.training.embedding_bank import EmbeddingBank

MODALITIES = ("image", "text")
SCORES = ("diversity", "discrepancy")
_DTYPES = {"float32": torch.float32, "float16": torch.float16}

Views = Literal["max", "mean", "aligned"]


@dataclass(frozen=True)
class NeighbourScores:
    """What the tables of a training are made from; the defaults are the paper's.

    graph       folder of a `Graph` of these texts, or of more of them
    neighbours  the nearest so many of its lists; 0 for all
    scoring     what is averaged
    views       how items of several views are compared: by the pair that fits best, all pairs, or view by view
    samples     for the best pair, neighbours of neighbours drawn a pair and epoch; 0 for all of them
    bank        embeddings of the training's own steps, or of a pass without augmentation at each epoch's start
    first       the first epoch: no tables, or those of a pass before it
    current     also what the embeddings of now are multiplied by for their discrepancy, as Epoch.bank
    moments     mean and deviation of the scores: of each epoch, or of the first that has scores
    every       score all pairs at each epoch's start, as moments need it, or only those that the epoch reads: where one
                text of every image is drawn, a fifth of them or so. There are no moments then
    storage     what the bank is held and saved in
    """

    graph: Path
    neighbours: int = 0
    scoring: Scoring = AS_PRINTED
    views: Views = "max"
    samples: int = 1000
    bank: Literal["training", "evaluation"] = "training"
    first: Literal["uniform", "encode"] = "uniform"
    current: bool = False
    moments: Literal["refreshed", "fixed"] = "refreshed"
    every: bool = True
    storage: Literal["float32", "float16"] = "float32"

    def open(self, pairs: Dataset, *, device: torch.device) -> NeighbourMemory:
        """The memory, empty, for these training pairs.

        Raises DataError for a graph that cannot be read or was built for other data, and where it, or the data, have
        fewer texts than `neighbours`.
        """
        graph = Graph.load(self.graph.expanduser())
        nearest = graph.within(pairs.texts)
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
        return NeighbourMemory(self, pairs, ascending(lists).to(device), graph.fingerprint)


@dataclass(frozen=True)
class _Neighbours:
    """(T E) neighbours of every text, and the same as lists: these take as long to make as a product with them."""

    neighbours: Tensor

    @cached_property
    def lists(self) -> NeighbourLists:
        return NeighbourLists(self.neighbours)


class NeighbourMemory:
    """The bank of a training, and the tables of the epoch under way.

    Table names: "diversity/image" and so on (T), by row of the text, NaN where a pair has no neighbours with
    embeddings, or was not asked for; "moments/diversity/both" and so on (2), mean and standard deviation over the data
    set.
    """

    def __init__(self, options: NeighbourScores, pairs: Dataset, neighbours: Int[Tensor, "t e"], graph: str) -> None:
        self.options = options
        self.fingerprint = graph
        self.table: dict[str, Tensor] | None = None
        self.bank: dict[str, Embeddings] | None = None
        self._keys, self._whole = pairs.texts.keys, _Neighbours(neighbours)
        self._bank = EmbeddingBank(
            pairs, mean=options.views == "mean", storage=_DTYPES[options.storage], device=neighbours.device
        )

    @property
    def notes(self) -> Sequence[str]:
        """When weights begin, and how many pairs will have no score of their own."""
        without = int((self._whole.neighbours < 0).all(dim=1).sum())
        late = "weights begin with the second epoch; first=encode has them in the first, too"
        lonely = f"{counted(without, 'text')} without neighbours: such a pair counts as the mean of its batch"
        return (*((late,) if self.options.first == "uniform" else ()), *((lonely,) if without else ()))

    def begin(
        self,
        *,
        epoch: int,
        seed: int,
        embed: Callable[[], tuple[Embeddings, Embeddings]],
        reads: Int[Tensor, "d"] | None = None,
    ) -> None:
        """Make the tables of an epoch, where anything is known."""
        full_pass = (epoch == 0 and self.options.first == "encode") or (epoch > 0 and self.options.bank == "evaluation")
        if full_pass:
            self._bank.write(*embed())
        latest = self._bank.vectors()
        if not latest:
            return
        rows_of = self._bank.rows()
        has_embeddings = (rows_of["image"] >= 0) & (rows_of["text"] >= 0)
        neighbours = (
            self._whole
            if bool(has_embeddings.all())
            else _Neighbours(select_neighbours(self._whole.neighbours, has_embeddings))
        )
        items = None if self.options.every or reads is None else reads.to(has_embeddings.device)
        table: dict[str, Tensor] = {}
        bank: dict[str, Embeddings] = {}
        for modality in MODALITIES:
            rows = rows_of[modality]
            both_scores = self._scores(latest[modality], neighbours, rows.clamp_min(0), items, seed, epoch)
            for name, values in zip(SCORES, both_scores, strict=True):
                if name == "discrepancy" and self.options.scoring.second == "none":
                    continue
                # One table a pair: half precision would tie pairs.
                scores = values.float()
                if items is not None:
                    scores = torch.full_like(rows, torch.nan, dtype=torch.float32).index_copy_(0, items, scores)
                table[f"{name}/{modality}"] = scores.masked_fill(rows < 0, torch.nan)
            if self.options.current:
                vectors = self._sums(latest[modality], neighbours, rows.clamp_min(0))
                bank[f"discrepancy/{modality}"] = Embeddings(vectors, torch.arange(len(rows), device=rows.device))
        before = {name: value for name, value in (self.table or {}).items() if name.startswith("moments/")}
        fixed = before if self.options.moments == "fixed" else {}
        self.table = table | (fixed or (moments(table) if items is None else {}))
        self.bank = bank or None
        if full_pass:
            # A pass is for one epoch: a text that is not drawn must not keep what an untrained model made of it.
            self._bank.forget()

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """See the embeddings of a step, where the next epoch's tables are of these."""
        if self.options.bank == "training":
            self._bank.look(images, texts)

    def tensors(self) -> dict[str, Tensor]:
        """Bank and tables."""
        found = self._bank.tensors()
        found |= {f"table/{name}": value for name, value in (self.table or {}).items()}
        return found | {f"bank/{name}": value.vectors for name, value in (self.bank or {}).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        parts: dict[str, dict[str, Tensor]] = {"table": {}, "bank": {}}
        bank_tensors: dict[str, Tensor] = {}
        for name, value in tensors.items():
            kind, _, key_of_kind = name.partition("/")
            into, key = (parts[kind], key_of_kind) if kind in parts else (bank_tensors, name)
            into[key] = value.to(self._whole.neighbours.device)
        self._bank.restore(bank_tensors)
        self.table = parts["table"] or None
        rows = torch.arange(len(self._whole.neighbours), device=self._whole.neighbours.device)
        self.bank = {name: Embeddings(value, rows) for name, value in parts["bank"].items()} or None

    def _scores(
        self,
        bank: Float[Tensor, "m v h"],
        neighbours: _Neighbours,
        rows: Int[Tensor, "t"],
        items: Int[Tensor, "d"] | None,
        seed: int,
        epoch: int,
    ) -> Scores:
        scoring = self.options.scoring
        if bank.shape[1] > 1 and self.options.views == "max":
            return pooled_scores(
                bank[rows].float(),
                neighbours.neighbours,
                scoring,
                keys=self._keys,
                samples=self.options.samples,
                seed=seed,
                epoch=epoch,
                items=items,
            )
        return neighbour_scores(self._flat(bank), neighbours.lists, scoring, rows=rows, items=items)

    def _sums(
        self, bank: Float[Tensor, "m v h"], neighbours: _Neighbours, rows: Int[Tensor, "t"]
    ) -> Float[Tensor, "t v h"]:
        """What an embedding of now is multiplied by for its discrepancy (`current`); of several views their mean or all
        of them, aligned, where both are linear.
        """
        sums = second_sums(self._flat(bank), neighbours.lists, self.options.scoring, rows=rows) / bank.shape[1] ** 0.5
        return sums.unflatten(1, bank.shape[1:])

    def _flat(self, bank: Float[Tensor, "m v h"]) -> Float[Tensor, "m w"]:
        """One vector an item whose inner products are the scores."""
        flat = bank.float().flatten(1)
        return flat if bank.shape[1] == 1 else flat / bank.shape[1] ** 0.5


def moments(table: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """(2) mean and population standard deviation of each score there: of either modality, and of both together."""
    moments_of = {}
    for name in [score for score in SCORES if f"{score}/image" in table]:
        sides = {modality: table[f"{name}/{modality}"] for modality in MODALITIES}
        for whose, values in {**sides, "both": torch.cat(list(sides.values()))}.items():
            values_known = values[~values.isnan()].double()
            pair = (
                torch.stack([values_known.mean(), values_known.std(correction=0)])
                if len(values_known)
                else values_known.new_zeros(2)
            )
            moments_of[f"moments/{name}/{whose}"] = pair.float()
    return moments_of
