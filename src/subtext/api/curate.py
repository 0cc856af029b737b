"""Judging pairs: `subtext.curate` a data set, `score` whether images support texts, `detect_noise` that was planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from subtext.api.evaluate import split_role
from subtext.api.load import EvaluationSubject, LoadedRun, ModelSource, open_subject
from subtext.api.options import (
    DEFAULTS,
    DataOptions,
    ModelOptions,
    OnProgress,
    OptionalRun,
    Pretrained,
    Run,
    TextPrompt,
)
from subtext.data.objects import Rows
from subtext.errors import ArgumentError, DataError, OutputError, RequirementError, Setting
from subtext.report.progress import meter, say, with_progress
from subtext.report.text_table import Cell, Report, shortened, table
from subtext.settings import Interval, Metavar, OptionGroup, command
from subtext.text_helpers import counted, json_text

if TYPE_CHECKING:
    import pandas

    from subtext.curation.judged import Judged
    from subtext.data.dataset import Dataset
    from subtext.data.noise import Labels
    from subtext.graphs.graph import Graph
    from subtext.retrieval.calibration import Calibration


Reason = Literal["mismatched", "copies", "leaks", "unusable", "flagged"]
DROP: tuple[Reason, ...] = ("mismatched", "copies", "leaks", "unusable")
TRUTHS = {"mismatch": "mismatched", "neighbour": "loose", "": "literal"}
"""Kinds of planted pairs, as they are called here."""
_OUTPUT = OptionGroup("Output")


@dataclass(frozen=True, repr=False)
class Curation(Report):
    """The result of `curate`.

    Attributes:
        report: Counts, shares and copies, as plain data.
        columns: Name -> a value per pair.
        left_out: For each pair the reasons to leave it out; empty for a pair that stays.
        path: Folder with the page, the table and the report.
        exports: Files with the pairs that stay.
    """

    report: dict[str, Any]
    columns: dict[str, list[Any]]
    left_out: list[list[str]]
    path: Path
    exports: tuple[Path, ...] = ()

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.left_out)

    def _lines(self) -> list[str]:
        files = "index.html (a page), pairs.parquet (every pair), left_out.jsonl (with reasons), report.json"
        stay = len(self) - self.report["left_out"]
        exports = [f"{file}: {counted(stay, 'pair')}" for file in self.exports]
        return [*_lines(self.report), f"{self.path}: {files}", *exports]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data.

        Returns:
            Plain JSON values.
        """
        return self.report

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the pairs. Needs pandas.

        Returns:
            A row per pair.
        """
        from subtext.data.dataset import frame

        return frame({**self.columns, "left_out": self.left_out})


@command(defaults=DEFAULTS)
@with_progress
def curate(
    data: Annotated[str | Path | Dataset | Rows, "Data set to curate.", Metavar("DATA")],
    *,
    run: OptionalRun = None,
    model: Pretrained = None,
    text_prompt: TextPrompt = None,
    out: Annotated[str | Path, "New folder for the results.", Metavar("DIR"), _OUTPUT],
    export: Annotated[
        tuple[str | Path, ...],
        "File for the remaining pairs: .jsonl, .parquet, or .tar (WebDataset); repeatable.",
        Metavar("FILE"),
        _OUTPUT
    ] = (),
    page_pairs: Annotated[int, "Pairs on the page.", Interval(1), _OUTPUT] = 500,
    graph: Annotated[
        str | Path | None, "Graph of neighbours. Default: built from the words of texts.", OptionGroup("Model")
    ] = None,
    drop: Annotated[
        tuple[Reason, ...],
        "Leave out pairs for this reason; repeatable. Default: every reason but flagged.",
        OptionGroup("Leave out"),
    ] = (),
    mismatch_threshold: Annotated[
        float, "Leave out pairs with at least this probability of a mismatch.", Interval(0, 1), OptionGroup("Leave out")
    ] = 0.5,
    marks: Annotated[
        str | Path | None, "Marks that the page has saved: pairs marked fix are left out, those marked keep stay.",
        Metavar("FILE"), OptionGroup("Leave out")
    ] = None,
    labels: Annotated[
        str | Path | None, "Noise labels of `subtext data corrupt`: measure how well they are found.", Metavar("FILE"),
        OptionGroup("Measure")
    ] = None,
    split: Annotated[str, "Split to curate; all: the complete data set.", OptionGroup("Data")] = "all",
    progress: OnProgress = None,
    **options: Unpack[ModelOptions],
) -> Curation:  # fmt: skip
    """Find mismatched pairs, duplicates, leaks between splits, and unusual images and texts.

    The pairs are put in order: those that fit worst come first. Where captions that are exchanged as a test are found,
    each pair also has a probability of being literal, loosely aligned and mismatched. To estimate them, images are
    paired with random texts, and with texts of semantic neighbours. The folder contains a page to sort, filter and
    mark, a table of all pairs, and the excluded pairs with the reasons.

    Items of a probabilistic model are compared by their means; the table lists the uncertainty of each item.

    Args:
        data: Data set to curate.
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter, a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        out: New folder for the results.
        export: File for the remaining pairs: .jsonl, .parquet, or .tar (WebDataset); repeatable.
        page_pairs: Pairs on the page.
        graph: Graph of neighbours. Default: built from the words of texts.
        drop: Leave out pairs for this reason; repeatable. Default: every reason but flagged.
        mismatch_threshold: Leave out pairs with at least this probability of a mismatch.
        marks: Marks that the page has saved: pairs marked fix are left out, those marked keep stay, whatever else is
            said of them.
        labels: Noise labels of `subtext data corrupt`: measure how well they are found.
        split: Split to curate; all: the complete data set.
        progress: Called with the numbers of finished items and of all, in each part of the work: checking images,
            embedding.
        options: Settings of the model and of the data set, such as `features`, `device` or `batch_size`; the command's
            `--help` lists them.

    Returns:
        The report, the columns of the pairs and the written files.

    Raises:
        RequirementError: If a model only scores pairs.
        OutputError: If the folder is not empty.
        DataError: If the marks are of other data.
    """
    source = ModelSource.of(run, model, text_prompt)
    work = EvaluationSubject.of(source, split, data=data, **options)
    import numpy as np

    from subtext.curation.export import MARKS, export as export_pairs, page, read_marks, refuse_other_marks, write_rows
    from subtext.curation.judged import judge, left_out
    from subtext.data.atomic import write_text
    from subtext.data.languages import foreign_texts
    from subtext.data.noise import read_labels
    from subtext.models.encoders.languages import languages_read

    folder, exports = Path(out).expanduser(), tuple(Path(file).expanduser() for file in export)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(Setting("out"), f" needs a new or an empty folder; {folder} is not empty; name another")
    marked = None if marks is None else read_marks(Path(marks), "text", MARKS)
    truth = None if labels is None else read_labels(Path(labels))
    opened = open_subject(replace(work, split="all") if truth is not None else work)
    if truth is not None:
        truth.require(opened.pairs)
        opened = replace(opened, pairs=opened.pairs.split(split), split=split)
    opened = opened.to_means("curate")
    text_branch = opened.model.text
    reads = languages_read(text_branch, trained=not text_branch.frozen)
    if foreign := foreign_texts(opened.pairs.texts.values, reads):
        say(f"note: {foreign}; what is said of their pairs is worth little", quiet=work.quiet)
    vectors = opened.embed(work)
    neighbours = graph_of(opened.pairs, None if graph is None else Path(graph), quiet=work.quiet)
    with meter("checking images", len(opened.pairs.images), quiet=work.quiet) as checked:
        judgement = judge(opened.pairs, *vectors, graph=neighbours, workers=work.workers, progress=checked)
    why = left_out(judgement, drop or DROP, least=mismatch_threshold)
    if marked is not None:
        pairs_marked = zip(judgement.columns["image"], judgement.columns["text"], strict=True)
        given = [marked.pop(pair, None) for pair in pairs_marked]
        refuse_other_marks(marked, "pairs", "with text")
        changed = {"keep": [], "fix": ["marked fix"]}
        why = [changed.get(str(mark), reasons) for mark, reasons in zip(given, why, strict=True)]
    out_mask = np.array([bool(reasons) for reasons in why])
    report = _report(judgement, why, opened, work, truth)
    for file in exports:
        export_pairs(judgement, np.flatnonzero(~out_mask), file)
    write_rows(judgement, why, np.arange(len(judgement), dtype=np.int64), folder / "pairs.parquet")
    write_rows(judgement, why, np.flatnonzero(out_mask), folder / "left_out.jsonl")
    text = json_text(report, indent=2) + "\n"
    write_text(folder / "report.json", text, errors="surrogateescape")
    tells = judgement.test is not None or "kinds" not in judgement.how
    lead = (
        f"{min(page_pairs, len(judgement)):,} of {len(judgement):,} pairs, by the model: those that fit worst come "
        "first, and those left out for other reasons are among them. Mark what is to stay and what to mend, and save "
        "the marks."
        if tells
        else "Pairs that are left out for what they are, and those that the model is surest of to belong together."
    )
    # Half of the page is for pairs that are left out.
    order = sorted(range(len(judgement)), key=lambda link: judgement.columns["rank"][link])
    if not tells:
        order = sorted(order, key=lambda link: (not why[link], -judgement.columns["rank"][link]))
    half = order[: page_pairs // 2]
    also = [link for link in order if why[link] and link not in set(half)][: page_pairs - len(half)]
    remaining = [link for link in order if link not in {*half, *also}]
    rows, title = [*half, *also, *remaining][:page_pairs], f"Pairs of {Path(report['data']).name}"
    html = page(judgement, why, rows, title=title, lead=lead, lines=_lines(report))
    write_text(folder / "index.html", html, errors="surrogateescape")
    return Curation(report, judgement.columns, why, folder, exports)


def graph_of(pairs: Dataset, path: Path | None, *, quiet: bool) -> Graph | None:
    """Load a graph of neighbours, or build one from the texts' words.

    Args:
        pairs: The data set.
        path: Folder of the graph; None to build one.
        quiet: Whether no progress is shown.

    Returns:
        The graph; None if there are too few texts or no words.
    """
    from subtext.curation.kinds import NEIGHBOURS
    from subtext.graphs.build import GraphOptions, build_graph
    from subtext.graphs.graph import Graph
    from subtext.graphs.spaces import LsaSpace

    if path is not None:
        return Graph.load(path)
    try:
        with meter("neighbours", len(pairs.texts), quiet=quiet) as progress:
            options = GraphOptions(neighbours=2 * NEIGHBOURS, candidate_split="all")
            return build_graph(pairs, LsaSpace(), options, on_compared=progress)
    except DataError as problem:
        say(f"note: scores of neighbours not reported: {problem}", quiet=quiet)
        return None


def _report(
    judgement: Judged, why: Sequence[Sequence[str]], opened: LoadedRun, work: EvaluationSubject, labels: Labels | None
) -> dict[str, Any]:
    """The report, as plain data."""
    from subtext.curation.kinds import KINDS

    columns = judgement.columns
    kinds = Counter(kind for kind in columns["kind"] if kind is not None)
    report: dict[str, Any] = {
        "data": work.sources.name,
        "run": work.model.label,
        "split": opened.split,
        "split_role": split_role(opened, work.sources)[0],
        "pairs": len(judgement),
        "left_out": sum(map(bool, why)),
        "reasons": dict(Counter(reason.split(" (")[0] for reasons in why for reason in reasons).most_common()),
        "kinds": {kind: kinds[kind] for kind in KINDS} if kinds else None,
        "shares": judgement.shares,
        "copies": {
            "images": _copies(judgement.pairs.images.ids, judgement.pairs.images.ids, judgement.image_groups.tolist()),
            "texts": _copies(judgement.pairs.texts.ids, columns["text"], columns["text_copies"]),
        },
        "mirrored": judgement.mirrored,
        "order": None if judgement.test is None else asdict(judgement.test),
        "leaks": int(sum(columns["leak"])),
        "flags": dict(Counter(flag for flags in columns["flags"] for flag in flags).most_common()),
        "languages": dict(Counter(str(name) for name in columns["language"]).most_common(10)),
        "how": judgement.how,
    }
    return report if labels is None else {**report, "planted": planted(judgement, labels)}


def planted(judgement: Judged, labels: Labels) -> dict[str, Any]:
    """Measure how well kinds are detected, by noise labels: areas under the curve, calibration error, hits.

    The area is that of each probability against all other pairs, but of "loose" against the literal alone. "order" says
    how many of the mismatched pairs stand among as many that fit worst.

    Args:
        judgement: The pairs and their columns.
        labels: The noise labels.

    Returns:
        Kind -> figures.
    """
    import numpy as np

    from subtext.curation.kinds import KINDS
    from subtext.ops.roc import auc, reliability

    truth = [TRUTHS[str(kind)] for kind in labels.of(judgement.pairs)[judgement.pairs.links[:, 1]]]
    marked = {kind: np.array([is_kind == kind for is_kind in truth]) for kind in KINDS}
    report: dict[str, Any] = {"pairs": {kind: int(is_kind.sum()) for kind, is_kind in marked.items()}}
    if (wrong := marked["mismatched"]).any() and not wrong.all():
        rank = np.array(judgement.columns["rank"])
        among_worst = int(wrong[rank <= wrong.sum()].sum())
        report["order"] = {"auc": auc(-rank.astype(np.float64), wrong), "among_worst": among_worst}
    for kind in KINDS:
        likely = np.array(judgement.columns[kind], dtype=np.float64)
        known = ~np.isnan(likely)
        among = known & (marked["literal"] | marked["loose"]) if kind == "loose" else known
        if not marked[kind][among].any() or marked[kind][among].all():
            continue
        called = np.array([is_kind == kind for is_kind in judgement.columns["kind"]])
        report[kind] = {
            "auc": auc(likely[among], marked[kind][among]),
            "calibration_error": reliability(np.clip(likely[known], 0, 1), marked[kind][known]).error,
            "estimated": float(likely[known].mean()),
            "true": float(marked[kind][known].mean()),
            "called": int(called.sum()),
            "called_rightly": int((called & marked[kind]).sum()),
        }
    return report


def _copies(every: Sequence[str], ids: Sequence[str], numbers: Sequence[int]) -> dict[str, int]:
    """Items that are copies of another, and their groups."""
    of_item = {name: number for name, number in zip(ids, numbers, strict=True) if number >= 0}
    return {"of": len(every), "items": len(of_item), "groups": len(set(of_item.values()))}


def _lines(report: Mapping[str, Any]) -> list[str]:
    from subtext.curation.kinds import KINDS

    total = max(1, report["pairs"])
    lines = [f"{counted(report['pairs'], 'pair')} of split {report['split']}, {report['left_out']:,} left out"]
    if report["reasons"]:
        lines.append("left out: " + ", ".join(f"{reason} {count:,}" for reason, count in report["reasons"].items()))
    if report["order"] and report["split_role"] == "training":
        lines.append(
            f"warning: split {report['split']} was used for training: the run has memorised mismatched pairs and "
            "detects few; use a run trained on other pairs (train on one half, curate the other)"
        )
    if report["kinds"]:
        kinds = ", ".join(f"{kind} {count:,} ({100 * count / total:.1f} %)" for kind, count in report["kinds"].items())
        lines.append(f"likeliest kinds: {kinds}")
    for modality, counts in report["copies"].items():
        if counts["items"]:
            items = f"{counts['items']:,} of {counts['of']:,}, in {counted(counts['groups'], 'group')}"
            lines.append(f"copies among {modality}: {items}")
    if report["mirrored"]:
        lines.append(f"mirror images: {counted(report['mirrored'], 'image')}, which are no copies and stay")
    if cannot := report["how"].get("kinds"):
        lines.append(f"{'note' if report['order'] else 'warning'}: {cannot}")
    if order := report["order"]:
        lines.append(
            f"order: of {counted(order['exchanged'], 'caption')} exchanged as a test, {order['in_worst_fifth']:,} "
            f"stand in the fifth of the pairs that fits worst (area under the curve {order['area']:.2f})"
        )
    if report["leaks"]:
        lines.append(f"leaks: {counted(report['leaks'], 'pair')} with a copy in a held-out split")
    if report["flags"]:
        lines.append("flags: " + ", ".join(f"{flag} {count:,}" for flag, count in report["flags"].items()))
    planted = report.get("planted", {})
    if order := planted.get("order"):
        lines.append(
            f"planted, order: {order['among_worst']:,} of the {planted['pairs']['mismatched']:,} mismatched pairs "
            f"stand among as many that fit worst (area under the curve {order['auc']:.3f})"
        )
    for kind, counts in planted.items():
        if kind in KINDS:
            lines.append(
                f"planted, {kind}: area under the curve {counts['auc']:.3f}, calibration error "
                f"{counts['calibration_error']:.3f}; {counts['called_rightly']:,} of {counts['called']:,} called so are"
            )
    return lines


_NOISE = OptionGroup("Noise")


@dataclass(frozen=True, repr=False)
class NoiseDetection(Report):
    """The areas under the ROC curve with which scores of pairs detect planted noise.

    Attributes:
        run: The paths.
        labels: See `run`.
        settings: The settings of `corrupt`.
        pairs: Kind of noise ("" for clean pairs) -> number of pairs.
        auc: Score -> task -> {"auc": area under the ROC curve, "interval": its 95 % interval by image or None}.
    """

    run: str
    labels: str
    settings: Mapping[str, Any]
    pairs: Mapping[str, int]
    auc: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; clean pairs are called "literal".

        Returns:
            Plain JSON values.
        """
        pairs = {kind or "literal": count for kind, count in self.pairs.items()}
        return {**vars(self), "settings": dict(self.settings), "pairs": pairs}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of areas and intervals. Needs pandas.

        Returns:
            A row per score and task.
        """
        from subtext.data.dataset import frame

        rows = []
        for score, tasks in self.auc.items():
            for task, value in tasks.items():
                low, high = value["interval"] or (None, None)
                rows.append({"score": score, "task": task, "auc": value["auc"], "low": low, "high": high})
        return frame(rows)

    def _lines(self) -> list[str]:
        tasks = list(next(iter(self.auc.values())))
        body: list[list[Cell]] = [[name, *(_cell(row[task]) for task in tasks)] for name, row in self.auc.items()]
        counts = ", ".join(f"{count:,} {kind or 'literal'}" for kind, count in self.pairs.items())
        return [
            f"pairs: {counts} (seed {self.settings.get('seed')})",
            table(["score", *tasks], body),
            "Area under the ROC curve with 95 % intervals by image. 50 is chance; above it large scores indicate "
            "noise, below it small ones.",
        ]


@command(defaults=DEFAULTS)
def detect_noise(
    run: Run,
    *,
    labels: Annotated[str | Path, "Labels of `subtext data corrupt`.", _NOISE, Metavar("FILE")],
    graph: Annotated[str | Path | None, "Graph of the corrupted data: adds diversity and discrepancy.", _NOISE] = None,
    beta: Annotated[float | None, "Weight of diversity in the combined score. Default: 3.", _NOISE] = None,
    gamma: Annotated[float | None, "Weight of discrepancy in the combined score. Default: 1.", _NOISE] = None,
    split: Annotated[str, "Split whose pairs are scored.", OptionGroup("Data")] = "train",
    **options: Unpack[DataOptions],
) -> NoiseDetection:
    """Measure how well the scores of a run detect planted noise, as the area under the ROC curve.

    RUN must be trained on the output of `subtext data corrupt`. Its final weights give these scores: cosine, value of a
    triplet loss, weight by rank, and density among the other pairs. The number of words is a baseline. With --graph,
    there are also diversity and discrepancy of both modalities, and a combination of both.

    Args:
        run: Folder of a trained run.
        labels: Labels of `subtext data corrupt`.
        graph: Graph of the corrupted data: adds diversity and discrepancy.
        beta: Weight of diversity in the combined score. Default: 3.
        gamma: Weight of discrepancy in the combined score. Default: 1.
        split: Split whose pairs are scored.
        options: Settings of the model and of the data set, such as `features`, `device` or `batch_size`; the command's
            `--help` lists them.

    Returns:
        The areas of each score.

    Raises:
        ArgumentError: If beta or gamma is set without a graph.
        DataError: If the labels belong to other data.
        RequirementError: If the run has no vectors.
    """
    for name, value in (("beta", beta), ("gamma", gamma)):
        if value is not None and graph is None:
            raise ArgumentError(
                f"{name} needs ", Setting("graph", "FOLDER"), ": it weights scores of neighbours", field=name
            )
    from subtext.curation.kinds import baseline_scores, density_scores, detection_areas, graph_scores
    from subtext.data.noise import read_labels

    noise = read_labels(Path(labels).expanduser())
    work = EvaluationSubject.of(ModelSource.of(run), "all", **options)
    opened = open_subject(work).to_means("detect noise")
    noise.require(opened.pairs)
    opened = replace(opened, pairs=opened.pairs.split(split))
    pairs = opened.pairs
    kinds = noise.of(pairs)[pairs.links[:, 1]]
    counts = {kind: int((kinds == kind).sum()) for kind in sorted({"", *map(str, kinds)})}
    if not counts[""]:
        raise DataError("noise detection needs clean pairs beside the noise; all are corrupted; use a lower rate")
    vectors = opened.embed(work)
    scores = baseline_scores(opened.model, pairs, *vectors, seed=0) | density_scores(pairs, *vectors)
    if graph is not None:
        weights = (3.0 if beta is None else beta, 1.0 if gamma is None else gamma)
        scores |= graph_scores(Path(graph).expanduser(), *weights, pairs, *vectors)
    areas = detection_areas(scores, kinds, pairs.links[:, 0], 1000)
    return NoiseDetection(str(run), str(labels), dict(noise.settings), counts, areas)


def _cell(value: Mapping[str, Any]) -> str:
    area, interval = value["auc"], value["interval"]
    if area != area:
        return "-"
    return f"{100 * area:.1f}" + (f" ({100 * interval[0]:.1f}-{100 * interval[1]:.1f})" if interval else "")


SHOWN = 20
"""Pairs that the table shows; a file holds all."""
WIDTH = 60


@dataclass(frozen=True)
class PairScores(Report):
    """The scores of pairs, a row each; see `score` for the columns.

    Attributes:
        run: Name of the run or model.
        rows: The pairs.
        note: The meaning of probabilities and looseness.
        path: Their file; None if none was written.
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

    def _lines(self) -> list[str]:
        if self.path is not None:
            return [f"{self.path}: {counted(len(self.rows), 'pair')}; {self.note}"]
        body: list[list[Cell]] = []
        for row in self.rows[:SHOWN]:
            words = str(row["caption"] or row["text"])
            figures = [row[name] for name in ("similarity", "probability", "looseness")]
            cells = ["-" if value is None else f"{value:.3f}" for value in figures]
            body.append([row["path"] or row["image"], *cells, row["kind"] or "-", shortened(words, WIDTH)])
        lines: list[str] = [table(["image", "similarity", "probability", "looseness", "kind", "text"], body)]
        if len(self.rows) > SHOWN:
            lines.append(f"and {len(self.rows) - SHOWN:,} more; --json or --out FILE has them all")
        return [*lines, self.note]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data.

        Returns:
            Plain JSON values.
        """
        return {"run": self.run, "note": self.note, "pairs": self.rows}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of the pairs. Needs pandas.

        Returns:
            A row per pair.
        """
        from subtext.data.dataset import frame

        return frame(self.rows)


