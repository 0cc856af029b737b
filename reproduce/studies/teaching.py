"""Flickr8k with grid features: a dual encoder alone, taught by a model of pairs, and re-ranked by it.

    SUBTEXT_DATA=... python -m reproduce.studies.teaching --grid FILE --out DIR [--seeds 0 1 2] [--first 2000]
        [--mined 16]

FILE is an .npz with `names`, `pooled` and `grid` (pictures, cells, width). Both models learn from the same pictures;
the last 500 train pictures choose the epochs, and val is scored once a run: the teacher, the student without it and
with it, and both students with the teacher behind them at 10 to 200 candidates. Everything is written below DIR, and
the same call again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from reproduce.studies.common import HEAD, line, measured, selection, subtext
from reproduce.studies.regions import FEATURES, WORDS

HELD_OUT = 500
TEACHER = (
    "scan --embed-dim 256 --batch-size 32 --optimiser adam --lr 5e-4 --schedule cosine --all-negatives-epochs 3 "
    f"{FEATURES} {WORDS}"
)
"""SCAN as it learns in `reproduce.studies.regions`: raw features and larger batches left it near chance."""
STUDENT = "dual"
COUNTS = "10,20,50,100,200"


def sweep(first: Path, second: Path) -> dict[str, Any]:
    """What two stages lose on val, number by number; read again where it is there."""
    found = first.with_name(f"{first.name}-by-{second.name}.json")
    if not found.is_file():
        words = ["--rerank", str(second), "--candidates", COUNTS, "--split", "val", "--bootstrap", "0"]
        subtext(["evaluate", str(first), *words, "--json", str(found), "-q"])
    return dict(json.loads(found.read_text(encoding="utf-8"))["two_stage"])


def main() -> None:
    """Train and score, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--first", type=int, default=2000, help="pictures that are learnt from, five pairs each")
    parser.add_argument("--teacher", default=TEACHER, help="host and options of `subtext train` that make it")
    parser.add_argument("--epochs", type=int, default=10, help="of the teacher")
    parser.add_argument("--student-epochs", type=int, default=16)
    parser.add_argument("--mined", type=int, default=16, help="candidates of each item that the teacher is asked about")
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out / "captions.jsonl", held_out=HELD_OUT, first=asked.first)
    sources = ["--data", str(data), "--images", str(folder / "images"), "--features", str(asked.grid)]
    sources += ["--val-split", "select"]
    results: dict[str, list[dict[str, Any]]] = {"teacher": [], "student": [], "student, taught": []}
    for seed in asked.seeds:
        teacher = asked.out / f"teacher-{seed}"
        told = [*sources, "--seed", str(seed)]
        learn = [*asked.teacher.split(), *told, "--epochs", str(asked.epochs)]
        results["teacher"].append(measured(teacher, learn, split="val"))
        alone = [STUDENT, *told, "--epochs", str(asked.student_epochs)]
        taught = [*alone, "--with", f"distil:teacher={teacher},mined_candidates={asked.mined}"]
        for name, words in (("student", alone), ("student, taught", taught)):
            run = asked.out / f"{name.replace(', ', '-')}-{seed}"
            results[name].append(measured(run, words, split="val"))
            found = sweep(run, teacher)
            print(f"\n{name}, seed {seed}: {found['enough'] or 'none of these'} candidates are enough")
            for row in found["sweep"]:
                lost = " ".join(f"{way} {value:+.2f}" for way, value in row["lost"].items())
                share = 100 * row["share_of_pairs"]["together"]
                print(f"  {row['candidates']:>4} candidates, {share:.2f} % of pairs: rsum {row['rsum']:.1f}; {lost}")
    print("\n".join(["\nval\n", HEAD, *(line(name, found) for name, found in results.items())]))


if __name__ == "__main__":
    main()
