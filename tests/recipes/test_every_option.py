"""Every option of every model and method acts: changing it changes what is built, or it is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from torch import nn

import subtext
from subtext.data.feature_file import FeatureShape
from subtext.errors import SubtextError
from subtext.recipes import catalogue
from subtext.recipes.build import build
from subtext.recipes.options import RegionInputOptions
from subtext.settings import Field, IsPath, fields_of
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.contract

TEXTS = ("a dog runs on the beach", "two red boats in the water", "a man rides a horse", "a man runs", "boats")
SMALL: dict[str, object] = {"embed_dim": 8, "word_dim": 6, "image_size": 32, "gru_dim": 8, "similarity_dim": 6}
GRAPH = {"graph": "some"}
METHODS: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "amrani": ("vse", {}, {"features": "some.npz"}),
    "asymmetry": ("scan", {}, {}),
    "combined": ("vse", {}, GRAPH),
    "daa": ("vse", {}, {}),
    "discrepancy": ("vse", {}, GRAPH),
    "distance": ("vse", {}, {}),
    "distil": ("vse", {}, {"teacher": "some"}),
    "diversity": ("vse", {}, GRAPH),
    "hal": ("vse", {}, {}),
    "mithun": ("vse", {}, {}),
    "neighbourhoods": ("vse", {}, GRAPH),
    "random": ("vse", {}, {}),
    "smooth_ap": ("vse", {}, {}),
    "soft_labels": ("vse", {}, {}),
    "struc": ("vse", {}, {}),
    "unfreeze": ("clip", {}, {"head_epochs": 2}),
    "uniform": ("vse", {}, {}),
}
"""Method -> a model that it fits, that model's options, and the method's own."""
METHOD_CHOICES: dict[str, tuple[dict[str, object], ...]] = {
    "distance": ({}, {"loss": "margin"}),
    "mithun": ({}, {"hardest_only": False}),
    "neighbourhoods": ({}, {"cross_modal": "model"}, {"form": "reference"}),
    "smooth_ap": ({}, {"replace_loss": True}),
    "soft_labels": ({}, {"replace_loss": True}),
    "hal": ({}, {"bank_share": 0}),
}
"""Method -> its choices that decide whether it keeps the losses of the model."""
INPUTS = frozenset(field.name for field in fields_of(RegionInputOptions)) - {"token_mask"}
"""How images and texts are encoded depends on no method."""
TEXT_VALUES = {"image": ("tiny",), "text": ("gru", "bag"), "device": ("meta",)}
OWN_CHOICE = {"heads": 8, "text": "gru", "resize": "crop", "loss": "infonce", "form": "scores"}
"""What 0 or "auto" chooses already; of a text, `dual` chooses another."""


def alternatives(option: Field, value: object) -> list[object]:
    """Values that an option may be changed to."""
    if option.choices is not None:
        return [choice for choice in option.choices if choice != value]
    if option.type is bool:
        return [not value]
    if any(isinstance(mark, IsPath) for mark in option.marks):
        return ["elsewhere"]
    if option.type is str:
        return [text for text in TEXT_VALUES.get(option.name, ()) if text != value]
    assert isinstance(value, int | float)
    tries = [value + 1, value * 2, value / 2, 0.25, 0, 2]
    result: list[object] = []
    for number in map(option.type, tries):
        inside = option.interval is None or number in option.interval
        # Below 0 stands for a default of its own, as -1 does.
        if inside and number >= 0 and number != value and number not in result:
            result.append(number)
    return result[:2] + [0] * (0 in result[2:])


def digest(value: Any) -> Any:
    """Something that two values share only if they were built alike."""
    if isinstance(value, torch.Tensor):
        return hashlib.blake2b(value.detach().numpy().tobytes(), digest_size=8).hexdigest()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, nn.Module):
        plain = {name: digest(held) for name, held in vars(value).items() if name not in vars(nn.Module())}
        weights = {name: digest(held) for name, held in [*value.named_parameters(), *value.named_buffers()]}
        return type(value).__name__, repr(value), plain, weights, [digest(child) for child in value.children()]
    if isinstance(value, partial):
        return digest([value.func, value.args, value.keywords])
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {f.name: digest(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): digest(held) for key, held in value.items()}
    if isinstance(value, Sequence | set) and not isinstance(value, str | bytes):
        return [digest(held) for held in value]
    if value is None or isinstance(value, str | int | float | bool | Path | torch.dtype):
        return value
    if type(value).__module__.startswith("subtext"):
        return type(value).__name__, {name: digest(held) for name, held in vars(value).items()}
    return type(value).__name__


def context(kind: str) -> BuildContext:
    stats = {"mean": {}, "std": {}}
    shapes = {"": None, "grid": FeatureShape(grid=10, **stats), "both": FeatureShape(10, 10, **stats)}
    return BuildContext(image_features=shapes[kind], texts=TEXTS)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.clip(tmp_path_factory.mktemp("models") / "clip"))


def small(model: str, clip: str) -> dict[str, object]:
    if model in ("adapt", "clip"):
        return {"model": clip}
    names = {option.name for option in catalogue.models()[model].options}
    return {name: value for name, value in SMALL.items() if name in names}


def built(
    model: str, options: Mapping[str, object], *, kind: str, methods: Sequence[tuple[str, Mapping[str, object]]] = ()
) -> Any:
    """What a setup is made of; None where the options are refused."""
    try:
        setup = build(model, options, methods=methods, context=context(kind))
    except SubtextError:
        return None
    return digest([setup.model, setup.objective, setup.plan, setup.phases, setup.extras, setup.banks,
                   setup.relevance, setup.mixing])  # fmt: skip


def contexts(options: Sequence[Field]) -> list[dict[str, object]]:
    """The defaults, and each choice made otherwise: an option may be read by one of them alone."""
    result: list[dict[str, object]] = [{}]
    for option in options:
        if option.choices is not None or option.type is bool:
            result += [{option.name: value} for value in alternatives(option, option.default)]
    return result


@pytest.mark.parametrize("model", catalogue.models())
def test_model_option_changes_model_or_raises(model: str, clip: str) -> None:
    """By default, and beside every other choice of the model's own options: features of regions, or pixels."""
    options = [option for option in catalogue.models()[model].options if option.name != "model"]
    own = [option for option in options if not option.owner]
    ignored = []
    kind = "" if model in ("adapt", "clip") else "both"
    for around in contexts(own):
        start = {**small(model, clip), **around}
        if kind:
            start.pop("image_size", None)
        before = built(model, start, kind=kind)
        if before is None:
            continue
        # The options of images and texts are tried by default alone: they do not depend on the model's own.
        for option in own if around else options:
            value = start.get(option.name, option.default)
            for changed in alternatives(option, value)[: 1 if around else None]:
                if option.name in around or (OWN_CHOICE.get(option.name) == changed and model != "dual"):
                    continue
                if built(model, {**start, option.name: changed}, kind=kind) == before:
                    ignored.append((around, option.name, changed))
    assert not ignored


