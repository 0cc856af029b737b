"""Search: words or a picture to the items of an index that are nearest to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_, RequirementError
from subtext.models.heads.gaussian import Distanced
from subtext.models.model import Model
from subtext.search.answering import Together, ordered, reasons
from subtext.search.background import NEAR, Background
from subtext.search.confidence import Confidence, Judgement, Kept
from subtext.search.hit import Answer, Hit, Reason
from subtext.search.making import model_fingerprint
from subtext.search.query import Order, Part, Query
from subtext.search.reading import Reader
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import SIDES, Item, Side
from subtext.search.stores.opened import open_store
from subtext.search.stores.shelf import Found
from subtext.search.stores.store import Store, StoreView

PLAIN = Order()
"""By the scores alone."""
TEMPERATURE = 0.05
"""Of the inverted softmax, where neither a calibration nor the model has one, in cosine."""


class Engine:
    """An index and the model that made it: `search` answers words and pictures.

    Raises IndexError_ when the model is not the one that made the vectors, and RequirementError when it only scores
    pairs.
    """

    def __init__(self, folder: Store, model: Model) -> None:
        model = model.indexed("a search")
        mine = model_fingerprint(model)
        if mine != folder.manifest.fingerprint:
            raise IndexError_(
                f"{folder.path} needs the model that made it, {folder.manifest.run or folder.manifest.host} "
                f"({folder.manifest.fingerprint[:12]}); it got another ({mine[:12]}), or that run trained further: its "
                "queries would mean nothing there; build the index again with this model"
            )
        self.folder = folder
        self.model = model
        self.reader = Reader(model, Path(folder.manifest.root))
        heads = {"images": model.image.head, "texts": model.text.head}
        self._distanced = {side: head for side, head in heads.items() if isinstance(head, Distanced)}
        self._kept = Kept(folder)

    @staticmethod
    def open(index: Path | str, model: Model) -> Engine:
        """The engine of an index, a folder or an address; `opening.open_engine` finds the model as well."""
        return Engine(open_store(index), model)

    def __len__(self) -> int:
        """Pictures in the index."""
        return self.folder.counts["images"]

    def search(
        self,
        text: str | None = None,
        *,
        image: Any = None,
        like: Sequence[str] = (),
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
        order: Order = PLAIN,
    ) -> list[Hit]:
        """The best `top` items for words, a picture, items of the index, or several of these together, best first.

        text    words that the picture or text should go with; `words` says which of them the model knows
        image   path, bytes or PIL picture. For a model that reads features: a picture's file or name that its file of
                features has, an npy or npz with those of one picture, or the arrays as `Model.embed_images` takes them
        like    ids of items of the index; they are not found themselves
        target  "images" or "texts": what is looked for
        where   conditions on the metadata, which all have to hold: the best `top` of those that fulfil them, or all
                of these where they are fewer
        order   see `Order`

        `answer` takes more, and says whether anything fits. Raises RequirementError where nothing is asked for, where
        the model reads features that it is not given, for an id that is not in the index, and for a condition on a
        field that no item has; DataError for an empty text, or a picture or features that cannot be read.
        """
        return self.answer(Query(text, image, like), top=top, target=target, where=where, order=order).hits

    def answer(
        self,
        query: Query,
        *,
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
        order: Order = PLAIN,
        min_probability: float | None = None,
        why: bool = False,
    ) -> Answer:
        """What the index has for a question, and, where it is calibrated for such questions, whether that fits.

        min_probability  leaves out what is less likely to be a true match
        why              gives each hit its reasons

        Raises what `search` raises, and RequirementError for a `min_probability` where the index is not calibrated.
        """
        side = _side(target, top)
        with self.folder.reading() as view:
            known, shelf = self._kept.at(view), view.shelves[side]
            parts = self._parts(view, query)
            plain = [self._by_mean(part) for part in parts]
            parts = [own if own.of == side else part for own, part in zip(plain, parts, strict=True)]
            together = Together(parts, known.background(side) if len(parts) > 1 else _NOTHING)
            among = view.matching(side, where) if where else None
            depth = top if order.plain else max(top, order.depth)
            found = together.best(shelf, depth, among=among, exact=False)
            judgement = None
            if together.alone and known.way(side, parts[0].of) is not None:
                judgement = self._judged(
                    known, side, parts[0].of, parts[0].vectors[None], [found] if among is None else []
                )[0]
            if not order.plain:
                bank = known.background(parts[0].of) if order.hubs else _NOTHING
                heat = self._temperature(judgement)
                words = (query.text, among)
                found = ordered(view, side, found, together, order=order, bank=bank, temperature=heat, words=words)
            found = Found(found.keys[:top], found.scores[:top])
            count = len(found.keys)
            found = _likely(found, judgement, min_probability)
            told = reasons(view, side, found.keys, plain) if why else [[] for _ in found.keys]
            hits = self._hits(view, side, found, judgement, told)
            stale = known.stale if judgement is not None else None
        return Answer(
            hits,
            unit="cosine" if together.alone else "deviations",
            fit=None if judgement is None else judgement.fit,
            left_out=count - len(found.keys),
            stale=stale,
        )

    def answers(
        self,
        vectors: NDArray[np.float32],
        *,
        of: str,
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
        exact: bool = False,
    ) -> list[Answer]:
        """What the index has for each of (Q L D) vectors of the model, which are of pictures or of texts.

        of     "images" or "texts": what the vectors are of
        exact  compares every vector, also in an index so large that the likeliest lists are compared by default
        """
        side, asked = _side(target, top), _side(of, top)
        if vectors.ndim != 3 or vectors.shape[2] != self.folder.manifest.width:
            raise RequirementError(
                f"a search needs vectors of (queries, views, {self.folder.manifest.width}); it got {vectors.shape}"
            )
        if side == asked and asked in self._distanced:
            vectors = self._distanced[asked].means_alone(vectors)
        with self.folder.reading() as view:
            known = self._kept.at(view)
            among = view.matching(side, where) if where else None
            found = view.shelves[side].nearest(vectors, top=top, among=among, exact=exact)
            judgements: list[Judgement | None] = [None] * len(found)
            if known.way(side, asked) is not None:
                judgements = [*self._judged(known, side, asked, vectors, found if among is None else [])]
            stale = known.stale if any(judgements) else None
            each = zip(found, judgements, strict=True)
            hits = [self._hits(view, side, one, judged, [[] for _ in one.keys]) for one, judged in each]
        fits = [None if judged is None else judged.fit for judged in judgements]
        return [Answer(own, fit=fit, stale=stale) for own, fit in zip(hits, fits, strict=True)]

    def near(
        self,
        vectors: NDArray[np.float32],
        *,
        top: int = 10,
        target: str = "images",
        where: Sequence[Condition] = (),
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The best `top` items for each of (Q L D) vectors of the model, of whatever they are; else as `answers`."""
        # Nothing is calibrated for questions of an index's own kind, so that nothing is judged.
        return [
            answer.hits for answer in self.answers(vectors, of=target, top=top, target=target, where=where, exact=exact)
        ]

    def words(self, text: str) -> dict[str, bool] | None:
        """Each word of a text, and whether the model knows it; see `Reader.words`."""
        return self.reader.words(text)

    def named(self, image: Any) -> str | None:
        """The name by which features stand for a picture's file; see `Reader.named`."""
        return self.reader.named(image)

    def _parts(self, view: StoreView, query: Query) -> list[Part]:
        """What is asked for, as vectors."""
        found = []
        for kind, what, weight in query.parts:
            if kind == "item":
                found.append(_item(view, what, weight))
            else:
                side: Side = "texts" if kind == "text" else "images"
                embedded = self.reader.text(what) if kind == "text" else self.reader.image(what)
                found.append(Part(weight, embedded.vectors.float().numpy()[0], side))
        return found

    def _judged(
        self, known: Confidence, side: Side, of: Side, queries: NDArray[np.float32], found: Sequence[Found]
    ) -> list[Judgement]:
        """What the whole index shows for questions; their best hits where they are known and enough."""
        shelf = known.view.shelves[side]
        if not found or any(len(each.keys) < min(NEAR, shelf.count) for each in found):
            found = shelf.nearest(queries, top=NEAR)
        return known.judged(side, of, queries, found)

    def _temperature(self, judgement: Judgement | None) -> float:
        scale = self.folder.manifest.scale
        return judgement.way.temperature if judgement is not None else 1 / scale if scale > 1 else TEMPERATURE

    def _hits(
        self, view: StoreView, side: Side, found: Found, judgement: Judgement | None, why: Sequence[list[Reason]]
    ) -> list[Hit]:
        none = [None] * len(found.keys)
        likely = none if judgement is None else judgement.of(found.scores).tolist()
        head = self._distanced.get(side)
        spread = none if head is None else head.uncertainty(view.shelves[side].vectors_of(found.keys)).tolist()
        each = zip(view.items(side, found.keys), found.scores.tolist(), likely, why, spread, strict=True)
        return [self._hit(item, *rest) for item, *rest in each]

    def _hit(
        self, item: Item, score: float, probability: float | None, why: list[Reason], uncertainty: float | None
    ) -> Hit:
        path = None if item.path is None else str(Path(self.folder.manifest.root) / item.path)
        return Hit(item.id, score, path, item.captions, item.metadata, probability, why, uncertainty)

    def _by_mean(self, part: Part) -> Part:
        """What asks for items of its own kind: of a distribution, its mean."""
        head = self._distanced.get(part.of)
        return part if head is None else replace(part, vectors=head.means_alone(part.vectors[None])[0])


