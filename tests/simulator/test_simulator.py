"""A short life of an archive, the lives that once failed, and the simulator itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator import disk, faults

FAILED: list[tuple[str, int, int]] = [("folder", 0, 8), ("folder", 10, 20)]
"""Store, seed and steps of lives in which the index was not what the model said.

Other draws make other lives of the same seeds: whoever changes the draws looks for new ones, by planted faults.
"""


TESTS = Path(__file__).resolve().parent.parent
PATH = os.pathsep.join([str(TESTS), str(TESTS / "helpers"), str(faults.SOURCE)])


def simulate(*words: object) -> str:
    """The last line of a simulator that runs by itself, without the shape checks of the tests."""
    command = [sys.executable, "-W", "ignore", "-m", "simulator", *map(str, words)]
    environment = {**os.environ, "CHECK_SHAPES": "0", "PYTHONPATH": PATH}
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_index_is_what_the_model_says() -> None:
    assert simulate("--store", "folder", "--steps", 12).startswith("12 steps")


@pytest.mark.slow
@pytest.mark.parametrize("store", ["folder", "lance", "postgresql"])
def test_index_is_what_the_model_says_for_long(store: str) -> None:
    assert simulate("--store", store, "--steps", 200, "--seed", 1000).startswith("200 steps")


@pytest.mark.slow
@pytest.mark.parametrize(("store", "seed", "steps"), FAILED)
def test_lives_that_failed(store: str, seed: int, steps: int) -> None:
    assert simulate("--store", store, "--seed", seed, "--steps", steps, "--each", steps).startswith(f"{steps} steps")


@pytest.mark.parametrize("name", faults.FAULTS)
def test_fault_can_be_planted(name: str) -> None:
    fault = faults.FAULTS[name]
    assert (faults.SOURCE / "subtext" / fault.file).read_text(encoding="utf-8").count(fault.before) == 1


@pytest.mark.slow
def test_planted_fault_is_found() -> None:
    assert faults.find(faults.FAULTS["vectors of deleted items"])


WRITER = """
import os, sys
from pathlib import Path
from simulator import disk
place = Path(sys.argv[1])
disk.record(place, Path(sys.argv[2]))
for name in ("kept", "lost"):
    (place / f"{name}.new").write_bytes(bytes([65 + (name == "lost")]) * 1000)
    if name == "kept":
        with (place / f"{name}.new").open("rb") as file:
            os.fsync(file.fileno())
    (place / f"{name}.new").rename(place / name)
descriptor = os.open(place, os.O_RDONLY)
os.fsync(descriptor)
with (place / "old").open("r+b") as file:
    file.write(b"new")
"""


def test_disk_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    recorder = disk.library()
    if recorder is None:
        pytest.skip("needs a C compiler")
    place, before, log = tmp_path / "disk", tmp_path / "before", tmp_path / "log"
    for folder in (place, before):
        folder.mkdir()
        (folder / "old").write_bytes(b"old")
    environment = {**os.environ, "LD_PRELOAD": str(recorder), "PYTHONPATH": PATH}
    subprocess.run([sys.executable, "-c", WRITER, place, log], env=environment, check=True)
    found = set()
    for seed in range(30):
        disk.crash(place, before, log, seed=seed)
        assert (place / "kept").read_bytes() == b"A" * 1000, "flushed, and so was its folder"
        assert not (place / "lost.new").exists()
        found |= {(place / "lost").read_bytes()[:1], (place / "old").read_bytes()}
    assert found == {b"", b"B", b"old", b"new"}, "what was not flushed is there or not"
