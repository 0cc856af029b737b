"""The journal of an index: what was done to it, from what, and what was begun and is not finished."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Job:
    """One job.

    source    where its items came from, as plain data; None for a deletion or a compaction
    started, finished   UTC times; finished is None while it runs, and after it was cut off
    done, total         items looked at, and how many there were
    """

    number: int
    verb: str
    source: Mapping[str, Any] | None
    started: str
    finished: str | None
    done: int
    total: int


def begin(connection: sqlite3.Connection, verb: str, *, source: Mapping[str, Any] | None, total: int) -> int:
    """Note that a job begins; its number. An unfinished one of the same verb and source is gone on with."""
    told = None if source is None else json.dumps(dict(source), sort_keys=True, ensure_ascii=False)
    same = "SELECT number FROM jobs WHERE verb = ? AND source IS ? AND finished IS NULL ORDER BY number DESC"
    found = connection.execute(same, (verb, told)).fetchone()
    if found is not None:
        connection.execute("UPDATE jobs SET total = ?, done = 0 WHERE number = ?", (total, found[0]))
        return int(found[0])
    made = connection.execute(
        "INSERT INTO jobs (verb, source, started, done, total) VALUES (?, ?, ?, 0, ?)", (verb, told, _now(), total)
    )
    assert made.lastrowid is not None
    return made.lastrowid


def advance(connection: sqlite3.Connection, number: int, done: int) -> None:
    """Note how many items a job has done."""
    connection.execute("UPDATE jobs SET done = ? WHERE number = ?", (done, number))


def finish(connection: sqlite3.Connection, number: int) -> None:
    """Note that a job is done."""
    connection.execute("UPDATE jobs SET finished = ?, done = total WHERE number = ?", (_now(), number))


def jobs(connection: sqlite3.Connection) -> list[Job]:
    """All jobs, the first first."""
    sql = "SELECT number, verb, source, started, finished, done, total FROM jobs ORDER BY number"
    return [
        Job(number, verb, None if source is None else json.loads(source), *rest)
        for number, verb, source, *rest in connection.execute(sql)
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