@command(defaults=DEFAULTS)
def score(
    pairs: Annotated[str | Path | Dataset | Rows, "Pairs to score: a data set.", Metavar("PAIRS")],
    *,
    run: OptionalRun = None,
    model: Pretrained = None,
    text_prompt: TextPrompt = None,
    index: Annotated[
        str | Path | None, "Calibrated index of that model, for probabilities.", Metavar("INDEX"), OptionGroup("Model")
    ] = None,
    graph: Annotated[
        str | Path | None,
        "Graph of neighbours. Default: built from the words of texts.",
        OptionGroup("Model"),
    ] = None,
    split: Annotated[str, "Split to score; all: the complete data set.", OptionGroup("Data")] = "all",
    out: Annotated[str | Path | None, "Write all pairs as JSON lines.", Metavar("FILE"), OptionGroup("Output")] = None,
    **options: Unpack[ModelOptions],
) -> PairScores:
    """Score pairs of an image and a text: does the image support the text?

    The similarity is the cosine. With a calibrated index of the model, each pair also has a probability of a match.
    This probability assumes that half of all pairs are random. Looseness is 1 - P(literal). It is estimated from all
    pairs, and needs at least fifty.

    Args:
        pairs: Pairs to score: a data set.
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter, a hub name or a folder (CLIP, SigLIP), or
            open_clip:ARCHITECTURE/WEIGHTS.
        text_prompt: Prompt for every text of `model`; {} stands for the text: 'a photo of {}'.
        index: Calibrated index of that model, for probabilities.
        graph: Graph of neighbours. Default: built from the words of texts.
        split: Split to score; all: the complete data set.
        out: Write all pairs as JSON lines.
        options: Settings of the model and of the data set, such as `features`, `device` or `batch_size`; the command's
            `--help` lists them.

    Returns:
        The scores of the pairs.

    Raises:
        RequirementError: If the index has no calibration.
        SearchIndexError: If the index is of another model; also raises the errors of loading the run and reading the
            data.
    """
    from subtext.data.atomic import require_file, write_text

    path = None if out is None else Path(out).expanduser()
    if path is not None:
        require_file(path)
    work = EvaluationSubject.of(ModelSource.of(run, model, text_prompt), split, data=pairs, **options)
    from subtext.curation.judged import FEWEST
    from subtext.retrieval.build import require_model
    from subtext.retrieval.calibration import stored_calibration
    from subtext.retrieval.stores.registry import open_store

    opened = open_subject(work).to_indexable("score pairs")
    calibration = None
    if index is not None:
        store = open_store(index)
        require_model(store, store.manifest, opened.model)
        with store.reading() as view:
            calibration = stored_calibration(view)
        if calibration is None:
            raise RequirementError(
                f"a probability needs an index that is calibrated; {store.path} is not; calibrate it (subtext index "
                "calibrate), or leave ",
                Setting("index"),
                " out",
            )
    rows = scored(opened, work, calibration=calibration, graph=None if graph is None else Path(graph))
    likely = (
        "probability: that a pair is right, if half of all pairs are random (calibration error "
        f"{calibration.pairs['calibration_error']:.3f})"
        if calibration is not None
        else "no probabilities: name an index that is calibrated (--index)"
    )
    kinds = (
        "looseness: 1 - probability of being literal, among these pairs"
        if len(rows) >= FEWEST and rows[0]["looseness"] is not None
        else "alignment not reported: the model cannot separate these pairs from random ones"
        if len(rows) >= FEWEST
        else f"alignment not reported: it needs {FEWEST} pairs or more"
    )
    result = PairScores(work.model.label, rows, f"{likely}; {kinds}", path)
    if path is not None:
        text = "".join(json_text(row) + "\n" for row in rows)
        write_text(path, text, errors="surrogateescape")
    return result


