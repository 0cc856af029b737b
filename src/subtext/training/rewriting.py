"""Texts made of a batch's own while training (Gong et al. 2024): true ones that say more or less, and noisy ones.

A method names what is made in `Setup.rewriting`. A reader then makes the words of a batch's further texts while the
batch before it is learnt from; noise that acts on word vectors is added in the step, where those are. All of it is a
function of (seed, epoch, text) alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from subtext.core import Embeddings
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw, Input, Tensors
from subtext.data.text import END, SubwordInput, WordInput
from subtext.errors import DataError, RequirementError, counted
from subtext.objectives import generation
from subtext.objectives.generation import lengthened, shortened
from subtext.ops import draw as draws
from subtext.ops.numerics import masked_mean, unit

TEXT, RETOLD = "text", "retold"
"""What further texts are made of: a batch's own, and those that say more or less."""


@dataclass(frozen=True)
class Rewriting:
    """What is made of every text of a batch.

    negatives    the kind of noise of one wrong text ("mixture": one of the four ways, drawn anew each time); "none"
    positives    one right text: "long", its own and another of its image; "short", its first words; "mixed", either;
                 "none". Of an image's only text "long" is the text itself
    shuffle_at   words change places before they are read ("input"), or their vectors do ("embedding")
    concatenate  a long text is the "own" one and another, or "any" two of the image's
    outscoring   whether wrong texts that score above the right one count; alpha of the paper leaves them out
    unit_parts   whether word vectors have unit length, and get it again
    """

    negatives: generation.Choice | Literal["none"] = "mixture"
    positives: Literal["mixed", "long", "short", "none"] = "mixed"
    shuffle_at: Literal["input", "embedding"] = "input"
    concatenate: Literal["own", "any"] = "own"
    outscoring: bool = False
    unit_parts: bool = False
    rates: generation.Rates = field(default_factory=generation.Rates)

    def require(self, pairs: Dataset) -> None:
        """Raise DataError where texts have no words."""
        missing = sum(not isinstance(value, str) for value in pairs.texts.values)
        if missing:
            raise DataError(
                f"texts are rewritten by their words; {counted(missing, 'text')} of {len(pairs.texts):,} "
                f"{'is' if missing == 1 else 'are'} known by features alone; give data with texts"
            )

    def open(self, pairs: Dataset) -> Rewriter:
        """What rewrites the texts of these pairs."""
        self.require(pairs)
        return Rewriter(self, pairs)


@dataclass(frozen=True)
class Noise:
    """What befalls the texts of a batch: (N) kinds and seeds, and (n) the rows that were read anew, shuffled."""

    kinds: NDArray[np.int64]
    seeds: NDArray[np.int64]
    again: NDArray[np.int64]


@dataclass(frozen=True)
class Rewritten:
    """What is read beside the texts of a share: label -> tensors, and the noise of each set of texts by its label."""

    items: Mapping[str, Tensors]
    noise: Mapping[str, Noise]

    def to(self, device: torch.device) -> Rewritten:
        """The same on another device, without waiting for it."""
        moved = {
            label: {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
            for label, tensors in self.items.items()
        }
        return Rewritten(moved, self.noise)


class Rewriter:
    """Makes the further texts of a batch; `lonely` counts texts that are the only one of their image."""

    def __init__(self, rewriting: Rewriting, pairs: Dataset) -> None:
        self.rewriting = rewriting
        self._pairs = pairs
        self._of_picture: dict[int, list[int]] = {}
        for image, text in pairs.links.tolist():
            self._of_picture.setdefault(image, []).append(text)

    @property
    def notes(self) -> list[str]:
        """What there is to say before a training begins."""
        lonely = sum(len(texts) == 1 for texts in self._of_picture.values())
        if not lonely or self.rewriting.positives not in ("mixed", "long"):
            return []
        return [f"{counted(lonely, 'image')} with one text: there is no other to make it longer by, and it stays"]

    def __call__(self, input_spec: Input, links: NDArray[np.int64], texts: Tensors, draw: Draw) -> Rewritten:
        """What is made of the texts of (B 2) links, whose own tensors are `texts`."""
        keys = self._pairs.texts.keys[links[:, 1]]
        items: dict[str, Tensors] = {}
        if self.rewriting.positives != "none":
            batch = item_batch(self._pairs.texts, links[:, 1], self._pairs.root)
            items[RETOLD] = input_spec(replace(batch, values=self.retold(links, draw)), draw)
        noise: dict[str, Noise] = {}
        for label, own in {TEXT: texts, **items}.items():
            if self.rewriting.negatives == "none":
                break
            kinds, seeds = generation.sample_noise(
                keys, self.rewriting.negatives, seed=draw.seed, epoch=draw.epoch, purpose=f"noise of {label}"
            )
            shuffled = np.flatnonzero((kinds == generation.SHUFFLE) & (self.rewriting.shuffle_at == "input"))
            if len(shuffled):
                items[f"shuffled {label}"] = _shuffled(input_spec, own, shuffled, seeds[shuffled])
            noise[label] = Noise(kinds, seeds, shuffled.astype(np.int64))
        return Rewritten(items, noise)

    def joined(self, draw: Draw) -> list[str]:
        """Long texts as an epoch may draw them, one for every pair whose image has another text; if any are made."""
        if self.rewriting.positives not in ("mixed", "long"):
            return []
        links = self._pairs.links
        several = np.array([len(self._of_picture[image]) > 1 for image in links[:, 0].tolist()], dtype=bool)
        return Rewriter(replace(self.rewriting, positives="long"), self._pairs).retold(links[several], draw)

    def retold(self, links: NDArray[np.int64], draw: Draw) -> list[str]:
        """A text of each pair that says more or less than its own."""
        values, keys = self._pairs.texts.values, self._pairs.texts.keys[links[:, 1]]
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="retold", count=3)
        texts = []
        for (image, text), (kind, first, second) in zip(links.tolist(), samples.tolist(), strict=True):
            text_itself = str(values[text])
            long = self.rewriting.positives == "long" or (self.rewriting.positives == "mixed" and kind < 0.5)
            if not long:
                texts.append(shortened(text_itself, first))
                continue
            siblings = sorted(self._of_picture[image])
            start = siblings[int(first * len(siblings))] if self.rewriting.concatenate == "any" else text
            candidates = [candidate for candidate in siblings if candidate != start]
            if not candidates:
                texts.append(text_itself)
                continue
            texts.append(lengthened(str(values[start]), str(values[candidates[int(second * len(candidates))]])))
        return texts


