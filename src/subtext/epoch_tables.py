"""Tables of an epoch: the diversity and discrepancy of every training pair, from embeddings seen before it began.

A pair of picture and text has the row of its text, and both modalities share the graph's lists: a picture's neighbours
are the pictures of its text's neighbours. The bank of embeddings is overwritten while an epoch goes on; the tables are
made at its start and stay, so that one bank does for two. Where pictures have several texts and one is drawn a time, a
text that was never drawn is stood in for by the text of its picture that was drawn last.
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
from subtext.data.pairs import Pairs
from subtext.errors import DataError, counted
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops.neighbour_scores import (
    AS_PRINTED,
    Lists,
    Scores,
    Scoring,
    ascending,
    known_neighbours,
    neighbour_scores,
    second_sums,
)
from subtext.ops.pooled_scores import pooled_scores

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
                text of every picture is drawn, a fifth of them or so. There are no moments then
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

    def open(self, pairs: Pairs, *, device: torch.device) -> NeighbourMemory:
        """The memory, empty, for these training pairs.

        Raises DataError for a graph that cannot be read or was built for other data, and where it, or the data, have
        fewer texts than `neighbours`.
        """
        graph = Graph.load(self.graph.expanduser())
        near = graph.within(pairs.texts)
        wanted = self.neighbours or graph.width
        if graph.width < wanted:
            raise DataError(
                f"neighbours={wanted} needs a graph of as many; {self.graph} has {graph.width} for each text; ask for "
                "fewer, or build a wider graph (subtext neighbours build)"
            )
        if len(pairs.texts) <= wanted:
            raise DataError(
                f"scores of {wanted} neighbours need more than {wanted} texts; it got {len(pairs.texts):,}; ask for "
                "fewer (neighbours=N)"
            )
        lists = torch.from_numpy(np.ascontiguousarray(near.neighbours[:, :wanted]))
        return NeighbourMemory(self, pairs, ascending(lists).to(device), graph.fingerprint)


@dataclass(frozen=True)
class _Near:
    """(T E) neighbours of every text, and the same as lists: these take as long to make as a product with them."""

    neighbours: Tensor

    @cached_property
    def lists(self) -> Lists:
        return Lists(self.neighbours)


class NeighbourMemory:
    """The bank of a training, and the tables of the epoch under way.

    Table names: "diversity/image" and so on (T), by row of the text, NaN where a pair has no neighbours with
    embeddings, or was not asked for; "moments/diversity/both" and so on (2), mean and standard deviation over the data
    set.
    """

    def __init__(self, asked: NeighbourScores, pairs: Pairs, neighbours: Int[Tensor, "t e"], graph: str) -> None:
        self.asked = asked
        self.fingerprint = graph
        self.table: dict[str, Tensor] | None = None
        self.bank: dict[str, Embeddings] | None = None
        self._keys, self._whole = pairs.texts.keys, _Near(neighbours)
        self._pictures = torch.from_numpy(pictures_of_texts(pairs)).to(neighbours.device)
        self._seen: dict[str, Tensor] = {}
        self._kept: dict[str, Tensor] = {}
        self._sizes = {"image": len(pairs.images), "text": len(pairs.texts)}
        self._latest = self._pictures.new_full((len(pairs.images),), -1)

    @property
    def notes(self) -> Sequence[str]:
        """How many pairs will have no score of their own."""
        alone = int((self._whole.neighbours < 0).all(dim=1).sum())
        if not alone:
            return ()
        return (f"{counted(alone, 'text')} without neighbours: such a pair counts as the mean of its batch",)

    def begin(
        self,
        *,
        epoch: int,
        seed: int,
        embed: Callable[[], tuple[Embeddings, Embeddings]],
        reads: Int[Tensor, "d"] | None = None,
    ) -> None:
        """Make the tables of an epoch, where anything is known."""
        passed = (epoch == 0 and self.asked.first == "encode") or (epoch > 0 and self.asked.bank == "evaluation")
        if passed:
            self._keep(*embed())
        if not self._kept:
            return
        known = self._known()
        there = (known["image"] >= 0) & (known["text"] >= 0)
        near = self._whole if bool(there.all()) else _Near(known_neighbours(self._whole.neighbours, there))
        wanted = None if self.asked.every or reads is None else reads.to(there.device)
        table: dict[str, Tensor] = {}
        bank: dict[str, Embeddings] = {}
        for modality in MODALITIES:
            rows = known[modality]
            found = self._scores(self._kept[modality], near, rows.clamp_min(0), wanted, seed, epoch)
            for name, values in zip(SCORES, found, strict=True):
                if name == "discrepancy" and self.asked.scoring.second == "none":
                    continue
                # One table a pair: half precision would tie pairs.
                scores = values.float()
                if wanted is not None:
                    scores = torch.full_like(rows, torch.nan, dtype=torch.float32).index_copy_(0, wanted, scores)
                table[f"{name}/{modality}"] = scores.masked_fill(rows < 0, torch.nan)
            if self.asked.current:
                vectors = self._sums(self._kept[modality], near, rows.clamp_min(0))
                bank[f"discrepancy/{modality}"] = Embeddings(vectors, torch.arange(len(rows), device=rows.device))
        before = {name: value for name, value in (self.table or {}).items() if name.startswith("moments/")}
        fixed = before if self.asked.moments == "fixed" else {}
        self.table = table | (fixed or (moments(table) if wanted is None else {}))
        self.bank = bank or None
        if passed:
            # A pass is for one epoch: a text that is not drawn must not keep what an untrained model made of it.
            self._kept, self._seen = {}, {}
            self._latest.fill_(-1)

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """Keep the embeddings of a step in the place of older ones, where the next epoch's tables are of these."""
        if self.asked.bank == "training":
            self._keep(images, texts)

    def _keep(self, images: Embeddings, texts: Embeddings) -> None:
        """Keep embeddings in the place of older ones; of an item that comes twice the last."""
        for modality, items in (("image", images), ("text", texts)):
            if modality not in self._kept:
                shape = (self._sizes[modality], items.views, items.width)
                self._kept[modality] = torch.zeros(
                    shape, dtype=_DTYPES[self.asked.storage], device=self._pictures.device
                )
                self._seen[modality] = self._pictures.new_zeros(self._sizes[modality], dtype=torch.bool)
            kept = self._kept[modality]
            ids = items.ids.to(kept.device)
            kept[ids] = items.vectors.detach().to(kept)[_last(ids)]
            self._seen[modality][ids] = True
        rows = texts.ids.to(self._pictures.device)
        pictures = self._pictures[rows]
        rows, pictures = rows[pictures >= 0], pictures[pictures >= 0]
        self._latest[pictures] = rows[_last(pictures)]

    def tensors(self) -> dict[str, Tensor]:
        """Bank, tables and what was seen."""
        found = {f"kept/{name}": value for name, value in self._kept.items()}
        found |= {f"seen/{name}": value for name, value in self._seen.items()}
        found |= {f"table/{name}": value for name, value in (self.table or {}).items()}
        found |= {f"bank/{name}": value.vectors for name, value in (self.bank or {}).items()}
        return {**found, "latest": self._latest} if found else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        parts: dict[str, dict[str, Tensor]] = {"kept": {}, "seen": {}, "table": {}, "bank": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition("/")
            if rest:
                parts[kind][rest] = value.to(self._pictures.device)
        self._kept, self._seen = parts["kept"], parts["seen"]
        self.table = parts["table"] or None
        rows = torch.arange(len(self._whole.neighbours), device=self._pictures.device)
        self.bank = {name: Embeddings(value, rows) for name, value in parts["bank"].items()} or None
        if tensors:
            self._latest = tensors["latest"].to(self._pictures.device)

    def _known(self) -> dict[str, Tensor]:
        """Modality -> (T) row of its bank for every text; -1 where there is none."""
        has = self._pictures >= 0
        pictures = self._pictures.clamp_min(0)
        image = torch.where(has & self._seen["image"][pictures], pictures, -1)
        own = torch.arange(len(has), device=has.device)
        text = torch.where(self._seen["text"], own, torch.where(has, self._latest[pictures], -1))
        return {"image": image, "text": text}

    def _scores(
        self,
        kept: Float[Tensor, "m k h"],
        near: _Near,
        rows: Int[Tensor, "t"],
        wanted: Int[Tensor, "d"] | None,
        seed: int,
        epoch: int,
    ) -> Scores:
        scoring, views = self.asked.scoring, kept.shape[1]
        if views > 1 and self.asked.views == "max":
            return pooled_scores(
                kept[rows].float(),
                near.neighbours,
                scoring,
                keys=self._keys,
                samples=self.asked.samples,
                seed=seed,
                epoch=epoch,
                items=wanted,
            )
        return neighbour_scores(self._flat(kept), near.lists, scoring, rows=rows, items=wanted)

    def _sums(self, kept: Float[Tensor, "m k h"], near: _Near, rows: Int[Tensor, "t"]) -> Tensor:
        """(T 1 H) or (T K H) for `current`; several views need views=mean or aligned, where both are linear."""
        views = kept.shape[1] if self.asked.views == "aligned" else 1
        sums = second_sums(self._flat(kept), near.lists, self.asked.scoring, rows=rows) / views**0.5
        return sums.unflatten(1, (views, kept.shape[2]))

    def _flat(self, kept: Float[Tensor, "m k h"]) -> Float[Tensor, "m w"]:
        """One vector an item whose inner products are the scores."""
        if self.asked.views == "aligned":
            return kept.float().flatten(1) / kept.shape[1] ** 0.5
        # View by view: torch's mean along a short axis takes three times as long.
        first, *others = kept.float().unbind(dim=1)
        total = first.clone()
        for view in others:
            total += view
        return total.div_(kept.shape[1])


def moments(table: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """(2) mean and population standard deviation of each score there: of either modality, and of both together."""
    found = {}
    for name in [each for each in SCORES if f"{each}/image" in table]:
        sides = {modality: table[f"{name}/{modality}"] for modality in MODALITIES}
        for whose, values in {**sides, "both": torch.cat(list(sides.values()))}.items():
            known = values[~values.isnan()].double()
            pair = torch.stack([known.mean(), known.std(correction=0)]) if len(known) else known.new_zeros(2)
            found[f"moments/{name}/{whose}"] = pair.float()
    return found


def _last(ids: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """(N) the last place of each id: writing what stands there, the order of writing does not matter."""
    places = torch.arange(len(ids), device=ids.device)
    order = torch.argsort(ids, stable=True)
    _, groups, sizes = torch.unique_consecutive(ids[order], return_inverse=True, return_counts=True)
    return places[order][sizes.cumsum(0) - 1][groups][torch.argsort(order)]