def scored(
    opened: LoadedRun, work: EvaluationSubject, *, calibration: Calibration | None, graph: Path | None
) -> list[dict[str, Any]]:
    """Compute a row per pair: names, words, similarity, probability, looseness; None for what is not known.

    similarity   cosine of the most similar views, as an index of the model has it (`Model.to_indexable`)
    probability  that the pair is right, if half of all pairs are random
    looseness    1 - P(literal), and the kind, in comparison with the other pairs; no kind where a test does not
                 support that, see `kinds.ExchangeTest`
    image_uncertainty, text_uncertainty   of a probabilistic model alone, as `subtext embed` writes them

    Args:
        opened: The model and the pairs.
        work: The settings.
        calibration: Of an index of the model; None for no probabilities.
        graph: Folder of a graph of neighbours; None to build one.

    Returns:
        The rows.
    """
    import numpy as np

    from subtext.curation.judged import FEWEST, kinds_of_pairs

    pairs = opened.pairs
    images, texts = opened.embed(work)
    has_many = len(pairs.links) >= FEWEST
    neighbours = graph_of(pairs, graph, quiet=work.quiet) if has_many else None
    columns, kinds, _ = kinds_of_pairs(pairs, images, texts, graph=neighbours)
    if kinds is not None and kinds.test is not None and not kinds.test.names_kinds:
        columns["kind"] = [None] * len(pairs.links)
    cosines = np.array(columns["cosine"])
    likely = [None] * len(cosines) if calibration is None else calibration.curve(cosines).tolist()
    spread = opened.model.image.uncertainty(images), opened.model.text.uncertainty(texts)
    rows = []
    for index, (image, text) in enumerate(pairs.links.tolist()):
        literal = columns["literal"][index]
        sides = ("image", image, spread[0]), ("text", text, spread[1])
        words, path = pairs.texts.values[text], pairs.images.values[image]
        rows.append(
            {
                "image": pairs.images.ids[image],
                "path": path if isinstance(path, str) else None,
                "text": pairs.texts.ids[text],
                "caption": words if isinstance(words, str) else None,
                "similarity": columns["cosine"][index],
                "probability": likely[index],
                "looseness": None if literal is None else 1 - literal,
                "kind": columns["kind"][index],
                **{f"{name}_uncertainty": float(values[row]) for name, row, values in sides if values is not None},
            }
        )
    return rows
