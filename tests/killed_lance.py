"""Changes of an index in LanceDB, each said when it is acknowledged: `python killed_lance.py ADDRESS`, to be killed."""

from __future__ import annotations

import sys

import stored

from subtext.search.stores import lance
from subtext.search.stores.item import Change
from subtext.search.stores.store import open_store

PIECES, STEP = 4, 4


def main(address: str) -> None:
    lance.GRACE = 0.0
    store = open_store(address)
    print("ready", flush=True)
    with store.writing("test") as writer:
        for piece in range(PIECES):
            numbers = range(100 + piece * STEP, 100 + (piece + 1) * STEP)
            writer.put(stored.images(numbers))
            print(f"images {piece}", flush=True)
            links = [(f"p{number}", f"t{number}") for number in numbers]
            entries = [stored.text(number) for number in numbers]
            writer.put(Change("texts", entries, stored.vectors(numbers, 1), links=links))
            print(f"texts {piece}", flush=True)
            writer.delete("images", [f"p{number}" for number in range(piece * STEP, (piece + 1) * STEP)])
            print(f"deleted {piece}", flush=True)
            if piece % 2:
                writer.compact()
                print(f"compacted {piece}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
