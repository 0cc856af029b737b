"""The command line answers a question for help at once: nothing heavy is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "pyarrow", "transformers", "PIL", "numba", "faiss", "accelerate", "rich", "safetensors")
PROBE = f"""
import json, sys
from subtext.cli import main
code = None
try:
    main(sys.argv[1:])
except SystemExit as done:
    code = done.code
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)
"""
QUESTIONS = [
    ["--help"],
    ["--version"],
    ["train", "--help"],
    ["train", "vse", "--help"],
    ["train", "pvse", "--help"],
    ["data", "check", "--help"],
    ["evaluate", "--help"],
    ["embed", "--help"],
    ["index", "build", "--help"],
    ["neighbours", "build", "--help"],
    ["neighbours", "show", "--help"],
    ["search", "--help"],
    ["score", "--help"],
    ["curate", "--help"],
    ["index", "calibrate", "--help"],
    ["serve", "--help"],
    ["runs", "--help"],
    ["demo", "--help"],
    ["export", "--help"],
    ["audit", "--help"],
]


def ask(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    answer = ask(words)
    code, heavy = json.loads(answer.stderr.splitlines()[-1])
    assert (code, heavy) == (0, [])
    assert answer.stdout


@pytest.mark.parametrize("words", [["train", "vsee", "--data", "d", "--out", "r"], ["trian"]], ids=" ".join)
def test_wrong_command_exits_without_heavy_imports(words: list[str]) -> None:
    code, heavy = json.loads(ask(words).stderr.splitlines()[-1])
    assert (code, heavy) == (2, [])
