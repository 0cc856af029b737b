"""`subtext.evaluate` and `compare`: retrieval figures of a run or of any model's output, and their differences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from subtext.api import options as opt
from subtext.api.load import (
    EvaluationSubject,
    LoadedRun,
    ModelSource,
    choose_device,
    choose_precision,
    is_data_of_run,
    is_model,
    open_run,
    open_subject,
    require_features,
    require_run,
)
from subtext.api.options import AnyPath
from subtext.data.config import DataConfig
from subtext.data.objects import Arrays, Rows
from subtext.errors import ArgumentError, DataError, RequirementError, Setting
from subtext.report.progress import meter, say, with_progress
from subtext.settings import Interval, Metavar, OptionGroup, Unfold, command, named_fields, require_path

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset, Items
    from subtext.data.external_outputs import Output
    from subtext.evaluation import Gallery, Metric, Protocol, Result
    from subtext.evaluation.compare import Compared
    from subtext.evaluation.metric import Measure
    from subtext.evaluation.relevance.match import Match
    from subtext.models.checkpoint import Record
    from subtext.models.model import Model

TRUTHS = ("eccv", "cxc")
_EXTERNAL, _FILE = OptionGroup("Any model's output"), Metavar("FILE")


CONSTANT = "constant"
"""In place of a file of scores: the same score for all pairs."""
Scores = Annotated[
    "str | Path | Arrays | None",
    "Scores of images x texts with ids: npz, npy, safetensors, parquet; or constant: the same score for all.",
    _EXTERNAL,
    _FILE,
]
ImageEmbeddings = Annotated[
    "str | Path | Arrays | None", "Vectors of the images with ids, in the same formats.", _EXTERNAL, _FILE
]
TextEmbeddings = Annotated[
    "str | Path | Arrays | None", "Vectors of the texts; can be the same file.", _EXTERNAL, _FILE
]
SubjectData = Annotated[
    "str | Path | Dataset | Rows | DataConfig | None",
    "Data set: a file or folder. Default: that of the run.",
    OptionGroup("Data"),
    Unfold(DataConfig(), without=("train_split", "val_split")),
]


@named_fields()
@dataclass(frozen=True)
class ComputeConfig:
    """How a model is loaded and run.

    Args:
        text_prompt: Prompt for every text of a pretrained model; {} stands for the text: "a photo of {}".
        device: "cpu", "cuda", "cuda:1" or "mps"; "auto" for a GPU if there is one.
        batch_size: Items per batch, 1 or more.
        workers: Threads that load data, 0 or more.
        bf16: Score pairs in bfloat16 if the machine supports it; None for what the run was trained with.
        cache: Folder for matrices of graded relevance; None computes them each time.
    """

    text_prompt: opt.TextPrompt = None
    device: opt.Device = "auto"
    batch_size: opt.BatchSize = 128
    workers: opt.Workers = 2
    bf16: opt.Bf16 = None
    cache: Annotated[
        str | Path | None, "Folder for matrices of relevance.", Metavar("FOLDER"), OptionGroup("Relevance")
    ] = None


@named_fields()
@dataclass(frozen=True)
class ExternalConfig:
    """What files, or arrays, of scores or vectors do not say themselves.

    Args:
        image_ids: File with the names of the images, one per line; or a list of them.
        text_ids: File with the names of the texts, one per line; or a list of them.
        similarity: Of vectors: "cosine", or "dot" as they are.
    """

    image_ids: Annotated[
        str | Path | Sequence[str] | None, "Names of images, one per line, if the file has none.", _EXTERNAL, _FILE
    ] = None
    text_ids: Annotated[
        str | Path | Sequence[str] | None, "Names of texts, one per line, if the file has none.", _EXTERNAL, _FILE
    ] = None
    similarity: Annotated[Literal["cosine", "dot"], "Similarity of embeddings.", _EXTERNAL] = "cosine"


@named_fields()
@dataclass(frozen=True)
class SecondStage:
    """A second model, which re-ranks the top candidates of the first.

    Args:
        run: Folder of its run.
        candidates: Number of candidates per query, 1 or more. Several values are compared with scoring every pair.
        features: Features for the second model; None for those of its run.
    """

    run: AnyPath
    candidates: tuple[int, ...] = (100,)
    features: str | Path | Arrays | None = None


@command
@with_progress
def evaluate(
    model: AnyPath | ModelSource | Model | None = None,
    data: SubjectData = None,
    *,
    split: opt.Split = None,
    metrics: Sequence[Metric | str] | None = None,
    protocol: Protocol | None = None,
    scores: Scores = None,
    image_embeddings: ImageEmbeddings = None,
    text_embeddings: TextEmbeddings = None,
    external: ExternalConfig = ExternalConfig(),
    rerank: AnyPath | SecondStage | None = None,
    config: ComputeConfig = ComputeConfig(),
    quiet: opt.Quiet = False,
    progress: opt.OnProgress = None,
) -> Result:
    """Measure how well a model retrieves the texts of images and the images of texts.

    Without `data`, the data set of the run is used. Recall is in per cent. The line "95 %" shows bootstrap intervals
    over images; it needs at least ten images. The line "chance" is the expected result of a random ranking.

    Args:
        model: A run, or its folder; or a pretrained dual encoder: a hub name or a folder (CLIP, SigLIP), or
            "open_clip:ARCHITECTURE/WEIGHTS"; or a `Model` in memory, with `data`. None to evaluate the output of a
            model from files.
        data: A data set, its file or folder, or a DataConfig, which also names features. None for the data set of the
            run.
        split: The split; "all" for the complete data set; None for the run's validation split.
        metrics: Metrics, as objects or names: [Recall(1, 5, 10), CWay(20), ASP("tfidf")], or ["recall@10", "20-way",
            "asp:tfidf"]; see `subtext.evaluation.metrics`. None for recall at 1, 5 and 10, ranks and ties.
        protocol: Ties, folds, bootstrap and seed; None for `Protocol()`.
        scores: File with scores of images x texts with ids: npz, npy, safetensors or parquet; or an array or tensor,
            with the ids in `external`, or as {"scores": array, "image_ids": [...], "text_ids": [...]}. Or "constant":
            the same score for all pairs, a null model that says what a metric gives for nothing.
        image_embeddings: File with vectors of the images with ids, in the same formats; or arrays, as `DataConfig`
            takes features.
        text_embeddings: File with vectors of the texts; can be the same file.
        external: Ids of the items, if the files have none, and the similarity of vectors.
        rerank: The run of a second model, which re-ranks the top 100 candidates of the first. Use a `SecondStage` for
            another number of candidates.
        config: Device, batch size and precision, and the prompt of a pretrained model.
        quiet: Show no progress.
        progress: Called with the numbers of finished items and of all, in each part of the work: checking images,
            embedding.

    Returns:
        Figures with intervals and notes. A notebook shows them as a table; `save` and `save_queries` write them to
        files.

    Raises:
        ArgumentError: For contradictory arguments. Also raises the errors of loading, reading and evaluating.
        RequirementError: If a metric needs something that the model or the data does not have.

    Example:
        >>> from subtext.evaluation.metrics import ASP, Recall
        >>> evaluate("runs/first", split="test", metrics=[Recall(1, 5, 10), ASP("tfidf")])  # doctest: +SKIP
    """
    if isinstance(data, str | Path | DataConfig):  # Rows are read once.
        DataConfig.of(data).require_there()
    from subtext.evaluation import Protocol
    from subtext.evaluation.metrics import metrics_of

    if protocol is not None and not isinstance(protocol, Protocol):
        raise ArgumentError(
            f"protocol needs a Protocol, as in Protocol(folds=5); it got {protocol!r:.60}", field="protocol"
        )
    work, files = subject_of(
        model,
        data,
        split=split,
        scores=scores,
        image_embeddings=image_embeddings,
        text_embeddings=text_embeddings,
        external=external,
        config=config,
        quiet=quiet,
    )
    chosen, protocol = metrics_of(metrics), protocol or Protocol()
    _require_against(chosen)
    apart = [metric for metric in chosen if metric.truth in ("neighbours", "space")]
    if rerank is not None:
        if apart or files is not None:
            raise ArgumentError(
                "rerank needs a model whose candidates it re-orders; it goes neither with another program's output nor "
                "with metrics of one model: neighbours of a graph, alignment and uniformity",
                field="rerank",
            )
        stage = rerank if isinstance(rerank, SecondStage) else SecondStage(rerank)
        return _of_stages(work, stage, chosen, protocol)
    if files is not None:
        return _of_files(work, files, chosen, protocol)
    return _of_model(work, chosen, protocol)


@dataclass(frozen=True)
class Files:
    """The output of another program: one file of scores, or two of vectors (which may be the same).

    Attributes:
        scores: File of an (I T) matrix, or arrays in memory; None for vectors.
        image_embeddings: File of (I D) vectors, or arrays; None for scores.
        text_embeddings: File of (T D) vectors, or arrays; None for scores.
        image_ids: Files or lists of names, where those do not hold them.
        text_ids: See `image_ids`.
        similarity: Of vectors: "cosine", or "dot" as they are.
    """

    scores: Any = None
    image_embeddings: Any = None
    text_embeddings: Any = None
    image_ids: Any = None
    text_ids: Any = None
    similarity: Literal["cosine", "dot"] = "cosine"


def subject_of(
    model: AnyPath | ModelSource | Model | None,
    data: str | Path | Dataset | Rows | DataConfig | None,
    *,
    split: str | None,
    scores: Any,
    image_embeddings: Any,
    text_embeddings: Any,
    external: ExternalConfig,
    config: ComputeConfig,
    quiet: bool,
) -> tuple[EvaluationSubject, Files | None]:
    """What a public function measures.

    Args:
        model: As in `evaluate`; so are all others.
        data: As in `evaluate`.
        split: As in `evaluate`.
        scores: As in `evaluate`.
        image_embeddings: As in `evaluate`.
        text_embeddings: As in `evaluate`.
        external: As in `evaluate`.
        config: As in `evaluate`.
        quiet: As in `evaluate`.

    Returns:
        The model with its data, and the files to measure instead of a model; None for a model.

    Raises:
        ArgumentError: Unless exactly one of a model and files is given, with what it needs.
    """
    paths = {"scores": scores, "image_embeddings": image_embeddings, "text_embeddings": text_embeddings}
    paths |= {"image_ids": external.image_ids, "text_ids": external.text_ids}
    files = Files(**{name: _path_or_object(value) for name, value in paths.items()}, similarity=external.similarity)
    if (files.image_embeddings is None) != (files.text_embeddings is None) or (
        files.scores is not None and files.image_embeddings is not None
    ):
        name = "text_embeddings" if files.image_embeddings is None else "image_embeddings"
        raise ArgumentError(
            f"{name} needs vectors of images and of texts (one file may hold both) and no scores; give two files of "
            "vectors, or one of scores",
            field=name,
        )
    has_files = files.scores is not None or files.image_embeddings is not None
    if not has_files and (files.image_ids is not None or files.text_ids is not None):
        name = "text_ids" if files.image_ids is None else "image_ids"
        raise ArgumentError(
            f"{name} needs a file of scores or vectors, whose names these are; leave it out", field=name
        )
    if (model is not None) + has_files != 1:
        raise ArgumentError(
            "give one of these: the folder of a run that `subtext train` made, or a pretrained model; ",
            Setting("scores", "FILE"),
            "; or ",
            Setting("image_embeddings", "FILE"),
            " and ",
            Setting("text_embeddings", "FILE"),
        )
    if files.similarity != "cosine" and files.image_embeddings is None:
        raise ArgumentError(
            "similarity is that of vectors in files; there are none; leave it out",
            field="similarity",
        )
    if has_files and config.text_prompt is not None:
        raise ArgumentError("text_prompt is for a pretrained model; leave it out", field="text_prompt")
    if has_files and config.bf16 is not None:
        raise ArgumentError(
            "bf16 is for a run that scores pairs; another program's output is scored already", field="bf16"
        )
    sources = DataConfig.of(data).require_there()
    source = None if model is None else _model_source(model, sources, config)
    work = EvaluationSubject(
        source,
        sources,
        split,
        config.device,
        config.batch_size,
        config.workers,
        quiet,
        config.bf16,
        None if config.cache is None else Path(config.cache),
    )
    return work, files if has_files else None


def _path_or_object(value: Any) -> Any:
    """The path that text names; an object as it is."""
    return Path(value).expanduser() if isinstance(value, str | os.PathLike) else value


def _model_source(model: AnyPath | ModelSource | Model, sources: DataConfig, config: ComputeConfig) -> ModelSource:
    """Whether a name is that of a run or of a pretrained model: a folder says so, another name does with `data`."""
    if isinstance(model, ModelSource):
        return model
    if is_model(model) and sources.data is None:
        raise ArgumentError("a model in memory needs ", Setting("data", "DATA"), ": it has no data set of its own")
    if is_model(model):
        return ModelSource.of(None, model, config.text_prompt)
    require_run(model, "model")
    folder = Path(cast(AnyPath, model)).expanduser()
    a_run = (folder / "run.json").is_file() or (folder.is_dir() and not (folder / "config.json").is_file())
    if a_run or (sources.data is None and not folder.is_dir()):
        return ModelSource.of(model, None, config.text_prompt)
    if sources.data is None:
        raise ArgumentError("a pretrained model needs ", Setting("data", "DATA"), ": it has no data set of its own")
    return ModelSource.of(None, model, config.text_prompt)


def require_outputs(files: Mapping[str, str | Path | None]) -> None:
    """Check that files can be written, before the work begins.

    Args:
        files: Name of an argument -> file to write; None for none.

    Raises:
        ArgumentError: For one file that two results go to.
        OutputError: For a file that cannot be written.
    """
    from subtext.data.atomic import require_file

    names: dict[Path, str] = {}
    for name, path in files.items():
        if path is not None:
            require_file(Path(path))
            if (first := names.setdefault(Path(path).resolve(), name)) != name:
                raise ArgumentError(f"{name} needs a file of its own; {path} is that of {first}, too", field=name)


def read_split(work: EvaluationSubject) -> tuple[Dataset, str]:
    """The pairs of the split, without opening images; all of them where the data has no splits to choose from.

    Args:
        work: The data and the name of the split.

    Returns:
        The pairs, and the name of the split.

    Raises:
        ArgumentError: If no data set is named, or it has several splits and none of them is named.
    """
    split = work.split
    if work.sources.data is None:
        raise ArgumentError(
            "data needs the images, texts and pairs that the scores or vectors belong to; it got none", field="data"
        )
    reading = work.sources.read()
    splits = sorted(reading.counts())
    if split is None and len(splits) > 1:
        raise ArgumentError(
            f"split needs the name of one for scores or vectors: {', '.join(splits)}, or all; it got none",
            field="split",
        )
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

    def evaluate(
        self, gallery: Gallery, *, metrics: Sequence[Measure] | None = None, protocol: Protocol | None = None
    ) -> Result:
        """Measure the scores, or the vectors.

        Args:
            gallery: Images and texts in the same order.
            metrics: None for the default ones.
            protocol: None for the default one.

        Returns:
            Figures with intervals and notes.
        """
        from subtext.evaluation import evaluate_embeddings, evaluate_matrix
        from subtext.models.similarity.cosine import Cosine

        if self.scores is not None:
            return evaluate_matrix(self.scores, gallery, metrics=metrics, protocol=protocol)
        assert self.images is not None and self.texts is not None
        return evaluate_embeddings(Cosine(), self.images, self.texts, gallery, metrics=metrics, protocol=protocol)


def read_output(files: Files, pairs: Dataset) -> ExternalOutput:
    """Read scores or vectors, and put them into the order of the pairs.

    Args:
        files: Of scores or vectors.
        pairs: The order to put them in.

    Returns:
        Scores or vectors.

    Raises:
        DataError: For files that cannot be read or lack an item of the split.
    """
    import numpy as np
    import torch

    from subtext.data.external_outputs import read_scores, read_vectors

    if isinstance(files.scores, Path) and str(files.scores) == CONSTANT and not files.scores.exists():
        return ExternalOutput(torch.zeros(len(pairs.images), len(pairs.texts)), None, None, {"scores": CONSTANT})
    if files.scores is not None:
        output = read_scores(files.scores, image_ids=files.image_ids, text_ids=files.text_ids)
        values = output.values
        for axis, items in enumerate((pairs.images, pairs.texts)):
            order = output.rows(items, axis=axis)
            if len(order) != values.shape[axis] or not (order == np.arange(len(order))).all():
                values = values.take(order, axis=axis)
        # Half precision becomes float32.
        matrix = np.array(values, dtype=np.float64 if values.dtype == np.float64 else np.float32)
        return ExternalOutput(torch.from_numpy(matrix), None, None, {"scores": str(output.path)})
    first, second = files.image_embeddings, files.text_embeddings
    assert first is not None and second is not None
    outputs = read_vectors(first, "image", ids=files.image_ids), read_vectors(second, "text", ids=files.text_ids)
    images = _embeddings(outputs[0], pairs.images, files.similarity)
    texts = _embeddings(outputs[1], pairs.texts, files.similarity)
    if images.width != texts.width:
        raise DataError(
            f"images and texts need vectors of one width; {outputs[0].path.name} has {images.width}, "
            f"{outputs[1].path.name} {texts.width}"
        )
    names = {"image_embeddings": str(outputs[0].path), "text_embeddings": str(outputs[1].path)}
    about = {**names, "similarity": files.similarity}
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


def _of_model(work: EvaluationSubject, metrics: Sequence[Measure], protocol: Protocol) -> Result:
    from subtext.evaluation import evaluate_embeddings
    from subtext.evaluation.checks.space import compares_vectors, space_of_pairs, with_preservation, with_space
    from subtext.evaluation.metrics import AlignmentUniformity
    from subtext.graphs.graph import Graph

    graphs = [Graph.load(Path(m.against).expanduser()) for m in metrics if m.truth == "neighbours"]
    opened = open_subject(work)
    choose_precision(opened.model, work.bf16, quiet=work.quiet)
    similarity, pairs = opened.model.similarity, opened.pairs
    spaces = [metric.of_pairs for metric in metrics if isinstance(metric, AlignmentUniformity)]
    if True in spaces and not compares_vectors(similarity):
        raise ArgumentError(
            "pair_alignment_uniformity needs a model that makes vectors of pairs: ascl with attention; take ",
            Setting("alignment_uniformity"),
            " for this one",
            field="pair_alignment_uniformity",
        )
    measured, gallery = read_truths(metrics, pairs, protocol, work)
    items = opened.embed(work)
    result = evaluate_embeddings(similarity, *items, gallery, metrics=measured, protocol=protocol)
    if False in spaces:
        means = items
        if items[0].parts is None or items[1].parts is None:
            # A probabilistic model's items are measured by their means.
            by_mean = opened.to_means("measure the space of")
            means = items if by_mean.model is opened.model else by_mean.embed(work, "embedding means")
        result = with_space(result, *means, pairs)
    if True in spaces:
        with meter("vectors of pairs", len(pairs.images), quiet=work.quiet) as progress:
            figures = space_of_pairs(similarity, *items, pairs, progress=progress)
        result = replace(result, figures=result.figures | figures)
    for graph in graphs:
        result = with_preservation(result, similarity, items, pairs, graph, protocol=protocol)
    role, warning = split_role(opened, work.sources)
    about = {**_about(opened, work), "split": opened.split, "split_role": role}
    return replace(result, about=about, notes=(*filter(None, [warning]), *result.notes))


def _of_stages(work: EvaluationSubject, stage: SecondStage, metrics: Sequence[Measure], protocol: Protocol) -> Result:
    from subtext.data.text import cut_note, too_long
    from subtext.evaluation.two_stages.evaluate import RankingStage, evaluate_two_stages, require_plan

    opened = open_subject(work).to_indexable("a first stage")
    pairs, candidates = opened.pairs, stage.candidates
    require_plan(candidates, metrics)
    measured, gallery = read_truths(metrics, pairs, protocol, work)
    # Every error of the second model is raised before the first one works.
    run = open_run(stage.run, features=stage.features, device=choose_device(work.device))
    choose_precision(run.model, work.bf16, quiet=work.quiet)
    require_features(run.model, pairs)
    input_spec, texts = run.model.text.input_spec, pairs.texts.values
    if (note := cut_note(input_spec, texts)) is not None:
        say(f"note: the re-ranking run: {note}", quiet=work.quiet)
    second = replace(opened, model=run.model, record=run.record)
    first, expensive = (RankingStage(each.model.similarity, *each.embed(work)) for each in (opened, second))
    result = evaluate_two_stages(first, expensive, gallery, candidates=candidates, metrics=measured, protocol=protocol)
    about = _about(opened, work)
    role, warning = split_role(opened, work.sources)
    sources = work.sources if opened.record is None else work.sources.over(opened.record.data)
    second_role, second_warning = split_role(second, sources)
    cut = too_long(input_spec, texts)
    reranking = {**_about_run(run.path, run.record, run.model), **({"texts_cut": cut} if cut else {})}
    two_stage = {"rerank": reranking, "split_role": second_role, **result.about["two_stage"]}
    about |= {"split": opened.split, "split_role": role, "two_stage": two_stage}
    warnings = [warning, f"the re-ranking run: {second_warning}" if second_warning else ""]
    return replace(result, about=about, notes=(*filter(None, warnings), *result.notes))


def _of_files(work: EvaluationSubject, files: Files, metrics: Sequence[Measure], protocol: Protocol) -> Result:
    from subtext.evaluation.checks.space import with_space
    from subtext.evaluation.metrics import AlignmentUniformity

    spaces = [metric.of_pairs for metric in metrics if isinstance(metric, AlignmentUniformity)]
    if True in spaces:
        raise ArgumentError(
            "pair_alignment_uniformity needs a model; files hold none", field="pair_alignment_uniformity"
        )
    if any(metric.truth == "neighbours" for metric in metrics):
        raise ArgumentError("neighbours of a graph need a model; files hold none; leave the graph out")
    if files.scores is not None and spaces:
        raise ArgumentError(
            "alignment_uniformity needs embeddings: scores alone have no distances among texts or images",
            field="alignment_uniformity",
        )
    pairs, split = read_split(work)
    measured, gallery = read_truths(metrics, pairs, protocol, work)
    output = read_output(files, pairs)
    result = output.evaluate(gallery, metrics=measured, protocol=protocol)
    if spaces:
        assert output.images is not None and output.texts is not None
        result = with_space(result, output.images, output.texts, pairs)
    about = {"model": output.about, "data": work.sources.to_json(), "split": split, "split_role": "unknown"}
    return replace(result, about=about)


def _require_against(metrics: Sequence[Measure]) -> None:
    """Raise for what metrics are measured against and cannot be: before anything is read."""
    from subtext.evaluation.relevance.graded import check

    for metric in metrics:
        if metric.truth == "relevance":
            if not metric.against:
                raise RequirementError(f"{metric} needs a relevance by name, such as tfidf1; it got none")
            check(metric.against)
        if metric.truth in ("ratings", "neighbours") and not metric.against:
            needs = "a table of ratings" if metric.truth == "ratings" else "a graph that `subtext neighbours` made"
            raise RequirementError(f"{metric} needs {needs}, as in against=PATH; it got none")
        if metric.truth == "pairs" and metric.against:
            name, _, path = metric.against.partition("=")
            if name not in TRUTHS or not path:
                raise ArgumentError(
                    "truth needs eccv=FOLDER (the JSON files of eccv_caption) or cxc=PATH (that folder, or "
                    f"sits_test.csv); it got '{metric.against}'",
                    field="truth",
                )
            require_path("truth", path)


def read_truths(
    metrics: Sequence[Measure], pairs: Dataset, protocol: Protocol, work: EvaluationSubject
) -> tuple[list[Measure], Gallery]:
    """Read what metrics are measured against: relevance, other positives, labels, ratings, lengths of texts.

    Args:
        metrics: One for each figure.
        pairs: What is evaluated.
        protocol: Texts of an image that its relevance is computed from.
        work: Device and cache.

    Returns:
        The metrics of scores, each with the name of its truth in the gallery; and the gallery.

    Raises:
        RequirementError: If the data does not have what a truth is made of.
        DataError: If a file cannot be read.
    """
    from subtext.data.text import word_counts
    from subtext.evaluation import gallery_of
    from subtext.evaluation.relevance import plausible
    from subtext.evaluation.relevance.graded import Graded, graded
    from subtext.evaluation.relevance.judgements import read_ratings

    relevances: dict[str, Graded] = {}
    truths: dict[str, Match] = {}
    ratings = None
    measured: list[Measure] = []
    for metric in metrics:
        name, _, path = metric.against.partition("=")
        if metric.truth in ("neighbours", "space"):
            continue
        if metric.truth == "relevance":
            if metric.against not in relevances:
                sizes = f"{len(pairs.images):,} images x {len(pairs.texts):,} texts"
                say(f"relevance {metric.against}: {sizes}", quiet=work.quiet)
                device = choose_device(work.device)
                relevances[metric.against] = graded(
                    pairs, metric.against, references=protocol.references, cache=work.cache, device=device
                )
            metric = replace(metric, against=relevances[metric.against].name)
        elif metric.truth == "ratings":
            ratings = read_ratings(Path(metric.against).expanduser()).judgements(pairs.images.ids, pairs.texts.ids)
            metric = replace(metric, against="")
        elif name:
            if name not in truths:
                truths[name] = _match(name, Path(path).expanduser(), pairs)
            metric = replace(metric, against=name)
        measured.append(metric)
    by_length = any(getattr(metric, "by_length", False) for metric in measured)
    gallery = gallery_of(
        pairs,
        relevances=relevances.values(),
        truths=truths,
        labels=plausible.of_pairs(pairs) if any(metric.truth == "labels" for metric in measured) else None,
        ratings=ratings,
        lengths=word_counts(pairs.texts.values) if by_length else None,
    )
    return measured, gallery


def _about(opened: LoadedRun, work: EvaluationSubject) -> dict[str, Any]:
    """Which model, and on which data."""
    from subtext.data.text import too_long
    from subtext.retrieval.build import model_fingerprint

    record, sources = opened.record, work.sources
    if record is None:
        model = {"pretrained": work.model.label, "fingerprint": model_fingerprint(opened.model)}
        model |= {"text_prompt": work.model.text_prompt} if work.model.text_prompt else {}
    else:
        sources = sources.over(record.data)
        model = _about_run(Path(work.model.label), record, opened.model)
    cut = too_long(opened.model.text.input_spec, opened.pairs.texts.values)
    return {"model": model, "data": sources.to_json(), **({"texts_cut": cut} if cut else {})}


def _about_run(path: Path, record: Record, model: Model) -> dict[str, Any]:
    from subtext.retrieval.build import model_fingerprint

    return {
        "run": str(path.expanduser().resolve()),
        "model": record.model,
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


def split_role(opened: LoadedRun, sources: DataConfig) -> tuple[str, str]:
    """What the split was to the run: "training", "selection", "held out" or "unknown"; and a warning where one is due.

    Only the run's own file, or a data set in memory with its pairs, is compared: whether another holds the same images
    is not checked.

    Args:
        opened: The model with its record.
        sources: Where the evaluated data is.

    Returns:
        The role, and a warning or an empty text.
    """
    from subtext.recipes.build import ENSEMBLE

    record, split = opened.record, opened.split
    if record is None or not is_data_of_run(record, sources):
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


@command
def compare(
    first: str | Path | Result | Sequence[str | Path | Result],
    second: str | Path | Result | Sequence[str | Path | Result],
    *,
    metric: Annotated[
        tuple[str, ...],
        "Metric to test, such as recall@10; repeatable. Fewer metrics give stronger tests. Default: all but ranks.",
        Metavar("NAME"),
        OptionGroup("Figures"),
    ] = (),
    resamples: Annotated[int, "Resamples of intervals and p-values.", Interval(100), OptionGroup("Resampling")] = 2000,
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
    interval of a difference resamples images and runs. There are two p-values, corrected for the number of metrics. The
    p-value over queries compares these trained models. The p-value over runs compares their methods; it needs several
    seeds per side.

    Args:
        first: A result or its file, or several results of one method with different seeds.
        second: See `first`.
        metric: Names of metrics to test, such as "recall@10". The fewer metrics, the stronger the tests. Default: all
            except ranks.
        resamples: Resamples of intervals and p-values, 100 or more.
        seed: Seed of the resampling.
        json: File to write the comparison to as JSON; None for none.

    Returns:
        The differences, with intervals and p-values.

    Raises:
        ArgumentError: If a side is no result.
        DataError: If a file cannot be read, or the files cannot be compared.
        RequirementError: If values per query are missing, or the evaluations differ.
        OutputError: If the JSON cannot be written. This is checked before the work begins.
    """
    from subtext.data.atomic import require_file
    from subtext.evaluation import Result
    from subtext.evaluation.compare import compare as compare_runs, measured_of, read_measured

    if json is not None:
        require_file(Path(json))
    for name, side in (("first", first), ("second", second)):
        several = [side] if isinstance(side, str | os.PathLike | Result) else side
        if not isinstance(several, list | tuple) or not all(isinstance(r, str | Path | Result) for r in several):
            raise ArgumentError(
                f"{name} needs a Result of evaluate or its JSON file, or a list of these; it got {side!r:.60}; "
                "evaluate a run first",
                field=name,
            )
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
