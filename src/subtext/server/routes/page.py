"""The page: a few files of the package, read once; no other file can be named."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from subtext.server.refusals import Refusal

FOLDER = Path(__file__).resolve().parents[2] / "page"
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page_router() -> APIRouter:
    """The addresses of the page's files."""
    router = APIRouter(include_in_schema=False)
    files = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix in KINDS}

    @router.get("/")
    def start(request: Request) -> Response:
        """The page."""
        return _sent(request, "index.html", files["index.html"])

    @router.get("/page/{name}")
    def file(request: Request, name: str) -> Response:
        """One of its files."""
        if name not in files:
            raise Refusal(HTTPStatus.NOT_FOUND, "the page has no such file")
        return _sent(request, name, files[name])

    return router


def _sent(request: Request, name: str, data: bytes) -> Response:
    tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(data, media_type=KINDS[Path(name).suffix], headers=headers)
