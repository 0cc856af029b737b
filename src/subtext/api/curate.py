"""`subtext curate`: what is known of every pair of a data set, as a page, a table, and what is kept of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from subtext.api.evaluate import split_role
from subtext.api.load import Opened, Work, open_work
from subtext.core import Embeddings
from subtext.curation.export import export, write_rows
from subtext.curation.judged import REASONS, Judged, Reason, judge, left_out
from subtext.curation.kinds import KINDS
from subtext.curation.page import Head, page
from subtext.curation.surroundings import NEAR
from subtext.data.atomic import write_text
from subtext.data.dataset import Dataset
from subtext.data.noise import Labels, read_labels
from subtext.errors import DataError, OutputError, counted
from subtext.evaluation import embed_pairs
from subtext.evaluation.metrics.detection import auc
from subtext.neighbours.build import GraphOptions, build_graph
from subtext.neighbours.graph import Graph
from subtext.neighbours.lsa import Lsa
from subtext.ops.reliability import reliability
from subtext.report.progress import meter, say

TRUTHS = {"mismatch": "mismatched", "neighbour": "loose", "": "literal"}
"""Kinds of planted pairs, as they are called here."""


@dataclass(frozen=True)
class Curation:
    """What `subtext curate` was asked for.

    out     a folder for the page, the table and the report        export  files for the pairs that are kept
    graph   of the texts; None builds one from their words         drop    reasons to leave pairs out
    least   probability of a mismatch from which a pair goes       shown   pairs on the page
    labels  of `subtext data loosen`: how well the kinds are told is measured
    """

    out: Path
    export: Sequence[Path] = ()
    graph: Path | None = None
    drop: Sequence[Reason] = REASONS[:-1]
    least: float = 0.5
    shown: int = 500
    labels: Path | None = None

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Curation:
        """The wishes among a command's options."""
        return Curation(
            values["out"], values["export"], values["graph"], values["drop"] or REASONS[:-1], values["least"],
            values["shown"], values["labels"],
        )  # fmt: skip


def curate(work: Work, asked: Curation) -> str:
    """Look at every pair, write what was found, and say it in words.

    Of a probabilistic model items are compared by their means, and each one's uncertainty stands beside its pairs.
    Raises what opening and reading raise, RequirementError for a model that only scores pairs, OutputError where the
    folder holds something.
    """
    if asked.out.exists() and (not asked.out.is_dir() or any(asked.out.iterdir())):
        raise OutputError(f"--out needs a new or an empty folder; {asked.out} holds something; name another")
    known = None if asked.labels is None else read_labels(asked.labels)
    opened = open_work(replace(work, split="all") if known is not None else work)
    if known is not None:
        known.require(opened.pairs)
        opened = replace(opened, pairs=opened.pairs.split(work.split or "all"))
    opened = opened.by_mean("curate")
    judged = _judged(opened, work, asked)
    why = left_out(judged, asked.drop, least=asked.least)
    kept = np.array([link for link, reasons in enumerate(why) if not reasons], dtype=np.int64)
    gone = np.array([link for link, reasons in enumerate(why) if reasons], dtype=np.int64)
    report = _report(judged, why, opened, work, known)
    lines = _lines(report)
    for file in asked.export:
        export(judged, kept, file)
    write_rows(judged, why, np.arange(len(judged), dtype=np.int64), asked.out / "pairs.parquet")
    write_rows(judged, why, gone, asked.out / "left_out.jsonl")
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    write_text(asked.out / "report.json", text, errors="surrogateescape")
    head = Head(f"Pairs of {Path(report['data']).name}", _lead(judged, asked.shown), lines)
    shown = page(judged, why, _first(judged, why, asked.shown), head)
    write_text(asked.out / "index.html", shown, errors="surrogateescape")
    files = ["index.html (a page)", "pairs.parquet (every pair)", "left_out.jsonl (with reasons)", "report.json"]
    told = [f"{file}: {counted(len(kept), 'pair')}" for file in asked.export]
    return "\n".join([*lines, f"{asked.out}: {', '.join(files)}", *told])


def graph_of(pairs: Dataset, path: Path | None, *, quiet: bool) -> Graph | None:
    """The graph that was given, or one of the texts' words; None where there are too few texts, or no words."""
    if path is not None:
        return Graph.load(path)
    try:
        with meter("neighbours", len(pairs.texts), quiet=quiet) as told:
            return build_graph(pairs, Lsa(), GraphOptions(neighbours=2 * NEAR, candidate_split="all"), compared=told)
    except DataError as problem:
        say(f"note: nothing is said of neighbours: {problem}", quiet=quiet)
        return None


def embedded(opened: Opened, work: Work) -> tuple[Embeddings, Embeddings]:
    """The embeddings of the pairs' items."""
    pairs = opened.pairs
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        return embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)


def _judged(opened: Opened, work: Work, asked: Curation) -> Judged:
    images, texts = embedded(opened, work)
    graph = graph_of(opened.pairs, asked.graph, quiet=work.quiet)
    with meter("looking at pictures", len(opened.pairs.images), quiet=work.quiet) as told:
        return judge(opened.pairs, images, texts, graph=graph, workers=work.workers, progress=told)


