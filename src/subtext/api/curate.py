"""`subtext.curate`: every pair of a data set with what is known of it, as a page, a table and a cleaned data set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.options import (
    BatchSize,
    Device,
    Features,
    Images,
    Metavar,
    OnError,
    Quiet,
    Range,
    Run,
    Section,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)
from subtext.errors import DataError, OutputError, counted

if TYPE_CHECKING:
    import pandas

    from subtext.api.load import Opened, Work
    from subtext.core import Embeddings
    from subtext.curation.judged import Judged
    from subtext.data.dataset import Dataset
    from subtext.data.noise import Labels
    from subtext.neighbours.graph import Graph

Reason = Literal["mismatched", "copies", "leaks", "unusable", "flagged"]
DROP: tuple[Reason, ...] = ("mismatched", "copies", "leaks", "unusable")
TRUTHS = {"mismatch": "mismatched", "neighbour": "loose", "": "literal"}
"""Kinds of planted pairs, as they are called here."""


@dataclass(frozen=True)
class Curation:
    """What is known of the pairs of a data set.

    report    counts, shares and copies, as plain data         columns  name -> a value per pair
    left_out  of each pair the reasons to leave it out, in words; none for a pair that stays
    path      folder with the page, the table and the report   exports  files with the pairs that stay
    """

    report: dict[str, Any]
    columns: dict[str, list[Any]]
    left_out: list[list[str]]
    path: Path
    exports: tuple[Path, ...] = ()

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.left_out)

    def __repr__(self) -> str:
        return f"Curation({counted(len(self), 'pair')}, {self.report['left_out']:,} left out; {self.path})"

    def __str__(self) -> str:
        files = "index.html (a page), pairs.parquet (every pair), left_out.jsonl (with reasons), report.json"
        stay = len(self) - self.report["left_out"]
        exports = [f"{file}: {counted(stay, 'pair')}" for file in self.exports]
        return "\n".join([*_lines(self.report), f"{self.path}: {files}", *exports])

    def to_json(self) -> dict[str, Any]:
        """The report, as plain data."""
        return self.report

    def to_frame(self) -> pandas.DataFrame:
        """A row per pair. Needs pandas."""
        import pandas

        return pandas.DataFrame({**self.columns, "left_out": self.left_out})

    def _repr_html_(self) -> str:
        """The report, for a notebook."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


