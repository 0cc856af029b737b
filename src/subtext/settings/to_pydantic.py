"""Settings as fields of a pydantic model."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from subtext.settings.field import Field


def to_pydantic(
    field: Field,
    kind: Any = None,
    *,
    default: Any = None,
    maximum: float | None = None,
    max_length: int | None = None,
    description: str | None = None,
) -> tuple[Any, Any]:
    """Type and pydantic field of a setting, for `pydantic.create_model`: its help, default, choices and interval.

    Args:
        field: The setting.
        kind: Its type, or that of each value; by default the field's, with its choices.
        default: By default the field's.
        maximum: The largest number, where the field has another or none.
        max_length: Most values of a tuple.
        description: By default the help.

    Returns:
        The type and the field.
    """
    if kind is None:
        kind = Literal[field.choices] if field.choices else field.type
    bounds: dict[str, Any] = {"le": maximum, "max_length": max_length}
    if (interval := field.interval) is not None:
        bounds |= {"ge": interval.minimum, "gt": interval.above, "lt": interval.below}
        bounds["le"] = interval.maximum if maximum is None else maximum
    default = field.default if default is None else default
    if field.multiple:
        kind, default = list[kind], list(default)
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    text = field.help if description is None else description
    return kind | None if field.optional else kind, pydantic.Field(default, description=text, **bounds)
