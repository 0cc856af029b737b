"""Saved lists of images: the document `LISTS` of an index.

A list has a name, the ids of images, and, if wanted, the query that found them and judgements on it. It is kept with
the items: a deletion takes the image out of all lists in the same change; an update, a move and a backup keep them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.stores.documents import LISTS
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.item import Change
from subtext.retrieval.stores.saved_lists import SavedList, parse_lists, write_lists
from subtext.retrieval.stores.store import Store, View, Writer
from subtext.text_helpers import counted, listed

MOST_LISTS, MOST_IDS = 1000, 5000
"""Lists of an index, and images of a list."""
_ATTEMPTS = 5
"""How often a change is made again where another writer was faster."""


def new_list(
    name: str, ids: Sequence[str], query: str | None = None, judged: Mapping[str, Sequence[str]] | None = None
) -> SavedList:
    """A list that is not saved yet.

    Args:
        name: What people call it.
        ids: Of images; those that occur twice are kept once.
        query: The query that found them; None for none.
        judged: See `SavedList`.

    Returns:
        The list, with a link of its own.
    """
    return SavedList(
        name,
        secrets.token_hex(8),
        tuple(dict.fromkeys(ids)),
        query,
        datetime.now(UTC).isoformat(timespec="seconds"),
        {kind: tuple(dict.fromkeys(own)) for kind, own in (judged or {}).items()},
    )


def stored_lists(view: View) -> list[SavedList]:
    """The lists of an index, as far as their images can be seen, the newest first.

    Args:
        view: The index at one moment.

    Returns:
        The lists; one all of whose images are hidden is not among them.

    Raises:
        SearchIndexError: If they are damaged.
    """
    found = _read(view)
    named = sorted({name for one in found for name in one.every_id})
    there = view.keys_of("images", named)
    seen = [(one, one.among(there)) for one in found]
    hides = view.whole is not view
    # A list of an empty selection, or one whose images were all deleted, is still one.
    kept = [shown for one, shown in seen if shown.ids or not one.ids or not hides]
    return sorted(kept, key=lambda one: one.created, reverse=True)


def _read(view: View) -> list[SavedList]:
    """The lists as they are stored."""
    texts = view.records(LISTS)
    return parse_lists(texts[0][0]) if texts else []


def change_lists(writer: Writer, edit: Callable[[list[SavedList]], list[SavedList]]) -> list[SavedList]:
    """Change the lists of an index.

    Args:
        writer: Of the index.
        edit: Gets the stored lists, those of hidden images too, and gives what they become; it may be called again.

    Returns:
        What they became.

    Raises:
        RequirementError: For too many lists, or images of one.
        IndexLockedError: If others change the index all the time.
    """
    for attempt in range(_ATTEMPTS):
        with writer.store.reading() as view:
            since, lists = view.revision.change, edit(_read(view))
            there = view.keys_of("images", sorted({name for one in lists for name in one.every_id}))
        lists = [one.among(there) for one in lists]
        longest = max((len(one.ids) for one in lists), default=0)
        if len(lists) > MOST_LISTS or longest > MOST_IDS:
            raise RequirementError(
                f"an index may have {MOST_LISTS:,} lists of {MOST_IDS:,} images each; there would be "
                f"{counted(len(lists), 'list')}, the longest of {counted(longest, 'image')}; delete some"
            )
        try:
            writer.apply(Change(documents={LISTS: write_lists(lists)}, since=since))
        except IndexLockedError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return lists
    raise AssertionError("the last attempt returns or raises")


def damaged_lists(view: View) -> str:
    """What is wrong with the lists of an index.

    Args:
        view: The index at one moment.

    Returns:
        A sentence; "" for none.
    """
    try:
        lists = _read(view)
    except SearchIndexError as problem:
        return str(problem)
    named = {name for one in lists for name in one.every_id}
    missing = sorted(named - view.keys_of("images", sorted(named)).keys())
    return f"name images that the index does not have: {listed(missing)}" if missing else ""


def listed_images(view: View) -> set[str]:
    """The images that lists name.

    Args:
        view: The index at one moment.

    Returns:
        Their ids.
    """
    return {name for one in _read(view) for name in one.every_id}


def rename_images(writer: Writer, names: Mapping[str, str]) -> None:
    """Give images new names in all lists.

    Args:
        writer: Of the index, which has the images under both names.
        names: Former id -> new id.
    """

    def renamed(ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names.get(name, name) for name in ids))

    def edit(lists: list[SavedList]) -> list[SavedList]:
        return [
            replace(one, ids=renamed(one.ids), judged={kind: renamed(own) for kind, own in one.judged.items()})
            for one in lists
        ]

    if names:
        change_lists(writer, edit)


def copy_lists(store: Store, writer: Writer) -> None:
    """Copy the lists of an index into the one that takes its place.

    Args:
        store: The index.
        writer: Of the other one, which has those of the images that stay.
    """
    with store.reading() as view:
        lists = _read(view)
    if lists:
        change_lists(writer, lambda _: lists)
