"""Nearest rows of vectors: all of them compared, chosen rows compared, or the likeliest lists of rows compared."""

from subtext.search.ann.exact import Nearest, nearest

__all__ = ["Nearest", "nearest"]
