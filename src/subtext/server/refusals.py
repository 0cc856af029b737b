"""What is refused, as an HTTP status and one sentence: {"error": "...", "status": 422}."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from subtext.errors import DataError, IndexError_, OutputError, RequirementError, SubtextError

AGAIN = 1
"""Seconds after which a client that was turned away may come again."""


class Refusal(SubtextError):
    """A request that is refused.

    status  of HTTP          again   seconds after which it may be tried again; None where that would not help
    """

    def __init__(self, status: int, sentence: str, *, again: int | None = None) -> None:
        super().__init__(sentence)
        self.status = int(status)
        self.again = again

    @property
    def headers(self) -> dict[str, str]:
        """Further headers of the answer."""
        found = {} if self.again is None else {"Retry-After": str(self.again)}
        return {**found, "WWW-Authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else found


def told(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer that says so."""
    return JSONResponse({"error": sentence, "status": status}, status_code=status, headers=dict(headers or {}))


def refusal_of(error: SubtextError) -> Refusal:
    """What an error of the library means to a client. Paths of this machine stay in it for what is our own fault.

    >>> refusal_of(RequirementError("a condition needs a field")).status
    422
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequirementError | DataError):
        return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    if isinstance(error, IndexError_):
        return Refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, "this library cannot be read just now; its log says why", again=5
        )
    if isinstance(error, OutputError):
        return Refusal(HTTPStatus.INSUFFICIENT_STORAGE, "this library cannot be written; nothing was changed")
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the server made a mistake; its log says which")


def answer_refusals(app: FastAPI) -> None:
    """Let every error end in one form of answer."""

    def of_library(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, SubtextError)
        refusal = refusal_of(error)
        if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, Refusal):
            note(request, {"error": f"{type(error).__name__}: {error}"})
        return told(refusal.status, str(refusal), refusal.headers)

    def of_form(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # What was sent is not sent back: it may be long, or no text at all.
        parts = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3]]
        return told(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(parts))

    def of_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return told(error.status_code, str(error.detail), error.headers)

    app.add_exception_handler(SubtextError, of_library)
    app.add_exception_handler(RequestValidationError, of_form)
    app.add_exception_handler(HTTPException, of_http)


def note(request: Request, facts: Mapping[str, Any]) -> None:
    """Add facts to the line of the log that this request will get."""
    request.scope.setdefault("subtext.log", {}).update(facts)
