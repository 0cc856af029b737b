"""Search: words or a picture to the items of an index that are nearest to them, and indexes made of data sets."""

from subtext.search.engine import Engine, Hit
from subtext.search.making import build_index, model_fingerprint

__all__ = ["Engine", "Hit", "build_index", "model_fingerprint"]
