"""Making the text side of an index: the text branch of its model as plain arrays, compared with the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from subtext.data.atomic import write_folder
from subtext.data.starter import NAME as STARTER, STARTER as PACKAGES, starter_weights
from subtext.data.text import PieceTokeniser, PlainTokeniser, SubwordInput, WordInput
from subtext.errors import CheckpointError, SearchIndexError
from subtext.models.checkpoint import load_record
from subtext.models.encoders.words import Bag
from subtext.models.heads.mean import Mean, Passthrough
from subtext.models.model import Branch, Model
from subtext.ops import draw
from subtext.ops.numerics import unit
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.mapped_weights import find_weights
from subtext.retrieval.stores.store import Writer
from subtext.retrieval.text_side import ACTIVATIONS, HALF_TOLERANCE, TOLERANCE, TextSide

CHECKED = 16
"""Texts of an index by which the arrays of a text side are compared with its model."""
_FORMER_END = 2
"""Code of the end mark in configurations of CLIP that name another one than its tokeniser has."""
PROBES = ("a", "Zoë's dogs: 3.5 km, 北京 🚣🏽 -- xyzzy?", "the quick brown fox jumps over the lazy dog " * 64)
"""Texts that are compared as well: short, strange, and longer than a model takes."""


def keep_text_side(writer: Writer, model: Model, texts: Sequence[object]) -> str:
    """Keep the text side of an index's model in the index, so that a search by words opens no model.

    Pretrained weights that lie in a folder or in an installed package are named, and not copied.

    Args:
        writer: Of the index; a store that has no folder keeps none.
        model: The model that made the index.
        texts: Of the index: some of them are embedded by the arrays and by the model, and have to be equal to
            `TOLERANCE`, or `HALF_TOLERANCE`.

    Returns:
        Why there is none; "" where it is kept, has been before, or the store keeps none.
    """
    folder = writer.text_side
    return "" if folder is None else keep_arrays(folder, writer.manifest, model, texts)


def keep_arrays(folder: Path, manifest: Manifest, model: Model, texts: Sequence[object]) -> str:
    """Keep the text side of a model in a folder.

    Args:
        folder: Of the text side, which may not be there yet.
        manifest: Names the model: its fingerprint, and its run or pretrained model.
        model: The model.
        texts: See `keep_text_side`.

    Returns:
        Why there is none; "" where it is kept, or has been before.
    """
    try:
        TextSide.open(folder, manifest.fingerprint)
        return ""
    except SearchIndexError:
        pass  # Not there yet, or of no use.
    side = _text_side(model.text, manifest.fingerprint)
    if isinstance(side, str):
        return side
    number = sum(isinstance(text, str) and bool(text.strip()) for text in texts)
    rows = draw.permutation(number, seed=0, epoch=0, purpose="text side: texts that are compared")[:CHECKED].tolist()
    strings = enumerate(text for text in texts if isinstance(text, str) and text.strip())
    chosen = {row: text for row, text in strings if row in rows}
    sample = [*PROBES, *(chosen[row] for row in rows)]
    # One by one, as a query comes: together, all would be as long as the longest one, with 300 MB of arrays.
    expected = model.embed_texts(sample, batch_size=1).vectors
    got = np.concatenate([side([text]) for text in sample])
    difference, most = float(np.abs(got - expected.float().numpy()).max()), TOLERANCE
    if expected.element_size() < 4:
        cosines = (got * unit(expected.float()).numpy()).sum(axis=-1)
        difference, most = float(1 - cosines.min()), HALF_TOLERANCE
    if not difference <= most:
        return f"plain arrays give vectors that differ from the model's by {difference:.1e}, more than {most:.0e}"
    files = find_weights(side.arrays, _weight_files(model, manifest))
    side = replace(side, difference=difference, files=files)
    # Other writers, which a store may have at the same time, write the same.
    write_folder(folder, side.save, existing="replace" if folder.exists() else "keep")
    return ""


def _weight_files(model: Model, manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Files that may hold weights as they were before any training, each with the package that it comes from, or ""."""
    from subtext.models.encoders.dual import module_folder

    pretrained, names = manifest.pretrained.get("name", ""), list[str]()
    if pretrained == STARTER or bool(getattr(model.text.encoder, "installed", None)):
        unpacked = starter_weights()
        if unpacked is not None:
            yield unpacked, PACKAGES["text"].package
    elif manifest.run:
        with suppress(CheckpointError):
            arguments = load_record(Path(manifest.run)).arguments
            names = [str(arguments[name]) for name in ("model", "text") if arguments.get(name)]
    else:
        names = [pretrained]
    for name in filter(None, names):
        folder = Path(module_folder(name))
        if not folder.is_dir():
            try:
                cached = try_to_load_from_cache(
                    name, "config.json", revision=manifest.pretrained.get("revision") or None
                )
            except HFValidationError:
                continue  # A short name, or a folder that has gone.
            if not isinstance(cached, str):
                continue
            folder = Path(cached).parent
        yield from ((file.absolute(), "") for file in sorted(folder.glob("*.safetensors")))


