"""Shards that one process keeps open, and answers about: in this process, or as a worker of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from subtext.errors import IndexError_
from subtext.search.stores.folder import Folder
from subtext.search.stores.shards.manifest import read_shards
from subtext.search.stores.shards.numbering import Numbering
from subtext.search.stores.shards.questions import QUESTIONS


class Keeper:
    """Some shards of an index.

    index    its folder, which whoever keeps shards of it has to see under this path
    numbers  which shards; None for all of them

    They are opened when the first question comes, so that what is wrong with them is an answer.
    """

    def __init__(self, index: str, numbers: Sequence[int] | None = None) -> None:
        self.index = Path(index)
        self.numbers = numbers
        self._opened: list[tuple[int, Numbering, Folder]] = []

    def ask(self, seen: Mapping[int, int] | None, what: str, *words: Any) -> Any:
        """The answer to a question of that name in `questions`.

        seen  number of a shard -> changes that it had had when the whole was looked at; None to look

        Raises IndexError_ where a shard has been changed since, cannot be opened, or is not to be seen from here.
        """
        with ExitStack() as stack:
            shards = []
            for number, numbering, folder in self._shards():
                view = stack.enter_context(folder.reading())
                if seen is not None and seen[number] != view.generation:
                    raise IndexError_(f"{folder.path} was changed in the midst of a search; ask again")
                shards.append((number, numbering, view))
            return QUESTIONS[what](shards, *words)

    def close(self) -> None:
        """Let go of this thread's connections."""
        for _, _, folder in self._opened:
            folder.close()

    def _shards(self) -> list[tuple[int, Numbering, Folder]]:
        if not self._opened:
            listed = read_shards(self.index)
            chosen = range(len(listed.shards)) if self.numbers is None else self.numbers
            found = []
            for number in chosen:
                folder = Folder(self.index / listed.shards[number].folder)
                if folder.manifest.fingerprint != listed.manifest.fingerprint:
                    raise IndexError_(
                        f"{folder.path} needs vectors of the model that made the other shards; it has another's; move "
                        "it back, or build again"
                    )
                found.append((number, listed.numberings[number], folder))
            self._opened = found
        return self._opened
