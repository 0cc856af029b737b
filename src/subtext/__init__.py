"""Subtext searches archives of images whose texts do not describe the images.

    import subtext as st

    run = st.train("dual", data="captions.jsonl", out="runs/first")
    print(st.evaluate(run, split="test"))
    index = st.build_index("library", run="runs/first", split="all")
    st.search("library", "the ruling stands")

Every name is imported when it is first used, so `import subtext` is fast.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

from subtext.version import __version__ as __version__

_STUB = (Path(__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
_MODULES = {
    name: module
    for module, names in re.findall(r"^from (\S+) import (\([^)]*\)|.*)", _STUB, re.MULTILINE)
    for name in re.findall(r" as (\w+)", names)
}
"""Public name -> the module that defines it, as the stub lists them for type checkers."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "open_engine":
        import warnings

        warnings.warn("subtext.open_engine is now subtext.open_index", DeprecationWarning, stacklevel=2)
        name = "open_index"
    if name not in _MODULES:
        from difflib import get_close_matches

        near = " or ".join(get_close_matches(name, _MODULES, n=2))
        raise AttributeError(f"module 'subtext' has no attribute '{name}'{near and f'; did you mean {near}?'}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return sorted(__all__)


class _Package(ModuleType):
    """The package, whose public functions are not hidden by subpackages of the same name, such as `search`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
