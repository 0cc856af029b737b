"""The text side of an index's model as plain arrays: a search by words needs numpy, and neither torch nor the model.

STORE/query/text_side.json   the model's fingerprint, the settings, shapes of the arrays, checksums of the other files,
                             and the files outside of the index that hold the other arrays (`mapped_weights`)
STORE/query/arrays.npy       the arrays that no such file holds, as one of float32
STORE/query/                 the vocabulary as a run has it, or the tokeniser: tokeniser.json of the package tokenizers,
                             or spiece.model of sentencepiece

It is kept for a bag of words, for BERT, and for the text towers of CLIP and SigLIP, with one vector a text, where its
vectors equal the model's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.text import PieceTokeniser, PlainTokeniser, SubwordInput, WordInput
from subtext.errors import SearchIndexError
from subtext.retrieval.index_files import checksums, file_checksum, inside, mapped
from subtext.retrieval.manifest import Manifest, checksum
from subtext.retrieval.mapped_weights import WeightFile, widened
from subtext.retrieval.stores.errors import IndexIssue
from subtext.text_helpers import listed
from subtext.version import FORMAT

SENTENCE_SIDE = "sentences"
"""Folder of the sentence encoder of an index, beside that of the text side of its model."""
FOLDER, ABOUT, ARRAYS, TOKENISER, PIECES = "query", "text_side.json", "arrays.npy", "tokeniser.json", "spiece.model"
TOLERANCE = 1e-5
"""Largest difference of a number of a vector from the model's."""
HALF_TOLERANCE = 1e-3
"""The same for the cosine, of 1, where the model computes in half precision: its own rounding is larger then."""
_ALONE = 2**18
"""Multiplications up to which OpenBLAS computes a product in one thread. For more it wakes all threads, which wait
actively for each other: on a machine with other work, a query of four words took 143 to 265 ms of processor time, and
14 to 18 in blocks of this size (reproduce/notes/demonstration.md)."""
_LEAST_COLUMNS = 8
"""Of a block: below, the product is worth all threads."""


