"""The words of queries and texts: how they are weighed, as FTS5 does it and as a plain loop has it."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter

import numpy as np
import pytest

from subtext.retrieval.words import as_vector, bm25, fold, query_words, words

TEXTS = (
    "a dog runs on the beach", "two dogs and a dog", "a cat", "the beach at night, the beach at dawn", "snow",
    "a boat on the water near the beach", "night", "dog dog dog",
)  # fmt: skip
QUERIES = ("dog", "the beach", "beach dog", "dog dog night", "a")


def counted(query: str) -> tuple[list[int], list[float]]:
    """The texts that have some of the words, and their scores by `bm25`."""
    split = [Counter(words(text)) for text in TEXTS]
    asked = Counter(query_words(query))
    having = [row for row, own in enumerate(split) if any(own[word] for word in asked)]
    times = np.array([[split[row][word] for row in having] for word in asked], dtype=np.int64)
    lengths = np.array([split[row].total() for row in having], dtype=np.int64)
    total = sum(own.total() for own in split)
    return having, bm25(times, lengths, weights=list(asked.values()), number=len(TEXTS), total=total).tolist()


@pytest.mark.identity
@pytest.mark.parametrize("query", QUERIES)
def test_bm25_is_that_of_fts5(query: str) -> None:
    table = sqlite3.connect(":memory:")
    table.execute("CREATE VIRTUAL TABLE said USING fts5(text)")
    table.executemany("INSERT INTO said(rowid, text) VALUES (?, ?)", enumerate(TEXTS, start=1))
    matching = " OR ".join(f'"{word}"' for word in query_words(query))
    found = table.execute("SELECT rowid - 1, -bm25(said) FROM said WHERE said MATCH ? ORDER BY rowid", [matching])
    having, scores = counted(query)
    rows = found.fetchall()
    assert [row for row, _ in rows] == having
    assert scores == pytest.approx([score for _, score in rows], rel=1e-9)


@pytest.mark.identity
@pytest.mark.parametrize("query", QUERIES)
def test_bm25_is_a_plain_loop(query: str) -> None:
    mean = sum(len(words(text)) for text in TEXTS) / len(TEXTS)
    having, scores = counted(query)
    for row, score in zip(having, scores, strict=True):
        own, total = words(TEXTS[row]), 0.0
        for word in query_words(query):
            often = own.count(word)
            with_it = sum(word in words(text) for text in TEXTS)
            idf = max(1e-6, math.log((len(TEXTS) - with_it + 0.5) / (with_it + 0.5)))
            total += idf * often * 2.2 / (often + 1.2 * (1 - 0.75 + 0.75 * len(own) / mean))
        assert score == pytest.approx(total)


def test_bm25_of_a_damaged_index_is_finite_and_not_below_zero() -> None:
    times, lengths = np.array([[1, 2, 0], [1, 0, 0]]), np.array([3, 4, 5])
    scores = bm25(times, lengths, weights=[1, 2], number=1, total=0)
    # Fewer texts are counted than have the word: it weighs least, 1e-6.
    share = [often * 2.2 / (often + 1.2 * (0.25 + 0.75 * length)) for often, length in ((1, 3), (2, 4))]
    assert scores.tolist() == pytest.approx([3e-6 * share[0], 1e-6 * share[1], 0.0])


def test_texts_without_spaces_are_found_by_their_signs_and_pairs() -> None:
    said = set(words("私は東京にいる"))
    assert {"東", "京", "東京"} <= said and set(query_words("東京")) <= said
    assert not set(query_words("京都")) <= said
    # A mark belongs to the sign before it.
    assert set(query_words("か\u3099")) <= set(words("か\u3099く"))


@pytest.mark.parametrize(
    ("text", "found", "asked"),
    [
        ("ab東京cd", ["ab", "東", "東京", "京", "cd"], ["ab", "東京", "cd"]),
        ("東ab京", ["東", "ab", "京"], ["東", "ab", "京"]),
        ("東京駅", ["東", "東京", "京", "京駅", "駅"], ["東京", "京駅"]),
        # Each tone mark stays at its own letter.
        ("ก่ข่ค่", ["ก่", "ก่ข่", "ข่", "ข่ค่", "ค่"], ["ก่ข่", "ข่ค่"]),
        ("กาข่", ["ก", "กา", "า", "าข่", "ข่"], ["กา", "าข่"]),
    ],
)
def test_stretches_without_spaces_are_cut_into_signs_and_pairs(text: str, found: list[str], asked: list[str]) -> None:
    assert words(text) == found and query_words(text) == asked


def test_long_words_are_cut_at_the_same_length_in_texts_and_queries() -> None:
    long = "x" * 205
    assert words(long) == query_words(long) == ["x" * 200]
    assert words(f"{long}東é{long}") == ["x" * 200, "東", f"e{'x' * 199}"]
    assert query_words(f"é{long}") == [f"e{'x' * 199}"]


@pytest.mark.parametrize("mark", "\u0941\u093c\u3099\u094d\u0c55\u0c56\u0e38\u0e48\u0eb8\u0ec8\u0f71\u0f74")
def test_marks_that_make_another_letter_count(mark: str) -> None:
    """Vowels, nukta, virama and tone marks, one of each combining class that Unicode has for them."""
    assert fold(f"क{mark}") != fold("क")


@pytest.mark.parametrize("mark", "\u0301\u0323\u0327\u0338\u05b0\u05bc\u064b\u0670")
def test_accents_and_points_do_not_count(mark: str) -> None:
    assert fold(f"x{mark}") == "x" and words(f"x{mark}y") == ["xy"]


def test_vector_of_words_has_as_many_positions_as_postgresql_stores() -> None:
    said = as_vector([f"w{number}" for number in range(1, 16_390)])
    assert said.endswith("'w16383':16383")
    often = as_vector(["a"] * 300)
    assert often.endswith(",254,255") and often.count(",") == 254
