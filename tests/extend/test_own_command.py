"""A command from outside of the package: one function, and an entry point that names it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated

import pytest
from click.testing import CliRunner

from subtext.cli import main


def colours(
    folder: Annotated[str | Path, "Folder to look into."],
    *,
    limit: Annotated[int, "Most names to print."] = 2,
) -> str:
    """Print the names of a folder.

    limit  how many
    """
    return ", ".join(sorted(path.name for path in Path(folder).iterdir())[:limit])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path whose metadata has the entry point, as an installer writes it."""
    package = tmp_path / "site" / "colours-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: colours\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[subtext.commands]\ncolours = {__name__}:colours\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[colours.__module__])
    importlib.metadata.MetadataPathFinder().invalidate_caches()


def test_own_command_takes_options_from_its_signature(installed: None, tmp_path: Path) -> None:
    for name in ("red", "blue", "green"):
        (tmp_path / "names" / name).mkdir(parents=True)
    run = CliRunner()
    assert run.invoke(main, ["colours", str(tmp_path / "names")]).output == "blue, green\n"
    assert run.invoke(main, ["colours", str(tmp_path / "names"), "--limit", "1"]).output == "blue\n"
    wrong = run.invoke(main, ["colours", str(tmp_path / "names"), "--limit", "many"])
    assert wrong.exit_code == 2 and "'many' is not a valid integer" in wrong.output


def test_help_lists_own_command(installed: None) -> None:
    run = CliRunner()
    assert "Commands of other packages" in run.invoke(main, ["--help"]).output
    help_text = run.invoke(main, ["colours", "--help"]).output
    assert "Most names to print." in help_text and "Print the names of a folder." in help_text
    assert "did you mean colours" in run.invoke(main, ["colors"]).output


def test_unloadable_command_gives_one_sentence(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules[__name__], "colours")
    broken = CliRunner().invoke(main, ["colours"])
    assert broken.exit_code == 1 and f"Error: colours of {__name__}:colours cannot be loaded" in broken.output


def test_command_is_absent_without_its_package() -> None:
    absent = CliRunner().invoke(main, ["colours"])
    assert absent.exit_code == 2 and "colours" in absent.output
    assert "other packages" not in CliRunner().invoke(main, ["--help"]).output
