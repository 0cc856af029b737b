"""`--rerank RUN`: what a second model makes of the candidates that the first one finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.errors import RequirementError

if TYPE_CHECKING:
    from subtext.api.load import Run
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
