"""All that archives bring at once: every file becomes what it must, by every command; a sample in CI, whole if slow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from command import call, invoke
from corpus import ITEM, LEFT_OUT, PROBLEM, Corpus, Expected
from PIL import Image
from served_index import client

import subtext as st
from subtext.data.image_files import open_image
from subtext.data.read import read
from subtext.retrieval.stores.registry import open_store


@dataclass(frozen=True)
class Made:
    """A corpus and an index of it."""

    folder: Path
    index: str
    expected: list[Expected]

    def of(self, becomes: str, data: str = "") -> list[Expected]:
        """What becomes something, in one data set or in all."""
        return [one for one in self.expected if one.becomes == becomes and data in ("", one.data)]

    @property
    def data(self) -> list[str]:
        """The names of the data sets."""
        return list(dict.fromkeys(one.data for one in self.expected))


def make(folder: Path, index: str, variants: int) -> Made:
    expected = Corpus(folder / "corpus", variants).write()
    model = folder / "model"
    model.mkdir()
    tiny_models.siglip_2(model, "4.5x")
    made = Made(folder / "corpus", index, expected)
    first, *others = made.data
    call("index", "build", index, made.folder / first, "--model", model, "--on-error", "skip", "-q")
    for data in others:
        call("index", "add", index, made.folder / data, "--on-error", "skip", "-q")
    return made


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("sample")
    (folder / "corpus").mkdir()
    return make(folder, str(folder / "index"), 1)


@pytest.fixture(scope="module")
def whole(address_of: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "corpus").mkdir()
    yield make(folder, address_of("corpus"), 4)


def items_of(made: Made) -> dict[str, Any]:
    with closing(open_store(made.index)) as store, store.reading() as view:
        return {item.id: item for item in view.items("images", view.keys("images"))}


def require_all(made: Made) -> None:
    """Every file is an item with its texts and fields, left out, or a problem that is named."""
    items, wanted = items_of(made), made.of(ITEM)
    assert set(items) == {one.id for one in wanted}
    for one in wanted:
        item = items[one.id]
        assert set(one.texts) <= set(item.captions), one
        assert {name: item.metadata.get(name) for name in one.fields} == one.fields, one
    languages = {text: language for one in wanted for text, language in one.texts.items() if language}
    with closing(open_store(made.index)) as store, store.reading() as view:
        texts = {item.captions[0]: item.metadata for item in view.items("texts", view.keys("texts"))}
    assert {text: texts[text].get("language") for text in languages} == languages


def require_colours(made: Made) -> None:
    for data in made.data:
        dataset = read(made.folder / data, on_error="skip")
        paths = dict(zip(dataset.images.ids, dataset.images.values, strict=True))
        for one in made.of(ITEM, data):
            if one.colour is not None:
                image = open_image(paths[one.id], dataset.root)
                middle = np.asarray(image.resize((1, 1), Image.Resampling.BOX, box=(2, 3, *image.size))).reshape(3)
                assert np.abs(middle.astype(int) - one.colour).max() <= 8, (one, middle)


def require_checks(made: Made) -> None:
    """`data check` counts the items and names each problem; what is left out is counted, too."""
    for data in made.data:
        report = st.check_dataset(made.folder / data, verify=True, on_error="skip", quiet=True)
        assert report.images == len(made.of(ITEM, data)), data
        told = " ".join(str(problem) for problem in report.problems if problem.fatal)
        assert all(Path(one.file).name in told for one in made.of(PROBLEM, data)), told
        assert sum(problem.fatal for problem in report.problems) == len(made.of(PROBLEM, data)), told
        if made.of(LEFT_OUT, data):
            assert any("left out" in str(problem) for problem in report.problems), data


def require_searches(made: Made) -> None:
    index = st.open_index(made.index)
    for one in made.of(ITEM)[:: max(1, len(made.of(ITEM)) // 40)]:
        assert one.id in [hit.id for hit in index.search("the harbour", top=len(made.expected)).hits]
        assert one.id in [hit.id for hit in index.search(like=[one.id], top=3).hits] or one.id
    found = {hit.id for hit in index.search("x", where=["place = Paris, Texas"], top=10**4).hits}
    assert found == {one.id for one in made.of(ITEM) if one.fields.get("place") == "Paris, Texas"}
    with closing(open_store(made.index)) as store, store.reading() as view:
        for text in ("Hafen", "port", "harbour"):
            keys = [key for key, _ in view.search_text(text, top=10**4)]
            captions = {item.captions[0] for item in view.items("texts", keys)}
            assert captions == {words for one in made.of(ITEM) for words in one.texts if text in words.split()}


def require_page(made: Made, folder: Path) -> None:
    with client(made.index, storage_dir=str(folder / "storage"), image_folders=(str(made.folder),)) as page:
        assert page.get("/").status_code == 200
        total = page.get("/items", params={"top": 1}).json()["total"]
        assert total == len(made.of(ITEM))
        for one in made.of(ITEM)[:: max(1, total // 60)]:
            answer = page.get("/thumbnail", params={"id": one.id, "size": 96})
            assert answer.status_code == 200, one
            assert page.get("/item", params={"id": one.id}).json()["item"]["id"] == one.id


def require_changes(made: Made) -> None:
    """An update finds nothing new, then what was replaced, added and deleted; a watch finds the rest."""
    again = call("index", "update", made.index, "--on-error", "skip", "-q").stdout
    assert ": 0 items embedded" in again and "deleted" not in again.replace("0 deleted", ""), again
    photos = made.folder / "photos"
    replaced, deleted = photos / "formats/0/png.png", photos / "formats/0/bmp.bmp"
    Image.new("RGB", (40, 30), (250, 1, 250)).save(replaced)
    deleted.unlink()
    shutil.copy(photos / "formats/0/jpg.jpg", photos / "formats/0/new.jpg")
    # A manifest that is cut off may be that of what is missing: its deletion has to be allowed.
    held = call("index", "update", made.index, "--on-error", "skip", "-q").stdout
    assert "2 items embedded" in held and "--allow-deleting 1" in held and "formats/0/bmp.bmp" in items_of(made)
    told = call("index", "update", made.index, "--on-error", "skip", "--allow-deleting", 1, "-q").stdout
    assert "1 deleted" in told and "formats/0/new.jpg" in items_of(made) and "formats/0/bmp.bmp" not in items_of(made)
    Image.new("RGB", (40, 30), (1, 250, 250)).save(deleted)
    st.watch_index(made.index, max_checks=1, interval=0, on_error="skip", quiet=True)
    assert set(items_of(made)) == {"formats/0/new.jpg", *(one.id for one in made.of(ITEM))}
    assert invoke("index", "verify", made.index).exit_code == 0


def test_sample_becomes_what_it_must(sample: Made, tmp_path: Path) -> None:
    assert len(sample.expected) > 100
    require_all(sample)
    require_colours(sample)
    require_checks(sample)
    require_searches(sample)
    require_page(sample, tmp_path)
    require_changes(sample)


@pytest.mark.slow
def test_whole_corpus_becomes_what_it_must(whole: Made, tmp_path: Path) -> None:
    assert len(whole.expected) > 400
    require_all(whole)
    require_colours(whole)
    require_checks(whole)
    require_searches(whole)
    require_page(whole, tmp_path)
    require_changes(whole)