@verb
def curate(
    data: Annotated[str | Path, "Data set to curate.", Metavar("DATA")],
    *,
    run: Run,
    out: Annotated[str | Path, "New folder for the results.", Metavar("DIR"), Section("Output")],
    export: Annotated[
        tuple[str | Path, ...],
        "File for the pairs that stay: .jsonl, .parquet, or .tar (WebDataset); repeatable.",
        Metavar("FILE"),
        Section("Output"),
    ] = (),
    page_pairs: Annotated[int, "Pairs on the page.", Range(1), Section("Output")] = 500,
    graph: Annotated[
        str | Path | None, "Neighbours of the texts. Default: built from their words.", Section("Model")
    ] = None,
    drop: Annotated[
        tuple[Reason, ...], "Reason to leave a pair out; repeatable. Default: all but flagged.", Section("Leave out")
    ] = (),
    mismatch_threshold: Annotated[
        float, "Probability of a mismatch from which a pair is left out.", Range(0, 1), Section("Leave out")
    ] = 0.5,
    labels: Annotated[
        str | Path | None, "Noise labels of `subtext data corrupt`, to measure the result by.", Metavar("FILE"),
        Section("Measure"),
    ] = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Annotated[str, "Split to curate; all for the complete set.", Section("Data")] = "all",
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Curation:  # fmt: skip
    """Find pairs that do not belong together, copies, leaks between splits, and odd images and texts.

    Every pair gets probabilities of being literal, loosely aligned and mismatched, by comparison with images paired
    with random texts and with texts of neighbours. The folder gets a page to sort and filter, a table of all pairs, and
    the pairs left out with their reasons.

    Items of a probabilistic model are compared by their means; the table lists the uncertainty of each item.

    Raises RequirementError for a model that only scores pairs, OutputError where the folder is not empty, and what
    loading the run and reading the data raise.
    """
    import numpy as np

    from subtext.api.load import Sources, Work, open_work
    from subtext.curation.export import export as export_pairs
    from subtext.curation.export import page, write_rows
    from subtext.curation.judged import judge, left_out
    from subtext.data.atomic import write_text
    from subtext.data.noise import read_labels
    from subtext.report.progress import meter

    folder, exports = Path(out).expanduser(), tuple(Path(file).expanduser() for file in export)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--out needs a new or an empty folder; {folder} is not empty; name another")
    sources = Sources.of(data, images, features, text_features, split_seed, on_error)
    work = Work(Path(run), None, sources, split, device, batch_size, workers, quiet)
    truth = None if labels is None else read_labels(Path(labels))
    opened = open_work(replace(work, split="all") if truth is not None else work)
    if truth is not None:
        truth.require(opened.pairs)
        opened = replace(opened, pairs=opened.pairs.split(split))
    opened = opened.by_mean("curate")
    vectors = embedded(opened, work)
    neighbours = graph_of(opened.pairs, None if graph is None else Path(graph), quiet=quiet)
    with meter("checking images", len(opened.pairs.images), quiet=quiet) as progress:
        judgement = judge(opened.pairs, *vectors, graph=neighbours, workers=workers, progress=progress)
    why = left_out(judgement, drop or DROP, least=mismatch_threshold)
    out_mask = np.array([bool(reasons) for reasons in why])
    report = _report(judgement, why, opened, work, truth)
    for file in exports:
        export_pairs(judgement, np.flatnonzero(~out_mask), file)
    write_rows(judgement, why, np.arange(len(judgement), dtype=np.int64), folder / "pairs.parquet")
    write_rows(judgement, why, np.flatnonzero(out_mask), folder / "left_out.jsonl")
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    write_text(folder / "report.json", text, errors="surrogateescape")
    html = page(
        judgement, why, _first(judgement, why, page_pairs), title=f"Pairs of {Path(report['data']).name}",
        lead=_lead(judgement, page_pairs), lines=_lines(report),
    )  # fmt: skip
    write_text(folder / "index.html", html, errors="surrogateescape")
    return Curation(report, judgement.columns, why, folder, exports)


def graph_of(pairs: Dataset, path: Path | None, *, quiet: bool) -> Graph | None:
    """The graph that was given, or one of the texts' words; None where there are too few texts, or no words."""
    from subtext.curation.kinds import NEIGHBOURS
    from subtext.neighbours.build import GraphOptions, build_graph
    from subtext.neighbours.graph import Graph
    from subtext.neighbours.lsa import Lsa
    from subtext.report.progress import meter, say

    if path is not None:
        return Graph.load(path)
    try:
        with meter("neighbours", len(pairs.texts), quiet=quiet) as progress:
            return build_graph(
                pairs, Lsa(), GraphOptions(neighbours=2 * NEIGHBOURS, candidate_split="all"), compared=progress
            )
    except DataError as problem:
        say(f"note: nothing is said of neighbours: {problem}", quiet=quiet)
        return None


def embedded(opened: Opened, work: Work) -> tuple[Embeddings, Embeddings]:
    """The embeddings of the pairs' items."""
    from subtext.evaluation import embed_pairs
    from subtext.report.progress import meter

    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as progress:
        return embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=progress)


def _report(
    judgement: Judged, why: Sequence[Sequence[str]], opened: Opened, work: Work, labels: Labels | None
) -> dict[str, Any]:
    """What was found, as plain data."""
    from subtext.api.evaluate import split_role
    from subtext.curation.kinds import KINDS

    columns = judgement.columns
    split = opened.split if labels is None else work.split or "all"
    kinds = Counter(kind for kind in columns["kind"] if kind is not None)
    data = work.sources.data or (opened.record.data.data if opened.record is not None else "")
    report: dict[str, Any] = {
        "data": str(data),
        "run": str(work.run),
        "split": split,
        "split_role": split_role(replace(opened, split=split), work.sources)[0],
        "pairs": len(judgement),
        "left_out": sum(map(bool, why)),
        "reasons": dict(Counter(reason.split(" (")[0] for reasons in why for reason in reasons).most_common()),
        "kinds": {kind: kinds[kind] for kind in KINDS} if kinds else None,
        "shares": judgement.shares,
        "copies": {
            "pictures": _copies(judgement.pairs.images.ids, columns["image"], columns["image_copies"]),
            "texts": _copies(judgement.pairs.texts.ids, columns["text"], columns["text_copies"]),
        },
        "leaks": int(sum(columns["leak"])),
        "flags": dict(Counter(flag for flags in columns["flags"] for flag in flags).most_common()),
        "languages": dict(Counter(str(name) for name in columns["language"]).most_common(10)),
        "how": judgement.how,
    }
    return report if labels is None else {**report, "planted": planted(judgement, labels)}