def _text_side(branch: Branch, fingerprint: str) -> TextSide | str:
    """The text branch of a model as plain arrays, or why they cannot be made."""
    spec, encoder, head = branch.input_spec, branch.encoder, branch.head
    settings: dict[str, Any] | None = None
    plain: WordInput | SubwordInput | None = None
    if isinstance(spec, WordInput) and isinstance(encoder, Bag):
        plain, settings = spec, {"encoder": "bag", "pooling": "mean", "unit": False}
    elif isinstance(spec, SubwordInput):
        tokeniser = _plain_tokeniser(spec.tokeniser)
        plain = None if tokeniser is None else replace(spec, tokeniser=tokeniser, token_mask=0.0)
        settings = _tower_settings(encoder, getattr(head, "source", "pooled"))
    if plain is None or settings is None or not isinstance(head, Mean | Passthrough):
        names = f"{type(encoder).__name__}, {type(head).__name__}"
        return f"only texts read by a bag of words, BERT, CLIP or SigLIP need none (here: {names})"
    settings |= {"source": getattr(head, "source", "pooled"), "normalise": getattr(head, "normalise", True)}
    tensors = {name: tensor for name, tensor in branch.state_dict().items() if tensor.is_floating_point()}
    arrays = {name: tensor.detach().float().cpu().numpy() for name, tensor in tensors.items()}
    return TextSide(fingerprint, plain, settings, arrays)


def _plain_tokeniser(tokeniser: Any) -> PlainTokeniser | PieceTokeniser | None:
    """A tokeniser of transformers without transformers; None for one of another kind."""
    rules, pad = getattr(tokeniser, "backend_tokenizer", None), tokeniser.pad_token_id or 0
    if rules is not None:
        return PlainTokeniser(rules.to_str(), pad)
    if type(tokeniser).__name__ == "SiglipTokenizer":
        model = tokeniser.sp_model.serialized_model_proto()
        marks = {str(token): int(code) for token, code in tokeniser.added_tokens_encoder.items()}
        return PieceTokeniser(model, tokeniser.unk_token, tokeniser.eos_token, pad, tokeniser.do_lower_case, marks)
    return None


def _tower_settings(encoder: Any, source: str) -> dict[str, Any] | None:
    """Settings of the text side of a transformer: BERT, or the text tower of CLIP or SigLIP; None for another."""
    from transformers import BertModel

    from subtext.models.encoders.dual import SingleTower
    from subtext.models.encoders.language import Language

    config = getattr(getattr(encoder, "body", None), "config", None)
    if config is None or getattr(config, "hidden_act", None) not in ACTIVATIONS:
        return None
    settings = {
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "epsilon": config.layer_norm_eps,
        "activation": config.hidden_act,
    }
    if isinstance(encoder, Language) and type(encoder.body) is BertModel:
        return {**settings, "encoder": "bert", "pooling": encoder.pooling, "unit": encoder.normalise}
    names = {name for name, _ in encoder.named_parameters()}
    towers = {"encoder.layers.0.self_attn.q_proj.weight", "embeddings.token_embedding.weight"}
    if not isinstance(encoder, SingleTower) or source != "pooled" or not {f"body.{name}" for name in towers} <= names:
        return None
    pooling = "last" if encoder.full_length else "highest" if config.eos_token_id == _FORMER_END else "end"
    causal = not encoder.full_length
    return {
        **settings,
        "encoder": "dual",
        "pooling": pooling,
        "end": config.eos_token_id,
        "causal": causal,
        "unit": False,
    }
