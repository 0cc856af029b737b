"""Encoders against plain loops and against the models that they are made from."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertModel, ViTModel

from subtext.data.feature_file import FeatureShape
from subtext.data.inputs import InputBatch
from subtext.data.pixels import PixelInput
from subtext.data.text import SubwordInput
from subtext.errors import CheckpointError, RequirementError
from subtext.graphs import spaces
from subtext.models.encoders.backbone import adapt, layers, open_body
from subtext.models.encoders.dual import Dual, OpenClip
from subtext.models.encoders.hub import BACKBONES, preprocessing_of
from subtext.models.encoders.language import Language, tokeniser
from subtext.models.encoders.precomputed import Precomputed
from subtext.models.encoders.vision import TimmVision, Vision
from subtext.models.encoders.words import Bag, Recurrent
from subtext.recipes.build import build
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.golden


def texts(lengths: tuple[int, ...], *, padding: int = 0) -> dict[str, Tensor]:
    longest = max(lengths) + padding
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    tokens = torch.randint(4, 20, (len(lengths), longest), generator=torch.Generator().manual_seed(5))
    return {"tokens": tokens * mask, "mask": mask}


def one(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    length = int(inputs["mask"][row].sum())
    return {name: value[row : row + 1, :length] for name, value in inputs.items()}


class TestRecurrent:
    @pytest.mark.parametrize("both", [True, False])
    @pytest.mark.parametrize("gru_layers", [1, 2])
    def test_recurrent_equals_loop_over_cells(self, both: bool, gru_layers: int) -> None:
        encoder = Recurrent(20, 6, 5, gru_layers, both).double().eval()
        inputs = texts((4, 1, 3))
        found = encoder(inputs)
        assert found.parts is not None and found.pooled is not None and found.mask is not None
        for row in range(3):
            states, final = by_hand(encoder, one(inputs, row)["tokens"][0])
            length = len(states)
            torch.testing.assert_close(found.parts[row, :length], states)
            assert not found.parts[row, length:].any()
            torch.testing.assert_close(found.pooled[row], final)
        assert torch.equal(found.mask, inputs["mask"])

    def test_batch_and_padding_change_only_last_bits(self) -> None:
        encoder = Recurrent(20, 8, 5).eval()
        inputs = texts((5, 2, 7, 1), padding=3)
        among = encoder(inputs)
        assert among.pooled is not None
        for row in range(4):
            alone = encoder(one(inputs, row)).pooled
            torch.testing.assert_close(alone[0], among.pooled[row], atol=1e-6, rtol=0)

    def test_padding_alone_changes_no_bit(self) -> None:
        encoder = Recurrent(20, 8, 5).eval()
        inputs = texts((5, 2, 7, 1))
        padded = {name: torch.nn.functional.pad(value, (0, 6)) for name, value in inputs.items()}
        assert torch.equal(encoder(inputs).pooled, encoder(padded).pooled)

    def test_outputs_follow_batch_order(self) -> None:
        encoder = Recurrent(20, 8, 5).eval()
        inputs = texts((5, 2, 7, 1))
        order = torch.tensor([2, 0, 3, 1])
        turned = encoder({name: value[order] for name, value in inputs.items()}).pooled
        torch.testing.assert_close(turned, encoder(inputs).pooled[order], atol=1e-6, rtol=0)

    def test_words_as_parts_are_embeddings(self) -> None:
        encoder = Recurrent(20, 8, 5, parts="words")
        inputs = texts((3, 2))
        assert torch.equal(encoder(inputs).parts, encoder.words(inputs["tokens"]))
        assert (encoder.parts_width, encoder.pooled_width) == (5, 8)
        assert encoder.words.weight.abs().max() <= 0.1 and not encoder.words.weight[0].any()

    def test_legacy_last_state_reads_one_word_backwards(self) -> None:
        fixed, legacy = Recurrent(20, 8, 5).eval(), Recurrent(20, 8, 5, legacy_last=True).eval()
        legacy.load_state_dict(fixed.state_dict())
        inputs = texts((4, 2))
        old, new = legacy(inputs).pooled, fixed(inputs).pooled
        torch.testing.assert_close(old[:, :4], new[:, :4])
        last = one(inputs, 0)["tokens"][:, -1:]
        only = fixed({"tokens": last, "mask": torch.ones(1, 1, dtype=torch.bool)}).pooled
        torch.testing.assert_close(old[0, 4:], only[0, 4:])
        assert not torch.allclose(old[0, 4:], new[0, 4:])

    def test_text_without_words_is_finite(self) -> None:
        found = Recurrent(20, 8, 5)({"tokens": torch.zeros(2, 1, dtype=torch.long), "mask": NOTHING})
        assert torch.isfinite(found.pooled).all()

    def test_odd_width_raises(self) -> None:
        with pytest.raises(RequirementError, match="even width; it got 7"):
            Recurrent(20, 7)
        assert Recurrent(20, 7, both_directions=False).pooled_width == 7


NOTHING = torch.zeros(2, 1, dtype=torch.bool)


def by_hand(encoder: Recurrent, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """States of every word and the final states of the top layer, by the GRU's equations one word at a time."""
    with torch.no_grad():
        below = encoder.words(tokens)
        directions = ["", "_reverse"] if encoder.rnn.bidirectional else [""]
        final: list[Tensor] = []
        for layer in range(encoder.rnn.num_layers):
            columns, final = [], []
            for suffix in directions:
                state = below.new_zeros(encoder.rnn.hidden_size)
                states: list[Tensor] = []
                for word in below.flip(0) if suffix else below:
                    state = cell(encoder.rnn, f"l{layer}{suffix}", word, state)
                    states.append(state)
                final.append(state)
                columns.append(torch.stack(states[::-1] if suffix else states))
            below = torch.cat(columns, dim=1)
        return below, torch.cat(final)


