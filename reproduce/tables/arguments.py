"""A graph of texts that a table was given: what it is, as its folder says, and the space that it was made in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from subtext.api.load import choose_device
from subtext.errors import DataError, RequirementError
from subtext.neighbours.build import GraphOptions
from subtext.neighbours.doc2vec import Doc2Vec
from subtext.neighbours.lsa import Lsa
from subtext.neighbours.spaces import Sentence, Space

MANIFEST = "graph.json"
_KINDS: Mapping[str, Any] = {"doc2vec": Doc2Vec, "lsa": Lsa, "sentence": Sentence}
"""Name of a space -> what makes it again from its settings alone."""


@dataclass(frozen=True)
class Given:
    """A graph that is there already, without its arrays.

    mark        changes with its texts, its space, its settings and, of newer graphs, the neighbours themselves
    neighbours  of each text
    space       "name" of the space that it was made in, and its settings
    settings    how neighbours were chosen
    """

    folder: Path
    mark: str
    neighbours: int
    space: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def choice(self) -> GraphOptions:
        """How neighbours among other texts are chosen as they were in it."""
        same_image, distance = self.settings.get("same_picture", "drop"), self.settings.get("distance")
        return GraphOptions(self.neighbours, candidate_split="all", same_image=same_image, distance=distance)

    def again(self, asked: Callable[[], Space], device: str) -> Space:
        """Its space, to be learnt anew.

        asked  the space that the command asks for, which a file of features is known by

        Raises RequirementError for a space that its settings do not suffice for, and that is not the one asked for.
        """
        told = {name: value for name, value in self.space.items() if name != "name"}
        name = str(self.space.get("name"))
        if name in _KINDS and set(told) <= {each.name for each in fields(_KINDS[name])}:
            made: Space = _KINDS[name](**told, **({"device": choose_device(device)} if name == "sentence" else {}))
            return made
        found = asked()
        if dict(found.settings()) != dict(self.space):
            raise RequirementError(
                f"the places of further texts need the space that {self.folder} was made in, {name}; --space is "
                f"{found.settings()['name']}; name the one that the graph was built with"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """For a table's JSON."""
        return {
            "given": str(self.folder.expanduser().resolve()),
            "fingerprint": self.mark,
            "neighbours": self.neighbours,
            "space": dict(self.space),
            "settings": dict(self.settings),
        }


def read_given(folder: Path) -> Given:
    """What a graph's manifest says; the arrays are read, and looked through, where they are needed.

    Raises DataError where the folder is no graph.
    """
    file = folder / MANIFEST
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["kind"] != "subtext graph":
            raise ValueError("it is of another kind")
        mark = "-".join(str(found[name]) for name in ("fingerprint", "arrays") if found.get(name))
        return Given(folder, mark, int(found["neighbours"]), dict(found["space"]), dict(found["settings"]))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(
            f"--graph needs a folder that `subtext neighbours build` wrote; {folder} is none: {file.name} "
            f"{'is not there' if isinstance(problem, FileNotFoundError) else f'cannot be read ({problem!r})'}"
        ) from problem