@dataclass(frozen=True)
class TextSide:
    """Texts to vectors, as the model that made an index does it.

    Args:
        fingerprint: Of the model.
        input_spec: Texts to tokens.
        settings: "encoder": "bag", "bert" or "dual" (the text tower of CLIP or SigLIP), with its "layers", "heads",
            "epsilon" and "activation"; "pooling": "mean", "cls", "last", "highest" (the first of the tokens with the
            highest code) or "end" (the first token of the code "end"); "unit", whether that vector gets unit length;
            "causal"; of the head, "source": "parts" or "pooled", and "normalise".
        arrays: Parameters by their names in the model's text branch: float32, or as `mapped_weights` maps them.
        difference: From the model, when the arrays were written.
        files: Files outside of the index with some of the arrays; the others are kept in the index.
    """

    fingerprint: str
    input_spec: WordInput | SubwordInput
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[np.float32]] = field(repr=False)
    difference: float = 0.0
    files: Sequence[WeightFile] = field(default=(), repr=False)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: N texts.

        Returns:
            (N 1 D) float32 vectors.
        """
        tokens, mask = self.input_spec.codes(texts)
        kind, arrays = self.settings["encoder"], self.arrays
        if kind == "dual":
            vectors = self._dual(tokens)
        else:
            parts = self._rows("encoder.words", tokens) if kind == "bag" else self._states(tokens, mask)
            weight = mask[:, :, None].astype(np.float32)
            vectors = (parts * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
            if self.settings["source"] == "pooled":
                vectors = parts[:, 0] if self.settings["pooling"] == "cls" else vectors
        if self.settings["source"] == "pooled":
            vectors = _unit(vectors) if self.settings["unit"] else vectors
        pooled = vectors
        if "head.project.weight" in arrays:
            vectors = self._linear("head.project", pooled)
        if "head.residual.0.weight" in arrays:
            hidden = np.maximum(self._linear("head.residual.0", pooled), 0)
            vectors = vectors + self._linear("head.residual.2", hidden)
        return (_unit(vectors) if self.settings["normalise"] else vectors)[:, None].astype(np.float32)

    def _rows(self, name: str, rows: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        """Rows of a table of embeddings; of a mapped one, nothing else is read."""
        return widened(self.arrays[f"{name}.weight"][rows])

    def _linear(self, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        weight, flat = widened(self.arrays[f"{name}.weight"]), rows.reshape(-1, rows.shape[-1])
        columns = _ALONE // max(flat.size, 1)
        if columns < _LEAST_COLUMNS:
            product = flat @ weight.T
        else:
            blocks = [flat @ weight[start : start + columns].T for start in range(0, len(weight), columns)]
            product = np.concatenate(blocks, axis=1)
        product = product.reshape(*rows.shape[:-1], len(weight))
        bias = self.arrays.get(f"{name}.bias")
        return product if bias is None else product + widened(bias)

    def _norm(self, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Layer normalisation (Ba and others 2016)."""
        centred = rows - rows.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.settings["epsilon"])
        return centred / scale * widened(self.arrays[f"{name}.weight"]) + widened(self.arrays[f"{name}.bias"])

    def _attended(
        self, states: NDArray[np.float32], names: Sequence[str], hidden: NDArray[np.float32] | np.float32
    ) -> NDArray[np.float32]:
        """Self-attention of several heads (Vaswani and others 2017), before its last map.

        Args:
            states: (N L E).
            names: Maps to queries, keys and values.
            hidden: Added to the logits: -inf where a token is not seen; a shape that fits (N H L L).
        """
        count, length, _ = states.shape
        query, key, value = (
            self._linear(name, states).reshape(count, length, self.settings["heads"], -1).transpose(0, 2, 1, 3)
            for name in names
        )
        logits = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(query.shape[-1])) + hidden
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(0, 2, 1, 3).reshape(count, length, -1)

    def _states(self, tokens: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(N L E) last hidden states of BERT (Devlin and others 2019)."""
        body, wide = "encoder.body", ACTIVATIONS[self.settings["activation"]]
        table = f"{body}.embeddings"
        states = self._rows(f"{table}.word_embeddings", tokens)
        states = states + self._rows(f"{table}.position_embeddings", slice(tokens.shape[1]))
        states = self._norm(f"{table}.LayerNorm", states + self._rows(f"{table}.token_type_embeddings", slice(1)))
        hidden = np.where(mask, np.float32(0), np.float32(-np.inf))[:, None, None, :]
        for number in range(self.settings["layers"]):
            layer = f"{body}.encoder.layer.{number}"
            names = [f"{layer}.attention.self.{name}" for name in ("query", "key", "value")]
            attended = self._linear(f"{layer}.attention.output.dense", self._attended(states, names, hidden))
            states = self._norm(f"{layer}.attention.output.LayerNorm", states + attended)
            inner = wide(self._linear(f"{layer}.intermediate.dense", states))
            states = self._norm(f"{layer}.output.LayerNorm", states + self._linear(f"{layer}.output.dense", inner))
        return states

    def _dual(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N D) vectors of the text tower of CLIP (Radford and others 2021) or SigLIP (Zhai and others 2023).

        No token is masked: CLIP's sees none behind itself, and its padding stands behind the end mark; SigLIP learnt
        with texts at full length.
        """
        body, wide, length = "encoder.body", ACTIVATIONS[self.settings["activation"]], tokens.shape[1]
        states = self._rows(f"{body}.embeddings.token_embedding", tokens)
        states = states + self._rows(f"{body}.embeddings.position_embedding", slice(length))
        later = np.triu(np.full((length, length), -np.inf, dtype=np.float32), k=1)
        hidden = later if self.settings["causal"] else np.float32(0)
        for number in range(self.settings["layers"]):
            layer = f"{body}.encoder.layers.{number}"
            names = [f"{layer}.self_attn.{name}_proj" for name in ("q", "k", "v")]
            attended = self._attended(self._norm(f"{layer}.layer_norm1", states), names, hidden)
            states = states + self._linear(f"{layer}.self_attn.out_proj", attended)
            inner = wide(self._linear(f"{layer}.mlp.fc1", self._norm(f"{layer}.layer_norm2", states)))
            states = states + self._linear(f"{layer}.mlp.fc2", inner)
        pooling = self.settings["pooling"]
        if pooling == "last":
            places = np.full(len(tokens), length - 1)
        else:
            places = (tokens if pooling == "highest" else tokens == self.settings["end"]).argmax(axis=1)
        vectors = self._norm(f"{body}.final_layer_norm", states[np.arange(len(tokens)), places])
        for name in (f"{body}.head", "encoder.projection"):
            vectors = self._linear(name, vectors) if f"{name}.weight" in self.arrays else vectors
        return vectors

    def save(self, folder: Path) -> None:
        """Write the files into a folder.

        Args:
            folder: An empty folder.
        """
        spec, tokeniser = self.input_spec, {}
        if isinstance(spec, WordInput):
            spec.save(folder)
        elif isinstance(spec.tokeniser, PieceTokeniser):
            (folder / PIECES).write_bytes(spec.tokeniser.model)
            tokeniser = {**spec.settings, **spec.tokeniser.settings}
        else:
            (folder / TOKENISER).write_text(spec.tokeniser.rules, encoding="utf-8")
            tokeniser = {**spec.settings, "pad_token_id": spec.tokeniser.pad_token_id}
        elsewhere = {name for file in self.files for name in file.tensors}
        own = {name: array for name, array in self.arrays.items() if name not in elsewhere}
        arrays = [np.ascontiguousarray(array, dtype=np.float32).ravel() for array in own.values()]
        np.save(folder / ARRAYS, np.concatenate([np.zeros(0, dtype=np.float32), *arrays]), allow_pickle=False)
        about = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "settings": dict(self.settings),
            "tokeniser": tokeniser,
            "shapes": {name: list(array.shape) for name, array in own.items()},
            "weights": [file.to_json() for file in self.files],
            "difference": self.difference,
            "files": checksums(folder),
        }
        text = json.dumps({**about, "checksum": checksum(about)}, indent=1)
        (folder / ABOUT).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def open(folder: Path, fingerprint: str) -> TextSide:
        """Open a text side that `save` wrote, with its arrays mapped.

        Args:
            folder: The folder of the text side.
            fingerprint: Of the model that made the index.

        Returns:
            The text side.

        Raises:
            SearchIndexError: For the arrays of another model, and for files that are missing, damaged or links.
            MissingWeightsError: Where files outside of the index are not there, or are others.
        """
        about = read_about(folder, fingerprint)
        for name, digest in about["files"].items():
            if name != ARRAYS and file_checksum(folder / name) != digest:  # They are large: `verify` reads them.
                raise SearchIndexError(f"{folder / name} is damaged: its checksum is another; {_advice(folder)}")
        ends = np.cumsum([0, *map(prod, about["shapes"].values())]).tolist()
        flat = np.asarray(mapped(folder / ARRAYS, np.dtype(np.float32), (ends[-1],)))
        shapes = zip(about["shapes"].items(), pairwise(ends), strict=True)
        arrays = {name: flat[start:end].reshape(shape) for (name, shape), (start, end) in shapes}
        files = [WeightFile.from_json(file) for file in about["weights"]]
        for file in files:
            arrays |= file.arrays()
        return TextSide(fingerprint, _input(folder, about), about["settings"], arrays, about["difference"], files)


