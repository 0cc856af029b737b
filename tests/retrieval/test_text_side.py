"""A search by words reads plain arrays of the index: the same answers as the model's, without torch."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import coloured_images
import numpy as np
import pytest
import tiny_models
from command import call
from light_search import PROBE

import subtext
from subtext.api.load import load
from subtext.api.search import open_index
from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval import make_text_side
from subtext.retrieval.index import Query
from subtext.retrieval.stores import lance
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.registry import is_address, open_store
from subtext.retrieval.text_side import TextSide

QUERIES = ("a blue square", "Zoë's PURPLE quadrat, 3.5 -- xyzzy", "red", "green red blue " * 60)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with an index each: bags of words with both kinds of pooling and heads, and BERT."""
    folder = coloured_images.runs(tmp_path_factory.mktemp("text_side"), "run", "other")
    coloured_images.run(folder / "data", folder / "wide", text_mlp=True, word_dim=16, dropout=0.2)
    coloured_images.run(folder / "data", folder / "gru", text="gru")
    bert = tiny_models.bert(folder / "bert")
    options = {name: value for name, value in coloured_images.OPTIONS.items() if name not in ("min_count", "word_dim")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coloured_images, "OPTIONS", options)
        coloured_images.run(folder / "data", folder / "subwords", text=str(bert), max_tokens=24)
    for name in ("run", "wide", "subwords"):
        subtext.build_index(folder / f"{name}-index", run=folder / name, quiet=True)
    subtext.build_index(folder / "bare-index", run=folder / "run", text_encoder="none", quiet=True)
    subtext.build_index(f"lance://{folder}/run-lance", run=folder / "run", quiet=True)
    return folder


@pytest.fixture(params=["folder", "lance"])
def index(request: pytest.FixtureRequest, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | str:
    """A copy of the index of "run", to be damaged."""
    if request.param == "folder":
        return shutil.copytree(place / "run-index", tmp_path / "index")
    monkeypatch.setattr(lance, "GRACE", 0.0)
    return f"lance://{shutil.copytree(place / 'run-lance', tmp_path / 'index')}"


class _Recorded(np.ndarray):
    """An array that notes the multiplications of every product of matrices that it is in."""

    products: ClassVar[list[int]] = []

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: np.ndarray, **options: object) -> np.ndarray:
        plain = [np.asarray(value) for value in inputs]
        if ufunc is np.matmul:
            self.products.append(plain[0].size * plain[1].shape[-1])
        return getattr(ufunc, method)(*plain, **options)


@pytest.mark.parametrize(("texts", "tokens", "most"), [(1, 6, 2**18), (32, 64, 32 * 64 * 384 * 1536), (0, 1, 0)])
def test_query_products_are_split_to_avoid_threads(texts: int, tokens: int, most: int) -> None:
    random = np.random.default_rng(0)
    weight, bias = (random.normal(size=shape).astype(np.float32) for shape in ((1536, 384), (1536,)))
    rows = random.normal(size=(texts, tokens, 384)).astype(np.float32)
    side = TextSide("", None, {}, {"x.weight": weight.view(_Recorded), "x.bias": bias})
    _Recorded.products.clear()
    np.testing.assert_allclose(side._linear("x", rows), rows @ weight.T + bias, atol=1e-4)
    assert max(_Recorded.products) <= most and sum(_Recorded.products) == rows.size * 1536
    assert len(_Recorded.products) == (14 if most == 2**18 else 1)


def side_of(index: Path | str) -> Path:
    """The folder of the text side of an index."""
    side = open_store(index).text_side
    assert side is not None
    return side


@pytest.mark.parametrize("name", ["run", "wide", "subwords", "lance"])
def test_answers_equal_model_answers(place: Path, name: str) -> None:
    index = f"lance://{place}/run-lance" if name == "lance" else place / f"{name}-index"
    plain, name = open_index(index), "run" if name == "lance" else name
    opened = plain.with_model()
    assert opened is not plain
    queries = [Query(text=text, top=12, explain=True) for text in QUERIES]
    queries += [Query(text="red", not_text="blue"), Query(text="red", hubness="csls")]
    for query in queries:
        ours, theirs = plain.answer(query), opened.answer(query)
        assert [hit.id for hit in ours] == [hit.id for hit in theirs]
        np.testing.assert_allclose([h.score for h in ours], [h.score for h in theirs], atol=1e-5)
        assert (ours.words, ours.notes, ours.request) == (theirs.words, theirs.notes, theirs.request)
    # Texts of unequal length, padded together.
    many = [Query(text=text, top=3) for text in QUERIES]
    for ours, theirs in zip(plain.answer_many(many), opened.answer_many(many), strict=True):
        np.testing.assert_allclose([h.score for h in ours], [h.score for h in theirs], atol=1e-5)
    vectors = load(place / name).embed_texts(QUERIES).vectors.numpy()
    np.testing.assert_allclose(plain._embed_texts(QUERIES), vectors, atol=1e-5)


@pytest.mark.parametrize("name", ["bare-index", "run-index", "subwords-index", "run-lance"])
def test_text_search_imports_no_torch(place: Path, name: str) -> None:
    index = f"lance://{place}/{name}" if name == "run-lance" else str(place / name)
    words = ["search", index, 'a "blue square" 7', "--where", "place < 9", "--explain", "--json"]
    done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True)
    # A sentence encoder reads subwords, and "bare-index" has none; Lance imports pyarrow, which imports pandas.
    allowed = set() if name == "bare-index" else {"tokenizers"}
    allowed |= {"pyarrow", "pandas"} if name == "run-lance" else set()
    assert set(ast.literal_eval(done.stderr.splitlines()[-1])) <= allowed
    assert '"blue"' in done.stdout


