"""Reproduction of published tables and figures, and the studies. Not part of the wheel."""
