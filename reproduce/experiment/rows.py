"""Hosts and rows of the experiment, which rows each set and host has, and the weights that know what was planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reproduce.experiment.sets import OPENSTAX, SHARES
from reproduce.studies.common import Recipe
from subtext.core import Epoch, Scene
from subtext.objectives.objective import WeightTotal
from subtext.objectives.scene import batch_items, count_pairs, pairs_to_queries
from subtext.ops import draw
from subtext.recipes.parts import weight_terms
from subtext.training.setup import Setup

BATCHES = {OPENSTAX: 64}
"""Set -> pairs of a batch, where a set is small."""
BATCH = 256
_PLAN: dict[str, Any] = {
    "epochs": 60,
    "patience": 6,
    "warmup": 0.0,
    "caption_sampling": "all",
    "drop_last": True,
    "optimiser": "adam",
    "weight_decay": 0.0,
    "schedule": "plateau",
    "lr_factor": 0.2,
    "plateau_patience": 2,
    "weight_average": "none",
}
_TRIPLET: dict[str, Any] = {**_PLAN, "negatives": "all", "margin": 0.1}
HOSTS = {
    "infonce": Recipe("dual", **_PLAN, embed_dim=64, dropout=0.0, image_dropout=0.0, text_mlp=True),
    "linear": Recipe("vse", **_TRIPLET, embed_dim=8),
    "pvse-16": Recipe("pvse", **_TRIPLET, embed_dim=16, views=1),
    "pvse-256": Recipe("pvse", **_TRIPLET, embed_dim=256, views=1),
}
MAIN_SET, MAIN_HOST = "topics-25", "infonce"
SIZES = (95, 85, 75)
"""Effective sample sizes in per cent."""
SCORES = ("diversity", "discrepancy")
FORMS = {"images": "image", "texts": "text", "difference": "absdiff"}


@dataclass(frozen=True)
class Oracle(WeightTotal):
    """Weights from a table by the row of the pair's text, for a control: weight = total * w / sum of w in the batch.

    Args:
        total: See `WeightTotal`.
        direction: See `WeightTotal`.
        batch: See `WeightTotal`.
        file: Array of one weight per training text.
        permuted: Whether each pair has the weight of another, by the seed.
    """

    file: str = ""
    permuted: bool = False

    def __call__(self, scene: Scene, epoch: Epoch) -> Float[Tensor, "q"]:
        """One weight per query.

        Args:
            scene: Of pairs.
            epoch: Its seed draws the permutation.

        Returns:
            (Q), without gradient.
        """
        rows = batch_items(scene)[1].ids.cpu()
        table = _table(self.file)
        if self.permuted:
            rows = torch.from_numpy(_order(len(table), epoch.seed))[rows]
        weights = table[rows].to(scene.comparison(self.direction).scores.device)
        weights = self.total_for(count_pairs(scene)) * weights / weights.sum()
        return pairs_to_queries(weights, scene, self.direction)


@lru_cache(maxsize=2)
def _table(file: str) -> Tensor:
    return torch.from_numpy(np.load(file, allow_pickle=False).astype(np.float32))


@lru_cache(maxsize=2)
def _order(count: int, seed: int) -> np.ndarray[Any, Any]:
    return draw.permutation(count, seed=seed, epoch=0, purpose="experiment: permuted oracle")


def oracle(
    setup: Setup,
    *,
    file: Annotated[str, "array of one weight per training text"] = "",
    permuted: Annotated[bool, "give each pair the weight of another"] = False,
    total_weight: Annotated[float, "sum of the weights of 32 pairs"] = 32.0,
) -> Setup:
    """Weights that know what was planted: the positive control of the experiment.

    Returns:
        The changed setup.
    """
    return weight_terms(
        "oracle",
        setup,
        lambda direction: Oracle(total_weight, direction, 32, file=file, permuted=permuted),
        average=True,
        drop_last=True,
    )


def batch_of(name: str) -> int:
    """Pairs of a batch on a set."""
    return BATCHES.get(name, BATCH)


@dataclass(frozen=True)
class Row:
    """A row: methods on a host, and what the braces in them stand for.

    methods  as `subtext.train` takes them; {graph}, {random}, {images}, {oracle} and {sign} are filled in
    score    whose weights have an effective size, and of which form; with `size` the sign is found by bisection
    options  changes of the host
    own_loss whether a method replaces the host's loss, so that nothing reads the options of that
    """

    methods: tuple[str, ...] = ()
    score: str = ""
    form: str = ""
    size: int = 0
    options: Mapping[str, Any] | None = None
    own_loss: bool = False

    def recipe(self, name: str, host: str, *, files: Mapping[str, Path], sign: float | None) -> Recipe:
        """The row of a host on a set."""
        values: dict[str, Path | str] = {**files, "sign": "" if sign is None else f"{sign:g}"}
        options = {**HOSTS[host].options, "batch_size": batch_of(name), **(self.options or {})}
        if self.own_loss:
            options = {option: value for option, value in options.items() if option not in ("negatives", "margin")}
        return Recipe(HOSTS[host].model, **options).but(methods=list(self.methods)).of(**values)


def _weighted(score: str, form: str, size: int, control: str = "") -> Row:
    more = f",control={control}" if control else ""
    method = f"{score}:graph={{graph}},combine={FORMS[form]},sign={{sign}},total_weight=32{more}"
    return Row((method,), score, form, size)


def _published(score: str, more: str) -> Row:
    return Row((f"{score}:graph={{graph}},total_weight=196,{more}",))


CORE = {
    "uniform": Row(("uniform:total_weight=32",)),
    "oracle": Row(("oracle:file={oracle}",)),
    "oracle permuted": Row(("oracle:file={oracle},permuted=true",)),
    **{
        f"{score} images 75{f' {control}' if control else ''}": _weighted(score, "images", 75, control)
        for score in SCORES
        for control in ("", "permuted")
    },
}
"""Rows of every set and host."""
HARD = {
    "mithun": Row(("mithun:hardest_only=no",)),
    "hardest": Row((), options={"negatives": "hardest"}),
}
HAL = Row(("hal",), own_loss=True)
WITHIN = {
    "within": Row(("neighbourhoods:graph={graph},form=angular",), own_loss=True),
    "within random": Row(("neighbourhoods:graph={random},form=angular",), own_loss=True),
    "within nothing": Row(("neighbourhoods:form=angular,image_weight=0,text_weight=0",), own_loss=True),
}
"""Losses within modalities, their control, and their own ranking term alone: all of one scale."""
EVERY = {
    **CORE,
    "uniform 196": Row(("uniform:total_weight=196",)),
    **{
        f"{score} {form} {size}": _weighted(score, form, size)
        for score in SCORES
        for form in FORMS
        for size in SIZES
        if (form, size) != ("images", 75)
    },
    **{
        f"{score} images {size} permuted": _weighted(score, "images", size, "permuted")
        for score in SCORES
        for size in SIZES
        if size != 75
    },
    **{
        f"{score} {name}": _published(score, more)
        for score in SCORES
        for name, more in {
            "Gamma -1": "sign=-1",
            "Gamma -1 permuted": "sign=-1,control=permuted",
            "Gamma +1": "sign=1",
            "sum": "sign=-1,combine=sum",
            "images alone": "sign=-1,combine=image",
            "texts alone": "sign=-1,combine=text",
        }.items()
    },
    "combined val": Row(("combined:graph={graph},total_weight=196,beta=3,gamma=1",)),
    "combined stats": Row(("combined:graph={graph},total_weight=196,mode=stats",)),
    "random": Row(("random:total_weight=196",)),
    "mithun": Row(("mithun:hardest_only=no",)),
    "hal": HAL,
    "amrani": Row(("amrani:features={images}",)),
    **WITHIN,
}
"""Rows of the main set on the main host."""
TRIPLETS = {**CORE, "hardest": HARD["hardest"]}
OPENSTAX_ROWS = {**CORE, **WITHIN, "hal": EVERY["hal"], "daa": Row(("daa",))}


def plan() -> dict[tuple[str, str], Mapping[str, Row]]:
    """(set, host) -> its rows, the main ones first."""
    rows: dict[tuple[str, str], Mapping[str, Row]] = {(MAIN_SET, MAIN_HOST): EVERY}
    for host in HOSTS:
        if host != MAIN_HOST:
            rows[MAIN_SET, host] = TRIPLETS
    for name in SHARES:
        if name != MAIN_SET:
            rows[name, MAIN_HOST] = {**CORE, "mithun": HARD["mithun"]} if "mismatched" in name else CORE
    rows["topics-25-mismatched", "pvse-256"] = {**CORE, **HARD}
    for host in (MAIN_HOST, "pvse-256"):
        rows[OPENSTAX, host] = OPENSTAX_ROWS
    return rows
