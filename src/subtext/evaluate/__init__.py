"""Evaluation: how well pictures find their texts and texts their pictures, and how sure that is."""

from subtext.evaluate.embedding import embed_pairs
from subtext.evaluate.further import Further
from subtext.evaluate.protocol import Protocol
from subtext.evaluate.result import Result
from subtext.evaluate.run import evaluate, evaluate_embeddings, evaluate_matrix, evaluate_scores

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
