"""Metrics: Comparison -> one value per query."""
