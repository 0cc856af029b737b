"""How often a search finds the image that a text belongs to, with what is in the box: no network, nothing trained.

    SUBTEXT_DATA=... python -m benchmarks.answers --data flickr8k --json

`flickr8k`: 300 photographs of val become a folder without texts, and `subtext index build --model starter` an index.
Each photograph's first caption is a query; it is answered if the photograph is among the first ten. The cache of
encoders' outputs is empty at the start, in a folder of its own: the time to build is that of a newcomer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, SEED = 300, 0
DEPTHS = (1, 5, 10)
RESAMPLED = 2000
"""Bootstrap samples of the queries, for the intervals."""


def flickr8k(folder: Path, place: Path) -> dict[str, Any]:
    """A bare folder of photographs, searched by the starter towers."""
    import subtext as st

    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    val = [row for row in rows if row["split"] == "val"][:IMAGES]
    photos = place / "photos"
    photos.mkdir()
    for row in val:
        (photos / row["image"]).symlink_to((folder / "images" / row["image"]).resolve())
    started = time.perf_counter()
    command = [sys.executable, "-m", "subtext", "index", "build", str(place / "lib"), str(photos), "--model", "starter"]
    # No network: the hub is not asked even for what a cache might have.
    subprocess.run(
        [*command, "--quiet"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    built = time.perf_counter() - started
    index = st.open_index(place / "lib")
    ranks, seconds = [], []
    for row in val:
        started = time.perf_counter()
        hits = index.search(row["captions"][0], top=max(DEPTHS)).hits
        seconds.append(time.perf_counter() - started)
        names = [Path(hit.id).name for hit in hits]
        ranks.append(names.index(row["image"]) + 1 if row["image"] in names else 0)
    found = recalls(np.array(ranks))
    return {
        "images": len(val),
        "chance": {f"recall@{depth}": round(100 * depth / len(val), 1) for depth in DEPTHS},
        "starter, pixels alone": found,
        "build_seconds": round(built, 1),
        "query_ms": round(1000 * float(np.median(seconds)), 2),
    }


def recalls(ranks: np.ndarray) -> dict[str, Any]:
    """Recall in per cent at each depth with its 95 % interval; ranks from 1, 0 where it is not among the first."""
    drawn = np.random.default_rng(SEED).integers(len(ranks), size=(RESAMPLED, len(ranks)))
    result: dict[str, Any] = {}
    for depth in DEPTHS:
        right = (ranks > 0) & (ranks <= depth)
        low, high = np.percentile(right[drawn].mean(axis=1), (2.5, 97.5))
        result[f"recall@{depth}"] = round(100 * float(right.mean()), 1)
        result[f"recall@{depth} 95 %"] = [round(100 * float(low), 1), round(100 * float(high), 1)]
    return result


DATA: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"flickr8k": flickr8k}
"""Name -> what is measured on the folder of that name in SUBTEXT_DATA, in a place for its files."""


def main() -> None:
    """Measure one data set, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit(f"this benchmark needs data: set SUBTEXT_DATA to the folder that holds {asked.data}/")
    with tempfile.TemporaryDirectory() as place:
        os.environ["SUBTEXT_CACHE"] = str(Path(place, "cache"))
        result = {"data": asked.data, **DATA[asked.data](Path(os.environ["SUBTEXT_DATA"], asked.data), Path(place))}
    if asked.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
