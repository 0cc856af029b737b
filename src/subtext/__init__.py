"""Subtext finds pictures for words and words for pictures when the two do not say the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subtext.api.load import from_pretrained, load, open_engine, open_run, save_pretrained

__version__ = "0.1.0"
__all__ = ["__version__", "from_pretrained", "load", "open_engine", "open_run", "save_pretrained"]


def __getattr__(name: str) -> object:
    """Import what is heavy only when it is asked for."""
    if name in __all__:
        from subtext.api import load as opening

        return getattr(opening, name)
    raise AttributeError(f"module 'subtext' has no attribute '{name}'")
