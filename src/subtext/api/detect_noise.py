"""`subtext data found`: how well a run, and simpler things, tell the pairs that were loosened on purpose."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.api.load import Work, open_work
from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.data.planted import Labels, read_labels
from subtext.data.text import tokenise
from subtext.errors import DataError
from subtext.evaluation import embed_pairs
from subtext.evaluation.metrics.detection import auc, auc_interval
from subtext.models.model import Model
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw
from subtext.ops.density import AS_READ, density
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.report.progress import meter
from subtext.report.text_table import Cell, table

BLOCK = 256
"""Pairs that are one another's negatives for a loss value."""
MARGIN = 0.1
"""Of the triplet loss whose value is a rival, in cosine."""


@dataclass(frozen=True)
class Near:
    """Scores from a pair's neighbours: the graph, and beta and gamma of diversity and discrepancy combined."""

    graph: Path
    beta: float = 3.0
    gamma: float = 1.0


def found(work: Work, labels: Path, *, near: Near | None, in_json: bool, samples: int = 1000) -> str:
    """The area under the curve of each score of pairs, for each kind of looseness, in words or as JSON.

    near  also scores diversity, discrepancy and both combined, by the run's embeddings as they are now

    Raises DataError when the labels are those of other data, RequirementError when the run has no vectors.
    """
    known = read_labels(labels)
    opened = open_work(replace(work, split="all")).by_mean("find loose pairs")
    known.require(opened.pairs)
    pairs = opened.pairs.split(work.split or "train")
    kinds = known.of(pairs)[pairs.links[:, 1]]
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        images, texts = embed_pairs(
            opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told
        )
    scores = rivals(opened.model, pairs, images, texts, seed=0)
    scores |= crowding(pairs, images, texts)
    if near is not None:
        scores |= neighbourhood(near, pairs, images, texts)
    rows = _measured(scores, kinds, pairs.links[:, 0], samples)
    counts = {kind: int((kinds == kind).sum()) for kind in ("", *_kinds(kinds))}
    if in_json:
        told_ = {"run": str(work.run), "labels": str(labels), "settings": dict(known.settings)}
        named = {"pairs": {kind or "literal": count for kind, count in counts.items()}, "auc": rows}
        return json.dumps(told_ | named, indent=2, ensure_ascii=False)
    return _text(rows, counts, known)


def rivals(
    model: Model, pairs: Dataset, images: Embeddings, texts: Embeddings, *, seed: int
) -> dict[str, NDArray[np.float64]]:
    """(L) scores of the pairs that need no neighbours: cosine, loss value, rank weight, words.

    "cosine"  of picture and text, of the views that fit best
    "triplet loss"  its mean over the negatives of a drawn block of pairs, both directions; other texts and pictures of
                    the same group are no negatives
    "rank weight"  Mithun's, by the partner's rank in the same block: the mean of both directions
    "words"  how many the text has
    """
    order = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="found: blocks")
    cosine, loss, rank = (np.empty(len(order)) for _ in range(3))
    measure = getattr(model.similarity, "cosine", model.similarity)
    for start in range(0, len(order), BLOCK):
        chosen = order[start : start + BLOCK]
        of_image, of_text = (torch.from_numpy(pairs.links[chosen, side]) for side in (0, 1))
        with torch.inference_mode():
            table_ = measure(images[of_image], texts[of_text]).float()
        own = table_.diagonal()
        groups = torch.from_numpy(pairs.images.groups[pairs.links[chosen, 0]])
        others = (groups[:, None] != groups[None, :]).float()
        hinge = (MARGIN + table_ - own[:, None]).relu() + (MARGIN + table_ - own[None, :]).relu().T
        # Others that do not stand before the partner, where pictures ask and where texts do.
        behind = [(others * (scores <= own[:, None])).sum(dim=1) for scores in (table_, table_.T)]
        rank[chosen] = 1 + (sum(1 / (count + 1) for count in behind) / 2).numpy()
        cosine[chosen] = own.numpy()
        loss[chosen] = ((hinge * others).sum(dim=1) / others.sum(dim=1).clamp_min(1)).numpy()
    words = [len(tokenise(text)) if isinstance(text, str) else np.nan for text in pairs.texts.values]
    counts = np.array(words, dtype=np.float64)[pairs.links[:, 1]]
    return {"cosine": cosine, "triplet loss": loss, "rank weight": rank, "words": counts}


