"""BuildContext: what a data set offers to a recipe, and what a saved run offers to it when it is opened again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError


@dataclass(frozen=True)
class FeatureShape:
    """Widths of precomputed features.

    pooled  G, one vector an item; None where the file has none
    grid    E, one vector a cell or region; None where the file has none
    mean, std  "pooled" or "grid" -> (width) float32 over the training split; empty when a saved run is opened, whose
               tensors bring them
    """

    pooled: int | None = None
    grid: int | None = None
    mean: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    std: dict[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildContext:
    """What a recipe builds from.

    image_features, text_features  shapes of precomputed features; None where the modality is read from pixels or words
    texts    texts of the training split (empty when a saved run is opened): vocabularies are built from these alone
    assets   folder of a saved run with "image" and "text" inside (vocabulary, tokeniser, backbone configuration); None
             for a new run
    seed     what the initial weights of a new run are drawn from
    member   of a saved ensemble: which member's assets, a folder inside that of each modality; empty for a run's own
    """

    image_features: FeatureShape | None = None
    text_features: FeatureShape | None = None
    texts: tuple[str, ...] = ()
    assets: Path | None = None
    seed: int = 0
    member: str = ""

    def asset(self, modality: str) -> Path | None:
        """The saved folder of one modality, None for a new run.

        Raises RequirementError when the run has none.
        """
        if self.assets is None:
            return None
        folder = self.assets / modality / self.member
        if not folder.is_dir():
            raise RequirementError(f"the recipe needs the {modality} assets of the run; {folder} is not there")
        return folder
