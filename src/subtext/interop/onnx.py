"""Both sides of a model as ONNX graphs, with a description of their inputs.

PyTorch's exporter traces one example, so what depends on the values of that example is replaced before: recurrent
networks run without packed sequences, and GPO pools without them (`Exportable`).
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.data.features import FeatureInput
from subtext.data.inputs import Tensors
from subtext.data.pixels import PixelInput
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError
from subtext.interop.hub import Samples, difference, public_record, text_preparation
from subtext.models.checkpoint import Record
from subtext.models.encoders.words import Recurrent
from subtext.models.heads.gaussian import Gaussian
from subtext.models.heads.gpo import Gpo, RankWeights, _sinusoids as sinusoids
from subtext.models.model import Branch, Model
from subtext.models.model_card import model_card
from subtext.ops.numerics import masked_softmax, unit
from subtext.retrieval.build import model_fingerprint
from subtext.text_helpers import install_hint, json_text
from subtext.version import __version__

TOLERANCE = 1e-4
"""Largest accepted difference of a component of a unit vector: ONNX Runtime's kernels sum in another order."""

INPUTS = {
    "pixels": ("items", "channels", "height", "width"),
    "tokens": ("items", "length"),
    "pooled": ("items", "width"),
    "grid": ("items", "length", "width"),
    "mask": ("items", "length"),
}
"""Inputs of a graph in their order, with their axes; a graph has those that its side reads."""
FREE_AXES = ("items", "length")


def require_packages() -> None:
    """Require the packages of the extra `onnx`.

    Raises:
        RequirementError: If one is missing.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(name)
        except ImportError as error:
            raise RequirementError(f"an ONNX export needs the package {name}; {install_hint('onnx')}") from error


_USE = """
`subtext.json` describes the inputs of each graph, how they are prepared from images and texts, and the score.

