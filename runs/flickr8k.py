"""The Flickr8k rows of the README: three recipes, three seeds, one protocol.

    SUBTEXT_DATA=... python runs/flickr8k.py --out DIR [--rows dual pvse ...] [--seeds 0 1 2]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl (6,000 train and 1,000 val pictures) and
flickr8k/mobilenet_pooled.npz. The last 500 train pictures are the selection set: they choose the epoch, and chose the
settings below; val is scored once a run. Everything is written below DIR; the same call again goes on where it was
stopped. About two minutes a run on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HELD_OUT = 500
SHARED = (
    "--loss softmax --text bag --captions together --positives group --optimiser adamw --no-amsgrad "
    "--weight-decay 1e-4 --schedule one_cycle --warmup 0.1 --lr 2e-3 --feature-scaling unit --feature-dropout 0.1 "
    "--min-count 2 --token-mask 0.2"
)
ROWS = {
    "dual": "dual",
    "vse_infinity": f"vse_infinity {SHARED} --word-drop 0 --word-width 512 --batch-size 1280 --epochs 10",
    "pvse": f"pvse {SHARED} --views 2 --word-width 300 --batch-size 640 --epochs 8",
}
NAMES = [f"{way}/recall@{k}" for way in ("text_to_image", "image_to_text") for k in (1, 5, 10)]


def selection(captions: Path, out: Path) -> Path:
    """The captions with the last train pictures in a split of their own, "select"."""
    rows = [json.loads(line) for line in captions.read_text(encoding="utf-8").splitlines()]
    train = [row for row in rows if row["split"] == "train"]
    for row in train[-HELD_OUT:]:
        row["split"] = "select"
    made = out / "captions.jsonl"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return made


def measure(name: str, seed: int, data: Path, folder: Path, out: Path) -> dict[str, float]:
    """Train one row with one seed, or go on, and score val."""
    run, found = out / f"{name}-{seed}", out / f"{name}-{seed}.json"
    if not found.is_file():
        pictures = ["--images", str(folder / "images"), "--features", str(folder / "mobilenet_pooled.npz")]
        sources = ["--data", str(data), *pictures, "--val-split", "select"]
        command = ["train", *ROWS[name].split(), *sources, "--out", str(run), "--seed", str(seed), "--resume"]
        subtext(command)
        subtext(["evaluate", str(run), "--split", "val", "--json", str(found)])
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return {**json.loads(found.read_text(encoding="utf-8")), "seconds": record["seconds"]}


def subtext(arguments: list[str]) -> None:
    """Run the command line as a user does."""
    subprocess.run([sys.executable, "-m", "subtext.app", *arguments], check=True)


def line(name: str, results: list[dict[str, float]]) -> str:
    """A row of the table: means over seeds, and the range of recall@10."""
    means = {key: sum(result[key] for result in results) / len(results) for key in (*NAMES, "seconds")}
    cells = []
    for names in (NAMES[:3], NAMES[3:]):
        tens = [result[names[-1]] for result in results]
        told = " / ".join(f"{means[key]:.1f}" for key in names)
        cells.append(f"{told} [{min(tens):.1f}-{max(tens):.1f}]")
    return f"| `{name}` | {cells[0]} | {cells[1]} | {means['seconds']:.0f} |"


def main() -> None:
    """Train and score what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out)
    table = ["| recipe | text to image R@1 / 5 / 10 | image to text R@1 / 5 / 10 | seconds |", "|---|---|---|---|"]
    for name in asked.rows:
        table.append(line(name, [measure(name, seed, data, folder, asked.out) for seed in asked.seeds]))
    print("\n".join(table))


if __name__ == "__main__":
    main()