@pytest.mark.parametrize("method", catalogue.methods())
def test_method_option_changes_training_or_raises(method: str, clip: str) -> None:
    """By default, and beside every other choice of the method."""
    model, changes, needed = METHODS[method]
    kind = "" if model == "clip" else "both"
    host = {**small(model, clip), **changes}
    if kind:
        host.pop("image_size", None)
    options = catalogue.methods()[method].options
    ignored = []
    for around in contexts(options):
        start = {**needed, **around}
        before = built(model, host, kind=kind, methods=[(method, start)])
        if before is None:
            continue
        for option in options:
            value = start.get(option.name, option.default)
            for changed in alternatives(option, value)[: 1 if around else None]:
                if option.name in around or (value == "auto" and OWN_CHOICE.get(option.name) == changed):
                    continue
                if built(model, host, kind=kind, methods=[(method, {**start, option.name: changed})]) == before:
                    ignored.append((around, option.name, changed))
    assert not ignored


@pytest.mark.parametrize("model", catalogue.models())
def test_model_option_acts_beside_method_or_raises(model: str, clip: str) -> None:
    """A method may replace what an option of the model is for, such as its losses."""
    own = [option for option in catalogue.models()[model].options if option.name not in ("model", *INPUTS)]
    kind = "" if model in ("adapt", "clip") else "both"
    start = {name: value for name, value in small(model, clip).items() if not (kind and name == "image_size")}
    ignored = []
    # A CLIP takes longer to build than the others, and meets the same methods.
    for method in METHODS if kind else METHOD_CHOICES:
        needed = METHODS[method][2]
        for more in METHOD_CHOICES.get(method, ({},)):
            chosen = [(method, {**needed, **more})]
            before = built(model, start, kind=kind, methods=chosen)
            if before is None:
                continue
            for option in own:
                for changed in alternatives(option, start.get(option.name, option.default))[:1]:
                    if OWN_CHOICE.get(option.name) == changed and model != "dual":
                        continue
                    if built(model, {**start, option.name: changed}, kind=kind, methods=chosen) == before:
                        ignored.append((method, more, option.name, changed))
    assert not ignored


