"""`subtext.serve_mcp`: indexes as read-only tools of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from subtext.api.options import Device, ShownWhere
from subtext.errors import ArgumentError, RequirementError
from subtext.server.settings import Limits, Settings
from subtext.settings import Interval, Metavar, OptionGroup, command
from subtext.text_helpers import install_hint

_DATA, _LIMITS = OptionGroup("Data"), OptionGroup("Limits")


@command
def serve_mcp(
    indexes: Annotated[tuple[str | Path, ...] | str, "Folders or addresses of indexes.", Metavar("INDEX")],
    *,
    where: ShownWhere = (),
    run: Annotated[str | Path | None, "New folder of the first run, if it was moved.", Metavar("RUN"), _DATA] = None,
    model: Annotated[
        str | Path | None,
        "New folder of the first pretrained model, if it was moved.",
        Metavar("NAME_OR_FOLDER"),
        _DATA,
    ] = None,
    image_folder: Annotated[
        tuple[str | Path, ...], "Another folder whose images may be shown; repeatable.", Metavar("DIR"), _DATA
    ] = (),
    storage_dir: Annotated[
        str | Path | None, "Folder for the thumbnails of an INDEX in a database.", Metavar("DIR"), _DATA
    ] = None,
    max_pixels: Annotated[int, "Million pixels per image.", Interval(1), _LIMITS] = 50,
    rate: Annotated[float, "Calls per second, on average; 0 for no limit.", Interval(0), _LIMITS] = 20.0,
    device: Device = "auto",
) -> None:
    """Offer indexes to a program that speaks the Model Context Protocol, over standard input and output.

    The tools are search, similar, details, facets and thumbnail. They change nothing, and have the limits of `subtext
    serve`. Needs the package mcp: pip install '.[mcp]' in a clone of Subtext.

    Args:
        indexes: Folders or addresses of indexes.
        where: Conditions on the metadata that every item must meet: others are not there.
        run: New folder of the first run, if it was moved.
        model: New folder of the first pretrained model, if it was moved.
        image_folder: Another folder whose images may be shown.
        storage_dir: Folder for the thumbnails of an INDEX in a database.
        max_pixels: Million pixels per image; 1 or more.
        rate: Average calls per second; 0 for no limit.
        device: cpu, cuda, cuda:1 or mps; auto: a GPU if there is one.

    Raises:
        ArgumentError: If no index is named.
        RequirementError: If a package is missing. Also raises the errors of opening an index.
    """
    from subtext.api.load import choose_device

    def absolute(path: str | Path) -> str:
        return str(path) if "://" in str(path) else str(Path(path).expanduser().resolve())

    indexes = (indexes,) if isinstance(indexes, str | Path) else indexes
    if not indexes:
        raise ArgumentError("a server needs an index")
    settings = Settings(
        tuple(absolute(index) for index in indexes),
        run=None if run is None else str(run),
        model=None if model is None else str(model),
        device=choose_device(device),
        image_folders=tuple(absolute(folder) for folder in image_folder),
        storage_dir="" if storage_dir is None else absolute(storage_dir),
        where=where,
        log="",
        limits=Limits(pixels=max_pixels * 1_000_000, rate=rate),
    )
    try:
        from subtext.server.state import ServerState
        from subtext.server.tools import tool_server
    except ModuleNotFoundError as problem:
        raise RequirementError(
            f"tools need the package '{problem.name}', which is not installed; {install_hint('mcp')}"
        ) from problem
    state = ServerState(settings)
    try:
        tool_server(state).run("stdio")
    finally:
        state.close()
