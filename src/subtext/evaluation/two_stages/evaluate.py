"""Evaluation of two models together: the first lists candidates, and the second orders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.evaluate import Metrics, evaluate_gallery
from subtext.evaluation.gallery import Gallery, gallery_of
from subtext.evaluation.metric import Measure
from subtext.evaluation.metrics import BestRank, metrics_of
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.result import Result
from subtext.evaluation.scoring import Embedded
from subtext.evaluation.two_stages.scores import TwoStage
from subtext.evaluation.two_stages.sweep import costs, sweep, sweep_text

_ROUNDING = (
    "two stages: the second model's scores may differ from those of scoring every pair by 1e-6 of their size (of an "
    "IMRAM with texts of one word: by up to 1e-4), and so may ranks that hang on less"
)


class RankingStage(NamedTuple):
    """A model's similarity, and its embeddings of all images and texts."""

    similarity: nn.Module
    images: Embeddings
    texts: Embeddings


def evaluate_two_stages(
    first: RankingStage,
    second: RankingStage,
    pairs: Dataset | Gallery,
    *,
    candidates: Sequence[int] = (100,),
    metrics: Metrics = None,
    protocol: Protocol | None = None,
) -> Result:
    """Measure how well two models together find partners: the first lists candidates, and the second orders them.

    A partner that is not among the candidates stands behind them all, where the first stage has it. What the second
    model scored, and what was missed, is under "two_stage" in `Result.about`; that of extra sizes of folds stands
    there by itself, as every set of folds has lists of its own. The loss is that of the first set.

    Args:
        first: The model that lists candidates.
        second: The model that orders them.
        pairs: A data set, or a gallery where metrics need more than its pairs.
        candidates: How many a query; several make a sweep, for which the second model scores every pair once, so that
            the loss of each number against that is reported. Figures are those of the largest number.
        metrics: What is measured; None for recall at 1, 5 and 10, ranks and ties. The mean rank is always measured, as
            it says which partners were missed.
        protocol: How; None for the default one.

    Returns:
        Figures with intervals and notes; `Result.sections` has the table of a sweep.

    Raises:
        RequirementError: If there is no candidate to list, for a first stage whose vectors do not decide the score, and
            for people's judgements, which compare scores of different queries.
        ShapeError: For embeddings of other items.

    Complexity:
        The first model's similarity of all pairs twice, and the second's of the pairs that are listed.
    """
    protocol, chosen, counts = protocol or Protocol(), metrics_of(metrics), sorted(set(candidates))
    gallery = pairs if isinstance(pairs, Gallery) else gallery_of(pairs)
    require_plan(counts, chosen)
    if not any(isinstance(metric, BestRank) for metric in chosen):
        chosen.append(BestRank())
    if not first.similarity.indexable:
        raise RequirementError(
            f"a first stage needs a model whose vectors decide the score; {type(first.similarity).__name__} scores "
            "pairs; take a dual encoder first, and this one second"
        )
    for stage in (first, second):
        sizes = (len(stage.images), len(stage.texts))
        if sizes != gallery.shape:
            raise ShapeError(
                f"two stages need embeddings of {gallery.shape[0]} images and {gallery.shape[1]} texts; it got {sizes}"
            )
    fast, two = (Embedded(*stage, exact=protocol.exact) for stage in (first, second))
    every = two.stored() if len(counts) > 1 else None
    plan = TwoStage(fast, two, candidates=counts[-1], most=counts[-1], every=every)
    result = evaluate_gallery(plan, gallery, metrics=chosen, protocol=protocol)
    stages = costs(plan, result, gallery, protocol)
    sections: tuple[str, ...] = ()
    if every is not None:
        stages |= sweep(plan, every, counts, gallery, chosen, replace(protocol, bootstrap=0))
        sections = tuple(sweep_text(stages))
    return replace(
        result,
        about={**result.about, "two_stage": stages},
        notes=(*_notes(stages), *result.notes),
        sections=(*result.sections, *sections),
    )


def require_plan(candidates: Sequence[int], metrics: Sequence[Measure]) -> None:
    """Check what two stages cannot do, before either model has embedded anything.

    Args:
        candidates: How many a query.
        metrics: What is to be measured.

    Raises:
        RequirementError: If there are no candidates, or a metric compares scores of different queries.
    """
    if not candidates or min(candidates) < 1:
        raise RequirementError(f"two stages need 1 candidate a query or more; it got {list(candidates)}")
    if any(metric.truth == "ratings" for metric in metrics):
        raise RequirementError("people's scores need one model's; two stages order each query by itself; leave one out")


def _notes(stages: Mapping[str, Any]) -> list[str]:
    """What each set of folds cost and missed."""
    more_folds = stages.get("also_folds", {})
    notes = []
    for cost in (stages, *more_folds.values()):
        missed, share, folds = cost["missed"], cost["share_of_pairs"], cost["folds"]
        folds_label = "whole" if folds == 1 else f"{folds} folds"
        subject = "two stages" if folds == 1 and not more_folds else f"two stages, {folds_label}"
        notes += [
            f"{subject}: the second model scored {cost['pairs']['together']:,} pairs, {100 * share['together']:.1f} % "
            f"of all{' within a fold' if folds > 1 else ''} (1 in {1 / share['image_to_text']:.0f} for images, "
            f"1 in {1 / share['text_to_image']:.0f} for texts)",
            f"{subject}: {missed['image_to_text']:.1f} % of images and {missed['text_to_image']:.1f} % of texts have "
            "no correct partner among the candidates; they count as misses",
        ]
    # A sweep takes its scores from those of every pair.
    return notes if "sweep" in stages else [*notes, _ROUNDING]
