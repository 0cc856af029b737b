"""Scores of pairs, and how well they separate planted noise: the measurements of `subtext data detect-noise`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.curation.kinds import surroundings
from subtext.data.dataset import Dataset
from subtext.data.words import tokenise
from subtext.models.model import Model
from subtext.neighbours.graph import Graph
from subtext.ops import draw
from subtext.ops.density import AS_READ, density
from subtext.ops.roc import auc, auc_interval

BLOCK = 256
"""Pairs of a block, which are negatives of each other."""
MARGIN = 0.1
"""Margin of the triplet loss whose value is a baseline, in cosine."""


def baseline_scores(
    model: Model, pairs: Dataset, images: Embeddings, texts: Embeddings, *, seed: int
) -> dict[str, NDArray[np.float64]]:
    """(L) scores of the pairs without neighbours: cosine, loss value, rank weight, words.

    "cosine"        of image and text, of their best views
    "triplet loss"  mean over the negatives of a random block of pairs, both directions; texts and images of the same
                    group are no negatives
    "rank weight"   Mithun's, by the partner's rank in the same block: the mean of both directions
    "words"         the number of words of the text
    """
    order = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="found: blocks")
    cosine, loss, rank = (np.empty(len(order)) for _ in range(3))
    measure = getattr(model.similarity, "cosine", model.similarity)
    for start in range(0, len(order), BLOCK):
        chosen = order[start : start + BLOCK]
        of_image, of_text = (torch.from_numpy(pairs.links[chosen, side]) for side in (0, 1))
        with torch.inference_mode():
            table = measure(images[of_image], texts[of_text]).float()
        positives = table.diagonal()
        groups = torch.from_numpy(pairs.images.groups[pairs.links[chosen, 0]])
        negatives = (groups[:, None] != groups[None, :]).float()
        hinge = (MARGIN + table - positives[:, None]).relu() + (MARGIN + table - positives[None, :]).relu().T
        # Negatives that rank behind the partner, with images and with texts as queries.
        behind = [(negatives * (scores <= positives[:, None])).sum(dim=1) for scores in (table, table.T)]
        rank[chosen] = 1 + (sum(1 / (count + 1) for count in behind) / 2).numpy()
        cosine[chosen] = positives.numpy()
        loss[chosen] = ((hinge * negatives).sum(dim=1) / negatives.sum(dim=1).clamp_min(1)).numpy()
    words = [len(tokenise(text)) if isinstance(text, str) else np.nan for text in pairs.texts.values]
    counts = np.array(words, dtype=np.float64)[pairs.links[:, 1]]
    return {"cosine": cosine, "triplet loss": loss, "rank weight": rank, "words": counts}


def density_scores(pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, NDArray[np.float64]]:
    """(L) Amrani's density of the pairs, in the run's own space; empty where a pair has too few other pairs.

    Pairs of the same image do not count for each other. Items of several views count by the mean of their views.
    """
    groups = pairs.images.groups[pairs.links[:, 0]]
    if len(groups) - int(np.unique(groups, return_counts=True)[1].max(initial=0)) < AS_READ.neighbours:
        return {}
    first, second = (
        items.vectors.float().mean(dim=1)[torch.from_numpy(pairs.links[:, side])]
        for side, items in enumerate((images, texts))
    )
    return {"density": density(first, second, groups=torch.from_numpy(groups)).double().numpy()}


def graph_scores(
    graph: Path, beta: float, gamma: float, pairs: Dataset, images: Embeddings, texts: Embeddings
) -> dict[str, NDArray[np.float64]]:
    """(L) diversity and discrepancy of the pairs in both modalities, their difference, and both combined.

    Combined as in COMBINED-VAL and COMBINED-STATS: the mean of both modalities, weighted by beta and gamma, or by their
    own mean times deviation. Items of several views count by the mean of their views.
    """
    scores = surroundings(Graph.load(graph), pairs, images, texts)
    columns = {name.replace("_", ", "): column for name, column in scores.items() if name != "agreement"}
    means, statistics = {}, {}
    for name in ("diversity", "discrepancy"):
        both = np.stack([scores[f"{name}_image"], scores[f"{name}_text"]])
        difference = both[0] - both[1]
        columns[f"{name}, modalities apart"] = np.abs(difference - np.nanmean(difference))
        means[name], statistics[name] = both.mean(axis=0), float(np.nanmean(both) * np.nanstd(both))
    weights = {
        f"combined {beta:g}:{gamma:g}": {"diversity": beta, "discrepancy": gamma},
        "combined by statistics": statistics,
    }
    return columns | {name: sum(shares[score] * means[score] for score in shares) for name, shares in weights.items()}


def noise_kinds(kinds: NDArray[Any]) -> list[str]:
    """The kinds of noise among the pairs, sorted."""
    return sorted(set(map(str, kinds)) - {""})


def detection_areas(
    scores: dict[str, NDArray[np.float64]], kinds: NDArray[Any], clusters: NDArray[np.int64], samples: int
) -> dict[str, dict[str, Any]]:
    """Score -> what it separates -> the area under the ROC curve and its interval."""
    tasks = {f"{kind} from literal": (kinds == kind, (kinds == kind) | (kinds == "")) for kind in noise_kinds(kinds)}
    if len(tasks) == 2:
        tasks["mismatch from neighbour"] = (kinds == "mismatch", kinds != "")
    rows: dict[str, dict[str, Any]] = {}
    for name, values in scores.items():
        for task, (positive, subset) in tasks.items():
            area = auc(values[subset], positive[subset])
            interval = auc_interval(values[subset], positive[subset], clusters[subset], samples=samples)
            rows.setdefault(name, {})[task] = {"auc": area, "interval": interval}
    return rows
