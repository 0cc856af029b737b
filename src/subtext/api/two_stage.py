"""`--rerank RUN`: what a second model makes of the candidates that the first one finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from subtext.errors import RequirementError
from subtext.report.text_table import Cell, table

if TYPE_CHECKING:
    from subtext.api.load import Run
    from subtext.data.dataset import Dataset
    from subtext.evaluation import Result
    from subtext.evaluation.two_stages import Stage
    from subtext.models.model import Branch, Model
    from subtext.search import Hit


@dataclass(frozen=True)
class Rerank:
    """The second stage, as it was asked for.

    run         of the model that orders the candidates      candidates  how many a query; several make a sweep
    features    file of picture features that it reads; None for the one that it remembers
    plot        file for a drawing of the sweep; None for none
    """

    run: Path
    candidates: tuple[int, ...] = (100,)
    features: Path | None = None
    plot: Path | None = None

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Rerank | None:
        """The second stage among a command's options; None where there is none."""
        if values["rerank"] is None:
            return None
        counts = values["candidates"]
        counts = counts if isinstance(counts, tuple) else (counts,)
        return Rerank(values["rerank"], counts, values["rerank_features"], values.get("plot"))

    def open(self, device: str) -> Run:
        """Its run. Raises what opening it raises."""
        from subtext.api.load import open_run

        return open_run(self.run, features=self.features, device=device)


def stage_of(model: Model, pairs: Dataset, *, batch_size: int, workers: int, quiet: bool) -> Stage:
    """A model with its embeddings of all pictures and texts."""
    from subtext.evaluation import embed_pairs
    from subtext.evaluation.two_stages import Stage
    from subtext.report.progress import meter

    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=quiet) as told:
        return Stage(
            model.similarity, *embed_pairs(model, pairs, batch_size=batch_size, workers=workers, progress=told)
        )


def told(result: Result) -> list[str]:
    """The sweep as a table and what it comes to; nothing where there was none."""
    found = result.about.get("two_stage", {})
    if "sweep" not in found:
        return []
    ways = {"image_to_text": "pictures", "text_to_image": "texts"}
    k, shown = found["allowed"]["recall"], _shown(result)
    head = ["candidates", "pairs scored, %"]
    for asking in ways.values():
        first, *others = (f"R@{place}" for place in shown)
        head += [f"{asking}: {first}", *others, "missed, %", f"R@{k} lost"]
    rows: list[list[Cell]] = []
    for row in found["sweep"]:
        line: list[Cell] = [str(row["candidates"]), f"{100 * row['share_of_pairs']['together']:.2f}"]
        for way in ways:
            recalls = [row[f"{way}/recall@{place}"] for place in shown]
            line += [*recalls, f"{row['missed'][way]:.1f}", f"{row['lost'][way]:+.2f}"]
        rows.append(line)
    whole: list[Cell] = ["every pair", "100"]
    for way in ways:
        whole += [*(found["exhaustive"][f"{way}/recall@{place}"] for place in shown), "", ""]
    return [table(head, [*rows, whole]), _verdict(found)]


def _shown(result: Result) -> list[int]:
    """The k of the recalls in the table: what the loss is of, and the largest."""
    return sorted({result.about["two_stage"]["allowed"]["recall"], max(result.protocol["recall"])})


def _verdict(found: Mapping[str, Any]) -> str:
    """How many candidates are enough, of both directions together and of each."""
    enough, allowed = found["enough"], found["allowed"]
    first = "no number here is enough" if enough is None else f"{enough} candidates are enough"
    pictures, texts = (found["enough_of"][way] or "none" for way in ("image_to_text", "text_to_image"))
    return (
        f"{first}: at most {allowed['points']:g} points of R@{allowed['recall']} lost in each direction "
        f"(pictures that ask: {pictures}, texts that ask: {texts})"
    )


