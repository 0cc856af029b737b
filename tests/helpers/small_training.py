"""A training small enough to be done in a second."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from subtext.core import Embeddings, Encoded
from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import Draw, InputBatch, Tensors
from subtext.data.pixels import PixelInput
from subtext.data.text import Vocabulary, WordInput
from subtext.models.checkpoint import Record
from subtext.models.encoders.words import Recurrent
from subtext.models.heads.gpo import Gpo
from subtext.models.heads.mean import Mean
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import MMD
from subtext.training.plan import Phase, Plan, RunConfig
from subtext.training.setup import Setup, TrainingProgress, TrainResult

WORDS = ("red", "blue", "green", "round", "flat", "tall", "small", "wet", "old", "bright")
WIDTH = 12


class Traits:
    """Pictures -> "pooled": `WIDTH` numbers that their id's digits give, and drawn noise where it augments."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise
        self.read = 0

    @property
    def augments(self) -> bool:
        return self.noise > 0

    @property
    def fingerprint(self) -> str:
        return f"traits {WIDTH}"

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        self.read += len(batch.ids)
        rows = torch.stack([_traits(name) for name in batch.ids])
        if draw is not None and self.noise:
            seeds = [int(key) % 2**31 + draw.epoch for key in batch.keys]
            rows = rows + self.noise * torch.stack(
                [
                    torch.from_numpy(np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32))
                    for seed in seeds
                ]
            )
        return {"pooled": rows, "ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}

    def save(self, folder: Path) -> None:
        (folder / "traits.json").write_text("{}")


class Body(nn.Module):
    """An encoder with a "pretrained" body of two layers; it gives parts beside the pooled vector."""

    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, width), nn.Dropout(dropout), nn.Linear(width, width))
        self.parts_width = self.pooled_width = width

    def forward(self, inputs: Tensors) -> Encoded:
        pooled = torch.tanh(self.body(inputs["pooled"]))
        return Encoded(parts=torch.stack([pooled, pooled.flip(1)], dim=1), pooled=pooled)

    def body_layers(self) -> list[list[nn.Parameter]]:
        return [list(self.body[0].parameters()), list(self.body[2].parameters())]

    def save_assets(self, folder: Path) -> None:
        (folder / "body.json").write_text("{}")


class Layers(nn.Module):
    """An encoder with a "pretrained" body in a list of layers, the last of which is never called."""

    def __init__(self, width: int = 15) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, width)
        self.body = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(3))
        self.pooled_width = width

    def forward(self, inputs: Tensors) -> Encoded:
        pooled = self.enter(inputs["pooled"])
        for layer in self.body[:-1]:
            pooled = pooled + torch.tanh(layer(pooled))
        return Encoded(pooled=pooled)

    def body_layers(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.body]

    def save_assets(self, folder: Path) -> None:
        (folder / "layers.json").write_text("{}")


class Lookup(nn.Module):
    """A head that hands on the parts beside a mean: the similarity below reads them."""

    def forward(self, encoded: Encoded, ids: torch.Tensor) -> Embeddings:
        return Embeddings(encoded.pooled[:, None], ids, parts=encoded.parts, mask=encoded.mask)


class BestWord(nn.Module):
    """The word that fits a picture best decides: a similarity that cannot do without parts and their mask."""

    indexable = False

    def forward(self, images: Embeddings, texts: Embeddings) -> torch.Tensor:
        scores = torch.einsum("ikd,tpd->itp", images.vectors, texts.parts)
        return scores.masked_fill(~texts.mask[None], -9.0).amax(2)


def pairs(count: int = 40, split: str = "train", captions: int = 2) -> Dataset:
    """Pictures named by a number, and texts with one word a digit."""
    names = [f"{split}{place:03d}" for place in range(count)]
    image_groups = np.arange(count, dtype=np.int64)
    texts = [
        f"{_words(name)} {' wet' * (int(name[-1]) % 3)} {WORDS[turn]}" for name in names for turn in range(captions)
    ]
    text_groups = np.repeat(image_groups, captions)
    links = np.stack([text_groups, np.arange(len(texts), dtype=np.int64)], axis=1)
    return Dataset(
        images=Items(names, [None] * count, image_groups, np.array([split] * count)),
        texts=Items(
            [f"{split}t{row}" for row in range(len(texts))], list(texts), text_groups, np.array([split] * len(texts))
        ),
        links=links,
        root=Path(),
    )


