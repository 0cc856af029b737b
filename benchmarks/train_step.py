"""Steps of training beside a plain PyTorch loop of the same model: what the house costs.

The model is a linear map of 768 numbers a picture and a GRU of both directions, 512 wide, over words; InfoNCE both
ways, gradient clipping, Adam, 128 pairs a step. Ours reads features by name from a file and splits texts into words as
it goes, in two threads, looks for numbers that are not finite and keeps account. The peer has its features in one array
and its texts as codes, pads each batch and steps; nothing else. Both start from the same weights and see the same
batches, so that their weights agree in the end: `max_difference` is the largest between any two. `overhead` is the
share by which our step is longer than the peer's. Our GRU's backward pass is quicker than PyTorch's, which would hide
what the loop costs: `loop_overhead` is over a plain loop of our own modules, `same_modules_seconds`.
"""

from __future__ import annotations

import copy
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from benchmarks.common import interleaved, options, report
from subtext.core import Epoch
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset, Items
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.text import Vocabulary, WordInput
from subtext.models.checkpoint import Record
from subtext.models.encoders.precomputed import Precomputed
from subtext.models.encoders.words import Recurrent
from subtext.models.heads.mean import Mean
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.objective import Objective, Term
from subtext.objectives.scene import compose
from subtext.training.bank import BankSet
from subtext.training.loop import Trainer
from subtext.training.plan import Plan, RunConfig
from subtext.training.processes import Processes
from subtext.training.setup import Setup

BATCH, FEATURES, WIDTH, WORD_WIDTH, VOCABULARY, TEMPERATURE = 128, 768, 512, 300, 4_000, 0.05
PLAN = Plan(epochs=1_000, batch_size=BATCH, lr=2e-4, max_grad_norm=2.0, positives="pair", select="last")


def data(count: int, folder: Path) -> tuple[Dataset, FeatureFile]:
    """Pictures of noise and texts of 6 to 18 drawn words; one text a picture."""
    g = np.random.default_rng(0)
    names = [f"{row:06d}.jpg" for row in range(count)]
    np.savez(
        folder / "features.npz", names=np.array(names), pooled=g.standard_normal((count, FEATURES), dtype=np.float32)
    )
    drawn = [g.integers(0, VOCABULARY, g.integers(6, 19)) for _ in names]
    texts = [" ".join(f"w{code}" for code in row) for row in drawn]
    groups, splits = np.arange(count, dtype=np.int64), np.array(["train"] * count)
    images = Items(names, list(names), groups, splits)
    items = Items([f"t{row}" for row in range(count)], list(texts), groups, splits)
    return Dataset(images, items, np.stack([groups, groups], axis=1), folder), FeatureFile.open(folder / "features.npz")


def setup(pairs: Dataset, file: FeatureFile) -> Setup:
    """The model in the house's parts."""
    torch.manual_seed(0)
    words = Vocabulary.build([str(text) for text in pairs.texts.values])
    image = Branch(FeatureInput("image", file), Precomputed(FEATURES, None), Mean(FEATURES, WIDTH))
    text = Branch(WordInput(words), Recurrent(len(words.tokens), WIDTH, WORD_WIDTH), Mean(WIDTH, WIDTH, project=False))
    both = {name: Term(InfoNCE(), name, weight=0.5) for name in ("image_to_text", "text_to_image")}
    return Setup(Model(image, text, Cosine(temperature=TEMPERATURE)), Objective(both), PLAN)


class Plain(nn.Module):
    """The same model as somebody would write it down."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.project = nn.Linear(FEATURES, WIDTH)
        self.words = nn.Embedding(words, WORD_WIDTH, padding_idx=0)
        self.rnn = nn.GRU(WORD_WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B B) scores."""
        images = normalize(self.project(features), dim=1)
        packed = pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        final = self.rnn(packed)[1]
        texts = normalize(torch.cat([final[0], final[1]], dim=1), dim=1)
        return images @ texts.T / TEMPERATURE