def drawing(result: Result) -> str:
    """The sweep as an SVG document: recall of each direction over what the second model is asked about.

    Lines end where every pair is scored; a grey one says what the recall that the loss is of is there.
    """
    from subtext.report.curves import Chart, Curve, curves

    found = result.about["two_stage"]
    first = found["allowed"]["recall"]
    charts = []
    for way, asking in (("image_to_text", "pictures ask for texts"), ("text_to_image", "texts ask for pictures")):
        lines = []
        costs = [100 * row["share_of_pairs"][way] for row in found["sweep"]]
        for k in result.protocol["recall"]:
            name, every = f"{way}/recall@{k}", found["exhaustive"][f"{way}/recall@{k}"]
            points = [(cost, row[name]) for cost, row in zip(costs, found["sweep"], strict=True)]
            # A list that holds every candidate is the end of the line already.
            more = [] if points[-1][0] >= 100 else [(100.0, every)]
            lines.append(Curve(f"R@{k}", [*points, *more]))
        best = found["exhaustive"][f"{way}/recall@{first}"]
        lines.append(Curve(f"R@{first} of every pair", [(costs[0], best), (100.0, best)], quiet=True))
        charts.append(Chart(asking, "pairs that the second model scores, %", "recall, %", lines, logs_across=True))
    return curves(charts)


def require_order(model: Model, *, text: str | None, image: Path | None, target: Literal["images", "texts"]) -> None:
    """Raise RequirementError for words that look for texts and pictures that look for pictures, which a model of pairs
    cannot compare; for a picture that asks and that the model cannot read; and for no file of features where it needs
    one.
    """
    from subtext.data.features import FeatureInput

    if (text is None) == (target == "images"):
        what = "a picture asks for pictures" if text is None else "words ask for texts"
        raise RequirementError(
            f"re-ranking compares pictures with texts; here {what}; look for the other kind, or leave --rerank out"
        )
    if image is not None and text is None:
        _picture(model.image, [str(image), image.stem], str(image))
    input_spec = model.image.input_spec
    if isinstance(input_spec, FeatureInput) and input_spec.file is None:
        raise RequirementError(
            "the re-ranking model reads precomputed features, and the file of them that its run remembers is not "
            "there; name one (--rerank-features FILE)"
        )


def read_again(hits: Sequence[Hit], *, text: str | None) -> list[str]:
    """The texts that the second model reads: the words that ask, else the first text of everything that was found."""
    return [hit.captions[0] if hit.captions else hit.id for hit in hits] if text is None else [text]


def reorder(
    model: Model,
    hits: Sequence[Hit],
    *,
    text: str | None,
    image: Path | None,
    target: Literal["images", "texts"],
) -> list[Hit]:
    """What was found for words or a picture, in the order of another model's scores, which take the place of the first.

    Raises RequirementError for a picture that the model cannot read, and what `require_order` raises.
    """
    require_order(model, text=text, image=image, target=target)
    if not hits:
        return []
    if text is not None:
        pictures = [_picture(model.image, [hit.id], hit.path) for hit in hits]
        scores = model.compare(model.embed_images(pictures), model.embed_texts([text]))[:, 0].tolist()
    else:
        assert image is not None
        asking = _picture(model.image, [str(image), image.stem], str(image))
        texts = read_again(hits, text=text)
        scores = model.compare(model.embed_images([asking]), model.embed_texts(texts))[0].tolist()
    found = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    return sorted(found, key=lambda hit: -hit.score)


def _picture(branch: Branch, names: Sequence[str], path: str | None) -> str:
    """What stands for a picture: its file, or its name among the features that the model reads.

    Raises RequirementError where there is neither.
    """
    from subtext.data.features import FeatureInput

    input_spec = branch.input_spec
    if isinstance(input_spec, FeatureInput):
        every = [*names, *([path] if path is not None else [])]
        name = None if input_spec.file is None else input_spec.file.name_of(*every)
        if name is None:
            file = "a file of features (there is none)" if input_spec.file is None else str(input_spec.file.path)
            raise RequirementError(
                f"the re-ranking model needs the picture '{names[0]}' in {file}; it is not there; name the file that "
                "has it (--rerank-features FILE)"
            )
        return name
    if path is None:
        raise RequirementError(
            f"the re-ranking model needs the picture '{names[0]}' itself; the index knows no file of it; build the "
            "index from pictures, or take a model that reads features"
        )
    return path
