"""Evaluation: how well images retrieve their texts and texts their images, with intervals."""

from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.evaluate import (
    evaluate_embeddings,
    evaluate_gallery,
    evaluate_matrix,
    evaluate_model,
    evaluate_scores,
)
from subtext.evaluation.gallery import Gallery, gallery_of
from subtext.evaluation.metric import GalleryMetric, Metric, register
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.result import Result

__all__ = [
    "Gallery",
    "GalleryMetric",
    "Metric",
    "Protocol",
    "Result",
    "embed_pairs",
    "evaluate_embeddings",
    "evaluate_gallery",
    "evaluate_matrix",
    "evaluate_model",
    "evaluate_scores",
    "gallery_of",
    "register",
]
