"""Objects in place of files: tables and rows as data, arrays as features and scores, modules as towers; callbacks."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import made_data
import numpy as np
import pytest
import torch
from PIL import Image

import subtext as st
from subtext.data.dataset import fingerprint
from subtext.errors import ArgumentError, DataError, RecipeError, RequirementError, SubtextError, TrainingError
from subtext.recipes import catalogue

unchecked = pytest.mark.skipif(
    os.environ.get("CHECK_SHAPES") != "0", reason="the checks of types refuse wrong objects first"
)
SMALL: dict[str, Any] = {"options": {"embed_dim": 8, "image": "tiny", "text": "bag"}, "plan": {"epochs": 1}}
ROWS: list[dict[str, Any]] = [
    {
        "image": f"{n}.png",
        "captions": [f"image {n}", "the same words", "the same words"],
        "split": ("train", "train", "val", "test")[n % 4],
        "year": 1990 + n,
        "keywords": "law; court",
    }
    for n in range(24)
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for n in range(len(ROWS)):
        Image.fromarray(np.random.default_rng(n).integers(0, 255, (40, 40, 3), np.uint8)).save(folder / f"{n}.png")
    made_data.write_rows(folder / "pairs.jsonl", ROWS)
    return folder


class Numbered:
    """Rows as a torch Dataset has them: by their number alone."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]


def ways() -> dict[str, Callable[[list[dict[str, Any]]], Any]]:
    import datasets
    import pandas
    import polars
    import pyarrow

    return {
        "list": list,
        "generator": lambda rows: (row for row in rows),
        "torch dataset": Numbered,
        "pandas": pandas.DataFrame,
        "filtered pandas": lambda rows: pandas.DataFrame([{"image": None}, *rows]).iloc[1:],
        "polars": polars.DataFrame,
        "pyarrow": pyarrow.Table.from_pylist,
        "datasets": datasets.Dataset.from_list,
    }


@pytest.mark.parametrize("way", ways())
def test_objects_give_the_data_set_of_their_file(photos: Path, way: str) -> None:
    from_file, given = st.read(photos / "pairs.jsonl"), st.read(ways()[way](ROWS), images=photos)
    assert fingerprint(given) == fingerprint(from_file) and len(given.texts) == 3 * len(ROWS)
    assert given.images.metadata == from_file.images.metadata
    assert given.images.metadata["keywords"][0] == ["law", "court"]
    renamed = [{"file": row["image"], "sentences": row["captions"], "split": row["split"]} for row in ROWS]
    other = st.read(ways()[way](renamed), images=photos, columns={"image": "file", "text": ["sentences"]})
    assert fingerprint(other) == fingerprint(from_file)


@unchecked
def test_objects_of_images_are_read_as_their_files(photos: Path) -> None:
    import pandas
    import polars

    from_file = st.read(photos / "pairs.jsonl")
    with ExitStack() as files:
        opened = [{**row, "image": files.enter_context(Image.open(photos / row["image"]))} for row in ROWS]
        by_path = st.read(opened)
    assert by_path.images.values == [str(photos / row["image"]) for row in ROWS]

    def decoded() -> list[dict[str, Any]]:
        return [{**row, "image": Image.open(photos / row["image"]).convert("RGB")} for row in ROWS]

    for rows in (decoded(), pandas.DataFrame(decoded()), polars.DataFrame(decoded())):
        in_memory = st.read(rows, verify=True)
        assert len(in_memory) == len(from_file) and not [it for it in in_memory.problems if it.fatal]
        data = in_memory.images.values[3]
        assert isinstance(data, bytes)
        assert (np.asarray(Image.open(io.BytesIO(data))) == np.asarray(Image.open(photos / "3.png"))).all()
    arrays = st.read([{**row, "image": np.asarray(Image.open(photos / row["image"]))} for row in ROWS])
    assert arrays.images.ids == in_memory.images.ids
    with pytest.raises(
        DataError, match=r"'image' needs a path, bytes, a PIL image, .* it is a Tensor of shape \(3, 4, 4\)"
    ):
        st.read([{"image": torch.zeros(3, 4, 4), "caption": "a"}])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (5, "a data set needs a path, or rows such as .* it got int"),
        ({"image": ["a.jpg"], "caption": ["b"]}, "it got a mapping of 'image', 'caption'; .*zip"),
        ([("a.jpg", "words")], r"as row 1, a tuple: .*; name its parts: \(\{'image'"),
        (["a.jpg"], "as row 1, a str"),
        (np.zeros((3, 2)), "features go to features="),
        ([], "needs at least one image; it has none"),
        ([{"picture_of": "a.jpg"}], r"needs an image column .*; its columns are 'picture_of'; name yours: columns=\{"),
    ],
)
@unchecked
def test_objects_that_are_no_data_get_one_sentence(data: Any, sentence: str, photos: Path) -> None:
    for function in (st.read, st.check_dataset, lambda it: st.embed(model="starter", data=it)):
        if function is st.check_dataset and not isinstance(data, int | dict | np.ndarray):
            continue
        with pytest.raises(SubtextError, match=sentence):
            function(data)


