"""`subtext.register_metric`, `register_method` and `register_reader`: extensions from outside the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from subtext.training.setup import Setup

T = TypeVar("T")


def register_metric(metric: type[T]) -> type[T]:
    """Measure a metric in every evaluation from now on; usable as a decorator.

    metric  a subclass of `Metric` with a `name` and a `__call__` from a Comparison (Q C) to values (Q)

    Raises RequirementError for anything else.
    """
    from subtext.evaluation.metric import register

    return register(metric)  # type: ignore[type-var]


def register_method(function: Callable[..., Setup]) -> Callable[..., Setup]:
    """Add a training method under the name of its function, for `train(with_=...)`; usable as a decorator.

    function  Setup -> Setup. Its keyword-only parameters are the options: each has a default and a type
              Annotated[type, "help"]

    Raises RecipeError for an option without help or default.
    """
    from subtext.recipes.catalogue import register_method

    register_method(function)
    return function


def register_reader(reader: Any) -> Any:
    """Read data sets of one more format; usable as a decorator of a class without arguments.

    reader  an object with LOOKS_FOR, PRIORITY, recognises(path) and read(path, images): see `subtext.data.readers`
    """
    from subtext.data.readers import register

    return register(reader)
