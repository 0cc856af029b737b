"""`subtext index`: what is done to an index, one module a group of verbs."""

from subtext.app.indexing.growth import build

__all__ = ["build"]
