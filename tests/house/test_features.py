"""Nothing gets lost in the move: `features.txt` against the code that `list_features` walks."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache

import click
from list_features import CLI as CLI_PLACES, METHODS, ROOT, figures, imported, listed, mentioned, thing, walk

from subtext.errors import RecipeError

STRICT = True
"""True at the end of the move: new names have to be there, old ones of commands and options work as hidden aliases,
what is dropped is gone."""

RENAMED, MOVED, DROPPED = "renamed to ", "moved to reproduce: ", "dropped: "
BY_COMMAND = ("command", "option", "choice", "argument")
ALIASES = (*BY_COMMAND[:3], "model option", "model choice", "method option", "python name")
"""Kinds whose old names a user may have in a script."""
BY_MENTION = ("figure", "value", "server metric")
"""Kinds of which the code may hold a piece alone: a part of an f-string, a prefix."""
ADVICE = "add it to tests/features.txt (fate: new), or rename it there"

Feature = tuple[str, str]
LISTED = listed()
COMMANDS = {n: f.removeprefix(RENAMED) for (k, n), f in LISTED.items() if k == "command" and f.startswith(RENAMED)}


@cache
def walked() -> frozenset[Feature]:
    """Every feature that the code has now, under its name of the list."""
    return frozenset(canonical(kind, name) for kind, name in (*walk(), *figures()))


def canonical(kind: str, name: str) -> Feature:
    """A feature with the new name of its command, where the command is renamed."""
    if kind in BY_COMMAND:
        for old, new in COMMANDS.items():
            if name == old or name.startswith(f"{old} "):
                return kind, new + name.removeprefix(old)
    return kind, name


def has(kind: str, name: str) -> bool:
    """Whether the code has a feature of that name."""
    return canonical(kind, name) in walked() or (kind in BY_MENTION and said(kind, name))


def said(kind: str, name: str) -> bool:
    """Whether strings of the code have every piece of this name."""
    if kind == "value":
        name = name.rpartition(" ")[2]
    elif kind == "server metric":
        name = name.removeprefix("subtext_").removesuffix("_total")
    pieces = re.split(r"DIRECTION/|[A-Z]{2,}|\bK\b|[@()/]", name) if kind == "figure" else [name]
    return all(mentioned(piece) for piece in pieces if len(piece) > 2)


def reproduced(fate: str) -> bool:
    """Whether `reproduce` has a module: "python -m reproduce.tables NAME", or "reproduce.systems" alone.

    Words after it are subcommands, options and keys: each has to stand in the sources that it is made of.
    """
    module, *words = fate.removeprefix(MOVED).removeprefix("python -m ").split()
    place = ROOT / module.replace(".", "/")
    if not (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()):
        return False
    return all(_stands(word) for word in words if word != "MODEL")


def _stands(word: str) -> bool:
    name = word.removeprefix("--").replace("-", "_").lower()
    return bool({word, name} & _words()) or re.search(rf"\b{re.escape(word)}\b", _sources()) is not None


@cache
def _sources() -> str:
    tops = [ROOT / top for top in ("reproduce", "src/subtext")]
    files = [file for top in tops for suffix in ("py", "json") for file in sorted(top.rglob(f"*.{suffix}"))]
    return "\n".join(f"{file.stem}\n{file.read_text(encoding='utf-8')}" for file in files)


@cache
def _words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", _sources()))


def works(kind: str, name: str, new: str) -> bool:
    """Whether an old name is still understood."""
    if kind == "python name":
        package, _, name = name.rpartition(".")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return package != "subtext" or imported(f"{package}:{name}") is not None
    if kind.startswith("method"):
        method, _, option = name.partition(":")
        recipe = thing(METHODS)()[method]
        value = next(each.default for each in recipe.options if each.name == new.partition(":")[2])
        try:
            recipe.arguments({option: value})
        except RecipeError:
            return False
        return True
    words = name.replace("MODEL", "vse").split()
    return understood(["train", *words] if kind.startswith("model") else words)


def understood(words: list[str]) -> bool:
    """Whether the command line takes these words: a command, and perhaps an option and its value."""
    command: click.Command = thing(CLI_PLACES)
    while words and not words[0].startswith("--"):
        if not isinstance(command, click.Group):
            return False
        inner = command.get_command(click.Context(command), words.pop(0))
        if inner is None:
            return False
        command = inner
    try:
        command.make_context("subtext", list(words))
    except click.NoSuchOption as error:
        return error.option_name != words[0]
    except click.BadParameter as error:
        return len(words) == 1 or isinstance(error, click.MissingParameter)
    except (click.UsageError, click.exceptions.Exit):
        return True
    return True


def wrong(kind: str, name: str, fate: str) -> str:
    """What is wrong with a line of the list; empty where nothing is."""
    if fate in ("kept", "new"):
        return "" if has(kind, name) else "the code does not have it"
    if fate.startswith(RENAMED):
        new = fate.removeprefix(RENAMED)
        if not has(kind, new):
            return f"the code does not have '{new}'" if STRICT or not has(kind, name) else ""
        return "" if not STRICT or kind not in ALIASES or works(kind, name, new) else "the old name no longer works"
    if fate.startswith(MOVED):
        there = reproduced(fate)
        if STRICT and there and kind in BY_COMMAND and has(kind, name):
            return "the command is still there as well"
        return "" if there or (not STRICT and has(kind, name)) else f"'{fate.removeprefix(MOVED)}' does not exist"
    if fate.startswith(DROPPED) and len(fate) > len(DROPPED):
        return "the code still has it" if STRICT and has(kind, name) else ""
    return "a fate is: kept, new, renamed to NAME, moved to reproduce: MODULE, or dropped: REASON"


def test_every_feature_of_the_code_is_listed():
    known = {canonical(*feature) for feature, fate in LISTED.items() if not (STRICT and fate.startswith(DROPPED))}
    known |= {canonical(kind, f.removeprefix(RENAMED)) for (kind, _), f in LISTED.items() if f.startswith(RENAMED)}
    missing = sorted(f"{kind} | {name}" for kind, name in walked() - known)
    assert not missing, f"not listed; {ADVICE}:\n" + "\n".join(missing)


def test_every_listed_feature_has_its_fate():
    told = [f"{k} | {n} | {f}: {problem}" for (k, n), f in LISTED.items() if (problem := wrong(k, n, f))]
    assert not told, "\n".join(told)


def test_no_two_features_are_renamed_to_the_same():
    new = [(kind, f.removeprefix(RENAMED) if f.startswith(RENAMED) else name) for (kind, name), f in LISTED.items()]
    twice = [f"{kind} | {name}" for (kind, name), count in Counter(new).items() if count > 1]
    assert not twice, "\n".join(twice)


def test_the_walk_finds_every_kind():
    assert {kind for kind, _ in LISTED} - {kind for kind, _ in walked()} <= {"value", "server metric"}


def test_an_option_that_there_is_not_is_not_understood():
    assert understood(["evaluate", "--split"])
    assert not understood(["evaluate", "--telepathy"])
    assert not understood(["telepathy"])
    assert understood(["evaluate", "--ties", "expected"])
    assert not understood(["evaluate", "--ties", "telepathy"])
