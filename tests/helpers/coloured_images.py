"""Twelve small pictures of one colour each on disk, with texts that name it, and an untrained run that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

COLOURS = {
    "red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220), "yellow": (240, 220, 40),
    "black": (10, 10, 10), "white": (245, 245, 245), "grey": (128, 128, 128), "orange": (250, 140, 20),
    "purple": (130, 40, 160), "brown": (120, 80, 40), "pink": (250, 150, 190), "cyan": (40, 210, 220),
}  # fmt: skip
OPTIONS: dict[str, object] = {
    "image": "tiny", "image_size": 32, "embed_dim": 16, "word_dim": 8, "min_count": 1,
}  # fmt: skip


def write(folder: Path) -> Path:
    """Write the pictures and metadata.jsonl; gives the folder."""
    folder.mkdir(parents=True)
    rows = []
    for place, (name, colour) in enumerate(COLOURS.items()):
        Image.new("RGB", (40, 40), colour).save(folder / f"{name}.png")
        split = "train" if place < 8 else "val" if place < 10 else "test"
        texts = [f"a {name} square", f"ein Quadrat, {name}"]
        row = {"file_name": f"{name}.png", "id": name, "captions": texts, "language": ["en", "de"], "split": split}
        rows.append({**row, "place": place})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def run(data: Path, out: Path, *, seed: int = 0, host: str = "dual", **options: object) -> Path:
    """Write a run of random weights over that data; gives its folder."""
    from subtext.data.config import DataConfig
    from subtext.data.read import read
    from subtext.models.checkpoint import Record, save_run
    from subtext.recipes.build import build
    from subtext.training.setup import BuildContext

    train = read(data).split("train")
    arguments = {**OPTIONS, **options}
    # Ten times each: no word is rare.
    context = BuildContext(texts=tuple(str(text) for text in train.texts.values) * 10, seed=seed)
    setup = build(host, arguments, context=context)
    record = Record(model=host, arguments=arguments, seed=seed, status="finished", data=DataConfig(data))
    save_run(out, setup.model.eval(), record)
    return out


RUNS: dict[str, dict[str, object]] = {"run": {}, "other": {"seed": 1}, "views": {"host": "pvse", "views": 3}}
"""Runs by what they are for: the one that a test is about, one of other weights, and one of several vectors an item."""


def runs(folder: Path, *names: str) -> Path:
    """Write the data and those of RUNS over it; gives the folder."""
    write(folder / "data")
    for name in names:
        run(folder / "data", folder / name, **RUNS[name])  # type: ignore[arg-type]
    return folder


@contextmanager
def index_of_table(address: str, file: Path, rows: Sequence[Mapping[str, Any]], run: Path) -> Iterator[None]:
    """An index of a table with these rows, whose pictures are in `photos` beside it; it is removed at the end."""
    from subtext.api.index.build import build_index
    from subtext.retrieval.stores.registry import open_store

    (file.parent / "photos").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (40, 40), colour).save(file.parent / "photos" / f"{name}.png")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index(address, file, run=run, quiet=True)
    yield
    open_store(address).remove()
