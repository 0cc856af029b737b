"""What methods remember of the training pairs: tables and banks, by training row.

NeighbourScores  diversity and discrepancy of every pair, from embeddings of the epoch before
PairBank         some pairs, embedded anew before every epoch (Liu et al. 2020)
DensityTable     densities of the pairs, from features that training does not change

A pair of image and text has the row of its text, and both modalities share the graph's lists: an image's neighbours
are the images of its text's neighbours. The bank of embeddings is overwritten while an epoch goes on; the tables are
made at its start and stay, so that one bank does for two.
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
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError, RequirementError
from subtext.evaluation.embedding import Rows
from subtext.graphs.graph import Graph, image_of_text
from subtext.graphs.spaces import FeatureSpace, LsaSpace
from subtext.objectives.mining import IMAGES, TEXTS
from subtext.objectives.weighting import TABLE
from subtext.ops import draw
from subtext.ops.density import AS_READ, DensityOptions, density
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
from subtext.training.memory import Embed, TrainingBank

_AT_ONCE = 4096
"""Items that wait to be written together: step by step, writing took as long as the tables of DIVERSITY do."""


class EmbeddingBank:
    """A bank of images and one of texts, where what is seen takes the place of what was.

    Where images have several texts and one is drawn a time, a text that was never seen is stood in for by the text of
    its image that was seen last. `unread` names what the epoch under way has not shown, for who would embed it.

    Args:
        mean: An item's views are kept as their mean, (1 H) instead of (K H).
        storage: The dtype that they are kept in.
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

    def look(self, images: Embeddings, texts: Embeddings, *, at_once: bool = False) -> None:
        """Keep some, in the place of older ones; of an item that comes twice the last."""
        # Of an item no more than its vectors: its graph, regions or words may be many times as large.
        image, text = (Embeddings(items.vectors.detach(), items.ids) for items in (images, texts))
        self._waiting.append((image, text))
        if at_once or sum(map(len, chain.from_iterable(self._waiting))) >= _AT_ONCE:
            self._write()

    def forget(self) -> None:
        """Have seen nothing."""
        self._waiting.clear()
        self._banks, self._filled = {}, {}
        self._latest.fill_(-1)
        self.start_epoch()

    def start_epoch(self) -> None:
        """From here on, nothing has been shown in this epoch."""
        self._write()
        for read in self._read.values():
            read.fill_(False)

    def unread(self) -> Rows:
        """Rows of the images and of the texts that this epoch has not shown."""
        self._write()
        images, texts = (torch.nonzero(~self._read[side])[:, 0].cpu().numpy() for side in ("image", "text"))
        return images, texts

    def vectors(self) -> Mapping[str, Float[Tensor, "m v h"]]:
        """Modality -> its bank; nothing before the first look."""
        self._write()
        return self._banks

    def rows(self) -> dict[str, Int[Tensor, "t"]]:
        """Modality -> the row of its bank for every text's pair; -1 where there is none. Needs a first look."""
        self._write()
        has = self._images >= 0
        images = self._images.clamp_min(0)
        image = torch.where(has & self._filled["image"][images], images, -1)
        all_texts = torch.arange(len(has), device=has.device)
        text = torch.where(self._filled["text"], all_texts, torch.where(has, self._latest[images], -1))
        return {"image": image, "text": text}

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint; nothing before the first look."""
        tensors = {f"kept/{name}": value for name, value in self.vectors().items()}
        tensors |= {f"seen/{name}": value for name, value in self._filled.items()}
        tensors |= {f"read/{name}": value for name, value in self._read.items()} if tensors else {}
        return {**tensors, "latest": self._latest} if tensors else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        self.forget()
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
    """(N) the last place of each id, of so many: writing what stands there, the order of writing does not matter."""
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
            text of every image is drawn, a fifth of them or so. There are no moments then.
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

    def open(self, pairs: Dataset, *, device: torch.device) -> NeighbourBank:
        """The memory, empty, for these training pairs.

        Raises:
            DataError: For a graph that cannot be read or was built for other data, and where it, or the data, have
                fewer texts than `neighbours`.
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
    """The bank of a training, and the tables of the epoch under way.

    Table names: "diversity/image" and so on (T), by row of the text, NaN where a pair has no neighbours with
    embeddings, or was not asked for; "moments/diversity/both" and so on (2), mean and standard deviation over the data
    set.
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

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Int[Tensor, "d"] | None = None) -> None:
        """Make the tables of an epoch, where anything is known."""
        full_pass = (epoch == 0 and self.options.first == "encode") or (epoch > 0 and self.options.bank == "evaluation")
        if full_pass:
            self._bank.look(*embed(), at_once=True)
        elif self.options.bank == "complete" and epoch > 0:
            unread = self._bank.unread()
            if any(map(len, unread)):
                # `embed` needs a row of either side; the first is taken out again where nothing of it is unread.
                first = np.zeros(1, dtype=np.int64)
                sides = embed((unread[0] if len(unread[0]) else first, unread[1] if len(unread[1]) else first))
                images, texts = (items[: len(rows)] for items, rows in zip(sides, unread, strict=True))
                self._bank.look(images, texts, at_once=True)
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
            places, views = rows.clamp_min(0), bank.shape[1]
            # One vector an item whose inner products are the scores; of several views all of them, aligned.
            flat = bank.float().flatten(1) / (views**0.5 if views > 1 else 1)
            if views > 1 and self.options.views == "max":
                samples = self.options.samples
                both_scores = pooled_scores(
                    bank[places].float(),
                    neighbours.rows,
                    scoring,
                    keys=self._keys,
                    samples=samples,
                    seed=seed,
                    epoch=epoch,
                    items=items,
                )
            else:
                both_scores = neighbour_scores(flat, neighbours.lists, scoring, rows=places, items=items)
            for name, values in zip(SCORES, both_scores, strict=True):
                if name == "discrepancy" and scoring.second == "none":
                    continue
                # One table a pair: half precision would tie pairs.
                scores = values.float()
                if items is not None:
                    scores = torch.full_like(rows, torch.nan, dtype=torch.float32).index_copy_(0, items, scores)
                table[f"{name}/{modality}"] = scores.masked_fill(rows < 0, torch.nan)
            if self.options.current:
                vectors = second_sums(flat, neighbours.lists, scoring, rows=places) / views**0.5
                sums[f"discrepancy/{modality}"] = Embeddings(
                    vectors.unflatten(1, bank.shape[1:]), torch.arange(len(rows), device=rows.device)
                )
        before = {name: value for name, value in (self.table or {}).items() if name.startswith("moments/")}
        fixed = before if self.options.moments == "fixed" else {}
        self.table = table | (fixed or (moments(table) if items is None else {}))
        self.bank = sums or None
        if full_pass:
            # A pass is for one epoch: a text that is not drawn must not keep what an untrained model made of it.
            self._bank.forget()

    def look(self, images: Embeddings, texts: Embeddings) -> None:
        """See the embeddings of a step, where the next epoch's tables are of these."""
        if self.options.bank != "evaluation":
            self._bank.look(images, texts)

    def tensors(self) -> dict[str, Tensor]:
        """Bank and tables."""
        tensors = self._bank.tensors()
        tensors |= {f"table/{name}": value for name, value in (self.table or {}).items()}
        return tensors | {f"bank/{name}": value.vectors for name, value in (self.bank or {}).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
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
    """(2) mean and population standard deviation of each score there: of either modality, and of both together."""
    moments_of = {}
    for name in [score for score in SCORES if f"{score}/image" in table]:
        sides = {modality: table[f"{name}/{modality}"] for modality in MODALITIES}
        for side, values in {**sides, "both": torch.cat(list(sides.values()))}.items():
            scores = values[~values.isnan()].double()
            pair = [scores.mean(), scores.std(correction=0)] if len(scores) else [scores.new_zeros(())] * 2
            moments_of[f"moments/{name}/{side}"] = torch.stack(pair).float()
    return moments_of


@dataclass(frozen=True)
class PairBank:
    """What a bank holds: each pair with a chance of `rate`, in (0, 1], drawn anew for every epoch, and one at least."""

    rate: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise RequirementError(f"a bank needs a rate above 0 and up to 1; it got {self.rate}")

    def open(self, pairs: Dataset, *, device: torch.device) -> PairBankRows:
        """The bank, empty, for these training pairs."""
        return PairBankRows(self, pairs, device)


class PairBankRows(TrainingBank):
    """The bank of a training: images under `hubs/image`, and row by row their texts under `hubs/text`.

    Embeddings are those of a pass without augmentation over the pairs that are drawn, and no others.
    """

    def __init__(self, options: PairBank, pairs: Dataset, device: torch.device) -> None:
        super().__init__(f"pairs{options.rate:g}")
        self.options, self.device = options, device
        self._keys, self._images = pairs.texts.keys, image_of_text(pairs)

    def begin(self, *, epoch: int, seed: int, embed: Embed, reads: Tensor | None = None) -> None:
        """Draw the pairs of an epoch and embed them; none before anything is learnt."""
        if epoch == 0:
            return
        samples = draw.uniform(self._keys, seed=seed, epoch=epoch, purpose="kept pairs")[:, 0]
        samples = np.where(self._images >= 0, samples, np.inf)
        texts = np.flatnonzero(samples < max(self.options.rate, np.nextafter(samples.min(), 1)))
        # An image of several kept pairs is read once.
        images, indices = np.unique(self._images[texts], return_inverse=True)
        embedded = embed((images, texts))
        self.bank = {
            name: Embeddings(items.vectors.to(self.device), items.ids.to(self.device))
            for name, items in ((IMAGES, embedded[0][torch.from_numpy(indices)]), (TEXTS, embedded[1]))
        }

    def tensors(self) -> dict[str, Tensor]:
        """The bank: vectors and rows of either side."""
        tensors: dict[str, Tensor] = {}
        for name, items in (self.bank or {}).items():
            tensors |= {f"vectors/{name}": items.vectors, f"rows/{name}": items.ids}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `tensors` gave."""
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        names = (IMAGES, TEXTS) if tensors else ()
        self.bank = {name: Embeddings(moved[f"vectors/{name}"], moved[f"rows/{name}"]) for name in names} or None


@dataclass(frozen=True)
class DensityTable:
    """What the densities are made from.

    Attributes:
        features: File of features of the images.
        text_features: Of the texts; None: LSA of the training texts.
        how: What counts as dense.
        same_picture: "drop": texts of one image, whose features are one, are not near each other; "keep": they may be.
    """

    features: Path
    text_features: Path | None = None
    how: DensityOptions = AS_READ
    same_picture: Literal["drop", "keep"] = "drop"

    def open(self, pairs: Dataset, *, device: torch.device) -> TrainingBank:
        """The table of these training pairs; one whose text has no place counts as the mean of the others.

        Raises:
            DataError: If an item has no features, and for fewer pairs than neighbours.
        """
        images = image_of_text(pairs)
        if self.text_features is None:
            space: LsaSpace | FeatureSpace = LsaSpace()
        else:
            space = FeatureSpace(FeatureFile.open(self.text_features.expanduser(), "text"), of="texts")
        positions = space(pairs, images >= 0)
        paired = np.flatnonzero((images >= 0) & positions.known)
        _, texts = np.unique(images[paired], return_counts=True)
        same_image = int(texts.max(initial=1)) if self.same_picture == "drop" else 1
        if len(paired) - same_image < self.how.neighbours:
            hint = f", {same_image} of one image" if len(paired) > self.how.neighbours else ""
            raise DataError(
                f"densities of {self.how.neighbours} neighbours need more than {self.how.neighbours} pairs; it got "
                f"{len(paired):,}{hint}; ask for fewer (neighbours=N)"
            )
        file = FeatureFile.open(self.features.expanduser())
        name = "pooled" if file.pooled is not None else "grid"
        rows = file.rows(*([names[row] for row in images[paired]] for names in (pairs.images.ids, pairs.images.values)))
        block = file.take(name, rows)
        features = block if block.ndim == 2 else block.mean(axis=1, dtype=np.float32)
        densities = density(
            torch.from_numpy(features),
            torch.from_numpy(positions.vectors[paired]),
            self.how,
            groups=torch.from_numpy(images[paired]) if self.same_picture == "drop" else None,
        )
        values = densities.mean().repeat(len(pairs.texts))
        values[torch.from_numpy(paired)] = densities
        # Which pairs count as near, and how, are options of the run, which its record has.
        source = f"{file.fingerprint}-{sorted(space.settings().items())}"
        without = int((images >= 0).sum()) - len(paired)
        note = f"{counted(without, 'text')} without a place among texts: such a pair counts as the mean one"
        return TrainingBank(source, [note] if without else [], {TABLE: values.to(device)})
