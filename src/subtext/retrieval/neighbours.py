"""What the nearest images of an image say: the space "neighbours" of an index, and how it is kept up to date.

An image lends its texts where it has some: m is the mean of their vectors by the sentence encoder, of unit length. Of
an image i, N(i) are the `NEAREST` images that lend and have the largest cosines c with it, by the vectors of the model
(several views: the largest cosine of two views). Its row is the direction of

    sum over j in N(i) of w_j m_j        w = softmax(c / TEMPERATURE)

An image is not its own neighbour, and neither is one of the same content; one that has none has an empty row. The
weights do not depend on a query, so that the neighbourhood of an image is one vector.

A change removes, as it is made, the rows of all images whose neighbours it changes: of those that have a changed image
near, and of the changed ones themselves. An image without a row is therefore one whose row is to be computed, and which
may have become a neighbour of others. `refresh` does both, whenever a command changed the index; should it be killed,
the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval import ann
from subtext.retrieval.segments import MARGIN
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.item import Change, DerivedRow
from subtext.retrieval.stores.store import Store, View, Writer

NEAREST = 10
"""Images whose texts an image is lent."""
TEMPERATURE = 0.1
"""Of the softmax of their cosines; see docs/decisions/0193."""
COMPARED = 200_000
"""Vectors of images up to which all are compared, whichever store; of more, its lists or graphs find candidates."""
REVERSE = 100
"""Images among which those are looked for that a new image is a neighbour of, where not all are compared."""
DIGITS = 7
"""Of a cosine: beyond, it may differ with the order of its sum."""
_CHUNK, _ROWS = 16_384, 256
"""Images whose rows are stored in one change, and that are compared at a time."""
_BLOCK = 2**24
"""Cosines that are computed at a time."""
_KNOWN = 2**19
"""Images whose contents are remembered, some 80 MB."""
_ATTEMPTS = 5
"""How often rows are computed again where another writer was faster."""

Nearby = dict[int, list[tuple[float, int]]]
"""Key of an image -> (cosine, key) of its neighbours, nearest first."""


def refresh(writer: Writer, *, progress: Callable[[int], None] | None = None) -> bool:
    """Compute the rows of neighbours that are missing, and those that a new image belongs in.

    Others may change the index all the time: then some rows are left to the next command.

    Args:
        writer: Of the index; nothing is done where it has no sentence encoder.
        progress: Called with the number of rows that are written.

    Returns:
        False where some are left.
    """
    if writer.manifest.encoder is None:
        return True
    written = 0
    for _ in range(_ATTEMPTS):
        with suppress(IndexLockedError):
            for count in _refresh(writer):
                written += count
                if progress is not None:
                    progress(written)
            return True
    return False


def rows_due(store: Store) -> int:
    """How many images have no row of neighbours, and may have one.

    Args:
        store: The index.

    Returns:
        Their number; 0 for an index without a sentence encoder, and while no image has texts.
    """
    if store.manifest.encoder is None:
        return 0
    with store.reading() as view:
        hood = _Neighbourhood(view, {})
        return len(hood.stale) if len(hood.lenders) else 0


def _refresh(writer: Writer) -> Iterator[int]:
    """Write the rows, some at a time; the number of each.

    All of them belong to the index as it was at the beginning: a change of others in between is refused.

    Raises:
        IndexLockedError: For such a change.
    """
    contents = dict[int, bytes]()
    with writer.store.reading() as view:
        hood, since = _Neighbourhood(view, contents), view.revision.change
        stale = hood.stale if len(hood.lenders) else hood.lenders
        # An image counts as dealt with when it has a row of its own: before, it has to be where it belongs.
        joined = hood.joined(np.intersect1d(stale, hood.lenders))
    joining = np.array(sorted(joined), dtype=np.int64)
    for keys, known in ((joining, joined), (stale, None)):
        for start in range(0, len(keys), _CHUNK):
            some = keys[start : start + _CHUNK]
            with writer.store.reading() as view:
                if view.revision.change != since:
                    raise IndexLockedError(f"{writer.store.path} was changed by others meanwhile; do it again")
                hood = _Neighbourhood(view, contents)
                nearby = hood.found(some) if known is None else {key: known[key] for key in some.tolist()}
                names = {row.key: row.id for row in view.rows("images", keys=some.tolist())}
                rows = {names[key]: row for key, row in hood.rows(nearby).items()}
            if rows:
                writer.apply(Change(derived={"neighbours": rows}, since=since))
                since = writer.manifest.change
                yield len(rows)


@dataclass
class _Neighbourhood:
    """The images of an index at one moment.

    Args:
        view: The index.
        contents: Key -> content of images that were looked up.
    """

    view: View
    contents: dict[int, bytes]

    @cached_property
    def width(self) -> int | None:
        encoder = self.view.manifest.encoder
        return None if encoder is None or not encoder.compared else encoder.compared

    @cached_property
    def links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys of the texts that have a sentence vector, in the order of their images, and keys of these."""
        return said_links(self.view)

    @cached_property
    def lenders(self) -> NDArray[np.int64]:
        return np.unique(self.links[1])

    @property
    def stale(self) -> NDArray[np.int64]:
        """Images without a row; those that have no neighbours have an empty one."""
        return np.setdiff1d(self.view.keys("images"), self.view.derived("neighbours")[0])

    @property
    def compares_all(self) -> bool:
        return self.view.counts["images"] * self.view.manifest.views["images"] <= COMPARED

    def rows(self, nearby: Nearby) -> dict[int, DerivedRow]:
        """The rows of images with these neighbours."""
        near = np.unique([key for own in nearby.values() for _, key in own]).astype(np.int64)
        means = lent_by(self.view, near, self.links)
        rows = {}
        for key, own in nearby.items():
            cosines, others = [cosine for cosine, _ in own], [other for _, other in own]
            vector = mixed(cosines, means[np.searchsorted(near, others)]) if own else None
            if vector is None:
                # Some direction: it is compared with nothing.
                nowhere = np.eye(1, self.view.manifest.width_of("sentences"), dtype=np.float32)[0]
                rows[key] = DerivedRow(nowhere, others, cosines, np.nan)
            else:
                rows[key] = DerivedRow(vector, others, cosines, cosines[-1] if len(own) >= NEAREST else -np.inf)
        return rows

    def _units(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K C) vectors of images, each view of unit length."""
        vectors = self.view.vectors("images", keys)[:, :, : self.width]
        return vectors / np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), np.finfo(np.float32).tiny)

    def found(self, keys: NDArray[np.int64], depth: int = NEAREST + MARGIN) -> Nearby:
        """The neighbours of images, among all that lend."""
        depth, nearby = min(depth, len(self.lenders)), dict[int, list[tuple[float, int]]]()
        for some, candidates in self._candidates(keys, depth):
            nearby |= self._ranked(some, candidates)
        # Copies are passed over: behind many of them there may be others.
        short = [key for key, own in nearby.items() if len(own) < min(NEAREST, len(self.lenders) - 1)]
        if short and depth < len(self.lenders):
            nearby |= self.found(np.array(short, dtype=np.int64), 4 * depth)
        return nearby

    def _candidates(self, keys: NDArray[np.int64], depth: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Images, some at a time, and the (n, depth) images that are nearest to each; -1 for none."""
        if not self.compares_all:
            every = len(self.lenders) == self.view.counts["images"]
            for start in range(0, len(keys), 256):
                some = keys[start : start + 256]
                found = self.view.nearest(
                    "images", self.view.vectors("images", some), top=depth, among=None if every else self.lenders
                )
                candidates = np.full((len(some), depth), -1, dtype=np.int64)
                for row, hits in enumerate(found):
                    candidates[row, : len(hits.keys)] = hits.keys
                yield some, candidates
            return
        views, flat = self._matrix.shape[1], self._matrix.reshape(-1, self._matrix.shape[2])
        for start in range(0, len(keys), _ROWS):
            some = keys[start : start + _ROWS]
            # An item of several views may be found by each of them.
            rows = ann.best_rows(self._units(some).reshape(-1, flat.shape[1]), flat, depth * views)
            yield some, np.where(rows < 0, -1, self.lenders[rows // views]).reshape(len(some), -1)

    @cached_property
    def _matrix(self) -> NDArray[np.float32]:
        matrix = np.empty((len(self.lenders), *self._units(self.lenders[:0]).shape[1:]), dtype=np.float32)
        for start in range(0, len(matrix), _CHUNK):
            # Some at a time: a store holds what it reads once more.
            matrix[start : start + _CHUNK] = self._units(self.lenders[start : start + _CHUNK])
        return matrix

    def _ranked(self, keys: NDArray[np.int64], candidates: NDArray[np.int64]) -> Nearby:
        """The neighbours of images among (n, depth) candidates; their cosines are summed in float64."""
        if not len(keys):
            return {}
        every, places = np.unique(np.concatenate([keys, candidates.ravel()]), return_inverse=True)
        there = every >= 0
        vectors = np.zeros((len(every), *self._units(every[:0]).shape[1:]), dtype=np.float32)
        vectors[there] = self._units(every[there])
        if len(self.contents) > _KNOWN:
            self.contents.clear()
        unknown = [key for key in every[there].tolist() if key not in self.contents]
        self.contents |= {row.key: row.content for row in self.view.rows("images", keys=unknown)}
        known = self.contents
        own, others = vectors[places[: len(keys)]], vectors[places[len(keys) :].reshape(candidates.shape)]
        cosines = np.round(
            np.einsum("nkd,ncld->nckl", own, others, dtype=np.float64, casting="same_kind").max(axis=(2, 3)), DIGITS
        )
        nearby: Nearby = {}
        for row, key in enumerate(keys.tolist()):
            found = dict(zip(candidates[row].tolist(), cosines[row].tolist(), strict=True))
            nearby[key] = _best(
                [(own, other) for other, own in found.items() if other >= 0 and known[other] != known[key]]
            )
        return nearby

    def joined(self, new: NDArray[np.int64]) -> Nearby:
        """The neighbours of images with a row, where some of the new images that lend are among them now."""
        owners, _, farthest = self.view.derived("neighbours")
        if not len(new) or not len(owners):
            return {}
        joined: Nearby = {}
        for some, candidates in self._nearer(new, owners, farthest) if self.compares_all else self._met(new, owners):
            before, more = near_of(self.view, some), self._ranked(some, candidates)
            for key in some.tolist():
                former = before.get(key, [])
                others = {other for _, other in former}
                now = _best([*former, *(pair for pair in more[key] if pair[1] not in others)])
                joined |= {key: now} if now != former else {}
        return joined

    def _nearer(
        self, new: NDArray[np.int64], owners: NDArray[np.int64], farthest: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Images with a row, some at a time, and the new ones that may be nearer than their last neighbour; or -1."""
        vectors = self._units(new)
        size = min(_ROWS, max(1, _BLOCK // (len(new) * vectors.shape[1] ** 2)))
        for start in range(0, len(owners), size):
            some = owners[start : start + size]
            last = np.nan_to_num(farthest[start : start + size], nan=-np.inf)
            is_near = _largest(self._units(some), vectors) > last[:, None] - 10.0**-DIGITS * 2
            counts = is_near.sum(axis=1)
            for many in np.unique(counts[counts > 0]):
                # Those of equal numbers together: one image may have many, and most have few.
                chosen = np.flatnonzero(counts == many)
                yield some[chosen], new[np.nonzero(is_near[chosen])[1]].reshape(len(chosen), many)

    def _met(
        self, new: NDArray[np.int64], owners: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """As `_nearer`, of the images that the store finds near the new ones."""
        met: dict[int, list[int]] = {}
        for start in range(0, len(new), 256):
            some = new[start : start + 256]
            found = self.view.nearest("images", self.view.vectors("images", some), top=REVERSE)
            for key, hits in zip(some.tolist(), found, strict=True):
                for other in hits.keys.tolist():
                    met.setdefault(other, []).append(key)
        keys = np.intersect1d(owners, np.array(list(met), dtype=np.int64))
        for start in range(0, len(keys), _ROWS):
            some = keys[start : start + _ROWS]
            candidates = np.full((len(some), max(len(met[key]) for key in some.tolist())), -1, dtype=np.int64)
            for row, key in enumerate(some.tolist()):
                candidates[row, : len(met[key])] = met[key]
            yield some, candidates


def _largest(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n m) the largest product of two views of (n K C) and (m L C) vectors."""
    products = one.reshape(-1, one.shape[2]) @ other.reshape(-1, other.shape[2]).T
    if one.shape[1] == other.shape[1] == 1:
        return products
    return products.reshape(len(one), one.shape[1], len(other), other.shape[1]).max(axis=(1, 3))


def _best(chosen: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(chosen, key=lambda pair: (-pair[0], pair[1]))[:NEAREST]


def near_of(view: View, keys: NDArray[np.int64]) -> dict[int, list[tuple[float, int]]]:
    """The neighbours of images.

    Args:
        view: The index.
        keys: (N) keys of images.

    Returns:
        Key of an image -> (cosine, key) of its neighbours, nearest first; images that have none are left out.
    """
    owners, rows = view.owners("neighbours")
    chosen = np.isin(owners, keys)
    stored = {row.key: row.fields for row in view.rows("neighbours", keys=rows[chosen].tolist())}
    return {
        int(owner): list(zip(stored[row]["cosines"][0], stored[row]["near"], strict=True))
        for owner, row in zip(owners[chosen].tolist(), rows[chosen].tolist(), strict=True)
    }


def said_links(view: View) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The links of the texts that have a sentence vector.

    Args:
        view: The index.

    Returns:
        (M) keys of texts, and (M) keys of their images, ascending.
    """
    texts, images = view.owner_links()
    said = np.isin(texts, view.owners("sentences")[0])
    order = np.lexsort((texts[said], images[said]))
    return texts[said][order], images[said][order]


def lent_by(
    view: View, images: NDArray[np.int64], links: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
) -> NDArray[np.float64]:
    """What images lend: the mean of the sentence vectors of their texts, of unit length.

    Args:
        view: The index.
        images: (N) keys of images.
        links: What `said_links` gives, where it was read before.

    Returns:
        (N E) float64; zeros for an image that lends nothing.
    """
    texts, owners = said_links(view) if links is None else links
    chosen = np.isin(owners, images)
    texts, owners = texts[chosen], owners[chosen]
    means = np.zeros((len(images), view.manifest.width_of("sentences")))
    if len(texts):
        unique, places = np.unique(texts, return_inverse=True)
        vectors = view.vectors_in("sentences", unique)[0][:, 0].astype(np.float64)
        first, starts = np.unique(owners, return_index=True)
        sums = np.add.reduceat(vectors[places], starts, axis=0)
        order = np.searchsorted(first, images)
        there = first[np.minimum(order, len(first) - 1)] == images
        means[there] = sums[order[there]]
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def mixed(cosines: Sequence[float], means: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """The row of an image with some neighbours; see the module.

    Args:
        cosines: (k) of the image and its neighbours.
        means: (k E) what these lend.

    Returns:
        (E) of unit length; None where they cancel each other.
    """
    weights = np.exp((np.array(cosines) - max(cosines)) / TEMPERATURE)
    vector = weights @ means
    length = np.linalg.norm(vector)
    return None if length < 1e-6 else (vector / length).astype(np.float32)


def without_lenders(
    view: View, keys: NDArray[np.int64], hidden: NDArray[np.int64], texts: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The neighbours' vectors of images, to which some images and texts lend nothing: those that may not be seen.

    Args:
        view: The index.
        keys: (N) keys of images.
        hidden: (H) keys of images that lend nothing.
        texts: (T) keys of texts that lend nothing; None for none.

    Returns:
        (N E) float32, zeros for an image without neighbours, and (N) flags of those that have some.
    """
    vectors, there = view.vectors_in("neighbours", keys)
    vectors, near = vectors[:, 0], near_of(view, keys[there])
    said, owners = said_links(view)
    if texts is not None:
        said, owners = said[~np.isin(said, texts)], owners[~np.isin(said, texts)]
    lenders = np.setdiff1d(np.unique([key for own in near.values() for _, key in own]).astype(np.int64), hidden)
    lenders = np.intersect1d(lenders, owners)
    means, places = lent_by(view, lenders, (said, owners)), {key: row for row, key in enumerate(lenders.tolist())}
    for row, key in enumerate(keys.tolist()):
        allowed = [(cosine, places[other]) for cosine, other in near.get(key, []) if other in places]
        if key in near:
            vector = (
                mixed([cosine for cosine, _ in allowed], means[[place for _, place in allowed]]) if allowed else None
            )
            there[row] = vector is not None
            vectors[row] = 0 if vector is None else vector
    return vectors, there
