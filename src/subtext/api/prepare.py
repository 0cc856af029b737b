"""`subtext.check_dataset`, `prepare`, `dedup`, `corrupt` and `join_features`: data sets, checked or made."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.options import Columns, MaxPixels, Quiet, TextFields
from subtext.data.config import DataConfig
from subtext.data.objects import Arrays, Rows
from subtext.errors import ArgumentError, DataError, RequirementError, Setting
from subtext.report.progress import counter, meter
from subtext.report.text_table import Report
from subtext.settings import Interval, Metavar, OptionGroup, command
from subtext.text_helpers import counted

if TYPE_CHECKING:
    import pandas

    from subtext.curation.check import CheckReport
    from subtext.data.dataset import Dataset
    from subtext.data.noise import Planted, TextNeighbours
    from subtext.graphs.graph import Graph

Source = Annotated["str | Path | Dataset | Rows", "Data set: a file or folder.", OptionGroup("Data"), Metavar("DATA")]
Images = Annotated[str | Path | None, "Folder of relative image paths. Default: that of DATA.", OptionGroup("Data")]
SplitSeed = Annotated[int, "Seed of the 80-10-10 split of data without splits.", OptionGroup("Data")]
OnError = Annotated[Literal["raise", "skip"], "What to do with rows that cannot be used.", OptionGroup("Data")]
Out = Annotated[str | Path | None, "New .jsonl or .parquet file.", OptionGroup("Output"), Metavar("FILE")]
_RANKS = "1-20"


@command
def check_dataset(
    data: Source,
    *,
    images: Images = None,
    features: Annotated[
        str | Path | Arrays | None, "Image features: check that they cover DATA.", OptionGroup("Data")
    ] = None,
    text_features: Annotated[
        str | Path | Arrays | None, "Text features: check that they cover DATA.", OptionGroup("Data")
    ] = None,
    columns: Columns = None,
    text_fields: TextFields = None,
    split_seed: SplitSeed = 0,
    verify: Annotated[bool, "Decode every image.", OptionGroup("Check")] = False,
    on_error: Annotated[
        Literal["raise", "skip"], "raise: stop at rows that cannot be used; skip: leave them out.", OptionGroup("Check")
    ] = "raise",
    unmatched: Annotated[
        str | Path | None,
        "Write rows without a file and files without a row to this CSV file.",
        OptionGroup("Check"),
        Metavar("FILE"),
    ] = None,
    max_pixels: MaxPixels = None,
    quiet: Quiet = False,
) -> CheckReport:
    """Report the contents and problems of a data set, and whether it can be used for training, evaluation or an index.

    The exit code is 1 if the data cannot be used for any of these.

    DATA is a file or a folder. Files: JSON lines, CSV, Parquet, WebDataset tar, Karpathy's JSON. Folders: images alone,
    also in sub-folders; metadata.csv or metadata.jsonl with images; SCAN's precomputed features; corpus, queries and
    qrels; a release of COCO.

    Args:
        data: Data set: a file or folder.
        images: Folder of relative image paths. Default: that of DATA.
        features: Image features: check that they cover DATA.
        text_features: Text features: check that they cover DATA.
        columns: Columns of a table with other names: image=file,text=title+caption,date=taken. Default: guessed.
        text_fields: Fields with texts of the image, separated by commas. Default for a folder of images:
            headline,caption.
        split_seed: Seed of the 80-10-10 split of data without splits.
        verify: Decode every image.
        on_error: "raise": stop at rows that cannot be used; "skip": leave them out.
        unmatched: Write rows without a file and files without a row to this CSV file.
        max_pixels: Million pixels per image. Default: what half of the memory at hand allows; 1 or more.
        quiet: Show no progress.

    Returns:
        A report. If the data set cannot be read, the report contains the reason.
    """
    from subtext.curation.check import check_dataset

    paths = DataConfig.of(data, images, features, text_features, columns=columns, text_fields=text_fields)
    assert paths.data is not None
    with counter("checking images", quiet=quiet) as progress:
        report = check_dataset(
            paths.data,
            name=paths.name,
            images=paths.path("images"),
            split_seed=split_seed or paths.split_seed or 0,
            on_error=on_error if paths.on_error is None else paths.on_error,
            verify=verify,
            features=paths.features,
            text_features=paths.text_features,
            columns=paths.columns,
            text_fields=paths.text_fields,
            max_pixels=max_pixels or paths.max_pixels,
            progress=progress,
        )
    if unmatched is not None:
        from subtext.data.atomic import write_text
        from subtext.data.join import unmatched_csv

        # The mark tells Excel that it is UTF-8.
        write_text(Path(unmatched).expanduser(), "\ufeff" + unmatched_csv(report.problems))
    return report


@dataclass(frozen=True, repr=False)
class PreparedDataset:
    """A data set derived from another data set.

    Attributes:
        dataset: Its images, texts and pairs.
        path: Its file; None if none was written.
        summary: A description of the changes.
    """

    dataset: Dataset
    path: Path | None
    summary: str

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"PreparedDataset({self.dataset!r}, {self.path})"

    def _repr_html_(self) -> str:
        return self.dataset._repr_html_()

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the pairs; see `Dataset.to_frame`.

        Returns:
            A row per pair.
        """
        return self.dataset.to_frame()

    def to_json(self) -> dict[str, Any]:
        """Return the path and the counts.

        Returns:
            Plain JSON values.
        """
        items = {"images": len(self.dataset.images), "texts": len(self.dataset.texts), "pairs": len(self.dataset)}
        return {"path": None if self.path is None else str(self.path), **items, "splits": self.dataset.counts()}


