"""The types that flow: Embeddings become a Comparison, comparisons make a Scene.

Axis letters have one meaning in the house:
    N items   Q queries   C candidates   K views of one item   D width   P parts (regions, cells, words)   B batch
Scores: larger is better, everywhere. Agreement is checked once, in the constructors here, so that a loss or a metric
can trust what it reads.
"""

from __future__ import annotations

from subtext.core.comparison import Comparison, Origin, Truth
from subtext.core.embeddings import Embeddings, Encoded
from subtext.core.scene import DIRECTIONS, Direction, Epoch, Scene

__all__ = ["DIRECTIONS", "Comparison", "Direction", "Embeddings", "Encoded", "Epoch", "Origin", "Scene", "Truth"]
