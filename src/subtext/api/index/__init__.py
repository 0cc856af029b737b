"""Verbs of search indexes: they are built, grown, maintained and calibrated."""
