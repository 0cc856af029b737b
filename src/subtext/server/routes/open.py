"""What the addresses share: the library that is meant, who may read or write, and the answers that refuse."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from subtext.server.forms import Refused
from subtext.server.served import Served

BEARER = HTTPBearer(auto_error=False, description="The token that the server was started with.")
Token = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused, "description": words}
    for status, words in {
        400: "no request that can be read",
        401: "a token is missing or wrong",
        403: "the server takes no changes",
        404: "no such library, item or picture",
        408: "the request came too slowly",
        409: "the id is there already",
        413: "too many bytes or pixels",
        415: "no picture, or more than a picture",
        422: "a value that cannot be used",
        429: "too many requests; Retry-After says when to come again",
        503: "the server is busy; Retry-After says when to come again",
    }.items()
}


def served(request: Request) -> Served:
    """All that the server has open."""
    found: Served = request.app.state.served
    return found


def reader(request: Request, token: Token) -> Served:
    """The same, for a request that may read. Raises Refusal for one that may not."""
    own = served(request)
    own.require(None if token is None else token.credentials, writes=False)
    return own


def writer(request: Request, token: Token) -> Served:
    """The same, for a request that may change something. Raises Refusal for one that may not."""
    own = served(request)
    own.require(None if token is None else token.credentials, writes=True)
    return own


Open = Annotated[Served, Depends(served)]
Reading = Annotated[Served, Depends(reader)]
Writing = Annotated[Served, Depends(writer)]
