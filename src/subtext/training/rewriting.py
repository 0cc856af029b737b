"""Texts made of a batch's own while training (Gong et al. 2024): true ones that say more or less, and noisy ones.

A reader makes the words of a batch's added texts while the batch before it is learnt from; noise that acts on word
vectors is added in the step, where those are. All of it is a function of (seed, epoch, text) alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from subtext.core import Comparison, Embeddings, Scene
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw, Input, Tensors
from subtext.data.text import END, SubwordInput, WordInput, cut_note
from subtext.errors import RequirementError
from subtext.models.model import Model
from subtext.objectives import generation
from subtext.objectives.generation import join_texts, shorten_text
from subtext.objectives.scene import Grouped, add_negatives
from subtext.ops import draw as draws
from subtext.ops.numerics import masked_mean, unit
from subtext.text_helpers import counted
from subtext.training.batch_relevance import require_words
from subtext.training.step import Extra, ExtraReader, Side, StepReader, TrainBatch

TEXT, RETOLD = "text", "retold"
"""What added texts are made of: a batch's own, and those that say more or less."""


@dataclass(frozen=True)
class Rewriting:
    """What `Setup.extras` holds, for terms on image_to_noised, image_to_retold or retold_to_image.

    Attributes:
        negatives: The kind of noise of one wrong text ("mixture": one of the four ways, drawn anew each time); "none".
        positives: One right text: "long", its own and another of its image; "short", its first words; "mixed", either;
            "none". Of an image's only text "long" is the text itself.
        shuffle_at: Words change places before they are read ("input"), or their vectors do ("embedding").
        concatenate: A long text is the "own" one and another, or "any" two of the image's.
        outscoring: Whether wrong texts that score above the right one count; alpha of the paper leaves them out.
        unit_parts: Whether word vectors have unit length, and get it again.
    """

    negatives: generation.Choice | Literal["none"] = "mixture"
    positives: Literal["mixed", "long", "short", "none"] = "mixed"
    shuffle_at: Literal["input", "embedding"] = "input"
    concatenate: Literal["own", "any"] = "own"
    outscoring: bool = False
    unit_parts: bool = False
    rates: generation.Rates = field(default_factory=generation.Rates)
    generates: ClassVar[tuple[Side, ...]] = ("text",)

    def open(self, pairs: Dataset) -> Rewriter:
        """What rewrites the texts of these pairs.

        Raises:
            DataError: If texts have no words.
        """
        require_words(pairs, "texts are rewritten by their words")
        return Rewriter(self, pairs)


@dataclass(frozen=True)
class Noise:
    """What befalls the texts of a batch: (N) kinds and seeds, and (n) the rows that were read anew, shuffled."""

    kinds: NDArray[np.int64]
    seeds: NDArray[np.int64]
    again: NDArray[np.int64]


class Rewriter(ExtraReader):
    """Makes the added texts of a batch."""

    def __init__(self, rewriting: Rewriting, pairs: Dataset) -> None:
        self.rewriting = rewriting
        self._pairs = pairs
        self._of_picture: dict[int, list[int]] = {}
        for image, text in pairs.links.tolist():
            self._of_picture.setdefault(image, []).append(text)

    def notes(self, model: Model) -> list[str]:
        """How many joined texts are cut, and how many images have no other text to join."""
        if self.rewriting.positives not in ("mixed", "long"):
            return []
        # Other texts are joined in every epoch: those of one tell how many are too long.
        links = self._pairs.links
        several = np.array([len(self._of_picture[image]) > 1 for image in links[:, 0].tolist()], dtype=bool)
        long = Rewriter(replace(self.rewriting, positives="long"), self._pairs)
        cut = cut_note(model.text.input_spec, long.retold(links[several], Draw(seed=0, epoch=0)), of="joined text")
        single = sum(len(texts) == 1 for texts in self._of_picture.values())
        note = f"{counted(single, 'image')} with one text: there is no other to make it longer by, and it stays"
        return [*filter(None, [cut]), *([note] if single else [])]

    def __call__(
        self, reader: StepReader, draw: Draw, links: Mapping[Side, NDArray[np.int64]], texts: Tensors
    ) -> Rewritten:
        """What is made of the texts of a share."""
        return self.rewrite(reader.model.text.input_spec, links["text"], texts, draw)

    def rewrite(self, input_spec: Input, links: NDArray[np.int64], texts: Tensors, draw: Draw) -> Rewritten:
        """What is made of the texts of (B 2) links, whose own tensors are `texts`."""
        keys = self._pairs.texts.keys[links[:, 1]]
        sets = {TEXT: texts}
        if self.rewriting.positives != "none":
            batch = item_batch(self._pairs.texts, links[:, 1], self._pairs.root)
            sets[RETOLD] = input_spec(replace(batch, values=self.retold(links, draw)), draw)
        items: dict[str, tuple[Side, Tensors]] = {RETOLD: ("text", sets[RETOLD])} if RETOLD in sets else {}
        noise: dict[str, Noise] = {}
        for label, plain in sets.items():
            if self.rewriting.negatives == "none":
                break
            kinds, seeds = generation.sample_noise(
                keys, self.rewriting.negatives, seed=draw.seed, epoch=draw.epoch, purpose=f"noise of {label}"
            )
            shuffled = np.flatnonzero((kinds == generation.SHUFFLE) & (self.rewriting.shuffle_at == "input"))
            if len(shuffled):
                items[f"shuffled {label}"] = ("text", _shuffled(input_spec, plain, shuffled, seeds[shuffled]))
            noise[label] = Noise(kinds, seeds, shuffled.astype(np.int64))
        return Rewritten(items, noise, self.rewriting)

    def retold(self, links: NDArray[np.int64], draw: Draw) -> list[str]:
        """A text of each pair that says more or less than its own."""
        values, keys = self._pairs.texts.values, self._pairs.texts.keys[links[:, 1]]
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="retold", count=3)
        texts = []
        for (image, text), (kind, first, second) in zip(links.tolist(), samples.tolist(), strict=True):
            text_itself = str(values[text])
            long = self.rewriting.positives == "long" or (self.rewriting.positives == "mixed" and kind < 0.5)
            if not long:
                texts.append(shorten_text(text_itself, first))
                continue
            siblings = sorted(self._of_picture[image])
            start = siblings[int(first * len(siblings))] if self.rewriting.concatenate == "any" else text
            candidates = [candidate for candidate in siblings if candidate != start]
            if not candidates:
                texts.append(text_itself)
                continue
            texts.append(join_texts(str(values[start]), str(values[candidates[int(second * len(candidates))]])))
        return texts


