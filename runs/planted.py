"""Planted looseness on Flickr8k: who finds the pairs that were loosened, and how well each retrieves all the same.

    SUBTEXT_DATA=... python runs/planted.py --out DIR [--shares 0 0.2 0.5] [--kinds neighbour mismatch] [--rows ...]
                                            [--seeds 0 1 2] [--epochs 10]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl and flickr8k/mobilenet_pooled.npz. The last 500 train
pictures choose the epoch and stay as they are. For each kind and share the other training pairs are loosened and a
graph of what they became is built; each row of ROWS is trained with each seed, scores val once, and says what it finds
(found.json in its folder). Everything is written below DIR, and the same call again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import HEAD, line, measured, neighbours, selection, subtext

HELD_OUT = 500
HOST = "pvse --captions one --batch-size 32 --width 256 --views 2 --val-split select"
ROWS = {
    "pvse": f"{HOST} --negatives all",
    "pvse, hardest negatives": f"{HOST} --negatives hardest",
    "uniform": f"{HOST} --negatives all --with uniform",
    "random": f"{HOST} --negatives all --with random",
    "diversity": f"{HOST} --negatives all --with diversity:graph={{graph}}",
    "discrepancy": f"{HOST} --negatives all --with discrepancy:graph={{graph}}",
}
"""What is trained; {graph} stands for the graph of the loosened data."""


def main() -> None:
    """Print a row for each row of ROWS and each looseness, when its last seed is done, and what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.2, 0.5])
    parser.add_argument(
        "--kinds", nargs="+", choices=["neighbour", "mismatch", "mixed"], default=["neighbour", "mismatch"]
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    asked = parser.parse_args()
    data = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    captions = selection(data / "captions.jsonl", asked.out / "chosen.jsonl", held_out=HELD_OUT)
    cases: list[tuple[str, float]] = [("literal", 0)] if 0 in asked.shares else []
    cases += [(kind, share) for share in asked.shares if share for kind in asked.kinds]
    print(HEAD, flush=True)
    for kind, share in cases:
        folder = asked.out / f"{kind}-{share:g}"
        source = loosened(captions, folder, kind, share)
        graph = neighbours(source, folder / "graph", "lsa")
        for row in asked.rows:
            more = [*ROWS[row].format(graph=graph).split(), "--epochs", str(asked.epochs), "--data", str(source)]
            more += ["--images", str(data / "images"), "--features", str(data / "mobilenet_pooled.npz")]
            results = []
            for seed in asked.seeds:
                run = folder / f"{row.replace(', ', '-').replace(' ', '-')}-{seed}"
                results.append(measured(run, [*more, "--seed", str(seed)], split="val"))
                if share:
                    found(run, folder / "labels.json", graph)
            print(line(f"{row}, {kind} {share:g}", results), flush=True)


def loosened(captions: Path, folder: Path, kind: str, share: float) -> Path:
    """The captions with a share of the training pairs loosened, and labels.json beside them; made once."""
    if not share:
        return captions
    made, labels = folder / "loose.jsonl", folder / "labels.json"
    if not labels.is_file():
        made.unlink(missing_ok=True)
        near = [] if kind == "mismatch" else ["--graph", str(neighbours(captions, folder.parent / "graph", "lsa"))]
        files = ["--out", str(made), "--labels", str(labels)]
        subtext(["data", "loosen", str(captions), *files, "--kind", kind, "--share", f"{share:g}", *near])
    return made


def found(run: Path, labels: Path, graph: Path) -> dict[str, Any]:
    """What `subtext data found` says of a run, kept in its folder."""
    kept = run / "found.json"
    if not kept.is_file():
        command = ["data", "found", str(run), "--labels", str(labels), "--graph", str(graph), "--json", "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "subtext.app", *command], check=True, text=True, stdout=subprocess.PIPE
        )
        kept.write_text(done.stdout, encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
