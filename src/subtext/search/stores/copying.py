"""Backup and restore of an index folder: a copy of one moment, while the index is read and written."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from subtext.data.atomic import write_folder
from subtext.errors import IndexError_
from subtext.search.stores import tables
from subtext.search.stores.folder import ATTEMPTS, DOCUMENTS, Folder
from subtext.search.stores.manifest import MANIFEST
from subtext.search.stores.opened import verify
from subtext.search.stores.segments import checksums


def backup(folder: Folder, out: Path) -> Folder:
    """Copy an index into a new folder, completely or not at all; the copy is an index itself.

    Every file is checked against its checksum on the way. Caches and logs stay behind. Raises IndexError_ when `out`
    holds something or a file is damaged, OutputError when there is no space.
    """
    Folder.require_free(out)

    def fill(folder_copy: Path) -> None:
        store = folder_copy / folder.store.name
        for attempt in range(ATTEMPTS):
            store.mkdir()
            try:
                _copy(folder, store)
                for name in DOCUMENTS.values():
                    if (folder.store / name).is_file():
                        shutil.copyfile(folder.store / name, store / name)
                break
            except FileNotFoundError:
                # A compaction has removed a segment meanwhile; the next attempt reads its successor.
                shutil.rmtree(store)
                if attempt == ATTEMPTS - 1:
                    raise
        (folder_copy / MANIFEST).write_text(folder.manifest.to_json(), encoding="utf-8")

    write_folder(out, fill)
    return Folder(out)


def _copy(folder: Folder, store: Path) -> None:
    """Tables and segments of one moment."""
    with folder.reading() as view:
        target = sqlite3.connect(store / tables.TABLES)
        with tables.translated(store / tables.TABLES):
            view.connection.backup(target)
        target.close()
        for table in ("segments", "lists"):
            for name, expected in view.connection.execute(f"SELECT name, checksums FROM {table}"):
                (store / name).mkdir()
                for file in json.loads(expected):
                    shutil.copyfile(folder.store / name / file, store / name / file)
                if checksums(store / name) != json.loads(expected):
                    raise IndexError_(
                        f"{folder.store / name} is damaged, and no copy of it is made; `subtext index verify` says "
                        "what is wrong"
                    )


def restore(copy: Path, out: Path) -> Folder:
    """An index from a backup, which is verified first; `out` is new or empty.

    Raises IndexError_ when the backup is damaged, naming what is.
    """
    Folder.require_free(out)
    problems = verify(copy)
    if problems:
        listed = "; ".join(f"{problem.where}: {problem.what}" for problem in problems[:3])
        raise IndexError_(f"{copy} is damaged and cannot be restored; {listed}; take another backup")
    return backup(Folder(copy), out)