@command
def prepare(
    data: Source,
    *,
    images: Images = None,
    columns: Columns = None,
    text_fields: TextFields = None,
    split_seed: SplitSeed = 0,
    on_error: OnError = "raise",
    out: Out = None,
    max_sentences: Annotated[int | None, "Keep the first N sentences of each text.", Interval(1)] = None,
    longer_than: Annotated[int | None, "Keep only texts of more than N characters.", Interval(1)] = None,
    resplit: Annotated[bool, "Replace the splits of DATA by a random 80-10-10 split."] = False,
) -> PreparedDataset:
    """Shorten or filter the texts of a data set, name its columns, or make new splits, and write a file of pairs.

    --longer-than applies to the full texts, before --max-sentences shortens them. Image paths do not change. So the new
    file needs --images with the old folder.

    Args:
        data: Data set: a file or folder.
        images: Folder of relative image paths. Default: that of DATA.
        columns: Columns of a table with other names: image=file,text=title+caption,date=taken. Default: guessed.
        text_fields: Fields with texts of the image, separated by commas. Default for a folder of images:
            headline,caption.
        split_seed: Seed of the 80-10-10 split of data without splits.
        on_error: What to do with rows that cannot be used.
        out: New .jsonl or .parquet file.
        max_sentences: Keep the first N sentences of each text.
        longer_than: Keep only texts of more than N characters.
        resplit: Replace the splits of DATA by a random 80-10-10 split.

    Returns:
        The changed data set, and its file if `out` is set.

    Raises:
        ArgumentError: If no change is requested.
        DataError: If the data cannot be read or no text remains.
    """
    if max_sentences is None and longer_than is None and not resplit and columns is None and text_fields is None:
        raise ArgumentError(
            "nothing to do; give ",
            Setting("max_sentences"),
            ", ",
            Setting("longer_than"),
            ", ",
            Setting("resplit"),
            ", ",
            Setting("columns"),
            " or ",
            Setting("text_fields"),
        )
    from subtext.data.prepare import cut_sentences, only_longer, resplit_groups
    from subtext.data.write import SUFFIXES

    path = _new_file("out", out, *SUFFIXES)
    names = {"columns": columns, "text_fields": text_fields}
    sources = _sources(data, images, split_seed=split_seed, on_error=on_error, **names)
    original = dataset = sources.read()
    if longer_than is not None:
        dataset = only_longer(dataset, longer_than)
    if max_sentences is not None:
        dataset = cut_sentences(dataset, max_sentences)
    if resplit:
        dataset = resplit_groups(dataset, seed=split_seed)
    return _written(dataset, path, _changes(dataset, original))


