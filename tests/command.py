"""The command line as a test calls it."""

from __future__ import annotations

from click.testing import CliRunner, Result


def call(*words: object, code: int = 0) -> Result:
    """What the command line answers, which must end with that exit code."""
    from subtext.cli import main

    answer = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert answer.exit_code == code, answer.output
    return answer
