"""Every recipe from end to end on made data: it is built, learns, is saved, and comes back the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from PIL import Image
from torch import Tensor

from subtext.core import Epoch
from subtext.data.feature_file import FeatureShape
from subtext.data.features import FeatureFile
from subtext.data.inputs import Draw, InputBatch
from subtext.errors import RecipeError, RequirementError
from subtext.models.model import Model
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Term
from subtext.objectives.scene import compose
from subtext.objectives.weighting import Rank
from subtext.ops import draw as draws
from subtext.recipes import catalogue
from subtext.recipes.build import build, recorded_options
from subtext.recipes.catalogue import plan_options
from subtext.recipes.methods.mithun import mithun
from subtext.training.optimiser import stage
from subtext.training.plan import Plan
from subtext.training.setup import BuildContext, Setup

pytestmark = pytest.mark.contract

TEXTS = (
    "a dog runs on the beach",
    "two red boats in the water",
    "a man rides a horse",
    "small cat sleeps",
    "the man runs under the sky on the red beach",
    "boats",
)
IDS = [f"picture {row}" for row in range(6)]


@dataclass(frozen=True)
class Case:
    """A host, what it is told, and which precomputed features there are."""

    host: str
    arguments: dict[str, object] = field(default_factory=dict)
    image: str = ""
    text: str = ""
    methods: tuple[tuple[str, dict[str, object]], ...] = ()
    models: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return " ".join(filter(None, [self.host, told, self.image, self.text, *(name for name, _ in self.methods)]))


SMALL = {"embed_dim": 16, "word_dim": 8}
PIXELS = {"image_size": 32}
CASES = [
    Case("vse", SMALL, "pooled"),
    Case("vse", {**SMALL, "negatives": "all", "normalise": False}, "pooled"),
    Case("vse", {**SMALL, **PIXELS, "flip": 0.5, "random_erasing": 0.5, "min_crop_area": 0.6}),
    Case("vse", {"embed_dim": 16, **PIXELS, "image": "{vit}", "text": "{bert}"}, models=("vit", "bert")),
    Case("vse", {**SMALL, "feature_scaling": "standard"}, "pooled", methods=(("mithun", {}),)),
    Case("pvse", {**SMALL, "views": 1}, "pooled"),
    Case("pvse", {**SMALL, "views": 3, "dropout": 0.1}, "both"),
    Case("pvse", {**SMALL, "views": 2, "negatives": "all", "legacy_gru": True}, "pooled"),
    Case("pvse", {"embed_dim": 16, **PIXELS, "views": 3, "text": "{bert}"}, models=("bert",)),
    Case("pvse", {"embed_dim": 16, "views": 2}, "grid", "pooled", methods=(("mithun", {"hardest_only": False}),)),
    Case("vse_infinity", SMALL, "both"),
    Case("vse_infinity", {**SMALL, **PIXELS, "image": "resnet-18", "image_weights": "random"}),
    Case("vse_infinity", {"embed_dim": 16, "text": "{bert}"}, "grid", models=("bert",)),
    Case("dual", SMALL, "pooled"),
    Case(
        "dual",
        {**SMALL, **PIXELS, "image": "mobilenet-v1", "image_weights": "random", "pooling": "last", "text": "gru"},
    ),
    Case("dual", {**SMALL, "pooling": "learnt", "label_smoothing": 0.1, "learn_temperature": True}, "both"),
    Case("dual", {"embed_dim": 16}, "pooled", "pooled"),
    Case("dual", {**SMALL, "text": "gru"}, "pooled"),
    Case("pvse", {**SMALL, "text": "bag"}, "grid"),
    Case(
        "dual",
        {"embed_dim": 16, **PIXELS, "text": "{bert}", "pooling": "last", "text_pooling": "mean"},
        models=("bert",),
    ),
    Case("dual", {"embed_dim": 16, "text": "{bert}", "pooling": "learnt", "dropout": 0.5}, "pooled", models=("bert",)),
    Case("scan", SMALL, "grid"),
    Case("scan", {**SMALL, "cross_attention": "image_to_text", "pooling": "mean", "append_pooled": True}, "both"),
    Case("scan", {"embed_dim": 16, **PIXELS, "text": "{bert}"}, models=("bert",)),
    Case("sgraf", {**SMALL, "similarity_dim": 6}, "grid"),
    Case("sgraf", {**SMALL, "similarity_dim": 6, "reasoning": "saf", "num_regions": 4}, "grid"),
    Case("chan", SMALL, "grid"),
    Case("chan", {"embed_dim": 16, **PIXELS, "pooling": "mean", "text": "{bert}"}, models=("bert",)),
    Case("imram", SMALL, "grid"),
    Case("imram", {**SMALL, "attention_mode": "text", "steps": 1}, "grid"),
    Case("ascl", SMALL, "both"),
    Case("ascl", {**SMALL, "fusion": "none", "direction_weights": "shared", "heads": 2}, "grid"),
    Case("ascl", {**SMALL, "attention": False, "loss": "ratio"}, "both"),
    Case("ascl", {**SMALL, "loss": "triplet", "margin": 0.3}, "both"),
    Case("pcme", {**SMALL, "samples": 3, "uniformity_weight": 1.0}, "grid"),
    Case("pcme", {**SMALL, "samples": 2, "rank_by": "mean", "kl_variance": "consistent"}, "pooled"),
    Case("pcme", {"embed_dim": 16, **PIXELS, "samples": 2, "text": "{bert}"}, models=("bert",)),
    Case("pcme", {"embed_dim": 16, "samples": 2}, "both", "pooled"),
    Case("pcme_plus", SMALL, "both"),
    Case("pcme_plus", {**SMALL, "distance": "wasserstein", "uncertainty_layers": 1, "mlp": False}, "grid"),
    Case("pcme_plus", {"embed_dim": 16, **PIXELS, "mix_prob": 0.5, "text": "{bert}"}, models=("bert",)),
    Case("dsran", {**SMALL, "grid_cells": 2}, "grid"),
    Case("dsran", {**SMALL, "joint_layers": 1, "append_pooled": False}, "both"),
    Case("dsran", {"embed_dim": 16, **PIXELS, "text": "{bert}"}, models=("bert",)),
    Case("adapt", {"model": "{clip}"}, models=("clip",)),
    Case("adapt", {"model": "{siglip}", "loss": "sigmoid", "adapter_dim": 3}, models=("siglip",)),
    Case("adapt", {"model": "features"}, "pooled", "pooled"),
    Case("clip", {"model": "{clip}"}, models=("clip",)),
    Case("clip", {"model": "{clip}", "lora_rank": 2, "loss": "sigmoid"}, models=("clip",)),
    Case("clip", {"model": "{siglip}"}, models=("siglip",)),
    Case("clip", {"model": "{siglip}", "weights": "random", "lora_rank": 2}, models=("siglip",)),
]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    makers: dict[str, Callable[[Path], Path]] = {
        "bert": tiny_models.bert,
        "vit": tiny_models.vit,
        "clip": tiny_models.clip,
        "siglip": tiny_models.siglip,
    }
    return {name: str(make(folder / name)) for name, make in makers.items()}


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureFile]:
    folder, rng = tmp_path_factory.mktemp("features"), np.random.default_rng(0)
    pooled = rng.normal(2, 3, size=(6, 10)).astype(np.float32)
    grid = rng.normal(size=(6, 4, 10)).astype(np.float32)
    arrays = {"pooled": {"pooled": pooled}, "grid": {"grid": grid}, "both": {"pooled": pooled, "grid": grid}}
    for name, kept in arrays.items():
        np.savez(folder / f"{name}.npz", names=np.array(IDS), **kept)
    return {name: FeatureFile.open(folder / f"{name}.npz") for name in arrays}


def shape(file: FeatureFile | None) -> FeatureShape | None:
    if file is None:
        return None
    widths = {n: a.shape[-1] for n, a in (("pooled", file.pooled), ("grid", file.grid)) if a is not None}
    mean = {name: np.full(width, 2, dtype=np.float32) for name, width in widths.items()}
    std = {name: np.full(width, 3, dtype=np.float32) for name, width in widths.items()}
    return FeatureShape(widths.get("pooled"), widths.get("grid"), mean, std)


def made(case: Case, models: dict[str, str], context: BuildContext) -> Setup:
    arguments = {
        name: value.format(**models) if isinstance(value, str) else value for name, value in case.arguments.items()
    }
    return build(case.host, arguments, methods=case.methods, context=context)


def with_files(model: Model, case: Case, features: dict[str, FeatureFile]) -> None:
    for branch, name in ((model.image, case.image), (model.text, case.text)):
        if name:
            branch.input_spec = branch.input_spec.with_file(features[name])


def context_of(case: Case, features: dict[str, FeatureFile]) -> BuildContext:
    return BuildContext(
        image_features=shape(features.get(case.image)), text_features=shape(features.get(case.text)), texts=TEXTS
    )


def batches() -> tuple[InputBatch, InputBatch]:
    rng = np.random.default_rng(1)
    pictures = [Image.fromarray(rng.integers(0, 255, size=(40, 44, 3), dtype=np.uint8)) for _ in IDS]
    rows = np.arange(6, dtype=np.int64)
    common = {"ids": IDS, "rows": rows, "keys": draws.keys(IDS), "root": Path()}
    return InputBatch(values=pictures, **common), InputBatch(values=list(TEXTS), **common)


def embedded(model: Model) -> tuple[Tensor, Tensor, Tensor]:
    images, texts = batches()
    found = model.embed(model.image, iter([images])), model.embed(model.text, iter([texts]))
    with torch.inference_mode():
        return found[0].vectors, found[1].vectors, model.compare(*found)


def loss_of(setup: Setup, epoch: int = 0) -> Tensor:
    draw = Draw(seed=0, epoch=epoch)
    images, texts = batches()
    setup.model.train()
    first, second = setup.model(setup.model.image.read(images, draw), setup.model.text.read(texts, draw))
    scene = compose(setup.model.similarity, first, second, torch.arange(6), positives=setup.plan.positives)
    return setup.objective(scene, Epoch(epoch, 0))[0]


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_every_weight_gets_gradient(case: Case, models: dict[str, str], features: dict[str, FeatureFile]) -> None:
    setup = made(case, models, context_of(case, features))
    with_files(setup.model, case, features)
    for epoch in (0, 2):
        setup.model.zero_grad()
        loss = loss_of(setup, epoch)
        assert torch.isfinite(loss)
        assert float(loss.detach()) > 0
        loss.backward()
        learning = [(name, weight) for name, weight in setup.model.named_parameters() if weight.requires_grad]
        assert learning
        missing = [name for name, weight in learning if weight.grad is None]
        assert not missing
        assert all(torch.isfinite(weight.grad).all() for _, weight in learning if weight.grad is not None)


def test_saved_run_loads_bit_identical(
    case: Case, models: dict[str, str], features: dict[str, FeatureFile], tmp_path: Path
) -> None:
    setup = made(case, models, context_of(case, features))
    with_files(setup.model, case, features)
    loss_of(setup).backward()
    torch.nn.utils.clip_grad_norm_(setup.model.parameters(), setup.plan.max_grad_norm)
    torch.optim.SGD(setup.model.parameters(), lr=0.1).step()
    before = embedded(setup.model)
    for name, branch in (("image", setup.model.image), ("text", setup.model.text)):
        folder = tmp_path / "assets" / name
        folder.mkdir(parents=True)
        branch.save_assets(folder)
    again = made(case, models, BuildContext(assets=tmp_path / "assets", seed=99))
    again.model.load_state_dict(setup.model.state_dict(), strict=True)
    with_files(again.model, case, features)
    for old, new in zip(before, embedded(again.model), strict=True):
        assert torch.equal(old, new)
    assert again.model.image.input_spec.fingerprint == setup.model.image.input_spec.fingerprint
    assert again.model.text.input_spec.fingerprint == setup.model.text.input_spec.fingerprint


def test_every_model_is_covered() -> None:
    assert {case.host for case in CASES} == set(catalogue.models())


def test_initial_weights_depend_on_seed_alone(features: dict[str, FeatureFile]) -> None:
    case = Case("dual", SMALL, "pooled")
    state = torch.random.get_rng_state()
    first = made(case, {}, context_of(case, features)).model.state_dict()
    torch.manual_seed(77)
    second = made(case, {}, context_of(case, features)).model.state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    torch.random.set_rng_state(state)
    other = BuildContext(image_features=shape(features["pooled"]), texts=TEXTS, seed=1)
    third = made(case, {}, other).model.state_dict()
    assert not torch.equal(first["image.head.project.weight"], third["image.head.project.weight"])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_training_loss_decreases(features: dict[str, FeatureFile]) -> None:
    case = Case("dual", {**SMALL, "dropout": 0.0, "image_dropout": 0.0, "token_mask": 0.0}, "pooled")
    setup = made(case, {}, context_of(case, features))
    with_files(setup.model, case, features)
    optimiser = torch.optim.Adam(setup.model.parameters(), lr=0.01)
    first = float(loss_of(setup).detach())
    for _ in range(20):
        optimiser.zero_grad()
        loss = loss_of(setup)
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < first / 3


def test_pretrained_dual_encoder_is_used_unchanged(models: dict[str, str]) -> None:
    from transformers import AutoTokenizer, CLIPModel, SiglipModel

    for name, kind in (("clip", CLIPModel), ("siglip", SiglipModel)):
        setup = build("clip", {"model": models[name]}, context=BuildContext())
        own = kind.from_pretrained(models[name]).eval()
        coded = AutoTokenizer.from_pretrained(models[name])(
            list(TEXTS),
            padding="max_length" if name == "siglip" else True,
            truncation=True,
            max_length=16,
            return_tensors="pt",
        )
        pixels = setup.model.image.input_spec(batches()[0])["pixels"]
        more = {} if name == "siglip" else {"attention_mask": coded["attention_mask"]}
        with torch.inference_mode():
            logits = own(input_ids=coded["input_ids"], pixel_values=pixels, **more).logits_per_image
        torch.testing.assert_close(embedded(setup.model)[2], logits, atol=1e-5, rtol=1e-5)


def test_pooled_features_give_one_view(features: dict[str, FeatureFile]) -> None:
    case = Case("pvse", {**SMALL, "views": 3}, "pooled")
    setup = made(case, {}, context_of(case, features))
    with_files(setup.model, case, features)
    images, texts, _ = embedded(setup.model)
    assert images.shape == (6, 1, 16) and texts.shape == (6, 3, 16)


def test_plan_overrides_reach_setup(features: dict[str, FeatureFile]) -> None:
    setup = build(
        "vse", SMALL, plan={"epochs": 3, "lr": 0.5}, context=BuildContext(shape(features["pooled"]), texts=TEXTS)
    )
    assert (setup.plan.epochs, setup.plan.lr, setup.plan.schedule) == (3, 0.5, "step")


def test_adapters_default_to_higher_lr(models: dict[str, str]) -> None:
    whole = build("clip", {"model": models["clip"]}, context=BuildContext())
    adapted = build("clip", {"model": models["clip"], "lora_rank": 2}, context=BuildContext())
    assert adapted.plan.lr == pytest.approx(10 * whole.plan.lr)
    told = build("clip", {"model": models["clip"], "lora_rank": 2}, plan={"lr": 0.25}, context=BuildContext())
    assert told.plan.lr == 0.25
    assert adapted.model.image.encoder.body_layers() == [] != whole.model.image.encoder.body_layers()


def test_string_options_are_parsed(features: dict[str, FeatureFile]) -> None:
    setup = build(
        "vse",
        {"embed_dim": "16", "margin": "0.3", "normalise": "no", "negatives": "all"},
        context=BuildContext(shape(features["pooled"]), texts=TEXTS),
    )
    term = setup.objective.parts["image_to_text"]
    assert isinstance(term, Term) and isinstance(term.loss, Triplet)
    assert (term.loss.margin, term.loss.negatives) == (0.3, "all")
    assert setup.model.image.head.normalise is False


class TestMithun:
    def test_weights_hardest_negative_in_both_directions(self, features: dict[str, FeatureFile]) -> None:
        case = Case("pvse", {**SMALL, "negatives": "all"}, "pooled")
        parts = mithun(made(case, {}, context_of(case, features)), strength=2.0).objective.parts
        for side in ("image_to_text", "text_to_image"):
            term = parts[side]
            assert isinstance(term, Term) and isinstance(term.loss, Triplet) and isinstance(term.weighting, Rank)
            assert (term.loss.negatives, term.reduction) == ("hardest", "mean")
            assert (term.weighting.direction, term.weighting.strength) == (side, 2.0)

    def test_an_option_that_it_replaces_is_refused(self, features: dict[str, FeatureFile]) -> None:
        case = Case("pvse", {**SMALL, "negatives": "all"}, "pooled", methods=(("mithun", {"strength": 2.0}),))
        with pytest.raises(RecipeError, match=r"negatives needs .* mithun:hardest_only takes the hardest"):
            made(case, {}, context_of(case, features))

    def test_leaves_easy_epochs_unweighted(self, features: dict[str, FeatureFile]) -> None:
        case = Case("vse_infinity", SMALL, "grid", methods=(("mithun", {}),))
        term = made(case, {}, context_of(case, features)).objective.parts["image_to_text, all negatives"]
        assert isinstance(term, Term) and isinstance(term.loss, Triplet)
        assert term.loss.negatives == "all" and term.until_epoch == 1 and term.weighting is not None

    def test_raises_without_triplet_loss(self, features: dict[str, FeatureFile]) -> None:
        case = Case("dual", SMALL, "pooled", methods=(("mithun", {}),))
        with pytest.raises(RecipeError, match=r"needs a model with a triplet loss .*InfoNCE"):
            made(case, {}, context_of(case, features))

    def test_raises_when_applied_twice(self, features: dict[str, FeatureFile]) -> None:
        case = Case("vse", SMALL, "pooled", methods=(("mithun", {}), ("mithun", {})))
        with pytest.raises(RecipeError, match="one weighting alone"):
            made(case, {}, context_of(case, features))


class TestUnfreeze:
    def test_trains_heads_then_full_model(self, models: dict[str, str]) -> None:
        methods = [("unfreeze", {"head_epochs": 2, "lr_scale": 0.5})]
        setup = build("clip", {"model": models["clip"]}, methods=methods, plan={"epochs": 3}, context=BuildContext())
        stages = [stage(setup.plan, setup.phases, epoch) for epoch in range(3)]
        assert [(one.bodies, one.factor) for one in stages] == [(False, 1.0), (False, 1.0), (True, 0.5)]

    @pytest.mark.parametrize(
        ("model", "told", "epochs", "said"),
        [
            ({}, {"head_epochs": 3}, 3, "epochs needs more than the 3 of the first phases; it got 3"),
            ({}, {"head_epochs": 0}, 3, "head_epochs of 1 or more"),
            ({"weights": "random"}, {"head_epochs": 1}, 3, "needs a model with a pretrained encoder"),
        ],
    )
    def test_raises_where_it_has_no_effect(
        self, model: dict[str, object], told: dict[str, object], epochs: int, said: str, models: dict[str, str]
    ) -> None:
        given = {"model": models["clip"], **model}
        with pytest.raises(RecipeError, match=said):
            build("clip", given, methods=[("unfreeze", told)], plan={"epochs": epochs}, context=BuildContext())


@pytest.mark.parametrize(
    ("host", "arguments", "more", "said"),
    [
        ("pvsee", {}, {}, "no model called 'pvsee'; did you mean pvse"),
        ("zzz", {}, {}, "there are adapt, ascl, chan, clip, dsran, dual"),
        ("vse", {"embed_dmi": 3}, {}, "no option of 'vse' called 'embed_dmi'; did you mean embed_dim"),
        ("vse", {"embed_dim": "wide"}, {}, "embed_dim needs a whole number; it got 'wide'"),
        ("vse", {"embed_dim": 2.5}, {}, "embed_dim needs a whole number; it got 2.5"),
        ("vse", {"embed_dim": True}, {}, "embed_dim needs a whole number; it got True"),
        ("vse", {"embed_dim": 0}, {}, "embed_dim needs 1 or more; it got 0"),
        ("dual", {"dropout": 1.0}, {}, r"dropout needs a number in \[0, 1\); it got 1.0"),
        ("dual", {"text": "gru", "gru_layers": 0}, {}, "gru_layers needs 1 or more"),
        ("pvse", {"mmd_weight": -1}, {}, "mmd_weight needs 0 or more; it got -1"),
        ("vse", {"normalise": "perhaps"}, {}, "normalise needs true or false"),
        ("vse", {"negatives": "some"}, {}, "negatives needs one of all, hardest, semi-hard; it got 'some'"),
        ("vse", {}, {"methods": [("mithum", {})]}, "no method called 'mithum'; did you mean mithun"),
        ("vse", {}, {"methods": [("mithun", {"beta": 1})]}, "no option of 'mithun' called 'beta'"),
        ("vse", {}, {"plan": {"epoch": 1}}, "no training option called 'epoch'; did you mean epochs"),
        ("vse", {}, {"plan": {"epochs": 0}}, "epochs needs 1 or more"),
    ],
)
def test_wrong_name_or_value_lists_valid_ones(
    host: str, arguments: dict[str, object], more: dict[str, object], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        build(host, arguments, context=BuildContext(FeatureShape(pooled=10), texts=TEXTS), **more)


@pytest.mark.parametrize(
    ("host", "arguments", "context", "said"),
    [
        ("vse", {"image": "features"}, BuildContext(texts=TEXTS), "none was given; give features=FILE"),
        ("vse", {"text": "features"}, BuildContext(FeatureShape(pooled=10), texts=TEXTS), "give text_features=FILE"),
        ("vse", {}, BuildContext(FeatureShape(pooled=10)), "a vocabulary needs the training texts"),
        (
            "pvse",
            {**SMALL, "embed_dim": 15},
            BuildContext(FeatureShape(pooled=10), texts=TEXTS),
            "an even width; it got 15",
        ),
        ("pvse", SMALL, BuildContext(FeatureShape(pooled=10, grid=8), texts=TEXTS), "they are 10 and 8"),
        ("clip", {"model": "{bert}"}, BuildContext(), "a text encoder alone; train it together with another"),
        ("vse", {"image": "/nowhere/at/all"}, BuildContext(texts=TEXTS), "image=/nowhere/at/all needs a folder"),
        ("vse", {"text": "{clip}"}, BuildContext(FeatureShape(pooled=10), texts=TEXTS), "use the model 'clip'"),
        ("vse", {"image": "timm:resnet10t"}, BuildContext(texts=TEXTS), "needs the packages timm and torchvision"),
    ],
)
def test_missing_requirement_raises(
    host: str, arguments: dict[str, object], context: BuildContext, said: str, models: dict[str, str]
) -> None:
    told = {name: value.format(**models) if isinstance(value, str) else value for name, value in arguments.items()}
    with pytest.raises(RequirementError, match=said):
        build(host, told, context=context)


# An option that what was chosen does not read -> the host, what is told, and what there is. {bert} and the like are
# folders of models.
UNREAD: list[tuple[str, str, object, dict[str, object], str]] = [
    *[
        ("vse", name, value, {}, "pooled")
        for name, value in (
            ("image_weights", "random"), ("image_size", 32), ("resize", "crop"), ("flip", 0.2), ("min_crop_area", 0.5),
            ("random_erasing", 0.1), ("text_weights", "random"), ("text_pooling", "mean"), ("text_scaling", "unit"),
            ("layer_decay", 0.9), ("backbone_lr_scale", 0.5), ("freeze_epochs", 2), ("freeze_epochs", -1),
            ("backbone_norms", "frozen"),
            ("momentum", 0.5), ("plateau_patience", 3), ("ema_decay", 0.9), ("swa_start", 0.5),
        )
    ],
    ("scan", "lse_scale", 5.0, {"pooling": "mean"}, "grid"),
    ("sgraf", "steps", 2, {"reasoning": "saf"}, "grid"),
    ("ascl", "heads", 2, {"attention": False}, "grid"),
    ("ascl", "local_weight", 0.5, {"attention": False}, "grid"),
    ("ascl", "direction_weights", "shared", {"attention": False}, "grid"),
    ("ascl", "bf16", True, {"attention": False}, "grid"),
    *[
        ("vse", name, value, {"image": "tiny"}, "")
        for name, value in (("feature_scaling", "unit"), ("feature_dropout", 0.1), ("layer_decay", 0.9))
    ],
    *[
        ("vse_infinity", name, value, {"image": "tiny"}, "")
        for name, value in (
            ("region_dropout", 0.1), ("append_pooled", False), ("max_regions", 9), ("min_confidence", 0.5)
        )
    ],
    *[
        ("vse", name, value, {"text": text}, "pooled")
        for text in ("features", "{bert}")
        for name, value in (
            ("gru_layers", 2), ("bidirectional", True), ("word_dim", 8), ("min_count", 2), ("token_dropout", 0.1),
            ("embedding_dropout", 0.1), ("word_vectors", "doc2vec"),
        )
    ],
    *[("vse", name, value, {"text": "features"}, "pooled") for name, value in (("max_tokens", 9), ("token_mask", 0.1))],
    *[
        ("dual", name, value, {"text": "bag"}, "pooled")
        for name, value in (("gru_layers", 2), ("bidirectional", False), ("gru_dim", 8))
    ],
    ("dual", "pooling", "last", {"text": "features"}, "pooled"),
    ("dual", "text_mlp", True, {"pooling": "learnt"}, "both"),
    ("dual", "text_pooling", "mean", {"text": "{bert}"}, "pooled"),
    ("vse_infinity", "text_pooling", "mean", {"text": "{bert}"}, "pooled"),
    ("vse_infinity", "region_dropout", 0.1, {}, "pooled"),
    ("vse_infinity", "append_pooled", False, {}, "grid"),
    ("vse_infinity", "boxes", True, {}, "pooled"),
    ("vse_infinity", "temperature", 0.1, {}, "grid"),
    *[("vse_infinity", name, 3, {"loss": "softmax"}, "grid") for name in ("margin", "all_negatives_epochs")],
    *[("pvse", name, value, {"loss": "softmax"}, "grid") for name, value in (("margin", 0.3), ("negatives", "all"))],
    *[("pvse", name, 0.2, {"views": 1}, "grid") for name in ("mmd_weight", "diversity_weight")],
    *[("pcme_plus", name, value, {}, "grid") for name, value in (("mix_prob", 0.5), ("mix_type", "cutmix"))],
    ("pcme_plus", "mix_type", "mixup", {"image": "tiny", "mix_prob": 0.0}, ""),
    ("pcme", "sample_seed", 2, {"rank_by": "mean"}, "grid"),
    ("pcme", "kl_variance", "consistent", {"kl_weight": 0.0}, "grid"),
    ("dsran", "grid_cells", 2, {"image": "tiny"}, ""),
    ("pvse", "legacy_gru", True, {"text": "bag"}, "grid"),
    ("pvse", "legacy_gru", True, {"bidirectional": False}, "grid"),
    ("pvse", "plateau_patience", 3, {"schedule": "cosine"}, "grid"),
    ("vse", "step_epochs", 3, {"schedule": "cosine"}, "pooled"),
    ("vse", "lr_factor", 0.3, {"schedule": "cosine"}, "pooled"),
    ("vse", "amsgrad", True, {"optimiser": "sgd"}, "pooled"),
    ("vse", "backbone_lr_scale", 0.3, {"image": "{vit}", "freeze_epochs": -1}, ""),
    ("vse", "backbone_norms", "frozen", {"image": "{vit}"}, ""),
    ("dual", "drop_last", True, {}, "pooled"),
    ("ascl", "fusion", "mean", {"local_weight": 1.0}, "both"),
    ("clip", "lora_alpha", 4.0, {"model": "{clip}"}, ""),
    ("clip", "lora_dropout", 0.1, {"model": "{clip}"}, ""),
    ("clip", "freeze_epochs", 1, {"model": "{clip}", "lora_rank": 2}, ""),
    ("adapt", "adapter_dim", 4, {"model": "{clip}", "lora_rank": 2}, ""),
    ("clip", "backbone_lr_scale", 0.5, {"model": "{clip}", "weights": "random"}, ""),
]  # fmt: skip
PLANNED = {option.name for option in plan_options(Plan())}


@pytest.mark.parametrize(("host", "name", "value", "told", "image"), UNREAD, ids=lambda found: str(found))
def test_unused_option_raises(
    host: str,
    name: str,
    value: object,
    told: dict[str, object],
    image: str,
    models: dict[str, str],
    features: dict[str, FeatureFile],
) -> None:
    """Alone with what was chosen it is an error that names it; without it the same line builds."""
    given = {key: text.format(**models) if isinstance(text, str) else text for key, text in told.items()}
    if host not in ("clip", "adapt"):
        given["embed_dim"] = 16
    context = context_of(Case(host, image=image, text="pooled" if told.get("text") == "features" else ""), features)
    plan = {key: given.pop(key) for key in list(given) if key in PLANNED}
    changed = plan | {name: value} if name in PLANNED else plan
    more = {} if name in PLANNED else {name: value}
    with pytest.raises(RecipeError, match=rf"^{name} needs .*leave {name} out"):
        build(host, given | more, plan=changed, context=context)
    build(host, given, plan=plan, context=context)


def test_every_conditional_option_is_covered() -> None:
    conditional = {
        option.name
        for recipe in catalogue.models().values()
        for option in recipe.options
        if catalogue.requirements(option)
    }
    conditional |= {option.name for option in plan_options(Plan()) if catalogue.requirements(option)}
    tried = {name for _, name, *_ in UNREAD}
    assert conditional == tried


def test_published_defaults_are_dropped_where_unused(features: dict[str, FeatureFile]) -> None:
    """Flips and slower bodies of VSE-infinity mean nothing for features: they go, without a word."""
    setup = made(case := Case("vse_infinity", SMALL, "grid"), {}, context_of(case, features))
    assert setup.plan.backbone_lr_scale == 1.0 and catalogue.models()["vse_infinity"].plan.backbone_lr_scale == 0.1
    acts = recorded_options("vse_infinity", SMALL, setup)
    assert acts["word_dim"] == 8 and acts["region_dropout"] == 0.2 and acts["all_negatives_epochs"] == 1
    assert not {"flip", "image_weights", "append_pooled", "temperature", "text_scaling"} & acts.keys()


def test_pixel_run_records_preprocessing() -> None:
    context = BuildContext(texts=("a dog", "a cat"))
    acts = recorded_options(
        "dual", given := {"image": "tiny", "image_size": 32, "text": "bag"}, build("dual", given, context=context)
    )
    assert acts["image_size"] == 32 and acts["min_crop_area"] == 1.0 and "feature_scaling" not in acts


def test_new_optimiser_drops_options_of_default_one(features: dict[str, FeatureFile]) -> None:
    context = context_of(Case("pvse", image="grid"), features)
    assert build("pvse", SMALL, plan={"optimiser": "sgd"}, context=context).plan.amsgrad is False


@pytest.mark.parametrize(
    ("host", "told", "context", "said"),
    [
        ("clip", {}, BuildContext(FeatureShape(pooled=4)), "^features needs another model; clip reads none"),
        ("clip", {}, BuildContext(text_features=FeatureShape(pooled=4)), "^text_features needs another model"),
        (
            "vse",
            {"image": "resnet-50"},
            BuildContext(FeatureShape(pooled=4)),
            "features needs image=features; image is resn",
        ),
    ],
)
def test_unused_features_raise_before_any_download(
    host: str, told: dict[str, object], context: BuildContext, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(RecipeError, match=said):
        build(host, told, context=context)


def test_both_dropouts_of_bag_act(features: dict[str, FeatureFile]) -> None:
    told = {**SMALL, "text": "bag", "pooling": "learnt", "dropout": 0.5, "embedding_dropout": 0.2}
    setup = made(case := Case("dual", told, "pooled"), {}, context_of(case, features))
    assert setup.model.text.encoder.dropout.p == pytest.approx(1 - 0.5 * 0.8)


def test_backbone_words_are_dropped_with_learnt_pooling(
    models: dict[str, str], features: dict[str, FeatureFile]
) -> None:
    told = {"embed_dim": 16, "text": "{bert}", "pooling": "learnt", "dropout": 0.9}
    setup = made(case := Case("dual", told, "pooled"), models, context_of(case, features))
    text = setup.model.text
    inputs = text.input_spec(batches()[1])
    zeros = float((text.train().encoder(inputs).parts == 0).float().mean())
    assert zeros > 0.8 and float((text.eval().encoder(inputs).parts == 0).float().mean()) < 0.1
