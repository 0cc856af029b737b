"""Re-ranking: a second model scores the first results of a search again, each as a pair with the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.data.features import FeatureInput
from subtext.data.text import cut_note
from subtext.errors import ArgumentError, RequirementError, Setting
from subtext.retrieval.answer import Answer
from subtext.retrieval.query import Query

if TYPE_CHECKING:
    from subtext.models.model import Branch, Model

CANDIDATES = 100
"""Results that are re-ranked where nobody says how many."""


@dataclass(frozen=True)
class Reranker:
    """A second model for `Index.answer` and `Index.search`: slower and more accurate, such as one of regions and words.

    Args:
        model: Scores pairs of an image and a text; a dual encoder will do, too.
        name: What an answer's request calls it, such as the folder of its run.
        candidates: Number of results of the first model that it scores again, 1 or more; at least as many as a query
            asks for.

    Raises:
        RequirementError: For fewer than 1 candidate.
    """

    model: Model
    name: str = ""
    candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise RequirementError(f"re-ranking needs 1 candidate or more; it got {self.candidates}")

    @staticmethod
    def check(query: Query) -> None:
        """Check that a query can be re-ranked, whatever the second model is.

        Args:
            query: The query.

        Raises:
            ArgumentError: For a query with several parts, negative parts or a least probability.
            RequirementError: If query and results are of one side.
        """
        if (query.text is None) == (query.image is None) or (
            query.like or query.not_like or query.not_text or query.min_probability
        ):
            raise ArgumentError(
                "rerank needs text alone or ",
                Setting("image"),
                " alone, without ",
                Setting("like"),
                ", ",
                Setting("not_like"),
                " or ",
                Setting("min_probability"),
                field="rerank",
            )
        if (query.text is None) == (query.target == "images"):
            same_side = "an image searches images" if query.text is None else "text searches texts"
            raise RequirementError(
                f"rerank compares images with texts; here {same_side}; search the other side, or leave it out",
                field="rerank",
            )

    def first_stage(self, query: Query) -> Query:
        """The query for the first model.

        Args:
            query: Text alone or an image alone, that searches the other side.

        Returns:
            The query with as many results as there are candidates.

        Raises:
            ArgumentError: As `check`.
            RequirementError: As `check`, and if the model cannot read the query.
        """
        self.check(query)
        if query.image is not None:
            self._image_of_query(query)
        spec = self.model.image.input_spec
        if isinstance(spec, FeatureInput) and spec.file is None:
            raise RequirementError(
                "rerank_features needs a file: the re-ranking model reads precomputed features, and the file that its "
                "run remembers is gone",
                field="rerank_features",
            )
        return replace(query, top=max(query.top, self.candidates))

    def rerank(self, query: Query, answer: Answer) -> Answer:
        """Order the results of the first model by the scores of the second.

        Args:
            query: The query, with the number of results that it asks for.
            answer: What the first model gave for `first_stage(query)`.

        Returns:
            The best results with scores of the second model. They have no probability: that belongs to the first one's.

        Raises:
            RequirementError: If an image of a result cannot be read.
        """
        texts = [query.text] if query.text is not None else [h.captions[0] if h.captions else h.id for h in answer.hits]
        note = cut_note(self.model.text.input_spec, texts)
        scores: list[float] = []
        if answer.hits:
            if query.text is None:
                images = [self._image_of_query(query)]
            else:
                images = [readable_image(self.model.image, [hit.id], hit.path) for hit in answer.hits]
            embedded = self.model.embed_images(images), self.model.embed_texts(texts)
            scores = self.model.compare(*embedded).flatten().tolist()
        hits = [replace(hit, score=score, probability=None) for hit, score in zip(answer.hits, scores, strict=True)]
        return replace(
            answer,
            hits=sorted(hits, key=lambda hit: -hit.score)[: query.top],
            unit="score",
            notes=(*answer.notes, *(() if note is None else (f"the re-ranking run: {note}",))),
            request={**answer.request, "rerank": self.name, "candidates": max(query.top, self.candidates)},
        )

    def _image_of_query(self, query: Query) -> Any:
        image = query.image
        if isinstance(image, str | Path):
            return readable_image(self.model.image, [str(image), Path(image).stem], str(image))
        if isinstance(self.model.image.input_spec, FeatureInput):
            raise RequirementError(
                "rerank needs an image by its name in the file of features; it got the image itself", field="rerank"
            )
        return image


def readable_image(branch: Branch, names: Sequence[str], path: str | None) -> Any:
    """What the image branch of a model reads of an image.

    Args:
        branch: The image branch.
        names: Names of the image, of which a file of features may know one.
        path: Of the image's file; None where there is none.

    Returns:
        The path of the image; or its name in the features that the model reads.

    Raises:
        RequirementError: If there is none.
    """
    spec = branch.input_spec
    if isinstance(spec, FeatureInput):
        name = None if spec.file is None else spec.file.name_of(*names, *([path] if path is not None else []))
        if name is None:
            file = "a file of features (there is none)" if spec.file is None else str(spec.file.path)
            raise RequirementError(
                f"rerank_features needs the file that has the image '{names[0]}'; it is not in {file}",
                field="rerank_features",
            )
        return name
    if path is None:
        raise RequirementError(
            f"rerank needs the image '{names[0]}' itself; the index has no file of it; build the index from images, or "
            "take a model that reads features",
            field="rerank",
        )
    return path