@unchecked
def test_objects_lazy_and_empty_frames_get_one_sentence() -> None:
    import pandas
    import polars

    with pytest.raises(ArgumentError, match=r"LazyFrame.*; collect it first"):
        st.read(polars.LazyFrame({"image": ["a.jpg"]}))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'image' is there twice"):
        st.read(pandas.DataFrame([["a.jpg", "b.jpg"]], columns=["image", "image"]))
    with pytest.raises(DataError, match="needs at least one image"):
        st.read(pandas.DataFrame({"image": [], "caption": []}))


def test_objects_go_to_every_function_that_takes_data(photos: Path, tmp_path: Path) -> None:
    import pandas

    frame = pandas.DataFrame(ROWS)
    assert st.check_dataset(frame, images=photos).trainable
    run = st.train("dual", data=st.DataConfig(frame, images=photos), out=tmp_path / "run", quiet=True, **SMALL)
    assert run.record.data.data is None
    result = st.evaluate(run, st.DataConfig((row for row in ROWS), images=photos), split="test", quiet=True)
    assert result.about["split_role"] == "held out" and result.about["data"]["fingerprint"]
    embedded = st.embed(run, data=ROWS, images=photos, quiet=True)
    assert len(embedded.images) == len(ROWS)
    index = tmp_path / "index"
    st.build_index(index, frame[:20], images=photos, run=run, quiet=True)
    assert st.add_to_index(index, frame, images=photos, quiet=True).counts["images"] == len(ROWS)
    assert len(st.score(frame, images=photos, run=run, quiet=True)) == 3 * len(ROWS)
    assert st.prepare(frame, images=photos, resplit=True).dataset.counts()
    assert len(st.curate(frame, images=photos, run=run, out=tmp_path / "curated", quiet=True)) == 3 * len(ROWS)


def test_objects_column_image_id_never_overwrites_ids(photos: Path) -> None:
    dataset = st.read([{**row, "id": f"item {n}", "image_id": 7} for n, row in enumerate(ROWS)], images=photos)
    frame = dataset.to_frame()
    assert frame["image_id"].tolist()[:4] == ["item 0"] * 3 + ["item 1"]
    assert set(frame["image_id (2)"]) == {7} and "year" in frame


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[st.Run, Any]:
    vectors = np.random.default_rng(0).normal(size=(len(ROWS), 6)).astype(np.float32)
    features = {"ids": [row["image"] for row in ROWS], "vectors": torch.from_numpy(vectors).to(torch.bfloat16)}
    config = st.DataConfig(ROWS, images=photos, features=features)
    out = tmp_path_factory.mktemp("objects") / "run"
    run = st.train("vse", data=config, out=out, options={"embed_dim": 8}, plan={"epochs": 1}, quiet=True)
    return run, features


