"""Null models of a table: what a row could reach without any meaning of images.

Hubness alone gives every query the same order: that of each candidate's mean score by the table's first row. BM25
between captions compares words with the other texts of an image and no pixel; a query's own text is left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

import subtext as st
from reproduce.tables.specification import BM25, HUBNESS, PublishedTable, Row
from subtext.data.words import tokenise
from subtext.graphs.graph import image_of_text

Both = tuple[Float[np.ndarray, "i t"], Float[np.ndarray, "i t"]]
"""Scores of images as queries, and of texts as queries."""
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b."""


def with_nulls(table: PublishedTable) -> PublishedTable:
    """The table with its null models below, where it has a first row that is trained."""
    first = next((row for row in table.rows if row.system is not None), None)
    if first is None:
        return table
    nothing = (None,) * len(table.columns)
    names = {HUBNESS: f"null: hubness of {first.name} alone", BM25: "null: BM25 between captions"}
    nulls = (Row(key, name, None, nothing, mean_of=(first.key,), null=key) for key, name in names.items())
    return replace(table, rows=(*table.rows, *nulls))


def hubness(scores: Float[np.ndarray, "i t"]) -> Both:
    """The mean score of each candidate, the same for all queries."""
    means = (scores.mean(axis=side, keepdims=True, dtype=np.float64).astype(np.float32) for side in (0, 1))
    of_texts, of_images = (np.broadcast_to(mean, scores.shape) for mean in means)
    return of_texts, of_images


def bm25_between_captions(pairs: st.Dataset) -> Both | None:
    """The best BM25 of a text with the texts of an image, itself left out; None where no image has two texts of words.

    An image without another text than the query's own has 0, as if they shared no word.
    """
    owner, texts = image_of_text(pairs), pairs.texts.values
    if any(text is None for text in texts) or not (np.bincount(owner[owner >= 0]) > 1).any():
        return None
    counts = _counts([tokenise(str(text)) for text in texts])
    lengths, number = counts.sum(axis=1), counts.shape[0]
    present = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log1p((number - present + 0.5) / (present + 0.5))
    rows = np.repeat(np.arange(number), np.diff(counts.indptr))
    norm = SATURATION * (1 - LENGTH + LENGTH * lengths[rows] / lengths.mean())
    weights = rarity[counts.indices] * counts.data * (SATURATION + 1) / (counts.data + norm)
    documents = csr_array((weights, counts.indices, counts.indptr), shape=counts.shape)
    of_images = np.zeros((len(pairs.images), number), dtype=np.float32)
    of_texts = of_images.copy()
    for image in range(len(pairs.images)):
        own = np.flatnonzero(owner == image)
        if not len(own):
            continue
        asked, answered = (counts[own] @ documents.T).toarray(), (documents[own] @ counts.T).toarray()
        for found, best in ((asked, of_images), (answered, of_texts)):
            found[np.arange(len(own)), own] = 0
            best[image] = found.max(axis=0)
    return of_images, of_texts


def _counts(texts: list[list[str]]) -> csr_array:
    """(T V) how often each text has each word."""
    words: dict[str, int] = {}
    columns = [[words.setdefault(word, len(words)) for word in text] for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in columns])
    flat = np.array([word for text in columns for word in text], dtype=np.int64)
    return csr_array((np.ones(len(flat)), (rows, flat)), shape=(len(texts), max(1, len(words))))