def cell(rnn: nn.GRU, name: str, word: Tensor, state: Tensor) -> Tensor:
    from_word = getattr(rnn, f"weight_ih_{name}") @ word + getattr(rnn, f"bias_ih_{name}")
    from_state = getattr(rnn, f"weight_hh_{name}") @ state + getattr(rnn, f"bias_hh_{name}")
    reset_w, update_w, new_w = from_word.chunk(3)
    reset_s, update_s, new_s = from_state.chunk(3)
    reset, update = torch.sigmoid(reset_w + reset_s), torch.sigmoid(update_w + update_s)
    new = torch.tanh(new_w + reset * new_s)
    return (1 - update) * new + update * state


def test_bag_is_mean_of_words() -> None:
    encoder, inputs = Bag(20, 5), texts((3, 1))
    found = encoder(inputs)
    torch.testing.assert_close(found.pooled[0], encoder.words.weight[inputs["tokens"][0]].mean(dim=0))
    torch.testing.assert_close(found.pooled[1], encoder.words.weight[inputs["tokens"][1, 0]])
    short = Bag(20, 5, parts=False)
    short.load_state_dict(encoder.state_dict())
    assert short(inputs).parts is None
    torch.testing.assert_close(short(inputs).pooled, found.pooled)


class TestPrecomputed:
    POOLED = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    GRID = torch.tensor([[[1.0, 1.0], [2.0, 0.0]], [[4.0, 4.0], [9.0, 9.0]]])
    MASK = torch.tensor([[True, True], [True, False]])

    def test_pooled_features_alone_give_one_part(self) -> None:
        found = Precomputed(2, None)({"pooled": self.POOLED})
        assert torch.equal(found.pooled, self.POOLED) and torch.equal(found.parts, self.POOLED[:, None])

    def test_grid_alone_is_mean_pooled(self) -> None:
        found = Precomputed(None, 2)({"grid": self.GRID, "mask": self.MASK})
        assert torch.equal(found.pooled, torch.tensor([[1.5, 0.5], [4.0, 4.0]]))
        assert torch.equal(found.mask, self.MASK)

    def test_pooled_vector_can_be_extra_part(self) -> None:
        inputs = {"pooled": self.POOLED, "grid": self.GRID, "mask": self.MASK}
        found = Precomputed(2, 2, append_pooled=True)(inputs)
        assert torch.equal(found.parts[:, 2], self.POOLED)
        assert found.mask.tolist() == [[True, True, True], [True, False, True]]

    def test_feature_scalings(self) -> None:
        unit = Precomputed(2, None, scaling="unit")({"pooled": self.POOLED}).pooled
        torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
        mean, std = {"pooled": np.array([1, 2], dtype=np.float32)}, {"pooled": np.array([2, 4], dtype=np.float32)}
        encoder = Precomputed(2, None, scaling="standard", mean=mean, std=std)
        wanted = torch.tensor([[1.0, 0.5], [-0.5, 0.0]])
        torch.testing.assert_close(encoder({"pooled": self.POOLED}).pooled, wanted)
        again = Precomputed(2, None, scaling="standard")
        again.load_state_dict(encoder.state_dict(), strict=True)
        torch.testing.assert_close(again({"pooled": self.POOLED}).pooled, wanted)

    @pytest.mark.parametrize(
        ("widths", "more", "said"),
        [
            ((None, None), {}, "has neither"),
            ((2, 3), {"append_pooled": True}, "they are 2 and 3"),
            ((2, None), {"scaling": "standard", "mean": {"pooled": np.zeros(3, dtype=np.float32)}}, "need 2 numbers"),
        ],
    )
    def test_unsuitable_features_raise(
        self, widths: tuple[int | None, int | None], more: dict[str, object], said: str
    ) -> None:
        with pytest.raises(RequirementError, match=said):
            Precomputed(*widths, **more)

    def test_missing_features_raise(self) -> None:
        with pytest.raises(RequirementError, match="needs grid features"):
            Precomputed(2, 2)({"pooled": self.POOLED})