def test_objects_as_features_are_joined_by_id(trained: tuple[st.Run, Any], photos: Path) -> None:
    run, features = trained
    assert run.record.data.features is None
    config = st.DataConfig(ROWS, images=photos, features=features)
    figures = st.evaluate(run, config, split="all", quiet=True).figures
    array, ids = features["vectors"].float().numpy(), features["ids"]
    order = np.random.default_rng(1).permutation(len(ids))
    for same in (
        {"ids": [ids[row] for row in order], "vectors": array[order]},
        (array, ids),
        (ids, torch.from_numpy(array)),
        dict(zip(ids, array, strict=True)),
        {"names": np.array(ids), "pooled": array},
    ):
        assert st.evaluate(run, st.DataConfig(ROWS, features=same), split="all", quiet=True).figures == figures
    with pytest.raises(DataError, match=r"name the file with the data \(features\)"):
        st.evaluate(run, ROWS, split="all", quiet=True)
    assert st.check_dataset(ROWS, features=features).features[0].complete


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (np.zeros((24, 6)), "features needs the ids of its rows, since rows are joined by name"),
        ({"ids": ["a"], "vectors": np.zeros((2, 6))}, "needs one row a name, 1; it got 2"),
        ({"ids": ["a"], "vectors": np.array([["x"]])}, "needs 2 axes of real numbers"),
        (
            {"ids": ["a"], "vectors": torch.zeros(1, 2, dtype=torch.complex64)},
            "needs an array of numbers; it got complex",
        ),
        ({"a.jpg": np.zeros(2), "b.jpg": np.zeros(3)}, "features needs vectors of one shape"),
        ({}, "it got an empty mapping"),
        (5, "features needs a path, or arrays with ids, as .*; it got a int"),
        ([1, 2, 3], "features needs a path, or arrays with ids"),
    ],
)
@unchecked
def test_objects_that_are_no_features_get_one_sentence(features: Any, sentence: str) -> None:
    with pytest.raises((ArgumentError, DataError), match=sentence):
        st.DataConfig(ROWS, features=features)


def test_objects_as_scores_and_embeddings_are_evaluated_with_their_ids(photos: Path) -> None:
    pairs = st.read(ROWS, images=photos)
    same = pairs.images.groups[:, None] == pairs.texts.groups[None]
    scores = torch.from_numpy(same).float()
    ids = {"image_ids": pairs.images.ids, "text_ids": pairs.texts.ids}
    for given, external in ((scores, ids), ({"scores": scores.numpy(), **ids}, {})):
        result = st.evaluate(data=ROWS, scores=given, external=external, split="all", quiet=True)
        assert result.figures["text_to_image/recall@1"] == 100
    order = np.random.default_rng(0).permutation(len(pairs.images))
    images, texts = np.eye(len(pairs.images)), np.eye(len(pairs.images))[pairs.texts.groups]
    result = st.evaluate(
        data=ROWS,
        image_embeddings=(torch.from_numpy(images[order]), [pairs.images.ids[row] for row in order]),
        text_embeddings=texts,
        external={"text_ids": pairs.texts.ids},
        split="all",
        quiet=True,
    )
    assert result.figures["image_to_text/recall@1"] == 100
    with pytest.raises(DataError, match=r"scores needs 'image_ids', the ids of its rows.*external=\{'image_ids'"):
        st.evaluate(data=ROWS, scores=scores, split="all", quiet=True)


@pytest.fixture(scope="module")
def index(trained: tuple[st.Run, Any], photos: Path, tmp_path_factory: pytest.TempPathFactory) -> st.Index:
    run, features = trained
    folder = tmp_path_factory.mktemp("index of objects") / "index"
    config = {"images": photos, "features": features}
    st.build_index(folder, ROWS, run=run, quiet=True, **config)
    return st.open_index(folder, run=run, features=features)


