"""Who may import whom: the contracts stand in pyproject.toml."""

from __future__ import annotations

from find_parts import ROOT
from importlinter.cli import lint_imports


def test_import_contracts_hold(capsys):
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out