def noisy(texts: Embeddings, noise: Noise, shuffled: Embeddings | None, rewriting: Rewriting) -> Embeddings:
    """Texts with noise, those that were read anew in their places.

    Raises RequirementError for texts without word vectors whose vectors are to change.
    """
    if texts.parts is None:
        if shuffled is None or len(noise.again) < len(texts):
            raise RequirementError(
                "noise on word vectors needs texts with words in the joint space; this model has one vector a text; "
                "take negatives=shuffle, negatives=none, or a model that compares words (ascl, scan)"
            )
        return replace(shuffled, ids=texts.ids)
    changed = generation.add_noise(texts.parts, texts.mask, noise.kinds, noise.seeds, rewriting.rates)
    if rewriting.unit_parts:
        changed = unit(changed)
    if shuffled is not None:
        assert shuffled.parts is not None
        rows = torch.from_numpy(noise.again).to(changed.device)
        fresh = pad(shuffled.parts, (0, 0, 0, changed.shape[1] - shuffled.parts.shape[1]))
        changed = changed.index_copy(0, rows, fresh.to(changed.dtype))
    return Embeddings(unit(masked_mean(changed, texts.mask))[:, None], texts.ids, parts=changed, mask=texts.mask)


def wrong_texts(parts: Mapping[str, Embeddings], rewritten: Rewritten, rewriting: Rewriting) -> dict[str, Embeddings]:
    """The noisy texts of a step by the label of what they were made of."""
    return {
        label: noisy(parts[label], noise, parts.get(f"shuffled {label}"), rewriting)
        for label, noise in rewritten.noise.items()
    }


def _shuffled(input_spec: Input, texts: Tensors, rows: NDArray[np.int64], seeds: NDArray[np.int64]) -> Tensors:
    """The tensors of some texts, their words in another order."""
    if "tokens" not in texts:
        raise RequirementError(
            f"shuffling words needs a text side that reads words; {type(input_spec).__name__} gives none; shuffle "
            "their vectors instead (shuffle=embedding)"
        )
    some = {name: value[torch.from_numpy(rows)] for name, value in texts.items()}
    movable = some["mask"] & ~torch.isin(some["tokens"], _marks(input_spec))
    return {**some, "tokens": generation.shuffle_tokens(some["tokens"], movable, seeds)}


def _marks(input_spec: Input) -> Tensor:
    """Codes of tokens that are no words."""
    if isinstance(input_spec, WordInput):
        return torch.arange(END + 1)
    if not isinstance(input_spec, SubwordInput):
        raise RequirementError(
            f"shuffling words needs to know which tokens are marks; {type(input_spec).__name__} does not say; take "
            "shuffle=embedding"
        )
    names = ("cls_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id")
    codes = {getattr(input_spec.tokeniser, name, None) for name in names}
    return torch.tensor(sorted(code for code in codes if code is not None), dtype=torch.int64)
