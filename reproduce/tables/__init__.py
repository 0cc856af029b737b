"""Published tables, trained here: `table` puts our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.api.options import Device, OnError, Quiet, SplitSeed, Workers
from subtext.settings import Flag, Interval, Metavar, OptionGroup, Shown, command

if TYPE_CHECKING:
    from reproduce.command import Text
    from reproduce.tables.config import DataPaths
    from reproduce.tables.make import TableResult
    from reproduce.tables.specification import PublishedTable


@command
def table(
    name: Annotated[str | None, "A table's name.", OptionGroup("Table"), Metavar("NAME")] = None,
    *,
    list_tables: Annotated[
        bool, "List tables, their rows and data sets.", Flag("--list"), OptionGroup("Table")
    ] = False,
    out: Annotated[
        str | Path, "Folder for runs, shared graphs and the table.", OptionGroup("Table"), Metavar("DIR")
    ] = "tables",
    rows: Annotated[
        str, "Keys of rows, with commas between them.", Shown("all"), OptionGroup("Table"), Metavar("KEY,...")
    ] = "",
    add_row: Annotated[
        tuple[str, ...],
        "A row of your own, with the options of the table's first row of the same model; repeatable. OPTION= with "
        "nothing after it leaves an option of that row out.",
        OptionGroup("Table"),
        Metavar("NAME=MODEL[:OPTION=VALUE,...][+METHOD[:OPTION=VALUE,...]...]"),
    ] = (),
    imported: Annotated[
        tuple[str, ...],
        "A Python file that registers methods (subtext.register_method); repeatable.",
        Flag("--import"),
        OptionGroup("Table"),
        Metavar("FILE"),
    ] = (),
    plan: Annotated[bool, "List the trainings and their state; train nothing.", OptionGroup("Table")] = False,
    data: Annotated[
        tuple[str, ...],
        "A data set; repeatable. NAME is one of --list or your own; yours gets its own columns. Of a folder "
        "without NAME, subfolders with names of --list are used.",
        OptionGroup("Data"),
        Metavar("NAME=DATA"),
    ] = (),
    images: Annotated[
        tuple[str, ...], "Folder that image paths start from; repeatable.", OptionGroup("Data"), Metavar("NAME=DIR")
    ] = (),
    features: Annotated[
        tuple[str, ...],
        "Precomputed image features, used instead of pixels; repeatable.",
        OptionGroup("Data"),
        Metavar("NAME=FILE"),
    ] = (),
    graph_features: Annotated[
        tuple[str, ...],
        "Image features for a graph or a density alone, beside pixels; repeatable. Default: --features.",
        OptionGroup("Data"),
        Metavar("NAME=FILE"),
    ] = (),
    regions: Annotated[
        tuple[str, ...],
        "Features of regions for the models that read them, beside pixels; repeatable. Default: --features.",
        OptionGroup("Data"),
        Metavar("NAME=FILE"),
    ] = (),
    text_features: Annotated[
        tuple[str, ...], "Precomputed text features; repeatable.", OptionGroup("Data"), Metavar("NAME=FILE")
    ] = (),
    split: Annotated[str, "Split to evaluate.", OptionGroup("Data")] = "test",
    val_split: Annotated[
        str,
        "Split that selects the epoch. If it is the evaluated split, a tenth of the training images selects instead.",
        OptionGroup("Data"),
    ] = "val",
    split_seed: SplitSeed = None,
    on_error: OnError = None,
    seeds: Annotated[int, "Trainings per row.", Interval(1), OptionGroup("Protocol")] = 3,
    trials: Annotated[
        int, "Learning rates per row, chosen by validation.", Interval(1, 5), OptionGroup("Protocol")
    ] = 1,
    subset: Annotated[
        int | None,
        "Number of training images, the same for all rows. Default: all.",
        Interval(2),
        OptionGroup("Protocol"),
    ] = None,
    sweep: Annotated[
        int,
        "COMBINED-VAL on your own data: training images for choosing β : γ among nine ratios; 0: use 3 : 1.",
        Interval(0),
        OptionGroup("Protocol"),
    ] = 1000,
    save_every_epochs: Annotated[
        int,
        "Save every Nth epoch of each training as a run, for figures over epochs; 0 for none.",
        Interval(0),
        OptionGroup("Protocol"),
    ] = 0,
    sweep_option: Annotated[
        tuple[str, ...],
        "Values of an option of a method or model, chosen by validation for each row that has it; repeatable: all "
        "combinations are tried. K and lambda stand for neighbours and total_weight.",
        OptionGroup("Protocol"),
        Metavar("METHOD.OPTION=VALUE,..."),
    ] = (),
    epochs: Annotated[
        int | None, "Training epochs. Default: as in the table.", Interval(1), OptionGroup("Protocol")
    ] = None,
    changes: Annotated[
        tuple[str, ...],
        "Change an option of every row's model or training; repeatable.",
        Flag("--set"),
        OptionGroup("Protocol"),
        Metavar("OPTION=VALUE"),
    ] = (),
    c: Annotated[int, "Candidates of a c-way choice on your own data set.", Interval(2), OptionGroup("Protocol")] = 20,
    space: Annotated[
        str, "Text space: doc2vec, lsa, sentence:NAME or text-features:FILE.", OptionGroup("Neighbours")
    ] = "doc2vec",
    neighbours: Annotated[int, "Neighbours of each text.", Interval(1), OptionGroup("Neighbours")] = 200,
    min_count: Annotated[int, "doc2vec: leave rarer words out.", Interval(1), OptionGroup("Neighbours")] = 20,
    graph: Annotated[
        tuple[str, ...],
        "An existing graph of the training texts, used with its own text space; repeatable.",
        OptionGroup("Neighbours"),
        Metavar("NAME=DIR"),
    ] = (),
    device: Device = "auto",
    workers: Workers = 2,
    quiet: Quiet = False,
) -> TableResult | Text:
    """Train the rows of a published table under one protocol, and show our numbers beside the paper's.

    Each cell has the mean and standard deviation over seeds, the paper's number, and a paired test against the row's
    baseline. A cell without data or method says what it lacks; nothing else takes its place. Run the same command
    again to resume; finished runs are not trained again.

    Raises ArgumentError for a table that does not exist and for a malformed NAME=VALUE; RecipeError for unknown rows
    and options; and what reading, building and evaluating raise.
    """
    from reproduce.tables.own_rows import read_code, with_own_rows
    from reproduce.tables.specification import tables
    from subtext.errors import ArgumentError
    from subtext.settings import did_you_mean

    if list_tables:
        from reproduce.command import Text

        return Text(listing())
    if name is None:
        raise ArgumentError("name a table; --list shows the tables")
    if name not in tables():
        raise ArgumentError(did_you_mean("table", name, tables()))
    from reproduce.tables.nulls import with_nulls

    code = [read_code(Path(file)) for file in imported]
    chosen = with_nulls(with_own_rows(tables()[name], add_row, "".join(code)))
    options = _assignments("--set", changes)
    if epochs is not None:
        options["epochs"] = str(epochs)
    files = {
        "--images": images,
        "--features": features,
        "--text-features": text_features,
        "--graph-features": graph_features,
        "--regions": regions,
    }
    paths = _data_paths(chosen, data, files, split_seed=split_seed, on_error=on_error)

    from reproduce.tables.config import TableConfig
    from reproduce.tables.make import make, plan_of

    config = TableConfig(
        name=name,
        table=chosen,
        rows=chosen.select([key.strip() for key in rows.split(",") if key.strip()]),
        sweeps={key: tuple(values.split(",")) for key, values in _assignments("--sweep-option", sweep_option).items()},
        out=Path(out),
        data=paths,
        changes={option.replace("-", "_"): value for option, value in options.items()},
        seeds=seeds,
        save_every_epochs=save_every_epochs,
        trials=trials,
        subset=subset,
        sweep=sweep,
        split=split,
        val_split=val_split,
        c=c,
        space=space,
        neighbours=neighbours,
        min_count=min_count,
        graphs={key: Path(folder) for key, folder in _assignments("--graph", graph).items()},
        device=device,
        workers=workers,
        quiet=quiet,
    )
    return plan_of(config) if plan else make(config)


def listing() -> str:
    """Every table with its rows and data sets."""
    from reproduce.tables.specification import BM25, DATA_SETS, HUBNESS, tables

    lines = []
    for name, table in tables().items():
        data = ", ".join(f"{key} ({DATA_SETS[key].name}, {DATA_SETS[key].c}-way)" for key in table.data)
        lines += [f"{name}  {table.paper}: {table.title}", f"  data: {data}"]
        lines.append(f"  rows: {', '.join(row.key for row in table.rows if row.trained)}, {HUBNESS}, {BM25}")
    return "\n".join(lines)


def _data_paths(
    table: PublishedTable,
    data: Sequence[str],
    given: Mapping[str, Sequence[str]],
    *,
    split_seed: int | None,
    on_error: Literal["raise", "skip"] | None,
) -> dict[str, DataPaths]:
    """The data sets by key, with their images and features."""
    from reproduce.tables.config import DataPaths
    from subtext.errors import ArgumentError
    from subtext.settings import did_you_mean

    paths: dict[str, str] = {}
    for text in data:
        key, equals, path = text.partition("=")
        if equals and not Path(text).exists():
            paths[key] = path
        elif subfolders := {key: str(Path(text, key)) for key in table.data if Path(text, key).exists()}:
            paths |= subfolders
        else:
            resolved = Path(text).resolve()
            paths[(resolved.stem if resolved.is_file() else resolved.name).lower().replace(" ", "_")] = text
    default = next(iter(paths)) if len(paths) == 1 else None
    files = {"--data": paths}
    for flag, texts in given.items():
        files[flag] = _assignments(flag, texts, default=default)
        for key in files[flag]:
            if key not in paths:
                raise ArgumentError(f"{flag} {key}=...: {did_you_mean('data set of --data', key, paths)}")
    for flag, by_key in files.items():
        for key, path in by_key.items():
            if not Path(path).expanduser().exists():
                raise ArgumentError(f"{flag} {key}={path} needs an existing file or folder; there is none")

    def file(flag: str, key: str) -> Path | None:
        path = files[flag].get(key)
        return None if path is None else Path(path).expanduser()

    return {
        key: DataPaths(
            data=Path(path).expanduser(),
            **{flag.removeprefix("--").replace("-", "_"): file(flag, key) for flag in given},
            split_seed=split_seed,
            on_error=on_error,
        )
        for key, path in paths.items()
    }


def _assignments(flag: str, texts: Sequence[str], *, default: str | None = None) -> dict[str, str]:
    """Values by name from texts NAME=VALUE; a text without a name belongs to `default`."""
    from subtext.errors import ArgumentError

    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and default is None:
            raise ArgumentError(f"{flag} needs the form NAME=VALUE; it got '{text}'")
        values[name.strip() if equals else str(default)] = value.strip() if equals else text
    return values
