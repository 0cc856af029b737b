"""Changes of an index in LanceDB, each said when it is acknowledged: `python killed_lance.py`, whose child is killed.

It reads lines of JSON, ["change" or "move", address, variables of the environment, call, number, after], and makes the
changes, or the move to another model, in a child: to import the library takes longer than the changes. The child kills
itself at the call of that number of a function that writes, before or after it; without a call it waits at its end to
be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import lance as library
import stored_items

from subtext.retrieval.stores import lance
from subtext.retrieval.stores.item import Change
from subtext.retrieval.stores.lance import LanceStore
from subtext.retrieval.stores.registry import open_store

PIECES, STEP, WIDTH = 4, 4, 3


def moved(index: str, width: int, numbers: range = range(40)) -> LanceStore:
    """The index after a move of its first items to a model of that width: whatever of it was done is not done again."""
    store = LanceStore(index)
    since = store.view(store.latest()).revision
    new = store.create_replacement(replace(stored_items.manifest(), fingerprint=f"{width}" * 32, width=width))
    with new.writing("move") as writer:
        present = [number for number in numbers if f"p{number}" in stored_items.ids(store)]
        missing = [number for number in present if f"p{number}" not in stored_items.ids(new)]
        for number in missing:
            own = stored_items.vectors(range(number, number + 1), stored_items.VIEWS)[..., :width]
            writer.put(Change("images", [stored_items.picture(number)], own))
    return store.replace_with(new, since=since)


def main(address: str) -> None:
    lance.GRACE = 0.0
    store = open_store(address)
    with store.writing("test") as writer:
        for piece in range(PIECES):
            numbers = range(100 + piece * STEP, 100 + (piece + 1) * STEP)
            writer.put(stored_items.images(numbers))
            print(f"images {piece}", flush=True)
            links = [(f"p{number}", f"t{number}") for number in numbers]
            entries = [stored_items.text(number) for number in numbers]
            writer.put(Change("texts", entries, stored_items.vectors(numbers, 1), links=links))
            print(f"texts {piece}", flush=True)
            writer.delete("images", [f"p{number}" for number in range(piece * STEP, (piece + 1) * STEP)])
            print(f"deleted {piece}", flush=True)
            if piece % 2:
                writer.compact()
                print(f"compacted {piece}", flush=True)
    time.sleep(600)


def dying(plain: Any, number: int, *, after: bool) -> Any:
    """A function whose process is killed at its call of that number."""
    calls = [0]

    def run(*words: Any, **more: Any) -> Any:
        calls[0] += 1
        result = plain(*words, **more) if after or calls[0] != number else None
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run


if __name__ == "__main__":
    for line in sys.stdin:
        work, address, environment, call, number, after = json.loads(line)
        child = os.fork()
        if not child:
            os.environ.update(environment)
            print(os.getpid(), flush=True)
            owner: Any = lance if call == "write_fragments" else library.LanceDataset
            if call:
                killing = dying(getattr(owner, call), number, after=after)
                setattr(owner, call, staticmethod(killing) if call == "commit" else killing)
            if work == "move":
                moved(address, WIDTH, range(5))
                print("moved", flush=True)
                os._exit(0)
            main(address)
        os.waitpid(child, 0)
        print("killed", flush=True)
