"""Asymmetry II (Gong et al. 2024): a text that says more of what its picture shows."""

from __future__ import annotations


def lengthened(text: str, other: str) -> str:
    """One text, then another of the same picture.

    >>> lengthened("a dog runs ", "wet sand")
    'a dog runs wet sand'
    """
    return f"{text.strip()} {other.strip()}".strip()