_NOTHING = Background(np.zeros(0, dtype=np.int64), np.zeros((0, 1, 0), dtype=np.float32), 0)


def _side(target: str, top: int) -> Side:
    if target not in SIDES:
        raise RequirementError(f"a search looks for 'images' or 'texts'; it got '{target}'")
    if top < 1:
        raise RequirementError(f"a search needs top of 1 or more; it got {top}")
    return "images" if target == "images" else "texts"


def _item(view: StoreView, name: str, weight: float) -> Part:
    """An item of the index as something that is asked with: a picture, else a text, of that id."""
    for side in SIDES:
        key = view.keys_of(side, [name]).get(name)
        if key is not None:
            return Part(weight, view.shelves[side].vectors_of(np.array([key]))[0], side, key)
    raise RequirementError(f"an example needs the id of an item of the index; there is no '{name}'; give another")


def _likely(found: Found, judgement: Judgement | None, least: float | None) -> Found:
    if least is None:
        return found
    if judgement is None:
        raise RequirementError(
            "a least probability needs an index that is calibrated for such questions (words for pictures, a picture "
            "for texts); this one is not; calibrate it (subtext index calibrate), or leave it out"
        )
    kept = judgement.of(found.scores) >= least
    return Found(found.keys[kept], found.scores[kept])
