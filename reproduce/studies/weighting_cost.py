"""What weights of neighbourhoods cost of an epoch on Flickr8k: processor time of banks and tables, of all of it.

    SUBTEXT_DATA=... python -m reproduce.studies.weighting_cost --out DIR --grid FILE [--rows ...] [--epochs 4]
        [--captions all] [--text gru]

Rows are those of `studies.nonliteral`, with one thread; an epoch samples one text of every image, or has all of them.
Texts are bags of words, the cheapest encoder that there is, or encoded by a GRU, as in the papers' PVSE.
An epoch lasts from one making of the tables to the next: batches, the selection set that is evaluated after it, and
what the log and the checkpoints take. The first has no tables and is left out, and so is the last, which nothing ends.
The table shows the share and the seconds: the median over epochs, and the range.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import subtext as st
from reproduce.studies.common import data_folder, file_name, neighbours, selection
from reproduce.studies.flickr8k import with_grid
from reproduce.studies.nonliteral import HELD_OUT, ROWS
from subtext.api.train import flat_arguments
from subtext.recipes.neighbour_scores import NeighbourScores

WEIGHTED = ("diversity", "discrepancy", "combined, beta 1, gamma 1")


class Clock:
    """The processor time inside some calls, epoch by epoch."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.inside: list[float] = []

    def timed(self, call: Callable[..., Any], *, starts_epoch: bool) -> Callable[..., Any]:
        """The same call, timed; `starts_epoch`: an epoch begins with it."""

        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            if starts_epoch:
                self.starts.append(started)
                self.inside.append(0.0)
            value = call(*arguments, **options)
            self.inside[-1] += time.process_time() - started
            return value

        return timed

    def epochs(self) -> list[tuple[float, float]]:
        """Seconds inside and of the epoch, of each epoch that has tables and an end."""
        lengths = [end - start for start, end in zip(self.starts[:-1], self.starts[1:], strict=True)]
        return list(zip(self.inside[:-1], lengths, strict=True))[1:]


def main() -> None:
    """Train a few epochs of each row, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=WEIGHTED, default=WEIGHTED, metavar="ROW")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--captions", choices=("one", "all"), default="one")
    parser.add_argument("--text", choices=("bag", "gru"), default="bag")
    config = parser.parse_args()
    folder = data_folder("flickr8k")
    if config.epochs < 3:
        sys.exit("an epoch with tables and an end needs three or more: --epochs 3")
    torch.set_num_threads(1)
    config.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", config.out / "captions.jsonl", held_out=HELD_OUT)
    features = with_grid(folder / "mobilenet_pooled.npz", config.grid, config.out)
    graph = neighbours(data, config.out / "graph", "lsa")
    print("| row | share of an epoch | seconds of it | of |\n|---|---|---|---|")
    for row in config.rows:
        recipe = ROWS[row].of(graph=graph)
        recipe = recipe.but(caption_sampling=config.captions, text=config.text, epochs=config.epochs)
        run = config.out / f"{file_name(row)}-{config.captions}-{config.text}-cost"
        sources: dict[str, Any] = {"data": data, "images": folder / "images", "features": features}
        epochs = timed_training(recipe.model, out=run, **recipe.options, **sources)
        shares = [100 * inside / length for inside, length in epochs]
        print(
            f"| {row} | {median(shares):.1f} % [{min(shares):.1f}-{max(shares):.1f}] | "
            f"{median(inside for inside, _ in epochs):.2f} | {median(length for _, length in epochs):.1f} |",
            flush=True,
        )


def timed_training(model: str, **arguments: Any) -> list[tuple[float, float]]:
    """Processor seconds of banks and tables, and of the epoch, for each epoch of a training with tables and an end."""
    clock, open_memory = Clock(), NeighbourScores.open

    def open_timed(*inputs: Any, **options: Any) -> Any:
        memory = open_memory(*inputs, **options)
        # The bank is filled by every step, the tables are made once: both are what weighting costs.
        memory.on_epoch_start = clock.timed(memory.on_epoch_start, starts_epoch=True)  # type: ignore[method-assign]
        memory.update = clock.timed(memory.update, starts_epoch=False)  # type: ignore[method-assign]
        return memory

    NeighbourScores.open = open_timed  # type: ignore[method-assign]
    try:
        st.train(model, **flat_arguments(model, {**arguments, "workers": 0, "quiet": True}))
    finally:
        NeighbourScores.open = open_memory  # type: ignore[method-assign]
    return clock.epochs()


if __name__ == "__main__":
    main()
