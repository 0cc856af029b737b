"""The application: what is open, the addresses, and the guard before them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import no_type_check

import anyio.to_thread
from fastapi import FastAPI

from subtext import __version__
from subtext.server.guard import Guard
from subtext.server.refusals import answer_refusals
from subtext.server.routes import about, changes, items, search
from subtext.server.routes.page import page_router
from subtext.server.served import Served
from subtext.server.settings import Settings

SETTINGS = "SUBTEXT_SERVE"
"""Names the variable in which a server tells its further processes what they are to do."""

SPARE = 8
"""Threads for what is answered however busy the server is."""


def build(settings: Settings) -> FastAPI:
    """The application of these settings, with its indexes open.

    Raises what opening an index raises.
    """
    served = Served(settings)

    @asynccontextmanager
    @no_type_check
    async def life(app: FastAPI) -> AsyncIterator[None]:
        # Most of the time a request waits for the one thread that computes: each may have a thread to wait in.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.limits.at_once + SPARE
        yield
        served.close()

    app = FastAPI(
        title="Subtext",
        version=__version__,
        description="Pictures for words and words for pictures, from an index of Subtext.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.served = served
    answer_refusals(app)
    for router in (search.router, items.router, changes.router, about.router, page_router()):
        app.include_router(router)
    app.add_middleware(Guard, served=served)
    return app


def from_environment() -> FastAPI:
    """The application of the settings that the first process of a server left in the environment."""
    return build(Settings.from_json(os.environ[SETTINGS]))
