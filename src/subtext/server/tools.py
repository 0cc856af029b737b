"""The tools of the Model Context Protocol: what the server answers, as functions without a change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from subtext.errors import SubtextError
from subtext.server import schemas
from subtext.server.application import detail_of, facets_of, query_of, results_of
from subtext.server.refusal import Refusal
from subtext.server.security import RateLimit
from subtext.server.state import ServerState
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


def tool_server(state: ServerState) -> MCPServer[Any]:
    """A server of the SDK with the tools; it has no transport yet.

    Args:
        state: The libraries that are offered, and the limits.

    Returns:
        The server.
    """
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
        return results_of(found, found.batcher.answer(query_of(found, form), client=_CLIENT))

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
        query = query_of(found, form, like=((side, id),))
        return results_of(found, found.batcher.answer(query, client=_CLIENT))

    @tool
    def details(
        id: str,
        target: Literal["images", "texts"] = "images",
        library: str | None = None,
    ) -> schemas.ItemDetail:
        """One item with its metadata, and its texts (or images) with the score of each."""
        form, found = schemas.ItemQuery(index=library, id=id, target=target), state.library(library)
        return detail_of(found, form)

    @tool
    def facets(target: Literal["images", "texts"] = "images", library: str | None = None) -> schemas.Fields:
        """The fields of the metadata to filter by, with their most common values and ranges."""
        found = state.library(library)
        return schemas.Fields(index=found.name, fields=facets_of(found, target))

    @tool
    def thumbnail(
        id: str,
        size: int = 320,
        library: str | None = None,
    ) -> Image:
        """The image of an item, scaled down."""
        form, found = schemas.ThumbnailQuery(index=library, id=id, size=size), state.library(library)
        data, _ = found.thumbnails.of(found.store, form.id, form.size)
        return Image(data=data, format="webp")

    return server
