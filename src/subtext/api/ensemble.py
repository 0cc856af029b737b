"""`subtext ensemble`: several runs as one, whose scores are the mean of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext.api.load import open_run, save_pretrained
from subtext.errors import RecipeError, counted
from subtext.models.checkpoint import Record, require_new_folder
from subtext.models.ensemble import ensemble as joined
from subtext.recipes.load import record_of


def ensemble(runs: Sequence[Path], out: Path) -> str:
    """Write the ensemble of these runs as a run of its own, and say what can be done with it.

    Raises CheckpointError when `out` holds something or a run cannot be opened; RecipeError for runs that cannot be
    joined.
    """
    require_new_folder(out, "an ensemble")
    opened = [open_run(run) for run in runs]
    record = record_of(runs, [run.record for run in opened])
    model = joined([run.model for run in opened])
    if not model.indexable:
        _require_width([run.record for run in opened])
    save_pretrained(model, record, out)
    use = "its vectors decide the score: it can fill an index" if model.indexable else "it scores pairs, as its members"
    hosts = ", ".join(run.record.host for run in opened)
    return f"{out}: the mean of {counted(len(opened), 'run')} ({hosts}); {use}\nnext:\n  subtext evaluate {out}"


def _require_width(records: Sequence[Record]) -> None:
    """Raise RecipeError for models of pairs whose regions and words are not equally wide in all of them."""
    widths = [record.arguments.get("width") for record in records]
    if len(set(widths)) > 1:
        raise RecipeError(
            f"an ensemble of models of pairs needs one width; these have {', '.join(map(str, widths))}; train them "
            "with the same --width"
        )
