"""A run as a folder for the Hub: of `transformers` where that has the model, of `subtext.load` otherwise.

Every export is compared with the model on the same inputs: random tensors, and items of the run's data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from subtext.data.batches import item_batch
from subtext.data.features import FeatureInput
from subtext.data.inputs import Input, InputBatch, Tensors
from subtext.data.pixels import PatchInput, PixelInput
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError
from subtext.models.checkpoint import Record
from subtext.models.encoders.dual import SingleTower
from subtext.models.model import Branch, Model
from subtext.models.model_card import model_card
from subtext.text_helpers import json_text

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset


COUNT = 8
"""Items of the data that are compared."""
SIDES = ("image", "text")


@dataclass(frozen=True)
class Samples:
    """Batches to compare a model with its export.

    Attributes:
        batches: "image" and "text" -> batches of several sizes.
        source: Phrase that says where they come from.
    """

    batches: dict[str, list[Tensors]]
    source: str


def sample_inputs(model: Model, dataset: Dataset | None) -> Samples:
    """Make random batches of one and of three items, and a batch of the first items of a data set.

    Args:
        model: The model.
        dataset: The data set; None for random batches alone.

    Returns:
        The batches.

    Raises:
        RequirementError: For a model of variable image size.
    """
    if isinstance(model.image.input_spec, PatchInput):
        raise RequirementError(
            "an export needs images of one size; this model reads them at their own aspect (NaFlex); copy the folder "
            "of the run, which subtext.load opens"
        )
    generator = torch.Generator().manual_seed(0)
    batches = {side: [_random(getattr(model, side), count, generator) for count in (1, 3)] for side in SIDES}
    if dataset is None:
        return Samples(batches, "random inputs")
    for side, items in (("image", dataset.images), ("text", dataset.texts)):
        rows = np.arange(min(COUNT, len(items)), dtype=np.int64)
        batches[side].append(getattr(model, side).read(item_batch(items, rows, dataset.root)))
    return Samples(batches, f"random inputs and {COUNT} items of the data")


def vectors_of(model: Model, side: str, batch: Tensors) -> Tensor:
    """Compute the model's own vectors of a batch.

    Args:
        model: The model.
        side: "image" or "text".
        batch: Tensors of N items.

    Returns:
        (N K D).
    """
    model.eval()
    with torch.inference_mode():
        vectors: Tensor = getattr(model, side)(batch).vectors.clone()
    return vectors


def _random(branch: Branch, count: int, generator: torch.Generator) -> Tensors:
    """A batch of the shapes that the branch reads; texts have different lengths."""
    input_spec, ids = branch.input_spec, torch.arange(count)
    if isinstance(input_spec, PixelInput):
        return {"pixels": torch.randn(count, 3, input_spec.size, input_spec.size, generator=generator), "ids": ids}
    if isinstance(input_spec, FeatureInput):
        tensors = {"ids": ids}
        if input_spec.pooled is not None:
            tensors["pooled"] = torch.randn(count, input_spec.pooled, generator=generator)
        if input_spec.grid is not None:
            regions = 4 + count
            tensors["grid"] = torch.randn(count, regions, input_spec.grid, generator=generator)
            # Each item has one region fewer than the one before.
            tensors["mask"] = torch.arange(regions)[None, :] < (regions - torch.arange(count))[:, None]
        return tensors
    captions = ["a", "red dog on the beach", "two old boats and a very small house in the dark 🚣🏽"]
    rows = np.arange(count, dtype=np.int64)
    texts = [captions[row % len(captions)] for row in range(count)]
    return input_spec(InputBatch(texts, texts, rows, rows, Path()))


def text_preparation(input_spec: Input) -> str:
    """Describe what happens to texts before and behind the tokeniser.

    Args:
        input_spec: How the model reads texts.

    Returns:
        A sentence or two for people who use the weights without Subtext; "" for a model of words.
    """
    if not isinstance(input_spec, SubwordInput):
        return ""
    told = [f"Texts are cut at {input_spec.max_tokens} tokens"]
    if input_spec.full_length:
        told.append(f"filled up to {input_spec.full_length} on the right, without an attention mask")
    steps = ["put into the prompt " + repr(input_spec.prompt)] if input_spec.prompt else []
    steps += ["written in small letters"] if input_spec.lower else []
    return f"{' and '.join(told)}." + (f" Before, they are {' and then '.join(steps)}." if steps else "")


TOLERANCE = 1e-5
"""Largest accepted difference of a component of a unit vector between the model and the export."""


def public_record(record: Record) -> Record:
    """Remove the folders of this machine from a record, and keep the names of files.

    Args:
        record: The record of a run.

    Returns:
        The record to publish.
    """
    names = ("data", "images", "features", "text_features")
    paths: dict[str, Any] = {name: path and Path(path).name for name in names for path in [getattr(record.data, name)]}
    return replace(record, data=replace(record.data, **paths))


def write_config(record: Record, folder: Path) -> None:
    """Write the config.json that the Hub expects beside the files of a run.

    Args:
        record: The record of the run.
        folder: Existing folder to write to.
    """
    config = {"model_type": f"subtext-{record.model}", "library_name": "subtext", "model": record.model}
    text = json_text({**config, "arguments": record.arguments, "methods": record.methods}, indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def difference(model: Model, exported: Callable[[str, Tensors], Tensor], samples: Samples) -> float:
    """Compare the vectors of the model and of the export over all samples.

    It is infinite where the shapes differ.

    Args:
        model: The model.
        exported: Computes (N D) or (N K D) of a side and a batch.
        samples: The batches.

    Returns:
        The largest difference of a component.
    """
    largest = 0.0
    for side, batches in samples.batches.items():
        for batch in batches:
            vectors, expected = exported(side, batch), vectors_of(model, side, batch)
            equal = vectors.shape == expected.shape
            largest = max(largest, float((vectors - expected).abs().max()) if equal else float("inf"))
    return largest


def is_dual_encoder(model: Model) -> bool:
    """Test whether `transformers` has this model: both sides are halves of a CLIP or SigLIP.

    Args:
        model: The model.

    Returns:
        Whether it has.
    """
    return isinstance(model.image.encoder, SingleTower) and isinstance(model.text.encoder, SingleTower)


def write_dual_encoder(model: Model, record: Record, folder: Path) -> None:
    """Write a dual encoder as a folder of `transformers`, with tokeniser, image processor and model card.

    Low-rank adapters are merged into the weights that they adapt.

    Args:
        model: The model.
        record: The record of the run.
        folder: Existing folder to write to.
    """
    from transformers import AutoModel

    image, text = _merged(model.image.encoder), _merged(model.text.encoder)
    dual: Any = AutoModel.from_config(copy.deepcopy(image.config), trust_remote_code=False)
    dual.vision_model.load_state_dict(image.body.state_dict())
    dual.text_model.load_state_dict(text.body.state_dict())
    for name, half in (("visual_projection", image), ("text_projection", text)):
        if getattr(dual, name, None) is not None:
            getattr(dual, name).load_state_dict(half.projection.state_dict())
    with torch.no_grad():
        dual.logit_scale.copy_(torch.as_tensor(model.similarity.scale).log())
        if getattr(dual, "logit_bias", None) is not None:
            dual.logit_bias.copy_(torch.as_tensor(model.similarity.shift))
    dual.save_pretrained(folder)
    if isinstance(model.text.input_spec, SubwordInput):
        model.text.input_spec.tokeniser.save_pretrained(folder)
    if isinstance(model.image.input_spec, PixelInput):
        processor = json_text(_image_processor(model.image.input_spec, dual.config.model_type), indent=2)
        (folder / "preprocessor_config.json").write_text(processor + "\n", encoding="utf-8")
    card = model_card(public_record(record)).replace("library_name: subtext", "library_name: transformers")
    use = Path(__file__).with_name("use_of_transformers.md").read_text(encoding="utf-8")
    use = use.replace("{texts}", text_preparation(model.text.input_spec))
    before, after = card[: card.index("## Use")], card[card.index("## Limits") :]
    (folder / "README.md").write_text(before + use + after, encoding="utf-8")


def open_dual_encoder(folder: Path) -> Callable[[str, Tensors], Tensor]:
    """Open a folder that `write_dual_encoder` wrote, by `transformers` alone.

    Args:
        folder: The folder.

    Returns:
        Computes unit vectors (N 1 D) of a side and a batch.
    """
    from transformers import AutoModel

    dual: Any = AutoModel.from_pretrained(folder, use_safetensors=True, trust_remote_code=False).eval()
    image, text = getattr(dual, "visual_projection", None), getattr(dual, "text_projection", None)
    halves = {
        "image": SingleTower(dual.vision_model, image, dual.config, input_name="pixels").eval(),
        "text": SingleTower(dual.text_model, text, dual.config, input_name="tokens").eval(),
    }

    def vectors(side: str, batch: Tensors) -> Tensor:
        with torch.inference_mode():
            return nn.functional.normalize(halves[side](batch).pooled, dim=-1)[:, None]

    return vectors


def _merged(half: nn.Module) -> Any:
    """A copy of a half whose low-rank adapters are added to the weights that they adapt."""
    half = copy.deepcopy(half)
    if not any("lora_" in name for name, _ in half.named_parameters()):
        return half
    from peft.tuners.tuners_utils import BaseTunerLayer

    body = half.body
    assert isinstance(body, nn.Module)
    for name, layer in list(body.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            parent, _, attribute = name.rpartition(".")
            setattr(body.get_submodule(parent), attribute, layer.get_base_layer())
    return half


def _image_processor(input_spec: PixelInput, family: str) -> dict[str, Any]:
    """The configuration of the image processor of `transformers` that is closest to how images are read."""
    size = {"height": input_spec.size, "width": input_spec.size}
    cropped = input_spec.resize != "squash"
    return {
        "image_processor_type": "SiglipImageProcessor" if "siglip" in family else "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": round(input_spec.size / input_spec.crop_share)} if cropped else size,
        "do_center_crop": cropped,
        "crop_size": size,
        "resample": {"lanczos": 1, "bilinear": 2, "bicubic": 3}[input_spec.filter],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(input_spec.mean),
        "image_std": list(input_spec.std),
    }
