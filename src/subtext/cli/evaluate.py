"""`subtext evaluate` and `subtext audit`: flat options, of which metrics, protocol and configurations are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import subtext
from subtext.api import options as opt
from subtext.api.audit import CheckName
from subtext.api.evaluate import ComputeConfig, ExternalConfig, SecondStage, require_outputs
from subtext.api.load import ModelSource, Sources
from subtext.api.options import AnyPath, Commas, Metavar, OptionGroup, Range, Shown, verb
from subtext.errors import ArgumentError

if TYPE_CHECKING:
    from subtext.evaluation import Result
    from subtext.evaluation.checks.audit import Audit
    from subtext.evaluation.metric import Measure

_STAGES, _PROTOCOL, _RELEVANCE = OptionGroup("Two stages"), OptionGroup("Protocol"), OptionGroup("Relevance")
_TRUTH, _SPACE, _OUTPUT = OptionGroup("Truth"), OptionGroup("Space and subsets"), OptionGroup("Output")
_EXTERNAL, _FILE, _CHECKS = OptionGroup("Any model's output"), Metavar("FILE"), OptionGroup("Checks")
_FOLDS = re.compile(r"[1-9]\d*|[1-9]\d*k(\+[1-9]\d*k)*")


class SubjectOptions(opt.DataOptions, total=False):
    """What is measured, on which data, beside RUN."""

    model: opt.Pretrained
    text_prompt: opt.TextPrompt
    scores: Annotated[
        str | Path | None, "Scores of images x texts with ids: npz, npy, safetensors, parquet.", _EXTERNAL, _FILE
    ]
    image_embeddings: Annotated[
        str | Path | None, "Vectors of the images with ids, in the same formats.", _EXTERNAL, _FILE
    ]
    text_embeddings: Annotated[str | Path | None, "Vectors of the texts; can be the same file.", _EXTERNAL, _FILE]
    image_ids: Annotated[str | Path | None, "Names of images, one per line, if the file has none.", _EXTERNAL, _FILE]
    text_ids: Annotated[str | Path | None, "Names of texts, one per line, if the file has none.", _EXTERNAL, _FILE]
    similarity: Annotated[Literal["cosine", "dot"], "Similarity of embeddings.", _EXTERNAL]
    split: opt.Split
    bf16: opt.Bf16


@verb
def evaluate(
    run: opt.OptionalRun = None,
    *,
    rerank: Annotated[
        AnyPath | None, "A second model, which re-ranks the top candidates of the first.", _STAGES, Metavar("RUN")
    ] = None,
    candidates: Annotated[
        tuple[int, ...] | None,
        "Number of candidates per query. Several values are compared with scoring every pair.",
        Range(1),
        Commas(),
        Shown("100"),
        Metavar("N[,N...]"),
        _STAGES,
    ] = None,
    rerank_features: Annotated[
        str | Path | None, "Features for the second model. Default: those of its run.", _STAGES, _FILE
    ] = None,
    plot: Annotated[str | Path | None, "Plot the sweep as SVG: recall over cost.", _STAGES, _FILE] = None,
    ties: Annotated[
        Literal["pessimistic", "optimistic", "expected", "stable"],
        "Rank of a match among candidates with the same score.",
        _PROTOCOL,
    ] = "pessimistic",
    folds: Annotated[
        str | int,
        "Number of folds to average over (COCO 1K: 5), or sizes of folds: 1k+5k measures both sizes.",
        _PROTOCOL,
    ] = "1",
    c_way: Annotated[
        tuple[int, ...],
        "Accuracy at picking one of c candidates, for instance 5,20,100; each match is a question of its own.",
        Range(2),
        Commas(),
        Metavar("N,N,..."),
        _PROTOCOL,
    ] = (),
    c_way_best: Annotated[
        bool, "Also c-way accuracy by the best of several matches, as N_way_best.", _PROTOCOL
    ] = False,
    graph: Annotated[
        AnyPath | None,
        "Also measure how many neighbours in this graph (subtext neighbours) are neighbours in the joint space.",
        _PROTOCOL,
        Metavar("GRAPH"),
    ] = None,
    bootstrap: Annotated[
        int, "Bootstrap samples of images for 95 % intervals; 0 for none.", Range(0), _PROTOCOL
    ] = 1000,
    seed: Annotated[int, "Seed of the bootstrap.", _PROTOCOL] = 0,
    relevance: Annotated[
        tuple[str, ...],
        "ASP, gain and nDCG by relevance: tfidf1, ciderd, cider, judged, class_tfidf1, sentence:MODEL.",
        Commas(),
        Metavar("NAME,..."),
        _RELEVANCE,
    ] = (),
    references: Annotated[
        int | None, "Relevance to an image: use its first N texts. Default: all.", Range(1), _RELEVANCE
    ] = None,
    cache: Annotated[str | Path | None, "Folder for matrices of relevance.", Metavar("FOLDER"), _RELEVANCE] = None,
    asp_ties: Annotated[Literal["ordinal", "min", "average"], "Ranks of equal values in ASP.", _RELEVANCE] = "ordinal",
    asp_top: Annotated[
        tuple[int, ...], "ASP over the N most relevant items.", Range(1), Commas(), Metavar("N,N,..."), _RELEVANCE
    ] = (),
    gain: Annotated[tuple[int, ...], "k of gain@k.", Range(1), Commas(), _RELEVANCE] = (5, 10, 20),
    ndcg: Annotated[tuple[int, ...], "k of nDCG@k.", Range(1), Commas(), _RELEVANCE] = (10,),
    r_precision: Annotated[bool, "R-Precision and mAP@R of the pairs.", _TRUTH] = False,
    truth: Annotated[
        tuple[str, ...],
        "Recall, R-Precision and mAP@R with the positives of ECCV Caption (eccv=FOLDER) or Crisscrossed "
        "Captions (cxc=FOLDER); repeatable.",
        Metavar("NAME=PATH"),
        _TRUTH,
    ] = (),
    pmrp: Annotated[bool, "PMRP, from the labels of the images.", _TRUTH] = False,
    human_ratings: Annotated[
        str | Path | None, "Agreement with human ratings of pairs.", Metavar("TABLE"), _TRUTH
    ] = None,
    positive_rating: Annotated[
        float | None, "Ratings at or above this count as positive. Default: mid-range.", _TRUTH
    ] = None,
    by_length: Annotated[bool, "Recall of texts by their length in words.", _SPACE] = False,
    hubness: Annotated[
        int, "Hubness: skewness of how often a candidate is among the first k; 0 for none.", Range(0), _SPACE
    ] = 0,
    alignment_uniformity: Annotated[bool, "Alignment and uniformity of embeddings.", _SPACE] = False,
    pair_alignment_uniformity: Annotated[
        bool, "The same for vectors that depend on the other item of the pair (ascl).", _SPACE
    ] = False,
    json: Annotated[
        str | Path | None, "Write figures and protocol as JSON; - for standard output.", _FILE, _OUTPUT
    ] = None,
    per_query: Annotated[str | Path | None, "Write one value per query as npz, for `compare`.", _FILE, _OUTPUT] = None,
    **options: Unpack[SubjectOptions],
) -> Result:
    """Measure how well a model retrieves the texts of images and the images of texts.

    Without --data, the data set of the run is used. Recall is in per cent. The line "95 %" is a bootstrap interval over
    images, from ten images on. The line "chance" is the expected result of a random ranking.
    """
    subject = arguments_of("evaluate", run, options)
    graded = {"references": references, "cache": cache, "asp_ties": asp_ties, "asp_top": asp_top, "gain": gain}
    for needed, present, values in (
        ("rerank=RUN", rerank, {"candidates": candidates, "rerank_features": rerank_features, "plot": plot}),
        ("relevance=NAME", relevance or None, graded | {"ndcg": ndcg}),
        ("human_ratings=TABLE", human_ratings, {"positive_rating": positive_rating}),
    ):
        for parameter in opt.parameters(evaluate):
            if present is None and values.get(parameter.name, parameter.default) != parameter.default:
                raise ArgumentError(f"{parameter.name} is for {needed}; give that, or leave {parameter.name} out")
    if rerank is not None and plot is not None and len(candidates or ()) < 2:
        raise ArgumentError("plot needs a sweep: several candidates=N,N,... such as 10,20,50,100")
    if not _FOLDS.fullmatch(str(folds)):
        raise ArgumentError(f"folds needs a number of folds, or sizes in thousands: 5, 1k, 1k+5k; it got {folds}")
    require_outputs({"json": json, "per_query": per_query, "plot": plot})
    from subtext.data.atomic import write_text
    from subtext.evaluation import Protocol
    from subtext.evaluation.two_stages.sweep import plot_sweep

    of_folds = str(folds)
    sizes = [int(size.removesuffix("k")) * 1000 for size in of_folds.split("+") if size.endswith("k")]
    protocol = Protocol(
        ties=ties,
        folds=1 if sizes else int(of_folds),
        fold_sizes=tuple(dict.fromkeys(sizes)),
        references=references,
        bootstrap=bootstrap,
        seed=seed,
    )
    metrics = metrics_of_options(
        c_way=c_way,
        c_way_best=c_way_best,
        graph=graph,
        relevance=relevance,
        asp_ties=asp_ties,
        asp_top=asp_top,
        gain=gain,
        ndcg=ndcg,
        r_precision=r_precision,
        truth=truth,
        pmrp=pmrp,
        human_ratings=human_ratings,
        positive_rating=positive_rating,
        by_length=by_length,
        hubness=hubness,
        alignment_uniformity=alignment_uniformity,
        pair_alignment_uniformity=pair_alignment_uniformity,
    )
    stage = None if rerank is None else SecondStage(rerank, tuple(candidates or (100,)), rerank_features)
    config = ComputeConfig(**vars(subject.pop("config")) | {"cache": cache})
    result = subtext.evaluate(**subject, metrics=metrics, protocol=protocol, rerank=stage, config=config)
    if json is not None:
        result.save(Path(json))
    if per_query is not None:
        result.save_queries(Path(per_query))
    if plot is not None:
        write_text(Path(plot), plot_sweep(result))
    return result


def metrics_of_options(
    *,
    c_way: tuple[int, ...],
    c_way_best: bool,
    graph: AnyPath | None,
    relevance: tuple[str, ...],
    asp_ties: Literal["ordinal", "min", "average"],
    asp_top: tuple[int, ...],
    gain: tuple[int, ...],
    ndcg: tuple[int, ...],
    r_precision: bool,
    truth: tuple[str, ...],
    pmrp: bool,
    human_ratings: str | Path | None,
    positive_rating: float | None,
    by_length: bool,
    hubness: int,
    alignment_uniformity: bool,
    pair_alignment_uniformity: bool,
) -> list[Measure]:
    """The metrics that flat options stand for; each is described by its option.

    Returns:
        The default metrics, and those of the options.
    """
    from subtext.evaluation import metrics as m
    from subtext.evaluation.metric import registered

    ks = (1, 5, 10)
    chosen: list[Measure] = [
        m.Recall(*ks, by_length=by_length), m.BestRank(), m.ReciprocalRank(), m.TieShare(), *registered("pairs")
    ]  # fmt: skip
    choices = [(c, at) for c in c_way for at in (1, 3) if at < c]
    chosen += [m.CWay(c, at) for c, at in choices]
    chosen += [m.CWayBest(c, at) for c, at in choices if c_way_best]
    chosen += [m.CWayRank(c) for c in c_way]
    for against in truth:
        more = (m.Recall(*ks, against=against), m.RPrecision(against=against), m.AveragePrecision(against=against))
        chosen += more
    if r_precision:
        chosen += [m.RPrecision(), m.AveragePrecision()]
    for name in relevance:
        chosen += [m.ASP(name, asp_ties, top) for top in (0, *asp_top)]
        chosen += [m.SemanticGain(k, against=name) for k in gain] + [m.NDCG(k, against=name) for k in ndcg]
        chosen += registered("relevance", name)
    if pmrp:
        chosen += [m.PMRP(), m.PMRecall(), *registered("labels")]
    if hubness:
        chosen.append(m.Hubness(hubness))
    if human_ratings is not None:
        chosen.append(m.HumanAgreement(positive_rating, against=str(human_ratings)))
    if graph is not None:
        chosen.append(m.Preservation(against=str(graph)))
    if alignment_uniformity:
        chosen.append(m.AlignmentUniformity())
    if pair_alignment_uniformity:
        chosen.append(m.AlignmentUniformity(of_pairs=True))
    return chosen


@verb
def audit(
    run: opt.OptionalRun = None,
    *,
    train_split: Annotated[
        str | None, "Without RUN: split that the model was trained on, if known.", OptionGroup("Data")
    ] = None,
    skip: Annotated[tuple[CheckName, ...], "Check to leave out; repeatable.", _CHECKS] = (),
    sample_size: Annotated[
        int, "Images that are scored again in other orders, blocks and batches.", Range(2), _CHECKS
    ] = 128,
    tolerance: Annotated[
        float, "Largest allowed change of a score, in standard deviations of all scores.", Range(0), _CHECKS
    ] = 1e-3,
    seed: Annotated[int, "Seed of the sample and the shuffles.", _CHECKS] = 0,
    json: Annotated[
        str | Path | None, "Write the audit as JSON; - for standard output.", Metavar("FILE"), _OUTPUT
    ] = None,
    html: Annotated[str | Path | None, "Write the audit as one page.", Metavar("FILE"), _OUTPUT] = None,
    **options: Unpack[SubjectOptions],
) -> Audit:
    """Check an evaluation for leaks, and for scores that depend on other pairs.

    The audit scores a sample again in other orders, blocks and batches. It shuffles the truth, counts ties and NaN, and
    compares recall by caption position. It searches the audited split for images, texts and words of the training
    split. For scores or vectors from a file, checks that need the model are left out. The exit code is 1 if a check
    fails.
    """
    subject = arguments_of("audit", run, options)
    require_outputs({"json": json, "html": html})
    audited = subtext.audit(
        **subject,
        train_split=train_split,
        skip=skip,
        sample_size=sample_size,
        tolerance=tolerance,
        seed=seed,
        html=html,
    )
    if json is not None:
        audited.save(Path(json))
    return audited


def arguments_of(name: str, run: AnyPath | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `subtext.evaluate` and `subtext.audit` that say what is measured, from flat options.

    Args:
        name: The command.
        run: RUN.
        options: Of `SubjectOptions`.

    Returns:
        Arguments by name.

    Raises:
        ArgumentError: If RUN and --model, or neither and no files, are given.
    """
    values = opt.DEFAULTS | dict(options)
    model, prompt, outputs = (
        values.get("model"),
        values.get("text_prompt"),
        ("scores", "image_embeddings", "text_embeddings"),
    )
    has_files = any(values.get(each) is not None for each in outputs)
    has_ids = any(values.get(each) is not None for each in ("image_ids", "text_ids"))
    if not has_ids and (run is not None) + (model is not None) + has_files != 1:
        raise ArgumentError(
            "give one of these: RUN, a folder that `subtext train` made; model=NAME_OR_FOLDER; scores=FILE; or "
            "image_embeddings=FILE and text_embeddings=FILE"
        )
    if model is not None:
        if Path(str(model), "run.json").is_file():
            raise ArgumentError(f"model is for pretrained models; for a run: subtext {name} {model}")
        if values.get("data") is None:
            raise ArgumentError("model needs data=DATA: a pretrained model has no data set of its own")
    source = None if run is None and model is None else ModelSource.of(run, model, prompt)
    return {
        "model": source,
        "data": Sources.of(**{each: values.get(each) for each in Sources.__dataclass_fields__}),
        "split": values.get("split"),
        **{each: values.get(each) for each in outputs},
        "external": ExternalConfig(values.get("image_ids"), values.get("text_ids"), values["similarity"]),
        "config": ComputeConfig(
            text_prompt=prompt if source is None else None,
            device=values["device"],
            batch_size=values["batch_size"],
            workers=values["workers"],
            bf16=values.get("bf16"),
        ),
        "quiet": values["quiet"],
    }
