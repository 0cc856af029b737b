"""`python -m reproduce`: the command `subtext`, which then also reads the data sets of `reproduce.readers`."""

from __future__ import annotations

from runpy import run_module

if __name__ == "__main__":
    run_module("subtext", run_name="__main__", alter_sys=True)
