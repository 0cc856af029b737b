"""Training from pixels: a small random backbone, and a pretrained one, frozen and fine-tuned.

    SUBTEXT_DATA=... python -m reproduce.studies.pixels --out DIR [--rows tiny_coco ...] [--seeds 0 1 2]
        [--weights FILE]

SUBTEXT_DATA points at a folder with tiny_coco/ (50 train and 50 val pictures) and flickr8k/ (6,000 and 1,000, of 160
pixels). The network of the "frozen" and "fine-tuned" rows is ImageNet's MobileNetV1-0.75 in Keras' arrays, FILE.

tiny_coco learns for as many epochs as its plan says and is scored on val; no epoch is chosen. On Flickr8k the first
1,000 train pictures are learnt from and the last 500 select epoch and settings; rows of `SCORED` score val, once a
run, and the others tell what the selection set said. Everything is written below DIR; the same call goes on where it
was stopped. A minute of processor time a run, but for fine-tuning: six minutes for 8 epochs, and more for 24.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from reproduce.studies.common import HEAD, line, measured, selection

HELD_OUT, LEARNT = 500, 1000
FROZEN = "dual --image BACKBONE --image-size 160 --freeze-epochs -1"
SHORT = "dual --image BACKBONE --image-size 160 --epochs 8 --freeze-epochs 3"
SCORED = {
    "tiny_coco": "dual --image tiny --val-split none",
    "tiny_coco, frozen": "dual --image BACKBONE --freeze-epochs -1 --val-split none",
    "frozen": FROZEN,
    "frozen, 8 epochs": f"{FROZEN} --epochs 8",
    "fine-tuned, 8 epochs": f"{SHORT} --backbone-lr-scale 0.1",
    "fine-tuned, 8 epochs, norms kept": f"{SHORT} --backbone-lr-scale 0.1 --backbone-norms frozen",
    "fine-tuned": "dual --image BACKBONE --image-size 160 --freeze-epochs 16 --backbone-lr-scale 0.1",
}
ROWS = {
    **SCORED,
    "fine-tuned, 8 epochs, encoder factor 0.03": f"{SHORT} --backbone-lr-scale 0.03",
    "fine-tuned, 8 epochs, encoder factor 0.3": f"{SHORT} --backbone-lr-scale 0.3",
    "fine-tuned, 8 epochs, layer decay 0.8": f"{SHORT} --backbone-lr-scale 0.1 --layer-decay 0.8",
}


def backbone(weights: Path, folder: Path) -> Path:
    """The network as a folder that `--image` takes, converted once."""
    if not folder.is_dir():
        root = Path(__file__).resolve().parent.parent
        command = [sys.executable, "-m", "benchmarks.mobilenet_weights", str(weights.resolve()), str(folder.resolve())]
        subprocess.run(command, check=True, cwd=root)
    return folder


def row(name: str, seeds: list[int], data: Path, weights: Path, out: Path) -> str:
    """Train and score one row with every seed; its line of the table."""
    recipe = ROWS[name].split()
    if "BACKBONE" in recipe:
        recipe[recipe.index("BACKBONE")] = str(backbone(weights, out / "backbone"))
    if name.startswith("tiny_coco"):
        sources = ["--data", str(data / "tiny_coco" / "captions.jsonl"), "--images", str(data / "tiny_coco" / "images")]
    else:
        rows = data / "flickr8k" / "captions.jsonl"
        captions = selection(rows, out / "captions.jsonl", held_out=HELD_OUT, first=LEARNT)
        sources = ["--data", str(captions), "--images", str(data / "flickr8k" / "images"), "--val-split", "select"]
    results = []
    for seed in seeds:
        run = out / "".join(letter if letter.isalnum() else "-" for letter in f"{name}-{seed}")
        train = [*recipe, *sources, "--cache", str(out / "cache"), "--seed", str(seed)]
        results.append(measured(run, train, split="val" if name in SCORED else None))
    for seed, result in zip(seeds, results, strict=True):
        for key in ("text_to_image/recall@10", "image_to_text/recall@10") if "intervals" in result else ():
            low, high = result["intervals"][key]
            print(
                f"{name}, seed {seed}: {key} {result[key]:.1f} (95 %: {low:.1f}-{high:.1f}; "
                f"chance {result['chance'][key]:.1f})"
            )
    return line(name, results)


def main() -> None:
    """Train and score what is asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(SCORED), metavar="ROW", help=str([*ROWS]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--weights", type=Path, help="default: ../weights/mobilenet_v1_0.75_224_imagenet.npz beside it")
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds tiny_coco/ and flickr8k/")
    data = Path(os.environ["SUBTEXT_DATA"])
    weights = asked.weights or data.parent / "weights" / "mobilenet_v1_0.75_224_imagenet.npz"
    asked.out.mkdir(parents=True, exist_ok=True)
    lines: dict[bool, list[str]] = {True: [], False: []}
    for name in asked.rows:
        lines[name in SCORED].append(row(name, asked.seeds, data, weights, asked.out))
    for on_val, rows in lines.items():
        if rows:
            print("\n".join([f"\n{'val' if on_val else 'selection set'}\n", HEAD, *rows]))


if __name__ == "__main__":
    main()
