"""Studies: scripts that repeat the figures of docs/log.md, each `python -m reproduce.studies.NAME`."""
