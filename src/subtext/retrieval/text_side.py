"""The text side of an index's model as plain arrays: a search by words needs numpy, and neither torch nor the model.

STORE/query/text_side.json   the model's fingerprint, the settings, shapes of the arrays, checksums of the other files
STORE/query/arrays.npy       all arrays as one of float32
STORE/query/                 the vocabulary as a run has it, or tokeniser.json of the package tokenizers

It is kept for a bag of words and for BERT with one vector a text, where its vectors equal the model's.
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

from subtext.data.text import PlainTokeniser, SubwordInput, WordInput
from subtext.errors import SearchIndexError
from subtext.retrieval.index_files import checksums, file_checksum, inside, mapped
from subtext.retrieval.manifest import Manifest, checksum
from subtext.retrieval.stores.errors import IndexIssue
from subtext.text_helpers import listed
from subtext.version import FORMAT

SENTENCE_SIDE = "sentences"
"""Folder of the sentence encoder of an index, beside that of the text side of its model."""
FOLDER, ABOUT, ARRAYS, TOKENISER = "query", "text_side.json", "arrays.npy", "tokeniser.json"
TOLERANCE = 1e-5
"""Largest difference of a number of a vector from the model's."""
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
        settings: "encoder": "bag" or "bert", with its "heads", "epsilon", "pooling" and "unit"; of the head, "source":
            "parts" or "pooled", and "normalise".
        arrays: Parameters by their names in the model's text branch, float32.
        difference: From the model, when the arrays were written.
    """

    fingerprint: str
    input_spec: WordInput | SubwordInput
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[np.float32]] = field(repr=False)
    difference: float = 0.0

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: N texts.

        Returns:
            (N 1 D) float32 vectors.
        """
        tokens, mask = self.input_spec.codes(texts)
        is_bag, arrays = self.settings["encoder"] == "bag", self.arrays
        parts = arrays["encoder.words.weight"][tokens] if is_bag else self._states(tokens, mask)
        weight = mask[:, :, None].astype(np.float32)
        vectors = (parts * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
        if self.settings["source"] == "pooled":
            vectors = parts[:, 0] if self.settings["pooling"] == "cls" else vectors
            vectors = _unit(vectors) if self.settings["unit"] else vectors
        pooled = vectors
        if "head.project.weight" in arrays:
            vectors = self._linear("head.project", pooled)
        if "head.residual.0.weight" in arrays:
            hidden = np.maximum(self._linear("head.residual.0", pooled), 0)
            vectors = vectors + self._linear("head.residual.2", hidden)
        return (_unit(vectors) if self.settings["normalise"] else vectors)[:, None].astype(np.float32)

    def _linear(self, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        weight, flat = self.arrays[f"{name}.weight"], rows.reshape(-1, rows.shape[-1])
        columns = _ALONE // max(flat.size, 1)
        if columns < _LEAST_COLUMNS:
            product = flat @ weight.T
        else:
            blocks = [flat @ weight[start : start + columns].T for start in range(0, len(weight), columns)]
            product = np.concatenate(blocks, axis=1)
        return product.reshape(*rows.shape[:-1], len(weight)) + self.arrays[f"{name}.bias"]

    def _norm(self, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Layer normalisation (Ba and others 2016)."""
        centred = rows - rows.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.settings["epsilon"])
        return centred / scale * self.arrays[f"{name}.weight"] + self.arrays[f"{name}.bias"]

    def _states(self, tokens: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(N L E) last hidden states of BERT (Devlin and others 2019)."""
        count, length = tokens.shape
        heads, arrays, body = self.settings["heads"], self.arrays, "encoder.body"
        table = f"{body}.embeddings"
        states = arrays[f"{table}.word_embeddings.weight"][tokens]
        states = states + arrays[f"{table}.position_embeddings.weight"][:length]
        states = self._norm(f"{table}.LayerNorm", states + arrays[f"{table}.token_type_embeddings.weight"][0])
        hidden = np.where(mask, np.float32(0), np.float32(-np.inf))[:, None, None, :]
        for number in range(self.settings["layers"]):
            layer = f"{body}.encoder.layer.{number}"
            query, key, value = (
                self._linear(f"{layer}.attention.self.{name}", states)
                .reshape(count, length, heads, -1)
                .transpose(0, 2, 1, 3)
                for name in ("query", "key", "value")
            )
            logits = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(query.shape[-1])) + hidden
            shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
            shares /= shares.sum(axis=-1, keepdims=True)
            attended = (shares @ value).transpose(0, 2, 1, 3).reshape(count, length, -1)
            attended = self._linear(f"{layer}.attention.output.dense", attended)
            states = self._norm(f"{layer}.attention.output.LayerNorm", states + attended)
            wide = _gelu(self._linear(f"{layer}.intermediate.dense", states))
            states = self._norm(f"{layer}.output.LayerNorm", states + self._linear(f"{layer}.output.dense", wide))
        return states

    def save(self, folder: Path) -> None:
        """Write the files into a folder.

        Args:
            folder: An empty folder.
        """
        spec, tokeniser = self.input_spec, {}
        if isinstance(spec, WordInput):
            spec.save(folder)
        else:
            (folder / TOKENISER).write_text(spec.tokeniser.rules, encoding="utf-8")
            tokeniser = {**spec.settings, "pad": spec.tokeniser.pad_token_id}
        arrays = [np.ascontiguousarray(array, dtype=np.float32).ravel() for array in self.arrays.values()]
        np.save(folder / ARRAYS, np.concatenate(arrays), allow_pickle=False)
        about = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "settings": dict(self.settings),
            "tokeniser": tokeniser,
            "shapes": {name: list(array.shape) for name, array in self.arrays.items()},
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
        """
        about = read_about(folder, fingerprint)
        for name, digest in about["files"].items():
            if name != ARRAYS and file_checksum(folder / name) != digest:  # They are large: `verify` reads them.
                raise SearchIndexError(f"{folder / name} is damaged: its checksum is another; {_advice(folder)}")
        ends = np.cumsum([0, *map(prod, about["shapes"].values())]).tolist()
        flat = np.asarray(mapped(folder / ARRAYS, np.dtype(np.float32), (ends[-1],)))
        shapes = zip(about["shapes"].items(), pairwise(ends), strict=True)
        arrays = {name: flat[start:end].reshape(shape) for (name, shape), (start, end) in shapes}
        spec: WordInput | SubwordInput
        if about["tokeniser"]:
            settings = dict(about["tokeniser"])
            rules = (folder / TOKENISER).read_text(encoding="utf-8")
            spec = SubwordInput(PlainTokeniser(rules, settings.pop("pad")), **settings)
        else:
            spec = WordInput.load(folder)
        return TextSide(fingerprint, spec, about["settings"], arrays, about["difference"])


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
