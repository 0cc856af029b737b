"""`subtext.serve`: an index over HTTP, with a page to search it; and the settings of a server."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from subtext.api.options import Device, Quiet, ShownWhere
from subtext.errors import ArgumentError, RequirementError, Setting
from subtext.server.settings import Limits, Settings
from subtext.settings import Interval, Metavar, OptionGroup, Shown, command
from subtext.text_helpers import install_hint

if TYPE_CHECKING:
    from subtext.server.state import Library

SHUTDOWN_SECONDS = 20
"""Seconds in which requests must end when the server stops."""
STARTUP_SECONDS = 120
"""Seconds in which a further process of a server must be ready."""
TOKEN_LETTERS = 16
"""Shortest token."""

_FILE, _FOLDER = Metavar("FILE"), Metavar("DIR")
_DATA, _ADDRESS, _LIMITS = OptionGroup("Data"), OptionGroup("Address"), OptionGroup("Limits")


@command
def serve(
    indexes: Annotated[tuple[str | Path, ...] | str, "Folders or addresses of indexes.", Metavar("INDEX")],
    *,
    run: Annotated[str | Path | None, "New folder of the first run, if it was moved.", Metavar("RUN"), _DATA] = None,
    model: Annotated[
        str | Path | None,
        "New folder of the first pretrained model, if it was moved.",
        Metavar("NAME_OR_FOLDER"),
        _DATA,
    ] = None,
    features: Annotated[str | Path | None, "Precomputed image features for the first index.", _FILE, _DATA] = None,
    rerank: Annotated[
        str | Path | None,
        "Run of a second model, which re-ranks the results of requests with rerank=true.",
        Metavar("RUN"),
        _DATA,
    ] = None,
    image_folder: Annotated[
        tuple[str | Path, ...], "Another folder whose images may be shown; repeatable.", _FOLDER, _DATA
    ] = (),
    storage_dir: Annotated[
        str | Path | None, "Folder for the thumbnails, uploads and log of an INDEX in a database.", _FOLDER, _DATA
    ] = None,
    host: Annotated[str, "Address to listen on.", _ADDRESS] = "127.0.0.1",
    port: Annotated[int, "Port to listen on.", Interval(1, 65535), _ADDRESS] = 8000,
    allowed_host: Annotated[
        tuple[str, ...],
        "Host name in allowed requests; repeatable. Default: names of this machine; with --host, any.",
        Metavar("NAME"),
        _ADDRESS,
    ] = (),
    trust_proxy: Annotated[bool, "Trust X-Forwarded-For from a local proxy.", _ADDRESS] = False,
    workers: Annotated[int, "Processes.", Interval(1), _ADDRESS] = 1,
    token_file: Annotated[
        str | Path | None,
        "File whose first line is the token for /add and /delete. Default: no changes allowed.",
        _FILE,
        OptionGroup("Access"),
    ] = None,
    read_token_file: Annotated[
        str | Path | None, "File with the token that every request needs.", _FILE, OptionGroup("Access")
    ] = None,
    where: ShownWhere = (),
    max_body: Annotated[int, "MB per request.", Interval(1), _LIMITS] = 20,
    max_pixels: Annotated[int, "Million pixels per image.", Interval(1), _LIMITS] = 50,
    rate: Annotated[float, "Requests per second and client, on average; 0 for no limit.", Interval(0), _LIMITS] = 20.0,
    log: Annotated[
        Literal["index", "-", "none"] | None,
        "Log of requests. index: in the first INDEX (a database: in --storage-dir); -: standard output; none: no log.",
        Shown("index"),
        OptionGroup("Log"),
    ] = None,
    log_private: Annotated[bool, "Also log query texts and client addresses.", OptionGroup("Log")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Serve indexes over HTTP, with a search page; open the printed address in a browser.

    Only this machine can connect unless --host is set. The server sends thumbnails of the indexed images and no other
    files. Changes need a token. The page can compare two indexes side by side. /openapi.json describes the routes;
    docs/serving.md describes how to serve an index to others. SIGINT or SIGTERM stops the server. SIGHUP opens indexes
    and models again, while the former ones answer.

    Args:
        indexes: Folders or addresses of indexes.
        run: New folder of the first run, if it was moved.
        model: New folder of the first pretrained model, if it was moved.
        features: Precomputed image features for the first index.
        rerank: Run of a second model, which re-ranks the results of requests with rerank=true.
        image_folder: Another folder whose images may be shown.
        storage_dir: Folder for the thumbnails, uploads and log of an INDEX in a database.
        host: Address to listen on.
        port: Port to listen on; from 1 to 65535.
        allowed_host: Host name in allowed requests. Default: names of this machine; with `host`, any.
        trust_proxy: Trust X-Forwarded-For from a local proxy.
        workers: Processes; 1 or more.
        token_file: File whose first line is the token for /add and /delete. Default: no changes allowed.
        read_token_file: File with the token that every request needs.
        where: Conditions on the metadata that every item must meet: others are not there, and nothing can be added.
        max_body: MB per request; 1 or more.
        max_pixels: Million pixels per image; 1 or more.
        rate: Average requests per second and client; 0 for no limit.
        log: Log of requests. "index": in the first index, or in `storage_dir` for a database; "-": standard output;
            "none": no log.
        log_private: Also log query texts and client addresses.
        device: cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.
        quiet: Show no progress.

    Raises:
        RequirementError: If a package is missing or the address is in use.
        ArgumentError: For contradictory arguments. Also raises the errors of opening an index.
    """
    from subtext.api.load import choose_device

    indexes = (indexes,) if isinstance(indexes, str | Path) else indexes
    folders = ["://" not in str(index) for index in indexes]
    if not indexes:
        raise ArgumentError("a server needs an index")
    if storage_dir is not None and all(folders):
        raise ArgumentError(
            "storage_dir is for an index that is no folder; a folder holds these things itself", field="storage_dir"
        )
    if log == "index" and storage_dir is None and not folders[0]:
        raise ArgumentError(
            "log index needs a folder: an INDEX that is one, or ",
            Setting("storage_dir"),
            "; or log to - (standard output)",
            field="log",
        )

    if model is not None:
        from subtext.models.encoders.hub import require_model

        require_model(str(model))  # Before torch is imported.

    def absolute(path: str | Path) -> str:
        return str(path) if "://" in str(path) else str(Path(path).expanduser().resolve())

    start(
        Settings(
            tuple(absolute(index) for index in indexes),
            run=None if run is None else str(run),
            model=None if model is None else str(model),
            features=None if features is None else str(features),
            rerank=None if rerank is None else absolute(rerank),
            device=choose_device(device),
            host=host,
            port=port,
            allowed_hosts=allowed_host,
            workers=workers,
            where=where,
            token=_token(token_file, "token_file"),
            read_token=_token(read_token_file, "read_token_file"),
            image_folders=tuple(absolute(folder) for folder in image_folder),
            storage_dir="" if storage_dir is None else absolute(storage_dir),
            log={None: "index", "none": ""}.get(log, str(log)),
            log_private=log_private,
            trust_proxy=trust_proxy,
            limits=Limits(body=max_body * 2**20, pixels=max_pixels * 1_000_000, rate=rate),
        ),
        quiet=quiet,
    )


