"""The browser that pages are tested in: Debian's Chromium, or what the variable CHROMIUM names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
needed = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="needs Chromium (apt-get install chromium), or CHROMIUM=PATH"
)
"""A mark for tests of pages: left out on a desk without Chromium, failed in CI."""


@contextmanager
def started() -> Iterator[Browser]:
    """A browser without a window."""
    if CHROMIUM is None:
        pytest.fail(
            "pages are tested in Chromium; there is none; apt-get install chromium, or set CHROMIUM to its path"
        )
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
