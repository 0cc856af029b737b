"""The index that is served, and the folder in which a server keeps what it makes of it."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from subtext.search import Engine
from subtext.search.stores.folder import Folder
from subtext.search.stores.store import Store


def place_of(store: Store, keep: Path | None) -> Path | None:
    """Where small copies of an index's pictures, its log and the pictures that are handed in are kept.

    keep  the folder that was named for an index which is none itself; None for none
    """
    return store.path if isinstance(store, Folder) else keep


def state_of(engine: Engine) -> Hashable:
    """Differs whenever answers may: the model, the store that a move replaces, its changes, and its calibration."""
    store = engine.folder
    with store.reading() as view:
        manifest = store.manifest
        return manifest.fingerprint, manifest.store, view.generation, store.calibration_mark()
