"""Losses: Comparison -> one value per query."""
