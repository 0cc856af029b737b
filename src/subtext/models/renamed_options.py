"""Options of recipes, methods and plans that earlier versions called otherwise.

Records of earlier runs are read through these tables, and the command line takes the old names for one more release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TABLES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PLAN: dict[str, str] = _TABLES["plan"]
"""Old name -> name, of the training plan."""
VALUES: dict[str, dict[str, str]] = _TABLES["values"]
"""Option -> old value -> its name now."""


def of_model(name: str) -> Mapping[str, str]:
    """Old name -> name, for the options of a model."""
    return {**_TABLES["all models"], **_TABLES["models"].get(name, {})}


def of_method(name: str) -> Mapping[str, str]:
    """Old name -> name, for the options of a method."""
    renamed: dict[str, str] = _TABLES["methods"].get(name, {})
    return renamed


def current(options: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Options under the names and with the values that they have now; new names stay."""
    result: dict[str, Any] = {}
    for old, value in options.items():
        name = renamed.get(old, old)
        result[name] = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    return result


def current_record(record: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a record, or of a member of an ensemble, with today's names."""
    record = {("model" if name == "host" else name): value for name, value in record.items()}
    if isinstance(arguments := record.get("arguments"), dict):
        record["arguments"] = current(arguments, of_model(str(record.get("model"))))
        if isinstance(members := arguments.get("members"), list):
            record["arguments"]["members"] = [current_record(member) for member in members]
    if isinstance(plan := record.get("plan"), dict):
        record["plan"] = current(plan, PLAN)
    if isinstance(methods := record.get("methods"), list):
        record["methods"] = [[name, current(options, of_method(name))] for name, options in methods]
    return record