def start(settings: Settings, *, quiet: bool = False) -> None:
    """Serve by these settings until SIGTERM or SIGINT; see `serve`.

    Args:
        settings: The settings.
        quiet: Prints nothing.

    Raises:
        RequirementError: If a package is missing, or the address is in use.
    """
    try:
        import uvicorn

        from subtext.server.application import SETTINGS, build
        from subtext.server.monitoring import MULTIPROCESS
        from subtext.server.state import ServerState, pictures_of
    except ModuleNotFoundError as problem:
        raise RequirementError(
            f"serving needs the package '{problem.name}', which is not installed; {install_hint('serve')}"
        ) from problem
    from subtext.report.progress import say
    from subtext.retrieval.stores.registry import store_class

    # Before a model is loaded for nothing.
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as problem:
            raise RequirementError(
                f"a server needs an address of its own; {settings.host}:{settings.port} cannot be used: "
                f"{problem.strerror or problem}; name another (--port)"
            ) from problem
    options = server_options(settings)
    for name, pictures in pictures_of(settings).items():
        if pictures.sentence:
            say(f"{name}: {pictures.sentence}", quiet=quiet)
    address = address_lines(settings)
    if settings.workers == 1:
        if threading.current_thread() is threading.main_thread() and not sys.stdin.isatty():
            # Indexes and models are being opened: there is nothing to open again yet, and nothing to end.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        app = build(settings)
        state: ServerState = app.state.server
        counts = ", ".join(_shown_counts(name, library) for name, library in state.libraries.items())
        say(f"{counts}\n{address}", quiet=quiet)
        uvicorn.Server(uvicorn.Config(app, **options)).run()
        return
    with tempfile.TemporaryDirectory(prefix="subtext-serve-") as shared:
        os.environ[SETTINGS] = settings.to_json()
        os.environ[MULTIPROCESS] = shared
        names = ", ".join(store_class(index).name_of(index) for index in settings.indexes)
        say(f"{names}: {settings.workers} processes\n{address}", quiet=quiet)
        target = "subtext.server.application:from_environment"
        # A process is replaced (SIGHUP) when the new one has loaded its model, which takes longer than a ping.
        options["timeout_worker_healthcheck"] = STARTUP_SECONDS
        uvicorn.run(target, factory=True, workers=settings.workers, **options)


