"""`subtext.ensemble`: several runs as one, whose score of a pair is the mean of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from subtext.api.load import Run
from subtext.api.options import Metavar, Section, verb

if TYPE_CHECKING:
    from subtext.models.checkpoint import Record


@verb
def ensemble(
    runs: Annotated[tuple[str | Path, ...] | list[str], "Runs to join.", Section("Runs"), Metavar("RUN RUN ...")],
    *,
    out: Annotated[str | Path, "Folder of the ensemble; new, or empty.", Section("Output"), Metavar("RUN")],
) -> Run:
    """Average several runs in one run, an ensemble: its score of a pair is the mean of their scores.

    The published SGRAF averages a run of `sgraf --reasoning saf` and one of `sgraf --reasoning sgr`. The result is a
    run like any other: evaluate, audit, search --rerank, score, curate and distil take it. It holds copies of all
    weights. The runs must be trained on the same pairs, with the same vocabulary, features and embed_dim.

    Raises ArgumentError for fewer than two runs; CheckpointError when `out` is not empty or a run cannot be loaded;
    RecipeError for runs that cannot be joined.
    """
    from subtext.api.load import open_run, save_pretrained
    from subtext.errors import ArgumentError, counted
    from subtext.models.checkpoint import require_new_folder
    from subtext.models.ensemble import ensemble as join
    from subtext.recipes.build import ensemble_record

    if len(runs) < 2:
        raise ArgumentError("an ensemble needs two runs or more; name another")
    folder = Path(out).expanduser()
    require_new_folder(folder, "an ensemble")
    members = [open_run(run) for run in runs]
    record = ensemble_record([run.path for run in members], [run.record for run in members])
    model = join([run.model for run in members])
    if not model.indexable:
        _require_dimension([run.record for run in members])
    save_pretrained(model, record, folder)
    use = "its vectors decide the score: it can fill an index" if model.indexable else "it scores pairs, as its members"
    names = ", ".join(run.record.model for run in members)
    summary = (
        f"{folder}: the mean of {counted(len(members), 'run')} ({names}); {use}\nnext:\n  subtext evaluate {folder}"
    )
    return Run(model, record, folder, summary=summary)


def _require_dimension(records: Sequence[Record]) -> None:
    """Raise RecipeError for models of pairs whose regions and words have different dimensions."""
    from subtext.errors import RecipeError

    dimensions = [record.arguments.get("embed_dim") for record in records]
    if len(set(dimensions)) > 1:
        raise RecipeError(
            f"an ensemble of models of pairs needs one embed_dim; these have {', '.join(map(str, dimensions))}; train "
            "them with the same --embed-dim"
        )
