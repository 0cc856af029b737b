"""Systems of Thomas and Kovashka, Emphasizing Complementary Samples for Non-literal Cross-modal Retrieval (2022)."""

from __future__ import annotations

from collections.abc import Mapping

from reproduce.tables.specification import ByData, Shared, Swept, System

PAPER = "Thomas and Kovashka, CVPR workshops 2022"

PLAN: dict[str, object] = {
    "epochs": 60,
    "batch_size": 32,
    "lr": 1e-4,
    "weight_decay": 1e-5,
    "amsgrad": False,
    "max_grad_norm": 0.0,
    "schedule": "plateau",
    "lr_factor": 0.1,
    "plateau_patience": 5,
    "patience": 10,
    "select": "loss",
    "caption_sampling": "one",
    "positives": "pair",
}
"""Section 3.5; patience and the limit of 60 epochs are ours."""

FULL_BATCHES: dict[str, object] = {"drop_last": True}
"""The plan of rows whose method does not set it, so that all rows take the same steps."""

SENTENCES = {"politics": 2}
"""Sentences of an article of Politics (ECCV 2020, section 4.1); the other data sets have captions."""

PIXELS: dict[str, object] = {"image": "resnet-50", "image_size": 224, "resize": "squash", "flip": 0.5}

VIEWS = ByData({"coco": 3, "goodnews": 5, "politics": 9, "conccap": 7}, 3)
TOTAL = ByData({"coco": 196.0, "goodnews": 160.0, "politics": 96.0, "conccap": 196.0}, 196.0)
BETA = ByData({"coco": 1.0, "goodnews": 4.0, "politics": 3.0, "conccap": 3.0}, Swept.BETA)
GAMMA = ByData({"coco": 4.0, "goodnews": 1.0, "politics": 1.0, "conccap": 1.0}, Swept.GAMMA)

_MODEL: dict[str, object] = {"views": VIEWS, "word_dim": 200, "word_vectors": "doc2vec", "negatives": "all"}
_WITHOUT_LOSS: dict[str, object] = {name: value for name, value in _MODEL.items() if name != "negatives"}
"""Beside a method that chooses the negatives itself, or replaces the loss."""
_GRAPH: dict[str, object] = {"graph": Shared.TEXT_GRAPH}
_SCORED: dict[str, object] = {**_GRAPH, "total_weight": TOTAL, "bank": "complete"}
"""Of a text that the epoch before did not sample, too, the embedding is that of the epoch before."""


def _with(
    name: str,
    options: Mapping[str, object],
    plan: Mapping[str, object] | None = None,
    model: Mapping[str, object] = _MODEL,
) -> System:
    return System("pvse", model, ((name, options),), plan or {})


def diversity(options: Mapping[str, object]) -> System:
    """DIVERSITY on PVSE with the paper's graph and lambda, and these options."""
    return _with("diversity", {**_SCORED, **options})


def discrepancy(options: Mapping[str, object]) -> System:
    """DISCREPANCY on PVSE, likewise."""
    return _with("discrepancy", {**_SCORED, **options})


def combined(options: Mapping[str, object]) -> System:
    """COMBINED-VAL or COMBINED-STATS on PVSE, likewise."""
    return _with("combined", {**_SCORED, **options})


PVSE = System("pvse", _MODEL, plan=FULL_BATCHES)
THOMAS = _with(
    "neighbourhoods", {**_GRAPH, "pool_size": Shared.NEIGHBOURS, "form": "triplet"}, FULL_BATCHES, _WITHOUT_LOSS
)
HAL = _with("hal", {}, FULL_BATCHES, _WITHOUT_LOSS)
MITHUN = _with("mithun", {}, FULL_BATCHES, _WITHOUT_LOSS)
AMRANI = _with("amrani", {"features": Shared.FEATURES, "text_features": Shared.TEXT_VECTORS, "total_weight": TOTAL})
DISTANCE = _with("distance", {}, FULL_BATCHES, _WITHOUT_LOSS)
UNIFORM = _with("uniform", {"total_weight": TOTAL})
RANDOM = _with("random", {"total_weight": TOTAL})

NOTES = (
    "Each pair is a question of its own, as in the papers: of several captions of an image none helps another. "
    "Accuracy is exact over all draws of distractors; the papers drew once.",
    "All rows are PVSE with K of Table 1 (K = 3 on a data set that the paper does not have), a joint space of 1,024 "
    "dimensions and a GRU of 512 in each direction. Every negative counts unless the row's method chooses some.",
    "Word vectors of 200 dimensions are learnt on the training texts first (section 3.5), by Doc2Vec over all words.",
    "The paper does not state how HAL, MITHUN and AMRANI were combined with PVSE: here each replaces or weights the "
    "ranking terms and leaves the other terms.",
    "AMRANI's densities, whose code was never published, are those of the images' features and of the texts' vectors "
    "in the space of the graph (Doc2Vec unless --space or --graph names another). A text without a vector is "
    "orthogonal to every other text.",
    "In each epoch one caption of every image is sampled. A smaller last batch is left out, in every row.",
    "Two differences from section 3.5: the GRU starts with PyTorch's initial weights, where the paper has Xavier's for "
    "all that is not pretrained, and weight decay leaves out biases and normalisation layers.",
    "Of Politics the first two sentences of each article are read, as `subtext data prepare` cuts them; complete "
    "articles are refused.",
)
