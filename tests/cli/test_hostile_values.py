"""Every option of every command that takes a text or a path: a value that is neither ends in a sentence.

Commands and options come from the command line itself: a new one is tried without an entry here. The entries below let
a command get as far as it would with good values, where its required arguments alone would not.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import made_data
import numpy as np
import pytest
from click.testing import CliRunner

import subtext
from subtext.cli import main
from subtext.data.atomic import write_text
from subtext.errors import OutputError, SubtextError
from subtext.recipes.catalogue import RECOMMENDED

DATA = {"data": "pairs.jsonl", "features": "features.npz"}
SMALL = {"embed_dim": "8", "word_dim": "8", "batch_size": "16", "epochs": "1", "workers": "0", "quiet": True}
GOOD: dict[str, dict[str, object]] = {
    "data check": {**DATA},
    "data prepare": {"data": "pairs.jsonl", "out": "new.jsonl", "longer_than": "3"},
    "data dedup": {"data": "pairs.jsonl", "out": "new.jsonl"},
    "data join": {"cells": "features.npz", "regions": "features.npz", "out": "new.npz"},
    "data corrupt": {
        "data": "pairs.jsonl",
        "graph": "graph",
        "neighbour_ranks": "1-5",
        "out": "new.jsonl",
        "labels": "new.json",
    },
    "data detect-noise": {"run": "run", "graph": "graph", "labels": "labels.json"},
    f"train {RECOMMENDED}": {**DATA, **SMALL, "out": "new"},
    "ensemble": {"runs": ["run", "run2"], "out": "new"},
    "evaluate": {"run": "run", "split": "test"},
    "compare": {"files": ["a.json", "b.json"]},
    "audit": {"run": "run", "split": "test"},
    "embed": {"run": "run", "split": "test", "out": "new.npz"},
    "index build": {"index": "new", "run": "run", **DATA},
    "index add": {"index": "index", "data_option": "pairs.jsonl"},
    "index update": {"index": "index"},
    "index watch": {"index": "index"},
    "index move": {"index": "index", "run": "run2"},
    "index import": {"index": "new", "vectors": "vectors.npz", "run": "run", "data": "pairs.jsonl"},
    "index calibrate": {"index": "index", "data": "pairs.jsonl", "split": "test"},
    "index delete": {"index": "index", "dry_run": True},
    "index compact": {"index": "index"},
    "index info": {"index": "index"},
    "index verify": {"index": "index"},
    "index backup": {"index": "index", "out": "new"},
    "index restore": {"backup": "backup", "index": "new"},
    "search": {"index": "index", "text": "a dog"},
    "serve": {"indexes": ["index"]},
    "score": {"pairs": "pairs.jsonl", "run": "run"},
    "curate": {"data": "pairs.jsonl", "features": "features.npz", "run": "run", "out": "new"},
    "export": {"run": "run", "hf": "new"},
    "neighbours build": {"out": "new", "space": "lsa", "neighbours": "5", "data": "pairs.jsonl", "split": "train"},
    "neighbours show": {"graph": "graph", "data": "pairs.jsonl"},
    "runs": {"folders": ["."]},
}
"""Command -> values of parameters by name; `new...` is another name for each call."""
INSTEAD = {"model": "run", "scores": "run", "image_embeddings": "run", "text_embeddings": "run", "image": "text"}
"""Option -> the argument that it stands for."""
VALUES = {
    "no UTF-8": "caf\udce9",
    "NUL": "a\0b",
    "empty": "",
    "long": "x" * 10_000,
    "folder": "folder",
    "full device": "full",
    "empty device": "null",
    "endless device": "zero",
    "noise": "noise",
}


@dataclass(frozen=True)
class Case:
    command: str
    made: click.Command
    option: click.Parameter
    kind: str

    def __str__(self) -> str:
        return f"{self.command} {self.option.opts[0]} {self.kind}"


Named = Iterator[tuple[str, click.Command]]
NO_TEXT = click.Choice | click.types.BoolParamType | click.types.IntParamType | click.types.FloatParamType


def leaves(command: click.Command, context: click.Context, path: tuple[str, ...] = ()) -> Named:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, context, (*path, name))


def cases() -> list[Case]:
    """Models share most options; each is tried at the recommended model."""
    common, found = set(), []
    commands = sorted(leaves(main, click.Context(main)), key=lambda it: it[0] != f"train {RECOMMENDED}")
    for name, made in commands:
        for option in made.params:
            if isinstance(option.type, NO_TEXT) or getattr(option, "is_flag", False):
                continue
            if name.startswith("train "):
                if option.name in common:
                    continue
                common.add(option.name)
            is_text = isinstance(option.type, click.types.StringParamType)
            found += [
                Case(name, made, option, kind)
                for kind in VALUES
                if not (is_text and ("device" in kind or "disk" in kind))
            ]
    return found


def words(case: Case, value: str, number: int) -> list[str]:
    """The command line with good values but for one."""
    values = dict(GOOD.get(case.command, {}))
    values.pop(INSTEAD.get(str(case.option.name), ""), None)
    good = values.get(str(case.option.name))
    suffix = Path(str(good)).suffix if isinstance(good, str) else ""
    values[str(case.option.name)] = [value + suffix if value == "noise" else value]
    arguments, options = [], []
    for parameter in case.made.params:
        given = values.get(str(parameter.name), "x" if parameter.required else None)
        for word in given if isinstance(given, list) else [given]:
            if word is None:
                continue
            text = "" if word is True else re.sub(r"^new", f"new{number}", str(word))
            if isinstance(parameter, click.Argument):
                arguments.append(text)
            else:
                options += [parameter.opts[0], *([] if word is True else [text])]
    return [*case.command.split(), *options, "--", *arguments]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("place")
    before = Path.cwd()
    os.chdir(folder)
    made_data.write(folder)
    data = "--data pairs.jsonl --features features.npz"
    small = "--embed-dim 8 --word-dim 8 --batch-size 16 --epochs 1 --workers 0"
    for line in (
        f"train {RECOMMENDED} {data} --out run {small} -q",
        f"train {RECOMMENDED} {data} --out run2 {small} --seed 1 -q",
        "index build index --run run --split all -q",
        "index backup index backup",
        "embed run --split all --out vectors.npz -q",
        "neighbours build graph --space lsa --data pairs.jsonl --split train --neighbours 5 -q",
        "data corrupt pairs.jsonl --graph graph --out noisy.jsonl --neighbour-ranks 1-5 --labels labels.json",
        "evaluate run --split test --json a.json --per-query a.npz -q",
        "evaluate run2 --split test --json b.json --per-query b.npz -q",
    ):
        answer = CliRunner().invoke(main, line.split())
        assert answer.exit_code == 0, answer.output
    (folder / "folder").mkdir()
    (folder / "folder" / "file.txt").write_text("a dog")
    for name in ("full", "null", "zero"):
        (folder / name).symlink_to(f"/dev/{name}")
    for suffix in ("", ".jsonl", ".npz", ".json", ".csv", ".parquet"):
        (folder / f"noise{suffix}").write_bytes(np.random.default_rng(1).bytes(5000))
    yield folder
    os.chdir(before)


def told(case: Case, number: int) -> str:
    """What a command line with the hostile value says; fails where that is no sentence."""
    line = words(case, VALUES[case.kind], number)
    answer = CliRunner().invoke(main, line)
    brief = [word if len(word) < 100 else f"{word[:10]}..." for word in line]
    failed = answer.exception is not None and not isinstance(answer.exception, SystemExit)
    if failed:
        raise AssertionError(f"{case}: subtext {brief}") from answer.exception
    assert answer.exit_code in (0, 1, 2, 130), (case, brief, answer.output)
    errors = [line for line in answer.output.splitlines() if line.lower().startswith("error: ")]
    assert len(errors) <= 1 and max(map(len, errors), default=0) < 1500, (case, brief, errors)
    assert errors or answer.exit_code not in (1, 2) or case.command == "data check", (case, brief, answer.output)
    return answer.output


def stop(*given: object, **options: object) -> None:
    raise KeyboardInterrupt


def assert_sentences(every: list[Case]) -> None:
    failed = []
    with pytest.MonkeyPatch.context() as patch:
        # A server and a watch have no end of their own, and a demonstration that begins takes minutes.
        for name in ("uvicorn.Server.run", "time.sleep", "subtext.demo.drawings.write_drawings"):
            patch.setattr(name, stop)
        for number, case in enumerate(every):
            try:
                told(case, number)
            except AssertionError as error:
                failed.append(f"{error}: {error.__cause__!r}")
    assert not failed, "\n".join(failed)


def test_some_hostile_values_end_in_a_sentence(place: Path) -> None:
    """Every fifth option, with each of the kinds in turn."""
    every = cases()
    by_option = [[case for case in every if case.option is option] for option in {case.option: 0 for case in every}]
    assert_sentences([kinds[number % len(kinds)] for number, kinds in enumerate(by_option[::5])])


@pytest.mark.slow
def test_every_hostile_value_ends_in_a_sentence(place: Path) -> None:
    every = cases()
    assert {case.command for case in every} >= GOOD.keys() and len(every) > 1500
    assert_sentences(every)


INSIDE = [
    ("train vse --data pairs.jsonl --features features.npz --out new --with", "neighbourhoods:graph=", "with"),
    ("train dual --data pairs.jsonl --features features.npz --out new --with", "distil:teacher=", "with"),
    ("neighbours build new --data pairs.jsonl --space", "features:", "space"),
    ("neighbours build new --data pairs.jsonl --space", "sentence:", "space"),
    ("evaluate run --split test --truth", "eccv=", "truth"),
    ("data check pairs.jsonl --columns", "image=", "columns"),
]


@pytest.mark.parametrize(("line", "before", "option"), INSIDE, ids=[before for _, before, _ in INSIDE])
def test_a_hostile_part_of_a_value_ends_in_a_sentence(place: Path, line: str, before: str, option: str) -> None:
    for kind, value in VALUES.items():
        answer = CliRunner().invoke(main, [*line.split(), f"{before}{value}"])
        assert answer.exception is None or isinstance(answer.exception, SystemExit), (kind, answer.exception)
        assert answer.exit_code in (1, 2) and re.search("(rror|problem): ", answer.output), (kind, answer.output)
        if kind in ("no UTF-8", "NUL"):
            assert f"'--{option}': needs text" in answer.output or f"{option} needs " in answer.output, answer.output


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["search", "index", "caf\udce9 dog"], "needs text in UTF-8; it got 'caf\\xe9 dog'; write it in UTF-8"),
        (
            ["search", "index", "--where", "split = caf\udce9"],
            "'--where': needs text in UTF-8; it got 'split = caf",
        ),
        (["index", "delete", "index", "a\0b"], "needs text without the character NUL; it got 'a\\x00b'"),
        (
            ["data", "check", "caf\udce9.jsonl"],
            "needs a path in UTF-8; it got 'caf\\xe9.jsonl'; rename that",
        ),
        (["data", "check", "full"], "needs a file or a folder; 'full' is a device; name a file or a folder"),
        (["data", "check", ""], "needs the path of a file or folder; it got an empty text; name one"),
        (["data", "check", "x" * 10_000], "and 9,920 more characters cannot: File name too long; name another"),
        (
            ["evaluate", "run", "--json", "null"],
            "needs a file or a folder; 'null' is a device; name a",
        ),
    ],
)
def test_the_sentence_says_what_was_given(place: Path, line: list[str], wanted: str) -> None:
    answer = CliRunner().invoke(main, line)
    assert answer.exit_code == 2 and wanted in answer.output, answer.output


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: subtext.read("a\0b.jsonl"), "b.jsonl does not exist"),
        (lambda: subtext.DataConfig("caf\udce9"), "data needs a path in UTF-8; it got 'caf"),
        (lambda: subtext.DataConfig("a.jsonl", text_fields="a\0b"), "text_fields needs text without the character NUL"),
        (lambda: subtext.search("index", "caf\udce9"), "text needs text in UTF-8; it got 'caf"),
        (lambda: subtext.search("full", "a dog"), "index needs a file or a folder; 'full' is a device"),
        (lambda: subtext.open_index("full"), "full"),
    ],
)
def test_python_refuses_the_same_values(place: Path, call: Callable[[], object], wanted: str) -> None:
    with pytest.raises(SubtextError) as caught:
        call()
    assert wanted in str(caught.value)


def test_a_locale_without_unicode_ends_in_a_sentence(place: Path) -> None:
    """The C locale with the UTF-8 mode of Python switched off: arguments and output are ASCII."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for *line, wanted in (
        ("search", "index", "日本 🐶", "error: "),
        ("search", "index", "a dog", "photo"),
        ("index", "delete", "index", "ü日本🐶", "-y", "error: "),
        ("data", "check", "ü.jsonl", "error: "),
    ):
        answer = subprocess.run(
            [sys.executable, "-m", "subtext", *line], capture_output=True, env=environment, timeout=60, check=False
        )
        output = (answer.stdout + answer.stderr).decode()
        assert wanted.lower() in output.lower() and "Traceback" not in output, output
        if wanted == "error: ":
            assert answer.returncode == 2 and "set PYTHONUTF8=1, or a locale of UTF-8" in output


