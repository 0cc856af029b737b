"""What a field of the metadata holds, over all items of one side: what a reader is shown to filter by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | float


@dataclass(frozen=True)
class Values:
    """The values of one field.

    texts, numbers  whether there are such
    different       how many values there are
    common          the commonest and how many items have each; none where there are too many different ones to choose
                    from
    ends            the least and the greatest number; None where there is none
    dates           of a field of dates, the first and the last in seconds since 1970; else None
    """

    texts: bool
    numbers: bool
    different: int
    common: tuple[tuple[Value, int], ...] = ()
    ends: tuple[float, float] | None = None
    dates: tuple[float, float] | None = None

    @staticmethod
    def of(counts: Mapping[Value, int], *, most: int, choice: int, dates: tuple[float, float] | None) -> Values:
        """Of all values and how many items have each.

        most, choice  see `StoreView.values`

        >>> Values.of({"a": 1, 3: 2, "b": 2}, most=2, choice=9, dates=None).common
        ((3, 2), ('b', 2))
        """
        numbers = [value for value in counts if not isinstance(value, str)]
        order = sorted(counts.items(), key=lambda each: (-each[1], isinstance(each[0], str), each[0]))
        return Values(
            texts=len(numbers) < len(counts),
            numbers=bool(numbers),
            different=len(counts),
            common=tuple(order[:most]) if len(counts) <= choice else (),
            ends=(min(numbers), max(numbers)) if numbers else None,
            dates=dates,
        )
