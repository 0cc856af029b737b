"""Evaluation: how well images retrieve their texts and texts their images, with intervals."""

from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.measure import evaluate, evaluate_embeddings, evaluate_matrix, evaluate_scores
from subtext.evaluation.metric import GalleryMetric, Metric, register
from subtext.evaluation.protocol import ExtraMetrics, Protocol
from subtext.evaluation.results import Result

__all__ = [
    "ExtraMetrics",
    "GalleryMetric",
    "Metric",
    "Protocol",
    "Result",
    "embed_pairs",
    "evaluate",
    "evaluate_embeddings",
    "evaluate_matrix",
    "evaluate_scores",
    "register",
]
