"""How Lance's lists of vectors are made and searched, so that searches read the least for a recall.

A list has a code of each vector (RaBitQ, `bits` for each of its numbers), by which a search finds candidates; the
candidates' own vectors are read and compared exactly. Lance makes codes where a width is a multiple of 8; other lists
have the vectors themselves.

The error of a score by a code is normal, and its spread is measured on a sample. What held-out queries find is then
known from their exact scores, for each number of lists, bits and candidates, without building any of them. The cheapest
that finds enough is built, and measured by searches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subtext.ops import draw
from subtext.retrieval import ann

SETTABLE = {"lists": (1, 2**20), "probes": (1, 2**20), "bits": (1, 8), "candidates": (1, 2**16)}
"""Least and greatest value of what may be set by hand."""
BITS = (1, 2, 3, 4, 5)
WHOLE = 32
"""Bits of a number in lists that have the vectors themselves."""
BESIDE = 24
"""Bytes in a list beside the code of a vector: its row, and five numbers that the error is corrected by."""
REQUEST = 2**15
"""Bytes that are read from an object store in the time that one more request takes."""
PER_LIST = 2**17
"""The same for a list, which takes several requests, and what is read around it."""
SEARCHES = 24
"""Searches of one reader, among which what it has to read once is divided: commands search once, servers often."""
DEEP, MOST = 512, 256
"""Nearest vectors that are known of each held-out query, and the most candidates."""
SAMPLE, ASKED, DRAWS = 4096, 16, 8
"""Vectors and queries that the error of codes is measured with, and how often errors are drawn."""


@dataclass(frozen=True)
class ListSearch:
    """A way to make lists, and to search them.

    Attributes:
        lists: Number of lists.
        bits: Of a number in them.
        probes: Lists that a query searches.
        candidates: Vectors that are read for ten hits.
    """

    lists: int
    bits: int
    probes: int
    candidates: int

    def cost(self, rows: int, width: int, number: int, cache: int) -> int:
        """Bytes that a search reads from an object store, with what stands for its requests.

        A reader whose cache holds all lists reads them once.

        Args:
            rows: Vectors in all lists.
            width: Numbers of a vector.
            number: Bytes of a number of the vectors.
            cache: Bytes of the cache.

        Returns:
            Bytes.
        """
        whole = rows * (width * self.bits // 8 + BESIDE)
        lists = whole * self.probes / self.lists + self.probes * PER_LIST
        if whole <= cache / 2:
            lists = min(lists, (whole + self.lists * PER_LIST) / SEARCHES)
        return round(lists + self.candidates * (width * number + REQUEST))


def list_counts(rows: int) -> list[int]:
    """Numbers of lists that are tried: few are read in fewer requests, many leave out more.

    One has all vectors: where every list would be searched, it is read in the fewest.

    Args:
        rows: Vectors in all lists.

    Returns:
        Numbers, ascending.

    Example:
        >>> list_counts(200_000)
        [1, 64, 256, 1024]
    """
    most = ann.list_count(rows)
    return sorted({1, *(max(16, most // part) for part in (1, 4, 16))})


def centroids_of(sample: NDArray[np.float32], count: int, *, seed: int) -> NDArray[np.float32]:
    """Centroids of lists, all of one length.

    A code is of what a vector differs from its centroid by. That is least where the centroid is as long as the vectors
    are in its direction; for the choice of lists the length is the same.

    Args:
        sample: (R D) float32.
        count: Of lists.
        seed: Of what is sampled.

    Returns:
        (C D) float32.
    """
    centroids = ann.train(sample, count, seed=seed)
    some = sample[draw.permutation(len(sample), seed=seed, epoch=0, purpose="lists: length")[:SAMPLE]]
    length = np.mean([np.max(centroids @ own) for own in some])
    return centroids * np.float32(max(length, 1e-3))


def index_options(bits: int) -> dict[str, Any]:
    """What Lance is asked to build.

    Args:
        bits: Of a number.

    Returns:
        Arguments of `create_index`.
    """
    return {"index_type": "IVF_FLAT"} if bits == WHOLE else {"index_type": "IVF_RQ", "num_bits": bits}


def coding_error(sample: NDArray[np.float32], centroids: NDArray[np.float32], bits: int) -> float:
    """The spread of the error of a score by a code, as Lance codes a sample.

    Args:
        sample: (n D) float32.
        centroids: (C D) float32.
        bits: Of a number.

    Returns:
        Standard deviation; 0 for whole numbers.
    """
    if bits == WHOLE:
        return 0.0
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(sample.reshape(-1)), sample.shape[1])
    with tempfile.TemporaryDirectory(prefix="subtext-") as folder:
        dataset = lance.write_dataset(pa.table({"row": np.arange(len(sample)), "vector": vectors}), folder)
        dataset.create_index(
            "vector", metric="dot", num_partitions=len(centroids), ivf_centroids=centroids, **index_options(bits)
        )
        errors = []
        for query in sample[:ASKED]:
            nearest = {"column": "vector", "q": query, "k": len(sample), "nprobes": len(centroids)}
            found = dataset.to_table(columns=["row", "_distance"], nearest={**nearest, "metric": "dot"})
            # Lance's distance is 1 less the product.
            errors.append(1 - found["_distance"].to_numpy() - sample[found["row"].to_numpy()] @ query)
    return float(np.concatenate(errors).std())


def found_by_candidates(scores: NDArray[np.float32], error: float) -> NDArray[np.float64]:
    """The share of the ten nearest vectors that are among so many candidates, if scores have a normal error.

    Args:
        scores: (Q M) exact scores of the nearest vectors of each query, best first; -inf where there are fewer.
        error: Standard deviation.

    Returns:
        (MOST + 1) shares, for 0 candidates and more.
    """
    generator = np.random.default_rng(0)
    best = np.isfinite(scores[:, : ann.DEPTH])
    counts = np.zeros(MOST + 1)
    for _ in range(DRAWS):
        order = np.argsort(-(scores + error * generator.standard_normal(scores.shape)), axis=1, kind="stable")
        ranks = np.argsort(order, axis=1)[:, : ann.DEPTH][best]
        counts += np.bincount(np.minimum(ranks + 1, MOST + 1), minlength=MOST + 2)[: MOST + 1]
    found: NDArray[np.float64] = np.cumsum(counts) / max(1, DRAWS * best.sum())
    return found


@dataclass(frozen=True)
class HeldOut:
    """What is known of the queries of one space: their nearest vectors in another.

    Attributes:
        keys: (Q) of their items.
        queries: (Q D) float32.
        scores: (Q M) of the nearest, best first; -inf where there are fewer.
        keys_nearest: For each query the keys of the nearest ten.
        nearest: For each query (n K D) vectors of these.
    """

    keys: NDArray[np.int64]
    queries: NDArray[np.float32]
    scores: NDArray[np.float32]
    keys_nearest: Sequence[NDArray[np.int64]]
    nearest: Sequence[NDArray[np.float32]]

    def ranks(self, centroids: NDArray[np.float32]) -> NDArray[np.int64]:
        """How many lists a query searches before that of each of its nearest vectors.

        Args:
            centroids: (C D) float32.

        Returns:
            (n) numbers, of all queries together.
        """
        ranks = [np.zeros(0, dtype=np.int64)]
        for query, own in zip(self.queries, self.nearest, strict=True):
            order = np.argsort(np.argsort(-(centroids @ query), kind="stable"))
            if len(own):
                lists = ann.assign(own.reshape(-1, own.shape[-1]), centroids).reshape(own.shape[:2])
                ranks.append(order[lists].min(axis=1))
        return np.concatenate(ranks)


def searches(
    asked: Mapping[str, HeldOut],
    centroids: NDArray[np.float32],
    errors: Mapping[int, float],
    recall: float,
    least: int,
    by_hand: Mapping[str, int],
) -> Iterator[ListSearch]:
    """The ways to search so many lists that find enough for the queries of each space.

    Args:
        asked: Space -> its queries.
        centroids: (C D) float32 of the lists.
        errors: Bits -> `coding_error`.
        recall: Share of the ten nearest that is to be found.
        least: Fewest candidates.
        by_hand: Numbers that are set: "probes", "candidates".

    Yields:
        One for each number of bits and of lists that are searched.
    """
    count = len(centroids)
    ranks = {of: own.ranks(centroids) for of, own in asked.items()}
    probed = sorted({max(1, count >> power) for power in range(count.bit_length())})
    for bits, error in errors.items():
        curves = {of: found_by_candidates(own.scores, error) for of, own in asked.items()}
        for probes in [min(count, by_hand["probes"])] if "probes" in by_hand else probed:
            found = np.min([curves[of] * (own < probes).mean() for of, own in ranks.items() if len(own)], axis=0)
            enough = np.flatnonzero(found >= recall)
            if "candidates" in by_hand:
                yield ListSearch(count, bits, probes, by_hand["candidates"])
            elif len(enough) or by_hand:
                yield ListSearch(count, bits, probes, max(least, int(enough[0]) if len(enough) else MOST))


def raised(search: ListSearch, by_hand: Mapping[str, int]) -> ListSearch:
    """A search that finds more.

    Args:
        search: One that finds too little.
        by_hand: Numbers that are set.

    Returns:
        The next one; the same where there is none.
    """
    probes = search.probes if "probes" in by_hand else min(search.lists, 2 * search.probes)
    candidates = search.candidates
    if "candidates" not in by_hand and candidates < MOST:
        candidates = min(MOST, candidates + max(1, candidates // 6))
    return ListSearch(search.lists, search.bits, probes, candidates)


def measured(
    search: ListSearch, share: Callable[[ListSearch], dict[str, float]], recall: float, by_hand: Mapping[str, int]
) -> tuple[ListSearch, dict[str, float]]:
    """A search with what it really finds, raised until that is enough or there is no more.

    Args:
        search: The first that is tried.
        share: Space of the queries -> the share that a search finds.
        recall: That is wanted.
        by_hand: Numbers that are set.

    Returns:
        The search, and what it finds.
    """
    found = share(search)
    while min(found.values(), default=1.0) < recall and (more := raised(search, by_hand)) != search:
        search, found = more, share(more)
    return search, found


def cheapest(
    asked: Mapping[Any, Mapping[str, HeldOut]],
    centroids: Sequence[NDArray[np.float32]],
    errors: Sequence[Mapping[int, float]],
    recall: float,
    least: Mapping[Any, int],
    by_hand: Mapping[str, int],
    cost: Callable[[ListSearch], int],
) -> dict[Any, ListSearch]:
    """The lists, and how each space that shares them searches them, at the least cost of a search in each of them.

    Args:
        asked: Space -> space of the queries -> those.
        centroids: (C D) float32, for each number of lists.
        errors: Bits -> `coding_error`, for each number of lists.
        recall: Share of the ten nearest that is to be found.
        least: Space -> fewest candidates.
        by_hand: Numbers that are set.
        cost: Of a search.

    Returns:
        Space -> search; where none finds enough, by the most bits and candidates.
    """
    best, found = np.inf, dict[Any, ListSearch]()
    for own, error in zip(centroids, errors, strict=True):
        ways = {space: list(searches(of, own, error, recall, least[space], by_hand)) for space, of in asked.items()}
        for bits in error:
            chosen = {
                space: min((way for way in of if way.bits == bits), key=cost, default=None)
                for space, of in ways.items()
            }
            total = sum(np.inf if way is None else cost(way) for way in chosen.values())
            if total < best:
                best, found = total, {space: way for space, way in chosen.items() if way is not None}
    count = len(centroids[0])
    return found or dict.fromkeys(asked, ListSearch(count, max(errors[0]), count, MOST))
