"""Evaluation: how well pictures find their texts and texts their pictures, and how sure that is."""

from subtext.evaluation.embedding import embed_pairs
from subtext.evaluation.protocol import Further, Protocol
from subtext.evaluation.results import Result
from subtext.evaluation.run import evaluate, evaluate_embeddings, evaluate_matrix, evaluate_scores

__all__ = [
    "Further",
    "Protocol",
    "Result",
    "embed_pairs",
    "evaluate",
    "evaluate_embeddings",
    "evaluate_matrix",
    "evaluate_scores",
]
