"""`subtext.evaluate`: retrieval figures with intervals beside chance, of a run or of any model's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.external import (
    Files,
    ImageEmbeddings,
    ImageIds,
    OptionalRun,
    PretrainedModel,
    Scores,
    Similarity,
    TextEmbeddings,
    TextIds,
    read_output,
    read_split,
    require_one,
)
from subtext.api.load import Sources, Work
from subtext.api.options import (
    BatchSize,
    Bf16,
    Commas,
    Data,
    Device,
    Features,
    Flag,
    Images,
    Metavar,
    OnError,
    Quiet,
    Range,
    Section,
    Shown,
    Split,
    SplitSeed,
    TextFeatures,
    Workers,
    verb,
)
from subtext.errors import ArgumentError, RequirementError

if TYPE_CHECKING:
    from subtext.api.load import Opened
    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset
    from subtext.evaluation import ExtraMetrics, Protocol, Result
    from subtext.evaluation.relevance.match import Match
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model

TRUTHS = ("eccv", "cxc")
_STAGES, _PROTOCOL, _RELEVANCE = Section("Two stages"), Section("Protocol"), Section("Relevance")
_TRUTH, _SPACE, _OUTPUT = Section("Truth"), Section("Space and subsets"), Section("Output")


@verb
def evaluate(
    run: OptionalRun = None,
    *,
    model: PretrainedModel = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    image_ids: ImageIds = None,
    text_ids: TextIds = None,
    similarity: Similarity = "cosine",
    rerank: Annotated[
        str | Path | None, "A second model, which re-ranks the top candidates of the first.", _STAGES, Metavar("RUN")
    ] = None,
    candidates: Annotated[
        tuple[int, ...] | None,
        "Candidates per query that it scores; several values make a sweep, compared with scoring every pair.",
        Range(1),
        Commas(),
        Shown("100"),
        Metavar("N[,N...]"),
        _STAGES,
    ] = None,
    rerank_features: Annotated[
        str | Path | None, "Features for the second model, if not those of its run.", _STAGES, Metavar("FILE")
    ] = None,
    plot: Annotated[str | Path | None, "Plot the sweep as SVG: recall over cost.", _STAGES, Metavar("FILE")] = None,
    data: Data = None,
    images: Images = None,
    features: Features = None,
    text_features: TextFeatures = None,
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    split: Split = None,
    ties: Annotated[
        Literal["pessimistic", "optimistic", "expected", "stable"],
        "Rank of a partner among candidates of the same score.",
        _PROTOCOL,
    ] = "pessimistic",
    folds: Annotated[
        str | int,
        "Number of folds of images to average over (COCO 1K: 5), or their sizes: 1k+5k measures both.",
        _PROTOCOL,
    ] = "1",
    c_way: Annotated[
        tuple[int, ...],
        "Accuracy at picking one of c candidates, for instance 5,20,100.",
        Range(2),
        Commas(),
        Metavar("N,N,..."),
        _PROTOCOL,
    ] = (),
    graph: Annotated[
        str | Path | None,
        "Also measure how many neighbours in this graph (subtext neighbours) are nearest in the joint space.",
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
        int | None, "Represent an image by its first N texts. Default: all.", Range(1), _RELEVANCE
    ] = None,
    cache: Annotated[str | Path | None, "Folder for matrices of relevance.", Metavar("FOLDER"), _RELEVANCE] = None,
    asp_ties: Annotated[Literal["ordinal", "min", "average"], "Ranks of equal values in ASP.", _RELEVANCE] = "ordinal",
    asp_top: Annotated[
        tuple[int, ...], "Also ASP over the N most relevant.", Range(1), Commas(), Metavar("N,N,..."), _RELEVANCE
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
    pmrp: Annotated[bool, "PMRP by the labels of the images.", _TRUTH] = False,
    human_ratings: Annotated[
        str | Path | None, "Agreement with people's ratings of pairs.", Metavar("TABLE"), _TRUTH
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
        bool, "The same, for vectors that depend on the partner of the item (ascl).", _SPACE
    ] = False,
    json: Annotated[
        str | Path | None,
        "Write figures and protocol as JSON; - for standard output.",
        Flag("--json"),
        Metavar("FILE"),
        _OUTPUT,
    ] = None,
    per_query: Annotated[
        str | Path | None, "Write one value per query as npz, for `compare`.", Metavar("FILE"), _OUTPUT
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = 128,
    workers: Workers = 2,
    quiet: Quiet = False,
    bf16: Bf16 = None,
) -> Result:
    """Measure how well a model retrieves the texts of images and the images of texts.

    The data is the run's own unless --data names another. Recall is in per cent; the line "95 %" is a bootstrap
    interval over images, where there are ten or more; "chance" is what guessing would give on the same data.

    run, data  in Python also a loaded `Run` and a `Dataset`

    Raises ArgumentError for arguments that do not go together; what loading, reading and evaluating raise; OutputError
    for a file that cannot be written, before the work begins.
    """
    from subtext.data.atomic import require_file, write_text
    from subtext.evaluation.relevance.grade import check
    from subtext.evaluation.two_stages import plot_of
    from subtext.neighbours.graph import Graph

    files = Files.of(scores, image_embeddings, text_embeddings, image_ids, text_ids, similarity)
    require_one("evaluate", run, model, files, data=data, features=features, text_features=text_features, bf16=bf16)
    of_one = graph is not None or alignment_uniformity or pair_alignment_uniformity
    _require_stages(rerank, candidates, rerank_features, plot, of_one=of_one or files is not None)
    for name in relevance:
        check(name)
    for text in truth:
        _truth_path(text)
    outputs = [Path(path) for path in (json, per_query, plot) if path is not None]
    for path in outputs:
        require_file(path)
    resolved = [path.resolve() for path in outputs]
    if twice := [path for index, path in enumerate(resolved) if path in resolved[:index]]:
        raise RequirementError(
            f"--json, --per-query and --plot need a file each; two write to {twice[0]}; name another"
        )
    semantic = None if graph is None else Graph.load(Path(graph).expanduser())

    dataset = data if hasattr(data, "split") and not isinstance(data, str | Path) else None
    sources = Sources.of(None if dataset is not None else data, images, features, text_features, split_seed, on_error)
    folder = None if run is None else Path(getattr(run, "path", run))
    work = Work(folder, model, sources, split, device, batch_size, workers, quiet, bf16)

    def protocol_for(pairs: Dataset) -> Protocol:
        settings = {"ties": ties, "c_way": tuple(c_way), "bootstrap": bootstrap, "seed": seed}
        return _protocol(str(folds), len(pairs.images), settings)

    def extra_for(pairs: Dataset) -> ExtraMetrics:
        from subtext.api.load import choose_device
        from subtext.data.text import word_counts
        from subtext.evaluation import ExtraMetrics
        from subtext.evaluation.relevance import plausible
        from subtext.evaluation.relevance.grade import Asked, graded
        from subtext.evaluation.relevance.ratings import read_human
        from subtext.report.progress import say

        how = Asked(references=references, cache=None if cache is None else Path(cache), device=choose_device(device))
        relevances = []
        for name in relevance:
            say(f"relevance {name}: {len(pairs.images):,} images x {len(pairs.texts):,} texts", quiet=quiet)
            relevances.append(graded(pairs, name, how))
        ratings = None if human_ratings is None else read_human(Path(human_ratings).expanduser())
        return ExtraMetrics(
            relevances=tuple(relevances),
            truths=dict(_match(text, pairs) for text in truth),
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

    measure = _Evaluation(work, dataset, protocol_for, extra_for)
    if rerank is not None:
        second = None if rerank_features is None else Path(rerank_features)
        result = measure.two_stages(Path(getattr(rerank, "path", rerank)), tuple(candidates or (100,)), second)
    elif files is not None:
        if pair_alignment_uniformity:
            raise ArgumentError("--pair-alignment-uniformity needs a model; files hold none")
        result = measure.files(files, space=alignment_uniformity)
    else:
        result = measure.model(semantic, space=alignment_uniformity, space_of_pairs=pair_alignment_uniformity)
    if json is not None:
        result.save(Path(json))
    if per_query is not None:
        result.save_queries(Path(per_query))
    if plot is not None:
        write_text(Path(plot), plot_of(result))
    return result


def _require_stages(
    rerank: object, candidates: Sequence[int] | None, features: object, plot: object, *, of_one: bool
) -> None:
    """Raise ArgumentError for arguments that do not go with a second stage, or need one."""
    if rerank is None:
        for name, value in (("candidates", candidates), ("rerank-features", features), ("plot", plot)):
            if value is not None:
                raise ArgumentError(f"--{name} belongs to --rerank RUN; give that, or none")
    elif plot is not None and len(candidates or ()) < 2:
        raise ArgumentError("--plot draws a sweep: give several --candidates, as in 10,20,50,100")
    elif of_one:
        raise ArgumentError(
            "--rerank re-orders what a model retrieves; it goes neither with another program's output nor with "
            "--graph, --alignment-uniformity and --pair-alignment-uniformity, which measure one model"
        )


class _Evaluation:
    """One evaluation: of a model, of two stages, or of files."""

    def __init__(self, work: Work, dataset: Any, protocol_for: Any, extra_for: Any) -> None:
        self.work = work
        self.dataset = dataset
        self.protocol_for = protocol_for
        self.extra_for = extra_for

    def open(self) -> Opened:
        from subtext.api.load import Opened, choose_device, open_run, open_work, pretrained, require_features

        work = self.work
        if self.dataset is None:
            return open_work(work)
        device = choose_device(work.device)
        model, record = None if work.model is None else pretrained(work.model, device), None
        if model is None:
            assert work.run is not None
            run = open_run(
                work.run, features=work.sources.features, text_features=work.sources.text_features, device=device
            )
            model, record = run.model, run.record
        split = work.split or (record is not None and record.data.val_split) or "val"
        pairs = self.dataset.split(split)
        require_features(model, pairs)
        return Opened(model, pairs, split, record)

    def embed(self, model: Model, pairs: Dataset, label: str = "embedding") -> tuple[Embeddings, Embeddings]:
        from subtext.evaluation import embed_pairs
        from subtext.report.progress import meter

        work = self.work
        with meter(label, len(pairs.images) + len(pairs.texts), quiet=work.quiet) as progress:
            return embed_pairs(model, pairs, batch_size=work.batch_size, workers=work.workers, progress=progress)

    def model(self, graph: Any, *, space: bool, space_of_pairs: bool) -> Result:
        from subtext.api.load import choose_precision
        from subtext.evaluation import evaluate_embeddings
        from subtext.evaluation.preservation import with_preservation
        from subtext.evaluation.space import compares_vectors, with_space
        from subtext.evaluation.space import space_of_pairs as measure_pairs
        from subtext.report.progress import meter

        opened = self.open()
        choose_precision(opened.model, self.work.bf16, quiet=self.work.quiet)
        similarity, pairs = opened.model.similarity, opened.pairs
        if space_of_pairs and not compares_vectors(similarity):
            raise RequirementError(
                "--pair-alignment-uniformity needs a model that makes vectors of pairs: ascl with attention; take "
                "--alignment-uniformity for this one"
            )
        protocol, extra = self.protocol_for(pairs), self.extra_for(pairs)
        items = self.embed(opened.model, pairs)
        result = evaluate_embeddings(similarity, *items, pairs, protocol=protocol, extra=extra)
        if space:
            means = items
            if items[0].parts is None or items[1].parts is None:
                # A probabilistic model's items are measured by their means.
                by_mean = opened.by_mean("measure the space of").model
                means = items if by_mean is opened.model else self.embed(by_mean, pairs, "embedding means")
            result = with_space(result, *means, pairs)
        if space_of_pairs:
            with meter("vectors of pairs", len(pairs.images), quiet=self.work.quiet) as progress:
                figures = measure_pairs(similarity, *items, pairs, progress=progress)
            result = replace(result, figures=result.figures | figures)
        if graph is not None:
            result = with_preservation(result, similarity, items, pairs, graph, protocol=protocol)
        role, warning = self.role(opened, self.work.sources)
        about = {**self.subject(opened), "split": opened.split, "split_role": role}
        return replace(result, about=about, notes=(*([warning] if warning else []), *result.notes))

    def two_stages(self, rerank: Path, candidates: tuple[int, ...], features: Path | None) -> Result:
        from subtext.api.load import Opened, choose_device, choose_precision, open_run, require_features
        from subtext.data.text import cut_note, too_long
        from subtext.evaluation.two_stages import Stage, evaluate_two_stage, require_plan
        from subtext.report.progress import say

        work = self.work
        opened = self.open().indexed("a first stage")
        pairs = opened.pairs
        protocol, extra = self.protocol_for(pairs), self.extra_for(pairs)
        # Every error of the second model is raised before the first one works.
        run = open_run(rerank, features=features, device=choose_device(work.device))
        choose_precision(run.model, work.bf16, quiet=work.quiet)
        require_plan(candidates, extra)
        require_features(run.model, pairs)
        input_spec, texts = run.model.text.input_spec, pairs.texts.values
        if (note := cut_note(input_spec, texts)) is not None:
            say(f"note: the re-ranking run: {note}", quiet=work.quiet)
        first, second = (Stage(model.similarity, *self.embed(model, pairs)) for model in (opened.model, run.model))
        result = evaluate_two_stage(first, second, pairs, candidates=candidates, protocol=protocol, extra=extra)
        subject = self.subject(opened)
        both = Opened(run.model, pairs, opened.split, run.record)
        role, warning = self.role(opened, work.sources)
        second_role, second_warning = self.role(both, Sources.from_json(subject["data"]))
        cut = too_long(input_spec, texts)
        reranking = {**_about_run(run.path, run.record, run.model), **({"texts_cut": cut} if cut else {})}
        stages = {"rerank": reranking, "split_role": second_role, **result.about["two_stage"]}
        about = {**subject, "split": opened.split, "split_role": role, "two_stage": stages}
        warnings = [warning, f"the re-ranking run: {second_warning}" if second_warning else ""]
        return replace(result, about=about, notes=(*filter(None, warnings), *result.notes))

    def files(self, files: Files, *, space: bool) -> Result:
        from subtext.evaluation.space import with_space

        if files.scores is not None and space:
            raise RequirementError(
                "--alignment-uniformity needs embeddings: scores alone have no distances among texts or images"
            )
        pairs, split = read_split(self.work.sources, self.work.split) if self.dataset is None else self.chosen()
        protocol, extra = self.protocol_for(pairs), self.extra_for(pairs)
        output = read_output(files, pairs)
        result = output.evaluate(pairs, protocol, extra)
        if space:
            assert output.images is not None and output.texts is not None
            result = with_space(result, output.images, output.texts, pairs)
        data = self.work.sources.to_json()
        return replace(result, about={"model": output.about, "data": data, "split": split, "split_role": "unknown"})

    def chosen(self) -> tuple[Dataset, str]:
        """The split of a data set in memory."""
        split = self.work.split or "all"
        return self.dataset.split(split), split

    def role(self, opened: Opened, sources: Sources) -> tuple[str, str]:
        return split_role(opened, sources) if self.dataset is None else ("unknown", "")

    def subject(self, opened: Opened) -> dict[str, Any]:
        """Which model, and on which data."""
        from subtext.api.load import remembered
        from subtext.data.text import too_long
        from subtext.search import model_fingerprint

        record, sources = opened.record, self.work.sources
        if record is None:
            model = {"pretrained": self.work.model, "fingerprint": model_fingerprint(opened.model)}
        else:
            assert self.work.run is not None
            sources = sources.over(remembered(record.data)) if self.dataset is None else sources
            model = _about_run(self.work.run, record, opened.model)
        cut = too_long(opened.model.text.input_spec, opened.pairs.texts.values)
        return {"model": model, "data": sources.to_json(), **({"texts_cut": cut} if cut else {})}


def _about_run(path: Path, record: Record, model: Model) -> dict[str, Any]:
    from subtext.search import model_fingerprint

    return {
        "run": str(path.expanduser().resolve()),
        "host": record.model,
        "arguments": record.arguments,
        "methods": [list(method) for method in record.methods],
        "seed": record.seed,
        "epoch": record.best_epoch,
        "epochs": record.epochs,
        "training": record.status,
        "fingerprint": model_fingerprint(model),
        **({"scores_in_bf16": True} if model.scores_in_bf16 else {}),
    }


def _protocol(folds: str, images: int, settings: dict[str, Any]) -> Protocol:
    """The protocol, with folds of so many thousand images counted out.

    Raises ArgumentError for folds that cannot be read, RequirementError where there are not so many images.
    """
    from subtext.evaluation import Protocol

    if not re.fullmatch(r"[1-9]\d*|[1-9]\d*k(\+[1-9]\d*k)*", folds):
        raise ArgumentError(f"folds needs a number of folds, or sizes in thousands: 5, 1k, 1k+5k; it got {folds}")
    sizes = [int(size.removesuffix("k")) * 1000 for size in folds.split("+") if size.endswith("k")]
    if not sizes:
        return Protocol(**settings, folds=int(folds))
    if wrong := [size for size in sizes if images % size]:
        raise RequirementError(
            f"folds of {wrong[0]:,} images need a multiple of as many; there are {images:,}; give a number of folds"
        )
    first, *more_folds = sorted({images // size for size in sizes})
    return Protocol(**settings, folds=first, also_folds=tuple(more_folds))


def _truth_path(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if name not in TRUTHS or not path:
        raise RequirementError(
            "--truth needs eccv=FOLDER (the JSON files of eccv_caption) or cxc=PATH (that folder, or sits_test.csv); "
            f"it got '{text}'"
        )
    return name, Path(path).expanduser()


def _match(text: str, pairs: Dataset) -> tuple[str, Match]:
    from subtext.evaluation.relevance import eccv

    name, path = _truth_path(text)
    if name == "cxc" and not path.is_dir():
        positives = eccv.read_cxc(path)
    else:
        positives = eccv.read_eccv(path, "cxc" if name == "cxc" else "eccv")
    return name, positives.match(pairs.images.ids, _caption_ids(pairs))


def _caption_ids(pairs: Dataset) -> list[str]:
    """Names of the texts: COCO's own, where a column "caption_ids" of the images has one for each of their texts."""
    columns = pairs.images.metadata.get("caption_ids", [])
    of_image = {name: ids for name, ids in zip(pairs.images.ids, columns, strict=False) if ids}
    names = []
    for name in pairs.texts.ids:
        image, _, number = name.rpartition("#")
        ids = of_image.get(image, ())
        names.append(str(ids[int(number)]) if number.isdecimal() and int(number) < len(ids) else name)
    return names


