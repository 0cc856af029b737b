"""`subtext evaluate` and `subtext audit`: flat options, of which metrics, protocol and second stage are made."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import subtext
from subtext.api import options as opt
from subtext.api.audit import AuditSeed, Html, SampleSize, Skip, Tolerance, TrainSplit
from subtext.api.evaluate import (
    ComputeConfig,
    ExternalConfig,
    ImageEmbeddings,
    Scores,
    SecondStage,
    SubjectData,
    TextEmbeddings,
    require_outputs,
)
from subtext.api.load import ModelSource
from subtext.api.options import AnyPath
from subtext.data.config import DataConfig
from subtext.data.objects import Rows
from subtext.errors import ArgumentError
from subtext.settings import Commas, Interval, Metavar, OptionGroup, Shown, Unfold, command

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.evaluation import Protocol, Result
    from subtext.evaluation.checks.audit import Audit
    from subtext.evaluation.metric import Measure
    from subtext.models.model import Model

_STAGES, _PROTOCOL, _RELEVANCE = OptionGroup("Two stages"), OptionGroup("Protocol"), OptionGroup("Relevance")
_TRUTH, _SPACE, _OUTPUT = OptionGroup("Truth"), OptionGroup("Space and subsets"), OptionGroup("Output")
_FILE, _CHECKS = Metavar("FILE"), OptionGroup("Checks")
_FOLDS = re.compile(r"[1-9]\d*|[1-9]\d*k(\+[1-9]\d*k)*")


@dataclass(frozen=True)
class EvaluationOptions:
    """What is measured and how, as flat options; the help text of each describes it.

    Raises:
        ArgumentError: For an option that nothing would read.
    """

    ties: Annotated[
        Literal["pessimistic", "optimistic", "expected", "stable"],
        "Rank of a match among candidates with the same score.",
        _PROTOCOL,
    ] = "pessimistic"
    folds: Annotated[
        str | int,
        "Number of folds to average over, such as 5 for COCO 1K; or fold sizes, such as 1k+5k for both.",
        _PROTOCOL,
    ] = "1"
    c_way: Annotated[
        tuple[int, ...],
        "Accuracy at picking a match among c candidates, for instance 5,20,100. Each match is tested separately.",
        Interval(2),
        Commas(),
        Metavar("N,N,..."),
        _PROTOCOL,
    ] = ()
    c_way_best: Annotated[bool, "Also report N_way_best: c-way accuracy of the best match of a query.", _PROTOCOL] = (
        False
    )
    graph: Annotated[
        AnyPath | None,
        "Also measure how many neighbours in this graph (subtext neighbours) are neighbours in the joint space.",
        _PROTOCOL,
        Metavar("GRAPH"),
    ] = None
    bootstrap: Annotated[int, "Bootstrap samples of images for 95 % intervals; 0 for none.", Interval(0), _PROTOCOL] = (
        1000
    )
    seed: Annotated[int, "Seed of the bootstrap.", _PROTOCOL] = 0
    relevance: Annotated[
        tuple[str, ...],
        "ASP, gain and nDCG by relevance: tfidf1, ciderd, cider, judged, class_tfidf1, sentence:MODEL.",
        Commas(),
        Metavar("NAME,..."),
        _RELEVANCE,
    ] = ()
    references: Annotated[
        int | None, "Texts of an image that define its relevance: the first N. Default: all.", Interval(1), _RELEVANCE
    ] = None
    asp_ties: Annotated[Literal["ordinal", "min", "average"], "Ranks of equal values in ASP.", _RELEVANCE] = "ordinal"
    asp_top: Annotated[
        tuple[int, ...], "ASP over the N most relevant items.", Interval(1), Commas(), Metavar("N,N,..."), _RELEVANCE
    ] = ()
    gain: Annotated[tuple[int, ...], "k of gain@k.", Interval(1), Commas(), _RELEVANCE] = (5, 10, 20)
    ndcg: Annotated[tuple[int, ...], "k of nDCG@k.", Interval(1), Commas(), _RELEVANCE] = (10,)
    r_precision: Annotated[bool, "R-Precision and mAP@R of the pairs.", _TRUTH] = False
    truth: Annotated[
        tuple[str, ...],
        "Recall, R-Precision and mAP@R with the positives of ECCV Caption (eccv=FOLDER) or Crisscrossed "
        "Captions (cxc=FOLDER); repeatable.",
        Metavar("NAME=PATH"),
        _TRUTH,
    ] = ()
    pmrp: Annotated[bool, "PMRP, from the labels of the images.", _TRUTH] = False
    human_ratings: Annotated[str | Path | None, "Agreement with human ratings of pairs.", Metavar("TABLE"), _TRUTH] = (
        None
    )
    positive_rating: Annotated[
        float | None, "Ratings at or above this count as positive. Default: mid-range.", _TRUTH
    ] = None
    by_length: Annotated[bool, "Recall of texts by their length in words.", _SPACE] = False
    hubness: Annotated[
        int,
        "Hubness at k: skewness of the number of times that a candidate is in a top k; 0 for none.",
        Interval(0),
        _SPACE,
    ] = 0
    alignment_uniformity: Annotated[bool, "Alignment and uniformity of embeddings.", _SPACE] = False
    pair_alignment_uniformity: Annotated[
        bool, "Alignment and uniformity of vectors that depend on the pair (model ascl).", _SPACE
    ] = False

    def __post_init__(self) -> None:
        graded = ("references", "asp_ties", "asp_top", "gain", "ndcg")
        for needed, present, names in (
            ("--relevance NAME", self.relevance, graded),
            ("--human-ratings TABLE", self.human_ratings, ("positive_rating",)),
        ):
            for field in fields(self):
                if field.name in names and not present and getattr(self, field.name) != field.default:
                    message = f"{field.name} is for {needed}; give that, or leave it out"
                    raise ArgumentError(message, field=field.name)
        if not _FOLDS.fullmatch(str(self.folds)):
            raise ArgumentError(
                f"folds needs a number of folds, or sizes in thousands: 5, 1k, 1k+5k; it got {self.folds}",
                field="folds",
            )

    def protocol(self) -> Protocol:
        """How it is measured.

        Returns:
            Ties, folds, references and the bootstrap.
        """
        from subtext.evaluation import Protocol

        text = str(self.folds)
        sizes = [int(size.removesuffix("k")) * 1000 for size in text.split("+") if size.endswith("k")]
        return Protocol(
            ties=self.ties,
            folds=1 if sizes else int(text),
            fold_sizes=tuple(dict.fromkeys(sizes)),
            references=self.references,
            bootstrap=self.bootstrap,
            seed=self.seed,
        )

    def metrics(self) -> list[Measure]:
        """The default metrics, and those of the options.

        Returns:
            Metrics in the order of the report.
        """
        from subtext.evaluation import metrics as m
        from subtext.evaluation.metric import registered

        ks = (1, 5, 10)
        chosen: list[Measure] = [m.Recall(*ks, by_length=self.by_length), *m.default_metrics()[1:]]
        choices = [(c, at) for c in self.c_way for at in (1, 3) if at < c]
        chosen += [m.CWay(c, at) for c, at in choices]
        chosen += [m.CWayBest(c, at) for c, at in choices if self.c_way_best]
        chosen += [m.CWayRank(c) for c in self.c_way]
        for against in self.truth:
            more = (m.Recall(*ks, against=against), m.RPrecision(against=against), m.AveragePrecision(against=against))
            chosen += more
        if self.r_precision:
            chosen += [m.RPrecision(), m.AveragePrecision()]
        for name in self.relevance:
            chosen += [m.ASP(name, self.asp_ties, top) for top in (0, *self.asp_top)]
            chosen += [m.SemanticGain(k, against=name) for k in self.gain]
            chosen += [m.NDCG(k, against=name) for k in self.ndcg]
            chosen += registered("relevance", name)
        if self.pmrp:
            chosen += [m.PMRP(), m.PMRecall(), *registered("labels")]
        if self.hubness:
            chosen.append(m.Hubness(self.hubness))
        if self.human_ratings is not None:
            chosen.append(m.HumanAgreement(self.positive_rating, against=str(self.human_ratings)))
        if self.graph is not None:
            chosen.append(m.Preservation(against=str(Path(self.graph))))
        if self.alignment_uniformity:
            chosen.append(m.AlignmentUniformity())
        if self.pair_alignment_uniformity:
            chosen.append(m.AlignmentUniformity(of_pairs=True))
        return chosen


@command
def evaluate(
    run: opt.OptionalRun = None,
    *,
    model: opt.Pretrained = None,
    data: SubjectData = None,
    split: opt.Split = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    external: ExternalConfig = ExternalConfig(),
    rerank: Annotated[
        AnyPath | None, "A second model, which re-ranks the top candidates of the first.", _STAGES, Metavar("RUN")
    ] = None,
    candidates: Annotated[
        tuple[int, ...] | None,
        "Number of candidates per query. Several values are compared with scoring every pair.",
        Interval(1),
        Commas(),
        Shown("100"),
        Metavar("N[,N...]"),
        _STAGES,
    ] = None,
    rerank_features: Annotated[
        str | Path | None, "Features for the second model. Default: those of its run.", _STAGES, _FILE
    ] = None,
    plot: Annotated[str | Path | None, "Plot the sweep as SVG: recall over cost.", _STAGES, _FILE] = None,
    measured: EvaluationOptions = EvaluationOptions(),
    config: ComputeConfig = ComputeConfig(),
    json: Annotated[
        str | Path | None, "Write figures and protocol as JSON; - for standard output.", _FILE, _OUTPUT
    ] = None,
    per_query: Annotated[str | Path | None, "Write one value per query as npz, for `compare`.", _FILE, _OUTPUT] = None,
    quiet: opt.Quiet = False,
) -> Result:
    """Measure how well a model retrieves the texts of images and the images of texts.

    Without --data, the data set of the run is used. Recall is in per cent. The line "95 %" shows bootstrap intervals
    over images; it needs at least ten images. The line "chance" is the expected result of a random ranking.

    Args:
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter (needs no network), a hub name or a folder (CLIP,
            SigLIP), or open_clip:ARCHITECTURE/WEIGHTS.
        data: Data set: a file or folder. Default: that of the run.
        split: Split to use; all: the complete data set. Default: the run's validation split.
        scores: Scores of images x texts with ids: npz, npy, safetensors, parquet; or constant: the same score for all.
        image_embeddings: Vectors of the images with ids, in the same formats.
        text_embeddings: Vectors of the texts; can be the same file.
        external: Ids, groups and splits of scores or vectors from files.
        rerank: A second model, which re-ranks the top candidates of the first.
        candidates: Number of candidates per query. Several values are compared with scoring every pair.
        rerank_features: Features for the second model. Default: those of its run.
        plot: Plot the sweep as SVG: recall over cost.
        measured: What is measured, and how.
        config: Where and how the model computes.
        json: Write figures and protocol as JSON; - for standard output.
        per_query: Write one value per query as npz, for `compare`.
        quiet: Show no progress.

    Returns:
        The figures.

    Raises:
        ArgumentError: For an option that nothing would read.
    """
    has_files = (scores or image_embeddings or text_embeddings) is not None
    source, config = _source("evaluate", run, model, data, config, external, has_files=has_files)
    for name, value in (("candidates", candidates), ("rerank_features", rerank_features), ("plot", plot)):
        if rerank is None and value is not None:
            raise ArgumentError(f"{name} is for --rerank RUN; give that, or leave it out", field=name)
    if config.cache is not None and not measured.relevance:
        raise ArgumentError("cache is for --relevance NAME; give that, or leave it out", field="cache")
    if plot is not None and len(candidates or ()) < 2:
        raise ArgumentError("plot needs a sweep: several --candidates N,N,... such as 10,20,50,100", field="plot")
    require_outputs({"json": json, "per_query": per_query, "plot": plot})
    result = subtext.evaluate(
        source,
        data,
        split=split,
        metrics=measured.metrics(),
        protocol=measured.protocol(),
        scores=scores,
        image_embeddings=image_embeddings,
        text_embeddings=text_embeddings,
        external=external,
        rerank=None if rerank is None else SecondStage(rerank, tuple(candidates or (100,)), rerank_features),
        config=config,
        quiet=quiet,
    )
    if json is not None:
        result.save(Path(json))
    if per_query is not None:
        result.save_queries(Path(per_query))
    if plot is not None:
        from subtext.data.atomic import write_text
        from subtext.evaluation.two_stages.sweep import plot_sweep

        write_text(Path(plot), plot_sweep(result))
    return result


@command
def audit(
    run: opt.OptionalRun = None,
    *,
    model: opt.Pretrained = None,
    config: Annotated[ComputeConfig, Unfold(ComputeConfig(), without=("cache",))] = ComputeConfig(),
    data: SubjectData = None,
    split: opt.Split = None,
    train_split: TrainSplit = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    external: ExternalConfig = ExternalConfig(),
    skip: Skip = (),
    sample_size: SampleSize = 128,
    tolerance: Tolerance = 1e-3,
    seed: AuditSeed = 0,
    json: Annotated[str | Path | None, "Write the audit as JSON; - for standard output.", _FILE, _OUTPUT] = None,
    html: Html = None,
    quiet: opt.Quiet = False,
) -> Audit:
    """Check an evaluation for leaks, and for scores that depend on other pairs.

    The audit scores a sample again in other orders, blocks and batches. It shuffles the truth, counts ties and NaN, and
    compares recall by caption position. It searches the audited split for images, texts and words of the training
    split. For scores or vectors from a file, checks that need the model are left out. The exit code is 1 if a check
    fails.

    Args:
        run: Folder of a trained run.
        model: Pretrained dual encoder instead of RUN: starter (needs no network), a hub name or a folder (CLIP,
            SigLIP), or open_clip:ARCHITECTURE/WEIGHTS.
        config: Where and how the model computes.
        data: Data set: a file or folder. Default: that of the run.
        split: Split to use; all: the complete data set. Default: the run's validation split.
        train_split: Without RUN: split that the model was trained on, if known.
        scores: Scores of images x texts with ids: npz, npy, safetensors, parquet; or constant: the same score for all.
        image_embeddings: Vectors of the images with ids, in the same formats.
        text_embeddings: Vectors of the texts; can be the same file.
        external: Ids, groups and splits of scores or vectors from files.
        skip: Check to leave out; repeatable.
        sample_size: Images that are scored again in other orders, blocks and batches.
        tolerance: Largest allowed change of a score, in standard deviations of all scores.
        seed: Seed of the sample and the shuffles.
        json: Write the audit as JSON; - for standard output.
        html: Write the audit as one page.
        quiet: Show no progress.

    Returns:
        The checks and their findings.
    """
    has_files = (scores or image_embeddings or text_embeddings) is not None
    source, config = _source("audit", run, model, data, config, external, has_files=has_files)
    require_outputs({"json": json, "html": html})
    audited = subtext.audit(
        source,
        data,
        split=split,
        train_split=train_split,
        scores=scores,
        image_embeddings=image_embeddings,
        text_embeddings=text_embeddings,
        external=external,
        skip=skip,
        sample_size=sample_size,
        tolerance=tolerance,
        seed=seed,
        html=html,
        config=config,
        quiet=quiet,
    )
    if json is not None:
        audited.save(Path(json))
    return audited


def _source(
    name: str,
    run: AnyPath | None,
    model: AnyPath | Model | None,
    data: str | Path | Dataset | Rows | DataConfig | None,
    config: ComputeConfig,
    external: ExternalConfig,
    *,
    has_files: bool,
) -> tuple[ModelSource | None, ComputeConfig]:
    """The model that RUN or --model names, and the configuration without what belongs to the model."""
    has_ids = external.image_ids is not None or external.text_ids is not None
    if not has_ids and (run is not None) + (model is not None) + has_files != 1:
        raise ArgumentError(
            "give one of these: RUN, a folder that `subtext train` made; --model NAME_OR_FOLDER; --scores FILE; or "
            "--image-embeddings FILE and --text-embeddings FILE"
        )
    if model is not None:
        if Path(str(model), "run.json").is_file():
            raise ArgumentError(f"model is for pretrained models; for a run: subtext {name} {model}", field="model")
        if DataConfig.of(data).data is None:
            raise ArgumentError("model needs --data DATA: a pretrained model has no data set of its own", field="model")
    if run is None and model is None:
        return None, config
    return ModelSource.of(run, model, config.text_prompt), replace(config, text_prompt=None)
