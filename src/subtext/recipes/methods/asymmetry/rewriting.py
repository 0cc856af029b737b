"""Texts that are generated from those of a batch (Gong et al. 2024): longer and shorter positives, noisy negatives.

The words of added texts are generated while the batch before is trained on. Noise on word vectors is added in the step.
All of it is a function of (seed, epoch, text) alone.
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
from subtext.data.text import END, SubwordInput, WordInput, cut_note, require_words
from subtext.errors import RequirementError
from subtext.models.model import Model
from subtext.objectives import generation
from subtext.objectives.generation import join_texts, shorten_text
from subtext.objectives.scene import Grouped, add_negatives
from subtext.ops import draw as draws
from subtext.ops.numerics import masked_mean, unit
from subtext.text_helpers import counted
from subtext.training.step import Extra, ExtraReader, Side, StepReader, TrainBatch

TEXT, REWRITTEN = "text", "rewritten"
"""Sets of texts to which noise is added: those of the batch, and the added positives."""


@dataclass(frozen=True)
class Rewriting:
    """Which texts are made, for terms on image_to_noised, image_to_rewritten or rewritten_to_image.

    Attributes:
        negatives: Noise of the one negative of each text; "mixture": one of four kinds, sampled each time; "none": no
            negative.
        positives: One more positive: "long", its own and another of its image; "short", its first words; "mixed",
            either; "none". Of an image's only text "long" is the text itself.
        shuffle_at: Words are shuffled before they are read ("input"), or their vectors do ("embedding").
        concatenate: A long text is the "own" one and another, or "any" two of the image's.
        outscoring: Whether negatives that score above the positive count; alpha of the paper leaves them out.
        unit_parts: Whether word vectors have unit length, and get it again.
        rates: Strengths of the noise.
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
        """Prepare to rewrite the texts of a training.

        Args:
            pairs: Training pairs.

        Returns:
            What rewrites their texts.

        Raises:
            DataError: If texts have no words.
        """
        require_words(pairs.texts.values, "texts are rewritten by their words")
        return Rewriter(self, pairs)


@dataclass(frozen=True)
class Noise:
    """Noise applied to a batch of texts.

    Attributes:
        kinds: (N) kind of noise of each text.
        seeds: (N) of its random numbers.
        again: (n) rows of the texts that were read once more with shuffled words.
    """

    kinds: NDArray[np.int64]
    seeds: NDArray[np.int64]
    again: NDArray[np.int64]


class Rewriter(ExtraReader):
    """Makes the added texts of a batch.

    Args:
        rewriting: Which texts are made.
        pairs: Training pairs.
    """

    def __init__(self, rewriting: Rewriting, pairs: Dataset) -> None:
        self.rewriting = rewriting
        self._pairs = pairs
        self._of_image: dict[int, list[int]] = {}
        for image, text in pairs.links.tolist():
            self._of_image.setdefault(image, []).append(text)

    def notes(self, model: Model) -> list[str]:
        """Count the joined texts that are cut, and the images that have no other text to join.

        Args:
            model: Its text side cuts.

        Returns:
            A sentence for each.
        """
        if self.rewriting.positives not in ("mixed", "long"):
            return []
        # Other texts are joined in every epoch: those of one tell how many are too long.
        links = self._pairs.links
        several = np.array([len(self._of_image[image]) > 1 for image in links[:, 0].tolist()], dtype=bool)
        long = Rewriter(replace(self.rewriting, positives="long"), self._pairs)
        cut = cut_note(model.text.input_spec, long.rewritten(links[several], Draw(seed=0, epoch=0)), of="joined text")
        single = sum(len(texts) == 1 for texts in self._of_image.values())
        note = f"{counted(single, 'image')} with one text: there is no other to make it longer by, and it stays"
        return [*filter(None, [cut]), *([note] if single else [])]

    def __call__(
        self, reader: StepReader, draw: Draw, links: Mapping[Side, NDArray[np.int64]], texts: Tensors
    ) -> Rewritten:
        """Make the added texts of the share of a batch that this process has.

        Args:
            reader: Of the step.
            draw: Seed and epoch.
            links: Side -> (N 2) image row and text row of each of its items.
            texts: Tensors of its texts.

        Returns:
            The added texts.
        """
        return self.rewrite(reader.model.text.input_spec, links["text"], texts, draw)

    def rewrite(self, input_spec: Input, links: NDArray[np.int64], texts: Tensors, draw: Draw) -> Rewritten:
        """Make the added texts of some pairs.

        Args:
            input_spec: Of the model's text side.
            links: (B 2) image row and text row of each text.
            texts: Tensors of the texts.
            draw: Seed and epoch.

        Returns:
            The added texts, and their noise.
        """
        keys = self._pairs.texts.keys[links[:, 1]]
        sets = {TEXT: texts}
        if self.rewriting.positives != "none":
            batch = item_batch(self._pairs.texts, links[:, 1], self._pairs.root)
            sets[REWRITTEN] = input_spec(replace(batch, values=self.rewritten(links, draw)), draw)
        items: dict[str, tuple[Side, Tensors]] = {REWRITTEN: ("text", sets[REWRITTEN])} if REWRITTEN in sets else {}
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

    def rewritten(self, links: NDArray[np.int64], draw: Draw) -> list[str]:
        """A text of each pair that says more or less than its own.

        Args:
            links: (B 2) image row and text row.
            draw: Seed and epoch.

        Returns:
            B texts.
        """
        values, keys = self._pairs.texts.values, self._pairs.texts.keys[links[:, 1]]
        samples = draws.uniform(keys, seed=draw.seed, epoch=draw.epoch, purpose="rewritten text", count=3)
        texts = []
        for (image, text), (kind, first, second) in zip(links.tolist(), samples.tolist(), strict=True):
            text_itself = str(values[text])
            long = self.rewriting.positives == "long" or (self.rewriting.positives == "mixed" and kind < 0.5)
            if not long:
                texts.append(shorten_text(text_itself, first))
                continue
            siblings = sorted(self._of_image[image])
            start = siblings[int(first * len(siblings))] if self.rewriting.concatenate == "any" else text
            candidates = [candidate for candidate in siblings if candidate != start]
            if not candidates:
                texts.append(text_itself)
                continue
            texts.append(join_texts(str(values[start]), str(values[candidates[int(second * len(candidates))]])))
        return texts


