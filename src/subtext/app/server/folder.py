"""The folder of an index that is served: what is shown, added and deleted here lies beside it."""

from __future__ import annotations

from collections.abc import Hashable

from subtext.errors import RequirementError
from subtext.search import Engine
from subtext.stores.calibration import CALIBRATION
from subtext.stores.folder import Folder


def folder_of(engine: Engine) -> Folder:
    """The index as a folder. Raises RequirementError for one that lives elsewhere."""
    found: object = engine.folder
    if not isinstance(found, Folder):
        raise RequirementError(
            f"a server needs an index that is a folder; this one is a {type(found).__name__}; search it by "
            "`subtext search`, or from Python"
        )
    return found


def state_of(engine: Engine) -> Hashable:
    """Differs whenever answers may: the store, which a move replaces, its changes, and its calibration."""
    folder = folder_of(engine)
    try:
        calibrated = (folder.store / CALIBRATION).stat().st_mtime_ns
    except FileNotFoundError:
        calibrated = 0
    with folder.reading() as view:
        return folder.store.name, view.generation, calibrated
