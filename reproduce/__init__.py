"""Reproduction of published tables and figures, and the studies. Not part of the wheel."""

from __future__ import annotations

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