def split_role(opened: Opened, sources: Sources) -> tuple[str, str]:
    """What the split was to the run: "training", "selection", "held out" or "unknown"; and a warning where one is due.

    Only the run's own file is compared: whether another file holds the same images is not checked.
    """
    record, split = opened.record, opened.split
    if record is None or (sources.data is not None and sources.to_json()["data"] != record.data.data):
        return "unknown", ""
    if sources.split_seed not in (None, record.data.split_seed):
        return "unknown", (
            f"--split-seed {sources.split_seed} is not the run's, {record.data.split_seed}: where the data has no "
            "splits of its own, this one holds images that the run was trained on"
        )
    if split in ("all", record.data.train_split):
        holds = "holds" if split == "all" else "is"
        return "training", f"split {split} {holds} what the run was trained on: these figures say nothing of new data"
    if split == record.data.val_split and (decided := _decided(record)):
        return "selection", f"split {split} {decided}: expect a little less on data that decided nothing (--split NAME)"
    return "held out", ""


def _decided(record: Record) -> str:
    """What the validation split decided in a training; empty when it was only measured."""
    from subtext.recipes.build import ENSEMBLE

    if record.plan.get("select") != "last":
        if record.model == ENSEMBLE:
            return "selected the epochs of its members"
        return f"selected the epoch, {record.best_epoch} of {record.epochs}"
    stops = bool(record.plan.get("patience")) or record.plan.get("schedule") == "plateau"
    return "decided how long the run was trained, and how fast" if stops else ""
