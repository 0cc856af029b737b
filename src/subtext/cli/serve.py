"""`subtext serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from subtext.cli.command import PATH, Command, Index, device_option, quiet_option

DEFAULT_BODY, DEFAULT_PIXELS, DEFAULT_RATE = 20, 50, 20.0


def _act(ctx: click.Context) -> None:
    values = ctx.params
    token, read_token = _token(ctx, "token_file"), _token(ctx, "read_token_file")
    _require_used(ctx)
    from subtext.api.load import choose_device
    from subtext.api.serve import serve_indexes

    serve_indexes(
        [*values["indexes"]],
        {
            **{name: values[name] for name in ("host", "port", "workers", "log", "log_private", "behind_proxy")},
            "device": choose_device(values["device"]),
            "names": values["names"],
            "keep": "" if values["keep"] is None else str(values["keep"].expanduser().resolve()),
            "pictures": tuple(str(folder.expanduser().resolve()) for folder in values["pictures"]),
            "token": token,
            "read_token": read_token,
            "run": None if values["run"] is None else str(values["run"]),
            "features": None if values["features"] is None else str(values["features"]),
        },
        body=values["max_body"] * 2**20,
        pixels=values["max_pixels"] * 1_000_000,
        rate=values["rate"],
        quiet=values["quiet"],
    )


def _require_used(ctx: click.Context) -> None:
    """Raise UsageError for an option that the indexes have no use for."""
    values = ctx.params
    folders = [isinstance(index, Path) for index in values["indexes"]]
    if values["keep"] is not None and all(folders):
        raise click.UsageError("--keep is for an index that is no folder; a folder keeps these things itself", ctx)
    given = ctx.get_parameter_source("log") is not click.core.ParameterSource.DEFAULT
    if given and values["log"] == "index" and values["keep"] is None and not folders[0]:
        raise click.UsageError("--log index needs a folder: an INDEX that is one, or --keep DIR; or take --log -", ctx)


def _token(ctx: click.Context, name: str) -> str:
    """The first line of a file, which no list of processes shows; "" where none was named."""
    file: Path | None = ctx.params[name]
    if file is None:
        return ""
    option = "--" + name.replace("_", "-")
    try:
        token = (file.expanduser().read_text(encoding="utf-8").splitlines() or [""])[0].strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise click.UsageError(f"{option}: {file} cannot be read: {problem}", ctx) from problem
    if len(token) < 16:
        raise click.UsageError(f"{option}: a token of 16 letters or more is needed in the first line of {file}", ctx)
    return token


def _limits() -> list[click.Parameter]:
    whole: Any = click.IntRange(1)
    return [
        click.Option(["--max-body"], type=whole, default=DEFAULT_BODY, show_default=True, help="MB of a request."),
        click.Option(
            ["--max-pixels"], type=whole, default=DEFAULT_PIXELS, show_default=True, help="Million pixels of a picture."
        ),
        click.Option(
            ["--rate"],
            type=click.FloatRange(0),
            default=DEFAULT_RATE,
            show_default=True,
            help="Requests a second and client, over time; 0 for no limit.",
        ),
    ]


serve = Command(
    "serve",
    _act,
    {
        "Indexes": [
            click.Argument(["indexes"], type=Index(), nargs=-1, required=True),
            click.Option(["--run"], type=PATH, metavar="RUN", help="Where the first index's run is now."),
            click.Option(["--features"], type=PATH, metavar="FILE", help="Picture features of the first index."),
            click.Option(
                ["--pictures"],
                type=PATH,
                multiple=True,
                metavar="DIR",
                help="A folder beside the data set's whose pictures may be shown; repeatable.",
            ),
            click.Option(
                ["--keep"],
                type=PATH,
                metavar="DIR",
                help="Of an INDEX in a database: where small pictures, the log and added pictures are kept.",
            ),
            device_option(),
        ],
        "Address": [
            click.Option(["--host"], default="127.0.0.1", show_default=True, help="Where to listen."),
            click.Option(["--port"], type=click.IntRange(1, 65535), default=8000, show_default=True, help="Its port."),
            click.Option(
                ["--name", "names"],
                multiple=True,
                metavar="NAME",
                help="A host name to answer to; repeatable. Default: this machine's own names, or any with --host.",
            ),
            click.Option(["--behind-proxy"], is_flag=True, help="Believe a proxy on this machine who the client is."),
            click.Option(["--workers"], type=click.IntRange(1), default=1, show_default=True, help="Processes."),
        ],
        "Rights": [
            click.Option(
                ["--token-file"],
                type=PATH,
                metavar="FILE",
                help="Its first line is the token for /add and /delete. Without it nothing can be changed.",
            ),
            click.Option(
                ["--read-token-file"], type=PATH, metavar="FILE", help="The token that every request has to bring."
            ),
        ],
        "Limits": _limits(),
        "Log": [
            click.Option(
                ["--log"],
                type=click.Choice(["index", "-", "none"]),
                default="index",
                show_default=True,
                help="In the first INDEX (of a database in --keep, else -), for 30 days; - for standard output.",
            ),
            click.Option(["--log-private"], is_flag=True, help="Log words that were asked for, and addresses, too."),
            quiet_option(),
        ],
    },
    help="""Answer searches on INDEX over HTTP, with a page to look at: open the address that it prints.

    It listens to this machine alone unless --host says otherwise, serves no file but small copies of the collection's
    pictures, and changes nothing without a token. /openapi.json describes the addresses; docs/serving.md how to run it
    for others. Several indexes can be compared side by side.""",
    examples=[
        "subtext serve library",
        "subtext serve library other --port 9000 --token-file token",
        "subtext serve 'postgresql://editor@db/archive?index=library' --keep kept --token-file token",
    ],
    usage="INDEX... [OPTIONS]",
)