UNTRAINED = frozenset({"graph", "image_graph", "weight_tables", "drop_last"})
"""Other files, what is written beside the weights, and what sixteen pairs in one batch cannot show."""
SEEN: dict[str, object] = {"samples": 2, "bank": "evaluation"}
"""Values that act on sixteen pairs, all of which every epoch reads."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen pairs, features of their images in three regions, and a graph of their texts."""
    folder, rng = tmp_path_factory.mktemp("pairs"), np.random.default_rng(3)
    words = ("dog", "cat", "boat", "tree", "house", "car")
    rows = [
        {"image": f"{n}.png", "captions": [f"a {' and a '.join(rng.choice(words, 3))} number {n}"], "split": "train"}
        for n in range(16)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    grid = rng.normal(size=(16, 3, 6)).astype(np.float32)
    np.savez(folder / "f.npz", names=[row["image"] for row in rows], grid=grid, pooled=grid.mean(axis=1))
    subtext.build_neighbours(
        folder / "graph", data=folder / "pairs.jsonl", space="lsa", dim=4, neighbours=5, candidate_split="all",
        quiet=True,
    )  # fmt: skip
    return folder


def trained(pairs: Path, out: Path, method: str, options: Mapping[str, object]) -> Any:
    """The weights after two steps; None where the options are refused."""
    try:
        run = subtext.train(
            "pvse",
            data=subtext.DataConfig(pairs / "pairs.jsonl", features=pairs / "f.npz", val_split=None),
            out=out,
            options={"embed_dim": 4, "word_dim": 4},
            methods=[(method, {"graph": str(pairs / "graph"), **options})],
            plan=subtext.Plan(epochs=2, batch_size=16, lr=0.01),
            run=subtext.RunConfig(device="cpu", workers=0),
            quiet=True,
        )
    except SubtextError:
        return None
    return digest(run.model.state_dict())


@pytest.mark.parametrize(
    ("method", "around"),
    [
        ("combined", {}),
        ("combined", {"gamma": 0}),
        ("combined", {"beta": 0}),
        ("combined", {"sign": 0}),
        ("diversity", {}),
        ("discrepancy", {"second_order": "direct"}),
        ("neighbourhoods", {"form": "reference", "image_weight": 0, "pool_size": 3}),
    ],
)
def test_option_changes_weights_or_raises(method: str, around: dict[str, object], pairs: Path, tmp_path: Path) -> None:
    """What is built may differ where the weights do not: two steps decide."""
    before = trained(pairs, tmp_path / "before", method, around)
    assert before is not None
    ignored = []
    for number, option in enumerate(catalogue.methods()[method].options):
        if option.name in {*around, *UNTRAINED}:
            continue
        for changed in [SEEN[option.name]] if option.name in SEEN else alternatives(option, option.default)[:1]:
            if trained(pairs, tmp_path / str(number), method, {**around, option.name: changed}) == before:
                ignored.append((option.name, changed))
    assert not ignored


def test_every_method_is_covered() -> None:
    assert set(METHODS) == set(catalogue.methods())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("neighbourhoods", {**GRAPH, "form": "triplet", "angle": 30}),
        ("neighbourhoods", {**GRAPH, "form": "angular", "margin": 0.5}),
        ("neighbourhoods", {**GRAPH, "cross_modal": "model", "text_to_image_weight": 0.1}),
        ("neighbourhoods", {"image_weight": 0, "text_weight": 0, "pool_size": 7}),
        ("struc", {"pool_size": 7}),
        ("struc", {**GRAPH, "structure": "texts", "structure_weight": 0}),
        ("amrani", {"features": "some.npz", "normalise": "none", "total_weight": 5}),
        ("distil", {"teacher": "some", "mined_weight": 0, "mined_candidates": 4}),
    ],
)
def test_ignored_method_option_raises(method: str, options: dict[str, object]) -> None:
    with pytest.raises(SubtextError, match=r" needs .*; leave .* out, or change that"):
        build("vse", {"embed_dim": 8}, methods=[(method, options)], context=context("both"))


def test_ignored_model_option_raises() -> None:
    with pytest.raises(SubtextError, match="sample_seed needs rank_by=samples; rank_by is mean; leave sample_seed out"):
        build("pcme", {"embed_dim": 8, "rank_by": "mean", "sample_seed": 3}, context=context("both"))


def test_text_option_takes_a_path() -> None:
    """The name of an encoder may be a folder, and a folder is given as text or as a path."""
    recipes = [*catalogue.models().values(), *catalogue.methods().values()]
    options = [option for recipe in recipes for option in recipe.options if option.type is str and not option.choices]
    assert {"image", "text", "model", "teacher", "image_teacher", "graph"} <= {option.name for option in options}
    for option in options:
        assert option.parse(Path("runs") / "first") == str(Path("runs") / "first")