def test_image_query_loads_model(place: Path) -> None:
    picture = place / "data" / "red.png"
    plain, opened = open_index(place / "run-index"), open_index(place / "run-index", run=place / "run")
    for query in (Query(image=picture), Query(text="blue", image=picture)):
        ours, theirs = plain.answer(query), opened.answer(query)
        assert [hit.id for hit in ours] == [hit.id for hit in theirs]
        np.testing.assert_allclose([h.score for h in ours], [h.score for h in theirs], atol=1e-5)


def test_text_search_works_without_run(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "run", tmp_path / "run")
    subtext.build_index(tmp_path / "index", run=tmp_path / "run", data=place / "data", quiet=True)
    shutil.rmtree(tmp_path / "run")
    assert len(subtext.search(tmp_path / "index", "blue", top=3)) == 3
    with pytest.raises(SearchIndexError, match="needs the run that made it"):
        subtext.search(tmp_path / "index", image=place / "data" / "red.png")


def test_named_model_or_device_is_used(place: Path) -> None:
    with pytest.raises(SearchIndexError, match="it got another"):
        open_index(place / "run-index", run=place / "other")
    with pytest.raises(RequirementError, match=r"^device nowhere cannot be used"):
        subtext.search(place / "run-index", "blue", device="nowhere")


def test_text_side_of_another_model_raises(place: Path, index: Path | str) -> None:
    side = side_of(index)
    shutil.rmtree(side)
    shutil.copytree(Folder(place / "wide-index").text_side, side)
    with pytest.raises(SearchIndexError, match="needs to be of the model that made the index") as refused:
        subtext.search(index, "blue")
    assert "index update" in str(refused.value)
    assert [where for where, _ in subtext.verify_index(index).problems] == [f"{side.parent.name}/query"]
    subtext.update_index(index, quiet=True)
    assert not subtext.verify_index(index).problems
    assert len(subtext.search(index, "blue", top=2)) == 2


@pytest.mark.parametrize("name", ["vocabulary.json", "text_side.json", "arrays.npy"])
def test_damage_is_detected(place: Path, index: Path | str, name: str) -> None:
    side = side_of(index)
    file = side / name
    intact = file.read_bytes()
    file.write_bytes(intact[:-9] + bytes([intact[-9] ^ 1]) + intact[-8:])
    assert [name for name, _ in subtext.verify_index(index).problems if "/query" in name]
    if not is_address(index):
        with pytest.raises(SearchIndexError, match="damaged"):
            subtext.backup_index(index, Path(index).parent / "copy")
    if name != "arrays.npy":  # As with the vectors of items, a search does not read every byte.
        with pytest.raises(SearchIndexError, match=name):
            open_index(index)
    file.unlink()
    with pytest.raises(SearchIndexError, match=name):
        open_index(index)
    file.symlink_to(Folder(place / "run-index").text_side / name)
    with pytest.raises(SearchIndexError, match="symbolic link"):
        open_index(index)
    shutil.rmtree(side)
    side.symlink_to(Folder(place / "run-index").text_side)
    with pytest.raises(SearchIndexError, match="symbolic link"):
        open_index(index)


def test_copies_include_text_side(place: Path, tmp_path: Path) -> None:
    subtext.backup_index(place / "run-index", tmp_path / "copy")
    subtext.restore_index(tmp_path / "copy", tmp_path / "restored")
    restored = side_of(tmp_path / "restored")
    assert {file.name: file.read_bytes() for file in restored.iterdir()} == {
        file.name: file.read_bytes() for file in side_of(place / "run-index").iterdir()
    }


def test_moves_and_compactions_include_text_side(place: Path, index: Path | str) -> None:
    former = side_of(index)
    left = former.with_name(".writing-1-0000-query") / "arrays.npy"
    left.parent.mkdir()
    left.write_bytes(b"by a killed process")
    os.utime(left, (0, 0))
    subtext.compact_index(index)
    assert not left.exists()
    assert len(open_index(index).search("blue", top=2)) == 2 and former.exists()
    subtext.move_index(index, run=place / "other", even_if_worse=True, quiet=True)
    subtext.compact_index(index)
    moved = open_index(index)
    assert moved.store.path == index and not former.exists() and not subtext.verify_index(index).problems
    np.testing.assert_allclose(
        moved._embed_texts(["blue"]), load(place / "other").embed_texts(["blue"]).vectors.numpy(), atol=1e-5
    )
    new = side_of(index)
    open_store(index).remove()
    assert not new.parent.exists() and not former.parent.exists()


def test_index_without_text_side_loads_model(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = call("index", "build", tmp_path / "gru", "--run", place / "gru")
    assert (
        built.stderr.count("opens the model with PyTorch, which takes seconds; only texts read by a bag of words") == 1
    )
    assert "Recurrent" in built.stderr
    monkeypatch.setattr(make_text_side, "TOLERANCE", -1.0)
    built = call("index", "build", tmp_path / "unequal", "--run", place / "run")
    assert "differ from the model's by" in built.stderr
    for name in ("gru", "unequal"):
        opened = open_index(tmp_path / name)
        assert not Folder(tmp_path / name).text_side.exists() and opened.with_model() is opened
        answer = call("search", tmp_path / name, "blue", "--top", 2)
        assert len(opened.search("blue", top=2)) == 2 and "note" not in answer.stderr
