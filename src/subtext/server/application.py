"""The FastAPI application: its routes, the files of its page, and the guard before them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import no_type_check

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from subtext.server.routes import about, changes, items, search
from subtext.server.security import Guard, Refusal, etag_response, handle_errors
from subtext.server.settings import Settings
from subtext.server.state import ServerState
from subtext.version import __version__

SETTINGS = "SUBTEXT_SERVE"
"""Names the variable in which a server passes its settings to its further processes."""
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}  # fmt: skip
SPARE_THREADS = 8
"""Threads for what is answered however busy the server is."""


def build(settings: Settings) -> FastAPI:
    """The application with its indexes open. Raises what opening an index raises."""
    state = ServerState(settings)

    @asynccontextmanager
    @no_type_check
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Requests mostly wait for the one thread that computes: each may have a thread to wait in.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.limits.max_requests + SPARE_THREADS
        yield
        state.close()

    app = FastAPI(
        title="Subtext",
        version=__version__,
        description="Images for words and words for images, from an index of Subtext.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = state
    handle_errors(app)
    for router in (search.router, items.router, changes.router, about.router, _page_router()):
        app.include_router(router)
    app.add_middleware(Guard, state=state)
    return app


def from_environment() -> FastAPI:
    """The application by the settings that the first process of a server left in the environment."""
    return build(Settings.from_json(os.environ[SETTINGS]))


def _page_router() -> APIRouter:
    """The files of the page, read once; no other file can be named."""
    router = APIRouter(include_in_schema=False)
    files = {file.name: file.read_bytes() for file in sorted(PAGE.iterdir()) if file.suffix in PAGE_TYPES}

    @router.get("/")
    def start(request: Request) -> Response:
        return etag_response(request, files["index.html"], PAGE_TYPES[".html"])

    @router.get("/page/{name}")
    def page_file(request: Request, name: str) -> Response:
        if name not in files:
            raise Refusal(HTTPStatus.NOT_FOUND, "the page has no such file")
        return etag_response(request, files[name], PAGE_TYPES[Path(name).suffix])

    return router
