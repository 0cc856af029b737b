"""Small JSON files of settings that an Input writes beside a model's weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subtext.data.atomic import write_text
from subtext.errors import CheckpointError


def write_settings(path: Path, values: object) -> None:
    """Write JSON whole or not at all.

    Raises OutputError when there is no room, or no right to write.
    """
    write_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def read_settings(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The named settings of a JSON object.

    Raises CheckpointError when the file is missing, is no JSON object, or lacks one of them.
    """
    values = read_json(path)
    if not isinstance(values, dict) or any(name not in values for name in names):
        raise CheckpointError(f"{path} needs the settings {', '.join(names)}; it is another recipe's, or damaged")
    return {name: values[name] for name in names}


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises CheckpointError when it is missing or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"a saved input needs {path.name}; {path} is not there") from error
    except (UnicodeDecodeError, json.JSONDecodeError, OSError) as error:
        raise CheckpointError(f"{path} needs to be JSON; reading it failed: {error}") from error


def settings_hash(values: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that change with any of the settings."""
    coded = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str).encode()
    return hashlib.blake2b(coded, digest_size=8).hexdigest()
