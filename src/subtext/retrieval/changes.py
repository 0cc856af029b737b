"""What a list of changes does to an index beside its rows: items that go, and texts that other images still have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from subtext.data.dataset import Dataset
from subtext.retrieval.stores.item import SIDES, Change, Side, StoredRow, machine_of
from subtext.retrieval.stores.store import Writer


@dataclass
class Consequences:
    """What goes with changes, by what an index has of the named items alone.

    Attributes:
        gone: Ids of each side that are deleted: those that are named, and the texts that no image has any more.
        links: Text that stays -> the images that it belongs to, where these are others than the index has.
        unknown: Ids to delete that the index does not have.
    """

    gone: dict[Side, list[str]] = field(default_factory=lambda: {side: [] for side in SIDES})
    links: dict[str, set[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def consequences(writer: Writer, pairs: Dataset, deleted: Collection[str], *, damaged: Collection[str]) -> Consequences:
    """Find what goes with changes.

    Args:
        writer: Changes the index.
        pairs: New and changed images with all their texts.
        deleted: Ids of images, or else of texts, to delete.
        damaged: Ids of images of which not all texts can be used: they keep those that they have.

    Returns:
        What goes; nothing is changed.
    """
    found, names = Consequences(), list(deleted)
    changed = set(pairs.images.ids)
    with writer.store.reading() as view:
        images = {row.id: row for row in view.rows("images", ids=[*names, *changed], links=True)}
        alone = {row.id for row in view.rows("texts", ids=[name for name in names if name not in images])}
        own = view.rows("texts", ids=pairs.texts.ids, links=True)
        linked = sorted({key for row in images.values() for key in row.links} - {row.key for row in own})
        texts: dict[str, StoredRow] = {row.id: row for row in (*own, *view.rows("texts", keys=linked, links=True))}
        others = sorted({key for row in texts.values() for key in row.links})
        id_of = {row.key: row.id for row in view.rows("images", keys=others)}
    found.gone["images"] = [name for name in names if name in images]
    found.gone["texts"] = [name for name in names if name in alone]
    found.unknown = [name for name in names if name not in images and name not in alone]
    now: dict[str, set[str]] = {}
    for image, text in pairs.links.tolist():
        now.setdefault(pairs.texts.ids[text], set()).add(pairs.images.ids[image])
    gone = set(names)
    for name, row in texts.items():
        before = {id_of[key] for key in row.links}
        machine = bool(machine_of(row.metadata))
        # Texts of a machine stand in no data; what other images have is theirs.
        stay = {image for image in before - gone if machine or image not in changed or image in damaged}
        after = stay | now.get(name, set())
        if name in alone:
            continue
        if not after and before:
            found.gone["texts"].append(name)
        elif after != before:
            found.links[name] = after
    return found


def shared_texts(writer: Writer, pairs: Dataset, deleted: Collection[str]) -> dict[str, tuple[str, str]]:
    """Find the images whose new text has the id of another text, which an image has that the changes do not name.

    Args:
        writer: Changes the index.
        pairs: New and changed images with all their texts.
        deleted: Ids of images that are deleted.

    Returns:
        Id of a changed image -> the id of the text, and the other image.
    """
    words = dict(zip(pairs.texts.ids, pairs.texts.values, strict=True))
    with writer.store.reading() as view:
        rows = [row for row in view.rows("texts", ids=pairs.texts.ids, links=True) if row.text != words[row.id]]
        others = {
            row.key: row.id for row in view.rows("images", keys=sorted({key for row in rows for key in row.links}))
        }
    named, shared = {*pairs.images.ids, *deleted}, dict[str, str]()
    for row in rows:
        for key in row.links:
            if others[key] not in named:
                shared[row.id] = others[key]
    links = ((pairs.images.ids[image], pairs.texts.ids[text]) for image, text in pairs.links.tolist())
    return {image: (text, shared[text]) for image, text in links if text in shared}


def relink(writer: Writer, links: Mapping[str, set[str]]) -> None:
    """Give texts the images that they belong to now, and no others.

    Args:
        writer: Changes the index.
        links: Text -> images.
    """
    pairs = [(image, text) for text, images in sorted(links.items()) for image in sorted(images)]
    writer.put(Change("texts", links=pairs, exact_texts=frozenset(links)))
