"""The images of an index that have no picture to show: how many, why, and what mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subtext.data.image_files import Gap, picture_gap
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.store import Store
from subtext.retrieval.traces import CACHE, trace_name
from subtext.text_helpers import counted

LOOKED_AT = 20_000
"""Images whose files are looked for; of more, as many, evenly spread."""
MENDED: Mapping[Gap, str] = {
    "not there": "{}, whose file is not at its place, and no thumbnail is kept: `subtext index update` with --data and "
    "--images names the new place",
    "outside": "{} outside the folders that are served: `subtext serve` with --image-folder adds one",
    "unreadable": "{}, whose file this user cannot read, or which is cut off: give the right to read it, or restore it",
    "no file": "{} without a file, put in by vectors or features alone: `subtext index update` with --data gives files",
}
"""Why there is no picture, in words with the number of images, and what mends it."""


@dataclass(frozen=True)
class MissingPictures:
    """Images without a picture.

    Attributes:
        total: Images of the index.
        looked: Those of them that were looked at.
        counts: Reason -> images.
    """

    total: int
    looked: int
    counts: Mapping[Gap, int]

    @property
    def number(self) -> int:
        """Images without a picture, of those that were looked at."""
        return sum(self.counts.values())

    @property
    def sentence(self) -> str:
        """How many, why, and what mends it; "" where every image has one."""
        if not self.number:
            return ""
        among = f"{self.total:,}"
        if self.looked < self.total:
            among = f"the {self.looked:,} images looked at, of {self.total:,} in all"
        reasons = [
            text.format(counted(self.counts[gap], "image")) for gap, text in MENDED.items() if self.counts.get(gap)
        ]
        return f"no picture of {self.number:,} of {among}: {'; '.join(reasons)}"


def missing_pictures(
    store: Store, *, within: Sequence[Path] | None = None, storage: Path | None = None
) -> MissingPictures:
    """Count the images of an index that have no picture to show.

    Args:
        store: The index.
        within: Folders, resolved, whose images may be shown; None for any.
        storage: Folder of the thumbnails of an index that is no folder; None for none.

    Returns:
        The counts.

    Complexity:
        A look at the file of each image, of at most `LOOKED_AT`.
    """
    root, home = Path(store.manifest.root), storage
    if isinstance(store.whole, Folder):
        home = Path(store.path)
    kept = set[str]()
    if home is not None and (folder := home / CACHE / "thumbnails").is_dir():
        kept = {file.name.partition("-")[0] for file in folder.iterdir()}
    counts = Counter[Gap]()
    with store.reading() as view:
        keys = view.keys("images")
        chosen = keys[np.linspace(0, len(keys) - 1, LOOKED_AT).astype(np.int64)] if len(keys) > LOOKED_AT else keys
        for start in range(0, len(chosen), 1000):
            for row in view.rows("images", keys=chosen[start : start + 1000].tolist()):
                gap = picture_gap(row.path, root, within=within)
                if gap is not None and not (gap == "not there" and trace_name("images", row.id) in kept):
                    counts[gap] += 1
    return MissingPictures(len(keys), len(chosen), dict(counts))
