"""What `evaluate` and `audit` measure: a run, a pretrained model, or the scores or vectors of any model, from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.api.options import Metavar, Section
from subtext.errors import ArgumentError, DataError, RequirementError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from numpy.typing import NDArray
    from torch import Tensor

    from subtext.api.load import Sources
    from subtext.core import Embeddings
    from subtext.data.dataset import Dataset, Items
    from subtext.data.external_outputs import Output
    from subtext.evaluation import ExtraMetrics, Protocol, Result
    from subtext.evaluation.scoring import Source

OptionalRun = Annotated[str | Path | None, "Folder of a trained run.", Section("Model"), Metavar("RUN")]
PretrainedModel = Annotated[
    str | None,
    "A pretrained dual encoder (CLIP, SigLIP), without training, in place of RUN.",
    Section("Model"),
    Metavar("NAME_OR_PATH"),
]
_OUTPUT = Section("Any model's output")
Scores = Annotated[
    str | Path | None, "Scores of images x texts with ids: npz, npy, safetensors, parquet.", _OUTPUT, Metavar("FILE")
]
ImageEmbeddings = Annotated[
    str | Path | None, "Vectors of the images with ids, in the same formats.", _OUTPUT, Metavar("FILE")
]
TextEmbeddings = Annotated[str | Path | None, "Vectors of the texts; may be the same file.", _OUTPUT, Metavar("FILE")]
ImageIds = Annotated[
    str | Path | None, "Names of the images, one per line, if not in the file.", _OUTPUT, Metavar("FILE")
]
TextIds = Annotated[
    str | Path | None, "Names of the texts, one per line, if not in the file.", _OUTPUT, Metavar("FILE")
]
Similarity = Annotated[Literal["cosine", "dot"], "Similarity of embeddings.", _OUTPUT]


@dataclass(frozen=True)
class Files:
    """The output of another program: one file of scores, or two of vectors (which may be the same).

    image_ids, text_ids  files of names, where those do not hold them
    similarity           of vectors: "cosine", or "dot" as they are
    """

    scores: Path | None = None
    images: Path | None = None
    texts: Path | None = None
    image_ids: Path | None = None
    text_ids: Path | None = None
    similarity: Literal["cosine", "dot"] = "cosine"

    @staticmethod
    def of(
        scores: str | Path | None,
        images: str | Path | None,
        texts: str | Path | None,
        image_ids: str | Path | None,
        text_ids: str | Path | None,
        similarity: Literal["cosine", "dot"] = "cosine",
    ) -> Files | None:
        """The files that a public function was called with; None where there are none.

        Raises RequirementError for files that do not go together.
        """

        def path(name: str | Path | None) -> Path | None:
            return None if name is None else Path(name)

        files = Files(path(scores), path(images), path(texts), path(image_ids), path(text_ids), similarity)
        if (images is None) != (texts is None) or (scores is not None and images is not None):
            raise RequirementError(
                "evaluation of files needs --scores, or --image-embeddings and --text-embeddings (the same file may "
                "hold both); it got another choice of these"
            )
        if scores is None and images is None:
            if image_ids is not None or text_ids is not None:
                raise RequirementError("--image-ids and --text-ids need --scores or embeddings, whose names they are")
            return None
        return files


def require_one(
    command: str,
    run: object,
    model: str | None,
    files: Files | None,
    *,
    data: object,
    features: object,
    text_features: object,
    bf16: bool | None,
) -> None:
    """Raise ArgumentError unless exactly one of a run, a pretrained model and files is given, with what it needs."""
    if (run is not None) + (model is not None) + (files is not None) != 1:
        raise ArgumentError(
            "give one of these: RUN, a folder that `subtext train` made; --model NAME_OR_PATH; --scores FILE; or "
            "--image-embeddings FILE and --text-embeddings FILE"
        )
    if files is not None and bf16 is not None:
        raise ArgumentError("--bf16 is for a RUN that scores pairs; another program's output is scored already")
    if model is None:
        return
    if Path(model, "run.json").is_file():
        raise ArgumentError(f"--model is for pretrained models; for a run: subtext {command} {model}")
    if data is None:
        raise ArgumentError("--model needs --data: a pretrained model has no data set of its own")
    if features is not None or text_features is not None:
        raise ArgumentError("--model reads images and words, no features; leave --features out")


def read_split(sources: Sources, split: str | None) -> tuple[Dataset, str]:
    """The pairs of the split, without opening images; all of them where the data has no splits to choose from.

    Raises RequirementError when no data set is named, or it has several splits and none of them is named.
    """
    from subtext.data.read import read

    if sources.data is None:
        raise RequirementError("scores and embeddings need --data: the images, texts and pairs that they belong to")
    reading = read(
        sources.data.expanduser(),
        images=sources.images,
        split_seed=sources.split_seed or 0,
        on_error=sources.on_error or "raise",
        verify=False,
        need_images=False,
    )
    splits = sorted(reading.counts())
    if split is None and len(splits) > 1:
        raise RequirementError(f"scores and embeddings need --split: this data has {', '.join(splits)}; or --split all")
    return reading.split(split or "all"), split or "all"


@dataclass(frozen=True)
class ExternalOutput:
    """Scores or vectors from files, in the order of a data set.

    scores         (I T); None where there are vectors
    images, texts  vectors; None where there are scores            about  which files these are
    """

    scores: Float[Tensor, "i t"] | None
    images: Embeddings | None
    texts: Embeddings | None
    about: dict[str, Any]

    @property
    def source(self) -> Source:
        """The scores, as an evaluation reads them."""
        from subtext.evaluation.scoring import Embedded, Matrix
        from subtext.models.similarity.cosine import Cosine

        if self.scores is not None:
            return Matrix(self.scores)
        assert self.images is not None and self.texts is not None
        return Embedded(Cosine(), self.images, self.texts)

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

    Raises DataError for files that cannot be read or lack an item of the split.
    """
    from subtext.data.external_outputs import read_scores, read_vectors

    if files.scores is not None:
        output = read_scores(files.scores, image_ids=files.image_ids, text_ids=files.text_ids)
        matrix = _matrix(output, output.rows(pairs.images), output.rows(pairs.texts, axis=1))
        return ExternalOutput(matrix, None, None, {"scores": str(files.scores)})
    assert files.images is not None and files.texts is not None
    images = _embeddings(read_vectors(files.images, "image", ids=files.image_ids), pairs.images, files.similarity)
    texts = _embeddings(read_vectors(files.texts, "text", ids=files.text_ids), pairs.texts, files.similarity)
    if images.width != texts.width:
        raise DataError(
            f"images and texts need vectors of one width; {files.images.name} has {images.width}, {files.texts.name} "
            f"{texts.width}"
        )
    about = {"image_embeddings": str(files.images), "text_embeddings": str(files.texts), "similarity": files.similarity}
    return ExternalOutput(None, images, texts, about)


def _matrix(output: Output, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Tensor:
    """The scores in the order of the data, in memory; half precision becomes float32."""
    import numpy as np
    import torch

    values = output.values
    for axis, order in enumerate((rows, columns)):
        if len(order) != values.shape[axis] or not (order == np.arange(len(order))).all():
            values = values.take(order, axis=axis)
    return torch.from_numpy(np.array(values, dtype=np.float64 if values.dtype == np.float64 else np.float32))


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
            raise DataError(f"{output.path} needs vectors that are not 0, as that of '{name}' is; or --similarity dot")
        vectors = vectors / lengths
    return Embeddings(vectors, torch.arange(len(vectors)))