def setup(
    plan: Plan | None = None, *, phases: tuple[Phase, ...] = (), noise: float = 0.0, dropout: float = 0.1
) -> Setup:
    """Body + mean head beside GRU + mean head, a learnt temperature, InfoNCE one way and a triplet the other."""
    torch.manual_seed(0)
    words = Vocabulary.build(WORDS)
    image = Branch(Traits(noise), Body(dropout=dropout), Mean(16, 8, dropout=dropout))
    text = Branch(WordInput(words, max_tokens=8), Recurrent(len(words.tokens), width=8, word_width=6), Mean(8, 8))
    objective = Objective(
        {
            "image": Term(InfoNCE(), "image_to_text"),
            "text": Term(Triplet(margin=0.2), "text_to_image", weight=0.5, reduction="sum"),
        }
    )
    chosen = plan or Plan(epochs=3, batch_size=16, lr=1e-2, warmup=0.1, schedule="one_cycle")
    return Setup(Model(image, text, Cosine(temperature=0.1, learnable=True)), objective, chosen, phases)


def setup_with_parts() -> Setup:
    """Without dropout; the texts' words take part in the score, and their number differs."""
    made = setup(dropout=0.0)
    text = Branch(made.model.text.input_spec, made.model.text.encoder, Lookup())
    return replace(made, model=Model(made.model.image, text, BestWord()))


def setup_with_penalty() -> Setup:
    """Without dropout, with terms of every reduction, and a penalty that reads all embeddings of the batch."""
    made = setup(dropout=0.0)
    cells = Term(Triplet(margin=0.3, negatives="hardest"), "image_to_text", reduction="mean over cells")
    parts = {**made.objective.parts, "cells": cells, "mmd": Penalty(MMD(), 0.3)}
    return replace(made, objective=Objective(parts))


def setup_with_pooling(plan: Plan | None = None, *, perceptron: bool = True) -> Setup:
    """Generalised pooling on both sides; the perceptron beside it norms over the batch."""
    made = setup(plan)
    image = Branch(
        made.model.image.input_spec, made.model.image.encoder, Gpo(16, 8, perceptron=perceptron, place_width=4)
    )
    text = Branch(made.model.text.input_spec, made.model.text.encoder, Gpo(8, 8, place_width=4))
    return replace(made, model=Model(image, text, made.model.similarity))


def setup_with_layers(plan: Plan | None = None) -> Setup:
    """Without dropout; the encoder of pictures has layers, which can be divided."""
    made = setup(plan, dropout=0.0)
    image = Branch(made.model.image.input_spec, Layers(), Mean(15, 8))
    return replace(made, model=Model(image, made.model.text, made.model.similarity))


class Glance(nn.Module):
    """An encoder of pixels: the mean of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Conv2d(3, 16, 3, stride=2)

    def forward(self, inputs: Tensors) -> Encoded:
        return Encoded(pooled=torch.tanh(self.see(inputs["pixels"])).mean((2, 3)))


def setup_with_pixels(plan: Plan | None = None) -> Setup:
    """Pictures cropped, mirrored and erased, words dropped and masked, all at random."""
    made = setup(plan)
    pixels = PixelInput(size=8, least_area=0.3, flip=0.5, erase=0.5)
    words = replace(made.model.text.input_spec, word_drop=0.2, token_mask=0.3)
    image = Branch(pixels, Glance(), made.model.image.head)
    return replace(
        made, model=Model(image, Branch(words, made.model.text.encoder, made.model.text.head), Cosine(temperature=0.1))
    )


def with_pictures(data: Dataset, folder: Path) -> Dataset:
    """The same pairs with a picture of noise on the disk for each image."""
    for row, name in enumerate(data.images.ids):
        pixels = np.random.default_rng(row).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return replace(data, images=replace(data.images, values=[f"{name}.png" for name in data.images.ids]), root=folder)


class Interrupt:
    """Hears reports, and asks the training to stop once so many steps are done, as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reports: list[TrainingProgress] = []

    def __call__(self, report: TrainingProgress) -> None:
        self.reports.append(report)
        if report.step >= self.step and report.note is None:
            os.kill(os.getpid(), signal.SIGTERM)
            self.step = 10**9


def run(out: Path, *, plan: Plan | None = None, options: RunConfig | None = None, **changes: object) -> TrainResult:
    """One fit of the small setup, or of `made`, which is given the plan."""
    from subtext.training.loop import fit

    given = {key: changes[key] for key in ("phases", "noise", "dropout") if key in changes}
    return fit(
        changes.get("made", partial(setup, **given))(plan),
        changes.get("train", pairs()),
        changes.get("val", pairs(12, "val")),
        out,
        record=Record(model="small", arguments={"embed_dim": 8}),
        run=options or RunConfig(device="cpu", workers=0),
        report=changes.get("report"),
    )


def _words(name: str) -> str:
    return " ".join(WORDS[int(digit)] for digit in name[-3:])


def _traits(name: str) -> torch.Tensor:
    row = torch.zeros(WIDTH)
    for place, digit in enumerate(name[-3:]):
        row[int(digit)] += 1.0 + place / 4
    return row
