"""`subtext.score`: does the image support the text? Similarity, probability and alignment of given pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from subtext.api.options import (
    BatchSize,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Run,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)
from subtext.errors import RequirementError, counted

if TYPE_CHECKING:
    import pandas

    from subtext.api.load import Opened, Work
    from subtext.search.stores.manifest import Calibration

SHOWN = 20
"""Pairs that the table shows; a file holds all."""
WIDTH = 60


@dataclass(frozen=True)
class PairScores:
    """The scores of pairs, a row each; see `score` for the columns.

    note  how probabilities and looseness are meant       path  the file that holds them; None where none was written
    """

    run: str
    rows: list[dict[str, Any]]
    note: str
    path: Path | None = None

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows."""
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"PairScores({counted(len(self.rows), 'pair')})"

    def __str__(self) -> str:
        if self.path is not None:
            return f"{self.path}: {counted(len(self.rows), 'pair')}; {self.note}"
        return f"{_table(self.rows)}\n{self.note}"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"run": self.run, "note": self.note, "pairs": self.rows}

    def to_frame(self) -> pandas.DataFrame:
        """A row per pair. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows)

    def _repr_html_(self) -> str:
        """The first rows as a table, for a notebook."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


@verb
def score(
    pairs: Annotated[str | Path, "Pairs to score: a data set.", Metavar("PAIRS")],
    *,
    run: Run,
    index: Annotated[
        str | Path | None, "Calibrated index of that model, for probabilities.", Metavar("INDEX"), Section("Model")
    ] = None,
    graph: Annotated[
        str | Path | None, "Neighbours of the texts. Default: built from their words.", Section("Model")
    ] = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Annotated[str, "Split to score; all for the complete set.", Section("Data")] = "all",
    out: Annotated[str | Path | None, "Write all pairs as JSON lines.", Metavar("FILE"), Section("Output")] = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> PairScores:
    """Score given pairs of an image and a text: does the image support the text?

    Similarity is the cosine. A calibrated index of the model gives the probability that a pair is right, if half of all
    pairs were put together at random. Looseness is 1 - P(literal), compared with the other pairs; it needs fifty pairs
    or more.

    Raises RequirementError for an index that is not calibrated, IndexError_ for one of another model, and what loading
    the run and reading the data raise.
    """
    from dataclasses import replace

    from subtext.api.load import Sources, Work, open_work
    from subtext.data.atomic import require_file, write_text

    path = None if out is None else Path(out).expanduser()
    if path is not None:
        require_file(path)
    sources = Sources.of(pairs, images, features, text_features, split_seed, on_error)
    work = Work(Path(run), None, sources, split, device, batch_size, workers, quiet)
    opened = open_work(work).indexed("score pairs")
    calibration = None if index is None else _calibration(index, opened)
    rows = scored(opened, work, calibration=calibration, graph=None if graph is None else Path(graph))
    result = PairScores(str(run), rows, _note(len(rows), calibration))
    if path is None:
        return result
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(path, text, errors="surrogateescape")
    return replace(result, path=path)


def scored(opened: Opened, work: Work, *, calibration: Calibration | None, graph: Path | None) -> list[dict[str, Any]]:
    """A row a pair: names, words, similarity, probability, looseness; None for what cannot be said.

    similarity   cosine of the views that fit best; what an index of the model gives (`Model.indexed`)
    probability  that the pair is right, where as many pairs are right as are put together by chance
    looseness    1 - P(literal), and the kind, by how the pair lies among the others
    picture_uncertainty, text_uncertainty   of a probabilistic model alone, as `subtext embed` writes them
    """
    import numpy as np

    from subtext.api.curate import embedded, graph_of
    from subtext.curation.judged import FEWEST, kinds_of_pairs

    pairs = opened.pairs
    images, texts = embedded(opened, work)
    has_many = len(pairs.links) >= FEWEST
    neighbours = graph_of(pairs, graph, quiet=work.quiet) if has_many else None
    columns, _ = kinds_of_pairs(pairs, images, texts, graph=neighbours)
    likely = None if calibration is None else calibration.curve
    spread = opened.model.image.uncertainty(images), opened.model.text.uncertainty(texts)
    rows = []
    for index, (image, text) in enumerate(pairs.links.tolist()):
        cosine, literal = columns["cosine"][index], columns["literal"][index]
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
                "probability": None if likely is None else float(likely(np.array([cosine]))[0]),
                "looseness": None if literal is None else 1 - literal,
                "kind": columns["kind"][index],
                **{f"{name}_uncertainty": float(values[row]) for name, row, values in sides if values is not None},
            }
        )
    return rows


def _calibration(index: Path | str, opened: Opened) -> Calibration:
    from subtext.search.build import require_model
    from subtext.search.stores.store import open_store

    store = open_store(index)
    require_model(store, store.manifest, opened.model)
    calibration = store.calibration()
    if calibration is None:
        raise RequirementError(
            f"a probability needs an index that is calibrated; {store.path} is not; calibrate it (subtext index "
            "calibrate), or leave --index out"
        )
    return calibration


def _note(count: int, calibration: Calibration | None) -> str:
    from subtext.curation.judged import FEWEST

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
    from subtext.report.text_table import Cell, table

    body: list[list[Cell]] = []
    for row in rows[:SHOWN]:
        words = str(row["caption"] or row["text"])
        figures = [row[name] for name in ("similarity", "probability", "looseness")]
        cells = ["-" if value is None else f"{value:.3f}" for value in figures]
        short = words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
        body.append([row["path"] or row["picture"], *cells, row["kind"] or "-", short])
    note = [f"and {len(rows) - SHOWN:,} more; --json or --out FILE has them all"] if len(rows) > SHOWN else []
    return "\n".join([table(["picture", "similarity", "probability", "looseness", "kind", "text"], body), *note])