class ModuleLoop:
    """The plain loop again, over a copy of the house's own modules."""

    def __init__(self, made: Setup, pairs: Dataset) -> None:
        self.model = copy.deepcopy(made.model)
        self.objective = made.objective
        rows = np.arange(len(pairs.texts), dtype=np.int64)
        self.images = self.model.image.input_spec(item_batch(pairs.images, rows, pairs.root))
        self.texts = self.model.text.input_spec(item_batch(pairs.texts, rows, pairs.root))
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=PLAN.lr)

    def epoch(self, batches: list[NDArray[np.int64]]) -> None:
        """One pass over the batches."""
        for rows in batches:
            chosen = torch.from_numpy(rows[:, 0])
            images = {name: value[chosen] for name, value in self.images.items()}
            texts = {name: value[chosen] for name, value in self.texts.items()}
            scene = compose(self.model.similarity, *self.model(images, texts), chosen, positives="pair")
            loss, _ = self.objective(scene, Epoch(number=0, seed=0))
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), PLAN.max_grad_norm)
            self.optimiser.step()


class PlainLoop:
    """The plain loop over the same batches; texts are coded before it begins."""

    def __init__(self, model: Model, pairs: Dataset, file: FeatureFile) -> None:
        input_spec = model.text.input_spec
        rows = np.arange(len(pairs.texts), dtype=np.int64)
        coded = input_spec(item_batch(pairs.texts, rows, pairs.root))
        self.codes = [tokens[mask] for tokens, mask in zip(coded["tokens"], coded["mask"], strict=True)]
        self.features = torch.from_numpy(file.take("pooled", rows))
        self.model = Plain(int(model.text.encoder.words.num_embeddings))
        theirs = {"project": "image.head.project", "words": "text.encoder.words", "rnn": "text.encoder.rnn"}
        self.names = {name: f"{theirs[name.split('.')[0]]}.{name.split('.')[1]}" for name in self.model.state_dict()}
        state = model.state_dict()
        self.model.load_state_dict({name: state[other].clone() for name, other in self.names.items()})
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=PLAN.lr)

    def epoch(self, batches: list[NDArray[np.int64]]) -> None:
        """One pass over the batches."""
        target = torch.arange(BATCH)
        for rows in batches:
            features = self.features[torch.from_numpy(rows[:, 0])]
            codes = [self.codes[row] for row in rows[:, 1].tolist()]
            lengths = torch.tensor([len(code) for code in codes])
            scores = self.model(features, pad_sequence(codes, batch_first=True), lengths)
            loss = (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), PLAN.max_grad_norm)
            self.optimiser.step()


def main() -> None:
    """Measure and print."""
    asked = options("steps of training, beside a plain PyTorch loop", repeats=15, quick_repeats=5)
    steps = 6 if asked.quick else 16
    with tempfile.TemporaryDirectory() as folder:
        pairs, file = data(steps * BATCH, Path(folder))
        made = setup(pairs, file)
        run = RunConfig(device="cpu", workers=2)
        training = Trainer(
            made, made.model, pairs, None, Path(folder), run, Processes("cpu"), (), BankSet(), record=Record("dual")
        )
        plain = PlainLoop(made.model, pairs, file)
        modules = ModuleLoop(made, pairs)
        batches = [training.batches(epoch) for epoch in range(asked.repeats + 1)]

        def ours() -> None:
            for _ in training.epoch_steps(threading.Event()):
                pass
            training.end_epoch()
            training.state.totals.zero_()

        def peer() -> None:
            plain.epoch(batches[0])

        def same() -> None:
            modules.epoch(batches.pop(0))

        timings = interleaved({"ours": ours, "peer": peer, "same": same}, repeats=asked.repeats)
    mine, peer_weights = made.model.state_dict(), plain.model.state_dict()
    apart = max(float((mine[name] - peer_weights[own]).abs().max()) for own, name in plain.names.items())
    size = {
        "pairs_a_step": BATCH,
        "steps": steps,
        "features": FEATURES,
        "width": WIDTH,
        "words": len(plain.model.words.weight),
    }
    facts = {
        "name": "train_step",
        "peer": "a plain PyTorch loop of the same model, texts coded beforehand",
        "size": size,
        "max_difference": apart,
        "overhead": timings["ours"].best / timings["peer"].best - 1,
        "same_modules_seconds": timings["same"].best,
        "loop_overhead": timings["ours"].best / timings["same"].best - 1,
        "ours_ms_a_step": 1e3 * timings["ours"].best / steps,
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"])


if __name__ == "__main__":
    main()
