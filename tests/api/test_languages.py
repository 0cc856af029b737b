"""A query in a language that the model does not read is searched by its words, and a sentence says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import made_data
import pytest
import tiny_models
from command import call
from PIL import Image

import subtext
from subtext.api.search import open_index
from subtext.data.languages import language_of
from subtext.retrieval.index import Query
from subtext.retrieval.stores.registry import open_store

ENGLISH = ("a dog runs", "two red boats", "the cat sleeps", "a man rides the horse")
FRENCH = ("un chien sur la plage", "deux bateaux rouges", "le chat qui dort dans la maison", "un homme sur le cheval")


def pairs(folder: Path, texts: tuple[str, ...]) -> Path:
    """Sixteen images with a text each."""
    folder.mkdir()
    rows = []
    for number in range(16):
        Image.new("RGB", (32, 32), (number * 15, 90, 250 - number * 15)).save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", "captions": [f"{texts[number % 4]} {number}"], "split": "train"})
    made_data.write_rows(folder / "pairs.jsonl", rows)
    return folder / "pairs.jsonl"


def test_record_of_an_encoder_names_its_languages(tmp_path: Path) -> None:
    data = pairs(tmp_path / "data", ENGLISH)
    for name, reads in {"clip": ("en",), "siglip": ("en",), "naflex": ("*",)}.items():
        folder = tmp_path / name
        folder.mkdir()
        getattr(tiny_models, name)(folder)
        subtext.build_index(tmp_path / f"{name}-index", model=folder, data=data, quiet=True)
        assert open_store(tmp_path / f"{name}-index").manifest.languages == reads


def test_words_decide_a_query_in_another_language(tmp_path: Path) -> None:
    model = tiny_models.clip(tmp_path / "clip")
    built = call("index", "build", tmp_path / "index", pairs(tmp_path / "data", FRENCH), "--model", model)
    assert built.stderr.count("in other languages (most of them: French)") == 1
    index = open_index(tmp_path / "index")
    answer = index.search("un chien sur la plage", top=4, explain=True)
    assert {hit.id.partition(".")[0] for hit in answer} == {"0", "4", "8", "12"}
    assert not any(reason.signal == "pixels" for hit in answer for reason in hit.reasons)
    (note,) = answer.notes
    assert note.startswith("the query is probably French, and the model reads English: its words decide")
    shown = call("search", tmp_path / "index", "un chien sur la plage")
    assert (shown.stdout + shown.stderr).count("probably French") == 1
    # In a batch as alone; not where the model is asked for, nor for a query that it reads.
    (batched,) = index.answer_many([Query(text="un chien sur la plage", top=4)])
    assert [hit.id for hit in batched] == [hit.id for hit in answer]  # type: ignore[union-attr]
    # No item that meets the condition has one of its words: the order says little, and the item is there all the same.
    kept = index.search("un chien sur la plage", where=["id = 1.png"], top=4)
    assert [hit.id for hit in kept] == ["1.png"] and any("no item has a word of it" in note for note in kept.notes)
    for other in (Query(text="un chien sur la plage", signals=("pixels",)), Query(text="a dog on the beach")):
        assert not any("French" in note for note in index.answer(other).notes)


def test_words_whose_texts_all_name_another_language_decide(tmp_path: Path) -> None:
    folder, rows = tmp_path / "data", []
    folder.mkdir()
    texts = [("Liebe", "de"), ("gift", "de"), ("a gift in a box", "en"), *((text, "en") for text in ENGLISH)]
    for number, (text, language) in enumerate(texts):
        Image.new("RGB", (32, 32), (number * 30, 90, 250 - number * 30)).save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", "captions": [text], "language": [language], "split": "train"})
    made_data.write_rows(folder / "pairs.jsonl", rows)
    model = tiny_models.clip(tmp_path / "clip")
    subtext.build_index(tmp_path / "index", model=model, data=folder / "pairs.jsonl", quiet=True)
    index = open_index(tmp_path / "index")
    answer = index.search("Liebe", top=3, explain=True)
    assert answer.hits[0].id == "0.png" and not any(reason.signal == "pixels" for reason in answer.hits[0].reasons)
    assert answer.notes[0].startswith("the query is probably German, and the model reads English: its words decide")
    # A word that texts in a language that is read have too, or that no text has, is asked of the model.
    for query in ("gift", "glory"):
        assert not any("probably" in note for note in index.search(query, top=3).notes)


def test_model_decides_where_no_text_has_a_word(tmp_path: Path) -> None:
    model = tiny_models.clip(tmp_path / "clip")
    subtext.build_index(tmp_path / "index", model=model, data=pairs(tmp_path / "data", ENGLISH), quiet=True)
    answer = open_index(tmp_path / "index").search("zwei alte Frauen", top=3)
    assert len(answer) == 3
    assert any("no item has a word of it" in note and "probably German" in note for note in answer.notes)


def test_training_on_texts_that_the_tower_does_not_read_says_so(tmp_path: Path) -> None:
    model = tiny_models.clip(tmp_path / "clip")
    data, dry = pairs(tmp_path / "data", FRENCH), ("--val-split", "none", "--dry-run")
    said = call("train", "clip", "--data", data, "--out", tmp_path / "run", "--model", model, *dry)
    assert (said.stdout + said.stderr).count("in other languages (most of them: French)") == 1
    said = call("train", "vse", "--data", data, "--out", tmp_path / "bag", "--image", "tiny", "--text", "bag", *dry)
    assert "other languages" not in said.stdout + said.stderr


def test_curation_says_that_texts_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_models.clip(tmp_path / "clip")
    subtext.curate(pairs(tmp_path / "data", FRENCH), model=model, out=tmp_path / "out")
    assert capsys.readouterr().err.count("in other languages (most of them: French)") == 1


def test_check_guesses_languages_as_queries_do(tmp_path: Path) -> None:
    texts = ["Hafen in Zürich", "Brücke bei Nacht", "IMG_2041", "the old harbour"]
    rows = [{"image": f"{number}.png", "captions": [text]} for number, text in enumerate(texts)]
    for row in rows:
        Image.new("RGB", (8, 8)).save(tmp_path / row["image"])
    found = subtext.check_dataset(rows, images=tmp_path).languages
    assert found == dict(Counter(map(language_of, texts))) and sum(found.values()) == 4
