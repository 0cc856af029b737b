"""The documents' commands and code run as they are written, on made data under the names that the documents use."""

from __future__ import annotations

import doctest
import itertools
import json
import math
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from click.testing import CliRunner
from find_parts import ROOT

from subtext.cli import main
from subtext.data.read import read
from subtext.recipes.catalogue import RECOMMENDED

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{name}.md" for name in ("tutorial", "concepts", "choosing", "answers", "two_stages")),
    *(f"docs/{name}.md" for name in ("serving", "scaling", "training_at_scale", "care", "datasets", "python")),
    "reproduce/README.md",
)
RUN_AS_CODE = ("python",)
RUN_AS_COMMANDS = ("bash", "console")
SHOWN_ONLY = {
    "": "trees and diagrams",
    "json": "data: read by a test of its own",
    "ini": "a unit of systemd",
    "nginx": "a proxy's settings",
    "dockerfile": "a container's recipe",
    "text": "code that reads pickles, which nobody should run unread",
}
"""Languages of blocks that are not run, and why. Commands may not stand in them."""

NOT_RUN = {
    "subtext serve ": "never ends; tests/server runs it",
    "make ": "installs packages from the network; that its targets exist is tested instead",
    "torchrun ": "starts several processes; test_processes.py runs some (slow)",
    "ray ": "starts a cluster; test_ray.py runs one (slow)",
    ".venv/bin/python -m pytest ": "runs the tests",
    "CHECK_SHAPES=0 .venv/bin/python -m pytest ": "runs the tests",
    "pip ": "installs packages from the network",
    "docker ": "needs Docker",
    "curl ": "needs a server",
    "export PGPASSWORD": "sets a password",
    "export AWS_ACCESS_KEY_ID": "sets a password",
    "subtext index build s3:": "needs an object store; test_lance.py runs the same on a made one",
    "subtext search s3:": "needs an object store; test_lance.py runs the same on a made one",
    "subtext index compact s3:": "needs an object store; test_lance.py runs the same on a made one",
    "subtext index info s3:": "needs an object store; test_lance.py asks a made one",
    "subtext index build library --model starter --data s3:": "needs an object store; test_images_in_stores.py has one",
    "subtext index build library --model starter --data list.csv --images s3:": "needs an object store, as well",
    "subtext search library --image s3:": "needs an object store, as well",
    "subtext export runs/first --onnx ": "needs a process of its own and ten seconds; test_export.py runs it (slow)",
    "subtext index build 'postgresql:": "needs PostgreSQL; tests/retrieval/stores/test_postgres.py runs it",
    "subtext search 'postgresql:": "needs PostgreSQL; tests/retrieval/stores/test_postgres.py runs it",
    "subtext index compact 'postgresql:": "needs PostgreSQL; tests/retrieval/stores/test_postgres.py runs it",
    "subtext index calibrate library --data photos.jsonl": "needs more data; test_calibration.py runs it",
    "subtext index ocr library": "reads by networks that take half a minute; test_machine_texts.py runs them (slow)",
    "subtext index texts library captions.csv ": "needs texts of a machine; test_machine_texts.py has some",
    "subtext score claims.jsonl ": "needs a calibrated index; test_curate.py runs it",
    "subtext curate pairs.jsonl ": "needs more data; test_curate.py runs it",
    "subtext data check list.csv ": "needs a table of another program; test_foreign_tables.py reads made ones",
    "subtext data check coco ": "needs COCO; test_published_datasets.py reads a made one",
    "python -m reproduce data ": "needs published data; test_published_datasets.py reads made ones",
    "python -m reproduce neighbours build graph --data politics ": "the same",
    "subtext data dedup politics2.jsonl ": "needs Politics; test_published_datasets.py reads a made one",
    "python -m reproduce.tables cvprw2022_table3 --data politics": "needs Politics",
}
"""What commands start with that are not run, and why. Their options are compared with the command's help."""

FIRST = (
    "subtext train --data captions.jsonl --out runs/first --epochs 1 --quiet",
    "subtext index build library --run runs/first --split all --quiet",
)
LONG = ("docs/tutorial.md", "docs/two_stages.md", "docs/datasets.md")
"""Take more than twenty seconds."""

WEIGHTED = (
    "subtext neighbours build graph --data captions.jsonl --space lsa --dim 8 --neighbours 4 --quiet",
    "subtext train vse --data captions.jsonl --features features.npz --out runs/plain --batch-size 8 --epochs 1",
    "subtext train vse --data captions.jsonl --features features.npz --out runs/diverse --batch-size 8 --epochs 1 "
    "--with diversity:graph=graph,first_epoch=encode",
)
BEFORE = {"docs/care.md": FIRST, "docs/answers.md": FIRST, "reproduce/README.md": WEIGHTED}
"""Commands of other pages that a page builds on."""

