"""Numbers of the package, in a module of its own so that reading them imports nothing else."""

from __future__ import annotations

from collections.abc import Sequence

__version__ = "0.1.0"

FORMAT = 1
"""Format of everything that Subtext writes and reads again: records, results, indexes, graphs, calibrations, labels.
Raised when what was written before can no longer be read; see `require_format`."""

DRAWS = 2
"""Raised when the same seed draws other random numbers than before. Trainings of different numbers are not compared,
and none is resumed under another."""


def require_format(number: object, subject: object, command: str, error: type[Exception]) -> None:
    """Raise the error, about `subject`, unless this is the format number that this version of Subtext writes.

    Args:
        number: What was read.
        subject: What it was read from, for the message.
        command: Makes it again, as in "train".
        error: Class that is raised.

    Raises:
        Exception: Of the class `error`, for another number or none.
    """
    if type(number) is not int or number != FORMAT:
        raise error(
            f"{subject} was made by an earlier Subtext, which cannot be opened; build it again with `subtext {command}`"
        )


def require_same_draws(draws: Sequence[tuple[str, int]], error: type[Exception]) -> None:
    """Raise the error unless these trainings have the same number of random draws; see `DRAWS`.

    Args:
        draws: How a message calls each training, and its number.
        error: Class that is raised.

    Raises:
        Exception: Of the class `error`, if the numbers differ.
    """
    for name, number in draws[1:]:
        first, expected = draws[0]
        if number != expected:
            raise error(
                f"{first} and {name} need the same random draws; they have those of numbers {expected} and {number}, "
                "between which a seed draws otherwise; train again what has the lower number"
            )
