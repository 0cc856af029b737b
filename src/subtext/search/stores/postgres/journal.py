"""The journal of an index in PostgreSQL: what was done to it, from what, and what was begun and is not finished."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from subtext.search.stores.journal import Job
from subtext.search.stores.postgres.connection import Connection


def begin(connection: Connection, verb: str, *, source: Mapping[str, Any] | None, total: int) -> int:
    """Note that a job begins; its number. An unfinished one of the same verb and source is gone on with."""
    told = None if source is None else json.dumps(dict(source), sort_keys=True, ensure_ascii=True)
    same = (
        "SELECT number FROM jobs WHERE verb = %s AND source IS NOT DISTINCT FROM %s AND finished IS NULL "
        "ORDER BY number DESC LIMIT 1"
    )
    found = connection.execute(same, (verb, told)).fetchone()
    if found is not None:
        connection.execute("UPDATE jobs SET total = %s, done = 0 WHERE number = %s", (total, found[0]))
        return int(found[0])
    made = connection.execute(
        "INSERT INTO jobs (verb, source, started, done, total) VALUES (%s, %s, %s, 0, %s) RETURNING number",
        (verb, told, _now(), total),
    ).fetchone()
    assert made is not None
    return int(made[0])


def advance(connection: Connection, number: int, done: int) -> None:
    """Note how many items a job has done."""
    connection.execute("UPDATE jobs SET done = %s WHERE number = %s", (done, number))


def finish(connection: Connection, number: int) -> None:
    """Note that a job is done."""
    connection.execute("UPDATE jobs SET finished = %s, done = total WHERE number = %s", (_now(), number))


def jobs(connection: Connection) -> list[Job]:
    """All jobs, the first first."""
    sql = "SELECT number, verb, source, started, finished, done, total FROM jobs ORDER BY number"
    return [
        Job(number, verb, None if source is None else json.loads(source), *rest)
        for number, verb, source, *rest in connection.execute(sql)
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
