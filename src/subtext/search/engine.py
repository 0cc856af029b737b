"""Search: words or a picture to the items of an index that are nearest to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subtext import __version__
from subtext.checkpoint import fingerprint
from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.pairs import Items, Pairs
from subtext.data.text import WordInput, tokenise
from subtext.data.vocabulary import UNKNOWN
from subtext.errors import DataError, IndexError_, RequirementError
from subtext.index import nearest
from subtext.model import Model
from subtext.stores.folder import Folder, require_new, write_folder
from subtext.stores.manifest import Manifest


@dataclass(frozen=True)
class Hit:
    """One item that was found.

    id        its name in the data set
    score     cosine of the views that fit best, in [-1, 1]; the inner product for a model that leaves vectors' lengths
    path      of a picture, absolute; None for a text, and for a picture without a file
    captions  the texts of a picture; of a text, the text itself
    metadata  "split", and the further columns of the data set
    """

    id: str
    score: float
    path: str | None
    captions: list[str]
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class Engine:
    """An index and the model that made it: `search` answers words and pictures.

    Raises IndexError_ when the model is not the one that made the vectors, and RequirementError when it only scores
    pairs.
    """

    def __init__(self, folder: Folder, model: Model) -> None:
        model.require_indexable("a search")
        mine = model_fingerprint(model)
        if mine != folder.manifest.fingerprint:
            raise IndexError_(
                f"{folder.path} needs the model that made it, {folder.manifest.run or folder.manifest.host} "
                f"({folder.manifest.fingerprint[:12]}); it got another ({mine[:12]}), or that run trained further: its "
                "queries would mean nothing there; build the index again with this model"
            )
        self.folder = folder
        self.model = model

    @staticmethod
    def open(index: Path | str, model: Model) -> Engine:
        """The engine of an index folder; `opening.open_engine` finds the model as well."""
        return Engine(Folder(Path(index)), model)

    def __len__(self) -> int:
        """Pictures in the index."""
        return len(self.folder.images)

    def search(self, text: str | None = None, *, image: Any = None, top: int = 10, target: str = "images") -> list[Hit]:
        """The best `top` items for words or for a picture, best first.

        text    words that the picture or text should go with; `words` says which of them the model knows
        image   path, bytes or PIL picture. For a model that reads features: a picture's file or name that its file of
                features has, an npy or npz with those of one picture, or the arrays as `Model.embed_images` takes them
        target  "images" or "texts": what is looked for

        Raises RequirementError unless one of text and image is given, and where the model reads features that it is not
        given; DataError for an empty text, or a picture or features that cannot be read.
        """
        if (text is None) == (image is None):
            raise RequirementError(
                f"a search needs words or a picture; it got {'neither' if text is None else 'both'}; give one"
            )
        query = self._text(text) if text is not None else self._image(image)
        return self.near(query.vectors.float().numpy(), top=top, target=target)[0]

    def near(self, vectors: NDArray[np.float32], *, top: int = 10, target: str = "images") -> list[list[Hit]]:
        """The best `top` items for each of (Q L D) vectors of the model."""
        if target not in ("images", "texts"):
            raise RequirementError(f"a search looks for 'images' or 'texts'; it got '{target}'")
        shelf = self.folder.images if target == "images" else self.folder.texts
        found = nearest(vectors, shelf.vectors, top=top)
        return [
            [self._hit(shelf.item(int(row)), float(score)) for row, score in zip(rows, scores, strict=True)]
            for rows, scores in zip(found.rows, found.scores, strict=True)
        ]

    def words(self, text: str) -> dict[str, bool] | None:
        """Each word of a text, and whether the model knows it; None for a model that reads pieces of words.

        An answer to words of which none is known means nothing, however large its scores.
        """
        reads = self.model.text.reads
        if not isinstance(reads, WordInput):
            return None
        words = tokenise(text)[: reads.max_tokens - 2]
        codes = reads.vocabulary.encode(words)
        return {word: code != UNKNOWN for word, code in zip(words, codes, strict=True)}

    def named(self, image: Any) -> str | None:
        """The name by which features stand for a picture's file: its path as given, as the index has it, or file name.

        None where the model reads the picture itself, or its file of features has no such name.
        """
        reads = self.model.image.reads
        if not isinstance(reads, FeatureInput) or reads.file is None or not isinstance(image, str | Path):
            return None
        path, root = Path(image).expanduser().resolve(), Path(self.folder.manifest.root)
        inside = [path.relative_to(root).as_posix()] if path.is_relative_to(root) else []
        return reads.file.name_of(str(image), *inside)

    def _text(self, text: str) -> Embeddings:
        if not text.strip():
            raise DataError("a search needs words; the text is empty")
        reads = self.model.text.reads
        if isinstance(reads, FeatureInput) and (reads.file is None or reads.file.name_of(text) is None):
            raise RequirementError(
                "this model reads precomputed text features, not words: it needs a text that its file names; it got "
                f"{text[:60]!r}; search with a picture, or embed features of the words and ask `Engine.near`"
            )
        return self.model.embed_texts([text])

    def _image(self, image: Any) -> Embeddings:
        reads = self.model.image.reads
        if isinstance(reads, FeatureInput) and not isinstance(image, np.ndarray | Mapping):
            image = self._features(reads, image)
        # Handed on as it is: a JPEG that the index decoded at a smaller scale has to be decoded so again.
        return self.model.embed_images([image])

    def _features(self, reads: FeatureInput, image: Any) -> Any:
        """What stands for a picture where its pixels are not read: a name to be looked up, or arrays."""
        name = self.named(image)
        if name is not None:
            return name
        if isinstance(image, str | Path) and Path(image).suffix in (".npy", ".npz"):
            return reads.of_file(Path(image).expanduser())
        got = str(image) if isinstance(image, str | Path) else f"a value of type {type(image).__name__}"
        file = "a file of features (there is none)" if reads.file is None else str(reads.file.path)
        raise RequirementError(
            f"this model reads precomputed picture features, not pictures: it needs a picture that {file} names, or an "
            f".npy or .npz with the features of one picture; it got {got}; compute them as those that the model was "
            "trained on, or search with words"
        )

    def _hit(self, item: Mapping[str, Any], score: float) -> Hit:
        path = item.get("path")
        return Hit(
            id=str(item["id"]),
            score=score,
            path=None if path is None else str(Path(self.folder.manifest.root) / path),
            captions=[str(text) for text in item.get("captions", [])],
            metadata=dict(item.get("metadata", {})),
        )


def model_fingerprint(model: Model) -> str:
    """32 hexadecimal digits that change with any weight, and with how pictures and texts are read.

    A file of features is not part of it: it is the data's, not the model's.
    """
    digest = hashlib.blake2b(fingerprint(model.state_dict()).encode(), digest_size=16)
    for branch in (model.image, model.text):
        if not isinstance(branch.reads, FeatureInput):
            digest.update(branch.reads.fingerprint.encode())
    return digest.hexdigest()


def build_index(
    out: Path,
    model: Model,
    pairs: Pairs,
    *,
    embeddings: tuple[Embeddings, Embeddings],
    run: str = "",
    host: str = "",
    source: Mapping[str, Any] | None = None,
) -> Folder:
    """Write the index of a data set.

    embeddings  of the pictures and of the texts of `pairs`, in their order, by `model`
    run, host   the folder and the recipe of the model, for the manifest
    source      where the pairs came from, as plain data

    Raises RequirementError for a model that only scores pairs; IndexError_ when `out` holds something.
    """
    model.require_indexable("an index")
    require_new(out)
    images, texts = embeddings
    similarity = model.similarity
    manifest = Manifest(
        fingerprint=model_fingerprint(model),
        run=run,
        host=host,
        width=images.width,
        scale=_number(similarity, "scale", 1.0),
        shift=_number(similarity, "shift", 0.0),
        root=str(pairs.root.resolve()),
        data=dict(source or {}),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
    return write_folder(
        out,
        manifest,
        images=(images.vectors.float().numpy(), _image_items(pairs)),
        texts=(texts.vectors.float().numpy(), _text_items(pairs)),
    )


def _image_items(pairs: Pairs) -> list[dict[str, Any]]:
    captions: list[list[str]] = [[] for _ in range(len(pairs.images))]
    for image, text in pairs.links.tolist():
        value = pairs.texts.values[text]
        if isinstance(value, str):
            captions[image].append(value)
    return [
        {
            "id": name,
            "path": value if isinstance(value, str) else None,
            "captions": captions[row],
            "metadata": _metadata(pairs.images, row),
        }
        for row, (name, value) in enumerate(zip(pairs.images.ids, pairs.images.values, strict=True))
    ]


def _text_items(pairs: Pairs) -> list[dict[str, Any]]:
    owners: list[list[str]] = [[] for _ in range(len(pairs.texts))]
    for image, text in pairs.links.tolist():
        owners[text].append(pairs.images.ids[image])
    return [
        {
            "id": name,
            "captions": [value] if isinstance(value, str) else [],
            "metadata": {"images": owners[row], **_metadata(pairs.texts, row)},
        }
        for row, (name, value) in enumerate(zip(pairs.texts.ids, pairs.texts.values, strict=True))
    ]


def _metadata(items: Items, row: int) -> dict[str, Any]:
    more = {name: column[row] for name, column in items.more.items() if column[row] is not None}
    return {"split": str(items.splits[row]), **more}


def _number(similarity: torch.nn.Module, name: str, default: float) -> float:
    value = getattr(similarity, name, None)
    if isinstance(value, torch.Tensor):
        value = value.detach().item()
    return default if value is None else float(value)
