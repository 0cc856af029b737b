"""Every command reads and fills one cache of what frozen encoders give, and does without it where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from command import call
from PIL import Image

import subtext as st
from subtext.core import Encoded
from subtext.data.inputs import Tensors
from subtext.data.output_cache import OutputCache, forget, user_cache
from subtext.models.encoders.dual import SingleTower
from subtext.models.feature_cache import item_contents
from subtext.retrieval.stores.registry import open_store


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rows = tmp_path_factory.mktemp("data"), []
    for number in range(24):
        Image.new("RGB", (40, 40), (10 * number, 90, 255 - 9 * number)).save(folder / f"{number}.png")
        split = "train" if number < 16 else "val" if number < 20 else "test"
        rows.append({"image": f"{number}.png", "captions": [f"colour number {number}"], "split": split})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.clip(tmp_path_factory.mktemp("models") / "clip")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the towers read, an entry a call."""
    seen: list[str] = []
    forward = SingleTower.forward

    def counted(self: SingleTower, inputs: Tensors) -> Encoded:
        seen.append(self.input_name)
        return forward(self, inputs)

    monkeypatch.setattr(SingleTower, "forward", counted)
    return seen


def test_commands_share_the_outputs_of_a_pretrained_model(
    data: Path, clip: Path, tmp_path: Path, ran: list[str]
) -> None:
    said = call("index", "build", tmp_path / "lib", data, "--model", clip).stderr
    cache = user_cache()
    assert cache is not None and f"are kept in {cache.folder} (" in said and "of at most 10.0 GB" in said
    assert set(ran) == {"pixels", "tokens"}
    ran.clear()
    assert "are kept in" not in call("evaluate", "--model", clip, "--data", data, "--split", "test").stderr
    st.embed(model=clip, data=data, quiet=True)
    st.curate(data, model=clip, out=tmp_path / "curated", quiet=True)
    assert not ran
    st.build_index(tmp_path / "again", model=clip, data=data, quiet=True)
    # The model embeds a few texts, which the arrays for searches by words have to equal.
    assert set(ran) == {"tokens"}
    ran.clear()
    run = st.train(
        "adapt", data=data, out=tmp_path / "run", options={"model": str(clip)}, plan={"epochs": 2}, quiet=True
    )
    st.evaluate(run, quiet=True)
    st.build_index(tmp_path / "adapted", run=run, quiet=True)
    assert not ran and run.record.plan["patience"] == 4


def test_vectors_from_the_cache_are_those_of_the_model(data: Path, clip: Path) -> None:
    first, second = (st.embed(model=clip, data=data, quiet=True) for _ in range(2))
    model, images = st.load(model=clip), [data.parent / f"{number}.png" for number in range(24)]
    for side in ("image_vectors", "text_vectors"):
        assert np.array_equal(*(getattr(each, side).vectors.numpy() for each in (first, second)))
    plain = model.embed_images(images).vectors.numpy()
    np.testing.assert_allclose(first.image_vectors.vectors.numpy(), plain, atol=1e-5)


def test_without_a_place_for_the_cache_everything_works(
    data: Path, clip: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "file" / "cache"))
    said = call("index", "build", tmp_path / "lib", data, "--model", clip).stderr
    assert said.count("note: outputs of frozen encoders are not kept: ") == 1 and "Traceback" not in said
    assert st.search(tmp_path / "lib", "colour number 3", top=5).hits
    ran.clear()
    run = st.train(
        "adapt", data=data, out=tmp_path / "run", options={"model": str(clip)}, plan={"epochs": 2}, quiet=True
    )
    assert any(f"its own folder, {tmp_path / 'run' / 'cache'}" in note for note in run.notes)
    assert ran.count("pixels") == 2  # Of 20 images, once each: two blocks.
    assert not (tmp_path / "run" / "cache").exists() and run.record.status == "finished"


def test_a_cache_that_is_too_small_is_said(
    data: Path, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "100 B")
    said = call("embed", "--model", clip, "--data", data, "--out", tmp_path / "v.npz").stderr
    assert "its limit is 100 B; raise it (SUBTEXT_CACHE_LIMIT)" in said
    monkeypatch.setenv("SUBTEXT_CACHE_LIMIT", "enough")
    answer = call("embed", "--model", clip, "--data", data, "--out", tmp_path / "v.npz", code=2)
    assert "SUBTEXT_CACHE_LIMIT needs a size" in answer.stderr


def test_what_an_index_knows_of_an_item_forgets_it(data: Path, clip: Path, tmp_path: Path, ran: list[str]) -> None:
    st.build_index(tmp_path / "lib", model=clip, data=data, quiet=True)
    pairs, model = st.read(data), st.load(model=clip)
    store = open_store(tmp_path / "lib")
    for side, branch, items in (("images", model.image, pairs.images), ("texts", model.text, pairs.texts)):
        with store.writing("test") as writer:
            rows = writer.rows_of(side, items.ids)
        contents = item_contents(branch, items, pairs.root)
        assert [rows[name].content for name in items.ids] == contents
        assert forget([rows[items.ids[0]].content]) == 1
        cache = user_cache()
        assert isinstance(cache, OutputCache)
        assert not any(contents[0] in file.read_bytes() for file in cache.folder.rglob("contents.npy"))
    ran.clear()
    st.embed(model=clip, data=data, quiet=True)
    assert sorted(ran) == ["pixels", "tokens"]