def _input(folder: Path, about: Mapping[str, Any]) -> WordInput | SubwordInput:
    """How texts become tokens, as `TextSide.save` wrote it."""
    settings = dict(about["tokeniser"])
    if not settings:
        return WordInput.load(folder)
    tokeniser: PieceTokeniser | PlainTokeniser
    if PIECES in about["files"]:
        own = {name: settings.pop(name) for name in PieceTokeniser.SETTINGS}
        tokeniser = PieceTokeniser((folder / PIECES).read_bytes(), **own)
    else:
        tokeniser = PlainTokeniser((folder / TOKENISER).read_text(encoding="utf-8"), settings.pop("pad_token_id"))
    return SubwordInput(tokeniser, **settings)


def read_about(folder: Path, fingerprint: str) -> dict[str, Any]:
    """The description of a text side.

    Args:
        folder: The folder of the text side.
        fingerprint: Of the model that made the index.

    Returns:
        Format, settings, shapes, and checksums of the files.

    Raises:
        SearchIndexError: As `TextSide.open`.
    """
    advice = _advice(folder)
    try:
        names = {inside(folder, file.name).name for file in inside(folder.parent, folder.name).iterdir()} - {ABOUT}
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise SearchIndexError(f"{folder} needs {ABOUT}, as JSON; {problem}; {advice}") from problem
    if not isinstance(about, dict) or about.pop("checksum", None) != checksum(about) or about.get("format") != FORMAT:
        raise SearchIndexError(f"{folder / ABOUT} needs format {FORMAT} and its own checksum; it is damaged; {advice}")
    if about["fingerprint"] != fingerprint:
        raise SearchIndexError(
            f"{folder} needs to be of the model that made the index ({fingerprint[:12]}); it is of another "
            f"({about['fingerprint'][:12]}); {advice}"
        )
    if different := names.symmetric_difference(about["files"]):
        raise SearchIndexError(
            f"{folder} needs the files that {ABOUT} names; {listed(sorted(different))} differ; {advice}"
        )
    return about


