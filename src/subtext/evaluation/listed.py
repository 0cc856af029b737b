"""Scores of two stages: every query's list in its second order, and all other candidates behind it in their first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from subtext.core import DIRECTIONS, Direction
from subtext.evaluation import reranking
from subtext.evaluation.relevance.match import Match
from subtext.evaluation.source import Block, Rows, Source, covers
from subtext.ops.rank import Counts, best_of


@dataclass(frozen=True)
class Listed:
    """Lists in their second order, followed by all other candidates in their first.

    first   scores of the first stage       lists, scores  candidates of every query, and what the second gave them; -1
                                                           stands for one that was listed and is no candidate here
    """

    first: Source
    lists: reranking.Shortlists
    scores: Mapping[Direction, Float[np.ndarray, "q m"]]

    @property
    def shape(self) -> tuple[int, int]:
        """Pictures and texts."""
        return self.first.shape

    def part(self, images: Rows, texts: Rows) -> Listed:
        """The chosen pictures and texts, in the order that they have among all; itself when those are all, in order.

        Nothing is listed anew: who is left out leaves its place in a list empty.
        """
        if covers(images, self.shape[0]) and covers(texts, self.shape[1]):
            return self
        lists = reranking.Shortlists(
            _renumbered(self.lists.image_to_text, images, texts, self.shape[1]),
            _renumbered(self.lists.text_to_image, texts, images, self.shape[0]),
        )
        scores: dict[Direction, Float[np.ndarray, "q m"]] = {
            "image_to_text": self.scores["image_to_text"][images],
            "text_to_image": self.scores["text_to_image"][texts],
        }
        return Listed(self.first.part(images, texts), lists, scores)

    def counts(self, match: Match, *, stable: bool) -> tuple[Counts, Counts]:
        """Each direction from blocks of its own queries."""
        found = []
        for direction in DIRECTIONS:
            positives = match.cells(direction)
            found.append(
                Counts.cat(
                    [
                        best_of(scores, positives[start:stop], stable=stable)
                        for start, stop, scores in self.blocks(direction)
                    ]
                )
            )
        return found[0], found[1]

    def blocks(self, direction: Direction) -> Iterator[Block]:
        """Numbers that order each query's candidates: scores of its list, and below them all others; float64."""
        lists, scores = self.lists.of(direction), self.scores[direction]
        known = scores[np.isfinite(scores) & (lists >= 0)]
        below = float(known.min()) - 1 if len(known) else 0.0
        for start, stop, block in self.first.blocks(direction):
            highest = torch.nan_to_num(block, nan=-torch.inf).amax(dim=1, keepdim=True).double()
            whole = block.to(torch.float64, copy=True).sub_(highest - below)
            rows, places = np.nonzero(lists[start:stop] >= 0)
            columns, values = (values[start:stop][rows, places] for values in (lists, scores))
            whole[torch.from_numpy(rows), torch.from_numpy(columns)] = torch.from_numpy(values).double()
            yield start, stop, whole


def _renumbered(lists: Int[np.ndarray, "q m"], queries: Rows, candidates: Rows, count: int) -> Int[np.ndarray, "k m"]:
    """The lists of the chosen queries, by places among the chosen candidates of `count`; -1 for all others."""
    # One place more: what an earlier cut has left out stays out.
    place = np.full(count + 1, -1, dtype=np.int64)
    place[candidates] = np.arange(len(candidates))
    return place[lists[queries]]
