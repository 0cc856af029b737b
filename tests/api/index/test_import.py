"""Vectors from a file: what makes an index of them that words can search, and what is refused, in one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3_server
import tiny_models
from command import call, invoke
from PIL import Image

import subtext as st
from subtext.data import object_store
from subtext.errors import SearchIndexError
from subtext.retrieval.stores.registry import open_store

TEXTS = ("two red boats", "a dog runs", "the cat sleeps", "man rides horse", "a boat on the beach", "dog and cat")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pretrained models of one width, six images in two halves, and the vectors of both halves by one model."""
    folder = tmp_path_factory.mktemp("archive")
    tiny_models.processed("siglip", folder / "model")
    rows: list[dict[str, object]] = []
    for number, text in enumerate(TEXTS):
        Image.new("RGB", (32, 32), (40 * number, 255 - 40 * number, 90)).save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", "captions": [text], "split": "all", "shelf": number % 2})
    made_data.write_rows(folder / "pairs.jsonl", rows)
    for half in (0, 1):
        made_data.write_rows(folder / f"half{half}.jsonl", rows[half::2])
        words = ["--model", folder / "model", "--text-prompt", "a photo of {}", "--data", folder / f"half{half}.jsonl"]
        call("embed", *words, "--split", "all", "--out", folder / f"half{half}.npz", "-q")
    return folder


def imported(address: str, archive: Path, half: int, *words: object, code: int = 0) -> str:
    named = ["--data", archive / f"half{half}.jsonl", "--model", archive / "model", "--text-prompt", "a photo of {}"]
    answer = call("index", "import", address, archive / f"half{half}.npz", *(words or named), code=code)
    return str(answer.output)


def test_vectors_of_a_pretrained_model_are_searched_by_words(
    address_of: Callable[[str], str], archive: Path, tmp_path: Path
) -> None:
    """As an index that was built: embedded in two parts, as on two machines, and imported one after the other."""
    address = address_of("imported")
    assert "vectors of 3 images and 3 texts put in" in imported(address, archive, 0)
    assert "vectors of 3 images and 3 texts put in" in imported(address, archive, 1)
    words = ["--model", archive / "model", "--text-prompt", "a photo of {}", "-q"]
    call("index", "build", tmp_path / "built", archive / "pairs.jsonl", *words)
    mine, theirs = st.open_index(address), st.open_index(tmp_path / "built")
    for text in ("a dog", "two red boats on the beach"):
        for target in ("images", "texts"):
            got, wanted = (engine.search(text, target=target) for engine in (mine, theirs))
            assert [hit.id for hit in got] == [hit.id for hit in wanted] and len(got) == 6
            np.testing.assert_allclose([hit.score for hit in got], [hit.score for hit in wanted], atol=1e-5)
    store = open_store(address)
    assert store.manifest.fingerprint == open_store(tmp_path / "built").manifest.fingerprint
    assert store.manifest.pretrained == open_store(tmp_path / "built").manifest.pretrained
    assert store.manifest.pretrained["text_prompt"] == "a photo of {}"
    assert len(json.loads(call("search", address, "dog", "--where", "shelf = 1", "--json").stdout)["hits"]) == 3
    assert ": intact" in call("index", "verify", address).stdout
    told = imported(address, archive, 0, "--data", archive / "half0.jsonl", "--model", archive / "model", code=1)
    assert "needs vectors of the model that made it" in told or "a cosine of" in told
    store.remove()


def test_vectors_without_a_model_are_searched_by_items(address_of: Callable[[str], str], archive: Path) -> None:
    address = address_of("bare")
    imported(address, archive, 0, "--data", archive / "half0.jsonl")
    assert len(st.search(address, like=("0.png",), top=1)) == 1
    hits = json.loads(call("search", address, "--like", "0.png", "--json").stdout)["hits"]
    assert sorted(hit["id"] for hit in hits) == ["2.png", "4.png"]
    told = call("search", address, "a dog", code=1).stderr
    assert "names none; search by one of its items (--like ID), or import the vectors again and name the model" in told
    with pytest.raises(SearchIndexError, match=r"search by one of its items \(like=ID\)"):
        st.open_index(address).search("a dog")
    open_store(address).remove()