class Broken(io.FileIO):
    """A file that opens and cannot be read: the disk reports an error, without the name of the file."""

    def readinto(self, *given: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    readall = read = readinto  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("data check pairs.jsonl", "pairs.jsonl"),
        ("data check noisy.csv", "noisy.csv"),
        ("data check pairs.jsonl --features features.npz", "features.npz"),
        ("train dual --data pairs.jsonl --out new", "pairs.jsonl"),
        ("train dual --data pairs.jsonl --features features.npz --out new", "features.npz"),
        ("evaluate run --split test", "run.json"),
        ("evaluate --scores vectors.npz --data pairs.jsonl --split test", "vectors.npz"),
        ("index import new vectors.npz", "vectors.npz"),
        ("index delete index --ids-from ids.txt", "ids.txt"),
        ("index verify index", "manifest.json"),
        ("compare a.json b.json", "a.json"),
        ("data detect-noise run --labels labels.json --graph graph", "labels.json"),
        ("neighbours show graph --data pairs.jsonl", "pairs.jsonl"),
    ],
)
def test_an_error_of_the_disk_names_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str
) -> None:
    (place / "ids.txt").write_text("photo000.jpg")
    (place / "noisy.csv").write_text("image,text\na.png,a dog\n")
    plain = io.open

    def opened(name: object, mode: str = "r", *given: object, **options: object) -> object:
        if "r" not in mode or not isinstance(name, str | Path) or Path(name).name != file:
            return plain(name, mode, *given, **options)  # type: ignore[call-overload]
        buffered = io.BufferedReader(Broken(name))
        return buffered if "b" in mode else io.TextIOWrapper(buffered, "utf-8")

    monkeypatch.setattr("io.open", opened)
    monkeypatch.setattr("builtins.open", opened)
    answer = CliRunner().invoke(main, line.split())
    assert isinstance(answer.exception, SystemExit), answer.exception
    named = "index" if file == "manifest.json" else file
    assert answer.exit_code == 1 and named in answer.output, answer.output
    assert "nput/output error" in answer.output or "disk" in answer.output, answer.output


def test_after_an_error_behind_the_rename_the_new_content_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder cannot be flushed; before the rename the old content stands."""
    plain = os.fsync

    def broken(descriptor: int, *, of_folder: bool) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == of_folder:
            raise OSError(errno.EIO, "Input/output error")
        plain(descriptor)

    file = tmp_path / "a.json"
    write_text(file, "old")
    monkeypatch.setattr(os, "fsync", partial(broken, of_folder=False))
    with pytest.raises(OutputError, match=r"a\.json needs to be written, .*reports an error; what stood there before"):
        write_text(file, "new")
    assert file.read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["a.json"]
    monkeypatch.setattr(os, "fsync", partial(broken, of_folder=True))
    with pytest.raises(OutputError, match=r"a\.json is written, but may be lost .*the new content stands; look to"):
        write_text(file, "new")
    assert file.read_text() == "new"
