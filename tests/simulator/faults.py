"""Faults that the simulator has to find, each planted in a copy of the package: `python -m simulator.faults`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
MOST = 400
"""Steps after which a fault counts as not found."""
FOLDER = "retrieval/stores/folder.py"


@dataclass(frozen=True)
class Fault:
    """Text of a module that is replaced by another.

    Attributes:
        file: The module, from the package.
        before: Text that is there once.
        after: What stands there instead.
        store: The store whose lives find it.
        seed: The first of these lives: some faults need one that comes rarely.
    """

    file: str
    before: str
    after: str
    store: str = "folder"
    seed: int = 0


FAULTS = {
    "a manifest that is not flushed": Fault(
        "data/atomic.py", "_flush(temporary)\n            temporary.replace", "temporary.replace"
    ),
    "tables that are not flushed": Fault(FOLDER, "synchronous = FULL", "synchronous = OFF"),
    "segments that are not flushed": Fault(
        "data/atomic.py", 'for file in sorted(temporary.rglob("*")):', 'for file in sorted(temporary.rglob("*.json")):'
    ),
    "a lost journal row": Fault(
        "retrieval/stores/sql.py", "if update.finished:", "if update.finished and update.number % 2:"
    ),
    # Lives build no evidence of neighbours yet: a stale one would be planted here.
    "a reader that keeps former vectors": Fault(FOLDER, "if loaded != revision:", "if loaded is None:"),
    "deleted items that come back": Fault(
        "retrieval/stores/sql.py", "self._remember(change.remembered)", 'self.tables.run("DELETE FROM forgotten")'
    ),
    "vectors of deleted items": Fault(
        FOLDER, "SPACES.index(side)) for key in keys]\n", "SPACES.index(side)) for key in keys[:1]]\n"
    ),
    "an update without a brake": Fault(
        "retrieval/build.py", "self.lost >= FEW and", "self.lost >= 99 * FEW and"
    ),
    "an unreadable image that is deleted": Fault(
        "api/index/build.py", "side: chain(unread[side], *((", "side: chain((), *(("
    ),
    "a time of change that is not looked at": Fault(
        "data/image_files.py", "image_stamp(value, root) or ()))", "(image_stamp(value, root) or ())[:2]))"
    ),
    "filters that keep former values": Fault(
        FOLDER, 'rows)\n        self.add_to("facets", -', 'rows[1:])\n        self.add_to("facets", -'
    ),
    "a move that keeps what was replaced": Fault(
        "retrieval/stores/store.py",
        "moving.delete(side, changed, keep_texts",
        "moving.delete(side, [], keep_texts",
        seed=301,
    ),
    "a deletion that an update undoes": Fault(
        "retrieval/build.py", "unless_deleted=not again", "unless_deleted=False", store="postgresql"
    ),
    "a folder that is guessed anew": Fault("data/config.py", "            form=self.form,\n", ""),
    "a change of two commits": Fault(
        FOLDER,
        "            yield\n            self.count_change()\n",
        "            yield\n        with self.tables.transaction(write=True):\n            self.count_change()\n",
    ),
    "an order of jobs by the clock": Fault(
        "api/index/maintain.py", "        jobs = journal(view)\n    sources",
        "        jobs = sorted(journal(view), key=lambda job: job.finished or job.started)\n    sources",
    ),
}  # fmt: skip


SOUND = Fault("errors.py", "", "")
"""No fault: where a simulator meets something all the same, it has found none of the others."""


def plant(fault: Fault, place: Path) -> Path:
    """A copy of the sources with the fault."""
    copy = place / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if fault == SOUND:
        return copy
    file = copy / "subtext" / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.before) == 1, f"{fault.file} has {fault.before!r} {text.count(fault.before)} times"
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    return copy


def find(fault: Fault, *, seed: int | None = None, most: int = MOST) -> str:
    """The last line of a simulator that met the fault; "" if it did not find it in the steps."""
    with tempfile.TemporaryDirectory() as place:
        paths = [str(plant(fault, Path(place))), str(HERE.parent)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        first = fault.seed if seed is None else seed
        words = [sys.executable, "-W", "ignore", "-m", "simulator", "--steps", str(most), "--seed", str(first)]
        done = subprocess.run([*words, "--store", fault.store], env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "step" in line]
    return next((line for line in lines if "Disagreement" in line or "Error" in line), "") if done.returncode else ""


def main() -> int:
    chosen = {name: fault for name, fault in FAULTS.items() if not sys.argv[1:] or any(w in name for w in sys.argv[1:])}

    def tried(name: str) -> bool:
        started = time.monotonic()
        told = find(chosen[name])
        print(f"{name}: {told[:160] or 'NOT FOUND'} ({time.monotonic() - started:.0f} s)", flush=True)
        return bool(told)

    with ThreadPoolExecutor(os.cpu_count()) as several:
        control = several.submit(find, SOUND, most=100)
        found = sum(several.map(tried, chosen))
    print(f"without a fault: {control.result()[:160] or 'nothing found, as it must be'}")
    print(f"{found} of {len(chosen)} found")
    return 0 if found == len(chosen) and not control.result() else 1


if __name__ == "__main__":
    sys.exit(main())