@dataclass(frozen=True)
class Rewritten(Extra):
    """The added texts of a share.

    Attributes:
        noise: Label of a set of texts -> its noise.
        rewriting: Which texts were made.
    """

    noise: Mapping[str, Noise]
    rewriting: Rewriting

    def compare(self, batch: TrainBatch, scene: Scene | None) -> Scene:
        """Compare the pairs of the batch, and by name its images with the added texts.

        Args:
            batch: Embeddings of the step.
            scene: Not used: this extra is the first.

        Returns:
            The scene.
        """
        parts, images = batch.parts, batch.parts["image"]
        positives = {label: parts[label] for label in (TEXT, REWRITTEN) if label in parts}
        negatives = {
            label: noisy(parts[label], noise, parts.get(f"shuffled {label}"), self.rewriting)
            for label, noise in self.noise.items()
        }
        # What the other processes have of the texts themselves is gathered first.
        several = batch.others is not None
        grouped = {label: Grouped(texts, batch.step_input.groups.texts) for label, texts in negatives.items()}
        for label, group in (batch.gather(grouped) if grouped else {}).items():
            negatives[label] = Embeddings.cat([negatives[label], group.items])
        sets = [*positives.values(), *negatives.values()]
        scores: list[Tensor | None] = [None] * len(sets)
        if not several:
            # All texts in one call: those of equally many words are scored at once, in two thirds of the time.
            scores = [*batch.similarity(images, Embeddings.cat(sets)).split([len(texts) for texts in sets], dim=1)]
        negative_scores = dict(zip(negatives, scores[len(positives) :], strict=True))
        scenes = {TEXT: batch.pairs(scores=scores[0])}
        if REWRITTEN in positives:
            scenes[REWRITTEN] = batch.pairs(positives[REWRITTEN], scores=scores[1])
        edited: dict[str, Comparison] = {}
        for label, pairs in scenes.items():
            comparison = pairs.image_to_text
            if label in negatives:
                comparison = add_negatives(
                    batch.similarity,
                    comparison,
                    negatives[label],
                    outscoring=self.rewriting.outscoring,
                    scores=negative_scores[label],
                )
            edited["image_to_noised" if label == TEXT else "image_to_rewritten"] = comparison
        if REWRITTEN in scenes:
            edited["rewritten_to_image"] = scenes[REWRITTEN].text_to_image
        return replace(scenes[TEXT], edited=edited)


def noisy(texts: Embeddings, noise: Noise, shuffled: Embeddings | None, rewriting: Rewriting) -> Embeddings:
    """Add noise to embedded texts.

    Args:
        texts: N texts.
        noise: Kind and seed of each.
        shuffled: The n texts that were read once more, which take the place of theirs; None for none.
        rewriting: Rates, and whether word vectors have unit length.

    Returns:
        N texts.

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