def _report(
    judged: Judged, why: Sequence[Sequence[str]], opened: Opened, work: Work, labels: Labels | None
) -> dict[str, Any]:
    """What was found, as plain data."""
    columns = judged.columns
    split = opened.split if labels is None else work.split or "all"
    kinds = Counter(kind for kind in columns["kind"] if kind is not None)
    data = work.sources.data or (opened.record.data.data if opened.record is not None else "")
    found: dict[str, Any] = {
        "data": str(data),
        "run": str(work.run),
        "split": split,
        "split_role": split_role(replace(opened, split=split), work.sources)[0],
        "pairs": len(judged),
        "left_out": sum(map(bool, why)),
        "reasons": dict(Counter(reason.split(" (")[0] for reasons in why for reason in reasons).most_common()),
        "kinds": {kind: kinds[kind] for kind in KINDS} if kinds else None,
        "shares": judged.shares,
        "copies": {
            "pictures": _copies(judged.pairs.images.ids, columns["picture"], columns["picture_copies"]),
            "texts": _copies(judged.pairs.texts.ids, columns["text"], columns["text_copies"]),
        },
        "leaks": int(sum(columns["leak"])),
        "flags": dict(Counter(flag for flags in columns["flags"] for flag in flags).most_common()),
        "languages": dict(Counter(str(name) for name in columns["language"]).most_common(10)),
        "how": judged.how,
    }
    return found if labels is None else {**found, "planted": planted(judged, labels)}


def planted(judged: Judged, labels: Labels) -> dict[str, Any]:
    """How well the kinds are told, by labels of planted looseness: areas under the curve, calibration error, hits.

    The area is that of each probability against all other pairs, but of "loose" against the literal alone.
    """
    truth = [TRUTHS[str(kind)] for kind in labels.of(judged.pairs)[judged.pairs.links[:, 1]]]
    marked = {kind: np.array([own == kind for own in truth]) for kind in KINDS}
    found: dict[str, Any] = {"pairs": {kind: int(own.sum()) for kind, own in marked.items()}}
    for kind in KINDS:
        if not marked[kind].any() or judged.columns[kind][0] is None:
            continue
        likely = np.array(judged.columns[kind], dtype=np.float64)
        among = marked["literal"] | marked["loose"] if kind == "loose" else np.ones(len(likely), dtype=np.bool_)
        called = np.array([own == kind for own in judged.columns["kind"]])
        found[kind] = {
            "auc": auc(likely[among], marked[kind][among]),
            "calibration_error": reliability(np.clip(likely, 0, 1), marked[kind]).error,
            "said": float(likely.mean()),
            "true": float(marked[kind].mean()),
            "called": int(called.sum()),
            "called_rightly": int((called & marked[kind]).sum()),
        }
    return found


def _copies(every: Sequence[str], ids: Sequence[str], numbers: Sequence[int]) -> dict[str, int]:
    """Items that are copies of another, and their groups."""
    of_item = {name: number for name, number in zip(ids, numbers, strict=True) if number >= 0}
    return {"of": len(every), "items": len(of_item), "groups": len(set(of_item.values()))}


def _lines(report: Mapping[str, Any]) -> list[str]:
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
        told = ", ".join(f"{kind} {count:,} ({100 * count / total:.1f} %)" for kind, count in report["kinds"].items())
        lines.append(f"likeliest kinds: {told}")
    copies = report["copies"]
    for what in ("pictures", "texts"):
        own = copies[what]
        if own["items"]:
            lines.append(
                f"copies among {what}: {own['items']:,} of {own['of']:,}, in {counted(own['groups'], 'group')}"
            )
    if report["leaks"]:
        lines.append(f"leaks: {counted(report['leaks'], 'pair')} with a copy in a held-out split")
    if report["flags"]:
        lines.append("flags: " + ", ".join(f"{flag} {count:,}" for flag, count in report["flags"].items()))
    for kind, own in report.get("planted", {}).items():
        if kind in KINDS:
            lines.append(
                f"planted, {kind}: area under the curve {own['auc']:.3f}, calibration error "
                f"{own['calibration_error']:.3f}; {own['called_rightly']:,} of {own['called']:,} called so are"
            )
    return lines


def _lead(judged: Judged, shown: int) -> str:
    most = min(shown, len(judged))
    return (
        f"The {most:,} of {len(judged):,} pairs that are most likely mismatched, and what was left out. Probabilities "
        "are one model's, beside pairs put together by chance or from neighbours' texts: look before you delete."
    )


def _first(judged: Judged, why: Sequence[Sequence[str]], shown: int) -> list[int]:
    """The pairs for the page: the likeliest mismatches, else the least aligned."""
    wrong = [value if value is not None else 0.0 for value in judged.columns["mismatched"]]
    order = sorted(range(len(judged)), key=lambda link: (-wrong[link], judged.columns["alignment"][link], link))
    half = order[: shown // 2]
    also = [link for link in order if why[link] and link not in set(half)][: shown - len(half)]
    rest = [link for link in order if link not in {*half, *also}]
    return [*half, *also, *rest][:shown]
