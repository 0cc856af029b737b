"""Backup and restore: a copy of an index as it is at one moment, while it is read and written."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from subtext.data.atomic import write_folder
from subtext.errors import IndexError_
from subtext.search.stores import tables
from subtext.search.stores.calibration import CALIBRATION, PLOT
from subtext.search.stores.folder import ATTEMPTS, Folder, require_new
from subtext.search.stores.manifest import MANIFEST
from subtext.search.stores.segment import checksums
from subtext.search.stores.verification import verify


def backup(folder: Folder, out: Path) -> Folder:
    """Copy an index into a new folder, whole or not at all; the copy is an index itself.

    Every file is checked against its checksum on the way. Caches and logs stay behind. Raises IndexError_ when `out`
    holds something or a file is damaged, OutputError when there is no space.
    """
    require_new(out)

    def fill(place: Path) -> None:
        store = place / folder.store.name
        for attempt in range(ATTEMPTS):
            store.mkdir()
            try:
                _copy(folder, store)
                for name in (CALIBRATION, PLOT):
                    if (folder.store / name).is_file():
                        shutil.copyfile(folder.store / name, store / name)
                break
            except FileNotFoundError:
                # A compaction took a segment away meanwhile; its successor is in the next look at the index.
                shutil.rmtree(store)
                if attempt == ATTEMPTS - 1:
                    raise
        (place / MANIFEST).write_text(folder.manifest.to_json(), encoding="utf-8")

    write_folder(out, fill)
    return Folder(out)


def _copy(folder: Folder, store: Path) -> None:
    """Tables and segments of one moment."""
    with folder.reading() as view:
        target = sqlite3.connect(store / tables.TABLES)
        with tables.told(store / tables.TABLES):
            view.connection.backup(target)
        target.close()
        for table in ("segments", "lists"):
            for name, wanted in view.connection.execute(f"SELECT name, checksums FROM {table}"):
                (store / name).mkdir()
                for file in json.loads(wanted):
                    shutil.copyfile(folder.store / name / file, store / name / file)
                if checksums(store / name) != json.loads(wanted):
                    raise IndexError_(
                        f"{folder.store / name} is damaged, and no copy of it is made; `subtext index verify` says "
                        "what is wrong"
                    )


def restore(copy: Path, out: Path) -> Folder:
    """An index from a backup, which is looked through first; `out` is new or empty.

    Raises IndexError_ when the backup is damaged, naming what is.
    """
    require_new(out)
    problems = verify(copy)
    if problems:
        listed = "; ".join(f"{each.where}: {each.what}" for each in problems[:3])
        raise IndexError_(f"{copy} needs to be whole to be restored; {listed}; take another backup")
    return backup(Folder(copy), out)
