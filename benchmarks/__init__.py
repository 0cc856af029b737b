"""Benchmarks: each module measures ours beside a peer on the same work; `python -m benchmarks.NAME --json`."""
