"""The search engine: queries, conditions, ranking, calibration, and the stores that hold an index."""
