"""The results of two runs for the same queries, side by side: `compare` writes one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from subtext.api.options import (
    BatchSize,
    Data,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Range,
    Section,
    Seed,
    Split,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)

if TYPE_CHECKING:
    from reproduce.command import Text


@verb
def compare(
    first: Annotated[str | Path, "Folder of a run.", Section("Runs"), Metavar("FIRST")],
    second: Annotated[str | Path, "Folder of another run.", Section("Runs"), Metavar("SECOND")],
    *,
    out: Annotated[str | Path, "The page, HTML.", Section("Output"), Metavar("FILE")],
    word: Annotated[
        tuple[str, ...], "Query for images; repeatable. Default: sampled words.", Section("Gallery"), Metavar("TEXT")
    ] = (),
    count: Annotated[int, "Sampled words and images.", Range(1), Section("Gallery")] = 4,
    top: Annotated[int, "Results per query.", Range(1), Section("Gallery")] = 5,
    graph: Annotated[
        str | Path | None,
        "A graph of this split's texts (subtext neighbours build), for neighbours that moved together.",
        Section("Gallery"),
    ] = None,
    pairs: Annotated[int, "Pairs of neighbours sampled from the graph.", Range(2), Section("Gallery")] = 10_000,
    seed: Seed = 0,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Split = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Text:
    """Show the results of two runs for the same words and images, side by side.

    With --graph the page also shows, for each run, the neighbours that it moved together most in comparison with the
    other run: texts, and images of such texts, by the cosine of their embeddings in standard deviations above random
    pairs of the same run.

    Raises RequirementError when a run only scores pairs or the runs remember different data; what opening, reading and
    the graph raise.
    """
    from reproduce.command import Text
    from reproduce.gallery.page import GalleryConfig, write_page
    from subtext.api.load import Sources, Work

    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    works = tuple(Work(Path(run), None, sources, split, device, batch_size, workers, quiet) for run in (first, second))
    config = GalleryConfig(works, Path(out), word, count, top, None if graph is None else Path(graph), pairs, seed)
    return Text(write_page(config))
