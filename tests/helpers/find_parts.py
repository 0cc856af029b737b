"""Finding parts by walking the package: a new file is tested because it exists."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import subtext
from subtext.errors import RequirementError

SOURCE = Path(subtext.__file__).parent
ROOT = SOURCE.parent.parent
HELPERS = Path(__file__).resolve().parent
"""The folder of the tests' helpers."""

REQUIRED: dict[str, dict[str, Any]] = {
    "Rank": {"direction": "image_to_text"},
    "Uniform": {"total": 6.0},
    "Random": {"total": 6.0},
    "Density": {"total": 6.0},
    "DAA": {"variant": "rows"},
    "SmoothAP": {"variant": "rows"},
    "Cosines": {"direction": "image_to_text"},
    "DistanceSampling": {"direction": "image_to_text"},
    "Hubs": {"direction": "image_to_text"},
    "Neighbourhood": {"total": 6.0, "combine": "absdiff", "placement": "both", "statistics": "none"},
}
"""Arguments of the classes that have no default for them; the only table to which a new part may have to be added."""


def module_names(package: str = "subtext") -> list[str]:
    """Every module of a package, or a module alone, by its full name; the package with it."""
    root = importlib.import_module(package)
    found = [info.name for info in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}.")]
    return [package, *sorted(name for name in found if not name.endswith("__main__"))]


def classes(room: str) -> list[type]:
    """The public classes that the modules of a room define, in a fixed order."""
    found = []
    for name in module_names(f"subtext.{room}"):
        for label, value in vars(importlib.import_module(name)).items():
            if inspect.isclass(value) and value.__module__ == name and not label.startswith("_"):
                found.append(value)
    return sorted(found, key=lambda value: (value.__module__, value.__name__))


def settings(part: type) -> list[dict[str, Any]]:
    """Keyword arguments for every combination of the switches of a dataclass (fields of bool or Literal)."""
    required = REQUIRED.get(part.__name__, {})
    hints = get_type_hints(part)
    switches: dict[str, tuple[Any, ...]] = {}
    for field in dataclasses.fields(part):
        if hints[field.name] is bool:
            switches[field.name] = (False, True)
        elif get_origin(hints[field.name]) is Literal and field.name not in required:
            switches[field.name] = get_args(hints[field.name])
    return [
        {**required, **dict(zip(switches, chosen, strict=True))} for chosen in itertools.product(*switches.values())
    ]


def instances(room: str) -> list[Any]:
    """pytest parameters: each dataclass of a room in every combination of its switches that it does not refuse."""
    found = []
    for part in classes(room):
        made = [(chosen, one) for chosen in settings(part) if (one := _made(part, chosen)) is not None]
        assert made, f"{part.__name__} refuses every combination of its switches; name what it needs in REQUIRED"
        for chosen, one in made:
            words = ", ".join(f"{name}={value}" for name, value in chosen.items())
            found.append(pytest.param(one, id=f"{part.__name__}({words})"))
    return found


def _made(part: type, chosen: dict[str, Any]) -> Any | None:
    try:
        return part(**chosen)
    except RequirementError:
        return None
