"""The items of a few keys are read without looking at all others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import stored_items


def test_item_lookup_cost_does_not_grow_with_index(tmp_path: Path) -> None:
    steps: list[int] = []
    for pictures in (40, 400):
        view_of = stored_items.made(tmp_path / str(pictures), pictures=pictures)
        with view_of.reading() as view:
            keys = np.array(view.keys("images")[:4])
            view.items("images", keys)
            count = [0]

            def counted(count: list[int] = count) -> int:
                count[0] += 1
                return 0

            view.tables.connection.set_progress_handler(counted, 1)
            view.items("images", keys)
            view.tables.connection.set_progress_handler(None, 1)
            steps.append(count[0])
    assert 0 < steps[1] < 1.5 * steps[0]