@dataclass(frozen=True, repr=False)
class Deduplicated(PreparedDataset):
    """The copies of a data set, and the data set without them.

    Attributes:
        copies: For each image that is a copy: "id", "of" (the image that stays), "kind" ("exact", "recompressed",
            "resized", "rotated") and "pixels" (longer side, shorter side).
        mirrored: The same for each image that mirrors another; it is no copy, and stays.
        text_copies: For each text that is a copy: "id", "of" and "overlap" (Jaccard similarity).
        unread: Images that could not be read, and so were not compared.
    """

    copies: tuple[dict[str, Any], ...] = ()
    text_copies: tuple[dict[str, Any], ...] = ()
    unread: int = 0
    mirrored: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the copies, the path and the counts.

        Returns:
            Plain JSON values.
        """
        copies = {"copies": list(self.copies), "text_copies": list(self.text_copies), "unread": self.unread}
        copies["mirrored"] = list(self.mirrored)
        return {**super().to_json(), **copies}

    def copies_frame(self) -> pandas.DataFrame:
        """Return a table of the images that are copies. Needs pandas.

        Returns:
            A row per copy: id, of, kind and pixels.
        """
        from subtext.data.dataset import frame

        return frame(list(self.copies))


PAGE_COPIES = 2000
"""Copies that a page shows."""
_FIRST = {"mirrored": "keep"}
"""What becomes of a kind of copies where nothing is marked; "drop" for all others."""
SHOWN = 20
"""Copies that the text shows; JSON has all."""


@command
def dedup(
    data: Source,
    *,
    images: Images = None,
    columns: Columns = None,
    text_fields: TextFields = None,
    split_seed: SplitSeed = 0,
    on_error: OnError = "raise",
    out: Out = None,
    threshold: Annotated[float, "Jaccard similarity above which a text is a copy.", Interval(0, 1)] = 0.8,
    shingle_size: Annotated[int, "Words per shingle.", Interval(1)] = 3,
    page: Annotated[
        str | Path | None, "New .html file that shows the copies, to mark what stays.", Metavar("FILE")
    ] = None,
    marks: Annotated[
        str | Path | None, "Marks that the page has saved: drop is removed, keep stays.", Metavar("FILE")
    ] = None,
    quiet: Quiet = False,
) -> Deduplicated:
    """Find copies of images, and near-duplicate texts of different images; with --out, write the data without them.

    An image is a copy of another if its file has the same bytes, or shows the same in another size or compression, or
    turned by 90, 180 or 270 degrees. All images are compared, with texts or without. Texts are compared by MinHash,
    which needs datasketch: pip install '.[dedup]' in a clone of Subtext. A text that is a copy is removed with its
    images.

    If copies are in several splits, the copy in test stays, otherwise the copy in val; else the largest image. Mirror
    images are shown, and stay: an icon that points left is another than one that points right. Look at the copies
    before you remove them: --page writes a page that shows them, whose marks --marks reads.

    Args:
        data: Data set: a file or folder.
        images: Folder of relative image paths. Default: that of DATA.
        columns: Columns of a table with other names: image=file,text=title+caption,date=taken. Default: guessed.
        text_fields: Fields with texts of the image, separated by commas. Default for a folder of images:
            headline,caption.
        split_seed: Seed of the 80-10-10 split of data without splits.
        on_error: What to do with rows that cannot be used.
        out: New .jsonl or .parquet file.
        threshold: Jaccard similarity above which a text is a copy.
        shingle_size: Words per shingle.
        page: New .html file that shows the copies beside the images that stay, to mark what stays.
        marks: Marks that the page has saved: images marked drop are removed, those marked keep stay; others as without
            marks.
        quiet: Show no progress.

    Returns:
        The copies, the remaining data set, and its file if `out` is set.

    Raises:
        RequirementError: If there are texts and datasketch is not installed.
        DataError: If the threshold is 0, or a text has features only.
    """
    import numpy as np

    from subtext.curation.copies import find_copies
    from subtext.curation.export import COPY_MARKS, copies_page, read_marks, refuse_other_marks
    from subtext.data.atomic import write_text
    from subtext.data.prepare import near_copies
    from subtext.data.write import SUFFIXES

    path, shown = _new_file("out", out, *SUFFIXES), _new_file("page", page, ".html")
    marked = {} if marks is None else read_marks(Path(marks), "of", COPY_MARKS)
    sources = _sources(data, images, columns=columns, text_fields=text_fields, split_seed=split_seed, on_error=on_error)
    original = _with_images_where_there_are_some(sources)
    retained, text_copies = np.ones(len(original.texts), dtype=bool), list[dict[str, Any]]()
    if len(original.texts):
        with meter("comparing texts", len(original.texts), quiet=quiet) as progress:
            near = near_copies(original, threshold=threshold, shingle_size=shingle_size, progress=progress)
        retained, names = near.retained, original.texts.ids
        for row in np.flatnonzero(~retained).tolist():
            overlap = round(float(near.overlap[row]), 3)
            text_copies.append({"id": names[row], "of": names[int(near.copy_of[row])], "overlap": overlap})
    with meter("comparing images", len(original.images), quiet=quiet) as progress:
        found = find_copies(original.images, original.root, own_splits=original.own_splits, progress=progress)
    ids, every = original.images.ids, [*found.copies, *found.mirrored]
    copies, mirrored = (
        [{"id": ids[copy.row], "of": ids[copy.of], "kind": copy.kind, "pixels": list(copy.size)} for copy in some]
        for some in (found.copies, found.mirrored)
    )
    given = [marked.pop((ids[copy.row], ids[copy.of]), None) for copy in every]
    refuse_other_marks(marked, "copies", "as a copy of")
    gone = [
        copy.row for copy, mark in zip(every, given, strict=True) if (mark or _FIRST.get(copy.kind, "drop")) == "drop"
    ]
    with_text, texts = original.links.T
    removed = np.union1d(np.setdiff1d(with_text, with_text[retained[texts]]), gone)
    rest = np.setdiff1d(np.arange(len(original.images)), removed.astype(np.int64))
    # A text goes with the last of its images.
    lost = np.setdiff1d(texts, texts[np.isin(with_text, rest)])
    retained = retained.copy()
    retained[lost] = False
    dataset = original.subset(rest, np.flatnonzero(retained))
    counts = [_of_copies("image", copies, len(ids)), _of_copies("text", text_copies, len(original.texts))]
    listed = [
        f"  {copy['id']} = {copy['of']} ({copy['kind']}, {'x'.join(map(str, copy['pixels']))})"
        for copy in copies[:SHOWN]
    ]
    listed += [f"  {len(copies) - SHOWN:,} more; --json has all"] if len(copies) > SHOWN else []
    facts = [f"{counted(len(mirrored), 'mirror image')}, which are no copies and stay"] * bool(mirrored)
    listed += [*facts, *(f"  {copy['id']} mirrors {copy['of']}" for copy in mirrored[:SHOWN])]
    kept = [copy for copy, mark in zip(found.copies, given, strict=False) if mark == "keep"]
    lines = [f"{counted(len(kept), 'image')} marked keep, which stay"] * bool(kept)
    also = [copy for copy in found.mirrored if copy.row in gone]
    lines += [f"{counted(len(also), 'mirror image')} marked drop"] * bool(also)
    most = Counter(copy["of"] for copy in text_copies).most_common(3)
    values = dict(zip(original.texts.ids, original.texts.values, strict=True))
    lines += ["texts with the most copies:"] if most else []
    lines += [
        f"  {count:,} {'copy' if count == 1 else 'copies'} of {str(values[name])[:100]!r}" for name, count in most
    ]
    unread = found.unread - sum(value is None for value in original.images.values)
    lines += [
        f"{counted(unread, 'image')} could not be read and {'was' if unread == 1 else 'were'} not compared"
    ] * bool(unread)
    if shown is not None:
        lead = "Each image on the left is a copy of the one on its right. Mark which are to go, and save the marks."
        if len(every) > PAGE_COPIES:
            lead += f" The page shows {PAGE_COPIES:,} of {len(every):,}."
        title = f"Copies in {Path(sources.name).name}"
        facts = [*counts, *facts, *lines]
        html = copies_page(original.images, original.root, every, title=title, lead=lead, lines=facts, most=PAGE_COPIES)
        write_text(shown, html, errors="surrogateescape")
        lines.append(f"{shown}: a page of the copies; what it saves goes to --marks")
    lines = [*counts, *listed, *lines]
    if path is None:
        lines += ["nothing was written; --out FILE writes the data without the copies"] * bool(copies or text_copies)
        summary = "\n".join(lines)
    else:
        summary = _written(dataset, path, "\n".join([_changes(dataset, original), *lines])).summary
    return Deduplicated(dataset, path, summary, tuple(copies), tuple(text_copies), unread, tuple(mirrored))


def _of_copies(noun: str, copies: Sequence[Mapping[str, Any]], total: int) -> str:
    """The number of copies among images, by their kinds, or among texts."""
    kinds = Counter(copy["kind"] for copy in copies if "kind" in copy)
    of_kinds = f": {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}" if kinds else ""
    number = f"{len(copies):,} {'copy' if len(copies) == 1 else 'copies'}"
    return f"{number} among {counted(total, noun)}{of_kinds}"


@command
def corrupt(
    data: Source,
    *,
    images: Images = None,
    split_seed: SplitSeed = 0,
    on_error: OnError = "raise",
    out: Out = None,
    labels: Annotated[
        str | Path | None, "New JSON file for the noise labels.", OptionGroup("Output"), Metavar("FILE")
    ] = None,
    noise_rate: Annotated[float, "Share of the pairs of each split to corrupt.", Interval(0, 1)] = 0.2,
    noise_type: Annotated[
        Literal["neighbour", "mismatch", "mixed"],
        "New text of a pair: the text of a semantic neighbour, of any other pair, or half of each.",
    ] = "neighbour",
    graph: Annotated[str | Path | None, "Graph of `subtext neighbours build`, for semantic neighbours."] = None,
    neighbour_ranks: Annotated[str, "Choose among neighbours of these ranks.", Metavar("FIRST-LAST")] = _RANKS,
    split: Annotated[tuple[str, ...], "Split to corrupt; repeatable."] = ("train",),
    seed: Annotated[int, "Seed of the random choice."] = 0,
) -> PreparedDataset:
    """Plant noise: exchange the texts of a known share of pairs, to measure which method detects them.

    Texts are exchanged within a split, so each text stays in its split. The labels are written to a second file. The
    training cannot read this file, and the file of pairs has no labels.

    Args:
        data: Data set: a file or folder.
        images: Folder of relative image paths. Default: that of DATA.
        split_seed: Seed of the 80-10-10 split of data without splits.
        on_error: What to do with rows that cannot be used.
        out: New .jsonl or .parquet file.
        labels: New JSON file for the noise labels.
        noise_rate: Share of the pairs of each split to corrupt.
        noise_type: New text of a pair: the text of a semantic neighbour, of any other pair, or half of each.
        graph: Graph of `subtext neighbours build`, for semantic neighbours.
        neighbour_ranks: Choose among neighbours of these ranks.
        split: Split to corrupt; repeatable.
        seed: Seed of the random choice.

    Returns:
        The corrupted data set, and its file if `out` is set.

    Raises:
        RequirementError: If neighbours need a graph, or the share is less than one pair.
        ArgumentError: If the ranks are not FIRST-LAST, or an option has no effect.
        DataError: If the graph lacks these ranks, or an output file exists.
    """
    from subtext.data.noise import write_labels
    from subtext.data.write import SUFFIXES

    first, dash, last = neighbour_ranks.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise ArgumentError(
            f"neighbour_ranks needs FIRST-LAST, such as 1-20; it got {neighbour_ranks}", field="neighbour_ranks"
        )
    if noise_type == "mismatch" and (graph is not None or neighbour_ranks != _RANKS):
        name = "neighbour_ranks" if graph is None else "graph"
        raise ArgumentError(
            f"{name} has no effect with ", Setting("noise_type", "mismatch"), "; leave it out", field=name
        )
    labels_path, path = _new_file("labels", labels), _new_file("out", out, *SUFFIXES)
    if labels_path is None and path is not None:
        raise ArgumentError(
            "out needs ", Setting("labels"), ": without them nobody can say which pairs are corrupted", field="out"
        )
    if labels_path is not None and path is not None and labels_path.resolve() == path.resolve():
        raise DataError(f"labels need a file of their own, which training does not read; {path} is that of the pairs")
    sources = _sources(data, images, split_seed=split_seed, on_error=on_error)
    ranks = (int(first), int(last))
    planted, settings, lines = _corrupt_pairs(sources, noise_type, graph, ranks, tuple(split), noise_rate, seed)
    if labels_path is not None:
        # Labels come first: a corrupted file without labels must never exist.
        write_labels(planted, labels_path, settings)
        lines.append(f"labels: {labels_path} (for measuring only; training never reads them)")
    try:
        return _written(planted.dataset, path, "\n".join(lines))
    finally:
        if labels_path is not None and path is not None and not path.exists():
            # The same command may then be repeated.
            labels_path.unlink(missing_ok=True)


def _corrupt_pairs(
    sources: DataConfig,
    noise_type: str,
    graph: str | Path | None,
    ranks: tuple[int, int],
    splits: tuple[str, ...],
    noise_rate: float,
    seed: int,
) -> tuple[Planted, dict[str, Any], list[str]]:
    """Planted noise of single pairs, its settings and its description."""
    import numpy as np

    from subtext.data.dataset import fingerprint
    from subtext.data.noise import plant
    from subtext.graphs.graph import Graph
    from subtext.version import __version__

    loaded = lists = None
    if noise_type != "mismatch":
        if graph is None:
            raise RequirementError(
                f"noise of the type {noise_type} needs a graph of neighbours (",
                Setting("graph", "GRAPH"),
                "); build one with `subtext neighbours build`, or use the type mismatch",
            )
        loaded = Graph.load(Path(graph).expanduser())
    dataset = sources.read()
    if loaded is not None:
        lists = _neighbour_lists(loaded, dataset, splits, *ranks)
    kinds_of_noise = ("neighbour", "mismatch") if noise_type == "mixed" else (noise_type,)
    rates = dict.fromkeys(kinds_of_noise, noise_rate / len(kinds_of_noise))
    planted = plant(dataset, rates, neighbours=lists, splits=splits, seed=seed)
    total = int(np.isin(dataset.texts.splits, splits).sum())
    kinds = Counter(planted.kinds[planted.kinds != ""].tolist())
    if not kinds:
        raise RequirementError(
            f"a noise rate of {noise_rate:g} of {counted(total, 'text')} of {', '.join(splits)} is none; "
            "use a higher rate"
        )
    settings = {
        "kind": noise_type,
        "share": noise_rate,
        "seed": seed,
        "of": fingerprint(dataset),
        "version": __version__,
        "ranks": None if loaded is None else list(ranks),
        "graph": None if loaded is None else {"fingerprint": loaded.fingerprint, "space": dict(loaded.space)},
        "splits": list(splits),
    }
    changed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    lines = [f"{kinds.total():,} of {counted(total, 'text')} of {', '.join(splits)} are corrupted ({changed})"]
    if lists is not None:
        low, median, high = np.quantile(planted.distances[np.isfinite(planted.distances)], (0.05, 0.5, 0.95))
        lines.append(
            f"distance of exchanged neighbours: median {median:.3g}, 5 % below {low:.3g}, 5 % above {high:.3g}"
        )
    return planted, settings, lines


@dataclass(frozen=True, repr=False)
class JoinedFeatures(Report):
    """A feature file of cells and regions.

    Attributes:
        path: The file.
        images: Number of images.
        cells: Cells per image.
        regions: Fewest and most regions per image.
        widths: Width of cells and of regions.
    """

    path: Path
    images: int
    cells: int
    regions: tuple[int, int]
    widths: tuple[int, int]

    def _lines(self) -> list[str]:
        few, many = self.regions
        regions = counted(few, "region") if few == many else f"{few:,} to {many:,} regions"
        padded = "" if len(set(self.widths)) == 1 else f" ({self.widths[0]:,} of cells, {self.widths[1]:,} of regions)"
        return [
            f"{self.path}: {counted(self.images, 'image')}, each with {counted(self.cells, 'cell')} and {regions} of "
            f"width {max(self.widths):,}{padded}; train dsran with --grid-cells {self.cells}"
        ]


@command
def join_features(
    cells: Annotated[str | Path, "Features with a fixed number of cells per image.", OptionGroup("Features")],
    regions: Annotated[str | Path, "Features with any number of regions per image.", OptionGroup("Features")],
    *,
    out: Annotated[str | Path, "New .npz file.", OptionGroup("Output"), Metavar("FILE")],
    quiet: Quiet = False,
) -> JoinedFeatures:
    """Combine the grid cells and regions of images in one feature file, for `train dsran --grid-cells N`.

    CELLS has the same number of cells for every image, such as the grid of a backbone. REGIONS may have any number of
    regions per image. Both are feature files, in the formats of --features. The output has the images of REGIONS. The
    narrower features are padded with zeros; pooled vectors and boxes are left out.

    Args:
        cells: Features with a fixed number of cells per image.
        regions: Features with any number of regions per image.
        out: New .npz file.
        quiet: Show no progress.

    Returns:
        Counts and widths of the new file.

    Raises:
        DataError: If the output is not an npz or exists, or the files do not match.
    """
    from subtext.data.atomic import require_file
    from subtext.data.feature_file import FeatureFile, join_features

    path = _new_file("out", out, ".npz")
    assert path is not None
    require_file(path)
    first, second = (FeatureFile.open(Path(file).expanduser()) for file in (cells, regions))
    with meter("joining", len(second.names), quiet=quiet) as progress:
        return JoinedFeatures(path, *join_features(first, second, path, progress=progress))


def _sources(data: Any, images: Any, *, split_seed: int, on_error: str, **settings: Any) -> DataConfig:
    """Where the data is; a DataConfig says by itself how it is read."""
    if isinstance(data, DataConfig):
        chosen: dict[str, Any] = {
            "split_seed": split_seed or None,
            "on_error": None if on_error == "raise" else on_error,
        }
        return DataConfig.of(data, images, **settings, **chosen)
    return DataConfig.of(data, images, split_seed=split_seed, on_error=on_error, **settings)  # type: ignore[arg-type]


def _with_images_where_there_are_some(sources: DataConfig) -> Dataset:
    """The data set, whose images are found by name or number, too; where none of them is there, for its texts alone."""
    from subtext.data.read import NONE_THERE, UnusableData

    try:
        return sources.read(need_pairs=False, need_images=True)
    except UnusableData as error:
        if not any(problem.where == NONE_THERE for problem in error.problems):
            raise
        return sources.read(need_pairs=False)


def _new_file(name: str, file: str | Path | None, *suffixes: str) -> Path | None:
    """The file to write, checked before the work begins: it is new, and has one of the suffixes if any are named."""
    if file is None:
        return None
    path = Path(file).expanduser()
    if suffixes and path.suffix.lower() not in suffixes:
        raise DataError(f"{name} needs a name with the suffix {' or '.join(suffixes)}; it got {path.name}")
    if path.exists():
        raise DataError(f"{name} needs a new file; {path} exists; name another or remove it")
    return path


def _neighbour_lists(graph: Graph, dataset: Dataset, splits: tuple[str, ...], first: int, last: int) -> TextNeighbours:
    """The graph's neighbours as rows of the full data set; ranks count within a split."""
    import numpy as np

    from subtext.data.noise import TextNeighbours

    if not 1 <= first <= last <= graph.width:
        raise DataError(
            f"neighbour_ranks needs FIRST-LAST from 1 to {graph.width}, the graph's number of neighbours; it got "
            f"{first}-{last}; name others, or build a graph with more neighbours",
            field="neighbour_ranks",
        )
    rows = np.full((len(dataset.texts), graph.width), -1, dtype=np.int64)
    distances = np.full((len(dataset.texts), graph.width), np.inf, dtype=np.float64)
    for split in splits:
        texts = np.flatnonzero(dataset.texts.splits == split).astype(np.int64)
        subgraph = graph.restrict_to(dataset.texts.take(texts))
        rows[texts] = np.where(subgraph.neighbours >= 0, texts[subgraph.neighbours], -1)
        distances[texts] = subgraph.distances
    return TextNeighbours(rows, distances, first, last)


