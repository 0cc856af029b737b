"""Null models in tables: hubness alone by its definition, BM25 by a plain loop, and their rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import made_data
import numpy as np
import pytest
from command import call

import subtext as st
from reproduce.tables.nulls import bm25_between_captions, hubness, with_nulls
from reproduce.tables.specification import tables
from subtext.data.words import tokenise


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write(folder)
    return folder


@pytest.mark.identity
def test_hubness_is_the_mean_score_of_each_candidate() -> None:
    scores = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    of_images, of_texts = hubness(scores)
    assert of_images.shape == of_texts.shape == scores.shape
    assert np.allclose(of_images[2], scores.mean(axis=0), atol=1e-6)
    assert np.allclose(of_texts[:, 3], scores.mean(axis=1), atol=1e-6)


@pytest.mark.identity
def test_bm25_between_captions_equals_a_plain_loop(made: Path) -> None:
    pairs = st.read(made / "pairs.jsonl", need_images=False).split("test")
    both = bm25_between_captions(pairs)
    assert both is not None
    words = [tokenise(str(text)) for text in pairs.texts.values]
    owner = dict(pairs.links[:, ::-1].tolist())
    length = np.mean([len(text) for text in words])
    holding = Counter(word for text in words for word in set(text))

    def score(query: int, document: int) -> float:
        times, total = Counter(words[document]), 0.0
        for word, asked in Counter(words[query]).items():
            rarity = math.log(1 + (len(words) - holding[word] + 0.5) / (holding[word] + 0.5))
            norm = 1.2 * (0.25 + 0.75 * len(words[document]) / length)
            total += asked * rarity * times[word] * 2.2 / (times[word] + norm)
        return total

    for image in range(len(pairs.images)):
        own = [text for text, of in owner.items() if of == image]
        for text in range(len(words)):
            others = [each for each in own if each != text]
            assert both[0][image, text] == pytest.approx(max(score(each, text) for each in others), abs=1e-4)
            assert both[1][image, text] == pytest.approx(max(score(text, each) for each in others), abs=1e-4)


def test_bm25_needs_images_with_several_texts(made: Path) -> None:
    from reproduce.tables.material import one_text_each

    assert bm25_between_captions(one_text_each(st.read(made / "pairs.jsonl", need_images=False).split("test"))) is None


def test_null_models_are_rows_measured_on_the_first_row(made: Path, tmp_path: Path) -> None:
    changes = [word for change in ("embed_dim=16", "word_dim=8", "batch_size=16") for word in ("--set", change)]
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--features", f"mine={made / 'features.npz'}"]
    quick = ["--seeds", 1, "--epochs", 1, "--c", 3, "--workers", 0, "--device", "cpu", "-q", *changes]
    rows = ("--rows", "hubness,bm25", "--out", tmp_path)
    call("table", "cvprw2022_table2", *data, *quick, *rows)
    found = json.loads((tmp_path / "cvprw2022_table2.json").read_text())
    cells = {row["row"]: row["cells"] for row in found["rows"]}
    assert list(cells) == ["null: hubness of PVSE alone", "null: BM25 between captions"]
    by_hubness, by_words = (row["mine I→T"]["mean"] for row in cells.values())
    assert 0 <= by_hubness <= 1 and 0 <= by_words <= 1 and by_hubness != by_words
    assert len(list((tmp_path / "runs" / "mine").glob("pvse-*"))) == 1, "one training for both"
    call("table", "ascl2024_figure4", *data, *quick, "--rows", "hubness", "--out", tmp_path, "--plan")


def test_every_table_has_null_models() -> None:
    for table in tables().values():
        assert [row.key for row in with_nulls(table).rows[-2:]] == ["hubness", "bm25"]
    assert "hubness, bm25" in call("table", "--list").stdout


def test_constant_scores_are_a_null_model_of_an_evaluation(made: Path) -> None:
    expected = st.Protocol(ties="expected", bootstrap=0)
    result = st.evaluate(scores="constant", data=made / "pairs.jsonl", split="test", protocol=expected, quiet=True)
    for direction in ("image_to_text", "text_to_image"):
        figure = f"{direction}/recall@5"
        assert result.figures[figure] == pytest.approx(result.chance[figure])
    worst = st.evaluate(scores="constant", data=made / "pairs.jsonl", split="test", quiet=True)
    assert worst.figures["image_to_text/recall@5"] == worst.figures["text_to_image/recall@5"] == 0.0, "ties are misses"
    printed = call("evaluate", "--scores", "constant", "--data", made / "pairs.jsonl", "--split", "test").stdout
    assert "recall@1" in printed and "chance" in printed
