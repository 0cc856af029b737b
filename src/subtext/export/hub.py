"""`subtext export --hf`: a folder as the Hub keeps models."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subtext.api.load import Run, load, open_run, save_pretrained
from subtext.api.loaded import choose_device
from subtext.data.atomic import write_folder
from subtext.data.pixels import PixelInput
from subtext.data.text import SubwordInput
from subtext.errors import CheckpointError
from subtext.export.samples import Samples, expected, gather
from subtext.models.checkpoint import Record
from subtext.models.encoders.dual import Half
from subtext.models.model import Model
from subtext.report.model_card import model_card

TOLERANCE = 1e-5
"""Largest difference of a number of a unit vector between the model and what was written."""


def export(run_folder: Path, out: Path) -> str:
    """Write the run in the Hub's form and compare it, opened again, with the model; says what can open it.

    A dual encoder of the CLIP and SigLIP families becomes a folder of `transformers`, which needs no Subtext; any other
    model becomes a folder that `subtext.load` opens.

    Raises CheckpointError when `out` holds something, or what was written does not give the same vectors: then nothing
    is left of it.
    """
    require_free(out)
    choose_device("cpu")
    run = open_run(run_folder)
    samples = gather(run)
    transformers = isinstance(run.model.image.encoder, Half) and isinstance(run.model.text.encoder, Half)
    difference = 0.0

    def fill(place: Path) -> None:
        nonlocal difference
        if transformers:
            _write_dual(run, place)
            difference = _compare_dual(run.model, place, samples)
        else:
            _write_own(run, place)
            difference = _compare_own(run.model, place, samples)
        if not difference <= TOLERANCE:
            raise CheckpointError(
                f"an export needs to give the model's vectors; opened again it differs by {difference:.2g} on "
                f"{samples.source}; nothing was kept; please report the recipe '{run.record.host}' and its options"
            )

    write_folder(out, fill)
    how = f'transformers.AutoModel.from_pretrained("{out}")' if transformers else f'subtext.load("{out}")'
    return f"{out}: checked on {samples.source}, largest difference {difference:.1e}\nopen it with:\n  {how}"


def require_free(out: Path) -> None:
    """Raise CheckpointError unless `out` is free, or an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"an export needs a new or an empty folder; {out} holds something; name another")


def shared(record: Record) -> Record:
    """The record without the folders of this machine: names of files alone."""
    data = record.data

    def bare(path: str | None) -> str | None:
        return None if path is None else Path(path).name

    return replace(
        record,
        data=replace(
            data,
            data=Path(data.data).name,
            images=bare(data.images),
            features=bare(data.features),
            text_features=bare(data.text_features),
        ),
    )


def _write_own(run: Run, place: Path) -> None:
    save_pretrained(run.model, shared(run.record), place)
    config = {"model_type": f"subtext-{run.record.host}", "library_name": "subtext", "host": run.record.host}
    text = json.dumps({**config, "arguments": run.record.arguments, "methods": run.record.methods}, indent=2)
    (place / "config.json").write_text(text + "\n", encoding="utf-8")


def _compare_own(model: Model, place: Path, samples: Samples) -> float:
    again = load(place)
    return max(
        float((expected(again, side, batch) - expected(model, side, batch)).abs().max())
        for side, batches in samples.batches.items()
        for batch in batches
    )


def _write_dual(run: Run, place: Path) -> None:
    from transformers import AutoModel

    model = run.model
    image, text = _merged(model.image.encoder), _merged(model.text.encoder)
    whole: Any = AutoModel.from_config(copy.deepcopy(image.config))
    whole.vision_model.load_state_dict(image.body.state_dict())
    whole.text_model.load_state_dict(text.body.state_dict())
    for name, half in (("visual_projection", image), ("text_projection", text)):
        if getattr(whole, name, None) is not None:
            getattr(whole, name).load_state_dict(half.projection.state_dict())
    with torch.no_grad():
        whole.logit_scale.copy_(torch.as_tensor(model.similarity.scale).log())
        if getattr(whole, "logit_bias", None) is not None:
            whole.logit_bias.copy_(torch.as_tensor(model.similarity.shift))
    whole.save_pretrained(place)
    if isinstance(model.text.input_spec, SubwordInput):
        model.text.input_spec.tokeniser.save_pretrained(place)
    if isinstance(model.image.input_spec, PixelInput):
        numbers = json.dumps(_preprocessor(model.image.input_spec, whole.config.model_type), indent=2)
        (place / "preprocessor_config.json").write_text(numbers + "\n", encoding="utf-8")
    (place / "README.md").write_text(_dual_card(run.record), encoding="utf-8")


def _compare_dual(model: Model, place: Path, samples: Samples) -> float:
    from transformers import AutoModel

    whole: Any = AutoModel.from_pretrained(place, use_safetensors=True).eval()
    halves = {
        "image": Half(
            whole.vision_model, getattr(whole, "visual_projection", None), whole.config, input_name="pixels"
        ).eval(),
        "text": Half(
            whole.text_model, getattr(whole, "text_projection", None), whole.config, input_name="tokens"
        ).eval(),
    }
    differences = []
    for side, batches in samples.batches.items():
        for batch in batches:
            with torch.inference_mode():
                pooled: Tensor = halves[side](batch).pooled
                vectors = nn.functional.normalize(pooled, dim=-1)[:, None]
            differences.append(float((vectors - expected(model, side, batch)).abs().max()))
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
            parent, _, own = name.rpartition(".")
            setattr(body.get_submodule(parent), own, layer.get_base_layer())
    return half


def _preprocessor(input_spec: PixelInput, family: str) -> dict[str, Any]:
    """What `transformers` calls an image processor, as near as it has words for how pictures were read."""
    side = {"height": input_spec.size, "width": input_spec.size}
    cropped = input_spec.resize == "crop"
    return {
        "image_processor_type": "SiglipImageProcessor" if "siglip" in family else "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": round(input_spec.size / input_spec.crop_share)} if cropped else side,
        "do_center_crop": cropped,
        "crop_size": side,
        "resample": 3 if input_spec.filter == "bicubic" else 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(input_spec.mean),
        "image_std": list(input_spec.std),
    }


def _dual_card(record: Record) -> str:
    card = model_card(shared(record)).replace("library_name: subtext", "library_name: transformers")
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
        "Pictures are prepared as `preprocessor_config.json` says.",
        "",
    ]
    return card[:start] + "\n".join(use) + "\n" + card[end:]