def planted(judgement: Judged, labels: Labels) -> dict[str, Any]:
    """How well the kinds are told, by labels of planted looseness: areas under the curve, calibration error, hits.

    The area is that of each probability against all other pairs, but of "loose" against the literal alone.
    """
    import numpy as np

    from subtext.curation.kinds import KINDS
    from subtext.ops.roc import auc, reliability

    truth = [TRUTHS[str(kind)] for kind in labels.of(judgement.pairs)[judgement.pairs.links[:, 1]]]
    marked = {kind: np.array([is_kind == kind for is_kind in truth]) for kind in KINDS}
    report: dict[str, Any] = {"pairs": {kind: int(is_kind.sum()) for kind, is_kind in marked.items()}}
    for kind in KINDS:
        if not marked[kind].any() or judgement.columns[kind][0] is None:
            continue
        likely = np.array(judgement.columns[kind], dtype=np.float64)
        among = marked["literal"] | marked["loose"] if kind == "loose" else np.ones(len(likely), dtype=np.bool_)
        called = np.array([is_kind == kind for is_kind in judgement.columns["kind"]])
        report[kind] = {
            "auc": auc(likely[among], marked[kind][among]),
            "calibration_error": reliability(np.clip(likely, 0, 1), marked[kind]).error,
            "said": float(likely.mean()),
            "true": float(marked[kind].mean()),
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
    if report["kinds"] and report["split_role"] == "training":
        lines.append(
            f"warning: split {report['split']} has what the run learnt from: it knows mismatched pairs by heart, and "
            "finds hardly one; let a run judge what it has not seen (train on one half, look at the other)"
        )
    if report["kinds"]:
        kinds = ", ".join(f"{kind} {count:,} ({100 * count / total:.1f} %)" for kind, count in report["kinds"].items())
        lines.append(f"likeliest kinds: {kinds}")
    copies = report["copies"]
    for key, modality in (("pictures", "images"), ("texts", "texts")):
        counts = copies[key]
        if counts["items"]:
            lines.append(
                f"copies among {modality}: {counts['items']:,} of {counts['of']:,}, "
                f"in {counted(counts['groups'], 'group')}"
            )
    if report["leaks"]:
        lines.append(f"leaks: {counted(report['leaks'], 'pair')} with a copy in a held-out split")
    if report["flags"]:
        lines.append("flags: " + ", ".join(f"{flag} {count:,}" for flag, count in report["flags"].items()))
    for kind, counts in report.get("planted", {}).items():
        if kind in KINDS:
            lines.append(
                f"planted, {kind}: area under the curve {counts['auc']:.3f}, calibration error "
                f"{counts['calibration_error']:.3f}; {counts['called_rightly']:,} of {counts['called']:,} called so are"
            )
    return lines


def _lead(judgement: Judged, shown: int) -> str:
    most = min(shown, len(judgement))
    return (
        f"The {most:,} of {len(judgement):,} pairs that are most likely mismatched, and what was left out. "
        "The probabilities are one model's, from a comparison with random pairs and with neighbours' texts: look at "
        "the pairs before you delete any."
    )


def _first(judgement: Judged, why: Sequence[Sequence[str]], shown: int) -> list[int]:
    """The pairs for the page: the likeliest mismatches, else the least aligned."""
    wrong = [value if value is not None else 0.0 for value in judgement.columns["mismatched"]]
    order = sorted(range(len(judgement)), key=lambda link: (-wrong[link], judgement.columns["alignment"][link], link))
    half = order[: shown // 2]
    also = [link for link in order if why[link] and link not in set(half)][: shown - len(half)]
    remaining = [link for link in order if link not in {*half, *also}]
    return [*half, *also, *remaining][:shown]
