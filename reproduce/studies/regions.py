"""Flickr8k with grid features: models that look at regions and words together, beside one that does not.

    SUBTEXT_DATA=... python -m reproduce.studies.regions --grid FILE --out DIR [--rows scan ascl ...] [--seeds 0 1 2]

FILE is an .npz with `names`, `pooled` and `grid` (pictures, cells, width). All rows share a width of 256, standardised
features, 32 pairs a step, one drawn caption of every picture an epoch, and the same epochs; the last 200 train pictures
choose the epoch, and val is scored once a run. The rows are those of AsCL's tables and figure 3 and the papers' other
models, each with its paper's loss; losses on the hardest negative sum over all negatives for the first three epochs,
as some of these models learn nothing here otherwise. AsCL has 4 heads.
Under the table stands what AsCL's figures 4 and 5 show of its rows: alignment, uniformity, and recall by length.
Everything is written below DIR, and the same call again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce.studies.common import HEAD, NAMES, line, measured, selection, subtext

HELD_OUT = 200
WORDS = "--text gru --min-count 2 --word-dim 200"
FEATURES = "--feature-scaling standard"
COMMON = (
    "--embed-dim 256 --batch-size 32 --caption-sampling one --optimiser adam --lr 5e-4 --schedule step "
    f"{FEATURES} {WORDS}"
)
HINGE = f"{COMMON} --all-negatives-epochs 3"
ASCL = f"ascl {COMMON} --heads 4"
NOISES = ("gaussian", "shuffle", "cutoff", "dropout")
ROWS = {
    "vse_infinity": f"vse_infinity {HINGE}",
    "scan": f"scan {HINGE}",
    "ascl": f"{ASCL} --with asymmetry",
    "ascl w/o P&N": ASCL,
    "chan": f"chan {HINGE}",
    "saf": f"sgraf {HINGE} --reasoning saf --similarity-dim 64",
    "sgr": f"sgraf {HINGE} --reasoning sgr --similarity-dim 64",
    # Means and deviations at the published COCO settings; no averaged weights, which the other rows have none of.
    "pcme_plus": f"pcme_plus {COMMON} --weight-average none",
    "pcme": f"pcme {COMMON}",
    "imram": f"imram {HINGE}",
    "dsran": f"dsran {HINGE}",
    "ascl w/o Pos": f"{ASCL} --with asymmetry:positives=none",
    "ascl w/o Neg": f"{ASCL} --with asymmetry:negatives=none",
    "ascl w/o MF": f"ascl {COMMON} --no-attention --with asymmetry",
    "ascl triplet": f"{ASCL} --loss triplet --all-negatives-epochs 3 --with asymmetry",
    **{f"ascl, noise {name}": f"{ASCL} --with asymmetry:negatives={name}" for name in NOISES},
    "ascl, noise shuffle of vectors": f"{ASCL} --with asymmetry:negatives=shuffle,shuffle=embedding",
    **{f"ascl, positives {name}": f"{ASCL} --with asymmetry:positives={name}" for name in ("long", "short")},
    "scan + daa": f"scan {HINGE} --with daa",
    "saf + daa": f"sgraf {HINGE} --reasoning saf --similarity-dim 64 --with daa",
    "sgr + daa": f"sgraf {HINGE} --reasoning sgr --similarity-dim 64 --with daa",
    "pcme + daa": f"pcme {COMMON} --with daa",
    # Not their papers' loss: is it the hardest negative that these fail by?
    "scan, all negatives": f"scan {COMMON} --all-negatives-epochs 1000",
    "chan, all negatives": f"chan {COMMON} --all-negatives-epochs 1000",
    "saf, all negatives": f"sgraf {COMMON} --reasoning saf --similarity-dim 64 --all-negatives-epochs 1000",
    "sgr, all negatives": f"sgraf {COMMON} --reasoning sgr --similarity-dim 64 --all-negatives-epochs 1000",
}
MEANS = {
    "sgraf": ("saf", "sgr"),
    "sgraf + daa": ("saf + daa", "sgr + daa"),
    "sgraf, all negatives": ("saf, all negatives", "sgr, all negatives"),
}
"""Rows that join the runs of two others; these are trained first where they are not there."""


def joined(run: Path, members: Sequence[Path]) -> dict[str, Any]:
    """The figures of several runs as one on val, and what they and its evaluation took together."""
    found = run.with_name(f"{run.name}.json")
    if not found.is_file():
        if not (run / "run.json").is_file():
            subtext(["ensemble", *map(str, members), "--out", str(run)])
        scored = run.with_name(f"{run.name}-val.json")
        cost = subtext(["evaluate", str(run), "--split", "val", "--json", str(scored)])
        figures = json.loads(scored.read_text(encoding="utf-8"))
        parts = [json.loads(member.with_name(f"{member.name}.json").read_text(encoding="utf-8")) for member in members]
        took = {name: value + sum(part[name] for part in parts) for name, value in vars(cost).items()}
        took["peak_mb"] = max(cost.peak_mb, *(part["peak_mb"] for part in parts))
        kept = {key: figures[key] for key in (*NAMES, "rsum", "intervals", "chance") if key in figures}
        found.write_text(json.dumps({**kept, **took}, indent=2) + "\n", encoding="utf-8")
    return dict(json.loads(found.read_text(encoding="utf-8")))


def shape(name: str, run: Path) -> list[str]:
    """What a run's space looks like on val, and its R@1 from texts by their length in words."""
    figures = json.loads(run.with_name(f"{run.name}-val.json").read_text(encoding="utf-8"))
    keys = ("alignment", "text/alignment", "image/uniformity", "text/uniformity", "text/uniformity_variance")
    lengths = {key: value for key, value in figures.items() if key.startswith("text_to_image/recall@1(words")}
    by_length = ", ".join(f"{key.partition('(')[2].rstrip(')')}: {value:.1f}" for key, value in lengths.items())
    return [name, *(f"  {key} {figures[key]:.4f}" for key in keys), f"  R@1 of texts by {by_length}"]


def main() -> None:
    """Train and score what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    every = [*ROWS, *MEANS]
    parser.add_argument("--rows", nargs="+", choices=every, default=every, metavar="ROW", help=str(every))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=8)
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out / "captions.jsonl", held_out=HELD_OUT)
    sources = ["--data", str(data), "--images", str(folder / "images"), "--features", str(asked.grid)]
    steps = max(1, round(0.7 * asked.epochs))
    sources += ["--val-split", "select", "--epochs", str(asked.epochs), "--step-epochs", str(steps)]

    def place(name: str, seed: int) -> Path:
        return asked.out / f"{''.join(letter if letter.isalnum() else '-' for letter in name)}-{seed}"

    def trained(name: str, seed: int) -> dict[str, Any]:
        words = [*ROWS[name].split(), *sources, "--seed", str(seed)]
        further = ["--space", "--words"] if name.startswith("ascl") else []
        return measured(place(name, seed), words, split="val", further=further)

    rows = []
    for name in asked.rows:
        results = []
        for seed in asked.seeds:
            for member in MEANS.get(name, ()):
                trained(member, seed)
            members = [place(member, seed) for member in MEANS.get(name, ())]
            results.append(joined(place(name, seed), members) if members else trained(name, seed))
        rows.append(line(name, results))
        print("\n".join(["\nval\n", HEAD, *rows]), flush=True)
        if name.startswith("ascl"):
            print("\n".join(shape(name, place(name, asked.seeds[0]))), flush=True)


if __name__ == "__main__":
    main()