class TestVision:
    def test_transformer_gives_patches_and_class_token(self, tmp_path: Path) -> None:
        encoder = Vision.open(str(tiny_models.vit(tmp_path))).eval()
        own = ViTModel.from_pretrained(tmp_path).eval()
        pixels = torch.randn(3, 3, 32, 32)
        with torch.inference_mode():
            found, states = encoder({"pixels": pixels}), own(pixel_values=pixels).last_hidden_state
            mean = Vision.open(str(tmp_path), pooling="average").eval()({"pixels": pixels}).pooled
        assert torch.equal(found.pooled, states[:, 0]) and torch.equal(found.parts, states[:, 1:])
        torch.testing.assert_close(mean, states[:, 1:].mean(dim=1))

    def test_other_image_size_interpolates_positions(self, tmp_path: Path) -> None:
        encoder = Vision.open(str(tiny_models.vit(tmp_path)))
        assert encoder({"pixels": torch.randn(2, 3, 48, 48)}).parts.shape == (2, 36, 16)

    def test_cells_are_in_row_major_order(self) -> None:
        encoder = Vision.open("tiny", image_size=64).eval()
        pixels = torch.randn(2, 3, 64, 64)
        with torch.inference_mode():
            maps = encoder.body(pixel_values=pixels).last_hidden_state
            found = encoder({"pixels": pixels})
        assert torch.equal(found.parts[:, 5], maps[:, :, 1, 1])
        torch.testing.assert_close(found.pooled, maps.mean(dim=(2, 3)))

    @pytest.mark.parametrize("name", ["tiny", "resnet-18", "mobilenet-v1"])
    def test_frozen_network_keeps_batch_norm_statistics(self, name: str) -> None:
        encoder = Vision.open(name, weights="random")
        encoder.body.requires_grad_(False)
        encoder.train()
        before = {key: value.clone() for key, value in encoder.state_dict().items()}
        encoder({"pixels": torch.randn(2, 3, 64, 64)})
        assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
        encoder.body.requires_grad_(True)
        encoder.train()
        encoder({"pixels": torch.randn(2, 3, 64, 64)})
        assert any(not torch.equal(value, before[key]) for key, value in encoder.state_dict().items())

    def test_mobilenet_statistics_average_over_batches(self) -> None:
        encoder = Vision.open("mobilenet-v1", weights="random").train()
        pixels = torch.randn(2, 3, 64, 64) + 3
        stem = encoder.body.conv_stem
        outside = torch.nn.functional.pad(pixels, (0, 1, 0, 1))
        mean = stem.convolution(outside).mean(dim=(0, 2, 3)).detach()
        encoder({"pixels": pixels})
        torch.testing.assert_close(stem.normalization.running_mean, 0.01 * mean)

    def test_layers_hold_every_weight_once_bottom_up(self) -> None:
        for name in ("tiny", "vit-small", "mobilenet-v1"):
            body = open_body(name, weights="random")
            groups = layers(body)
            flat = [id(weight) for group in groups for weight in group]
            assert sorted(flat) == sorted(id(weight) for weight in body.parameters())
            assert id(next(body.parameters())) == flat[0] and len(groups) > 3

    def test_only_pretrained_models_have_freezable_layers(self, tmp_path: Path) -> None:
        folder = str(tiny_models.vit(tmp_path))
        assert Vision.open(folder).body_layers()
        assert not Vision.open(folder, weights="random").body_layers()
        assert not Vision.open("tiny").body_layers()

    def test_class_token_of_convolutional_network_raises(self) -> None:
        with pytest.raises(RequirementError, match="'cls' needs a class token; ResNetModel has none"):
            Vision.open("tiny", pooling="cls")({"pixels": torch.zeros(1, 3, 64, 64)})

    def test_every_short_name_has_a_family(self) -> None:
        for name, known in BACKBONES.items():
            assert AutoConfig.for_model(known.family, **known.settings).model_type == known.family, name


