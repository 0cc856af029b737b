"""Rows as a table of pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from subtext.errors import RequirementError

if TYPE_CHECKING:
    import pandas


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """A DataFrame of rows, or of columns. Raises RequirementError where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise RequirementError("a data frame needs pandas, which is not installed; pip install pandas") from error
    return pandas.DataFrame(rows)
