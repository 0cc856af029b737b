"""Metadata inside image files, written by ExifTool (Debian: libimage-exiftool-perl), which is no part of Subtext."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

EXIFTOOL = shutil.which("exiftool")
needed = pytest.mark.skipif(
    EXIFTOOL is None and "CI" not in os.environ, reason="needs ExifTool (apt-get install libimage-exiftool-perl)"
)
"""A mark for tests of metadata in files: left out on a desk without ExifTool, failed in CI."""


def write(tags: Mapping[Path, Mapping[str, object]], *options: str) -> None:
    """Write the tags of each file, all by one call; `options` are ExifTool's own."""
    assert EXIFTOOL is not None, "metadata is tested with ExifTool; apt-get install libimage-exiftool-perl"
    rows = [{"SourceFile": str(file), **values} for file, values in tags.items()]
    folder = next(iter(tags)).parent
    table = folder.parent / "tags.json"
    table.write_text(json.dumps(rows), encoding="utf-8")
    files: Sequence[str] = [str(file) for file in tags]
    command = [EXIFTOOL, "-q", "-q", "-m", "-overwrite_original", f"-json={table}", *options, *files]
    subprocess.run(command, check=True, capture_output=True, text=True)
