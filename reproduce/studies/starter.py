"""What `--model starter` finds untrained, and what training on your pairs adds: photographs, textbooks, icons.

    SUBTEXT_DATA=... python -m reproduce.studies.starter --out DIR [--rows flickr8k openstax icons] [--seeds 0 1 2]

Of each data set: the zero-shot model; `adapt` from it; `dual` on both starter towers; and the ensemble of that and the
zero-shot model. A split that is not reported chooses the epoch: of Flickr8k 500 training images, of the others val.
Reported are Flickr8k's val, and the test splits of the others. Each tower reads each image once: the cache of outputs
is shared by all rows (SUBTEXT_CACHE names it). Twenty minutes for the towers, then ten, on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import subtext as st
from reproduce.studies.common import data_folder, options, selection

HELD_OUT = 500
DATA = {"flickr8k": ("images", "select", "val"), "openstax": ("", "val", "test"), "icons": ("images", "val", "test")}
"""Folder of the images, split that chooses the epoch, and split that is reported."""
SHOWN = [f"{direction}/recall@{depth}" for direction in ("text_to_image", "image_to_text") for depth in (1, 5, 10)]
HEAD = (
    "| row | runs | text to image: R@1 / 5 / 10 | image to text: R@1 / 5 / 10 | best epoch of | rsum |",
    "|---|---|---|---|---|---|",
)


def line(name: str, results: list[dict[str, Any]]) -> str:
    """A row under HEAD: means over runs, and the range of R@10 and rsum."""

    def mean(key: str) -> float:
        return float(sum(result[key] for result in results) / len(results))

    def spread(key: str) -> str:
        values = [result[key] for result in results]
        return f"[{min(values):.1f}-{max(values):.1f}]"

    cells = [" / ".join(f"{mean(key):.1f}" for key in keys) + f" {spread(keys[2])}" for keys in (SHOWN[:3], SHOWN[3:])]
    epochs = ", ".join(result["epochs"] for result in results)
    return f"| {name} | {len(results)} | {cells[0]} | {cells[1]} | {epochs} | {mean('rsum'):.1f} {spread('rsum')} |"


def once(file: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a file holds, measured where it is not there yet."""
    if not file.is_file():
        file.write_text(json.dumps(measure(), indent=2) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def figures(model: st.Run | str, source: st.DataConfig, split: str, epochs: str = "-") -> dict[str, Any]:
    """Recalls of a split."""
    result = st.evaluate(model, data=source, split=split, quiet=True)
    return {**{name: result.figures[name] for name in (*SHOWN, "rsum")}, "epochs": epochs}


def trained(model: str, out: Path, source: st.DataConfig, seed: int, chosen: str) -> st.Run:
    """A run of `adapt` from the starter, or of `dual` on its towers."""
    if (out / "run.json").is_file():
        return st.open_run(out)
    given = {"model": "starter"} if model == "adapt" else {"image": "starter", "text": "starter"}
    data = st.DataConfig(source.data, images=source.images, val_split=chosen)
    return st.train(model, data=data, out=out, options=given, run=st.RunConfig(seed=seed), quiet=True)


def study(name: str, out: Path, seeds: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Train and evaluate the rows of a data set, one after the other."""
    folder = data_folder(name)
    images, chosen, reported = DATA[name]
    data = folder / "captions.jsonl"
    if chosen == "select":
        data = selection(data, out / f"{name}.jsonl", held_out=HELD_OUT)
    source, place = st.DataConfig(data, images=folder / images), out / name
    place.mkdir(parents=True, exist_ok=True)

    def measured(row: str, seed: int) -> dict[str, Any]:
        out = place / f"{row}-{seed}"
        if row == "both":
            return figures(st.ensemble_runs([place / f"dual-{seed}"], model="starter", out=out), source, reported)
        run = trained(row, out, source, seed, chosen)
        return figures(run, source, reported, f"{run.record.best_epoch} of {run.record.epochs}")

    rows = {"zero-shot": [once(place / "zero-shot.json", lambda: figures("starter", source, reported))]}
    for row in ("adapt", "dual", "both"):
        rows[row] = [once(place / f"{row}-{seed}.json", partial(measured, row, seed)) for seed in seeds]
    return rows


def main() -> None:
    """Print the table of each data set."""
    config = options(__doc__, rows=list(DATA)).parse_args()
    for name in config.rows:
        rows = study(name, config.out, config.seeds)
        print("\n".join([f"\n{name}, {DATA[name][2]}\n", *HEAD, *(line(*row) for row in rows.items())]), flush=True)


if __name__ == "__main__":
    main()