@unchecked
def test_objects_as_queries_lists_and_one_condition(index: st.Index) -> None:
    one, two = index.search("image 3"), index.search(["image 3", "image 4"], where="year > 2000")
    assert isinstance(two, list) and [len(answer) for answer in (one, *two)] == [10, 10, 10]
    assert all(hit.metadata["year"] > 2000 for answer in two for hit in answer)
    several = st.search(index, ["image 3", "image 4"], where="year > 2000")
    assert [[hit.id for hit in answer] for answer in several] == [[hit.id for hit in answer] for answer in two]
    assert index.search(like="3.png").hits[0].id != "3.png"
    for wrong in (5, [], ["a", 5], {"text": "a"}):
        with pytest.raises(SubtextError, match=r"text needs a query, or a list of queries|text needs text"):
            index.search([wrong] if isinstance(wrong, dict) else wrong)  # type: ignore[list-item]


class Squares(torch.nn.Module):
    """A tower of images: pixels (N 3 H W) to vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 5, 8, stride=8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layer(pixels).mean(dim=(2, 3))


class Words(torch.nn.Module):
    """A tower of texts: codes (N L) to vectors of parts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(97, 5)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.words(codes)


class Letters(torch.nn.Module):
    """A tower of texts that reads texts themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 5)

    def forward(self, texts: list[str]) -> torch.Tensor:
        return self.layer(torch.from_numpy(letters(texts)))


def letters(texts: list[str]) -> np.ndarray[Any, Any]:
    return np.stack([np.bincount(np.frombuffer(t.encode(), np.uint8) % 32, minlength=32) for t in texts]).astype("f4")


def colours(images: list[Image.Image]) -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(image.resize((4, 4)), np.float32).ravel() / 255 for image in images])


def codes(texts: list[str]) -> list[list[int]]:
    return [[sum(map(ord, word)) % 97 for word in text.split()] for text in texts]


@pytest.mark.parametrize(
    "objects",
    [
        {"image": Squares(), "text": "bag"},
        {"image": Squares(), "text": Words(), "tokeniser": codes},
        {"image": colours, "text": Letters()},
        {"image": "tiny", "text": letters},
    ],
    ids=lambda objects: "+".join(objects),
)
def test_objects_as_towers_train_and_are_needed_to_open_the_run(
    photos: Path, tmp_path: Path, objects: dict[str, Any]
) -> None:
    before = {n: it.clone() for n, it in Squares().state_dict().items()}
    options = {"embed_dim": 8, **({"image_size": 32} if isinstance(objects["image"], Squares) else {}), **objects}
    data = st.DataConfig(ROWS, images=photos)
    run = st.train("dual", data=data, out=tmp_path / "run", options=options, plan={"epochs": 2}, quiet=True)
    given = {name: it for name, it in objects.items() if not isinstance(it, str)}
    assert any("the run does not hold" in note for note in run.notes)
    figures = st.evaluate(run, data, split="test", quiet=True).figures
    with pytest.raises(RequirementError, match=r"was trained with .*and needs it again; open it in Python: open_run\("):
        st.evaluate(tmp_path / "run", data, split="test", quiet=True)
    opened = st.open_run(tmp_path / "run", options=given)
    assert st.evaluate(opened, data, split="test", quiet=True).figures == figures
    assert st.load(tmp_path / "run", options=given).encode(["words"]).shape == (1, 8)
    assert "  subtext.evaluate(run, data, split='val')\n  subtext.build_index('INDEX', data, run=run" in str(run)
    index = tmp_path / "index"
    st.build_index(index, ROWS, images=photos, run=run, quiet=True)
    assert len(st.open_index(index, run=opened).search("image 3")) == 10
    assert before.keys() == Squares().state_dict().keys()


class Rows(Squares):
    """Pixels to parts."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward(pixels)[:, None].expand(-1, 3, -1)


class Means(Words):
    """Codes to vectors."""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.words(codes).mean(dim=1)


