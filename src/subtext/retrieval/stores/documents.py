"""Names of the documents that an index keeps beside its items."""

from __future__ import annotations

CALIBRATION, PLOT = "calibration", "plot"
"""The calibration as JSON, and its reliability plot as SVG."""
READ_BY_OCR = "ocr"
"""The largest key of the images that were searched for text, as a number."""
