"""Studies: scripts that repeat the figures of reproduce/notes, each `python -m reproduce.studies.NAME`."""