@pytest.mark.parametrize(
    "model",
    [name for name, recipe in catalogue.models().items() if "image" in {option.name for option in recipe.options}],
)
@unchecked
def test_objects_as_towers_of_vectors_or_parts_go_into_every_model(model: str, photos: Path, tmp_path: Path) -> None:
    features = {"ids": [row["image"] for row in ROWS], "vectors": np.ones((len(ROWS), 3, 8), np.float32)}
    texts = [{"text": tower, "tokeniser": codes} for tower in (Words(), Means())]
    for objects in ({"image": Squares()}, {"image": Rows()}, *texts):
        size = {"image_size": 32} if "image" in objects else {}
        data = st.DataConfig(ROWS, images=photos, features=None if size else features)
        options = {"embed_dim": 8, **size, **objects}
        own = {option.name for option in catalogue.models()[model].options} | {"tokeniser"}
        options = {name: it for name, it in options.items() if name in own}
        st.train(model, data=data, out=tmp_path / "run", options=options, dry_run=True, quiet=True)
        assert not (tmp_path / "run").exists(), "a dry run computes a loss, and writes nothing"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"image": 5}, "image needs a name, a torch module or a function; it got 5"),
        ({"image": torch.nn.Linear(3, 4)}, "image=Linear needs a module that maps pixels .* it raised RuntimeError"),
        ({"image": torch.nn.Identity()}, "needs a module that returns vectors"),
        ({"tokeniser": codes}, "tokeniser needs a text tower that reads its tokens"),
        ({"text": letters, "tokeniser": codes}, "tokeniser needs a torch module as text"),
        ({"text": Words(), "tokeniser": str}, "tokeniser=str needs to return numbers"),
        ({"image": lambda images: None}, "what .* returns needs an array of numbers"),
        ({"image": lambda images: images[0].nothing}, "it raised AttributeError"),
        ({"image": lambda images: np.zeros(3)}, r"needs to return \(N, D\)"),
        ({"image": "object:Squares"}, "needs the object itself, Squares, which is given in Python alone"),
    ],
)
@unchecked
def test_objects_that_are_no_towers_get_one_sentence(
    options: dict[str, Any], sentence: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(SubtextError, match=sentence):
        st.train("dual", data=st.DataConfig(ROWS, images=photos), out=tmp_path / "run", options=options, quiet=True)


@unchecked
def test_objects_as_callbacks_see_steps_epochs_and_the_end(photos: Path, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Logger:
        def on_step(self, line: dict[str, Any]) -> None:
            seen.append(("step", line["step"], line["loss"], line["lr"]))

        def on_epoch(self, line: dict[str, Any]) -> None:
            seen.append(("epoch", line["epoch"], line["figures"]["rsum"]))

        def on_end(self, run: st.Run) -> None:
            seen.append(("end", run.path))

    data, plan = st.DataConfig(ROWS, images=photos), {"epochs": 2, "batch_size": 6}
    run = st.train(
        "dual", data=data, out=tmp_path / "run", options=SMALL["options"], plan=plan, callbacks=[Logger()], quiet=True
    )
    steps = [line for line in seen if line[0] == "step"]
    assert [line[1] for line in steps] == list(range(1, run.record.steps + 1)) and len(steps) > 2
    assert seen[-1] == ("end", run.path) and [line[1] for line in seen if line[0] == "epoch"] == [1, 2]
    history = run.history
    assert [entry["figures"]["rsum"] for entry in history] == [line[2] for line in seen if line[0] == "epoch"]
    assert history.best_epoch == run.record.best_epoch and "(kept)" in str(history)
    assert {"epoch", "loss", "rsum"} <= set(history.to_frame().columns)
    assert history.plot()._repr_svg_().startswith("<svg")
    for wrong in (5, [5], [type("Late", (), {"on_finish": print})()]):
        with pytest.raises(ArgumentError, match=r"callbacks needs a list|a callback needs methods named on_step"):
            st.train("dual", data=data, out=tmp_path / "other", callbacks=wrong)  # type: ignore[arg-type]


def test_objects_of_results_are_drawn(trained: tuple[st.Run, Any], photos: Path, tmp_path: Path) -> None:
    run, features = trained
    config = st.DataConfig(ROWS, images=photos, features=features)
    result = st.evaluate(run, config, split="all", quiet=True)
    compared = st.compare(result, result)
    for shown in (result, compared):
        html = shown._repr_html_()
        assert 'aria-label="' in html and "<rect" in html and "<path" in html
        assert shown.plot().save(tmp_path / "drawing.svg").read_text().startswith("<svg")
    with pytest.raises(ArgumentError, match=r"name a file that ends in \.svg"):
        result.plot().save(tmp_path / "drawing.png")


@pytest.mark.parametrize(
    ("method", "wrong"),
    [({"methods": ["hal"]}, TrainingError), ({"plan": {"precision": "fp16"}}, TrainingError), ({}, None)],
    ids=["hal", "fp16", "plain"],
)
def test_objects_dry_run_refuses_what_the_training_refuses(
    photos: Path, tmp_path: Path, method: dict[str, Any], wrong: type[Exception] | None
) -> None:
    common = {"data": st.DataConfig(ROWS, images=photos), "quiet": True, "run": {"device": "cpu"}, **SMALL, **method}
    if wrong is None:
        dry = st.train("dual", out=tmp_path / "run", dry_run=True, **common)
        assert "built, not trained" in str(dry) and not (tmp_path / "run").exists()
        st.train("dual", out=tmp_path / "run", **common)
        with pytest.raises(SubtextError, match="holds something"):
            st.train("dual", out=tmp_path / "run", dry_run=True, **common)
        return
    refusals = []
    for dry_run in (True, False):
        with pytest.raises(wrong) as refusal:
            st.train("dual", out=tmp_path / "run", dry_run=dry_run, **common)
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]


def test_objects_registered_methods_are_not_needed_to_open_their_runs(photos: Path, tmp_path: Path) -> None:
    @st.register_method
    def gentle(setup: Any, *, share: Annotated[float, "a share"] = 0.5) -> Any:
        """Change nothing."""
        return setup

    data = photos / "pairs.jsonl"
    try:
        run = st.train("dual", data=data, out=tmp_path / "run", methods=["gentle"], quiet=True, **SMALL)
    finally:
        del catalogue.methods()["gentle"]
    code = f"import subtext as st; print(st.evaluate({str(run.path)!r}, split='test', quiet=True).figures['rsum'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
    with pytest.raises(RecipeError, match="there is no method called 'gentle'"):
        st.open_run(run.path).setup()


@unchecked
def test_objects_encode_gives_an_array(photos: Path, tmp_path: Path) -> None:
    run = st.train("dual", data=photos / "pairs.jsonl", out=tmp_path / "run", quiet=True, **SMALL)
    model = st.load(run)
    texts, images = model.encode(["image 1", "image 2"]), model.encode([photos / "1.png", Image.open(photos / "2.png")])
    assert texts.shape == images.shape == (2, 8) and texts.dtype == np.float32
    assert np.array_equal(texts, model.embed_texts(["image 1", "image 2"]).vectors[:, 0].numpy())
    for wrong in ("image 1", ["a", photos / "1.png"], 5, ["a", None], [photos / "1.png", math.nan]):
        with pytest.raises(RequirementError, match="encode needs"):
            model.encode(wrong)  # type: ignore[arg-type]
    with pytest.raises(
        RequirementError, match=r"reads a string as a text; '1.png' is an image here; .*Path\('1.png'\)"
    ):
        model.encode(["words", "1.png"], root=photos)
    assert model.encode(["none.png", "x" * 5000], root=photos).shape == (2, 8)


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda: st.Plan(learning_rate=1), "did you mean lr"),
        (lambda: st.RunConfig(sed=1), "did you mean seed"),  # type: ignore[call-arg]
        (lambda: st.DataConfig(feature="a"), "did you mean features"),  # type: ignore[call-arg]
        (lambda: st.Protocol(fold=1), "did you mean folds"),  # type: ignore[call-arg]
        (lambda: st.Query(tex="a"), "did you mean text"),  # type: ignore[call-arg]
        (lambda: st.ComputeConfig(batchsize=1), "did you mean batch_size"),  # type: ignore[call-arg]
        (lambda: st.train("dual", data="a", out="b", learning_rate=1), r"did you mean plan=\{'lr'"),
        (lambda: st.train("dual", data="a", out="b", embed_dim=1), r"options=\{'embed_dim'"),
        (lambda: st.train("dual", data="a", out="b", options={"learning_rate": 1}), "did you mean lr"),
        (lambda: st.train("dual", data="a", out="b", plan={"learning_rate": 1}), "did you mean lr"),
    ],
)
@unchecked
def test_objects_unknown_options_name_the_near_one(call: Callable[[], Any], near: str) -> None:
    with pytest.raises((SubtextError, TypeError), match=near):
        call()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: st.read(Numbered), r"it got the class Numbered; give an object: Numbered\(\.\.\.\)"),
        (lambda: st.train("dual", data=ROWS, out="a", options=["a"]), "options needs a mapping"),
        (
            lambda: st.train("dual", data=ROWS, out="a", plan="a"),
            "plan needs a Plan, or a mapping of its fields; it got 'a'",
        ),
        (
            lambda: st.train("dual", data=ROWS, out="a", options={"image": Squares}),
            "image needs an object; it got the class",
        ),
        (lambda: st.evaluate("a", ROWS, protocol=5), "protocol needs a Protocol"),
        (lambda: st.evaluate("a", ROWS, config=5), "config needs a ComputeConfig, or a mapping"),
        (lambda: st.evaluate(Squares(), ROWS), "model needs the folder of a run, a Run, or the name"),
        (lambda: st.open_run(5), "path needs the folder of a run"),
        (lambda: st.load(5), "run needs the folder of a run"),
        (lambda: st.search(5, "a"), "index needs a folder, an address, or what open_index returned"),
        (
            lambda: st.train("dual", data=ROWS, out="."),
            r"^out needs a new or an empty folder; .* or go on with resume$",
        ),
        (
            lambda: st.train("adapt", data=ROWS, out="a", options={"image": "tiny"}),
            "called 'image'; did you mean image_size",
        ),
        (lambda: st.compare(5, 5), "first needs a Result of evaluate or its JSON file"),
    ],
)
@unchecked
def test_objects_of_another_kind_get_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(SubtextError, match=sentence):
        call()


