"""What is audited: a run, a pretrained model, or what any model gave, with its scores on a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from subtext.api.audit.training import Known, named_pairs, training_pairs
from subtext.api.external import Files, opened_files, read_split
from subtext.api.load import Opened, Work, choose_precision, open_work
from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.evaluation import Protocol, Result, embed_pairs, evaluate_embeddings
from subtext.report.progress import meter
from subtext.search import model_fingerprint

PROTOCOL = Protocol(c_way=())

Kind = Literal["run", "pretrained model", "score matrix", "set of vectors"]


@dataclass(frozen=True)
class Asked:
    """What is audited, and how.

    files      scores or vectors in place of the work's own model; None for that
    pictures   of the sample that is scored again and again      tolerance  in standard deviations of the scores
    seed       of sample, orders and shuffles                    skip       names of checks that are left out
    train_split  which split of the data a model without a record learnt from; None where nobody knows
    json_out, html_out  files; None for none
    """

    work: Work
    files: Files | None = None
    pictures: int = 128
    tolerance: float = 1e-3
    seed: int = 0
    skip: tuple[str, ...] = ()
    train_split: str | None = None
    json_out: Path | None = None
    html_out: Path | None = None

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Asked:
        """What the command was told; "-" for the JSON means no file.

        Raises RequirementError for files that do not go together.
        """
        json_out = None if values["json_out"] == Path("-") else values["json_out"]
        own = {name: values[name] for name in ("tolerance", "seed", "skip", "train_split", "html_out")}
        files = Files.from_options(values)
        return Asked(Work.from_options(values), files, pictures=values["sample"], json_out=json_out, **own)


@dataclass(frozen=True)
class Subject:
    """What the checks look at.

    name, kind     for people                  about  run, model or files, as JSON can hold them
    opened         the model and its record; None where only what it gave is there
    pairs, split   the audited ones            known  what was learnt from
    images, texts  vectors; None for scores    scores (I T); None where a model can be asked for them, or vectors
    """

    asked: Asked
    name: str
    kind: Kind
    about: dict[str, Any]
    opened: Opened | None
    pairs: Dataset
    split: str
    known: Known
    result: Result
    images: Embeddings | None = None
    texts: Embeddings | None = None
    scores: torch.Tensor | None = None


def subject_of(asked: Asked) -> Subject:
    """Open what is asked for, and measure it on the split.

    Raises what opening, reading and evaluating raise.
    """
    return _of_model(asked) if asked.files is None else _of_files(asked, asked.files)


def _of_model(asked: Asked) -> Subject:
    work = asked.work
    opened = open_work(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    pairs, record = opened.pairs, opened.record
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        items = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
    result = evaluate_embeddings(opened.model.similarity, *items, pairs, protocol=PROTOCOL)
    about: dict[str, Any] = {"fingerprint": model_fingerprint(opened.model)}
    if record is None:
        known = named_pairs(work.sources, asked.train_split, pairs)
        about = {"model": {"pretrained": work.model, **about}, "data": str(work.sources.data)}
        return Subject(
            asked, str(work.model), "pretrained model", about, opened, pairs, opened.split, known, result, *items
        )
    assert work.run is not None
    about = {
        "run": str(work.run.expanduser().resolve()),
        "model": {"host": record.model, "seed": record.seed, **about},
        **({"scores_in_bf16": True} if opened.model.scores_in_bf16 else {}),
        "data": str(work.sources.data or record.data.data),
    }
    known = training_pairs(record, pairs)
    return Subject(asked, work.run.name, "run", about, opened, pairs, opened.split, known, result, *items)


def _of_files(asked: Asked, files: Files) -> Subject:
    sources = asked.work.sources
    pairs, split = read_split(sources, asked.work.split)
    given = opened_files(files, pairs)
    kind: Kind = "set of vectors" if given.scores is None else "score matrix"
    path = files.scores or files.images
    assert path is not None
    return Subject(
        asked,
        path.name,
        kind,
        {"model": given.about, "data": str(sources.data)},
        None,
        pairs,
        split,
        named_pairs(sources, asked.train_split, pairs),
        given.evaluated(pairs, PROTOCOL),
        given.images,
        given.texts,
        given.scores,
    )