class TestPreprocessing:
    @pytest.mark.parametrize(
        ("numbers", "wanted"),
        [
            ({"size": {"height": 48, "width": 48}, "resample": 3}, (48, "squash", 1.0, "bicubic")),
            ({"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": True},
             (56, "edge", 0.875, "bilinear")),
            ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, "edge", 0.875, "bilinear")),
            ({"size": {"shortest_edge": 224}, "resample": 1}, (224, "crop", 1.0, "lanczos")),
            ({"size": 100}, (100, "squash", 1.0, "bilinear")),
        ],
    )  # fmt: skip
    def test_settings_are_read_from_model_folder(
        self, tmp_path: Path, numbers: dict[str, object], wanted: tuple[object, ...]
    ) -> None:
        own = {"image_mean": [0.5, 0.5, 0.5], "image_std": [1, 1, 1]}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**numbers, **own}))
        found = preprocessing_of(str(tmp_path))
        assert (found.size, found.resize, found.crop_share, found.filter) == wanted
        assert found.mean == (0.5, 0.5, 0.5)

    def test_grey_images_raise(self, tmp_path: Path) -> None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 28, "image_mean": [0.5]}))
        with pytest.raises(RequirementError, match="three channels"):
            preprocessing_of(str(tmp_path))

    @pytest.mark.parametrize(
        "changed",
        [
            *({"do_resize": False}, {"do_rescale": False}, {"rescale_factor": 1 / 127.5}, {"rescale_offset": True}),
            *({"resample": 0}, {"resample": [3]}, {"do_flip_channel_order": True}, {"max_num_patches": 64}),
            {"size": {"height": 256, "width": 256}, "crop_size": 224, "do_center_crop": True},
        ],
        ids=str,
    )
    def test_unsupported_steps_raise(self, tmp_path: Path, changed: dict[str, object]) -> None:
        numbers = {"size": 8, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**numbers, **changed}))
        with pytest.raises(RequirementError, match=r"needs a preprocessor_config.json that resizes .* divides by 255"):
            preprocessing_of(str(tmp_path))

    def test_missing_preprocessor_config_raises(self, tmp_path: Path) -> None:
        sentence = "needs processor_config.json or preprocessor_config.json, .*; it has neither"
        with pytest.raises(RequirementError, match=sentence):
            preprocessing_of(str(tmp_path))
        # Before version 5 this file of transformers had nothing of images.
        (tmp_path / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')
        with pytest.raises(RequirementError, match=sentence):
            preprocessing_of(str(tmp_path))

    @pytest.mark.parametrize("name", list(tiny_models.PROCESSED))
    def test_pixels_equal_model_processor(self, tmp_path: Path, name: str) -> None:
        """Bit for bit, but for images of extreme aspects and large ones, which are shrunk faster."""
        folder, processor = tiny_models.processed(name, tmp_path)
        numbers = preprocessing_of(str(folder))
        rng = np.random.default_rng(0)
        for width, height, bound in ((61, 97, 1e-6), (90, 70, 1e-6), (40, 55, 1e-6), (20, 200, 0.02), (700, 463, 0.05)):
            coarse = rng.integers(0, 256, (height // 7 + 1, width // 7 + 1, 3), dtype=np.uint8)
            image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
            expected = processor(images=image, return_tensors="np")["pixel_values"]
            spec = PixelInput(**vars(numbers))
            rows = np.zeros(1, dtype=np.int64)
            got = spec(InputBatch([image], ["a"], rows, rows, Path()))["pixels"].numpy()
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, atol=bound / min(numbers.std))


class TestLanguage:
    def test_states_equal_model_states(self, tmp_path: Path) -> None:
        encoder = Language.open(str(tiny_models.bert(tmp_path))).eval()
        own = BertModel.from_pretrained(tmp_path).eval()
        inputs = texts((4, 2))
        with torch.inference_mode():
            states = own(input_ids=inputs["tokens"], attention_mask=inputs["mask"].long()).last_hidden_state
            found = encoder(inputs)
            mean = Language.open(str(tmp_path), pooling="mean").eval()(inputs).pooled
        assert torch.equal(found.parts, states) and torch.equal(found.pooled, states[:, 0])
        torch.testing.assert_close(mean[1], states[1, :2].mean(dim=0))

    def test_batched_texts_equal_single_texts(self, tmp_path: Path) -> None:
        folder = str(tiny_models.bert(tmp_path))
        together, alone = (Language.open(folder, pooling="mean").eval().double() for _ in range(2))
        lengths = np.random.default_rng(0).permutation(np.arange(41) % 9 + 1)
        inputs = texts(tuple(lengths.tolist()))
        found = together(inputs)
        assert found.parts.shape[:2] == inputs["tokens"].shape
        rows = [
            alone({name: values[row : row + 1, :length] for name, values in inputs.items()})
            for row, length in enumerate(lengths)
        ]
        for row, (length, own) in enumerate(zip(lengths, rows, strict=True)):
            torch.testing.assert_close(found.parts[row, :length], own.parts[0])
        pooled = torch.cat([own.pooled for own in rows])
        torch.testing.assert_close(found.pooled, pooled)
        for values in (found.pooled, pooled):
            (values * torch.arange(1.0, 42)[:, None]).square().sum().backward()
        for (name, one), other in zip(together.named_parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, msg=name)

    def test_random_weights_need_only_configuration(self, tmp_path: Path) -> None:
        folder = str(tiny_models.bert(tmp_path))
        (tmp_path / "model.safetensors").unlink()
        assert Language.open(folder, weights="random").parts_width == 16
        with pytest.raises(RequirementError, match="weights=random"):
            Language.open(folder)


class TestCustomCode:
    """A folder whose configuration names Python files of its own (auto_map), and a person who says "y" to anything."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        tiny_models.bert(tmp_path)
        monkeypatch.setattr("builtins.input", lambda *_: "y")
        code = (
            f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
            "from transformers import BertConfig, BertModel, PreTrainedTokenizerFast\n"
            "class Own(BertConfig):\n    model_type = 'own'\n"
            "class Body(BertModel):\n    config_class = Own\n"
            "class Words(PreTrainedTokenizerFast):\n    pass\n"
        )
        (tmp_path / "own.py").write_text(code)
        for name, changes in (
            ("config.json", {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Body"}}),
            ("tokenizer_config.json", {"tokenizer_class": "Words", "auto_map": {"AutoTokenizer": ["own.Words", None]}}),
        ):
            (tmp_path / name).write_text(json.dumps(json.loads((tmp_path / name).read_text()) | changes))
        return tmp_path

    @pytest.mark.parametrize(
        "opened",
        [
            lambda folder: Language.open(str(folder)),
            lambda folder: Language.open(str(folder), weights="random"),
            lambda folder: Language.open("bert-base-uncased", assets=folder),
            lambda folder: tokeniser(str(folder)),
            lambda folder: Vision.open(str(folder), assets=folder),
        ],
        ids=["pretrained", "random", "of a run", "tokeniser", "image of a run"],
    )
    def test_custom_code_raises_and_never_runs(self, folder: Path, opened: Callable[[Path], object]) -> None:
        with pytest.raises(RequirementError, match=r"brings code of its own \(auto_map\), which is never run"):
            opened(folder)
        assert not (folder / "ran").exists()

    def test_custom_tokeniser_code_raises_and_never_runs(self, folder: Path) -> None:
        run = folder / "run"
        SubwordInput(tokeniser(str(tiny_models.bert(folder / "plain")))).save(run)
        for name in ("own.py", "tokenizer_config.json"):
            shutil.copy(folder / name, run / "tokeniser")
        with pytest.raises(CheckpointError, match="which is never run"):
            SubwordInput.load(run)
        assert not (folder / "ran").exists()


class TestAdapters:
    def test_adapters_start_as_identity_and_alone_learn(self, tmp_path: Path) -> None:
        encoder = Language.open(str(tiny_models.bert(tmp_path))).eval()
        inputs = texts((4, 2))
        before = encoder(inputs).pooled
        adapt(encoder, rank=2)
        torch.testing.assert_close(encoder.eval()(inputs).pooled, before)
        learning = [name for name, weight in encoder.named_parameters() if weight.requires_grad]
        assert learning and all("lora_" in name for name in learning)
        # two matrices for each of query, key and value of two layers
        assert len(learning) == 2 * 3 * 2
        assert encoder.body_layers() == []

    def test_adapters_without_attention_raise(self) -> None:
        with pytest.raises(RequirementError, match="ResNetModel has none"):
            adapt(Vision.open("tiny"))


class TestDual:
    def test_clip_loads_scale_widths_and_layers(self, tmp_path: Path) -> None:
        dual = Dual.open(str(tiny_models.clip(tmp_path)))
        assert dual.scale == pytest.approx(1 / 0.07, rel=1e-3) and dual.shift is None
        assert dual.image.pooled_width == dual.text.pooled_width == 12
        assert len(dual.text.body_layers()) == 5

    def test_siglip_masks_no_token(self, tmp_path: Path) -> None:
        dual = Dual.open(str(tiny_models.siglip(tmp_path)))
        dual.text.eval()
        tokens = torch.tensor([[5, 6, 7, *[0] * 13]])
        pooled = [dual.text({"tokens": tokens, "mask": mask}).pooled for mask in (tokens > 0, tokens >= 0)]
        assert torch.equal(*pooled)
        assert dual.shift == pytest.approx(-3.0)


class FakeBody(nn.Module):
    """What timm's models offer, as far as it is read."""

    num_features = 6
    num_prefix_tokens = 1
    pretrained_cfg = {  # noqa: RUF012
        "input_size": (3, 48, 48),
        "mean": (0.1, 0.2, 0.3),
        "std": (1.0, 1.0, 1.0),
        "crop_pct": 0.9,
        "interpolation": "bicubic",
    }

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 6, 8, 8)
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])

    def forward_features(self, pixels: Tensor) -> Tensor:
        patches = self.embed(pixels).flatten(2).transpose(1, 2)
        states = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1)
        for block in self.blocks:
            states = block(states)
        return states

    def forward_head(self, states: Tensor, pre_logits: bool) -> Tensor:
        assert pre_logits
        return states[:, 0]


