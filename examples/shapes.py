"""Generated data for the examples: small drawings of coloured shapes, with two captions each."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = {
    "red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220), "yellow": (240, 220, 40),
    "black": (10, 10, 10), "grey": (128, 128, 128), "orange": (250, 140, 20), "purple": (130, 40, 160),
    "brown": (120, 80, 40), "pink": (250, 150, 190), "cyan": (40, 210, 220), "olive": (110, 120, 20),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle")


def write_shapes(folder: Path, variants: int = 4) -> Path:
    """Draw every colour and shape at several positions, and return the file of the pairs, captions.jsonl.

    Drawings of the same colour and shape are one group: each caption of the group matches each of its drawings. The
    test split has combinations of colour and shape, such as a red circle, that are not in the training split.
    """
    (folder / "images").mkdir(parents=True)
    rows = []
    for i, (colour, rgb) in enumerate(COLOURS.items()):
        for j, shape in enumerate(SHAPES):
            split = "test" if (i + j) % 3 == 0 else "val" if (i + j) % 6 == 1 else "train"
            for variant in range(variants):
                name = f"images/{colour}-{shape}-{variant}.png"
                draw(shape, rgb, variant).save(folder / name)
                captions = [f"a {colour} {shape}", f"one {shape} painted {colour}"]
                row = {"image": name, "captions": captions, "group": f"{colour} {shape}", "split": split}
                rows.append({**row, "colour": colour, "shape": shape})
    path = folder / "captions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def draw(shape: str, rgb: tuple[int, int, int], variant: int) -> Image.Image:
    """One drawing of 32 x 32 pixels on white."""
    image = Image.new("RGB", (32, 32), "white")
    x, y = 2 + 4 * (variant % 2), 2 + 4 * (variant // 2 % 2)
    box = (x, y, x + 22, y + 22)
    pen = ImageDraw.Draw(image)
    if shape == "circle":
        pen.ellipse(box, fill=rgb)
    elif shape == "square":
        pen.rectangle(box, fill=rgb)
    else:
        pen.polygon([(x + 11, y), (x + 22, y + 22), (x, y + 22)], fill=rgb)
    return image
