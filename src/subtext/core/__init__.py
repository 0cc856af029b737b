"""The types that flow: Embeddings become a Comparison, comparisons make a Scene.

Axis letters have one meaning everywhere:
    N items   Q queries   C candidates   K views of one item   D width   P parts (regions, cells, words)   B batch
Larger scores are better. The constructors check that shapes agree, so losses and metrics do not check again.
"""

from __future__ import annotations

from subtext.core.types import DIRECTIONS, Comparison, Direction, Embeddings, Encoded, Epoch, Origin, Scene, Truth

__all__ = ["DIRECTIONS", "Comparison", "Direction", "Embeddings", "Encoded", "Epoch", "Origin", "Scene", "Truth"]
