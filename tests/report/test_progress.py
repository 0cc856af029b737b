"""Progress: what is said of the time that is left."""

from __future__ import annotations

import pytest

from subtext.report import progress
from subtext.report.progress import Estimate, meter

pytestmark = pytest.mark.contract


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_estimate_ignores_slow_start(clock: Clock) -> None:
    estimate = Estimate()
    clock.now = 12.0  # Twelve seconds to load and compile, then a hundred items a second.
    assert estimate(1, 1001) is None, "one report is no rate"
    clock.now = 12.5
    assert estimate(51, 1001) is None, "half a second is too little"
    clock.now = 14.0
    assert estimate(201, 1001) == pytest.approx(8.0)


def test_estimate_uses_rate_of_last_seconds(clock: Clock) -> None:
    estimate = Estimate()
    for second in range(61):
        clock.now = float(second)
        estimate(second, 1000)
    for second in range(61, 161):
        clock.now = float(second)
        left = estimate(60 + 5 * (second - 60), 1000)
    assert left == pytest.approx((1000 - 560) / 5)


@pytest.mark.parametrize(
    ("finished", "total", "line"),
    [
        (301, 601, "301 of 601, 30 a second, 10 s left"),
        (10_501, 21_001, "10,501 of 21,001, 1,050 a second, 10 s left"),
        (6, 11, "6 of 11, 0.50 a second, 10 s left"),
    ],
)
def test_meter_shows_no_estimate_before_a_rate_exists(
    clock: Clock, capsys: pytest.CaptureFixture[str], finished: int, total: int, line: str
) -> None:
    with meter("embedding", total) as show:
        clock.now = 10.0
        show(1)
        clock.now = 20.0
        show(finished)
    assert capsys.readouterr().err.splitlines() == [f"embedding: 1 of {total:,}", f"embedding: {line}"]
    with meter("embedding", 1) as show:
        clock.now = 30.0
        show(1)
    assert capsys.readouterr().err == "embedding: 1 of 1\n", "no rate, and none left"
