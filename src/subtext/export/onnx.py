"""`subtext export --onnx`: both sides of a model as ONNX graphs, with what their inputs are made by."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from subtext import __version__
from subtext.api.load import Run, open_run
from subtext.data.atomic import write_folder
from subtext.data.features import FeatureInput
from subtext.data.inputs import Tensors
from subtext.data.pixels import PixelInput
from subtext.errors import CheckpointError, RequirementError
from subtext.export.hub import require_free, shared
from subtext.export.samples import Samples, expected, gather
from subtext.export.stand_ins import Exportable, translations
from subtext.models.model import Branch
from subtext.report.model_card import model_card
from subtext.report.progress import say
from subtext.report.text_table import size
from subtext.search import model_fingerprint

TOLERANCE = 1e-4
"""Largest difference of a number of a unit vector between the model and ONNX Runtime, whose kernels sum otherwise."""

ORDER = ("pixels", "tokens", "pooled", "grid", "mask")
"""Inputs of a graph, in their order; those that a side does not read are left out."""

_AXES = {
    "pixels": ("items", "channels", "height", "width"),
    "tokens": ("items", "length"),
    "pooled": ("items", "width"),
    "grid": ("items", "length", "width"),
    "mask": ("items", "length"),
}


def export(run_folder: Path, out: Path, *, quiet: bool = False) -> str:
    """Write image.onnx, text.onnx, the assets, and how to feed them; compared with the model by ONNX Runtime.

    Any number of items and any length of text can be given to the graphs; pictures have the size of the model.

    Raises RequirementError for a model that only scores pairs, or when a package is missing; CheckpointError when `out`
    holds something, or the graphs do not give the model's vectors: then nothing is left of them.
    """
    _require_packages()
    require_free(out)
    run = open_run(run_folder)
    run = replace(run, model=run.model.by_mean("an ONNX export"))
    samples = gather(run)
    differences: dict[str, float] = {}

    def fill(place: Path) -> None:
        for side in ("image", "text"):
            branch = getattr(run.model, side)
            say(f"{side}: writing the graph", quiet=quiet)
            names = [name for name in ORDER if name in samples.batches[side][-1]]
            _write(branch, names, samples.batches[side], place / f"{side}.onnx")
            differences[side] = _difference(run, side, names, samples, place / f"{side}.onnx")
            (place / "assets" / side).mkdir(parents=True)
            branch.input_spec.save(place / "assets" / side)
        _describe(run, samples, differences, place)

    write_folder(out, fill)
    told = ", ".join(f"{side} {difference:.1e}" for side, difference in differences.items())
    held = size(sum(file.stat().st_size for file in out.rglob("*") if file.is_file()))
    checked = f"checked on {samples.source}; largest difference {told}"
    return f"{out}: {held}, {checked}\n{out / 'subtext.json'} says how to feed it"


def _write(branch: Branch, names: list[str], batches: list[Tensors], path: Path) -> None:
    """One side's graph, with free numbers of items and of words or regions."""
    module = Exportable(branch, names).eval()
    example = max(batches, key=lambda batch: len(batch["ids"]))
    axes = {"items": torch.export.Dim("items", max=65536), "length": torch.export.Dim("length", max=65536)}
    dynamic = tuple({place: axes[axis] for place, axis in enumerate(_AXES[name]) if axis in axes} for name in names)
    with _hushed():
        torch.onnx.export(
            module,
            tuple(example[name] for name in names),
            str(path),
            input_names=names,
            output_names=["vectors"],
            dynamic_shapes=(dynamic,),
            custom_translation_table=translations(),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _difference(run: Run, side: str, names: list[str], samples: Samples, path: Path) -> float:
    """The largest difference from the model over all samples."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in samples.batches[side]:
        found = torch.from_numpy(session.run(None, {name: batch[name].numpy() for name in names})[0])
        wanted = expected(run.model, side, batch)
        same = found.shape == wanted.shape
        worst = max(worst, float((found - wanted).abs().max()) if same else float("inf"))
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"an export needs to give the model's vectors; {path.name} differs by {worst:.2g} on {samples.source}; "
            f"nothing was kept; please report the recipe '{run.record.host}' and its options"
        )
    return worst


def _describe(run: Run, samples: Samples, differences: dict[str, float], place: Path) -> None:
    similarity = run.model.similarity
    told = {
        "format": "subtext onnx 1",
        "version": __version__,
        "host": run.record.host,
        "fingerprint": model_fingerprint(run.model),
        "image": {"file": "image.onnx", **_side(run.model.image, samples.batches["image"][-1])},
        "text": {"file": "text.onnx", **_side(run.model.text, samples.batches["text"][-1])},
        "vectors": "float32 (items, views, width); a pair's cosine is the largest inner product over its views",
        "score": "scale * cosine + shift",
        "scale": float(torch.as_tensor(getattr(similarity, "scale", 1.0)).detach()),
        "shift": float(torch.as_tensor(getattr(similarity, "shift", 0.0)).detach()),
        "checked": {"on": samples.source, "largest difference": differences},
    }
    (place / "subtext.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (place / "README.md").write_text(model_card(shared(run.record)), encoding="utf-8")


def _side(branch: Branch, batch: Tensors) -> dict[str, Any]:
    """What a side's graph is fed with."""
    inputs = {
        name: {
            "type": str(batch[name].dtype).removeprefix("torch."),
            "axes": [
                axis if axis in ("items", "length") else int(batch[name].shape[place])
                for place, axis in enumerate(_AXES[name])
            ],
        }
        for name in ORDER
        if name in batch
    }
    input_spec = branch.input_spec
    if isinstance(input_spec, PixelInput):
        how: dict[str, Any] = {
            "kind": "pixels",
            "how": "RGB in [0, 1], minus mean, over std; crop_share of the short side's middle square if crop",
            **{
                name: value for name, value in asdict(input_spec).items() if name not in ("flip", "erase", "least_area")
            },
        }
    elif isinstance(input_spec, FeatureInput):
        how = {"kind": "features", "how": "precomputed, as for training; mask is true where a region is"}
    else:
        how = {"kind": "words", "how": "codes of the files in assets/text; mask is true where a token is"}
    return {"inputs": inputs, **how}


def _require_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(name)
        except ImportError as error:
            raise RequirementError(f"an ONNX export needs the package {name}; pip install 'subtext[onnx]'") from error


@contextmanager
def _hushed() -> Iterator[None]:
    """The exporter tells much that concerns its makers; what concerns a user is checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
