"""What public objects show in a notebook: a short `repr`, tables as HTML, and plain data."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_data
import pytest

import subtext as st
from subtext.api.train import flat_arguments
from subtext.errors import ArgumentError, RequirementError

WITHOUT_TABLE = {"export", "embedded", "built", "verified", "compacted", "graph"}
FRAMES = {"dataset", "result", "compared", "audit", "runs", "neighbours", "scores", "prepared", "embedded", "curation"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """One object of each public class that a verb returns."""
    folder = tmp_path_factory.mktemp("notebook")
    data, features = made_data.write(folder)
    dataset = st.read(data, need_images=False)
    small: dict[str, Any] = {"embed_dim": 16, "word_dim": 8, "batch_size": 16, "workers": 0, "quiet": True}
    run = st.train(
        "vse",
        **flat_arguments("vse", {"data": dataset, "features": features, "out": folder / "run", "epochs": 1, **small}),
    )
    index, on = folder / "index", {"data": dataset, "quiet": True}
    result = st.evaluate(run, split="all", **on)
    built = st.build_index(index, run=run, **on)
    graph = st.build_neighbours(folder / "graph", space="lsa", dim=4, neighbours=3, **on)
    return {
        "dataset": dataset,
        "run": run,
        "runs": st.list_runs([folder]),
        "result": result,
        "compared": st.compare(result, st.evaluate(run, split="all", protocol=st.Protocol(seed=1), **on)),
        "audit": st.audit(run, split="test", **on),
        "check": st.check_dataset(dataset, features=features),
        "prepared": st.prepare(dataset, resplit=True),
        "embedded": st.embed(run, **on),
        "built": built,
        "info": st.index_info(index),
        "verified": st.verify_index(index),
        "compacted": st.compact_index(index),
        "answer": st.search(index, "a red dog"),
        "graph": graph,
        "neighbours": st.show_neighbours(graph, data=dataset, item=dataset.split("train").texts.ids[0]),
        "scores": st.score(dataset, run=run, split="test", quiet=True),
        "curation": st.curate(dataset, run=run, split="test", out=folder / "curated", quiet=True),
        "export": st.export_run(run, hf=folder / "hub", quiet=True),
    }


def test_every_object_has_a_short_repr(shown: Mapping[str, Any]) -> None:
    for name, value in shown.items():
        text = repr(value)
        assert text.startswith(f"{type(value).__name__}(") and "\n" not in text and len(text) < 300, (name, text)


def test_every_object_shows_html(shown: Mapping[str, Any]) -> None:
    for name, value in shown.items():
        html = value._repr_html_()
        assert "<pre" not in html and html.count("<table>") == html.count("</table>"), name
        if name not in WITHOUT_TABLE | {"answer", "curation"}:
            assert "<table>" in html and "<td" in html, name
    assert "<th>recall@10</th>" in shown["run"]._repr_html_() and "<td>data set in memory</td>" in str(
        shown["run"]._repr_html_()
    )
    assert "<th>i2t r@10</th>" in shown["runs"]._repr_html_()


def test_every_object_converts_to_json_or_data_frame(shown: Mapping[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    for name, value in shown.items():
        if name != "dataset":
            assert json.dumps(value.to_json()), name
        if name in FRAMES | {"answer"}:
            frame = value.to_frame()
            assert isinstance(frame, pandas.DataFrame) and len(frame), name
    embedded = shown["embedded"].to_frame()
    assert embedded["vector"][0].shape == (16,) and list(embedded.columns[:4]) == ["modality", "id", "group", "split"]


def test_graph_displays_its_folder(shown: Mapping[str, Any], tmp_path: Path) -> None:
    shutil.copytree(shown["graph"], tmp_path / "copy")
    assert shown["graph"].to_json()["fingerprint"] == shown["neighbours"].to_json()["fingerprint"]


def test_model_and_index_have_one_line_repr(shown: Mapping[str, Any]) -> None:
    run = shown["run"]
    assert repr(run.model).startswith("Model(image=") and "similarity=Cosine" in repr(run.model)
    index = st.open_index(shown["built"].path)
    assert "\n" not in repr(index) and "60 images" in repr(index)


def test_list_of_queries_gives_a_list_of_answers(shown: Mapping[str, Any]) -> None:
    answers = st.open_index(shown["built"].path).search(["a dog", "a cat"])
    assert [type(answer) for answer in answers] == [st.Answer] * 2


def test_help_describes_every_argument() -> None:
    for function in (st.train, st.evaluate, st.ensemble_runs, st.list_runs):
        signature, text = inspect.signature(function), inspect.getdoc(function) or ""
        assert "Annotated" not in str(signature)
        for name in signature.parameters:
            assert f"\n    {name}: " in text.partition("Args:")[2], name


def test_typical_mistakes_get_helpful_errors(tmp_path: Path) -> None:
    for call, said in (
        (lambda: st.evaluate("run", splt="test"), "there is no argument called 'splt'; did you mean split"),
        (lambda: st.check_dataset(), "check_dataset: missing a required argument: 'data'"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'; did you mean evaluate"):
        st.evaluat  # noqa: B018
    for call, said in (
        (lambda: st.embed("run", batch_size="many"), "batch_size needs a whole number; it got 'many'"),
        (lambda: st.embed("run", batch_size=10.5), "batch_size needs a whole number; it got 10.5"),
        (lambda: st.evaluate("run", quiet="yes"), "quiet needs true or false; it got 'yes'"),
        (lambda: st.evaluate("run", split=3), "split needs text; it got 3"),
        (lambda: st.embed(), "give one of these: run=RUN"),
        (lambda: st.embed(5), "run needs text or a path; it got 5"),
    ):
        with pytest.raises(ArgumentError, match=said):
            call()
    # A value alone is a list of one.
    with pytest.raises(RequirementError, match="it got 'cidr'"):
        st.evaluate("run", metrics=["asp:cidr"])