SHORT = " --epochs 1"
"""What is added to a training that says no number of epochs, so that it takes seconds."""

NUMBER = re.compile(r"(?P<duration>\d+(?:\.\d+)? (?:ms|s|min)\b)|(?P<decimal>-?\d+\.\d+)|(?P<any>\.\.\.)")
"""What may differ between what a document shows and what is printed. `...` stands for any text, also over lines."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the document, the line that it starts on, its language and what stands in it."""

    document: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[tuple[str, str | None]]:
        """Its commands as a shell sees them, each with the output that is shown; None where none is shown at all.

        Continued lines are joined; comments and empty lines are left out.
        """
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language != "console":
            return [(line, None) for line in lines if shlex.split(line, comments=True)]
        commands: list[tuple[str, str | None]] = []
        for line in lines:
            if line.startswith("$ "):
                commands.append((line.removeprefix("$ "), ""))
            else:
                command, output = commands[-1]
                commands[-1] = (command, f"{output}{line}\n")
        return commands


def difference(shown: str, printed: str) -> str:
    """How what was printed differs from what a document shows; an empty text if it does not.

    Words, lines and whole numbers must be the same. Durations may differ, and decimal numbers by a fifth or 0.1, as
    another processor may round otherwise; so may the number of spaces between columns.
    """
    shown, printed = (
        re.sub(r"  +", "  ", re.sub(r" +$", "", text, flags=re.M)).strip("\n") for text in (shown, printed)
    )
    pattern, end, numbers = "", 0, []
    for found in NUMBER.finditer(shown):
        pattern += re.escape(shown[end : found.start()])
        pattern += {"duration": r"[\d.]+ (?:ms|s|min)", "decimal": r"(-?\d+\.\d+)", "any": ".*?"}[str(found.lastgroup)]
        end = found.end()
        if found["decimal"]:
            numbers.append(float(found["decimal"]))
    match = re.fullmatch(pattern + re.escape(shown[end:]), printed, flags=re.DOTALL)
    near = match and all(
        math.isclose(number, float(other), rel_tol=0.2, abs_tol=0.1)
        for number, other in zip(numbers, match.groups(), strict=True)
    )
    return "" if near else f"shown:\n{shown}\nprinted:\n{printed}\n"


class Session(doctest.OutputChecker):
    """Compares what a Python session shows as `difference` does."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not difference(want, got)


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield Block(document, text[: found.start()].count("\n") + 2, found[1], found[2])


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents say that a reader has: the example archive, features of its images, pretrained models."""
    place = tmp_path_factory.mktemp("supplies") / "archive"
    shutil.copytree(ROOT / "examples" / "archive", place)
    for name in ("images", "photos"):
        shutil.copytree(place, place.parent / name, ignore=shutil.ignore_patterns("captions.jsonl", "draw.py"))
        (place.parent / name).rename(place / name)
    names = np.array([json.loads(line)["image"] for line in (place / "captions.jsonl").read_text().splitlines()])
    grid = np.random.default_rng(0).normal(size=(len(names), 4, 8)).astype(np.float32)
    np.savez(place / "features.npz", names=names, pooled=grid.mean(axis=1), grid=grid)
    # A name that is a folder is that folder.
    tiny_models.clip(place / "openai" / "clip-vit-base-patch32")
    tiny_models.processed("siglip2", place / "google" / "siglip2-base-patch16-224")
    return place


