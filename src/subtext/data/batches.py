"""Batches of items, and reading them ahead in threads.

The pairs of a batch, and the text of an image, are pure functions of (seed, epoch, item ids): the order of the rows in
the file, the number of workers and resuming cannot change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.data.inputs import InputBatch
from subtext.errors import DataError
from subtext.ops import draw

Work = TypeVar("Work")
Done = TypeVar("Done")


def item_batch(items: Items, rows: NDArray[np.int64], root: Path) -> InputBatch:
    """Select items as an Input reads them.

    Args:
        items: Images or texts.
        rows: (N) indices of items; they become Embeddings.ids.
        root: Folder of relative image paths.

    Returns:
        The batch of N items.
    """
    return InputBatch(
        values=[items.values[row] for row in rows],
        ids=[items.ids[row] for row in rows],
        rows=rows,
        keys=items.keys[rows],
        root=root,
    )


def epoch_batches(
    pairs: Dataset, *, batch_size: int, epoch: int, seed: int, captions: Literal["all", "one", "together"] = "all"
) -> list[NDArray[np.int64]]:
    """Sample the batches of one epoch.

    The last batch of pairs may be smaller; a single pair joins the batch before, since alone it has no negatives.

    Args:
        pairs: The training pairs.
        batch_size: Pairs per batch, B.
        epoch: Number of the epoch.
        seed: Seed of the order.
        captions: "all": every link once; "one": every image once, with a text sampled anew each epoch; "together":
            every image once with all its texts, in batches of equally many images that have about batch_size pairs.

    Returns:
        (B 2) arrays of image row and text row.

    Raises:
        DataError: If there are no pairs.
    """
    if batch_size < 1:
        raise DataError(f"an epoch needs batches of at least 1 pair; it got batch_size {batch_size}")
    if not len(pairs.links):
        raise DataError("an epoch needs at least one pair of an image and a text; the data set has none")
    if captions == "together":
        return _images_with_all_texts(pairs, batch_size, seed=seed, epoch=epoch)
    links = pairs.links
    if captions == "one":
        # The link of each image with the smallest random number.
        numbers = _link_numbers(pairs, links, seed=seed, epoch=epoch, purpose="caption")
        links = links[np.lexsort((numbers, links[:, 0]))]
        links = links[np.unique(links[:, 0], return_index=True)[1]]
    order = np.argsort(_link_numbers(pairs, links, seed=seed, epoch=epoch), kind="stable")
    starts = list(range(0, len(links), batch_size))
    if batch_size > 1 and len(starts) > 1 and len(links) - starts[-1] == 1:
        starts.pop()
    stops = [*starts[1:], len(links)]
    return [links[order[start:stop]] for start, stop in zip(starts, stops, strict=True)]


def read_ahead(work: Iterable[Work], read: Callable[[Work], Done], *, workers: int = 2) -> Iterator[Done]:
    """Apply `read` to each item of work in order, while threads are already reading the next ones.

    It holds at most two results per worker, so memory stays bounded. Without workers it reads on demand. An error of
    `read` is raised here, in its turn; leaving the loop early stops the threads.

    Args:
        work: The items.
        read: Reads one of them.
        workers: Number of threads; 0 reads on demand.

    Yields:
        The results, in the order of `work`.
    """
    if workers <= 0:
        yield from map(read, work)
        return
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="read")
    waiting: deque[Future[Done]] = deque()
    try:
        for item in work:
            waiting.append(pool.submit(read, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _images_with_all_texts(pairs: Dataset, batch_size: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Batches of about equally many images, two or more, with all their links; equally many batches in every epoch."""
    draws = draw.uniform(pairs.images.keys, seed=seed, epoch=epoch, purpose="order/image")[:, 0]
    texts = draw.uniform(pairs.texts.keys, seed=seed, epoch=epoch, purpose="order/text")[:, 0]
    order = np.lexsort((texts[pairs.links[:, 1]], pairs.links[:, 0], draws[pairs.links[:, 0]]))
    links = pairs.links[order]
    ends = np.append(np.flatnonzero(np.diff(links[:, 0])) + 1, len(links))
    count = max(1, min(-(-len(links) // batch_size), len(ends) // 2))
    cuts = [0, *(int(ends[number * len(ends) // count - 1]) for number in range(1, count + 1))]
    return [links[begin:end] for begin, end in pairwise(cuts)]


def _link_numbers(
    pairs: Dataset, links: NDArray[np.int64], *, seed: int, epoch: int, purpose: str = "order"
) -> NDArray[np.float64]:
    """(L) a random number for each link, from the ids of its image and its text."""
    images = draw.uniform(pairs.images.keys, seed=seed, epoch=epoch, purpose=f"{purpose}/image")[:, 0]
    texts = draw.uniform(pairs.texts.keys, seed=seed, epoch=epoch, purpose=f"{purpose}/text")[:, 0]
    # The fractional part of a sum of two independent uniform numbers is uniform, and pairwise independent over links.
    return (images[links[:, 0]] + texts[links[:, 1]]) % 1.0
