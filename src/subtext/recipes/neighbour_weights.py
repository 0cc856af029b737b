"""What the methods that weight by a pair's neighbourhood share: their options, and how a host is given the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.errors import RecipeError
from subtext.training.option_marks import Place, Span, When

if TYPE_CHECKING:
    from subtext.core import Direction
    from subtext.models.model import Branch
    from subtext.objectives.weighting.neighbourhood import Neighbourhood
    from subtext.training.setup import Setup

_TWO = When("combine", ("image", "text", "mean"), needs="combine other than image, text and mean", but=True)
_MAX = When("views", ("max",))
_LISTS = When("second", ("multiset",))

Combine = Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"]


@dataclass(frozen=True)
class Lambda:
    """How large weights are, and how the two modalities become one."""

    total: Annotated[float, "lambda, the sum of the weights over a batch; 96 to 196 in the paper"] = 196.0
    batch: Annotated[int, "pairs that total is for; 0: whatever the batch", Span(0)] = 32
    sign: Annotated[float, "Gamma: -1 counts pairs in loose neighbourhoods more, 1 less, 0 all alike"] = -1.0
    combine: Annotated[Combine, "of pictures' and texts' weights; mean: of their scores, before the softmax"] = (
        "absdiff"
    )
    placement: Annotated[
        Literal["both", "outer", "inner", "scores"], "where lambda stands; inner as printed, nearly uniform", _TWO
    ] = "both"
    half: Annotated[bool, "the mean of both directions, as in the paper; off: the host's own scale"] = True
    drop_last: Annotated[bool, "leave out the last batch of an epoch where it is smaller"] = True


@dataclass(frozen=True)
class Neighbours:
    """Which neighbours scores are made from, and of which embeddings."""

    graph: Annotated[str, "folder that `subtext neighbours build` wrote", Place()] = ""
    neighbours: Annotated[int, "the nearest so many of the graph's; 0 for all", Span(0)] = 0
    views: Annotated[
        Literal["max", "mean", "aligned"], "several views compare by the best pair, all pairs, or view by view"
    ] = "max"
    samples: Annotated[int, "neighbours of neighbours drawn a pair and epoch; 0 for all", Span(0), _MAX] = 1000
    bank: Annotated[Literal["training", "evaluation"], "embeddings of the epoch's own steps, or of a pass after it"] = (
        "training"
    )
    first: Annotated[Literal["uniform", "encode"], "first epoch: uniform weights, or a pass before it"] = "uniform"
    storage: Annotated[Literal["float32", "float16"], "what embeddings are kept in"] = "float32"
    tables: Annotated[Literal["read", "all"], "pairs with scores in a run's tables/: those an epoch reads, or all"] = (
        "read"
    )


@dataclass(frozen=True)
class Further:
    """What discrepancy compares a pair with."""

    second: Annotated[
        Literal["multiset", "unique", "direct"], "neighbours of neighbours, each once, or neighbours themselves"
    ] = "multiset"
    average: Annotated[
        Literal["pairs", "lists"], "lists of unequal length: over all they list, or over their means", _LISTS
    ] = "pairs"
    current: Annotated[bool, "the pair's own embedding of now, not that of the epoch before"] = False


def scored(
    method: str,
    setup: Setup,
    weighting: Neighbourhood,
    near: Neighbours,
    *,
    common: Lambda,
    further: Further = Further(),
    diagonal: bool = True,
    moments: Literal["refreshed", "fixed"] = "refreshed",
) -> Setup:
    """The host with weights from a graph, and with the memory that they need.

    weighting  beta, gamma and statistics; the rest is taken from `common` and `further`

    Raises RecipeError without a graph, for a host whose items are no vectors, for options of several views where there
    is one, and for what cannot be had of the best pair of views.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.ops.neighbour_scores import Scoring
    from subtext.recipes.method_terms import weighted
    from subtext.training.weight_tables import NeighbourScores

    _require_host(method, setup, near)
    _require_views(method, setup, near, further)
    whole = replace(
        weighting,
        total=common.total,
        batch=common.batch,
        sign=common.sign,
        combine=common.combine,
        placement=common.placement,
        current=further.current,
    )

    def make(direction: Direction) -> Neighbourhood:
        return replace(whole, of=direction)

    made = weighted(method, setup, make, half=common.half)
    memory = NeighbourScores(
        Path(near.graph),
        neighbours=near.neighbours,
        # What no weight reads is not looked for: the second product is half of the cost.
        scoring=Scoring(further.second if weighting.discrepancy else "none", diagonal, further.average),
        views=near.views,
        samples=near.samples,
        bank=near.bank,
        first=near.first,
        current=further.current,
        moments=moments,
        # A weight is of its batch, but for statistics of the data set: pairs that are not read need no score.
        every=near.tables == "all" or weighting.statistics != "none",
        storage=near.storage,
    )
    return replace(made, memories=(*made.memories, memory), plan=replace(made.plan, drop_last=common.drop_last))


def _require_host(method: str, setup: Setup, near: Neighbours) -> None:
    from subtext.models.heads.gaussian import Gaussian

    if not near.graph:
        raise RecipeError(
            f"{method} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    # Of a distribution its draws, or its mean, are vectors, whatever compares them.
    drawn = all(isinstance(branch.head, Gaussian) for branch in (setup.model.image, setup.model.text))
    if not setup.model.indexable and not drawn:
        raise RecipeError(
            f"{method} needs a host whose items are vectors; {type(setup.model.similarity).__name__} scores pairs; "
            "take another host"
        )


def _require_views(method: str, setup: Setup, near: Neighbours, further: Further) -> None:
    several = max(map(_views, (setup.model.image, setup.model.text)))
    default = Neighbours()
    if several == 1 and (near.views, near.samples) != (default.views, default.samples):
        name = "views" if near.views != default.views else "samples"
        raise RecipeError(
            f"{method}: {name} needs a host with several views of an item (pvse, views above 1; pcme); this one has "
            f"one; leave {name} out"
        )
    if several > 1 and near.views == "max":
        wrong = [name for name, bad in _LINEAR.items() if getattr(further, name) in bad]
        if wrong:
            raise RecipeError(
                f"{method}: {wrong[0]}={getattr(further, wrong[0])} needs views=mean or aligned, where a host has "
                "several views of an item; views is max; change one of them"
            )


_LINEAR: dict[str, tuple[Any, ...]] = {"second": ("unique",), "average": ("lists",), "current": (True,)}
"""What needs scores that are sums: option -> values."""


def _views(branch: Branch) -> int:
    from subtext.models.heads.gaussian import Gaussian
    from subtext.models.heads.pie import Pie

    if isinstance(branch.head, Gaussian):
        return branch.head.draws or 1
    return int(branch.head.outer.out_features) if isinstance(branch.head, Pie) else 1
