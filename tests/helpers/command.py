"""The command lines as a test calls them."""

from __future__ import annotations

import importlib
from typing import Any

import click
from click.testing import CliRunner, Result

REPRODUCE = {name: f"reproduce.{name}s.__main__" for name in ("table", "figure")} | {
    name: f"reproduce.{name}.__main__" for name in ("gallery", "weights")
}
"""First word -> the module of a command of `reproduce`; all others are those of `subtext`."""


def call(*words: object, code: int = 0) -> Result:
    """Run a command, which must end with that exit code."""
    answer = invoke(*words, catch_exceptions=False)
    assert answer.exit_code == code, answer.output
    return answer


def invoke(*words: object, **options: Any) -> Result:
    """Run a command."""
    from subtext.cli import main

    arguments, program = [str(word) for word in words], main
    if arguments and arguments[0] in REPRODUCE:
        program = importlib.import_module(REPRODUCE[arguments.pop(0)]).main
    assert isinstance(program, click.Command)
    return CliRunner().invoke(program, arguments, **options)
