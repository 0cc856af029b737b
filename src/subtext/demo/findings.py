"""How well the demonstration's model does on emoji that it never saw, and a few of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.api.load import load
from subtext.data.dataset import Dataset
from subtext.data.read import read
from subtext.data.text import UNKNOWN, WordInput, tokenise
from subtext.evaluation import Result, embed_pairs
from subtext.evaluation.measure import evaluate_embeddings
from subtext.evaluation.results import figures_table
from subtext.models.model import Model
from subtext.ops import draw
from subtext.report.progress import meter

SAMPLES = 6
"""Held-out texts whose answers are shown."""
SHOWN = 10


@dataclass(frozen=True)
class Answer:
    """A held-out text, the rows of the held-out pictures found, their cosines, and where its own picture stands."""

    text: str
    rows: list[int]
    scores: list[float]
    own: int
    place: int


@dataclass(frozen=True)
class Findings:
    """The figures, the held-out pairs, and texts of them drawn at random with their answers.

    share_known  of the held-out texts, in per cent: those with a word that the training texts had
    """

    result: Result
    held_out: Dataset
    answers: list[Answer]
    share_known: float

    @property
    def verdict(self) -> str:
        """The one sentence to take away: how far above chance."""
        name = "text_to_image/recall@10"
        value, chance = self.result.figures[name], self.result.chance[name]
        low, high = self.result.intervals.get(name, (value, value))
        how = (
            f"{value / chance:.0f} times chance" if low > chance else "which is not above chance: the interval holds it"
        )
        sure = f" (95 %: {low:.1f} to {high:.1f})" if low < high else ""
        return (
            f"Of texts of emoji that it never saw, {value:.1f} %{sure} find their picture "
            f"among the first ten of {len(self.held_out.images):,}; chance gives {chance:.1f} %: {how}."
        )

    def text(self) -> str:
        """The table with the chance line, and the verdict."""
        table = figures_table(self.result.figures, self.result.chance, self.result.intervals)
        return f"{table}\n\n{self.verdict}"


def measure(out: Path, *, seed: int, workers: int, quiet: bool) -> Findings:
    """Evaluate the run on the test split, keep the figures as `out`/figures.json, and draw a few texts to show."""
    model = load(out / "run")
    pairs = read(out / "data").split("test")
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=quiet) as progress:
        images, texts = embed_pairs(model, pairs, workers=workers, progress=progress)
    result = evaluate_embeddings(model.similarity, images, texts, pairs)
    result.save(out / "figures.json")
    vocabulary = _known(model, pairs)
    shuffled = draw.permutation(len(texts), seed=seed, epoch=0, purpose="demo samples")
    order = shuffled[vocabulary[shuffled]][:SAMPLES]
    pictures = images.vectors.float().numpy()
    cosines = texts.vectors[order, 0].float().numpy() @ pictures[:, 0].T
    owner = dict(pairs.links[:, ::-1].tolist())
    answers = []
    for row, scores in zip(order.tolist(), cosines, strict=True):
        rows, target = np.argsort(-scores, kind="stable"), owner[row]
        rank = int(np.flatnonzero(rows == target)[0]) + 1
        answers.append(
            Answer(str(pairs.texts.values[row]), rows[:SHOWN].tolist(), scores[rows[:SHOWN]].tolist(), target, rank)
        )
    return Findings(result, pairs, answers, share_known=100 * float(vocabulary.mean()))


def _known(model: Model, pairs: Dataset) -> NDArray[np.bool_]:
    """(T) which texts have a word that the training texts had: of the others nothing can be known."""
    input_spec = model.text.input_spec
    assert isinstance(input_spec, WordInput)
    codes = (input_spec.vocabulary.encode(tokenise(str(text))) for text in pairs.texts.values)
    return np.array([any(code != UNKNOWN for code in row) for row in codes])
