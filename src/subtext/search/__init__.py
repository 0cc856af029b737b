"""Search: text, images and examples to the items of an index that match them, and how an index is built."""

from subtext.search.answer import Answer, Fit, Hit, Reason
from subtext.search.index import Index
from subtext.search.making import build_index, model_fingerprint
from subtext.search.query import Query

__all__ = ["Answer", "Fit", "Hit", "Index", "Query", "Reason", "build_index", "model_fingerprint"]