class TestTimm:
    @pytest.fixture
    def fake(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
        asked: list[tuple[str, bool]] = []
        module = types.ModuleType("timm")

        def create_model(name: str, *, pretrained: bool, num_classes: int, **more: int) -> FakeBody:
            if more and name == "convolutions":
                raise TypeError("__init__() got an unexpected keyword argument 'img_size'")
            asked.append((name, pretrained))
            if name not in ("small", "convolutions"):
                raise RuntimeError(f"Unknown model ({name})")
            body = FakeBody()
            body.made_for = more.get("img_size")  # type: ignore[assignment]
            return body

        module.create_model = create_model  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "timm", module)
        return asked

    def test_timm_model_gives_patches_and_pooled_vector(self, fake: list[tuple[str, bool]]) -> None:
        encoder = TimmVision.open("small")
        found = encoder({"pixels": torch.randn(2, 3, 48, 48)})
        assert found.parts.shape == (2, 36, 6) and found.pooled.shape == (2, 6)
        assert (encoder.preprocessing.size, encoder.preprocessing.filter, encoder.preprocessing.mean) == (
            48,
            "bicubic",
            (0.1, 0.2, 0.3),
        )
        assert len(encoder.body_layers()) == 3
        assert fake == [("small", True)]

    @pytest.mark.parametrize(("name", "made_for"), [("small", 64), ("convolutions", None)])
    def test_position_embeddings_fit_image_size(
        self, fake: list[tuple[str, bool]], name: str, made_for: int | None
    ) -> None:
        texts = ("a b", "b a", "a b")
        model = build("dual", {"image": f"timm:{name}", "image_size": 64}, context=BuildContext(texts=texts)).model
        assert model.image.encoder.body.made_for == made_for and model.image.input_spec.size == 64
        assert fake == [(name, True)]

    def test_saved_run_downloads_nothing(self, fake: list[tuple[str, bool]]) -> None:
        TimmVision.open("small", fetch=False)
        assert fake == [("small", False)]

    def test_unknown_model_name_raises(self, fake: list[tuple[str, bool]]) -> None:
        with pytest.raises(RequirementError, match=r"Unknown model \(large\)"):
            TimmVision.open("large")

    def test_missing_package_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(RequirementError, match=r"pip install '\.\[encoders\]'"):
            TimmVision.open("small")


