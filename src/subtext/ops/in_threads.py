"""Work on blocks of rows in threads, for kernels that numba compiles and for numpy.

Threads are Python threads, and the work releases the interpreter's lock. So no threading layer of the compiler is
started: kernels live beside torch's threads, and may be called from several threads at once. Machine code is made at
the first call (seconds) and never written to disk, because a command writes nowhere but in the folder that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_threads(
    work: Callable[[slice], Result], rows: int, *, threads: int | None = None, most: int | None = None
) -> list[Result]:
    """The results of a function on blocks of rows, in order; on one empty block if there are no rows.

    Args:
        work: Called with the slice of each block.
        rows: How many rows there are.
        threads: How many; None for as many as torch uses.
        most: Maximum rows of a block; None for one block a thread.

    Returns:
        One result per block.
    """
    threads = threads or torch.get_num_threads()
    block = max(1, min(rows if most is None else most, -(-rows // threads)))
    blocks = [slice(start, min(start + block, rows)) for start in range(0, max(rows, 1), block)]
    if threads == 1 or len(blocks) == 1:
        return list(map(work, blocks))
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        return list(pool.map(work, blocks))
