"""Made photographs for looking: landscapes of several shapes with what a picture desk knows of them.

Real ones stand in their place where SUBTEXT_DATA names a folder with `flickr8k`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

SHAPES = ((3, 2), (2, 3), (4, 3), (1, 1), (16, 9), (3, 2), (3, 4), (2, 1))
"""Width and height of the photographs, in turn."""
SKIES = (
    ("dawn", (255, 196, 160), (120, 130, 180)), ("noon", (170, 215, 245), (70, 130, 200)),
    ("dusk", (250, 150, 110), (60, 50, 100)), ("night", (60, 80, 130), (12, 16, 40)),
    ("fog", (225, 226, 222), (170, 178, 184)), ("desert", (250, 226, 170), (205, 140, 90)),
)  # fmt: skip
"""A time or a weather, and the colours of its sky below and above."""
SUBJECTS = ("the last ferry", "a village that was left", "the long way home", "harvest", "the border", "a new start")
PLACES = ("Zürich", "Genève", "Łódź", "Paris, Texas", "Havana")
PEOPLE = ("Press office", "Photo desk", "Survey team", "Restorers")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
SOURCE = Path(os.environ.get("SUBTEXT_DATA", "/nowhere"), "flickr8k")
"""Real photographs, where it is there."""
QUERY = "a dog runs through the grass" if SOURCE.is_dir() else "the long way home"
"""Words that fit some of them."""
NOTHING = "a long way to go" if SOURCE.is_dir() else "qqqq"
"""Words that fit none of them."""
LONG = 480
"""Pixels of the longer side."""


def landscape(number: int) -> Image.Image:
    """Hills behind hills below a sky, and grain that no other has.

    Args:
        number: Of the photograph; the same number gives the same pixels.

    Returns:
        The image.
    """
    draws = np.random.default_rng(number)
    across, down = SHAPES[number % len(SHAPES)]
    width, height = (LONG, LONG * down // across) if across >= down else (LONG * across // down, LONG)
    _, low, high = SKIES[number % len(SKIES)]
    shade = np.linspace(0, 1, height)[:, None, None]
    pixels = np.array(high) * (1 - shade) + np.array(low) * shade + np.zeros((height, width, 1))
    rows, columns = np.arange(height)[:, None], np.arange(width)[None]
    sun = (draws.uniform(0.15, 0.85) * width, draws.uniform(0.15, 0.45) * height)
    glow = np.exp(-((columns - sun[0]) ** 2 + (rows - sun[1]) ** 2) / (0.004 * width * height))
    pixels += 90 * glow[:, :, None]
    for layer in range(4):
        waves = sum(
            draws.uniform(0.02, 0.07) * np.sin(columns / width * draws.uniform(4, 19) + draws.uniform(0, 7))
            for _ in range(3)
        )
        crest = height * (0.45 + 0.15 * layer + waves)
        near = (layer + 1) / 4
        ground = np.array(low) * (0.75 * (1 - near)) + np.array((26, 44, 40)) * near
        pixels = np.where((rows > crest)[:, :, None], ground, pixels)
    pixels += draws.normal(0, 5, (height, width, 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.6))


def real(number: int, rows: list[dict[str, Any]], folder: Path) -> Image.Image:
    """A photograph of Flickr8k, whose copies are squares: in one of the shapes that photographs have."""
    across, down = SHAPES[number % len(SHAPES)]
    size = (LONG, LONG * down // across) if across >= down else (LONG * across // down, LONG)
    return Image.open(folder / rows[number]["image"]).convert("RGB").resize(size, Image.Resampling.LANCZOS)


def archive(folder: Path, count: int, *, made: bool = False) -> Path:
    """Write an archive of a picture desk: long paths, columns with gaps, captions for most, and three pairs of copies.

    Args:
        folder: A new folder.
        count: Photographs, without the copies; at least 12.
        made: Takes made photographs wherever real ones are.

    Returns:
        The data set, `archive.jsonl`.
    """
    rows: list[dict[str, Any]] = []
    if not made and SOURCE.is_dir():
        rows = [json.loads(line) for line in (SOURCE / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = []
    for number in range(count):
        year, place = 1950 + number % 60, PLACES[number % 5]
        subject, weather = SUBJECTS[number * 5 // 7 % 6], SKIES[number % 6][0]
        about = f"{subject}, {weather} near {place} in {MONTHS[number % 12]} {year}"
        texts = rows[number]["captions"] if rows else [about, f"{weather}, before {SUBJECTS[number % 6]}"]
        path = f"press-office/{year}/{year}-{number:04}_{place.replace(' ', '_')}_negative-{number * 7919 % 9973}.jpg"
        texts = texts[: (2, 1, 3, 0)[number % 4]]
        row: dict[str, Any] = {"id": f"{year}-{number:04}", "image": path, "captions": texts}
        row |= {"date_taken": f"{year}-{1 + number % 12:02}-{1 + number % 28:02}"} if number % 7 else {}
        row |= {"place": place} if number % 6 else {}
        name = PEOPLE[number % 4]
        row |= {"photographer": name, "credit": f"© {name} / City Archive"} if number % 5 else {}
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        image = real(number, rows, SOURCE / "images") if rows else landscape(number)
        image.save(folder / path, quality=88)
        lines.append({**row, "licence": ("CC BY 4.0", "All rights reserved")[number % 2]})
        if number in (2, 5, 8):
            copy = path.replace(".jpg", "_web.jpg")
            image.resize((image.width * 3 // 4, image.height * 3 // 4)).save(folder / copy, quality=70)
            lines.append({**row, "id": f"{row['id']}w", "image": copy})
    file = folder / "archive.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file