def _shown_counts(name: str, library: Library) -> str:
    """How many images a library shows, and how many it hides."""
    shown, total = len(library.index), library.store.whole.counts["images"]
    return f"{name}: {shown:,} images" + (f" of {total:,}, the others hidden" if shown < total else "")


def address_lines(settings: Settings) -> str:
    """The addresses that a browser opens, for the terminal; a token stands behind the # of a link, which is never sent.

    Args:
        settings: The settings.

    Returns:
        A line for the page, and one for each token.
    """
    name = settings.host
    if name in ("127.0.0.1", "::1"):
        name = "localhost"
    elif settings.allowed_hosts:
        name = settings.allowed_hosts[0]  # It answers to no other name.
    elif name in ("0.0.0.0", "::"):
        name = socket.gethostname()
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    address = f"http://{name}:{settings.port}/"
    lines = [f"{address} (Ctrl-C stops it)"]
    lines += [f"{address}#token={quote(settings.token)} (for whoever may change it)"] if settings.token else []
    lines += [f"{address}#token={quote(settings.read_token)} (for readers)"] if settings.read_token else []
    return "\n".join(lines)


def server_options(settings: Settings) -> dict[str, Any]:
    """The options of uvicorn; connections are few enough that files can still be opened.

    Args:
        settings: The settings.

    Returns:
        Keyword arguments of `uvicorn.Config`.
    """
    from subtext.server.connection import ClientConnection, most_connections

    return {
        "host": settings.host,
        "port": settings.port,
        "access_log": False,
        # A client whose request cannot be read is told so; the log is not for what it sends.
        "log_level": "error",
        "server_header": False,
        "proxy_headers": settings.trust_proxy,
        "http": ClientConnection,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
        # As many are accepted at a time, before any is closed.
        "backlog": max(1, min(128, most_connections() // 3)),
        "ws": "none",
    }


def _token(file: str | Path | None, name: str) -> str:
    """The first line of a file, which no list of processes shows; "" where none is named."""
    if file is None:
        return ""
    try:
        token = (Path(file).expanduser().read_text(encoding="utf-8").splitlines() or [""])[0].strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ArgumentError(f"{name}: {file} cannot be read: {problem}", field=name) from problem
    if len(token) < TOKEN_LETTERS:
        raise ArgumentError(
            f"{name} needs a token of {TOKEN_LETTERS} letters or more in the first line of {file}", field=name
        )
    return token
