"""`subtext.build_neighbours` and `show_neighbours`: the graph of semantic neighbours of a data set's texts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.load import choose_device
from subtext.api.options import AnyPath, Device, Images, OnError, Quiet, SplitSeed
from subtext.data.config import DataConfig
from subtext.data.objects import Rows
from subtext.errors import ArgumentError, DataError, Setting
from subtext.report.progress import meter
from subtext.report.text_table import Cell, Report, shortened, table
from subtext.settings import Interval, Metavar, OptionGroup, command

if TYPE_CHECKING:
    import pandas

    from subtext.data.dataset import Dataset
    from subtext.evaluation.checks.graph_quality import Quality
    from subtext.graphs.graph import Graph
    from subtext.report.page import HtmlPage

_WIDTH = 72
"""Longest text in a cell of the table."""

_GRAPH = OptionGroup("Graph")
_SPACE = OptionGroup("Space")
_DATA = OptionGroup("Data")
_OUTPUT = OptionGroup("Output")


@dataclass(frozen=True, repr=False)
class NeighbourGraph(Report):
    """A graph, and its folder.

    Attributes:
        graph: The graph.
        path: Its folder.
    """

    graph: Graph
    path: Path

    def _lines(self) -> list[str]:
        command = f"subtext neighbours show {shlex.quote(str(self.path))} --item {shlex.quote(self.graph.ids[0])}"
        return [f"{self.path}: {_summary(self.graph)}", "next:", f"  {command}"]

    def __fspath__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the folder, the space and the settings.

        Returns:
            Plain JSON values.
        """
        graph = self.graph
        about = {"texts": len(graph), "neighbours": graph.width, "fingerprint": graph.fingerprint}
        return {"graph": str(self.path), **about, "space": graph.space, "settings": graph.settings}


@command
def build_neighbours(
    out: Annotated[str | Path, "New folder for the graph.", _GRAPH, Metavar("OUT")],
    *,
    space: Annotated[
        str, "doc2vec, lsa, sentence:NAME, features:FILE (of images) or text-features:FILE.", _GRAPH, Metavar("SPACE")
    ] = "doc2vec",
    neighbours: Annotated[int, "Neighbours per text.", Interval(1), _GRAPH] = 200,
    search: Annotated[Literal["exact", "approximate"], "Compare all texts, or search an HNSW graph.", _GRAPH] = "exact",
    same_image: Annotated[Literal["drop", "keep"], "keep: texts of the same image can be neighbours.", _GRAPH] = "drop",
    distance: Annotated[Literal["l2", "cosine"] | None, "Distance. Default: that of the space.", _GRAPH] = None,
    dim: Annotated[int | None, "doc2vec, lsa: dimensions. Default: 200.", Interval(1), _SPACE] = None,
    min_count: Annotated[
        int | None, "doc2vec: drop rarer words; use less for small data. Default: 20.", Interval(1), _SPACE
    ] = None,
    doc2vec_epochs: Annotated[
        int | None, "doc2vec: epochs. Default: 50, or 20 from 150,000 texts on.", Interval(1), _SPACE
    ] = None,
    max_sentences: Annotated[
        int | None, "doc2vec: read only the first N sentences of each text.", Interval(1), _SPACE
    ] = None,
    seed: Annotated[int | None, "doc2vec, lsa: seed. Default: 0.", _SPACE] = None,
    device: Device = "auto",
    data: Annotated[str | Path | Dataset | Rows, "Data set: a file or folder.", _DATA],
    images: Images = None,
    split: Annotated[str, "Split whose texts get neighbours, or all.", _DATA] = "train",
    candidate_split: Annotated[
        str | None, "Split whose texts can be neighbours. Default: --split; train if --split is all.", _DATA
    ] = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    quiet: Quiet = False,
) -> NeighbourGraph:
    """Find the nearest texts of every text in a semantic space, and write them to the new folder OUT.

    A text is never a neighbour of itself or of an identical text, nor (by default) of another text of its image.
    Neighbours are texts of --candidate-split.

    Args:
        out: New folder for the graph.
        space: doc2vec, lsa, sentence:NAME, features:FILE (of images) or text-features:FILE.
        neighbours: Neighbours per text.
        search: Compare all texts, or search an HNSW graph.
        same_image: keep: texts of the same image can be neighbours.
        distance: Distance. Default: that of the space.
        dim: doc2vec, lsa: dimensions. Default: 200.
        min_count: doc2vec: drop rarer words; use less for small data. Default: 20.
        doc2vec_epochs: doc2vec: epochs. Default: 50, or 20 from 150,000 texts on.
        max_sentences: doc2vec: read only the first N sentences of each text.
        seed: doc2vec, lsa: seed. Default: 0.
        device: cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.
        data: Data set: a file or folder.
        images: Folder of relative image paths.
        split: Split whose texts get neighbours, or all.
        candidate_split: Split whose texts can be neighbours. Default: --split; train if --split is all.
        split_seed: Seed of the 80-10-10 split of data without splits.
        on_error: What to do with rows that cannot be used.
        quiet: Show no progress.

    Returns:
        The graph and its folder.

    Raises:
        ArgumentError: If an option belongs to another space.
        DataError: If OUT is not empty; also raises the errors of reading the data, the space and the graph.
    """
    from subtext.graphs.build import GraphOptions, build_graph, open_space
    from subtext.version import __version__

    path = Path(out).expanduser()
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"a graph needs a new or empty folder; {path} is not empty; name another or remove it")
    chosen: dict[str, Any] = {"dim": dim, "min_count": min_count, "max_sentences": max_sentences}
    chosen |= {"epochs": doc2vec_epochs, "seed": seed}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    kind = space.partition(":")[0]
    if kind != "doc2vec" and (unread := chosen.keys() - ({"dim", "seed"} if kind == "lsa" else set())):
        option = min(unread).replace("epochs", "doc2vec_epochs")
        raise ArgumentError(f"{option} belongs to another space; {kind} does not read it", field=option)
    opened = open_space(space, device=choose_device(device), **chosen)
    sources = DataConfig.of(data, images, split_seed=split_seed, on_error=on_error)
    pairs = sources.read().split(split)
    total = len(pairs.texts)
    candidates = candidate_split or ("train" if split == "all" else split)
    with meter("placing texts", total, quiet=quiet) as placed, meter("comparing texts", total, quiet=quiet) as compared:
        graph = build_graph(
            pairs,
            opened,
            GraphOptions(neighbours, candidates, search, same_image, distance),
            source={**sources.to_json(), "split": split, "version": __version__},
            on_embedded=placed,
            on_compared=compared,
        )
    graph.save(path)
    return NeighbourGraph(graph, path)


