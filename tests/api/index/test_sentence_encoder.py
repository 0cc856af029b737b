"""The sentence encoder of an index: which one is taken, what is kept of it, and how it follows the index's changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from command import call
from PIL import Image

import subtext as st
from subtext.core import Embeddings
from subtext.data import starter
from subtext.data.output_cache import content_digest, user_cache
from subtext.errors import RequirementError
from subtext.evaluation.embedding import embed_items
from subtext.models.model import Model
from subtext.retrieval import neighbours
from subtext.retrieval.sentences import open_sentence_encoder
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.verification import verify

COLOURS = ["red", "blue", "small", "two"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made = {"clip": tiny_models.clip(folder / "clip"), "siglip": tiny_models.siglip(folder / "siglip")}
    sentence = tiny_models.bert(folder / "sentence")
    (sentence / "1_Pooling").mkdir()
    (sentence / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true, "include_prompt": true}')
    (sentence / "README.md").write_text("---\nlanguage:\n- en\n- de\ntags:\n- x\n---\n# Card\n")
    return {**made, "sentence": sentence}


def photos(folder: Path, count: int = 12, *, texts: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        shade = (number * 20 % 256, 255 - number * 15 % 256, number * 77 % 256)
        Image.new("RGB", (40, 32), shade).save(folder / f"{number}.png")
        captions = [f"a {COLOURS[number % 4]} dog runs", f"boats in water {'under sky ' * (number % 3)}"]
        rows.append({"image": f"{number}.png", "captions": captions if texts and number % 2 == 0 else []})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


def space_counts(index: Path) -> dict[str, int]:
    with open_store(index).reading() as view:
        return dict(view.space_counts)


def test_encoder_of_a_folder_compares_texts_without_torch(models: dict[str, Path], tmp_path: Path) -> None:
    data, index = photos(tmp_path / "data"), tmp_path / "index"
    said = call("index", "build", index, data, "--model", models["clip"], "--text-encoder", models["sentence"]).stderr
    assert "sentence encoder" not in said, "nothing needs to be said of what was named"
    encoder = open_store(index).manifest.encoder
    assert encoder is not None and (encoder.name, encoder.width) == (str(models["sentence"]), 16)
    assert encoder.languages == ("de", "en") and not encoder.of_model
    assert space_counts(index) == {"images": 12, "texts": 12, "sentences": 12, "neighbours": 12}
    words = "a red dog under sky"
    expected = open_sentence_encoder(str(models["sentence"])).embed_texts([words]).vectors[:, 0].float().numpy()
    script = (
        "import sys, subtext, numpy; index = subtext.open_index(sys.argv[1]);"
        "print(*index.sentence_encoder([sys.argv[2]])[0].tolist(), 'torch' in sys.modules)"
    )
    made = subprocess.run(
        [sys.executable, "-c", script, str(index), words], capture_output=True, text=True, check=True
    ).stdout.split()
    np.testing.assert_allclose(np.array(made[:-1], dtype=float), expected[0], atol=1e-5)
    assert made[-1] == "False"
    with open_store(index).reading() as view:
        rows = view.rows("texts", keys=view.keys("texts").tolist())
        vectors, there = view.vectors_in("sentences", np.array([row.key for row in rows]))
        plain = open_sentence_encoder(str(models["sentence"])).embed_texts([str(row.text) for row in rows]).vectors
        assert there.all()
        np.testing.assert_allclose(vectors, plain.float().numpy(), atol=1e-5)
    shown = call("index", "info", index).stdout
    assert f"{models['sentence']}, 16 numbers, reads de en" in shown
    assert verify(index) == []
    (index / "store-1" / "sentences" / "tokeniser.json").write_text("{}")
    assert any("sentences" in problem.where for problem in verify(index))


def test_default_encoder_says_why(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = photos(tmp_path / "data")
    said = call("index", "build", tmp_path / "a", data, "--model", models["clip"]).stderr
    assert "note: sentence encoder: none, since the starter's is not installed" in said
    assert open_store(tmp_path / "a").manifest.encoder is None
    assert space_counts(tmp_path / "a") == {"images": 12, "texts": 12}
    assert "none: texts are compared by the model" in call("index", "info", tmp_path / "a").stdout
    index = st.open_index(tmp_path / "a")
    with pytest.raises(RequirementError, match="needs a sentence encoder to compare texts with texts; it has none"):
        index.sentence_encoder(["a dog"])
    said = call("index", "build", tmp_path / "c", data, "--model", models["clip"], "--text-encoder", "none").stderr
    assert "sentence encoder" not in said and open_store(tmp_path / "c").manifest.encoder is None


def test_texts_that_are_added_later_are_read_by_the_encoder(models: dict[str, Path], tmp_path: Path) -> None:
    silent, encoder = photos(tmp_path / "data", texts=False), models["sentence"]
    call("index", "build", tmp_path / "a", silent, "--model", models["clip"], "--text-encoder", encoder, "-q")
    assert (
        space_counts(tmp_path / "a")["sentences"] == 0 and not st.open_index(tmp_path / "a").search("a dog")[0].captions
    )
    photos(tmp_path / "data")
    call("index", "update", tmp_path / "a", "-q")
    counts = space_counts(tmp_path / "a")
    assert counts["sentences"] == counts["neighbours"] == 12
    hit = st.open_index(tmp_path / "a").search("a dog", explain=True)[0]
    assert {"texts", "neighbours"} <= {reason.signal for reason in hit.reasons}


def test_bare_folder_is_judged_by_everyday_captions_until_there_are_texts(
    models: dict[str, Path], tmp_path: Path
) -> None:
    data = photos(tmp_path / "data", 120, texts=False)
    options = ["--model", models["clip"], "--text-encoder", "none"]
    said = call("index", "build", tmp_path / "a", data, *options).stderr
    assert "note: that nothing fits a query is told by everyday captions" in said
    answer = st.open_index(tmp_path / "a").search("a dog")
    assert answer.fit is not None and answer.fit.everyday and "200 everyday captions" in answer.fit.sentence
    assert st.open_index(tmp_path / "a").search(["a dog", "boats"])[0].fit == answer.fit
    assert "everyday captions tell whether anything fits" in call("index", "info", tmp_path / "a").stdout
    photos(tmp_path / "data", 120)
    call("index", "update", tmp_path / "a", "-q")
    assert "fixed weights: pixels" in call("index", "info", tmp_path / "a").stdout
    assert st.open_index(tmp_path / "a").search("a dog").fit is None


@pytest.mark.slow
def test_starter_is_the_encoder_where_it_is_installed(
    models: dict[str, Path], tmp_path: Path, starter_chosen: None
) -> None:
    if not all(starter.is_installed(side) for side in starter.STARTER):
        pytest.skip("the starter towers are not installed")
    data = photos(tmp_path / "data", 4)
    said = call("index", "build", tmp_path / "a", data, "--model", models["clip"]).stderr
    assert "note: sentence encoder: starter (all-MiniLM-L6-v2, English)" in said
    encoder = open_store(tmp_path / "a").manifest.encoder
    assert encoder is not None and encoder.languages == ("en",) and encoder.width == 384 and not encoder.of_model
    files = [file for file in (tmp_path / "a").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6, "the weights of an installed package are not copied"
    st.build_index(tmp_path / "b", data, model="starter", quiet=True)
    encoder = open_store(tmp_path / "b").manifest.encoder
    assert encoder is not None and encoder.of_model, "its own text tower is that encoder"
    assert not (tmp_path / "b" / "store-1" / "sentences").exists()
    one, other = (st.open_index(tmp_path / name).sentence_encoder(["a dog runs"]) for name in "ab")
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_texts_that_say_to_be_in_another_language_are_left_to_their_words(
    models: dict[str, Path], tmp_path: Path
) -> None:
    data = photos(tmp_path / "photos", texts=False)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"captions": [f"boat {number}", f"bateau {number}", f"barco {number}"], "language": ["en-GB", "fr", "?"]}
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    st.build_index(tmp_path / "ix", data=data, model=models["clip"], text_encoder=models["sentence"], quiet=True)
    with open_store(tmp_path / "ix").reading() as view:
        owners = view.owners("sentences")[0]
        said = {row.text for row in view.rows("texts", keys=owners.tolist())}
    assert said == {f"{word} {number}" for word in ("boat", "barco") for number in range(len(rows))}
    assert "; 12 of 36 texts are left to their words" in call("index", "info", tmp_path / "ix").stdout
    index = st.open_index(tmp_path / "ix")
    assert index.search("bateau", top=1, signals=["words"])[0].captions[1] in {f"bateau {n}" for n in range(len(rows))}


def test_what_is_no_sentence_encoder_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    data, empty = photos(tmp_path / "data", 2), tmp_path / "empty"
    empty.mkdir()
    pooled = Path(shutil.copytree(models["sentence"], tmp_path / "pooled"))
    (pooled / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    layered = Path(shutil.copytree(models["sentence"], tmp_path / "layered"))
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in kinds]
    (layered / "modules.json").write_text(json.dumps(modules))
    for folder, reason in (
        (empty, "needs config.json, model.safetensors and tokenizer.json of a sentence encoder; config.json"),
        (tmp_path / "nowhere", "needs to be starter, none or a folder of a sentence encoder"),
        (models["clip"], "needs a sentence encoder of the BERT family"),
        (pooled, "needs the mean of all states or the first one as its vector; it has max_tokens"),
        (layered, "it has Dense behind it"),
    ):
        answer = call(
            "index", "build", tmp_path / "index", data, "--model", models["clip"], "--text-encoder", folder, code=1
        )
        assert reason in answer.stderr and "--text-encoder" in answer.stderr, answer.stderr
        assert "Traceback" not in answer.stderr and not (tmp_path / "index").exists()


def test_spaces_follow_every_command(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, how = tmp_path / "index", {"quiet": True}
    data = photos(tmp_path / "data")

    def killed(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(neighbours, "refresh", killed)
        st.build_index(index, data, model=models["clip"], text_encoder=models["sentence"], **how)
    assert space_counts(index)["neighbours"] == 0
    st.update_index(index, **how)
    assert space_counts(index) == {"images": 12, "texts": 12, "sentences": 12, "neighbours": 12}
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    rows[0]["captions"] = ["a man rides"]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows[:11]))
    st.update_index(index, **how)
    assert space_counts(index) == {"images": 11, "texts": 11, "sentences": 11, "neighbours": 11}
    st.delete_from_index(index, ["2.png"])
    assert space_counts(index) == {"images": 10, "texts": 9, "sentences": 9, "neighbours": 10}
    with open_store(index).reading() as view:
        texts = {row.text: row.key for row in view.rows("texts", keys=view.keys("texts").tolist())}
        before = view.vectors_in("sentences", np.array([texts["a man rides"]]))[0]
        near = neighbours.near_of(view, view.keys("images"))

    def of_model_alone(model: Model, *values: Any, **named: Any) -> Embeddings:
        assert model.image is not model.text, "the vectors of texts that stayed as they were are kept"
        return embed_items(model, *values, **named)

    monkeypatch.setattr("subtext.evaluation.embedding.embed_items", of_model_alone)
    st.move_index(index, model=models["siglip"], even_if_worse=True, drop_missing=True, **how)
    with open_store(index).reading() as view:
        texts = {row.text: row.key for row in view.rows("texts", keys=view.keys("texts").tolist())}
        np.testing.assert_array_equal(view.vectors_in("sentences", np.array([texts["a man rides"]]))[0], before)
        assert neighbours.near_of(view, view.keys("images")) != near, "another model has other neighbours"
    assert space_counts(index)["neighbours"] == 10 and verify(index) == []
    st.backup_index(index, tmp_path / "copy")
    assert space_counts(tmp_path / "copy") == space_counts(index) and verify(tmp_path / "copy") == []


def test_imported_vectors_get_sentences_where_there_are_texts(models: dict[str, Path], tmp_path: Path) -> None:
    data = photos(tmp_path / "data")
    embedded = tmp_path / "v.npz"
    call("embed", "--model", models["clip"], "--data", data, "--out", embedded)
    st.import_index(tmp_path / "index", embedded, data=data, text_encoder=models["sentence"])
    assert space_counts(tmp_path / "index") == {"images": 12, "texts": 12, "sentences": 12, "neighbours": 12}
    st.import_index(tmp_path / "bare", embedded)
    assert space_counts(tmp_path / "bare") == {"images": 12, "texts": 12}


def test_outputs_of_deleted_items_leave_the_cache(models: dict[str, Path], tmp_path: Path) -> None:
    data, index = photos(tmp_path / "data"), tmp_path / "index"
    st.build_index(index, data, model=models["clip"], text_encoder=models["sentence"], quiet=True)
    cache = user_cache()
    assert cache is not None
    with open_store(index).reading() as view:
        (row,) = view.rows("images", ids=["0.png"], links=True)
        contents = [row.content, *(text.content for text in view.rows("texts", keys=list(row.links)))]
    # The first text is said of other images, too: its output is computed again when it is needed.
    assert content_digest(b"a red dog runs") in contents

    def kept() -> list[bytes]:
        files = [file.read_bytes() for file in cache.folder.rglob("contents.npy")]
        return [content for content in contents if any(content in raw for raw in files)]

    assert kept() == contents
    st.delete_from_index(index, ["0.png"])
    assert kept() == []
