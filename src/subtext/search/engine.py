"""Search: words or a picture to the items of an index that are nearest to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.text import WordInput, tokenise
from subtext.data.vocabulary import UNKNOWN
from subtext.errors import DataError, IndexError_, RequirementError
from subtext.model import Model
from subtext.search.making import model_fingerprint
from subtext.stores.condition import Condition
from subtext.stores.folder import Folder
from subtext.stores.item import Item, Side


@dataclass(frozen=True)
class Hit:
    """One item that was found.

    id        its name in the data set
    score     cosine of the views that fit best, in [-1, 1]; the inner product for a model that leaves vectors' lengths
    path      of a picture, absolute; None for a text, and for a picture without a file
    captions  the texts of a picture; of a text, the text itself
    metadata  "split", and the further columns of the data set; of a text also "images", the ids of its pictures
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
        return self.folder.counts["images"]

    def search(
        self,
        text: str | None = None,
        *,
        image: Any = None,
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
    ) -> list[Hit]:
        """The best `top` items for words or for a picture, best first.

        text    words that the picture or text should go with; `words` says which of them the model knows
        image   path, bytes or PIL picture. For a model that reads features: a picture's file or name that its file of
                features has, an npy or npz with those of one picture, or the arrays as `Model.embed_images` takes them
        target  "images" or "texts": what is looked for
        where   conditions on the metadata, which all have to hold: the best `top` of those that fulfil them, or all
                of these where they are fewer

        Raises RequirementError unless one of text and image is given, and where the model reads features that it is not
        given, and for a condition on a field that no item has; DataError for an empty text, or a picture or features
        that cannot be read.
        """
        if (text is None) == (image is None):
            raise RequirementError(
                f"a search needs words or a picture; it got {'neither' if text is None else 'both'}; give one"
            )
        query = self._text(text) if text is not None else self._image(image)
        return self.near(query.vectors.float().numpy(), top=top, target=target, where=where)[0]

    def near(
        self,
        vectors: NDArray[np.float32],
        *,
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The best `top` items for each of (Q L D) vectors of the model.

        exact  compares every vector, also in an index so large that the likeliest lists are compared by default
        """
        if target not in ("images", "texts"):
            raise RequirementError(f"a search looks for 'images' or 'texts'; it got '{target}'")
        if top < 1:
            raise RequirementError(f"a search needs top of 1 or more; it got {top}")
        side: Side = "images" if target == "images" else "texts"
        if vectors.ndim != 3 or vectors.shape[2] != self.folder.manifest.width:
            raise RequirementError(
                f"a search needs vectors of (queries, views, {self.folder.manifest.width}); it got {vectors.shape}"
            )
        with self.folder.reading() as view:
            among = view.matching(side, where) if where else None
            found = view.shelves[side].nearest(vectors, top=top, among=among, exact=exact)
            items = view.items(side, np.concatenate([each.keys for each in found])) if found else []
        hits = iter(items)
        return [[self._hit(next(hits), float(score)) for score in each.scores] for each in found]

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

    def _hit(self, item: Item, score: float) -> Hit:
        path = None if item.path is None else str(Path(self.folder.manifest.root) / item.path)
        return Hit(id=item.id, score=score, path=path, captions=item.captions, metadata=item.metadata)