class FakeTower(nn.Module):
    """One tower of an open_clip model, as far as it is read."""

    output_dim = 6
    preprocess_cfg = {  # noqa: RUF012
        "size": (32, 32),
        "mean": (0.1, 0.2, 0.3),
        "std": (1.0, 1.0, 1.0),
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    }

    def __init__(self, pictures: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 8, 8) if pictures else nn.Embedding(20, 6)
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])

    def forward(self, values: Tensor) -> Tensor:
        states = self.first(values)
        pooled = states.mean(dim=(2, 3)) if states.ndim == 4 else states.mean(dim=1)
        for layer in self.layers:
            pooled = layer(pooled)
        return pooled


class TestOpenClip:
    @pytest.fixture
    def fake(self, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
        asked: list[str | None] = []
        module = types.ModuleType("open_clip")

        def create_model(
            name: str, *, pretrained: str | None, force_image_size: int | None, force_custom_text: bool
        ) -> nn.Module:
            assert force_custom_text
            asked.append(pretrained)
            if name != "small":
                raise RuntimeError(f"Model config for {name} not found")
            model = nn.Module()
            model.visual, model.text = FakeTower(True), FakeTower(False)
            model.visual.made_for = force_image_size
            model.logit_scale = nn.Parameter(torch.tensor(3.0))
            return model

        def get_tokenizer(name: str) -> Callable[[list[str]], Tensor]:
            return lambda found: torch.tensor([[1, len(text), 2, 0] for text in found])

        module.create_model = create_model  # type: ignore[attr-defined]
        module.get_tokenizer = get_tokenizer  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "open_clip", module)
        return asked

    def test_open_clip_run_saves_and_loads(self, fake: list[str | None], tmp_path: Path) -> None:
        told = {"model": "open_clip:small/tag"}
        first = build("clip", told, context=BuildContext()).model
        found = first.embed_texts(["a", "two"])
        assert found.vectors.shape == (2, 1, 6)
        pixels = first.image({"pixels": torch.randn(2, 3, 32, 32), "ids": torch.arange(2)})
        assert first.compare(pixels, found).shape == (2, 2)
        assert len(first.image.encoder.body_layers()) == 3
        for name, branch in (("image", first.image), ("text", first.text)):
            branch.save_assets(tmp_path / name)
        again = build("clip", told, context=BuildContext(assets=tmp_path)).model
        again.load_state_dict(first.state_dict(), strict=True)
        assert torch.equal(again.embed_texts(["a", "two"]).vectors, found.vectors)
        assert again.image.input_spec == first.image.input_spec and again.image.input_spec.size == 32
        assert fake == ["tag", None]
        assert first.image.encoder.body.made_for is None
        larger = build("clip", told | {"image_size": 64}, context=BuildContext()).model.image
        assert larger.encoder.body.made_for == larger.input_spec.size == 64

    def test_unknown_model_name_raises(self, fake: list[str | None]) -> None:
        with pytest.raises(RequirementError, match="Model config for large not found"):
            OpenClip.open("large")
        with pytest.raises(RequirementError, match="needs the name of its weights"):
            OpenClip.open("small")
        assert OpenClip.open("small", pretrained=False).image.body_layers() == []

    def test_missing_package_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "open_clip", None)
        with pytest.raises(RequirementError, match=r"pip install '\.\[encoders\]'"):
            OpenClip.open("small")


