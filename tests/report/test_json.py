"""JSON for others: null in place of NaN and infinity, in files, on a terminal and over HTTP."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import coloured_images
import pytest
import served_index
from command import call, invoke

from subtext.models.checkpoint import Record
from subtext.report.text_table import Report
from subtext.text_helpers import json_text

NONE = {"nan": math.nan, "infinite": math.inf, "nested": [1.5, -math.inf, {"deep": math.nan}], "text": "NaN"}
NULL = {"nan": None, "infinite": None, "nested": [1.5, None, {"deep": None}], "text": "NaN"}


def strict(text: str | bytes) -> Any:
    """What other programs read: JSON without Python's own constants."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in {text[:500]!r}")

    return json.loads(text, parse_constant=refuse)


class Plain(Report):
    def __init__(self) -> None:
        self.numbers = NONE

    def _lines(self) -> list[str]:
        return ["plain"]


def test_numbers_that_are_none_become_null() -> None:
    assert strict(json_text(NONE)) == strict(Plain().json_text())["numbers"] == Plain().to_json()["numbers"] == NULL
    assert strict(json_text(NONE, indent=2)) == NULL and "\n" in json_text(NONE, indent=2)


def test_a_record_reads_null_as_no_number() -> None:
    record = Record("dual", best={"rsum": math.nan, "mrr": 1.0}, best_epoch=1)
    again = Record.from_json(record.to_json())
    assert strict(record.to_json())["best"] == {"rsum": None, "mrr": 1.0}
    assert math.isnan(again.best["rsum"]) and again.best["mrr"] == 1.0


@pytest.mark.parametrize("command", ["evaluate", "audit", "search", "index info"])
def test_commands_print_json_that_all_programs_read(tmp_path: Path, command: str) -> None:
    """Metadata has Python's NaN and Infinity; a split of one text has figures that are no numbers."""
    folder = coloured_images.runs(tmp_path, "run")
    file = folder / "data" / "metadata.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row |= {"size": math.nan, "far": math.inf, "sizes": [1.0, math.nan]}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if command in ("evaluate", "audit"):
        invoke(command, folder / "run", "--split", "test", "--json", folder / "out.json", "-q")
        strict((folder / "out.json").read_bytes())
        return
    call("index", "build", folder / "index", "--run", folder / "run", "--split", "all", "-q")
    words = ["a red square", "--top", "12"] if command == "search" else []
    found = strict(call(*command.split(), folder / "index", *words, "--json").stdout)
    if command == "search":
        assert len(found["hits"]) == 12
        with served_index.client(folder / "index") as client:
            for path in ("/search?q=red&top=12", "/items?top=12", "/item?id=red", "/fields"):
                answer = client.get(path)
                assert answer.status_code == 200 and strict(answer.content), path
