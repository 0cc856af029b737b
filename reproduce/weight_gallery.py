"""The pairs of a data set that weigh least and most, as a page with their pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from reproduce.weight_statistics import MODALITIES, SCORES, alone, mean_weights
from subtext.data.dataset import Dataset
from subtext.data.image_files import thumbnail
from subtext.neighbours.graph import pictures_of_texts
from subtext.objectives.weighting.neighbourhood import Neighbourhood
from subtext.report.page import Found, Page, Search, Section


def weight_gallery(
    table: Mapping[str, Tensor],
    weighting: Neighbourhood,
    combined: Mapping[str, Neighbourhood],
    pairs: Dataset,
    *,
    title: str,
    batch: int,
    top: int,
) -> Page:
    """For each score, and for each way to combine both, the `top` pairs that weigh most and least, and why.

    table     of `NeighbourMemory`, by row of the text
    combined  name -> a weighting of both scores
    batch     pairs of the batches that weights are means over
    """
    pictures = pictures_of_texts(pairs)
    ways = {score: (alone(weighting, score), f"by {score} alone") for score in SCORES}
    ways |= {name: (way, "by both scores") for name, way in combined.items()}
    sections = []
    for name, (way, by) in ways.items():
        weights = mean_weights(table, way, batch=batch)
        weighed = int((~weights.isnan()).sum())
        order = torch.argsort(weights, stable=True)[:weighed]
        ends = {"weigh most": order.flip(0)[:top], "weigh least": order[:top]}
        scores = [score for score in SCORES if getattr(way, score)]
        searches = [
            Search(end, [_card(table, weights, scores, row, pairs, int(pictures[row])) for row in rows.tolist()])
            for end, rows in ends.items()
        ]
        mean = way.total_for(batch) / batch
        told = (
            f"The number is the pair's weight {by}, mean over random batches of {batch}; {mean:g} is the mean weight. "
            "Below it what it is made from, of the picture and of the text."
        )
        sections.append(Section(name.capitalize(), told, searches, columns=2))
    facts = [
        ("lambda", f"{weighting.total:g} over {batch} pairs"),
        ("combine", weighting.combine),
        ("Gamma", f"{weighting.sign:g}"),
    ]
    lead = f"{weighed:,} of {len(pairs.texts):,} pairs have weights, of which those at either end are shown."
    return Page(title, lead, verdict="", figures=(), figures_text="", sections=sections, facts=facts)


def _card(
    table: Mapping[str, Tensor], weights: Tensor, scores: Sequence[str], row: int, pairs: Dataset, picture: int
) -> Found:
    text = pairs.texts.values[row]
    return Found(
        pairs.texts.ids[row] if text is None else str(text),
        float(weights[row]),
        None if picture < 0 else thumbnail(pairs.images.values[picture], pairs.root),
        notes=[
            f"{modality if len(scores) == 1 else f'{score}, {modality}'} {float(table[f'{score}/{modality}'][row]):.3f}"
            for score in scores
            for modality in MODALITIES
        ],
    )