def spoilt(archive: Path, file: Path, **changes: Any) -> Path:
    with np.load(archive / "half0.npz") as held:
        arrays = {**held, **changes}
    np.savez(file, allow_pickle=False, **{name: array for name, array in arrays.items() if array is not None})
    return file


WRONG = {
    "groups of text": (
        {"image_groups": np.array(["a", "b", "c"])},
        "needs a whole number for each id in 'image_groups'",
    ),
    "groups of numbers with a point": (
        {"text_groups": np.ones(3)},
        "needs a whole number for each id in 'text_groups'",
    ),
    "too few groups": ({"text_groups": np.arange(2)}, "it has int64 of shape (2,)"),
    "ids of pairs": ({"image_ids": np.array([["a", "b"]])}, "'image_ids' needs one string a row"),
    "ids of numbers with a point": ({"image_ids": np.ones(3)}, "'image_ids' needs one string a row"),
    "no vectors": ({"image_vectors": None}, "needs one vector, or K, for each id; images have 3 and (0,)"),
    "one vector for all": (
        {"image_vectors": np.ones(16)},
        "needs one vector, or K, for each id; images have 3 and (16,)",
    ),
    "vectors without numbers": ({"image_vectors": np.ones((3, 0))}, "images have 3 and (3, 0)"),
    "a vector too few": ({"text_vectors": np.ones((2, 16))}, "texts have 3 and (2, 16)"),
    "vectors of words": ({"text_vectors": np.array(["a", "b", "c"])}, "its vectors of texts are <U1"),
    "another width": (
        {"image_vectors": np.ones((3, 8)), "text_vectors": np.ones((3, 8))},
        "have 16 numbers; these have 8",
    ),
    "vectors of another model": ({"text_vectors": np.eye(3, 16)}, "are others than it gives (a cosine of"),
    "two widths": ({"image_vectors": np.ones((3, 8))}, "of one width"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_is_no_set_of_vectors_is_refused_in_a_sentence(archive: Path, tmp_path: Path, kind: str) -> None:
    changes, wanted = WRONG[kind]
    words = ["--data", archive / "half0.jsonl", "--model", archive / "model", "--text-prompt", "a photo of {}"]
    told = call("index", "import", tmp_path / "new", spoilt(archive, tmp_path / "v.npz", **changes), *words, code=1)
    assert told.stderr.startswith("error: ") and len(told.stderr.splitlines()) == 1
    assert wanted in told.stderr and "v.npz" in told.stderr, told.stderr
    assert not (tmp_path / "new").exists()


def test_a_table_of_other_columns_is_refused_in_a_sentence(tmp_path: Path) -> None:
    plain = {"modality": ["image"], "id": ["a"], "vector": [[1.0, 2.0]]}
    tables = [
        {},
        plain | {"vector": [None]},
        plain | {"vector": [[]]},
        plain | {"vector": ["x"]},
        plain | {"vector": [[None, 1.0]]},
        plain | {"vector": [3.0]},
        plain | {"id": [None]},
        plain | {"id": [1.5]},
        plain | {"id": [["a"]]},
        plain | {"group": ["x"]},
        plain | {"group": [None]},
        plain | {"group": [[1]]},
        plain | {"modality": ["sound"]},
        plain | {"modality": [None]},
        {"modality": ["image", "image"], "id": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]},
        {"modality": ["image", "image"], "id": ["a", "a"], "vector": [[1.0], [2.0]]},
    ]
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), tmp_path / "v.parquet")
        answer = invoke("index", "import", tmp_path / f"new{number}", tmp_path / "v.parquet")
        assert isinstance(answer.exception, SystemExit) and answer.exit_code == 1, (table, answer.exception)
        assert answer.stderr.startswith("error: ") and "v.parquet" in answer.stderr, (table, answer.stderr)


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", image_ids=np.arange(2), image_vectors=np.eye(2, 4, dtype=np.float32))
    call("index", "import", tmp_path / "new", tmp_path / "v.npz")
    pq.write_table(
        pa.table({"modality": ["image"], "id": [7], "vector": [[1.0, 2.0, 3.0, 4.0]]}), tmp_path / "v.parquet"
    )
    call("index", "import", tmp_path / "new", tmp_path / "v.parquet")
    assert open_store(tmp_path / "new").counts["images"] == 3