```python
import json
from pathlib import Path

import numpy as np
import onnxruntime

folder = Path("FOLDER")  # this folder
about = json.loads((folder / "subtext.json").read_text(encoding="utf-8"))


def embed(side, inputs):  # name -> array, as about[side]["inputs"] has them
    return onnxruntime.InferenceSession(folder / about[side]["file"]).run(None, inputs)[0]  # (items, views, width)


def empty(side):  # two items of zeros, in place of prepared ones
    inputs = about[side]["inputs"].items()
    return {name: np.zeros([2 if isinstance(n, str) else n for n in i["axes"]], i["type"]) for name, i in inputs}


images, texts = embed("image", empty("image")), embed("text", empty("text"))
cosines = np.einsum("ivd,twd->itvw", images, texts).max(axis=(2, 3))
scores = about["scale"] * cosines + about["shift"]
```
"""


def write_graph(model: Model, side: str, samples: Samples, folder: Path) -> float:
    """Write SIDE.onnx and the assets of its inputs.

    The graph takes any number of items and any length of text (that of its training for SigLIP); images have the
    model's size. The difference is that
    of a component of the vectors, which ONNX Runtime computes on the processor.

    Args:
        model: The model.
        side: "image" or "text".
        samples: Batches to compare with.
        folder: Existing folder to write to.

    Returns:
        The largest difference from the model over all samples.
    """
    import onnxruntime

    branch, batches, path = getattr(model, side), samples.batches[side], folder / f"{side}.onnx"
    names = [name for name in INPUTS if name in batches[-1]]
    example = max(batches, key=lambda batch: len(batch["ids"]))
    axes = {axis: torch.export.Dim(axis, max=65536) for axis in FREE_AXES}
    free = _free_axes(branch)
    dynamic = tuple({index: axes[axis] for index, axis in enumerate(INPUTS[name]) if axis in free} for name in names)
    with _quiet_exporter():
        torch.onnx.export(
            Exportable(branch, names).eval(),
            tuple(example[name] for name in names),
            str(path),
            input_names=names,
            output_names=["vectors"],
            dynamic_shapes=(dynamic,),
            custom_translation_table=_translations(),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    (folder / "assets" / side).mkdir(parents=True)
    branch.input_spec.save(folder / "assets" / side)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def vectors(_: str, batch: Tensors) -> Tensor:
        return torch.from_numpy(session.run(None, {name: batch[name].numpy() for name in names})[0])

    return difference(model, vectors, replace(samples, batches={side: batches}))


def write_description(
    model: Model, record: Record, samples: Samples, differences: dict[str, float], folder: Path
) -> None:
    """Write subtext.json, which describes the inputs and the score, and the model card.

    Args:
        model: The model.
        record: The record of the run.
        samples: The batches that were compared.
        differences: Side -> the largest difference.
        folder: Existing folder to write to.
    """
    similarity = model.similarity
    description = {
        "format": "subtext onnx 1",
        "version": __version__,
        "model": record.model,
        "fingerprint": model_fingerprint(model),
        **{
            side: {"file": f"{side}.onnx", **_inputs(getattr(model, side), samples.batches[side][-1])}
            for side in ("image", "text")
        },
        "vectors": "float32 (items, views, width); a pair's cosine is the largest inner product over its views",
        "score": "scale * cosine + shift",
        "scale": float(torch.as_tensor(getattr(similarity, "scale", 1.0)).detach()),
        "shift": float(torch.as_tensor(getattr(similarity, "shift", 0.0)).detach()),
        "checked": {"on": samples.source, "largest difference": differences},
    }
    (folder / "subtext.json").write_text(json_text(description, indent=2) + "\n", encoding="utf-8")
    before, _, after = model_card(public_record(record)).partition("## Use\n")
    _, _, after = after.partition("## Limits\n")
    (folder / "README.md").write_text(f"{before}## Use\n{_USE}\n## Limits\n{after}", encoding="utf-8")


def _free_axes(branch: Branch) -> tuple[str, ...]:
    """The axes of any size; a model that learnt with texts of one length reads no others."""
    full = isinstance(branch.input_spec, SubwordInput) and branch.input_spec.full_length
    return FREE_AXES[:1] if full else FREE_AXES


def _inputs(branch: Branch, batch: Tensors) -> dict[str, Any]:
    """Types and axes of a side's inputs, and how they are prepared."""
    free = _free_axes(branch)
    inputs = {
        name: {
            "type": str(batch[name].dtype).removeprefix("torch."),
            "axes": [axis if axis in free else int(batch[name].shape[index]) for index, axis in enumerate(axes)],
        }
        for name, axes in INPUTS.items()
        if name in batch
    }
    input_spec = branch.input_spec
    if isinstance(input_spec, PixelInput):
        augmentation = ("flip", "erase", "least_area")
        preparation: dict[str, Any] = {
            "kind": "pixels",
            "how": "RGB in [0, 1], minus mean, over std; crop_share of the short side's middle square if crop",
            **{name: value for name, value in asdict(input_spec).items() if name not in augmentation},
        }
    elif isinstance(input_spec, FeatureInput):
        preparation = {"kind": "features", "how": "precomputed, as for training; mask is true where a region is"}
    else:
        how = "codes of the files in assets/text; mask is true where a token is"
        preparation = {"kind": "words", "how": f"{how}. {text_preparation(input_spec)}".rstrip(". ")}
    return {"inputs": inputs, **preparation}


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without the exporter's warnings and log: the graph is compared with the model afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Exportable(nn.Module):
    """A branch as a function of its tensors, to vectors (N K D).

    Args:
        branch: The branch.
        names: Names of its tensors, in the order of the arguments.
    """

    def __init__(self, branch: Branch, names: list[str]) -> None:
        super().__init__()
        encoder, head = copy.deepcopy(branch.encoder), copy.deepcopy(branch.head)
        self.encoder: nn.Module = MaskedRecurrent(encoder) if isinstance(encoder, Recurrent) else encoder
        head = head.mean if isinstance(head, Gaussian) else head
        self.head: nn.Module = MaskedGpo(head) if isinstance(head, Gpo) else head
        self.names = names

    def forward(self, *tensors: Tensor) -> Tensor:
        """Compute the vectors of a batch.

        Args:
            tensors: In the order of `names`.

        Returns:
            (N K D).
        """
        inputs = dict(zip(self.names, tensors, strict=True))
        embeddings: Embeddings = self.head(self.encoder(inputs), torch.arange(tensors[0].shape[0]))
        return embeddings.vectors


