"""What weights of neighbourhoods cost of an epoch on Flickr8k: the processor's time for banks and tables, of all of it.

    SUBTEXT_DATA=... python -m reproduce.studies.weighting_cost --out DIR --grid FILE [--rows ...] [--epochs 4]
        [--captions all]
                                                 [--text gru]

Rows are those of `studies.nonliteral`, with one thread; an epoch draws one text of every picture, or has all of them.
Texts are bags of words, the cheapest encoder that there is, or read by a GRU, as the papers' PVSE does.
It goes from one making of the tables to the next: batches, the selection set that is scored after it, and what the log
and the checkpoints take. The first has no tables and is left out, and so is the last, which nothing ends. Told are the
share and the seconds: the median over epochs, and the range.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from reproduce.studies.common import neighbours, selection
from reproduce.studies.flickr8k import with_grid
from reproduce.studies.nonliteral import HELD_OUT, ROWS
from subtext.cli import main as subtext
from subtext.training.tables import NeighbourMemory

WEIGHTED = ("diversity", "discrepancy", "combined, beta 1, gamma 1")


class Clock:
    """The processor's time inside some calls, epoch by epoch."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.inside: list[float] = []

    def around(self, call: Callable[..., Any], *, opens: bool) -> Callable[..., Any]:
        """The same call, timed; `opens`: an epoch begins with it."""

        def timed(*given: Any, **named: Any) -> Any:
            started = time.process_time()
            if opens:
                self.begun.append(started)
                self.inside.append(0.0)
            found = call(*given, **named)
            self.inside[-1] += time.process_time() - started
            return found

        return timed

    def shares(self) -> list[tuple[float, float]]:
        """Seconds inside and of the epoch, of each epoch that has tables and an end."""
        whole = [end - start for start, end in zip(self.begun[:-1], self.begun[1:], strict=True)]
        return list(zip(self.inside[:-1], whole, strict=True))[1:]


def main() -> None:
    """Train a few epochs of each row, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=WEIGHTED, default=WEIGHTED, metavar="ROW")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--captions", choices=("one", "all"), default="one")
    parser.add_argument("--text", choices=("bag", "gru"), default="bag")
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    if asked.epochs < 3:
        sys.exit("an epoch with tables and an end needs three or more: --epochs 3")
    torch.set_num_threads(1)
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out / "captions.jsonl", held_out=HELD_OUT)
    features = with_grid(folder / "mobilenet_pooled.npz", asked.grid, asked.out)
    graph = neighbours(data, asked.out / "graph", "lsa")
    print("| row | share of an epoch | seconds of it | of |\n|---|---|---|---|")
    begin, look = NeighbourMemory.begin, NeighbourMemory.look
    for row in asked.rows:
        clock = Clock()
        # The bank is filled by every step, the tables are made once: both are what weighting costs.
        NeighbourMemory.begin = clock.around(begin, opens=True)  # type: ignore[method-assign]
        NeighbourMemory.look = clock.around(look, opens=False)  # type: ignore[method-assign]
        words = [*ROWS[row].format(graph=graph).split(), "--data", str(data), "--images", str(folder / "images")]
        words += ["--features", str(features), "--epochs", str(asked.epochs), "--captions", asked.captions]
        words += ["--text", asked.text, "--workers", "0", "--quiet"]
        name = "".join(letter if letter.isalnum() else "-" for letter in row)
        subtext(
            ["train", *words, "--out", str(asked.out / f"{name}-{asked.captions}-{asked.text}-cost")],
            standalone_mode=False,
        )
        found = clock.shares()
        parts = [100 * inside / whole for inside, whole in found]
        print(
            f"| {row} | {median(parts):.1f} % [{min(parts):.1f}-{max(parts):.1f}] | "
            f"{median(inside for inside, _ in found):.2f} | {median(whole for _, whole in found):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