def crowding(pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, NDArray[np.float64]]:
    """(L) Amrani's density of the pairs, here in the run's own space; nothing where a pair has too few others.

    Pairs of the same picture do not crowd each other. Items of several views count by the mean of their views.
    """
    groups = pairs.images.groups[pairs.links[:, 0]]
    if len(groups) - int(np.unique(groups, return_counts=True)[1].max(initial=0)) < AS_READ.neighbours:
        return {}
    first, second = (
        items.vectors.float().mean(dim=1)[torch.from_numpy(pairs.links[:, side])]
        for side, items in enumerate((images, texts))
    )
    return {"density": density(first, second, groups=torch.from_numpy(groups)).double().numpy()}


def neighbourhood(near: Near, pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, NDArray[np.float64]]:
    """(L) diversity and discrepancy of the pairs in both modalities, how far these are apart, and both combined.

    Combined as COMBINED-VAL and COMBINED-STATS do: the mean of both modalities, the scores by beta and gamma, or by
    their own mean times deviation. Items of several views count by the mean of their views.
    """
    lists = torch.from_numpy(np.ascontiguousarray(Graph.load(near.graph).within(pairs.texts).neighbours)).long()
    pictures = torch.from_numpy(np.maximum(pictures_of_texts(pairs), 0))
    found_: dict[str, NDArray[np.float64]] = {}
    for modality, items, rows in (("image", images, pictures), ("text", texts, None)):
        scores = neighbour_scores(items.vectors.float().mean(dim=1), lists, rows=rows)
        found_[f"diversity, {modality}"] = scores.diversity.double().numpy()[pairs.links[:, 1]]
        found_[f"discrepancy, {modality}"] = scores.discrepancy.double().numpy()[pairs.links[:, 1]]
    for name in ("diversity", "discrepancy"):
        apart = found_[f"{name}, image"] - found_[f"{name}, text"]
        found_[f"{name}, modalities apart"] = np.abs(apart - np.nanmean(apart))
    means, statistics = {}, {}
    for name in ("diversity", "discrepancy"):
        both = np.stack([found_[f"{name}, {modality}"] for modality in ("image", "text")])
        means[name], statistics[name] = both.mean(axis=0), float(np.nanmean(both) * np.nanstd(both))
    ways = {
        f"combined {near.beta:g}:{near.gamma:g}": {"diversity": near.beta, "discrepancy": near.gamma},
        "combined by statistics": statistics,
    }
    return found_ | {way: sum(shares[name] * means[name] for name in shares) for way, shares in ways.items()}


def _kinds(kinds: NDArray[Any]) -> list[str]:
    return sorted(set(map(str, kinds)) - {""})


def _measured(
    scores: dict[str, NDArray[np.float64]], kinds: NDArray[Any], clusters: NDArray[np.int64], samples: int
) -> dict[str, dict[str, Any]]:
    """Score -> what is told apart -> the area and its interval."""
    tasks = {f"{kind} from literal": (kinds == kind, (kinds == kind) | (kinds == "")) for kind in _kinds(kinds)}
    if len(tasks) == 2:
        tasks["mismatch from neighbour"] = (kinds == "mismatch", kinds != "")
    rows: dict[str, dict[str, Any]] = {}
    for name, values in scores.items():
        for task, (marked, of) in tasks.items():
            area = auc(values[of], marked[of])
            spread = auc_interval(values[of], marked[of], clusters[of], samples=samples)
            rows.setdefault(name, {})[task] = {"auc": area, "interval": spread}
    return rows


def _text(rows: dict[str, dict[str, Any]], counts: dict[str, int], labels: Labels) -> str:
    tasks = list(next(iter(rows.values())))
    body: list[list[Cell]] = [[name, *(_cell(row[task]) for task in tasks)] for name, row in rows.items()]
    listed = ", ".join(f"{count:,} {kind or 'literal'}" for kind, count in counts.items())
    if not counts[""]:
        raise DataError(f"nothing is left to tell loose pairs from: all are loose ({listed}); loosen a smaller share")
    return "\n".join(
        [
            f"pairs: {listed} (seed {labels.settings.get('seed')})",
            table(["score", *tasks], body),
            "Area under the curve with 95 % intervals by picture: 50 is chance; above it large scores are loose, below "
            "it small ones.",
        ]
    )


def _cell(value: dict[str, Any]) -> str:
    spread = value["interval"]
    if np.isnan(value["auc"]):
        return "-"
    return f"{100 * value['auc']:.1f}" + (f" ({100 * spread[0]:.1f}-{100 * spread[1]:.1f})" if spread else "")
