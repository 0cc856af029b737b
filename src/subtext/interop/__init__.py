"""Subtext's models inside other people's tools."""