class MaskedRecurrent(nn.Module):
    """`Recurrent` without packed sequences: the backward direction reads each text reversed at its own length.

    Args:
        encoder: The encoder to export.
    """

    def __init__(self, encoder: Recurrent) -> None:
        super().__init__()
        self.inner = encoder

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Encode words.

        Args:
            inputs: "tokens" (N L) and "mask" (N L).

        Returns:
            States or embeddings of words, and pooled vectors.
        """
        inner, mask = self.inner, inputs["mask"]
        words = inner.words(inputs["tokens"])
        lengths = mask.sum(dim=1).clamp_min(1)
        states, final = _gru_layers(inner.rnn, words, lengths)
        pooled = _last(states, lengths) if inner.legacy_last else final
        return Encoded(parts=words if inner.parts_source == "words" else states, mask=mask, pooled=pooled)


class MaskedGpo(nn.Module):
    """`Gpo` without packed sequences; its perceptron also reads absent parts, whose outputs are dropped.

    Args:
        head: The head to export.
    """

    def __init__(self, head: Gpo) -> None:
        super().__init__()
        self.inner = head

    def forward(self, encoded: Encoded, ids: Tensor) -> Embeddings:
        """Pool the parts of each item.

        Args:
            encoded: Parts (N P E) with their mask.
            ids: (N) of the items.

        Returns:
            One vector per item.
        """
        head, parts = self.inner, encoded.parts
        assert parts is not None
        items, longest = parts.shape[:2]
        mask = encoded.mask
        projected = head.project(parts)
        if head.inner is not None:
            hidden = head.norm(head.inner(parts).flatten(0, 1)).unflatten(0, (items, longest))
            projected = projected + head.outer(torch.relu(hidden))
        if mask is None:
            mask = torch.ones(items, longest, dtype=torch.bool)
        lengths = mask.sum(dim=1)
        # Absent parts sort last whatever the others are; then they are set to zero by their index.
        lowest = torch.finfo(projected.dtype).min
        ordered = projected.masked_fill(~mask[:, :, None], lowest).sort(dim=1, descending=True).values
        present = torch.arange(longest)[None, :] < lengths[:, None]
        ordered = torch.where(present[:, :, None], ordered, torch.zeros_like(ordered))
        weights = _rank_weights(head.places, lengths, longest)
        pooled = (weights[:, :, None] * ordered).sum(dim=1)
        return Embeddings(vectors=unit(pooled)[:, None], ids=ids)


def _rank_weights(places: RankWeights, lengths: Tensor, longest: int) -> Tensor:
    """`RankWeights`, computed once per item instead of once per length."""
    angles = sinusoids(longest, places.width).to(places.linear.weight)
    # Copies, not one expanded view: an exported view fixes its length.
    states, _ = _gru_layers(places.gru, angles[None].repeat(lengths.shape[0], 1, 1), lengths.clamp_min(1))
    forward, backward = states.chunk(2, dim=2)
    logits = places.linear((forward + backward) / 2).squeeze(2) / places.temperature
    return masked_softmax(logits, torch.arange(longest)[None, :] < lengths[:, None])


def _gru_layers(rnn: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(N P H) states of every word in the top layer, zero beyond a text's end, and (N H) final ones."""
    position = torch.arange(words.shape[1])[None, :]
    present = position < lengths[:, None]
    reversed_ = torch.where(present, lengths[:, None] - 1 - position, position)
    rows = torch.arange(words.shape[0])[:, None]
    states, final = words, words[:, 0]
    for layer in range(rnn.num_layers):
        forward = _gru_direction(rnn, states, layer, "")
        if not rnn.bidirectional:
            states, final = forward, _last(forward, lengths)
            continue
        backward = _gru_direction(rnn, states[rows, reversed_], layer, "_reverse")
        final = torch.cat([_last(forward, lengths), _last(backward, lengths)], dim=1)
        states = torch.cat([forward, backward[rows, reversed_]], dim=2)
    return states * present[:, :, None].to(states.dtype), final


def _last(states: Tensor, lengths: Tensor) -> Tensor:
    return states[torch.arange(states.shape[0]), lengths - 1]


def _gru_direction(rnn: nn.GRU, words: Tensor, layer: int, suffix: str) -> Tensor:
    """One layer in one direction, by the operator that becomes ONNX's own GRU."""
    weight_ih, weight_hh, bias_ih, bias_hh = (
        _onnx_gates(getattr(rnn, f"{name}_l{layer}{suffix}"))
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    states: Tensor = torch.ops.subtext.gru(
        words.transpose(0, 1), weight_ih, weight_hh, torch.cat([bias_ih, bias_hh]), rnn.hidden_size
    )
    return states.transpose(0, 1)


def _onnx_gates(rows: Tensor) -> Tensor:
    """Gates in ONNX's order (update, reset, new) from PyTorch's (reset, update, new), and back."""
    reset, update, new = rows.chunk(3)
    return torch.cat([update, reset, new])


# A custom operator, because PyTorch's exporter unrolls its GRU into as many steps as the example has words.
@torch.library.custom_op(
    "subtext::gru",
    mutates_args=(),
    schema="(Tensor words, Tensor weight_ih, Tensor weight_hh, Tensor bias, int width) -> Tensor",
)
def _operator(words: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, width: int) -> Tensor:
    weights = [_onnx_gates(rows) for rows in (weight_ih, weight_hh, *bias.chunk(2))]
    start = words.new_zeros(1, words.shape[1], width)
    return torch.gru(words, start, weights, True, 1, 0.0, False, False, False)[0]


_operator.register_fake(lambda words, weight_ih, weight_hh, bias, width: words.new_empty(*words.shape[:2], width))


def _translations() -> dict[Any, Callable[..., Any]]:
    """The ONNX operators that the exporter writes for the operator above."""
    from onnxscript import opset18

    op: Any = opset18

    def gru(words: Any, weight_ih: Any, weight_hh: Any, bias: Any, width: int) -> Any:
        first = op.Constant(value_ints=[0])
        rows = (op.Unsqueeze(value, first) for value in (weight_ih, weight_hh, bias))
        states, _ = op.GRU(words, *rows, hidden_size=width, linear_before_reset=1)
        return op.Squeeze(states, op.Constant(value_ints=[1]))

    return {torch.ops.subtext.gru.default: gru}
