"""What is told of a batch whose loss or gradient was not finite."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_text
from subtext.data.dataset import Dataset
from subtext.errors import OutputError, TrainingError

NOT_FINITE = "nan.json"
"""The file of a run's folder with all pairs of that batch."""

SHOWN = 10
"""How many of them the error names."""


def not_finite(train: Dataset, rows: NDArray[np.int64], *, epoch: int, batch: int, out: Path | None) -> TrainingError:
    """The error to raise: what to do, and the first pairs; all of them go to a file in `out`, where there is one.

    rows          (B 2) picture row and text row of the batch, or of the batches whose gradients were averaged
    epoch, batch  counted from 1
    """
    images, texts = train.images.ids, train.texts.ids
    pairs = [{"image": images[image], "text": texts[text]} for image, text in rows.tolist()]
    listed = ""
    if out is not None:
        told = json.dumps({"epoch": epoch, "batch": batch, "pairs": pairs}, ensure_ascii=False, indent=1)
        # What went wrong first is what has to be told, also where the disk takes no list.
        with suppress(OutputError):
            write_text(out / NOT_FINITE, told + "\n")
            listed = f" (all of them: {out / NOT_FINITE})"
    shown = ", ".join(f"{pair['image']} / {pair['text']}" for pair in pairs[:SHOWN])
    more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return TrainingError(
        f"training needs finite losses and gradients; batch {batch} of epoch {epoch} gave one that is not, and nothing "
        f"was saved after it; lower --lr, or look at its pairs{listed}: {shown}{more}"
    )
