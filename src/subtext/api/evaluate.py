"""`subtext.evaluate` and `compare`: retrieval figures of a run or of any model's output, and their differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from subtext.api import options as opt
from subtext.api.load import (
    EvaluationSubject,
    LoadedRun,
    ModelSource,
    Sources,
    choose_device,
    choose_precision,
    is_data_of_run,
    open_run,
    open_subject,
    remembered,
    require_features,
)
from subtext.api.options import AnyPath, Commas, Metavar, OptionGroup, Range, Shown, verb
from subtext.errors import ArgumentError, DataError, RequirementError
from subtext.report.progress import meter, say

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset, Items
    from subtext.data.external_outputs import Output
    from subtext.evaluation import ExtraMetrics, Protocol, Result
    from subtext.evaluation.relevance.match import Match
    from subtext.graphs.graph import Graph
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model

    SettingsFor = Callable[[Dataset], tuple[Protocol, ExtraMetrics]]
    from subtext.evaluation.compare import Compared


TRUTHS = ("eccv", "cxc")
_STAGES, _PROTOCOL, _RELEVANCE = OptionGroup("Two stages"), OptionGroup("Protocol"), OptionGroup("Relevance")
_TRUTH, _SPACE, _OUTPUT = OptionGroup("Truth"), OptionGroup("Space and subsets"), OptionGroup("Output")
_EXTERNAL, _FILE = OptionGroup("Any model's output"), Metavar("FILE")


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

    run, data  in Python also a loaded `Run` and a `Dataset`

    Raises:
        ArgumentError: For contradictory arguments, the errors of loading, reading and evaluating.
        OutputError: If a file cannot be written (before the work begins).
    """
    work, files = work_and_files("evaluate", run, **options)
    from subtext.data.atomic import write_text
    from subtext.evaluation.relevance.graded import check
    from subtext.evaluation.two_stages import plot_of
    from subtext.graphs.graph import Graph

    of_one = graph is not None or alignment_uniformity or pair_alignment_uniformity
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
    if rerank is not None and (of_one or files is not None):
        raise ArgumentError(
            "rerank needs a model whose candidates it re-orders; it goes neither with another program's output nor "
            "with graph=GRAPH, alignment_uniformity and pair_alignment_uniformity, which measure one model"
        )
    if not re.fullmatch(r"[1-9]\d*|[1-9]\d*k(\+[1-9]\d*k)*", str(folds)):
        raise ArgumentError(f"folds needs a number of folds, or sizes in thousands: 5, 1k, 1k+5k; it got {folds}")
    for name in relevance:
        check(name)
    truths = []
    for text in truth:
        name, _, path = text.partition("=")
        if name not in TRUTHS or not path:
            raise ArgumentError(
                "truth needs eccv=FOLDER (the JSON files of eccv_caption) or cxc=PATH (that folder, or sits_test.csv); "
                f"it got '{text}'"
            )
        truths.append((name, Path(path).expanduser()))
    require_outputs({"json": json, "per_query": per_query, "plot": plot})
    semantic = None if graph is None else Graph.load(Path(graph).expanduser())

    def settings_for(pairs: Dataset) -> tuple[Protocol, ExtraMetrics]:
        from subtext.data.text import word_counts
        from subtext.evaluation import ExtraMetrics, Protocol
        from subtext.evaluation.relevance import plausible
        from subtext.evaluation.relevance.graded import graded
        from subtext.evaluation.relevance.judgements import read_ratings

        folder, chosen = None if cache is None else Path(cache), choose_device(work.device)
        relevances = []
        for name in relevance:
            say(f"relevance {name}: {len(pairs.images):,} images x {len(pairs.texts):,} texts", quiet=work.quiet)
            relevances.append(graded(pairs, name, references=references, cache=folder, device=chosen))
        ratings = None if human_ratings is None else read_ratings(Path(human_ratings).expanduser())
        extra = ExtraMetrics(
            relevances=tuple(relevances),
            truths={name: _match(name, path, pairs) for name, path in truths},
            r_precision=r_precision,
            labels=plausible.of_pairs(pairs) if pmrp else None,
            ratings=None if ratings is None else ratings.judgements(pairs.images.ids, pairs.texts.ids),
            positive_rating=positive_rating,
            lengths=word_counts(pairs.texts.values) if by_length else None,
            hubness=hubness,
            asp_ties=asp_ties,
            asp_top=tuple(asp_top),
            gain=tuple(gain),
            ndcg=tuple(ndcg),
        )
        protocol = Protocol(ties=ties, c_way=tuple(c_way), c_way_best=c_way_best, bootstrap=bootstrap, seed=seed)
        sizes = [int(size.removesuffix("k")) * 1000 for size in str(folds).split("+") if size.endswith("k")]
        if not sizes:
            return replace(protocol, folds=int(folds)), extra
        if wrong := [size for size in sizes if len(pairs.images) % size]:
            raise RequirementError(
                f"folds of {wrong[0]:,} images need a multiple of as many; there are {len(pairs.images):,}; give a "
                "number of folds"
            )
        first, *more_folds = sorted({len(pairs.images) // size for size in sizes})
        return replace(protocol, folds=first, also_folds=tuple(more_folds)), extra

    if rerank is not None:
        features = None if rerank_features is None else Path(rerank_features)
        result = _of_stages(work, Path(rerank), tuple(candidates or (100,)), features, settings_for)
    elif files is not None:
        if pair_alignment_uniformity:
            raise ArgumentError("pair_alignment_uniformity needs a model; files hold none")
        result = _of_files(work, files, settings_for, space=alignment_uniformity)
    else:
        space, pair_space = alignment_uniformity, pair_alignment_uniformity
        result = _of_model(work, semantic, settings_for, space=space, pair_space=pair_space)
    if json is not None:
        result.save(Path(json))
    if per_query is not None:
        result.save_queries(Path(per_query))
    if plot is not None:
        write_text(Path(plot), plot_of(result))
    return result


@dataclass(frozen=True)
class Files:
    """The output of another program: one file of scores, or two of vectors (which may be the same).

    Attributes:
        image_ids: Files of names, where those do not hold them.
        text_ids: See `image_ids`.
        similarity: Of vectors: "cosine", or "dot" as they are.
    """

    scores: Path | None = None
    image_embeddings: Path | None = None
    text_embeddings: Path | None = None
    image_ids: Path | None = None
    text_ids: Path | None = None
    similarity: Literal["cosine", "dot"] = "cosine"


def work_and_files(
    command: str, run: AnyPath | None, **options: Unpack[SubjectOptions]
) -> tuple[EvaluationSubject, Files | None]:
    """The work that a public function was called for, and the files to measure; None for a run or a pretrained model.

    Raises:
        ArgumentError: Unless exactly one of a run, a pretrained model and files is given, with what it needs.
    """
    values: dict[str, Any] = {name: options.get(name) for name in Files.__annotations__}
    paths = {name: Path(value) for name, value in values.items() if value is not None and name != "similarity"}
    files = Files(**paths, similarity=options.get("similarity", "cosine"))
    if (files.image_embeddings is None) != (files.text_embeddings is None) or (files.scores and files.image_embeddings):
        raise ArgumentError(
            "image_embeddings and text_embeddings go together (the same file may hold both), and not with scores; "
            "give the two, or scores=FILE"
        )
    has_files = (files.scores or files.image_embeddings) is not None
    if not has_files and (files.image_ids or files.text_ids):
        raise ArgumentError("image_ids and text_ids need scores or embeddings, whose names they are")
    model, prompt, bf16 = options.get("model"), options.get("text_prompt"), options.get("bf16")
    if (run is not None) + (model is not None) + has_files != 1:
        raise ArgumentError(
            "give one of these: RUN, a folder that `subtext train` made; model=NAME_OR_FOLDER; scores=FILE; or "
            "image_embeddings=FILE and text_embeddings=FILE"
        )
    if files.similarity != "cosine" and files.image_embeddings is None:
        raise ArgumentError(f"similarity={files.similarity} is for image_embeddings and text_embeddings; leave it out")
    if has_files and prompt is not None:
        raise ArgumentError("text_prompt is for a pretrained model (model=NAME_OR_FOLDER); leave text_prompt out")
    if has_files and bf16 is not None:
        raise ArgumentError("bf16 is for a RUN that scores pairs; another program's output is scored already")
    if model is not None:
        if Path(str(model), "run.json").is_file():
            raise ArgumentError(f"model is for pretrained models; for a run: subtext {command} {model}")
        if options.get("data") is None:
            raise ArgumentError("model needs data=DATA: a pretrained model has no data set of its own")
    source = None if has_files else ModelSource.of(run, model, prompt)
    shared: Any = {name: value for name, value in options.items() if name in opt.DataOptions.__annotations__}
    return EvaluationSubject.of(source, options.get("split"), bf16=bf16, **shared), files if has_files else None


def require_outputs(files: Mapping[str, str | Path | None]) -> None:
    """Raise OutputError for a file that cannot be written, ArgumentError for one that two results go to."""
    from subtext.data.atomic import require_file

    names: dict[Path, str] = {}
    for name, path in files.items():
        if path is not None:
            require_file(Path(path))
            if (first := names.setdefault(Path(path).resolve(), name)) != name:
                raise ArgumentError(f"{first}={path} and {name}={path} write to one file; give each a file of its own")


def read_split(work: EvaluationSubject) -> tuple[Dataset, str]:
    """The pairs of the split, without opening images; all of them where the data has no splits to choose from.

    Raises:
        ArgumentError: If no data set is named, or it has several splits and none of them is named.
    """
    split = work.split
    if work.sources.data is None:
        raise ArgumentError("scores and embeddings need data=DATA: the images, texts and pairs that they belong to")
    reading = work.sources.read()
    splits = sorted(reading.counts())
    if split is None and len(splits) > 1:
        raise ArgumentError(f"scores and embeddings need split=NAME: this data has {', '.join(splits)}; or split=all")
    return reading.split(split or "all"), split or "all"


@dataclass(frozen=True)
class ExternalOutput:
    """Scores or vectors from files, in the order of a data set.

    Attributes:
        scores: (I T); None where there are vectors.
        images: Vectors.
        texts: None where there are scores.
        about: Which files these are.
    """

    scores: Float[Tensor, "i t"] | None
    images: Embeddings | None
    texts: Embeddings | None
    about: dict[str, Any]

    def evaluate(self, pairs: Dataset, protocol: Protocol, extra: ExtraMetrics | None = None) -> Result:
        """The figures of the scores, or of the vectors."""
        from subtext.evaluation import evaluate_embeddings, evaluate_matrix
        from subtext.models.similarity.cosine import Cosine

        if self.scores is not None:
            return evaluate_matrix(self.scores, pairs, protocol=protocol, extra=extra)
        assert self.images is not None and self.texts is not None
        return evaluate_embeddings(Cosine(), self.images, self.texts, pairs, protocol=protocol, extra=extra)


def read_output(files: Files, pairs: Dataset) -> ExternalOutput:
    """Read scores or vectors, and put them into the order of the pairs.

    Raises:
        DataError: For files that cannot be read or lack an item of the split.
    """
    import numpy as np
    import torch

    from subtext.data.external_outputs import read_scores, read_vectors

    if files.scores is not None:
        output = read_scores(files.scores, image_ids=files.image_ids, text_ids=files.text_ids)
        values = output.values
        for axis, items in enumerate((pairs.images, pairs.texts)):
            order = output.rows(items, axis=axis)
            if len(order) != values.shape[axis] or not (order == np.arange(len(order))).all():
                values = values.take(order, axis=axis)
        # Half precision becomes float32.
        matrix = np.array(values, dtype=np.float64 if values.dtype == np.float64 else np.float32)
        return ExternalOutput(torch.from_numpy(matrix), None, None, {"scores": str(files.scores)})
    first, second = files.image_embeddings, files.text_embeddings
    assert first is not None and second is not None
    images = _embeddings(read_vectors(first, "image", ids=files.image_ids), pairs.images, files.similarity)
    texts = _embeddings(read_vectors(second, "text", ids=files.text_ids), pairs.texts, files.similarity)
    if images.width != texts.width:
        raise DataError(
            f"images and texts need vectors of one width; {first.name} has {images.width}, {second.name} {texts.width}"
        )
    about = {"image_embeddings": str(first), "text_embeddings": str(second), "similarity": files.similarity}
    return ExternalOutput(None, images, texts, about)


def _embeddings(output: Output, items: Items, similarity: str) -> Embeddings:
    import numpy as np
    import torch

    from subtext.core import Embeddings

    vectors = torch.from_numpy(np.array(output.values[output.rows(items)], dtype=np.float32))
    vectors = vectors[:, None] if vectors.ndim == 2 else vectors
    if similarity == "cosine":
        lengths = vectors.norm(dim=-1, keepdim=True)
        if not bool((lengths > 0).all()):
            name = items.ids[int((lengths == 0).flatten(1).any(dim=1).nonzero()[0])]
            raise DataError(f"{output.path} needs vectors that are not 0, as that of '{name}' is; or similarity dot")
        vectors = vectors / lengths
    return Embeddings(vectors, torch.arange(len(vectors)))


def _of_model(
    work: EvaluationSubject, graph: Graph | None, settings_for: SettingsFor, *, space: bool, pair_space: bool
) -> Result:
    from subtext.evaluation import evaluate_embeddings
    from subtext.evaluation.checks.space import compares_vectors, space_of_pairs, with_preservation, with_space

    opened = open_subject(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    similarity, pairs = opened.model.similarity, opened.pairs
    if pair_space and not compares_vectors(similarity):
        raise ArgumentError(
            "pair_alignment_uniformity needs a model that makes vectors of pairs: ascl with attention; take "
            "alignment_uniformity for this one"
        )
    protocol, extra = settings_for(pairs)
    items = opened.embed(work)
    result = evaluate_embeddings(similarity, *items, pairs, protocol=protocol, extra=extra)
    if space:
        means = items
        if items[0].parts is None or items[1].parts is None:
            # A probabilistic model's items are measured by their means.
            by_mean = opened.to_means("measure the space of")
            means = items if by_mean.model is opened.model else by_mean.embed(work, "embedding means")
        result = with_space(result, *means, pairs)
    if pair_space:
        with meter("vectors of pairs", len(pairs.images), quiet=work.quiet) as progress:
            figures = space_of_pairs(similarity, *items, pairs, progress=progress)
        result = replace(result, figures=result.figures | figures)
    if graph is not None:
        result = with_preservation(result, similarity, items, pairs, graph, protocol=protocol)
    role, warning = split_role(opened, work.sources)
    about = {**_about(opened, work), "split": opened.split, "split_role": role}
    return replace(result, about=about, notes=(*filter(None, [warning]), *result.notes))


def _of_stages(
    work: EvaluationSubject, rerank: Path, candidates: tuple[int, ...], features: Path | None, settings_for: SettingsFor
) -> Result:
    from subtext.data.text import cut_note, too_long
    from subtext.evaluation.two_stages import RankingStage, evaluate_two_stage, require_plan

    opened = open_subject(work).to_indexable("a first stage")
    pairs = opened.pairs
    protocol, extra = settings_for(pairs)
    # Every error of the second model is raised before the first one works.
    run = open_run(rerank, features=features, device=choose_device(work.device))
    choose_precision(run.model, work.bf16, quiet=work.quiet)
    require_plan(candidates, extra)
    require_features(run.model, pairs)
    input_spec, texts = run.model.text.input_spec, pairs.texts.values
    if (note := cut_note(input_spec, texts)) is not None:
        say(f"note: the re-ranking run: {note}", quiet=work.quiet)
    second = replace(opened, model=run.model, record=run.record)
    first, expensive = (RankingStage(stage.model.similarity, *stage.embed(work)) for stage in (opened, second))
    result = evaluate_two_stage(first, expensive, pairs, candidates=candidates, protocol=protocol, extra=extra)
    about = _about(opened, work)
    role, warning = split_role(opened, work.sources)
    sources = work.sources if opened.record is None else work.sources.over(remembered(opened.record.data))
    second_role, second_warning = split_role(second, sources)
    cut = too_long(input_spec, texts)
    reranking = {**_about_run(run.path, run.record, run.model), **({"texts_cut": cut} if cut else {})}
    two_stage = {"rerank": reranking, "split_role": second_role, **result.about["two_stage"]}
    about |= {"split": opened.split, "split_role": role, "two_stage": two_stage}
    warnings = [warning, f"the re-ranking run: {second_warning}" if second_warning else ""]
    return replace(result, about=about, notes=(*filter(None, warnings), *result.notes))


def _of_files(work: EvaluationSubject, files: Files, settings_for: SettingsFor, *, space: bool) -> Result:
    from subtext.evaluation.checks.space import with_space

    if files.scores is not None and space:
        raise ArgumentError(
            "alignment_uniformity needs embeddings: scores alone have no distances among texts or images"
        )
    pairs, split = read_split(work)
    protocol, extra = settings_for(pairs)
    output = read_output(files, pairs)
    result = output.evaluate(pairs, protocol, extra)
    if space:
        assert output.images is not None and output.texts is not None
        result = with_space(result, output.images, output.texts, pairs)
    about = {"model": output.about, "data": work.sources.to_json(), "split": split, "split_role": "unknown"}
    return replace(result, about=about)


def _about(opened: LoadedRun, work: EvaluationSubject) -> dict[str, Any]:
    """Which model, and on which data."""
    from subtext.data.text import too_long
    from subtext.retrieval.build import model_fingerprint

    record, sources = opened.record, work.sources
    if record is None:
        model = {"pretrained": work.model.label, "fingerprint": model_fingerprint(opened.model)}
        model |= {"text_prompt": work.model.text_prompt} if work.model.text_prompt else {}
    else:
        sources = sources.over(remembered(record.data))
        model = _about_run(Path(work.model.label), record, opened.model)
    cut = too_long(opened.model.text.input_spec, opened.pairs.texts.values)
    return {"model": model, "data": sources.to_json(), **({"texts_cut": cut} if cut else {})}


def _about_run(path: Path, record: Record, model: Model) -> dict[str, Any]:
    from subtext.retrieval.build import model_fingerprint

    return {
        "run": str(path.expanduser().resolve()),
        "host": record.model,
        "arguments": record.arguments,
        "methods": [list(method) for method in record.methods],
        "seed": record.seed,
        "draws": record.draws,
        "epoch": record.best_epoch,
        "epochs": record.epochs,
        "training": record.status,
        "fingerprint": model_fingerprint(model),
        **({"scores_in_bf16": True} if model.scores_in_bf16 else {}),
    }


def _match(name: str, path: Path, pairs: Dataset) -> Match:
    from subtext.evaluation.relevance.judgements import read_cxc, read_eccv

    if name == "cxc" and not path.is_dir():
        positives = read_cxc(path)
    else:
        positives = read_eccv(path, "cxc" if name == "cxc" else "eccv")
    # Texts are called as in COCO where a column "caption_ids" of the images has a name for each of their texts.
    columns = pairs.images.metadata.get("caption_ids", [])
    of_image = {image: ids for image, ids in zip(pairs.images.ids, columns, strict=False) if ids}
    names = []
    for text in pairs.texts.ids:
        image, _, number = text.rpartition("#")
        ids = of_image.get(image, ())
        names.append(str(ids[int(number)]) if number.isdecimal() and int(number) < len(ids) else text)
    return positives.match(pairs.images.ids, names)


def split_role(opened: LoadedRun, sources: Sources) -> tuple[str, str]:
    """What the split was to the run: "training", "selection", "held out" or "unknown"; and a warning where one is due.

    Only the run's own file, or a data set in memory with its pairs, is compared: whether another holds the same images
    is not checked.
    """
    from subtext.recipes.build import ENSEMBLE

    record, split = opened.record, opened.split
    if record is None or not is_data_of_run(record.data, sources):
        return "unknown", ""
    if sources.split_seed not in (None, record.data.split_seed):
        return "unknown", (
            f"--split-seed {sources.split_seed} is not the run's, {record.data.split_seed}: where the data has no "
            "splits of its own, this one holds images that the run was trained on"
        )
    if split in ("all", record.data.train_split):
        holds = "holds" if split == "all" else "is"
        return "training", f"split {split} {holds} what the run was trained on: these figures say nothing of new data"
    if split != record.data.val_split:
        return "held out", ""
    if record.plan.get("select") != "last":
        epochs = f"epoch, {record.best_epoch} of {record.epochs}"
        decided = f"selected the {'epochs of its members' if record.model == ENSEMBLE else epochs}"
    elif record.plan.get("patience") or record.plan.get("schedule") == "plateau":
        decided = "decided how long the run was trained, and how fast"
    else:
        return "held out", ""  # The validation split was only measured.
    return "selection", f"split {split} {decided}: expect a little less on data that decided nothing (--split NAME)"


@verb
def compare(
    first: str | Path | Result | Sequence[str | Path | Result],
    second: str | Path | Result | Sequence[str | Path | Result],
    *,
    metric: Annotated[
        tuple[str, ...],
        "Metric to test, such as recall@10; repeatable. Few metrics make stronger tests. Default: all except ranks.",
        Metavar("NAME"),
        OptionGroup("Figures"),
    ] = (),
    resamples: Annotated[int, "Resamples of intervals and p-values.", Range(100), OptionGroup("Resampling")] = 2000,
    seed: Annotated[int, "Seed of the resampling.", OptionGroup("Resampling")] = 0,
    json: Annotated[
        str | Path | None,
        "Write the comparison as JSON; - for standard output.",
        Metavar("FILE"),
        OptionGroup("Output"),
    ] = None,
) -> Compared:
    """Test whether one system is better than another, from results of `subtext evaluate` on the same queries.

    Each JSON file needs a file of values per query next to it: evaluate with --json A.json --per-query A.npz. The
    interval of a difference resamples images and runs. There are two p-values, corrected for the number of metrics. One
    is over queries (for these trained models). The other is over runs (for the methods; needs several seeds per side).

    Args:
        first: A result or its file, or several results of one method with different seeds.
        second: See `first`.

    Raises:
        DataError: For files that cannot be read or compared.
        RequirementError: For files that cannot be read or compared.
        OutputError: If the JSON cannot be written (before the work begins).
    """
    from subtext.data.atomic import require_file
    from subtext.evaluation import Result
    from subtext.evaluation.compare import compare as compare_runs, measured_of, read_measured

    if json is not None:
        require_file(Path(json))
    sides = [
        tuple(
            measured_of(result) if isinstance(result, Result) else read_measured(Path(result).expanduser())
            for result in ([side] if isinstance(side, str | Path | Result) else side)
        )
        for side in (first, second)
    ]
    compared = compare_runs(*sides, figures=tuple(metric), samples=resamples, seed=seed)
    if json is not None:
        compared.save(Path(json))
    return compared
