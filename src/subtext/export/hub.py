"""A run as a folder for the Hub: of `transformers` where that has the model, of `subtext.load` otherwise."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subtext.data.pixels import PixelInput
from subtext.data.text import SubwordInput
from subtext.export.samples import Samples, vectors_of
from subtext.models.checkpoint import Record
from subtext.models.encoders.dual import Half
from subtext.models.model import Model
from subtext.models.model_card import model_card

TOLERANCE = 1e-5
"""Largest accepted difference of a component of a unit vector between the model and the export."""


def public_record(record: Record) -> Record:
    """The record with names of files alone: no folder of this machine is published."""
    data = record.data

    def name(path: str | None) -> str | None:
        return None if path is None else Path(path).name

    return replace(
        record,
        data=replace(
            data,
            data=Path(data.data).name,
            images=name(data.images),
            features=name(data.features),
            text_features=name(data.text_features),
        ),
    )


def write_config(record: Record, folder: Path) -> None:
    """Write the config.json that the Hub expects beside the files of a run."""
    config = {"model_type": f"subtext-{record.model}", "library_name": "subtext", "host": record.model}
    text = json.dumps({**config, "arguments": record.arguments, "methods": record.methods}, indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def difference(model: Model, exported: Model, samples: Samples) -> float:
    """Largest difference of a component of the vectors of two models over all samples."""
    return max(
        float((vectors_of(exported, side, batch) - vectors_of(model, side, batch)).abs().max())
        for side, batches in samples.batches.items()
        for batch in batches
    )


def is_dual_encoder(model: Model) -> bool:
    """Whether `transformers` has this model: both sides are halves of a CLIP or SigLIP."""
    return isinstance(model.image.encoder, Half) and isinstance(model.text.encoder, Half)


def write_dual_encoder(model: Model, record: Record, folder: Path) -> None:
    """Write a dual encoder as a folder of `transformers`, with tokeniser, image processor and model card.

    Low-rank adapters are merged into the weights that they adapt.
    """
    from transformers import AutoModel

    image, text = _merged(model.image.encoder), _merged(model.text.encoder)
    dual: Any = AutoModel.from_config(copy.deepcopy(image.config))
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
        processor = json.dumps(_image_processor(model.image.input_spec, dual.config.model_type), indent=2)
        (folder / "preprocessor_config.json").write_text(processor + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_dual_encoder_card(record), encoding="utf-8")


def dual_encoder_difference(model: Model, folder: Path, samples: Samples) -> float:
    """Largest difference of a component of the vectors of the model and of what `transformers` opens."""
    from transformers import AutoModel

    dual: Any = AutoModel.from_pretrained(folder, use_safetensors=True).eval()
    image, text = getattr(dual, "visual_projection", None), getattr(dual, "text_projection", None)
    halves = {
        "image": Half(dual.vision_model, image, dual.config, input_name="pixels").eval(),
        "text": Half(dual.text_model, text, dual.config, input_name="tokens").eval(),
    }
    differences = []
    for side, batches in samples.batches.items():
        for batch in batches:
            with torch.inference_mode():
                pooled: Tensor = halves[side](batch).pooled
                vectors = nn.functional.normalize(pooled, dim=-1)[:, None]
            differences.append(float((vectors - vectors_of(model, side, batch)).abs().max()))
    return max(differences)


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
    cropped = input_spec.resize == "crop"
    return {
        "image_processor_type": "SiglipImageProcessor" if "siglip" in family else "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": round(input_spec.size / input_spec.crop_share)} if cropped else size,
        "do_center_crop": cropped,
        "crop_size": size,
        "resample": 3 if input_spec.filter == "bicubic" else 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(input_spec.mean),
        "image_std": list(input_spec.std),
    }


def _dual_encoder_card(record: Record) -> str:
    card = model_card(public_record(record)).replace("library_name: subtext", "library_name: transformers")
    start, end = card.index("## Use"), card.index("## Limits")
    use = [
        "## Use",
        "",
        "```python",
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'model = AutoModel.from_pretrained("FOLDER")  # this folder',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        "```",
        "",
        "Images are preprocessed as `preprocessor_config.json` says.",
        "",
    ]
    return card[:start] + "\n".join(use) + "\n" + card[end:]
