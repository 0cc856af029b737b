"""Options of the methods that weight a pair by its semantic neighbours, and how a model gets these weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.errors import RecipeError
from subtext.training.option_marks import IsPath, Range, Requires

if TYPE_CHECKING:
    from subtext.core import Direction
    from subtext.models.model import Branch
    from subtext.objectives.weighting.neighbourhood import Neighbourhood
    from subtext.training.setup import Setup

_TWO = Requires("combine", ("image", "text", "mean"), needs="combine other than image, text and mean", negated=True)

Combine = Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"]


@dataclass(frozen=True)
class WeightOptions:
    """How large weights are, and how those of the two modalities are combined."""

    total_weight: Annotated[float, "lambda, the sum of the weights over a batch; 96 to 196 in the paper"] = 196.0
    reference_batch: Annotated[int, "batch size that total_weight is for; 0 for the batch as it is", Range(0)] = 32
    sign: Annotated[float, "Gamma: -1 gives pairs in diverse neighbourhoods more weight, 1 less, 0 all the same"] = -1.0
    combine: Annotated[Combine, "combination of image and text weights; mean: of their scores, before the softmax"] = (
        "absdiff"
    )
    total_placement: Annotated[
        Literal["both", "outer", "inner", "scores"], "where lambda is applied; inner as printed, nearly uniform", _TWO
    ] = "both"
    average_directions: Annotated[bool, "average both directions, as in the paper; off: keep the model's own scale"] = (
        True
    )
    drop_last: Annotated[bool, "drop the last batch of an epoch where it is smaller"] = True


@dataclass(frozen=True)
class NeighbourOptions:
    """Which neighbours scores are made from, and of which embeddings."""

    graph: Annotated[str, "folder written by `subtext neighbours build`", IsPath()] = ""
    neighbours: Annotated[int, "nearest neighbours used; 0 for all of the graph's", Range(0)] = 0
    views: Annotated[
        Literal["max", "mean", "aligned"], "compare several views by the best pair, all pairs, or view by view"
    ] = "max"
    samples: Annotated[
        int,
        "second-order neighbours sampled per pair and epoch; 0 for all",
        Range(0),
        Requires("views", ("max",)),
    ] = 1000
    bank: Annotated[Literal["training", "evaluation"], "embeddings of the epoch's own steps, or of a pass after it"] = (
        "training"
    )
    first_epoch: Annotated[
        Literal["uniform", "encode"], "first epoch: uniform weights, or those of a pass before it"
    ] = "uniform"
    storage_dtype: Annotated[Literal["float32", "float16"], "type of the stored embeddings"] = "float32"
    weight_tables: Annotated[
        Literal["read", "all"],
        "pairs scored in the run's tables/: those that an epoch reads, or all",
        Requires("mode", ("stats",), needs="mode=val, since stats scores all", negated=True),
    ] = "read"


@dataclass(frozen=True)
class DiscrepancyOptions:
    """What discrepancy compares a pair with."""

    second_order: Annotated[
        Literal["multiset", "unique", "direct"], "neighbours of neighbours, each once, or the neighbours themselves"
    ] = "multiset"
    average: Annotated[
        Literal["pairs", "lists"],
        "average over all listed pairs, or over the means of the lists",
        Requires("second_order", ("multiset",)),
    ] = "pairs"
    use_current: Annotated[bool, "use the pair's current embedding, not that of the epoch before"] = False


def neighbour_weights(
    method: str,
    setup: Setup,
    weighting: Neighbourhood,
    neighbours: NeighbourOptions,
    *,
    weights: WeightOptions,
    comparison: DiscrepancyOptions = DiscrepancyOptions(),
    diagonal: bool = True,
    moments: Literal["refreshed", "fixed"] = "refreshed",
) -> Setup:
    """The setup with weights from a graph, and with the memory that they need.

    weighting  beta, gamma and statistics; the rest comes from `weights` and `comparison`

    Raises RecipeError without a graph, for a model whose items are no vectors, for options of several views where there
    is one, and for what cannot be computed for the best pair of views.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.ops.neighbour_scores import Scoring
    from subtext.recipes.method_terms import weight_terms
    from subtext.training.weight_tables import NeighbourScores

    _require_vectors(method, setup, neighbours)
    _require_views(method, setup, neighbours, comparison)

    def make(direction: Direction) -> Neighbourhood:
        return replace(
            weighting,
            total=weights.total_weight,
            batch=weights.reference_batch,
            sign=weights.sign,
            combine=weights.combine,
            placement=weights.total_placement,
            current=comparison.use_current,
            of=direction,
        )

    setup = weight_terms(method, setup, make, average=weights.average_directions)
    # The second product is half of the cost, so it is made only where a weight reads it.
    second = comparison.second_order if weighting.discrepancy else "none"
    memory = NeighbourScores(
        Path(neighbours.graph),
        neighbours=neighbours.neighbours,
        scoring=Scoring(second, diagonal, comparison.average),
        views=neighbours.views,
        samples=neighbours.samples,
        bank=neighbours.bank,
        first=neighbours.first_epoch,
        current=comparison.use_current,
        moments=moments,
        # Statistics of the data set need the scores of all pairs; a weight within a batch needs those that are read.
        every=neighbours.weight_tables == "all" or weighting.statistics != "none",
        storage=neighbours.storage_dtype,
    )
    plan = replace(setup.plan, drop_last=weights.drop_last)
    return replace(setup, memories=(*setup.memories, memory), plan=plan)


def _require_vectors(method: str, setup: Setup, neighbours: NeighbourOptions) -> None:
    from subtext.models.heads.gaussian import Gaussian

    if not neighbours.graph:
        raise RecipeError(
            f"{method} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    # The samples of a distribution, or its mean, are vectors, whatever compares them.
    gaussian = all(isinstance(branch.head, Gaussian) for branch in (setup.model.image, setup.model.text))
    if not setup.model.indexable and not gaussian:
        raise RecipeError(
            f"{method} needs a model whose items are vectors; {type(setup.model.similarity).__name__} scores pairs; "
            "choose another model"
        )


def _require_views(method: str, setup: Setup, neighbours: NeighbourOptions, comparison: DiscrepancyOptions) -> None:
    several = max(map(_views, (setup.model.image, setup.model.text)))
    default = NeighbourOptions()
    if several == 1 and (neighbours.views, neighbours.samples) != (default.views, default.samples):
        name = "views" if neighbours.views != default.views else "samples"
        raise RecipeError(
            f"{method}: {name} needs a model with several views of an item (pvse, views above 1; pcme); this one has "
            f"one; leave {name} out"
        )
    if several > 1 and neighbours.views == "max":
        wrong = [name for name, values in _LINEAR.items() if getattr(comparison, name) in values]
        if wrong:
            raise RecipeError(
                f"{method}: {wrong[0]}={getattr(comparison, wrong[0])} needs views=mean or aligned, where a model has "
                "several views of an item; views is max; change one of them"
            )


_LINEAR: dict[str, tuple[Any, ...]] = {"second_order": ("unique",), "average": ("lists",), "use_current": (True,)}
"""What needs scores that are sums: option -> values."""


def _views(branch: Branch) -> int:
    from subtext.models.heads.gaussian import Gaussian
    from subtext.models.heads.pie import Pie

    if isinstance(branch.head, Gaussian):
        return branch.head.draws or 1
    return int(branch.head.outer.out_features) if isinstance(branch.head, Pie) else 1