@dataclass(frozen=True, repr=False)
class NeighbourReport(Report):
    """A graph, its quality, and the neighbours of one text.

    Attributes:
        graph: The graph.
        path: Its folder.
        quality: Measure -> percentages and means of neighbours and of random pairs.
        item: The text whose neighbours were requested: id, text and image; None for the graph alone.
        neighbours: The same fields for its neighbours, with their distance, nearest first.
        html: The page; None if none was written.
        warnings: What limits the report.
    """

    graph: Graph
    path: Path
    quality: Sequence[Quality]
    item: Mapping[str, Any] | None
    neighbours: Sequence[Mapping[str, Any]]
    html: Path | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data.

        Returns:
            Plain JSON values; "hits" has the neighbours of the item.
        """
        return {
            **NeighbourGraph(self.graph, self.path).to_json(),
            "short": int((self.graph.counts < self.graph.width).sum()),
            "quality": {quality.judge: asdict(quality) for quality in self.quality},
            "item": self.item,
            "hits": list(self.neighbours),
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the neighbours. Needs pandas.

        Returns:
            A row per neighbour: id, text, image, distance.
        """
        from subtext.data.dataset import frame

        return frame(self.neighbours)

    def _lines(self) -> list[str]:
        lines = [f"{self.path}: {_summary(self.graph)}", *map(_described_quality, self.quality)]
        if self.item is not None:
            lines.append(f"{self.item['id']}: {self.item['text']}")
            rows: list[list[Cell]] = [
                [str(rank), f"{entry['distance']:.3f}", shortened(entry["text"] or "-", _WIDTH), entry["image"]]
                for rank, entry in enumerate(self.neighbours, start=1)
            ]
            lines.append(table(["", "distance", "text", "image"], rows) if rows else "it has no neighbours")
        return [*lines, *([f"page: {self.html}"] if self.html is not None else [])]


