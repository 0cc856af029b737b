"""`subtext score`: does this picture support this text? Similarity, probability and looseness of given pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from subtext.api.curate import embedded, graph_of
from subtext.api.load import Opened, Work, open_work
from subtext.curation.judged import FEWEST, kinds_of_pairs
from subtext.data.atomic import require_file, write_text
from subtext.errors import RequirementError, counted
from subtext.report.text_table import Cell, table
from subtext.search.growing import require_model
from subtext.search.stores.calibration import Calibration
from subtext.search.stores.opened import open_store

SHOWN = 20
"""Pairs that the table shows; a file holds all."""
WIDTH = 60


def score(work: Work, *, index: Path | str | None, graph: Path | None, out: Path | None, as_json: bool) -> str:
    """Score the pairs of a data set by a run, in words, as JSON, or into a file of JSON lines.

    index  of the same model, calibrated: its probabilities are taken

    Raises what opening and reading raise, RequirementError for an index that is not calibrated, IndexError_ for one of
    another model.
    """
    if out is not None:
        require_file(out)
    opened = open_work(work).indexed("score pairs")
    calibration = None if index is None else _calibration(index, opened)
    rows = scored(opened, work, calibration=calibration, graph=graph)
    note = _note(len(rows), calibration)
    if out is not None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(out, text, errors="surrogateescape")
        return f"{out}: {counted(len(rows), 'pair')}; {note}"
    if as_json:
        return json.dumps({"run": str(work.run), "note": note, "pairs": rows}, indent=2, ensure_ascii=False)
    return "\n".join([_table(rows), note])


def scored(opened: Opened, work: Work, *, calibration: Calibration | None, graph: Path | None) -> list[dict[str, Any]]:
    """A row a pair: names, words, similarity, probability, looseness; None for what cannot be said.

    similarity   cosine of the views that fit best; what an index of the model gives (`Model.indexed`)
    probability  that the pair is right, where as many pairs are right as are put together by chance
    looseness    1 - P(literal), and the kind, by how the pair lies among the others
    picture_uncertainty, text_uncertainty   of a probabilistic model alone, as `subtext embed` writes them
    """
    pairs = opened.pairs
    images, texts = embedded(opened, work)
    many = len(pairs.links) >= FEWEST
    near = graph_of(pairs, graph, quiet=work.quiet) if many else None
    columns, _ = kinds_of_pairs(pairs, images, texts, graph=near)
    likely = None if calibration is None else calibration.curve
    spread = opened.model.image.uncertainty(images), opened.model.text.uncertainty(texts)
    rows = []
    for place, (image, text) in enumerate(pairs.links.tolist()):
        cosine, literal = columns["cosine"][place], columns["literal"][place]
        sides = ("picture", image, spread[0]), ("text", text, spread[1])
        words = pairs.texts.values[text]
        path = pairs.images.values[image]
        rows.append(
            {
                "picture": pairs.images.ids[image],
                "path": path if isinstance(path, str) else None,
                "text": pairs.texts.ids[text],
                "caption": words if isinstance(words, str) else None,
                "similarity": cosine,
                "probability": None if likely is None else _at(likely, cosine),
                "looseness": None if literal is None else 1 - literal,
                "kind": columns["kind"][place],
                **{f"{name}_uncertainty": float(own[row]) for name, row, own in sides if own is not None},
            }
        )
    return rows


def _at(curve: Any, value: float) -> float:
    import numpy as np

    return float(curve(np.array([value]))[0])


def _calibration(index: Path | str, opened: Opened) -> Calibration:
    store = open_store(index)
    require_model(store.manifest, opened.model)
    found = store.calibration()
    if found is None:
        raise RequirementError(
            f"a probability needs an index that is calibrated; {store.path} is not; calibrate it (subtext index "
            "calibrate), or leave --index out"
        )
    return found


def _note(count: int, calibration: Calibration | None) -> str:
    likely = (
        "probability: that a pair is right, were half of all put together by chance (calibration error "
        f"{calibration.pairs['calibration_error']:.3f})"
        if calibration is not None
        else "no probabilities: name an index that is calibrated (--index)"
    )
    kinds = (
        "looseness: 1 - probability of being literal, among these pairs"
        if count >= FEWEST
        else f"nothing is said of looseness: that needs {FEWEST} pairs to lie among"
    )
    return f"{likely}; {kinds}"


def _table(rows: list[dict[str, Any]]) -> str:
    body: list[list[Cell]] = []
    for row in rows[:SHOWN]:
        words = str(row["caption"] or row["text"])
        figures = [row[name] for name in ("similarity", "probability", "looseness")]
        told = ["-" if value is None else f"{value:.3f}" for value in figures]
        short = words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
        body.append([row["path"] or row["picture"], *told, row["kind"] or "-", short])
    more = [f"and {len(rows) - SHOWN:,} more; --json or --out FILE has them all"] if len(rows) > SHOWN else []
    return "\n".join([table(["picture", "similarity", "probability", "looseness", "kind", "text"], body), *more])