@unchecked
def test_objects_as_queries_of_any_library(index: st.Index) -> None:
    import pandas

    for queries in (np.array(["a", "b"]), pandas.Series(["a", "b"]), (text for text in "ab")):
        assert len(st.search(index, queries)) == 2
    with pytest.raises(RequirementError, match="where needs a condition such as"):
        index.search("a", where=5)  # type: ignore[call-overload]
    with pytest.raises(SubtextError, match=r"an array of uint8|precomputed image features"):
        index.search(image=torch.zeros(3, 4, 4))


@unchecked
def test_objects_progress_is_called_to_the_end(photos: Path, tmp_path: Path) -> None:
    run = st.train("dual", data=photos / "pairs.jsonl", out=tmp_path / "run", quiet=True, **SMALL)
    everything = 4 * len(ROWS)

    def calls() -> Iterator[tuple[str, list[tuple[int, int]]]]:
        for name in ("embed", "evaluate", "build_index", "curate"):
            seen: list[tuple[int, int]] = []
            common: dict[str, Any] = {
                "quiet": True,
                "progress": lambda done, total, seen=seen: seen.append((done, total)),
            }
            if name == "embed":
                st.embed(run, **common)
            elif name == "evaluate":
                st.evaluate(run, split="all", **common)
            elif name == "build_index":
                st.build_index(tmp_path / "index", run=run, **common)
            else:
                st.curate(photos / "pairs.jsonl", run=run, out=tmp_path / "curated", **common)
            yield name, seen

    for name, seen in calls():
        assert (everything, everything) in seen, name
    for wrong in (5, lambda done: None):
        with pytest.raises(ArgumentError, match="progress needs a function of two numbers"):
            st.embed(run, progress=wrong, quiet=True)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pictured(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> st.Run:
    """A run that reads images."""
    out = tmp_path_factory.mktemp("pictured") / "run"
    return st.train("dual", data=photos / "pairs.jsonl", out=out, quiet=True, **SMALL)


def test_objects_as_vectors_are_imported(pictured: st.Run, photos: Path, tmp_path: Path) -> None:
    run = pictured
    embedded = st.embed(run, data=photos / "pairs.jsonl", split="all", quiet=True)
    ids, vectors = embedded.images.ids, embedded.image_vectors.vectors
    st.import_index(tmp_path / "embedded", embedded, run=run.path, text_encoder="none")
    hits = st.search(tmp_path / "embedded", "image 3", top=3)
    built = tmp_path / "built"
    st.build_index(built, photos / "pairs.jsonl", run=run.path, text_encoder="none", quiet=True)
    assert [hit.id for hit in hits] == [hit.id for hit in st.search(built, "image 3", top=3)]
    assert hits[0].captions, "its texts are those of the embedded data"
    arrays = {"image_ids": ids, "image_vectors": vectors, "text_ids": embedded.texts.ids}
    ways: list[Any] = [
        arrays | {"text_vectors": embedded.text_vectors},
        (vectors, ids),
        dict(zip(ids, vectors.numpy(), strict=True)),
    ]
    for number, way in enumerate(ways):
        report = st.import_index(tmp_path / f"way{number}", way)
        assert report.numbers["images"] == len(ids)
        near = st.search(tmp_path / f"way{number}", like=ids[0], top=3)
        assert len(near) == 3 and near[0].id != ids[0]


@pytest.mark.parametrize(
    ("vectors", "sentence"),
    [
        (np.eye(3), "vectors needs the ids of its rows"),
        ({"image_ids": ["a"], "image_vectors": np.ones((2, 3))}, r"one vector, or K, for each id; images have 1"),
        ({"image_ids": ["a"], "image_vectors": np.ones((1, 3)), "other": 1}, "it got other, too; leave them out"),
        ({"a": np.zeros(3)}, "vectors that are not zero"),
        (3, "vectors needs a path, or arrays with ids"),
    ],
)
@unchecked
def test_objects_that_are_no_vectors_get_one_sentence(vectors: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SubtextError, match=sentence):
        st.import_index(tmp_path / "index", vectors)


def test_objects_as_models_are_measured(pictured: st.Run, photos: Path, tmp_path: Path) -> None:
    run, data = pictured, photos / "pairs.jsonl"
    model = st.load(run.path)
    of_model, of_run = (st.evaluate(one, data, split="all", quiet=True) for one in (model, run))
    assert of_model.to_json()["metrics"] == of_run.to_json()["metrics"]
    assert of_model.about["model"]["pretrained"] == "a model in memory"
    vectors = st.embed(model=model, data=data, split="all", quiet=True).image_vectors.vectors
    assert torch.equal(vectors, st.embed(run, data=data, split="all", quiet=True).image_vectors.vectors)
    with pytest.raises(ArgumentError, match="a model in memory needs data"):
        st.evaluate(model)
    with pytest.raises(ArgumentError, match=r"save it \(save_pretrained\)"):
        st.build_index(tmp_path / "index", data, model=model, text_encoder="none", quiet=True)


def test_objects_without_a_name_that_need_one_get_one_sentence(photos: Path) -> None:
    with pytest.raises(TypeError, match=r"'val' needs the name of its argument; index and data alone .* split=\.\.\."):
        st.calibrate_index("library", photos, "val")  # type: ignore[misc]
    with pytest.raises(SubtextError, match="library"):
        st.calibrate_index("library", photos, split="val")
    with pytest.raises(
        TypeError, match=r"needs the name.* model alone .* write train\(model, data=\.\.\., out=\.\.\.\)"
    ):
        st.train("vse", photos, "run")  # type: ignore[call-arg, misc]
    features = r"'features' is a field of data; give it there, as in data=\{'data': DATA, 'features': \.\.\.\}"
    with pytest.raises(TypeError, match=features):
        st.train("vse", data=photos, features={}, out="run")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"evaluate\(model, data, split=\.\.\.\)"):
        st.evaluate("run", photos, "val")  # type: ignore[misc]
