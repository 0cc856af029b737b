"""The pairs of a data set that weigh least and most, as a page with their pictures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from subtext.data.pairs import Pairs
from subtext.evaluate.weights import SCORES, mean_weights
from subtext.neighbours.graph import pictures_of_texts
from subtext.report.page import Found, Page, Search, Section
from subtext.report.thumbnail import thumbnail
from subtext.weighting.neighbourhood import Neighbourhood


def weight_gallery(
    table: Mapping[str, Tensor], weighting: Neighbourhood, pairs: Pairs, *, title: str, batch: int, top: int
) -> Page:
    """For both scores the `top` pairs that weigh most and least, and what the weights are made from.

    table  of `NeighbourMemory`, by row of the text
    batch  pairs of the batches that weights are means over
    """
    sections = []
    for score in SCORES:
        weights = mean_weights(table, weighting, score, batch=batch)
        order = torch.argsort(weights, stable=True)[: int((~weights.isnan()).sum())]
        ends = {"weigh most": order.flip(0)[:top], "weigh least": order[:top]}
        searches = [
            Search(name, [_card(table, weights, score, row, pairs) for row in rows.tolist()])
            for name, rows in ends.items()
        ]
        mean = weighting.total_for(batch) / batch
        told = (
            f"The number is the pair's weight by {score} alone, mean over random batches of {batch}; {mean:g} is the "
            "mean weight. Below it the score of the picture and of the text."
        )
        sections.append(Section(score.capitalize(), told, searches, columns=2))
    facts = [
        ("lambda", f"{weighting.total:g} over {batch} pairs"),
        ("combine", weighting.combine),
        ("Gamma", f"{weighting.sign:g}"),
    ]
    lead = f"{len(pairs.texts):,} pairs, of which those at either end are shown."
    return Page(title, lead, verdict="", figures=(), figures_text="", sections=sections, facts=facts)


def _card(table: Mapping[str, Tensor], weights: Tensor, score: str, row: int, pairs: Pairs) -> Found:
    picture = int(pictures_of_texts(pairs)[row])
    text = pairs.texts.values[row]
    return Found(
        pairs.texts.ids[row] if text is None else str(text),
        float(weights[row]),
        None if picture < 0 else thumbnail(pairs.images.values[picture], pairs.root),
        notes=[f"{modality} {float(table[f'{score}/{modality}'][row]):.3f}" for modality in ("image", "text")],
    )
