"""Metrics, readers, losses and methods from outside the package: their mistakes are answered when they are met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import small_training
import torch

import subtext as st
from subtext.api.train import flat_arguments
from subtext.core import Comparison
from subtext.data import readers
from subtext.errors import RecipeError, RequirementError, ShapeError
from subtext.evaluation import Protocol, evaluate_matrix, metric
from subtext.recipes import catalogue


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metric, "_REGISTERED", [])
    monkeypatch.setattr(readers, "_registered", [])
    before = set(catalogue.methods())
    yield
    for name in catalogue.methods().keys() - before:
        del catalogue.methods()[name]


def measure() -> Any:
    pairs = small_training.pairs(12)
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(len(pairs.images), len(pairs.texts))))
    return evaluate_matrix(scores, pairs, protocol=Protocol(bootstrap=0))


@pytest.mark.parametrize("value", [torch.ones(3), torch.tensor(1.0), [1.0, 2.0], torch.ones(12, 24)])
def test_metric_without_one_value_per_query_raises(value: torch.Tensor) -> None:
    @st.register_metric
    class Constant(st.Metric):
        name = "constant"

        def __call__(self, comparison: Comparison) -> torch.Tensor:
            return value

    with pytest.raises(ShapeError, match=r"the metric 'constant' needs values \(12,\), one per query; it got \("):
        measure()


def test_metric_may_return_array_or_list() -> None:
    @st.register_metric
    class Counting(st.Metric):
        name = "counting"
        percent = False

        def __call__(self, comparison: Comparison) -> Any:
            values = np.arange(len(comparison.scores), dtype=np.float32)
            return values if len(values) == 12 else values.tolist()

    figures = measure().figures
    assert (figures["image_to_text/counting"], figures["text_to_image/counting"]) == (5.5, 11.5)


def test_metric_name_must_be_own_and_registered_once() -> None:
    for value in (1.0, 2.0):

        @st.register_metric
        @dataclass(frozen=True)
        class Best(st.Metric):
            name = "best"
            percent = False
            factor = value

            def __call__(self, comparison: Comparison) -> torch.Tensor:
                return self.factor * torch.ones(len(comparison.scores))

    # The cell of a notebook ran twice: the last one counts.
    assert measure().figures["text_to_image/best"] == 2.0

    class Nameless(st.Metric):
        pass

    with pytest.raises(RequirementError, match=r"a metric needs a name; .*Nameless has none"):
        st.register_metric(Nameless)

    @st.register_metric
    class Taken(Best):
        name = "recall@10"

    with pytest.raises(RequirementError, match=r"'recall@10' is that of .* rename one"):
        measure()


class Reader:
    LOOKS_FOR, PRIORITY = "NAME.own", 50
    returned: Any = None

    def recognises(self, path: Path) -> bool:
        return path.suffix == ".own"

    def read(self, path: Path, images: Path | None) -> Any:
        return self.returned


def test_incomplete_reader_raises(tmp_path: Path) -> None:
    class Half:
        LOOKS_FOR = "nothing"

    with pytest.raises(RequirementError, match=r"Half.* has no PRIORITY, recognises, read"):
        st.register_reader(Half)
    assert not readers._registered
    for _ in range(2):
        st.register_reader(Reader)
    assert len(readers._registered) == 1
    path = tmp_path / "a.own"
    path.write_text("row")
    with pytest.raises(RequirementError, match=r"needs to return a Source; .* returned None"):
        st.read(path)
    Reader.returned = st.Source([], tmp_path)
    # Set afterwards: where types are checked, the class itself refuses such rows.
    object.__setattr__(Reader.returned, "rows", [{"image": "a.jpg"}])
    with pytest.raises(RequirementError, match=r"rows need to be of the class Row, or a Problem; one is {'image'"):
        st.read(path)


def test_invalid_method_or_loss_raises(tmp_path: Path) -> None:
    data, features = made_data.write(tmp_path)

    def train(name: str) -> None:
        options: dict[str, Any] = {"embed_dim": 8, "word_dim": 8, "epochs": 1, "workers": 0, "quiet": True}
        st.train(
            "vse",
            **flat_arguments(
                "vse", {"data": data, "features": features, "out": tmp_path / name, "methods": name, **options}
            ),
        )

    def hal(setup: Any) -> Any:
        return setup

    with pytest.raises(RecipeError, match="'hal' is one of this package; rename it"):
        st.register_method(hal)

    def untyped(setup: Any, *, strength=0.5):  # type: ignore[no-untyped-def]
        return setup

    with pytest.raises(
        RecipeError, match=r"option needs Annotated\[type, 'help'\] and a default; 'strength' has not both"
    ):
        st.register_method(untyped)

    def forgetful(setup: Any) -> Any:
        """Returns nothing."""

    st.register_method(forgetful)
    with pytest.raises(RecipeError, match="'forgetful' needs to return a Setup; it returned None"):
        train("forgetful")

    class Mean:
        def __call__(self, comparison: Comparison) -> torch.Tensor:
            return comparison.scores.mean()

    def averaged(setup: Any) -> Any:
        """A loss that is one number."""
        sides = ("image_to_text", "text_to_image")
        return st.replace_terms("averaged", setup, {side: st.Term(Mean(), on=side) for side in sides})

    st.register_method(averaged)
    with pytest.raises(ShapeError, match=r"the loss Mean of 'image_to_text' needs one value per query, \(\d+,\); it"):
        train("averaged")
