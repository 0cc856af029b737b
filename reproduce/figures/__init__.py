"""Published figures: `figure` draws one of a data set, of runs, or of any model's scores or vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from subtext.api.options import DEFAULTS, DataOptions, Json, Seed, Split
from subtext.settings import Commas, Flag, Interval, Metavar, OptionGroup, Shown, command

if TYPE_CHECKING:
    from reproduce.command import Text
    from reproduce.figures.config import Figure


@command(defaults=DEFAULTS)
def figure(
    name: Annotated[str | None, "A figure's name.", OptionGroup("Figure"), Metavar("NAME")] = None,
    systems: Annotated[
        tuple[str, ...], "Runs, or files of scores or vectors.", OptionGroup("Figure"), Metavar("[[NAME=]PATH ...]")
    ] = (),
    *,
    list_figures: Annotated[bool, "List figures and what each needs.", Flag("--list"), OptionGroup("Figure")] = False,
    split: Split = None,
    relevance: Annotated[str, "A relevance, as for subtext evaluate.", OptionGroup("Relevance")] = "tfidf1",
    references: Annotated[
        int | None, "Texts that represent an image, the first N. Default: all.", Interval(1), OptionGroup("Relevance")
    ] = None,
    cache: Annotated[
        str | Path | None, "Folder that stores matrices of relevance.", OptionGroup("Relevance"), Metavar("FOLDER")
    ] = None,
    asp_ties: Annotated[
        Literal["ordinal", "min", "average"], "Ranks of equal values in ASP.", OptionGroup("Relevance")
    ] = "ordinal",
    item: Annotated[
        str | None, "Id of the query image or text (1a, 1c). Default: sampled.", OptionGroup("Figure contents")
    ] = None,
    direction: Annotated[
        Literal["text_to_image", "image_to_text"], "Direction of the query (1c).", OptionGroup("Figure contents")
    ] = "text_to_image",
    count: Annotated[
        int | None, "Length of the lists.", Interval(1), OptionGroup("Figure contents"), Shown("1a: 10, 1c: 100")
    ] = None,
    thresholds: Annotated[
        tuple[float, ...],
        "Thresholds (1b). Default: 20 even steps.",
        Commas(),
        Metavar("X,X,..."),
        OptionGroup("Figure contents"),
    ] = (),
    tops: Annotated[
        tuple[int, ...],
        "Values of N (3). Default: twentieths of the gallery.",
        Interval(1),
        Commas(),
        Metavar("N,N,..."),
        OptionGroup("Figure contents"),
    ] = (),
    seed: Seed = 0,
    out: Annotated[
        str | Path | None, "A page, .html; of curves also .svg.", OptionGroup("Output"), Metavar("FILE")
    ] = None,
    json: Json = None,
    **options: Unpack[DataOptions],
) -> Figure | Text:
    """Draw a figure of a paper from your own data, runs, or any model's scores or vectors.

    A system is the folder of a run, or a file of scores or of both sides' vectors with ids (npz, npy, safetensors,
    parquet); NAME= sets its name in the figure. The written page or drawing is self-contained.

    Raises ArgumentError for an unknown figure; RequirementError for systems that do not fit the figure; OutputError for
    a file that cannot be written; these before the work begins. Raises what reading and scoring raise.
    """
    from reproduce.figures.catalogue import FIGURES, OTHERS, listing
    from subtext.errors import ArgumentError
    from subtext.settings import did_you_mean

    if list_figures:
        from reproduce.command import Text

        return Text(listing())
    if name is None:
        raise ArgumentError("name a figure; --list shows the figures")
    if name in OTHERS:
        raise ArgumentError(f"{name} needs another command: {OTHERS[name].command}")
    if name not in FIGURES:
        raise ArgumentError(did_you_mean("figure", name, FIGURES))

    from reproduce.figures.config import FigureConfig, labelled
    from reproduce.figures.make import make

    config = FigureConfig(
        name=name,
        systems=tuple(labelled(text) for text in systems),
        split=split,
        options=options,
        out=None if out is None else Path(out),
        json=None if json is None or str(json) == "-" else Path(json),
        relevance=relevance,
        references=references,
        cache=None if cache is None else Path(cache),
        asp_ties=asp_ties,
        item=item,
        direction=direction,
        count=count,
        thresholds=thresholds,
        tops=tops,
        seed=seed,
    )
    return make(config)
