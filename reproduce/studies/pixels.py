"""Training from pixels: a small random backbone, and a pretrained one, frozen and fine-tuned.

    SUBTEXT_DATA=... python -m reproduce.studies.pixels --out DIR [--rows tiny_coco ...] [--seeds 0 1 2]
        [--weights FILE]

SUBTEXT_DATA points at a folder with tiny_coco/ (50 train and 50 val images) and flickr8k/ (6,000 and 1,000, of 160
pixels). The network of the "frozen" and "fine-tuned" rows is ImageNet's MobileNetV1-0.75 in Keras' arrays, FILE.

tiny_coco trains for as many epochs as its plan says and is evaluated on val; no epoch is chosen. On Flickr8k the first
1,000 train images are trained on and the last 500 select epoch and settings; rows of `SCORED` are evaluated on val,
once a run, and the others show the results on the selection set. Everything is written below DIR; the same call
resumes. A minute of processor time a run, but for fine-tuning: six minutes for 8 epochs, and more for 24.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.mobilenet_weights import write
from reproduce.studies.common import HEAD, Recipe, data_folder, file_name, line, measure, options, selection

HELD_OUT, TRAINED = 500, 1000
PRETRAINED = Recipe("dual", image="BACKBONE", text="bag")
FROZEN = PRETRAINED.but(image_size=160, freeze_epochs=-1)
SHORT = PRETRAINED.but(image_size=160, epochs=8, freeze_epochs=3)
SCORED = {
    "tiny_coco": Recipe("dual", image="tiny", text="bag", val_split=None),
    "tiny_coco, frozen": PRETRAINED.but(freeze_epochs=-1, val_split=None),
    "frozen": FROZEN,
    "frozen, 8 epochs": FROZEN.but(epochs=8),
    "fine-tuned, 8 epochs": SHORT.but(backbone_lr_scale=0.1),
    "fine-tuned, 8 epochs, norms kept": SHORT.but(backbone_lr_scale=0.1, backbone_norms="frozen"),
    "fine-tuned": PRETRAINED.but(image_size=160, freeze_epochs=16, backbone_lr_scale=0.1),
}
ROWS = {
    **SCORED,
    "fine-tuned, 8 epochs, encoder factor 0.03": SHORT.but(backbone_lr_scale=0.03),
    "fine-tuned, 8 epochs, encoder factor 0.3": SHORT.but(backbone_lr_scale=0.3),
    "fine-tuned, 8 epochs, layer decay 0.8": SHORT.but(backbone_lr_scale=0.1, layer_decay=0.8),
}


def row(name: str, seeds: list[int], weights: Path, out: Path) -> str:
    """Train and evaluate one row with every seed; its line of the table."""
    recipe = ROWS[name]
    if recipe.options["image"] == "BACKBONE":
        backbone = out / "backbone"
        recipe = recipe.but(image=str(backbone if backbone.is_dir() else write(weights, backbone)))
    if name.startswith("tiny_coco"):
        folder = data_folder("tiny_coco")
        sources: dict[str, Any] = {"data": folder / "captions.jsonl", "images": folder / "images"}
    else:
        folder = data_folder("flickr8k")
        data = selection(folder / "captions.jsonl", out / "captions.jsonl", held_out=HELD_OUT, first=TRAINED)
        sources = {"data": data, "images": folder / "images"}
        recipe = recipe.but(val_split="select")
    results = []
    for seed in seeds:
        run, split = out / file_name(f"{name}-{seed}"), "val" if name in SCORED else None
        results.append(measure(run, recipe, split=split, cache=out / "cache", seed=seed, **sources))
    for seed, result in zip(seeds, results, strict=True):
        for key in ("text_to_image/recall@10", "image_to_text/recall@10") if "intervals" in result else ():
            low, high = result["intervals"][key]
            print(
                f"{name}, seed {seed}: {key} {result[key]:.1f} (95 %: {low:.1f}-{high:.1f}; "
                f"chance {result['chance'][key]:.1f})"
            )
    return line(name, results)


def main() -> None:
    """Train and evaluate the rows, and print the tables."""
    parser = options(__doc__, rows=list(ROWS), default=list(SCORED))
    parser.add_argument(
        "--weights", type=Path, help="default: weights/mobilenet_v1_0.75_224_imagenet.npz beside the data"
    )
    config = parser.parse_args()
    data = data_folder("tiny_coco").parent
    weights = config.weights or data.parent / "weights" / "mobilenet_v1_0.75_224_imagenet.npz"
    config.out.mkdir(parents=True, exist_ok=True)
    lines: dict[bool, list[str]] = {True: [], False: []}
    for name in config.rows:
        lines[name in SCORED].append(row(name, config.seeds, weights, config.out))
    for on_val, rows in lines.items():
        if rows:
            print("\n".join([f"\n{'val' if on_val else 'selection set'}\n", HEAD, *rows]))


if __name__ == "__main__":
    main()