@command
def show_neighbours(
    graph: Annotated[AnyPath, "Folder of a graph.", _GRAPH, Metavar("GRAPH")],
    *,
    data: Annotated[str | Path | Dataset | Rows | None, "Data set of the graph, if it was moved.", _DATA] = None,
    images: Images = None,
    item: Annotated[str | None, "Id of a text, or of an image (its first text).", _OUTPUT, Metavar("ID")] = None,
    top: Annotated[int, "Neighbours to show.", Interval(1), _OUTPUT] = 10,
    html: Annotated[str | Path | None, "Write a page with the images.", _OUTPUT, Metavar("FILE")] = None,
) -> NeighbourReport:
    """Report the quality of a graph, and show the neighbours of an item.

    The quality is the share of neighbours that are related by other measures (cosine of TF-IDF, CIDEr-D), compared with
    random pairs. If the data set was moved, name it with --data.

    Args:
        graph: Folder of a graph.
        data: Data set of the graph, if it was moved.
        images: Folder of relative image paths.
        item: Id of a text, or of an image (its first text).
        top: Neighbours to show.
        html: Write a page with the images.

    Returns:
        The quality of the graph and the neighbours of the item.

    Raises:
        DataError: If the graph or its data cannot be read or do not belong together, or no item has that id.
    """
    from subtext.data.atomic import write_text
    from subtext.evaluation.checks.graph_quality import CIDERD, TFIDF, graph_quality
    from subtext.graphs.graph import Graph
    from subtext.report.page import render

    path = Path(graph).expanduser()
    loaded = Graph.load(path)
    sources = DataConfig.of(data, images).over(DataConfig.from_json(loaded.source))
    if sources.data is None:
        raise DataError(
            f"{path} does not name its data set: it was in memory; pass it, or its file (", Setting("data", "DATA"), ")"
        )
    pairs = sources.read().split(str(loaded.source.get("split", "all")))
    loaded.require(pairs.texts)
    qualities: list[Quality] = []
    warnings: tuple[str, ...] = ()
    try:
        qualities = [graph_quality(loaded, pairs.texts, judge) for judge in (TFIDF, CIDERD)]
    except DataError as error:
        warnings = (f"the quality of the graph is not measured: {error}",)
    entry, neighbours = None, []
    if item is not None:
        if item in pairs.texts.ids:
            row = pairs.texts.ids.index(item)
        elif item in pairs.images.ids and (pairs.links[:, 0] == pairs.images.ids.index(item)).any():
            row = int(pairs.links[pairs.links[:, 0] == pairs.images.ids.index(item), 1][0])
        else:
            ids = f"{pairs.texts.ids[0]!r}, {pairs.images.ids[0]!r}"
            raise DataError(
                f"item needs a text or an image of the graph's data; '{item}' is neither; examples: {ids}", field="item"
            )
        entry = _entry(pairs, row)
        hits = zip(loaded.neighbours[row], loaded.distances[row], strict=True)
        neighbours = [{**_entry(pairs, int(text)), "distance": float(gap)} for text, gap in hits if text >= 0][:top]
    target = None if html is None else Path(html).expanduser()
    report = NeighbourReport(loaded, path, qualities, entry, neighbours, target, warnings)
    if target is not None:
        write_text(target, render(_page(report, pairs)))
    return report


def _summary(graph: Graph) -> str:
    counts = graph.counts
    short = int((counts < graph.width).sum())
    lists = f"{graph.width} neighbours each"
    if short:
        without = int((counts == 0).sum())
        lists += f", {short:,} of them fewer ({without:,} none{', without a vector in the space' if without else ''})"
    settings = graph.settings
    return (
        f"{len(graph):,} texts, {lists}, by {settings['distance']} in {graph.space['name']}, {settings['search']}, "
        f"among {settings['candidate_split']}"
    )


def _entry(pairs: Dataset, row: int) -> dict[str, Any]:
    """A text: its id, its words and its image."""
    from subtext.graphs.graph import image_of_text

    image = int(image_of_text(pairs)[row])
    words = pairs.texts.values[row]
    return {
        "id": pairs.texts.ids[row],
        "text": words if isinstance(words, str) else None,
        "image": None if image < 0 else pairs.images.ids[image],
    }


def _described_quality(quality: Quality) -> str:
    return (
        f"related by {quality.judge} of {quality.related:g} or more: {quality.neighbours:.1f} % of neighbours, "
        f"{quality.random:.1f} % of random pairs ({quality.pairs:,} of each)"
    )


def _page(report: NeighbourReport, pairs: Dataset) -> HtmlPage:
    from subtext.data.image_files import thumbnail
    from subtext.report.page import Figure, HtmlPage, PageHit, PageSearch, PageSection

    value_of = dict(zip(pairs.images.ids, pairs.images.values, strict=True))

    def card(entry: Mapping[str, Any], distance: float, *, is_query: bool = False) -> PageHit:
        source = value_of.get(entry["image"])
        image = None if source is None else thumbnail(source, pairs.root)
        return PageHit(entry["text"] or entry["id"], distance, image, notes=[entry["id"]], right=is_query)

    sections = []
    if report.item is not None:
        cards = [card(report.item, 0.0, is_query=True)]
        cards += [card(entry, entry["distance"]) for entry in report.neighbours]
        query = report.item["text"] or report.item["id"]
        search = PageSearch(query, cards, "The first is the text itself; the number is the distance.")
        sections.append(PageSection("Neighbours of a text", "Each with its image.", [search]))
    return HtmlPage(
        title=f"Neighbours in {report.path.name}",
        lead=_summary(report.graph),
        verdict="; ".join(map(_described_quality, report.quality)),
        figures=[Figure(f"related by {q.judge}", q.neighbours, q.random) for q in report.quality],
        figures_text="The orange line is the share of random pairs of texts.",
        sections=sections,
        facts=[(name, str(value)) for name, value in {**report.graph.space, **report.graph.settings}.items()],
    )