NAMED = ("--text-prompt", "a photo of {}")


def apart(archive: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The first half as a list in one folder, and its images in another."""
    (tmp_path / "lists").mkdir()
    shutil.copy(archive / "half0.jsonl", tmp_path / "lists" / "data.jsonl")
    (tmp_path / "photos").mkdir()
    for name in ("0.png", "2.png", "4.png"):
        shutil.copy(archive / name, tmp_path / "photos")
    return tmp_path / "lists" / "data.jsonl", tmp_path / "photos"


def updated(address: str | Path, *words: object) -> str:
    return str(call("index", "update", address, *words).output)


def test_an_index_of_imported_parts_follows_its_data(
    address_of: Callable[[str], str], archive: Path, tmp_path: Path
) -> None:
    """Two parts, whose lists and images lie in two folders: nothing is embedded before a file changes."""
    address, first, second = address_of("followed"), tmp_path / "first", tmp_path / "second"
    for half, folder in enumerate((first, second)):
        folder.mkdir()
        shutil.copy(archive / f"half{half}.jsonl", folder / "data.jsonl")
        for number in range(half, 6, 2):
            shutil.copy(archive / f"{number}.png", folder)
        words = ["--data", folder / "data.jsonl", "--model", archive / "model", *NAMED]
        told = imported(address, archive, half, *words)
        assert "more item" not in told
    found = json.loads(call("index", "info", address, "--json").stdout)
    assert found["data"]["data"] == str(first / "data.jsonl")
    assert found["further_data"] == [str(second / "data.jsonl")]
    told = updated(address)
    assert "0 items embedded, 12 unchanged" in told, told
    assert "note: files of imported images are read once, and taken as those of their vectors" in told
    told = updated(address)
    assert "0 items embedded, 12 unchanged" in told and "are read once" not in told
    assert ": intact" in call("index", "verify", address).stdout
    # What an update has learnt stays where the same vectors come again.
    imported(address, archive, 0, "--data", first / "data.jsonl", "--model", archive / "model", *NAMED)
    os.utime(first / "2.png", (1, 1))
    shutil.copy(archive / "0.png", first / "4.png")
    assert "1 item embedded, 11 unchanged" in updated(address)
    open_store(address).remove()


def test_a_file_that_changed_between_import_and_update_is_embedded(archive: Path, tmp_path: Path) -> None:
    data, photos = apart(archive, tmp_path)
    words = ["--data", data, "--images", photos, "--model", archive / "model", *NAMED]
    imported(str(tmp_path / "index"), archive, 0, *words)
    shutil.copy(archive / "1.png", photos / "2.png")
    assert "1 item embedded, 5 unchanged" in updated(tmp_path / "index")
    call("index", "build", tmp_path / "built", data, *words[2:], "-q")
    mine, theirs = st.open_index(tmp_path / "index"), st.open_index(tmp_path / "built")
    got, wanted = (engine.search("a dog") for engine in (mine, theirs))
    assert [hit.id for hit in got] == [hit.id for hit in wanted]
    np.testing.assert_allclose([hit.score for hit in got], [hit.score for hit in wanted], atol=1e-5)


def test_images_that_come_after_their_import_are_taken_as_those_of_their_vectors(archive: Path, tmp_path: Path) -> None:
    data, photos = apart(archive, tmp_path)
    away = photos.rename(tmp_path / "away")
    photos.mkdir()
    words = ["--data", data, "--images", photos, "--model", archive / "model", *NAMED]
    imported(str(tmp_path / "index"), archive, 0, *words)
    photos.rmdir()
    away.rename(photos)
    told = updated(tmp_path / "index")
    assert "0 items embedded, 6 unchanged" in told and "files of imported images are read once" in told
    told = updated(tmp_path / "index")
    assert "0 items embedded, 6 unchanged" in told and "read once" not in told
    (photos / "2.png").rename(photos / "renamed.png")
    data.write_text(data.read_text().replace("2.png", "renamed.png"))
    assert "0 items embedded, 4 unchanged, 2 renamed" in updated(tmp_path / "index")


def test_changes_after_an_import_start_where_its_images_do(archive: Path, tmp_path: Path) -> None:
    data, photos = apart(archive, tmp_path)
    words = ["--data", data, "--images", photos, "--model", archive / "model", *NAMED]
    imported(str(tmp_path / "index"), archive, 0, *words)
    shutil.copy(archive / "1.png", photos)
    made_data.write_rows(tmp_path / "changes", [{"image": "1.png", "captions": ["a dog runs"]}])
    told = updated(tmp_path / "index", "--changes", tmp_path / "changes")
    assert "2 items embedded" in told and "left out" not in told, told


def test_imported_images_of_a_store_are_known_by_its_listing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read once for what is written inside it; and relative paths of changes start in the store."""
    data, photos = apart(archive, tmp_path)
    monkeypatch.setattr(object_store, "LOOKED", 0.0)
    with s3_server.served() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        bucket = s3_server.Bucket(environment["AWS_ENDPOINT_URL"])
        for file in photos.iterdir():
            bucket.put(f"photos/{file.name}", file.read_bytes())
        words = ["--data", data, "--images", "s3://archive/photos", "--model", archive / "model", *NAMED]
        imported(str(tmp_path / "index"), archive, 0, *words)
        bucket.asked()
        assert "0 items embedded, 6 unchanged" in updated(tmp_path / "index")
        assert [line for line in bucket.asked() if "GET" in line] == [f"GET photos/{n}.png" for n in (0, 2, 4)]
        assert "0 items embedded, 6 unchanged" in updated(tmp_path / "index")
        assert bucket.asked() == ["LIST"]
        bucket.put("photos/1.png", (archive / "1.png").read_bytes())
        row = (archive / "half1.jsonl").read_text().splitlines(keepends=True)[0]
        (tmp_path / "changes").write_text(row)
        told = updated(tmp_path / "index", "--changes", tmp_path / "changes")
        assert "2 items embedded" in told and "left out" not in told, told
        bucket.put("photos/2.png", (archive / "3.png").read_bytes())
        data.write_text(data.read_text() + row)
        assert "1 item embedded, 7 unchanged" in updated(tmp_path / "index")


def test_a_part_that_was_embedded_is_what_an_update_reads(archive: Path, tmp_path: Path) -> None:
    """The vectors of a split, or of a part of the data: the report says what an update would embed."""
    rows = [
        {"image": str(archive / f"{number}.png"), "captions": [text], "split": "val" if number % 2 else "train"}
        for number, text in enumerate(TEXTS)
    ]
    made_data.write_rows(tmp_path / "data.jsonl", rows)
    words = ["--model", archive / "model", *NAMED, "--data", tmp_path / "data.jsonl"]
    call("embed", *words, "--split", "train", "--out", tmp_path / "v.npz", "-q")
    told = call("index", "import", tmp_path / "part", tmp_path / "v.npz", *words).output
    assert "the data has 6 more items, which `subtext index update` embeds" in told
    told = call("index", "import", tmp_path / "split", tmp_path / "v.npz", *words, "--split", "train").output
    assert "more item" not in told
    assert "0 items embedded, 6 unchanged" in updated(tmp_path / "split")
    assert "6 items embedded, 6 unchanged" in updated(tmp_path / "part")
    told = call("index", "import", tmp_path / "new", tmp_path / "v.npz", "--split", "train", code=2).output
    assert "Error: --split is of a data set; name that, too (--data DATA)" in told
