"""Lines of JSON on standard output, and queries from standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import served_index
from click.testing import CliRunner

from subtext.cli import main


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_index.made(tmp_path_factory.mktemp("lines"), "colours")[0]


def printed(*words: object, typed: str = "", code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words], input=typed)
    assert done.exit_code == code, done.output
    return done.stdout if not code else done.stderr


def test_queries_of_standard_input_are_answered_in_lines(library: Path) -> None:
    text = printed("search", library, "-", "--jsonl", "--top", 3, typed="a blue square\n\na red square\n")
    answers = [json.loads(line) for line in text.splitlines()]
    assert [answer["query"]["text"] for answer in answers] == ["a blue square", "a red square"]
    alone = json.loads(printed("search", library, "a blue square", "--json", "--top", 3))
    # Several queries are multiplied at once, which rounds otherwise.
    scores = [[hit.pop("score") for hit in answer["hits"]] for answer in (answers[0], alone)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    assert answers[0]["hits"] == alone["hits"] and len(alone["hits"]) == 3
    assert len(printed("search", library, "a blue square", "--jsonl").splitlines()) == 1
    both = json.loads(printed("search", library, "-", "--json", typed="a blue square\na red square\n"))
    assert [len(answer["hits"]) for answer in both] == [10, 10]
    shown = printed("search", library, "-", typed="a blue square\na red square\n")
    assert shown.startswith("a blue square\n") and "\n\na red square\n" in shown


def test_vectors_are_printed_in_lines(library: Path, tmp_path: Path) -> None:
    run, data = library.parent / "run-colours", library.parent / "data"
    items = [json.loads(line) for line in printed("embed", run, "--data", data, "--jsonl", "-q").splitlines()]
    assert [item["modality"] for item in items] == ["image"] * 12 + ["text"] * 24
    assert items[0]["id"] == "red" and len(items[0]["vector"]) == 16


@pytest.mark.parametrize(
    ("words", "typed", "sentence"),
    [
        (("search", "{library}", "-"), " \n", "- needs a query in each line of the standard input; there is none"),
        (("search", "{library}", "a", "--json", "--jsonl"), "", "--json prints one value, and --jsonl a line for each"),
        (("embed", "{run}", "--data", "{data}"), "", "give --out FILE or --jsonl; it got neither"),
    ],
)
def test_lines_that_cannot_be_get_one_sentence(
    library: Path, words: tuple[str, ...], typed: str, sentence: str
) -> None:
    places = {"library": library, "run": library.parent / "run-colours", "data": library.parent / "data"}
    assert sentence in printed(*(word.format(**places) for word in words), typed=typed, code=2)
