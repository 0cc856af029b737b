"""Names of the documents that an index keeps beside its items."""

from __future__ import annotations

CALIBRATION, PLOT, RANKER = "calibration", "plot", "ranker"
"""The calibration as JSON, its reliability plot as SVG, and the ranker as JSON."""
LISTS = "lists"
"""Saved lists of images as JSON; see `retrieval.lists`."""
READ_BY_OCR = "ocr"
"""The largest key of the images that were searched for text, as a number."""
