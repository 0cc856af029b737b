"""How a model reads what is asked for: words, pictures, and names that stand for precomputed features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.text import WordInput, tokenise
from subtext.data.vocabulary import UNKNOWN
from subtext.errors import DataError, RequirementError
from subtext.models.model import Model


@dataclass(frozen=True)
class Reader:
    """Reads questions for a model.

    root  folder that the paths of an index's pictures start from
    """

    model: Model
    root: Path

    def words(self, text: str) -> dict[str, bool] | None:
        """Each word of a text, and whether the model knows it; None for a model that reads pieces of words.

        An answer to words of which none is known means nothing, however large its scores.
        """
        input_spec = self.model.text.input_spec
        if not isinstance(input_spec, WordInput):
            return None
        words = tokenise(text)[: input_spec.max_tokens - 2]
        codes = input_spec.vocabulary.encode(words)
        return {word: code != UNKNOWN for word, code in zip(words, codes, strict=True)}

    def named(self, image: Any) -> str | None:
        """The name by which features stand for a picture's file: its path as given, as the index has it, or file name.

        None where the model reads the picture itself, or its file of features has no such name.
        """
        input_spec = self.model.image.input_spec
        if not isinstance(input_spec, FeatureInput) or input_spec.file is None or not isinstance(image, str | Path):
            return None
        path = Path(image).expanduser().resolve()
        inside = [path.relative_to(self.root).as_posix()] if path.is_relative_to(self.root) else []
        return input_spec.file.name_of(str(image), *inside)

    def text(self, text: str) -> Embeddings:
        """Words as the model places them. Raises DataError for none, RequirementError where it reads no words."""
        if not text.strip():
            raise DataError("a search needs words; the text is empty")
        input_spec = self.model.text.input_spec
        if isinstance(input_spec, FeatureInput) and (input_spec.file is None or input_spec.file.name_of(text) is None):
            raise RequirementError(
                "this model reads precomputed text features, not words: it needs a text that its file names; it got "
                f"{text[:60]!r}; search with a picture, or embed features of the words and ask `Engine.near`"
            )
        return self.model.embed_texts([text])

    def image(self, image: Any) -> Embeddings:
        """A picture, or what stands for it, as the model places it. Raises what reading it raises."""
        input_spec = self.model.image.input_spec
        if isinstance(input_spec, FeatureInput) and not isinstance(image, np.ndarray | Mapping):
            image = self._features(input_spec, image)
        # Handed on as it is: a JPEG that the index decoded at a smaller scale has to be decoded so again.
        return self.model.embed_images([image])

    def _features(self, input_spec: FeatureInput, image: Any) -> Any:
        """What stands for a picture where its pixels are not read: a name to be looked up, or arrays."""
        name = self.named(image)
        if name is not None:
            return name
        if isinstance(image, str | Path) and Path(image).suffix in (".npy", ".npz"):
            return input_spec.of_file(Path(image).expanduser())
        got = str(image) if isinstance(image, str | Path) else f"a value of type {type(image).__name__}"
        file = "a file of features (there is none)" if input_spec.file is None else str(input_spec.file.path)
        raise RequirementError(
            f"this model reads precomputed picture features, not pictures: it needs a picture that {file} names, or an "
            f".npy or .npz with the features of one picture; it got {got}; compute them as those that the model was "
            "trained on, or search with words"
        )
