"""A small index that is served: what the tests of the server and of the page share."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import coloured_images
import uvicorn
from command import call
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from PIL import Image

from subtext.server.application import build
from subtext.server.serve import server_options
from subtext.server.settings import Limits, Settings

TOKEN, READ_TOKEN = "a token for changes", "a token for reading"
WRITES = {"Authorization": f"Bearer {TOKEN}"}


ASKED = [
    "/search?q=a+blue+square&top=5&where=place+<+8",
    "/search?q=a+pink+square&target=texts&top=30&explain=true",
    "/search?q=a+green+square&hubness=csls&diversity=0.3",
    "/similar?id=cyan&side=images&top=4",
    "/items?top=12",
    "/items?where=place+>+8&target=texts",
    "/item?id=cyan",
    "/item?id=cyan/0&target=texts",
    "/fields",
    "/fields?target=texts",
]
"""Questions that an index answers alike in every store."""


def made(folder: Path, *names: str) -> list[Path]:
    """Indexes of twelve squares, each of an untrained run of its own."""
    coloured_images.write(folder / "data")
    for seed, name in enumerate(names):
        coloured_images.run(folder / "data", folder / f"run-{name}", seed=seed)
        run = ["--run", folder / f"run-{name}", "--split", "all", "--text-encoder", "none"]
        call("index", "build", folder / name, *run, "--quiet")
    return [folder / name for name in names]


def settings(*indexes: Path, **changes: object) -> Settings:
    limits = Limits(**{"rate": 0, **changes.pop("limits", {})})  # type: ignore[arg-type]
    return replace(Settings(tuple(map(str, indexes)), token=TOKEN, limits=limits), **changes)  # type: ignore[arg-type]


@contextmanager
def client(*indexes: Path, **changes: object) -> Iterator[TestClient]:
    """The application of these indexes, asked without a network."""
    with TestClient(build(settings(*indexes, **changes)), base_url="http://localhost") as found:
        yield found


@contextmanager
def running(*indexes: Path, prefix: str = "", **changes: object) -> Iterator[int]:
    """The same, on a port of this machine; with a prefix as behind a proxy that takes it off each path."""
    chosen = settings(*indexes, **changes)
    application = build(chosen)

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(f"{prefix}/"):
                await PlainTextResponse("another site", 404)(scope, receive, send)
                return
            path = scope["path"].removeprefix(prefix)
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await application(scope, receive, send)

    options = {**server_options(chosen), "port": 0}
    server = uvicorn.Server(uvicorn.Config(behind if prefix else application, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server does not start"
        time.sleep(0.02)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=20)


def picture(colour: tuple[int, int, int] = (200, 40, 60), size: tuple[int, int] = (40, 40), form: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.new("RGB", size, colour).save(buffer, form)
    return buffer.getvalue()


def item(name: str, data: bytes | None = None, *captions: str, **metadata: object) -> dict[str, object]:
    """A picture as /add takes it."""
    words = list(captions) or [f"a {name} square"]
    coded = base64.b64encode(picture() if data is None else data).decode()
    return {"id": name, "image": coded, "captions": words, "metadata": metadata}
