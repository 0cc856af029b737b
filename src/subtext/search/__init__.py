"""Search: words, pictures and examples to the items of an index that go with them, and indexes made of data sets."""

from subtext.search.engine import Engine
from subtext.search.hit import Answer, Fit, Hit, Reason
from subtext.search.making import build_index, model_fingerprint
from subtext.search.query import Order, Query

__all__ = ["Answer", "Engine", "Fit", "Hit", "Order", "Query", "Reason", "build_index", "model_fingerprint"]