@pytest.mark.parametrize(
    "document", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in DOCUMENTS]
)
@pytest.mark.usefixtures("starter_chosen")
def test_document_examples_run(document: str, supplies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(supplies, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for command in BEFORE.get(document, ()):
        run_command(command, document)
    for block in blocks(document):
        where = f"{document}:{block.line}"
        if block.language in RUN_AS_COMMANDS:
            for command, shown in block.commands:
                short = shown is None and re.match("subtext train (?!.*--(epochs|help))", command)
                run_command(command.partition("  #")[0] + SHORT if short else command, where, shown)
        elif block.language in RUN_AS_CODE:
            run_code(block, names)
        else:
            assert block.language in SHOWN_ONLY, f"{where}: a block of a language that no test knows"


def run_command(command: str, where: str, shown: str | None = None) -> None:
    """Run one line, in this process; it must end well, and print what is shown to standard output."""
    program, *words = shlex.split(command, comments=True)
    if program == "make":
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in words), f"{where}: {command}"
    if command.startswith(tuple(NOT_RUN)):
        assert not shown, f"{where}: {command}: its output is not compared"
        if program == "subtext":
            assert_options_exist(words, where)
    elif command.startswith("python -m "):
        run_module(words[1], words[2:], where)
    else:
        assert program == "subtext", f"{where}: {command}: only subtext and modules are run"
        answer = CliRunner().invoke(main, words)
        assert answer.exit_code == 0, f"{where}: {command}\n{answer.output}\n{answer.exception!r}"
        differs = "" if shown is None else difference(shown, answer.stdout)
        assert not differs, f"{where}: {command}\n{differs}"


def run_module(module: str, words: list[str], where: str) -> None:
    """Run `python -m MODULE`, in this process; it must end well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *words])
        patch.delitem(sys.modules, f"{module}.__main__", raising=False)  # Other tests import it; runpy warns of that.
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            assert not end.code, f"{where}: python -m {module} {' '.join(words)}: exit code {end.code}"


def assert_options_exist(words: list[str], where: str) -> None:
    """The command must exist, and have the options."""
    names = list(itertools.takewhile(lambda word: re.fullmatch(r"[a-z][a-z-]*", word), words))
    while names:
        answer = CliRunner().invoke(main, [*names, *([RECOMMENDED] if names == ["train"] else []), "--help"])
        if answer.exit_code == 0 and "COMMAND [ARGS]" not in answer.output:
            break
        names.pop()  # The last word was an argument.
    assert names, f"{where}: subtext {' '.join(words)}: no such command"
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    unknown = given - set(re.findall(r"--[\w-]+", answer.output))
    assert not unknown, f"{where}: subtext {' '.join(words)}"


def run_code(block: Block, names: dict[str, object]) -> None:
    """Run a block with the names that earlier ones left; where it is a session, what it shows must be what comes."""
    if not block.text.startswith(">>>"):
        exec(compile(block.text, f"{block.document}:{block.line}", "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, block.document, block.document, block.line - 1)
    runner = doctest.DocTestRunner(checker=Session())
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(said)


def test_every_exception_is_a_command_of_a_document() -> None:
    commands = [
        command
        for name in DOCUMENTS
        for block in blocks(name)
        if block.language in RUN_AS_COMMANDS
        for command, _ in block.commands
    ]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in commands)] == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("image  0.42\n", "image  0.41\n", True),
        ("image  0.42\n", "image  0.82\n", False),
        ("recall  58.3\n", "recall  41.7\n", False),
        ("12 images, 3 s\n", "12 images, 140 ms\n", True),
        ("12 images\n", "13 images\n", False),
        (".../gavel-1.png\n", "/tmp/gavel-1.png\n", True),
        (".../gavel-1.png\n", "/tmp/gavel-2.png\n", False),
        ("first\n...\nlast\n", "first\nmany\nlines\nlast\n", True),
        ("first\n", "first\nlast\n", False),
        ("", "first\n", False),
    ],
)
def test_only_small_differences_of_numbers_and_durations_are_ignored(shown: str, printed: str, same: bool) -> None:
    assert (not difference(shown, printed)) == same


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_command_is_in_an_unrun_block(document: str) -> None:
    hidden = [
        (block.line, line)
        for block in blocks(document)
        if block.language in SHOWN_ONLY and block.language != "text"
        for line in block.text.splitlines()
        if re.match(r"(\$ )?(subtext|make|python|pip|import|from) ", line)
    ]
    assert not hidden


@pytest.mark.parametrize("document", ["docs/tutorial.md", "docs/datasets.md"])
def test_shown_rows_are_readable(document: str, supplies: Path, tmp_path: Path) -> None:
    images = shutil.copytree(supplies / "images", tmp_path / "images")
    for name, other in (("gavel-1.png", "a.jpg"), ("flag-1.png", "b.jpg")):
        shutil.copy(images / name, images / other)
    shown = [block for block in blocks(document) if block.language == "json"]
    assert shown
    for block in shown:
        (tmp_path / "rows.jsonl").write_text(block.text, encoding="utf-8")
        reading = read(tmp_path / "rows.jsonl", images=images)
        problems = [problem.what for problem in reading.problems if "are in no row" not in problem.what]
        assert len(reading.images) == len(block.text.splitlines()) and not problems


@pytest.mark.parametrize("document", DOCUMENTS)
def test_inline_commands_use_existing_options(document: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"`subtext ([^`]+)`", text):
        words = [word for word in command.split() if word.islower() or word.startswith("--")]
        if words and words != ["--help"]:
            assert_options_exist(words, document)
