"""Studies: scripts that repeat the figures of reproduce/notes, each `python -m reproduce.studies.NAME`."""

from __future__ import annotations

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
