"""`python -m reproduce`: the command `subtext`, which then also reads the data sets of `reproduce.readers`."""

from __future__ import annotations

from runpy import run_module

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)

if __name__ == "__main__":
    run_module("subtext", run_name="__main__", alter_sys=True)
