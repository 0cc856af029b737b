"""The cache of outputs: what it forgets, how large it gets, where it is, and what other processes do to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import call

from subtext.data import output_cache
from subtext.data.output_cache import OutputCache, OutputWriter, content_digest, forget, user_cache
from subtext.errors import ArgumentError, OutputError

ABOUT = {"encoder": "made", "fields": ["pooled"]}


def name(number: int) -> bytes:
    return content_digest(str(number).encode())


def fill(cache: OutputCache, numbers: range, *, width: int = 8, about: dict[str, object] = ABOUT) -> None:
    writer = OutputWriter(cache, about, np.dtype("float32"))
    values = np.array(numbers, np.float32)[:, None].repeat(width, axis=1)
    writer.add([[name(number)] for number in numbers], None, values, left=len(numbers))
    writer.flush()


def held(cache: OutputCache, numbers: range, about: dict[str, object] = ABOUT) -> list[int]:
    """Which of the numbers are in the cache, each with its own output."""
    found = cache.find(about, {name(number) for number in numbers})
    for number in numbers:
        if name(number) in found.rows:
            segment, output = found.rows[name(number)]
            _, pooled = found.segments[segment].output(output)
            assert pooled is not None and (pooled == number).all()
    return [number for number in numbers if name(number) in found.rows]


def test_forgotten_item_leaves_no_byte_and_others_stay(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path)
    fill(cache, range(5))
    fill(cache, range(3, 9), about={**ABOUT, "encoder": "another"})
    assert cache.forget([name(3), name(77)]) == 2
    assert held(cache, range(9)) == [0, 1, 2, 4]
    assert held(cache, range(9), {**ABOUT, "encoder": "another"}) == [4, 5, 6, 7, 8]
    files = [file.read_bytes() for file in tmp_path.rglob("*.npy")]
    assert not any(name(3) in content or np.full(8, 3, np.float32).tobytes() in content for content in files)


def test_forgetting_removes_what_nobody_can_read(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path)
    fill(cache, range(3))
    (segment,) = tmp_path.glob("*/*/")
    (segment / "contents.npy").write_bytes(b"")
    assert cache.forget([name(1)]) == 0 and not list(tmp_path.glob("*/*/"))


def test_a_segment_that_cannot_be_removed_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    cache = OutputCache(tmp_path)
    fill(cache, range(3))
    monkeypatch.setattr(output_cache.shutil, "rmtree", closed)
    with pytest.raises(OutputError, match="its folder is closed to this user"):
        cache.forget([name(1)])


def test_forgetting_uses_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path))
    fill(OutputCache(tmp_path), range(2))
    assert (forget([name(0)]), forget([name(0)])) == (1, 0)
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "0")
    assert forget([name(1)]) == 0


def test_an_output_that_two_items_share_stays_for_the_other(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path)
    writer = OutputWriter(cache, ABOUT, np.dtype("float32"))
    writer.add([[name(0), name(1)]], None, np.zeros((1, 4), np.float32), left=1)
    writer.flush()
    assert cache.forget([name(0)]) == 1
    assert list(cache.find(ABOUT, {name(0), name(1)}).rows) == [name(1)]


def test_above_its_limit_the_cache_drops_what_was_not_used_for_longest(tmp_path: Path) -> None:
    fill(OutputCache(tmp_path), range(10), width=1000)
    fill(OutputCache(tmp_path), range(10, 20), width=1000)
    for age, path in enumerate(sorted(tmp_path.glob("*/*/"), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (1000 + age, 1000 + age))
    cache = OutputCache(tmp_path, limit=100_000)
    assert held(cache, range(1)) == [0]  # Now it is the second that was not used for longest.
    fill(cache, range(20, 30), width=1000)
    assert held(cache, range(30)) == [*range(10), *range(20, 30)] and cache.size <= 100_000


def test_what_is_larger_than_the_limit_is_refused_before_it_is_computed(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path, limit=10_000)
    writer = OutputWriter(cache, ABOUT, np.dtype("float32"))
    with pytest.raises(OutputError, match=r"needs 400.0 kB for these; its limit is 10.0 kB; raise it \(SUBTEXT_"):
        writer.add([[name(0)]], None, np.zeros((1, 1000), np.float32), left=100)
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_refused_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(OutputError, match=r"needs 80 B for these; 1 B of its disk are free; free some, or name"):
        fill(OutputCache(tmp_path / "new" / "folder"), range(1), width=20)


def test_a_disk_that_fills_up_leaves_no_half_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    fill(OutputCache(tmp_path), range(2))
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OutputError, match="there is no free space left"):
        fill(OutputCache(tmp_path), range(2, 4))
    monkeypatch.undo()
    assert held(OutputCache(tmp_path), range(4)) == [0, 1] and not list(tmp_path.glob("*/.*"))


def test_many_small_segments_become_one(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path)
    for number in range(output_cache._MANY + 3):
        fill(cache, range(number, number + 1))
    assert len(list(tmp_path.glob("*/*/"))) <= 4
    assert held(cache, range(50)) == list(range(output_cache._MANY + 3))


def test_abandoned_segments_are_removed(tmp_path: Path) -> None:
    cache = OutputCache(tmp_path)
    fill(cache, range(1))
    (folder,) = tmp_path.iterdir()
    for other, age in ((".writing-1-a", 7200), (".writing-2-b", 10)):
        (folder / other).mkdir()
        (folder / other / "parts.npy").write_bytes(b"half")
        for file in (folder / other / "parts.npy", folder / other):
            os.utime(file, (file.stat().st_mtime - age, file.stat().st_mtime - age))
    fill(cache, range(1, 2))
    assert sorted(path.name for path in folder.glob(".*")) == [".writing-2-b"]


def test_two_processes_write_one_cache_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_output_cache import *\n"
        "first = int(sys.argv[3])\n"
        "for number in range(first, first + 60, 2): fill(OutputCache(Path(sys.argv[2])), range(number, number + 2))"
    )
    helpers = str(Path(__file__).parents[1] / "helpers")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path), str(first)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), helpers])},
        )
        for first in (0, 30)
    ]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert held(OutputCache(tmp_path), range(90)) == list(range(90))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"SUBTEXT_CACHE": "/place", "XDG_CACHE_HOME": "/xdg"}, "/place"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/subtext"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/me"}, "/me/.cache/subtext"),
        ({"HOME": "/me"}, "/me/.cache/subtext"),
    ],
)
def test_place_of_the_cache(values: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SUBTEXT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "platform", "linux")
    cache = user_cache()
    assert cache is not None and str(cache.folder) == expected


@pytest.mark.parametrize(
    ("given", "limit"), [("", 10**10), ("20GB", 20 * 10**9), ("1.5 gb", 15 * 10**8), ("700", 700), ("0", None)]
)
def test_limit_of_the_cache(given: str, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", given)
    cache = user_cache()
    assert (None if cache is None else cache.limit) == limit


@pytest.mark.parametrize("given", ["much", "1e400GB", "5 parsecs", "nanGB", "GB"])
def test_limit_that_is_no_size_raises(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", given)
    with pytest.raises(ArgumentError, match="SUBTEXT_CACHE_LIMIT needs a size such as 20GB, or 0"):
        user_cache()


def test_command_shows_and_clears_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path))
    fill(OutputCache(tmp_path), range(3))
    shown = call("cache").stdout
    assert f"{tmp_path}: " in shown and "of at most 10.0 GB" in shown and "made" in shown
    assert '"items": 3' in call("cache", "--json").stdout
    assert "0 B of at most" in call("cache", "--clear").stdout and not held(OutputCache(tmp_path), range(3))
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "0")
    assert "no cache" in call("cache").stdout
