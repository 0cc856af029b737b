"""Rows of one's own in a published table, and the Python files that their methods stand in."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reproduce.tables.specification import PublishedTable, Row, System
from subtext.errors import ArgumentError
from subtext.recipes.catalogue import models
from subtext.settings import did_you_mean

_FORM = "NAME=MODEL[:OPTION=VALUE,...][+METHOD[:OPTION=VALUE,...]...]"


def read_code(file: Path) -> str:
    """Run a Python file, which registers methods; gives a digest of what it says.

    Raises ArgumentError where it cannot be read or run.
    """
    file = file.expanduser()
    if not file.is_file():
        raise ArgumentError(f"--import needs a Python file; {file} is not there")
    name = f"reproduce_own_{hashlib.blake2b(str(file.resolve()).encode(), digest_size=5).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"--import needs a Python file, .py; it got {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise ArgumentError(f"--import {file} needs to run: {type(problem).__name__}: {problem}") from problem
    return hashlib.blake2b(file.read_bytes(), digest_size=5).hexdigest()


def with_own_rows(table: PublishedTable, texts: Sequence[str], code: str = "") -> PublishedTable:
    """The table with rows of one's own below its own ones, each tested against the row whose options it has.

    code  digest of the files with their methods: other code makes other runs

    Raises ArgumentError for a text of another form, a name that is taken, and an unknown model or method.
    """
    rows = list(table.rows)
    for text in texts:
        name, equals, rest = text.partition("=")
        model, *methods = (_part(each, text) for each in rest.split("+"))
        if not equals or not name.strip() or not all(part for part, _ in (model, *methods)):
            raise ArgumentError(f"--add-row needs the form {_FORM}; it got '{text}'")
        if name in {row.key for row in rows}:
            raise ArgumentError(f"--add-row needs a name of its own; the table has a row '{name}' already")
        if model[0] not in models():
            raise ArgumentError(f"--add-row {text}: {did_you_mean('model', model[0], models())}")
        same = [row for row in table.rows if row.system is not None and row.system.model == model[0]]
        base = min(same, key=lambda row: len(row.system.methods) if row.system else 0, default=None)
        options = dict(base.system.options) if base is not None and base.system is not None else {}
        for option, value in model[1].items():
            options.pop(option, None)
            if value:
                options[option] = value
        plan = {} if base is None or base.system is None else base.system.plan
        system = System(model[0], options, tuple(methods), plan, code)
        if lacks := replace(system, options=model[1]).lacks():
            raise ArgumentError(f"--add-row {text} needs {lacks}, which is not there; --import FILE registers methods")
        rows.append(Row(name, name, system, (None,) * len(table.columns), baseline=base.key if base else ""))
    return replace(table, rows=tuple(rows))


def _part(text: str, whole: str) -> tuple[str, Mapping[str, object]]:
    """The name of a model or method, and its options."""
    name, _, options = text.partition(":")
    assigned: dict[str, object] = {}
    for each in filter(None, options.split(",")):
        option, equals, value = each.partition("=")
        if not equals:
            raise ArgumentError(f"--add-row needs options as OPTION=VALUE; it got '{each}' in '{whole}'")
        assigned[option.strip().replace("-", "_")] = value
    return name.strip(), assigned
