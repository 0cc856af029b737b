"""Lives of archives: `python -m simulator --steps 2000`, or one life again: `--store folder --seed 17`."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
EACH = 100
"""Steps of one life."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="steps of all lives together")
    parser.add_argument("--each", type=int, default=EACH, help="steps of one life")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first life")
    parser.add_argument("--store", action="append", help="folder, lance or postgresql; all three by default")
    parser.add_argument("--verbose", action="store_true", help="show each step")
    chosen = parser.parse_args()
    sys.path[:0] = [str(HERE.parent), str(HERE.parent / "helpers")]
    from simulator import disk

    recorder = disk.library()
    if recorder is not None and "SIMULATOR_DISK" not in os.environ:
        environment = {**os.environ, "LD_PRELOAD": str(recorder), "SIMULATOR_DISK": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        os.execve(sys.executable, [sys.executable, "-W", "ignore", "-m", "simulator", *sys.argv[1:]], environment)
    os.environ.pop("LD_PRELOAD", None)  # Not for other programs, such as a database.
    if recorder is None:
        print("no C compiler: losses of power are left out", flush=True)
    return live(chosen, losing=recorder is not None)


def live(chosen: argparse.Namespace, *, losing: bool) -> int:
    import torch

    from simulator import life

    torch.set_num_threads(1)
    stores = chosen.store or ["folder", "lance", "postgresql"]
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simulator-")))
        place.chmod(0o755)
        server = None
        if "postgresql" in stores:
            import database

            server = stack.enter_context(database.started())
        if "lance" in stores:
            importlib.import_module("subtext.retrieval.stores.lance").GRACE = 0.0  # type: ignore[attr-defined]
        life.prepare(place)
        done, seed, started, ends = 0, chosen.seed, time.monotonic(), Counter[str]()
        while done < chosen.steps:
            store = stores[(seed - chosen.seed) % len(stores)]
            address = {"lance": f"lance://{place}/life-{store}-{seed}/index", "folder": ""}.get(store)
            if address is None and server is not None:
                address = server.address(f"life{seed}")
            one, steps = None, min(chosen.each, chosen.steps - done)
            try:
                one = life.Life(place, seed, store, address=address or "", losing=losing)
                for _ in range(steps):
                    one.step()
                    if chosen.verbose and one.trace:
                        print(len(one.trace), one.trace[-1], flush=True)
            except (life.Disagreement, Exception) as problem:
                print(f"seed {seed}, {store}, step {len(one.trace) if one else 0}: {type(problem).__name__}: {problem}")
                for number, line in enumerate(one.trace if one else [], 1):
                    print(f"  {number:3} {line}")
                print(f"again: python -m simulator --store {store} --seed {seed} --steps {steps}")
                if chosen.verbose:
                    raise
                return 1
            finally:
                if one is not None:
                    one.close()
                    shutil.rmtree(one.place, ignore_errors=True)
            done += steps
            ends.update(end for line in one.trace for end in ("done", "refused", "killed") if f": {end}" in line)
            ends["power lost"] += sum("(power lost)" in line for line in one.trace)
            print(f"seed {seed}, {store}: {steps} steps", flush=True)
            seed += 1
        seconds = time.monotonic() - started
        print("operations on the index:", ", ".join(f"{count:,} {end}" for end, count in ends.items()))
        print(f"{done:,} steps of {seed - chosen.seed} lives in {seconds:.0f} s: the index was what the model says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