@dataclass(frozen=True)
class Rewritten(Extra):
    """What was made of the texts of a share, and the noise of each set of texts by its label."""

    noise: Mapping[str, Noise]
    rewriting: Rewriting

    def compare(self, batch: TrainBatch, scene: Scene | None) -> Scene:
        """The pairs of the batch, and by name its images with the texts that were made."""
        parts, images = batch.parts, batch.parts["image"]
        right = {label: parts[label] for label in (TEXT, RETOLD) if label in parts}
        wrong = {
            label: noisy(parts[label], noise, parts.get(f"shuffled {label}"), self.rewriting)
            for label, noise in self.noise.items()
        }
        # What the other processes have of the texts themselves is gathered first.
        several = batch.others is not None
        grouped = {label: Grouped(texts, batch.reading.groups.texts) for label, texts in wrong.items()}
        for label, group in (batch.gather(grouped) if grouped else {}).items():
            wrong[label] = Embeddings.cat([wrong[label], group.items])
        sets = [*right.values(), *wrong.values()]
        scores: list[Tensor | None] = [None] * len(sets)
        if not several:
            # All texts in one call: those of equally many words are scored at once, in two thirds of the time.
            scores = [*batch.similarity(images, Embeddings.cat(sets)).split([len(texts) for texts in sets], dim=1)]
        of_wrong = dict(zip(wrong, scores[len(right) :], strict=True))
        scenes = {TEXT: batch.pairs(scores=scores[0])}
        if RETOLD in right:
            scenes[RETOLD] = batch.pairs(right[RETOLD], scores=scores[1])
        edited: dict[str, Comparison] = {}
        for label, pairs in scenes.items():
            comparison = pairs.image_to_text
            if label in wrong:
                comparison = add_negatives(
                    batch.similarity,
                    comparison,
                    wrong[label],
                    outscoring=self.rewriting.outscoring,
                    scores=of_wrong[label],
                )
            edited["image_to_noised" if label == TEXT else "image_to_retold"] = comparison
        if RETOLD in scenes:
            edited["retold_to_image"] = scenes[RETOLD].text_to_image
        return replace(scenes[TEXT], edited=edited)


def noisy(texts: Embeddings, noise: Noise, shuffled: Embeddings | None, rewriting: Rewriting) -> Embeddings:
    """Texts with noise, those that were read anew in their places.

    Raises:
        RequirementError: For texts without word vectors whose vectors are to change.
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


def _shuffled(input_spec: Input, texts: Tensors, rows: NDArray[np.int64], seeds: NDArray[np.int64]) -> Tensors:
    """The tensors of some texts, their words in another order."""
    if "tokens" not in texts:
        raise RequirementError(
            f"shuffling words needs a text side that reads words; {type(input_spec).__name__} gives none; shuffle "
            "their vectors instead (shuffle=embedding)"
        )
    if isinstance(input_spec, WordInput):
        marks = torch.arange(END + 1)
    elif isinstance(input_spec, SubwordInput):
        names = ("cls_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id")
        codes = {getattr(input_spec.tokeniser, name, None) for name in names}
        marks = torch.tensor(sorted(code for code in codes if code is not None), dtype=torch.int64)
    else:
        raise RequirementError(
            f"shuffling words needs to know which tokens are marks; {type(input_spec).__name__} does not say; take "
            "shuffle=embedding"
        )
    some = {name: value[torch.from_numpy(rows)] for name, value in texts.items()}
    movable = some["mask"] & ~torch.isin(some["tokens"], marks)
    return {**some, "tokens": generation.shuffle_tokens(some["tokens"], movable, seeds)}