def text_side_problems(folder: Path, manifest: Manifest) -> Iterator[IndexIssue]:
    """Damage of the text side of an index, where there is one. Reads every byte of its files.

    Args:
        folder: The folder of the text side; nothing is checked if there is none.
        manifest: Describes the index: model, width and views of the vectors, root of the paths.

    Returns:
        The damage.
    """
    if folder.exists():
        where = f"{folder.parent.name}/{folder.name}"
        try:
            for name, digest in text_side_sums(folder, manifest.fingerprint).items():
                if file_checksum(folder / name) != digest:
                    yield IndexIssue(f"{where}/{name}", "changed or damaged: its checksum is another")
            for file in read_about(folder, manifest.fingerprint)["weights"]:
                WeightFile.from_json(file).arrays(all_bytes=True)
        except SearchIndexError as problem:
            yield IndexIssue(where, str(problem))


def text_side_sums(folder: Path, fingerprint: str) -> dict[str, str]:
    """File -> its checksum when a text side was written.

    Args:
        folder: The folder of the text side.
        fingerprint: Of the model that made the index.

    Returns:
        File name -> checksum.

    Raises:
        SearchIndexError: As `TextSide.open`.
    """
    return {**read_about(folder, fingerprint)["files"], ABOUT: file_checksum(folder / ABOUT)}


def _advice(folder: Path) -> str:
    return f"remove {folder}, and a search opens the model; `subtext index update` writes it again"


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def _gelu(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """X (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel 2016); erf to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26)."""
    size = np.abs(values) / np.float32(np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * size)
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = np.zeros_like(t)
    for factor in factors:
        total = (total + np.float32(factor)) * t
    erf = 1 - total * np.exp(-(size**2))
    return (values * (1 + np.sign(values) * erf) / 2).astype(np.float32, copy=False)


def _quick_gelu(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """X sigmoid(1.702 x), as CLIP has it."""
    return values * (np.float32(0.5) + np.tanh(values * np.float32(0.851)) / 2)


def _tanh_gelu(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """X (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, as SigLIP has it."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (values + np.float32(0.044715) * values**3)
    return (values * (1 + np.tanh(inner)) / 2).astype(np.float32, copy=False)


ACTIVATIONS = {
    "gelu": _gelu,
    "quick_gelu": _quick_gelu,
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": lambda values: np.maximum(values, 0),
}
"""Activations by their names in a model's configuration."""