def test_saved_configuration_restores_model(tmp_path: Path) -> None:
    first = Vision.open("tiny")
    first.save_assets(tmp_path)
    again = Vision.open("tiny", assets=tmp_path)
    again.load_state_dict(first.state_dict(), strict=True)
    assert isinstance(again.body, type(AutoModel.from_config(first.body.config)))


class TestWordVectors:
    """Word vectors learnt on the data set's own texts, as the start of a text encoder."""

    # Two topics; a word's meaning is the words beside it.
    TEXTS = tuple(
        " ".join(words)
        for words in [("dog", "barks", "at", "a", "puppy"), ("puppy", "and", "dog", "bark"), ("a", "puppy", "barks")]
        * 20
        + [("boat", "sails", "the", "sea"), ("a", "ship", "sails", "at", "sea"), ("boat", "and", "ship", "sail")] * 20
    )

    @pytest.mark.parametrize(("text", "word_dim"), [("gru", 12), ("bag", 8)])
    def test_embedding_starts_from_word_vectors(self, text: str, word_dim: int) -> None:
        pytest.importorskip("gensim")
        options = {"embed_dim": 8, "text": text, "word_dim": word_dim}
        context = BuildContext(image_features=FeatureShape(pooled=8), texts=self.TEXTS, seed=3)
        learnt, again = (build("vse", {**options, "word_vectors": "doc2vec"}, context=context) for _ in range(2))
        side = learnt.model.text
        tokens, start = side.input_spec.vocabulary.tokens, side.encoder.words.weight.detach()
        rows, vectors = spaces.word_vectors(self.TEXTS, tokens, word_dim, seed=3)
        assert [tokens[row] for row in rows] == list(tokens[4:])
        torch.testing.assert_close(start[4:], torch.from_numpy(vectors))
        torch.testing.assert_close(start, again.model.text.encoder.words.weight.detach(), rtol=0, atol=0)
        plain = build("vse", options, context=context).model.text.encoder.words.weight
        assert torch.equal(start[:4], plain[:4]) and not torch.isclose(start[4:], plain[4:]).any(dim=1).all()
        unit = torch.nn.functional.normalize(start, dim=1)
        place = {word: unit[row] for row, word in enumerate(tokens)}
        assert place["dog"] @ place["puppy"] > place["dog"] @ place["ship"]

    def test_missing_gensim_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spaces, "find_spec", lambda name: None)
        context = BuildContext(image_features=FeatureShape(pooled=8), texts=self.TEXTS)
        with pytest.raises(RequirementError, match="word_vectors=doc2vec needs gensim, which is not installed; pip"):
            build("vse", {"embed_dim": 8, "word_vectors": "doc2vec"}, context=context)
