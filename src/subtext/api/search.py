"""`subtext.open_index` and `subtext.search`: an index with its model, and one search of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.load import AnyFeatures, ModelSource, choose_precision, open_run
from subtext.api.options import AnyPath, Bf16, Device, IndexPretrained
from subtext.data.addresses import is_address
from subtext.data.objects import Arrays
from subtext.errors import ArgumentError, Setting
from subtext.report.progress import say
from subtext.settings import Interval, Metavar, OptionGroup, Shown, command

if TYPE_CHECKING:
    from subtext.models.model import Model
    from subtext.retrieval.index import Answer, Index


def open_index(
    index: Path | str,
    *,
    run: AnyPath | None = None,
    model: AnyPath | None = None,
    features: AnyFeatures = None,
    device: str = "cpu",
) -> Index:
    """Open a search index with its model.

    Some indexes (in a folder or in LanceDB) contain the text encoder of their model as plain arrays, and answer text
    queries without the model. They load the model for the first query with an image, or when `Index.model` is read.
    An index of imported vectors that names no model answers queries by its own items (`like`) and needs a model for
    others. Other indexes load the model immediately. So does every index with `run`, `model`, `features`, or a device
    other than "cpu" and "auto".

    Args:
        index: A folder; the address of an index in PostgreSQL, postgresql://USER@HOST/DATABASE?index=NAME; or of one in
            LanceDB, lance://FOLDER, s3://BUCKET/NAME or gs://BUCKET/NAME.
        run: The new folder of the run of the index, if it was moved.
        model: The new folder of the pretrained model of the index, if it was moved.
        features: Precomputed features of query images, if the model needs them. Default: the features of the index, if
            they still exist.
        device: "auto", "cpu", "cuda" or another device of torch.

    Returns:
        The index with its model.

    Raises:
        SearchIndexError: If the index cannot be read, its run is missing, or another model made it. Also raises the
            errors of `open_run` for `features`.
    """
    from subtext.retrieval.index import Index
    from subtext.retrieval.mapped_weights import MissingWeightsError
    from subtext.retrieval.stores.registry import open_store
    from subtext.retrieval.text_side import TextSide

    store = open_store(index)

    def open_model() -> Model:
        source = ModelSource.of_index(store.manifest, run, model, index=str(store.path))
        opened = source.open(device=device)[0]
        from subtext.data.features import FeatureFile
        from subtext.recipes.build import attach, expanded

        remembered = (store.manifest.data.get(name) for name in ("features", "text_features"))
        of_images, of_texts = (path if path is not None and Path(path).exists() else None for path in remembered)
        for modality, path in (("image", features or of_images), ("text", of_texts)):
            if path is not None:
                attach(getattr(opened, modality), FeatureFile.open(expanded(path), modality), modality)
        return opened

    folder = store.text_side
    by_itself = run is None and model is None and features is None and device in ("auto", "cpu")
    if by_itself and folder is not None and folder.exists():
        try:
            return Index(store, open_model, TextSide.open(folder, store.manifest.fingerprint))
        except MissingWeightsError as problem:
            say(f"note: {problem}; without them, a search by words opens the model with PyTorch, which takes seconds")
    if by_itself and not (store.manifest.run or store.manifest.pretrained):
        return Index(store, open_model, later=True)
    return Index(store, open_model())


_QUERY = OptionGroup("Query")
_RESULTS = OptionGroup("Results")
_RANKING = OptionGroup("Ranking")
_TWO_STAGES = OptionGroup("Two stages")


@command
def search(
    index: Annotated[str | Path | Any, "Folder or address of the index.", Metavar("INDEX")],
    text: Annotated[str | list[str] | None, "Words that the results should match.", Metavar("QUERY")] = None,
    *,
    image: Annotated[str | Path | Any | None, "Image that the results should match.", Metavar("FILE"), _QUERY] = None,
    features: Annotated[str | Path | Arrays | None, "Precomputed features of --image.", Metavar("FILE"), _QUERY] = None,
    image_weight: Annotated[
        float, "Weight of --image or --like; the text has 1 minus this weight.", Interval(0, 1), _QUERY
    ] = 0.5,
    like: Annotated[
        tuple[str, ...],
        "An item that matches: it changes the query, or is the query; repeatable.",
        Metavar("ID"),
        _QUERY,
    ] = (),
    not_like: Annotated[
        tuple[str, ...], "An item that does not match: it changes the query; repeatable.", Metavar("ID"), _QUERY
    ] = (),
    not_text: Annotated[str | None, "Words that the results should not match.", Metavar("QUERY"), _QUERY] = None,
    not_like_weight: Annotated[
        float, "Weight of the negative parts; the positive parts have weight 1.", Interval(0, 1000), _QUERY
    ] = 0.5,
    top: Annotated[int, "Number of results.", Interval(1), _RESULTS] = 10,
    target: Annotated[Literal["images", "texts"], "What to search for.", _RESULTS] = "images",
    where: Annotated[
        tuple[str, ...],
        "Condition on the metadata, such as 'year >= 1990'; repeatable: all must be true.",
        Metavar("CONDITION"),
        _RESULTS,
    ] = (),
    dates: Annotated[
        Literal["possible", "certain"],
        "Dates that possibly meet a condition, or certainly do: circa 1890 is possibly 1891.",
        _RESULTS,
    ] = "possible",
    order: Annotated[
        str | None,
        "Show the best results in the order of a field with dates; undated last.",
        Metavar("FIELD"),
        _RESULTS,
    ] = None,
    descending: Annotated[bool, "With --order, show the latest first.", _RESULTS] = False,
    min_probability: Annotated[
        float | None,
        "Leave out less probable results; needs a calibrated index.",
        Interval(0, 1),
        Metavar("P"),
        _RESULTS,
    ] = None,
    explain: Annotated[bool, "Show what each signal adds to a score.", _RESULTS] = False,
    signals: Annotated[
        tuple[Literal["pixels", "texts", "words", "machine_texts", "machine_words", "fields", "neighbours"], ...],
        "Evidence to use: pixels, own texts, their words, both of texts by machines, fields, texts of similar images; "
        "repeatable. Default: all.",
        Metavar("SIGNAL"),
        _RANKING,
    ] = (),
    hubness: Annotated[
        Literal["csls", "softmax"] | None, "Correct for items that are similar to nearly every query.", _RANKING
    ] = None,
    diversity: Annotated[float, "Rank near-duplicates lower: from 0 (no change) to 1.", Interval(0, 1), _RANKING] = 0.0,
    rerank: Annotated[
        AnyPath | None, "Run of a second model that re-ranks the results.", Metavar("RUN"), _TWO_STAGES
    ] = None,
    candidates: Annotated[
        int | None, "Number of results to re-rank. Default: 100.", Interval(1), Metavar("N"), _TWO_STAGES
    ] = None,
    rerank_features: Annotated[
        str | Path | None, "Precomputed features for --rerank.", Metavar("FILE"), _TWO_STAGES
    ] = None,
    bf16: Bf16 = None,
    csv: Annotated[AnyPath | None, "Also write the results as CSV.", Metavar("FILE"), OptionGroup("Output")] = None,
    separator: Annotated[
        Literal["auto", "comma", "semicolon", "tab"] | None,
        "Between the cells of --csv; auto: a semicolon where the locale writes a decimal comma.",
        Shown("auto"),
        OptionGroup("Output"),
    ] = None,
    run: Annotated[
        AnyPath | None, "New folder of the run, if it was moved.", Metavar("RUN"), OptionGroup("Run")
    ] = None,
    model: IndexPretrained = None,
    device: Device = "auto",
) -> Answer | list[Answer]:
    """Search an index with text, an image, items of the index, or a combination.

    In QUERY, a minus marks what to rank lower: -snow, -"a dog". A phrase in quotes is searched word for word.

    A search for images by words ranks by evidence: what pixels, texts, words, fields and the texts of similar images
    say, added up. With one signal (--signals pixels), and for other searches, the score is the cosine of the vectors.
    Neither is a probability. A calibrated index (subtext index calibrate) also shows probabilities and reports when
    nothing matches well. If a query has several parts, the cosine of each is standardised over the index (mean 0,
    standard deviation 1), and the score is their weighted sum. Words that nothing knows are reported on standard error
    and in the JSON (unknown_words).

    With --rerank, a second model scores the results again. The scores shown are those of the second model.

    If the model uses precomputed features, --image is the name of an image in the feature file. It can also be an .npy
    or .npz file with the features of one image.

    Args:
        index: Folder or address of the index; or an open index.
        text: Words that the results should match. A list of queries is answered as one batch.
        image: Image that the results should match: a path, an address, bytes, a PIL image or an array (height, width,
            3) of uint8.
        features: Precomputed features of `image`.
        image_weight: Weight of the image, or of judged items where there is no image, from 0 to 1. The text has 1 minus
            this weight.
        like: Ids of items of the index that match. They change the text or image of the query, or are the query where
            there is no other.
        not_like: Ids of items that do not match.
        not_text: Words that the results should not match.
        not_like_weight: Weight of each item of `not_like`, and of `not_text`, from 0 to 1000; what should match has 1.
        top: Number of results; 1 or more.
        target: What to search for: "images", "texts".
        where: Conditions on the metadata, such as 'year >= 1990'; all must be true.
        dates: Dates that possibly meet a condition, or certainly do: "possible", "certain".
        order: Show the best results in the order of a field with dates; undated last.
        descending: With `order`, show the latest first.
        min_probability: Leave out less probable results; needs a calibrated index; from 0 to 1.
        explain: Show what each signal adds to a score.
        signals: Evidence to use: "pixels", "texts" of the image, their "words", "machine_texts" and "machine_words" of
            the texts that machines wrote, "fields" (id, file name and metadata), and "neighbours", the texts of
            similar images. Default: all.
        hubness: Correct for items that are similar to nearly every query: "csls", "softmax".
        diversity: Rank near-duplicates lower: from 0 (no change) to 1.
        rerank: Run of a second model that re-ranks the results.
        candidates: Number of results to re-rank. Default: 100; 1 or more.
        rerank_features: Precomputed features for `rerank`.
        bf16: Score pairs in bfloat16 if the machine supports it. Default: as in training.
        csv: A file that the results are also written to, a row each; see `Answer.to_csv`.
        separator: Between the cells of `csv`: "comma", "semicolon" or "tab". Default: "auto", a semicolon where the
            locale writes a decimal comma.
        run: New folder of the run, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        device: cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.

    Returns:
        The results, best first; for a list of queries, a list of them.

    Raises:
        ArgumentError: For contradictory arguments, such as `run` for an open index. Also raises the errors of
            `open_index` and `Index.search`.
        RequirementError: If re-ranking cannot compare the two sides, or the second model lacks images or features.
    """
    from subtext.retrieval.answer import write_csv
    from subtext.retrieval.index import Query
    from subtext.retrieval.query import texts_of
    from subtext.retrieval.rerank import CANDIDATES, Reranker

    if text is None and image is None and not like:
        raise ArgumentError("a search needs text (QUERY), ", Setting("image"), " or ", Setting("like"))
    if features is not None and image is None:
        raise ArgumentError("features needs an image to look up; leave it out", field="features")
    if rerank is None:
        for name, value in (("candidates", candidates), ("rerank_features", rerank_features), ("bf16", bf16)):
            if value is not None:
                raise ArgumentError(f"{name} needs a second model that re-ranks; leave it out", field=name)
    if separator is not None and csv is None:
        raise ArgumentError("separator needs a file, ", Setting("csv"), "; leave it out", field="separator")
    texts = [text] if text is None or isinstance(text, str) else texts_of(text)
    queries = [
        Query(
            text=each,
            image=Path(image) if isinstance(image, str | os.PathLike) and not is_address(image) else image,
            like=like,
            not_like=not_like,
            not_text=not_text,
            image_weight=image_weight,
            not_like_weight=not_like_weight,
            top=top,
            target=target,
            where=where,
            dates=dates,
            order=order,
            descending=descending,
            signals=signals,
            hubness=hubness,
            diversity=diversity,
            min_probability=min_probability,
            explain=explain,
        )
        for each in texts
    ]
    if rerank is not None:
        Reranker.check(queries[0])
    if image_weight != 0.5 and (text is None or not (image or like)):
        raise ArgumentError(
            "image_weight needs text together with an image or ",
            Setting("like"),
            "; leave it out",
            field="image_weight",
        )
    if descending and order is None:
        raise ArgumentError("descending needs ", Setting("order"), "; leave it out", field="descending")
    if not_like_weight != 0.5 and not (not_like or any(query.understood.not_text for query in queries)):
        raise ArgumentError(
            "not_like_weight needs ",
            Setting("not_like"),
            " or ",
            Setting("not_text"),
            " (or a minus in the text); leave it out",
            field="not_like_weight",
        )
    if isinstance(index, str | os.PathLike):
        index = open_index(os.fspath(index), run=run, model=model, features=features, device=device)
    elif run is not None or model is not None or features is not None:
        raise ArgumentError("run, model and features are for an index that is opened here; give them to open_index")
    from subtext.retrieval.index import Index as OpenIndex

    if not isinstance(index, OpenIndex):
        raise ArgumentError(
            f"index needs a folder, an address, or what open_index returned; it got {index!r:.60}", field="index"
        )
    opened: Index = index
    reranker = None
    if rerank is not None:
        second = open_run(rerank, features=rerank_features, device=device).model
        choose_precision(second, bf16)
        reranker = Reranker(second, str(rerank), candidates or CANDIDATES)
    answers, notes = opened.answers(queries, rerank=reranker), _incomplete(opened)
    answers = [replace(answer, notes=(*answer.notes, *notes)) for answer in answers]
    if csv is not None:
        write_csv(csv, answers, separator=separator or "auto")
    return answers[0] if text is None or isinstance(text, str) else answers


def _incomplete(index: Index) -> list[str]:
    """Notes on builds and additions that were interrupted or are still running: a search finds what they have done."""
    from subtext.retrieval.journal import unfinished

    return [
        f"the index is not complete: {job.verb} has done {job.done:,} of {job.total:,} items; if it is not running, "
        "run the same command again"
        for job in unfinished(index.store)
        if job.verb in ("build", "add")
    ]