def _written(dataset: Dataset, path: Path | None, summary: str) -> PreparedDataset:
    if path is None:
        return PreparedDataset(dataset, None, summary)
    from subtext.data.read import as_on_disk
    from subtext.data.write import write_dataset

    write_dataset(dataset, path)
    # The images stay where they are.
    same_folder = dataset.root.resolve() == path.parent.resolve()
    images = "" if same_folder else f" --images {shlex.quote(str(dataset.root))}"
    first = [value for value in dataset.images.values[:20] if isinstance(value, str) and "?offset=" not in value]
    note, folders = "", dict[str, dict[str, set[str]]]()
    if first and all(as_on_disk(value, dataset.root, folders) is None for value in first):
        images, note = " --images FOLDER", f"\nFOLDER is the folder of the images; {dataset.root} has no {first[0]}"
    summary = f"{path}: {summary}\nnext:\n  subtext data check {shlex.quote(str(path))}{images}{note}"
    return PreparedDataset(dataset, path, summary)


def _changes(dataset: Dataset, original: Dataset) -> str:
    splits = ", ".join(f"{name} {count:,}" for name, count in dataset.counts().items())
    gone = {noun: len(getattr(original, noun + "s")) - len(getattr(dataset, noun + "s")) for noun in ("text", "image")}
    removed = " and ".join(counted(count, noun) for noun, count in gone.items() if count)
    content = f"{counted(len(dataset.images), 'image')}, {counted(len(dataset.texts), 'text')}"
    return f"{content}{f' ({removed} removed)' if removed else ''}; images by split: {splits}"
