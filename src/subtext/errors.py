"""What can go wrong, as one tree; every message says what needs what, what it got, and what to do.

    SubtextError
    |- ShapeError         tensors that do not agree
    |- ArgumentError      arguments that do not go together, or a value out of range
    |- RequirementError   a part that misses what another part or option supplies
    |- DataError          files, rows, images and features that cannot be used
    |- RecipeError        a model, method or option that does not exist or does not fit
    |- CheckpointError    a run folder that cannot be read, or is another recipe's
    |- OutputError        a file or folder that cannot be written
    |- SearchIndexError   a search index that cannot be read or does not fit the model
    |- TrainingError      training that cannot go on (a loss that is not a number)

The command line prints a SubtextError as one sentence and exits with 1, or with 2 for an ArgumentError. Anything else
is a bug and keeps its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A setting inside a message: `out=DIR` in Python and over HTTP, `--out DIR` on the command line.

    Attributes:
        name: As Python spells it.
        value: The value that the message gives it; None for the name alone.
    """

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


OF_OBJECTS = (
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError, OSError, AssertionError,
    ImportError,
)  # fmt: skip
"""What the code of an object that was given may raise where it does not fit."""


class SubtextError(Exception):
    """The root of every error that Subtext raises on purpose.

    Args:
        *message: What needs what, what it got, and what to do: text, in one part or in several with a `Setting` for
            each further setting that it names.
        field: The setting that the message begins with, as Python spells it; each interface writes it in its own way.

    Attributes:
        field: See above; empty where the message is about no setting.
        method: Of a training that refused; the field is an option of this method.
    """

    method: str = ""

    def __init__(self, *message: object, field: str = "") -> None:
        super().__init__(*message)
        self.field = field

    def __str__(self) -> str:
        return "".join(map(str, self.args))


class ShapeError(SubtextError, ValueError):
    """Tensors whose shapes, types or counts do not agree."""


class ArgumentError(SubtextError, ValueError):
    """Arguments of a function or options of a command that do not go together, or a value out of range."""


class RequirementError(SubtextError, ValueError):
    """A part needs something that another part, a batch option or a method has to supply first."""


class DataError(SubtextError, ValueError):
    """A file, row, image or feature that cannot be used."""


class StoreError(SubtextError):
    """An object store that cannot be used now: nothing is known of its images, and none of them counts as deleted."""


class RecipeError(SubtextError, ValueError):
    """A model, a method or an option that does not exist, or that does not fit with the others."""


class CheckpointError(SubtextError):
    """A run folder that is missing, incomplete, damaged, or made by another recipe."""


class OutputError(SubtextError):
    """A file or folder that cannot be written: the disk is full, something is in the way, or there is no right to."""


class SearchIndexError(SubtextError):
    """A search index that is missing or damaged, or that another model made."""


class TrainingError(SubtextError, RuntimeError):
    """Training that cannot go on."""


OUT_OF_MEMORY_MESSAGES = (
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking",
)
"""Parts of the messages of torch and the operating system for an allocation that failed."""
