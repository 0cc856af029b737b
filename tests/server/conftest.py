"""What the tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator

import browser
import pytest


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser that pages are tested in."""
    with browser.started() as found:
        yield found
