"""`subtext index`: what is done to an index, one module a group of verbs."""

from subtext.api.index.growth import begun, build

__all__ = ["begun", "build"]
