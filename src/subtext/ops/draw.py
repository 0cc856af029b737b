"""Random numbers as pure functions of (seed, epoch, item key, purpose).

Order, block size, number of workers and resuming cannot change them: there is no generator with a state. The numbers
come from SplitMix64 (Steele, Lea and Flood 2014) run in counter mode over arrays of keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def key(name: str) -> int:
    """A key for one item from its name, the same on every machine.

    Args:
        name: Any text.

    Returns:
        A whole number of 63 bits.
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def keys(names: Sequence[str]) -> NDArray[np.int64]:
    """The keys of several names.

    Args:
        names: N texts.

    Returns:
        (N) int64.
    """
    return np.fromiter((key(name) for name in names), dtype=np.int64, count=len(names))


def uniform(
    item_keys: NDArray[np.int64], *, seed: int, epoch: int, purpose: str, count: int = 1
) -> NDArray[np.float64]:
    """Uniform numbers for each item. The first columns do not depend on `count`.

    Args:
        item_keys: (N) of the items (`key`).
        seed: The seed of the run.
        epoch: The epoch, from 0.
        purpose: What the numbers are for: other purposes get independent numbers.
        count: Numbers per item.

    Returns:
        (N count) in [0, 1).

    Example:
        >>> a = uniform(np.array([7, 8]), seed=0, epoch=1, purpose="flip")
        >>> b = uniform(np.array([8, 7]), seed=0, epoch=1, purpose="flip")
        >>> bool((a == b[::-1]).all())
        True
    """
    base = np.uint64(key(f"{seed}/{epoch}/{purpose}"))
    with np.errstate(over="ignore"):
        start = _mix(item_keys.astype(np.uint64) ^ _mix(np.array([base]))[0])
        counter = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(start[:, None] + counter[None, :])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(
    item_keys: NDArray[np.int64], bound: NDArray[np.int64] | int, *, seed: int, epoch: int, purpose: str, count: int = 1
) -> NDArray[np.int64]:
    """Whole numbers for each item.

    Args:
        item_keys: (N) of the items (`key`).
        bound: One number, or (N) one per item, above 0.
        seed: The seed of the run.
        epoch: The epoch, from 0.
        purpose: What the numbers are for.
        count: Numbers per item.

    Returns:
        (N count) in [0, bound).
    """
    limit = np.broadcast_to(np.asarray(bound, dtype=np.int64), item_keys.shape)[:, None]
    samples = uniform(item_keys, seed=seed, epoch=epoch, purpose=purpose, count=count) * limit
    return np.minimum(samples.astype(np.int64), limit - 1)


def normal(item_keys: NDArray[np.int64], *, seed: int, epoch: int, purpose: str, count: int = 1) -> NDArray[np.float32]:
    """Standard normal numbers for each item (Box and Muller 1958). The first columns do not depend on `count`.

    Args:
        item_keys: (N) of the items (`key`).
        seed: The seed of the run.
        epoch: The epoch, from 0.
        purpose: What the numbers are for.
        count: Numbers per item.

    Returns:
        (N count) float32.

    Example:
        >>> normal(np.array([7, 8]), seed=0, epoch=1, purpose="noise", count=3).shape
        (2, 3)
    """
    pairs = (count + 1) // 2
    samples = uniform(item_keys, seed=seed, epoch=epoch, purpose=purpose, count=2 * pairs)
    # In (0, 1], so that the logarithm is finite; single precision from here on, which is many times faster.
    radius = np.sqrt(-2 * np.log((1 - samples[:, ::2]).astype(np.float32)))
    angle = (2 * np.pi * samples[:, 1::2]).astype(np.float32)
    numbers = np.empty((len(item_keys), 2 * pairs), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=numbers[:, ::2])
    np.multiply(radius, np.sin(angle), out=numbers[:, 1::2])
    return numbers[:, :count]


def permutation(length: int, *, seed: int, epoch: int, purpose: str) -> NDArray[np.int64]:
    """A shuffled range(length).

    Args:
        length: How many numbers.
        seed: The seed of the run.
        epoch: The epoch, from 0.
        purpose: What the order is for.

    Returns:
        (length) int64, each number of [0, length) once.
    """
    samples = uniform(np.arange(length, dtype=np.int64), seed=seed, epoch=epoch, purpose=purpose)[:, 0]
    return np.argsort(samples, kind="stable")


def number(*, seed: int, epoch: int, purpose: str) -> int:
    """One number, for seeding another library's generator.

    Args:
        seed: The seed of the run.
        epoch: The epoch, from 0.
        purpose: What the generator is for.

    Returns:
        A whole number of 63 bits.
    """
    return key(f"{seed}/{epoch}/{purpose}")


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))
