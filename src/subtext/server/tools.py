"""The tools of the Model Context Protocol: what the server answers, as functions without a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from http import HTTPStatus
from typing import Any, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from subtext.errors import SubtextError
from subtext.retrieval.condition import as_conditions, matching
from subtext.retrieval.ranker import SIGNALS
from subtext.retrieval.stores.item import Side
from subtext.retrieval.stores.store import View
from subtext.server import schemas
from subtext.server.application import COMMON_VALUES, MAX_CHOICES, detail_of, facets_of, query_of, results_of
from subtext.server.refusal import Refusal
from subtext.server.security import RateLimit
from subtext.server.state import Library, ServerState
from subtext.version import __version__

P = ParamSpec("P")
T = TypeVar("T")
_CLIENT = "mcp"
"""Who asks: one client alone has the standard input."""
_INSTRUCTIONS = (
    "Searches an archive of images and their texts. The texts need not describe the images: search for what an image "
    "stands for, too. Scores order the results of one query; fits=false says that nothing matches well. Nothing can be "
    "changed."
)


def tool_server(state: ServerState, where: Sequence[str] = ()) -> MCPServer[Any]:
    """A server of the SDK with the tools; it has no transport yet.

    Args:
        state: The libraries that are offered, and the limits.
        where: Conditions that every item must meet.

    Returns:
        The server.

    Raises:
        RequirementError: If a condition cannot be read.
    """
    scope = Scope(state, tuple(where))
    rate = RateLimit(state.settings.limits.rate, state.settings.limits.burst)
    server: MCPServer[Any] = MCPServer("subtext", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    read_only = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    def tool(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            if seconds := rate.wait(_CLIENT, cost=1.0):
                raise ToolError(f"too many calls; wait {seconds} s")
            try:
                return function(*args, **kwargs)
            except ValidationError as error:
                first = error.errors()[0]
                raise ToolError(f"{'.'.join(map(str, first['loc'])) or 'the call'}: {first['msg']}") from error
            except (SubtextError, Refusal) as error:
                raise ToolError(str(error)) from error

        server.tool(annotations=read_only)(limited)
        return limited

    @tool
    def search(
        query: str | None = None,
        like: list[str] | None = None,
        top: int = 10,
        target: Literal["images", "texts"] = "images",
        where: list[str] | None = None,
        order: str | None = None,
        descending: bool = False,
        library: str | None = None,
    ) -> schemas.Results:
        """Search with words, with items like others (ids), or both.

        In query, "quotes" ask for exact words and a minus marks what to rank lower. where: conditions on the metadata,
        such as "year >= 1990" or "place in Paris, Wien"; `facets` lists the fields. order: a field with dates.
        """
        form = schemas.TextSearch(
            index=library, q=query, like=like or [], top=top, target=target, where=where or [], order=order,
            descending=descending,
        )  # fmt: skip
        found = state.library(library)
        scope.require(found, "images", [*form.like], both=True)
        return scope.results(found, results_of(found, scope.answer(found, query_of(found, form))))

    @tool
    def similar(
        id: str,
        side: Literal["images", "texts"] = "images",
        top: int = 10,
        target: Literal["images", "texts"] = "images",
        where: list[str] | None = None,
        library: str | None = None,
    ) -> schemas.Results:
        """The images, or texts, nearest to an item, without the item itself. side: whether the id is of an image."""
        form = schemas.Similar(index=library, id=id, side=side, top=top, target=target, where=where or [])
        found = state.library(library)
        scope.require(found, side, [id])
        query = query_of(found, form, like=((side, id),))
        return scope.results(found, results_of(found, scope.answer(found, query)))

    @tool
    def details(
        id: str,
        target: Literal["images", "texts"] = "images",
        library: str | None = None,
    ) -> schemas.ItemDetail:
        """One item with its metadata, and its texts (or images) with the score of each."""
        form, found = schemas.ItemQuery(index=library, id=id, target=target), state.library(library)
        scope.require(found, target, [id])
        return scope.detail(found, detail_of(found, form))

    @tool
    def facets(target: Literal["images", "texts"] = "images", library: str | None = None) -> schemas.Fields:
        """The fields of the metadata to filter by, with their most common values and ranges."""
        found = state.library(library)
        if scope.conditions:
            return schemas.Fields(index=found.name, fields=scope.facets(found, target))
        return schemas.Fields(index=found.name, fields=facets_of(found, target))

    @tool
    def thumbnail(
        id: str,
        size: int = 320,
        library: str | None = None,
    ) -> Image:
        """The image of an item, scaled down."""
        form, found = schemas.ThumbnailQuery(index=library, id=id, size=size), state.library(library)
        scope.require(found, "images", [id])
        data, _ = found.thumbnails.of(found.store, form.id, form.size)
        return Image(data=data, format="webp")

    return server


class Scope:
    """The items that are offered: those that meet the conditions; others are not there.

    Args:
        state: The libraries.
        where: The conditions.

    Raises:
        RequirementError: If a condition cannot be read, or a library has not its field.
    """

    def __init__(self, state: ServerState, where: tuple[str, ...]) -> None:
        self.conditions = as_conditions(where)
        for library in state.libraries.values() if where else ():
            with library.store.reading() as view:
                matching(view, "images", self.conditions)  # Raises for a field that is not there.

    def answer(self, library: Library, query: Any) -> Any:
        """The answer to a query among the items that are offered.

        Args:
            library: The library.
            query: The query.

        Returns:
            The answer; without words that only other items have, where there are conditions.
        """
        if not self.conditions:
            return library.batcher.answer(query, client=_CLIENT)
        # What similar images say is of items that may not be offered.
        signals = tuple(signal for signal in SIGNALS if signal != "neighbours")
        query = replace(query, where=(*query.where, *self.conditions), signals=signals)
        return library.batcher.run(lambda index: index.answer(query, hints=False), client=_CLIENT)

    def require(self, library: Library, side: Side, ids: Sequence[str], *, both: bool = False) -> None:
        """Require that items are offered.

        Args:
            library: The library.
            side: "images" or "texts".
            ids: Of the items.
            both: Whether an id may also be of the other side.

        Raises:
            Refusal: 404, as for an item that is not there.
        """
        if not ids or not self.conditions:
            return
        with library.store.reading() as view:
            seen = self._seen(view, side, ids)
            if both:
                seen |= self._seen(view, "texts", ids)
        if any(name not in seen for name in ids):
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such item among the {side} of this library")

    def _seen(self, view: View, side: Side, ids: Sequence[str]) -> set[str]:
        """Which of some ids are offered."""
        known = view.resolve(side, list(ids))
        keys = view.keys_of(side, list(known.values()))
        allowed = set(matching(view, side, self.conditions).tolist())
        return {name for name, own in known.items() if keys.get(own) in allowed}

    def results(self, library: Library, results: Any) -> Any:
        """Results whose texts name only images that are offered.

        Args:
            library: The library.
            results: Of the server.

        Returns:
            The results.
        """
        if self.conditions and results.target == "texts":
            with library.store.reading() as view:
                for hit in results.hits:
                    images = hit.metadata.get("images")
                    if isinstance(images, list):
                        seen = self._seen(view, "images", images)
                        hit.metadata["images"] = [name for name in images if name in seen]
        return results

    def detail(self, library: Library, detail: Any) -> Any:
        """A detail with the partners that are offered.

        Args:
            library: The library.
            detail: Of the server.

        Returns:
            The detail.
        """
        if not self.conditions:
            return detail
        with library.store.reading() as view:
            images = self._seen(view, "images", [item.id for item in detail.images])
            texts = self._seen(view, "texts", [text.id for text in detail.texts])
            named = detail.item.metadata.get("images")
            if isinstance(named, list):
                seen = self._seen(view, "images", named)
                detail.item.metadata["images"] = [name for name in named if name in seen]
        detail.images = [item for item in detail.images if item.id in images]
        detail.texts = [text for text in detail.texts if text.id in texts]
        return detail

    def facets(self, library: Library, target: Side) -> list[Any]:
        """The fields of the items that are offered, with their counts: what other items have is not counted.

        Args:
            library: The library.
            target: "images" or "texts".

        Returns:
            The fields.

        Complexity:
            One pass over the items that are offered.
        """
        counts: dict[str, Counter[Any]] = {}
        with library.store.reading() as view:
            keys = matching(view, target, self.conditions)
            for start in range(0, len(keys), 1000):
                for item in view.items(target, keys[start : start + 1000]):
                    for name, value in item.metadata.items():
                        values = value if isinstance(value, list) else [value]
                        plain = [each for each in values if isinstance(each, str | int | float)]
                        counts.setdefault(name, Counter()).update(plain)
        fields = []
        for name, of_field in sorted(counts.items()):
            if name == "images":
                continue
            common = of_field.most_common(COMMON_VALUES) if len(of_field) <= MAX_CHOICES else []
            numbers = [value for value in of_field if not isinstance(value, str)]
            if len(numbers) < len(of_field):
                fields.append(schemas.Facet(name=name, kind="text", count=len(of_field), values=common))
            else:
                low, high = (min(numbers), max(numbers)) if numbers else (None, None)
                fields.append(
                    schemas.Facet(name=name, kind="number", count=len(of_field), values=common, low=low, high=high)
                )
        return fields
