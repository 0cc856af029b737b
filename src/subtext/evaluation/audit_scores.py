"""Whether a score depends on its pair alone: made again in other orders, blocks and company, under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from subtext.core import Embeddings
from subtext.errors import counted
from subtext.evaluation.audit import Check
from subtext.evaluation.audit_sample import Rows, Sample
from subtext.evaluation.scoring import matrix
from subtext.ops import draw

_ALONE = 32
"""Pairs that are scored with nothing beside them."""
_ROUNDS = 2
"""Random halves of the gallery that pairs are scored among."""


@dataclass(frozen=True)
class Stability:
    """A sample, its scores as they are usually made, and what they may change by.

    scores     (I T)
    tolerance  of a change, in standard deviations of the scores; rounding alone stays below 1e-4
    seed       of orders and halves
    """

    sample: Sample
    scores: Float[Tensor, "i t"]
    tolerance: float = 1e-3
    seed: int = 0

    @staticmethod
    def of(sample: Sample, *, tolerance: float = 1e-3, seed: int = 0) -> Stability:
        """With the scores made once."""
        return Stability(sample, _plain(sample), tolerance, seed)

    def check(self, name: str, did: str, again: Callable[[Stability], list[tuple[Rows, Rows, Tensor]]]) -> Check:
        """Compare with scores that were made again: (picture places, text places, their scores), several times."""
        spread = float(self.scores[self.scores.isfinite()].double().std(correction=0)) if len(self.scores) else 0.0
        unit = spread if spread > 0 else max(float(self.scores.nan_to_num().abs().max()), 1.0)
        worst, where, cells = 0.0, (0, 0, 0.0, 0.0), 0
        for images, texts, scores in again(self):
            before = self.scores[torch.from_numpy(images)][:, torch.from_numpy(texts)].double()
            change = _change(before, scores.double()) / unit
            cells += change.numel()
            place = int(change.argmax())
            if float(change.flatten()[place]) > worst:
                row, column = divmod(place, change.shape[1])
                worst = float(change.flatten()[place])
                both = float(before[row, column]), float(scores[row, column])
                where = int(images[row]), int(texts[column]), *both
        found = f"of {counted(cells, 'score')} the one that changes most changes by {worst:.1e} standard deviations"
        failed = worst > self.tolerance
        if failed:
            items, sample = self.sample.pairs, self.sample
            pair = items.images.ids[sample.images[where[0]]], items.texts.ids[sample.texts[where[1]]]
            found += f", picture '{pair[0]}' with text '{pair[1]}': {where[2]:.6g}, then {where[3]:.6g}"
        figures = {"largest_change": worst, "scores": cells, "standard_deviation": spread}
        allowed = f"; {self.tolerance:g} is allowed"
        return Check(name, did, "fail" if failed else "pass", found + allowed, {**figures, "allowed": self.tolerance})

    def order(self, length: int, purpose: str) -> Rows:
        """A shuffled range."""
        return draw.permutation(length, seed=self.seed, epoch=0, purpose=f"audit {purpose}")


def stability(base: Stability) -> list[Check]:
    """All checks of this file."""
    return [base.check(name, did, again) for name, (did, again) in CHECKS.items()]


def _plain(sample: Sample) -> Tensor:
    return sample.scores(sample.image_embeddings(sample.images), sample.text_embeddings(sample.texts))


def _change(before: Tensor, after: Tensor) -> Tensor:
    """|after - before|; 0 where both are no number or the same infinity, infinite where one alone is."""
    same = (before == after) | (before.isnan() & after.isnan())
    return torch.where(same, 0.0, (after - before).abs().nan_to_num(nan=torch.inf))


def _whole(base: Stability) -> tuple[Rows, Rows]:
    return tuple(np.arange(count, dtype=np.int64) for count in base.scores.shape)  # type: ignore[return-value]


def _repeated(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    return [(*_whole(base), _plain(base.sample))]


def _reordered(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, found = base.sample, []
    images, texts = base.order(len(sample.images), "pictures"), base.order(len(sample.texts), "texts")
    for pictures, sentences in ((images, texts), (images[::-1].copy(), texts), (images, texts[::-1].copy())):
        first = sample.image_embeddings(sample.images[pictures])
        second = sample.text_embeddings(sample.texts[sentences])
        found.append((pictures, sentences, sample.scores(first, second)))
    return found


def _other_blocks(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, every = base.sample, _whole(base)
    images = sample.image_embeddings(sample.images, batch_size=7)
    texts = sample.text_embeddings(sample.texts, batch_size=11)
    whole = max(len(images), len(texts))
    found = [
        (*every, sample.scores(images, texts, height=h, width=w)) for h, w in ((whole, whole), (1, whole), (7, 13))
    ]
    # As figures are made where no figure may depend on blocks: in padded tiles, which have to end where they should.
    return [*found, (*every, matrix(sample.model.similarity, images, texts, 1, exact=True).float())]


def _other_neighbours(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample, found = base.sample, []
    for turn in range(_ROUNDS):
        images, texts = (
            np.sort(base.order(len(rows), f"half {turn} {kind}")[: max(1, len(rows) // 2)])
            for kind, rows in (("images", sample.images), ("texts", sample.texts))
        )
        first = sample.image_embeddings(sample.images[images])
        found.append((images, texts, sample.scores(first, sample.text_embeddings(sample.texts[texts]))))
    for pair in _some_pairs(base):
        images, texts = pair[:1], pair[1:]
        first = sample.image_embeddings(sample.images[images])
        found.append((images, texts, sample.scores(first, sample.text_embeddings(sample.texts[texts]))))
    return found


def _some_pairs(base: Stability) -> Rows:
    """(N, 2) places of pairs, half of them partners: what is made for partners alone would show there."""
    links = base.sample.chosen.links
    partners = links[base.order(len(links), "partners")[: _ALONE // 2]]
    columns = [base.order(count, f"strangers {count}") for count in base.scores.shape]
    count = min(len(partners), *map(len, columns))
    return np.concatenate([partners, np.stack([column[:count] for column in columns], axis=1)])


def _other_names(base: Stability) -> list[tuple[Rows, Rows, Tensor]]:
    sample = base.sample
    images, texts = sample.image_embeddings(sample.images), sample.text_embeddings(sample.texts)
    blank = [replace(items, ids=torch.full_like(items.ids, 10**9)) for items in (images, texts)]
    found = [(*_whole(base), sample.scores(*blank))]
    if _draws(images) or _draws(texts):
        return found
    numbers = [base.order(len(rows), f"numbers {kind}") for kind, rows in (("i", sample.images), ("t", sample.texts))]
    renumbered = sample.scores(
        sample.image_embeddings(sample.images, numbers=numbers[0]),
        sample.text_embeddings(sample.texts, numbers=numbers[1]),
    )
    return [*found, (*_whole(base), renumbered)]


def _draws(items: Embeddings) -> bool:
    """Whether the head draws, which it does by the number of an item, and may."""
    return items.log_std is not None


CHECKS: dict[str, tuple[str, Callable[[Stability], list[tuple[Rows, Rows, Tensor]]]]] = {
    "repeat": ("A sample was embedded and scored a second time, just as the first.", _repeated),
    "order": ("Pictures and texts of the sample were embedded and scored in three other orders.", _reordered),
    "blocks": (
        "The sample was embedded 7 pictures and 11 texts at a time, and scored as a whole, one picture at a time, in "
        "blocks of 7 by 13, and in the padded tiles of an exact evaluation.",
        _other_blocks,
    ),
    "neighbours": (
        "Pairs of the sample were embedded and scored among two random halves of it, and partners and strangers with "
        "nothing beside them.",
        _other_neighbours,
    ),
    "names": (
        "The sample was scored with the numbers of its items hidden, and, where the model draws nothing by them, "
        "embedded with the numbers of others: who belongs together is to be read from content alone.",
        _other_names,
    ),
}
"""Name -> what is done, and how the scores are made again."""
