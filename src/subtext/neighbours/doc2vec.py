"""Doc2Vec (Le and Mikolov 2014), as Thomas and Kovashka 2020 (section 3.1) place texts with it.

A text as Doc2Vec reads it (Thomas and Kovashka 2020, by their code): few, plain, long words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.prepare import first_sentences
from subtext.errors import DataError, RequirementError
from subtext.neighbours.spaces import Distance, Places, Progress, words_of

_TAG = re.compile(r"<[^>]+>")
_GAP = re.compile(r"[!-/:-@\[-`{-~\s]+")
SHORTEST = 3
"""Letters of the shortest word that is kept."""


def doc2vec_words(text: str, *, sentences: int | None = None) -> list[str]:
    """Lower-case words without tags, punctuation and gensim's 337 stop-words, of three letters or more.

    Characters beyond ASCII become "?", as in the authors' code, and so part a word: this reading is for English.
    Letters and digits that touch stay together ("25bn"), as in the authors' output.

    sentences  only the first so many are read (two for Politics); None for the whole text

    Raises RequirementError where gensim is not installed.

    >>> " ".join(doc2vec_words("The <b>Border-wall</b> plan is a 5-year, $25bn idea; it isn't cheap!"))
    'border wall plan year 25bn idea isn cheap'
    """
    stopped = _stop_words()
    if sentences is not None:
        text = first_sentences(text, sentences)
    plain = text.encode("ascii", "replace").decode("ascii").lower()
    return [word for word in _GAP.split(_TAG.sub("", plain)) if len(word) >= SHORTEST and word not in stopped]


def _stop_words() -> frozenset[str]:
    try:
        from gensim.parsing.preprocessing import STOPWORDS
    except ImportError as problem:
        raise RequirementError(
            "the space doc2vec needs gensim, which is not installed; pip install 'subtext[neighbours]', or use the "
            "space lsa"
        ) from problem
    words: frozenset[str] = STOPWORDS
    return words


MANY = 200_000
"""Texts from which on the paper's 20 epochs are enough; the authors' code takes 50 for smaller sets."""


@dataclass(frozen=True)
class Doc2Vec:
    """Distributed memory over the texts that may be learnt from; every text is placed by inference, these too.

    width      D, the paper's 200          window    words to either side, the paper's 20
    min_count  occurrences below which a word is left out, the paper's 20; set it low for a small set
    epochs     of training, and of inference for each text; None: 20 from 200,000 texts on, else 50
    output     "hs": a hierarchical softmax, as in the paper; "ns": 5 negative samples, as in the authors' code
    sentences  how many are read of each text, from its start; None for all (two for Politics in the paper)
    seed       of the weights and of inference
    workers    more than one is faster, and gives other places at every run

    A text without a known word is not placed. The place of a text depends on its words alone, not on its neighbours in
    the file. Distances are L2 on the vectors as they are.

    Raises RequirementError where gensim is missing, DataError where no word comes `min_count` times.
    """

    width: int = 200
    window: int = 20
    min_count: int = 20
    epochs: int | None = None
    output: Literal["hs", "ns"] = "hs"
    sentences: int | None = None
    seed: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "window", "min_count", "workers"):
            if getattr(self, name) < 1:
                raise RequirementError(f"Doc2Vec needs {name} of 1 or more; it got {getattr(self, name)}")

    @property
    def distance(self) -> Distance:
        """L2 on raw vectors, as in the authors' code."""
        return "l2"

    def settings(self) -> Mapping[str, Any]:
        """Everything that the places depend on."""
        return {"name": "doc2vec", **asdict(self)}

    def __call__(self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: Progress | None = None) -> Places:
        """The places of all texts, learnt from those that `learn` marks."""
        documents = [doc2vec_words(text, sentences=self.sentences) for text in words_of(pairs.texts)]
        model = self._trained([documents[row] for row in np.flatnonzero(learn)])
        vectors = np.zeros((len(documents), self.width), dtype=np.float32)
        has_vector = np.zeros(len(documents), dtype=bool)
        placed: dict[tuple[str, ...], NDArray[np.float32]] = {}
        for row, document in enumerate(documents):
            words = tuple(word for word in document if word in model.wv.key_to_index)
            if words:
                if words not in placed:
                    # Inference draws from this generator: set anew, a text's place is a function of its words.
                    model.random.seed(self.seed)
                    placed[words] = model.infer_vector(list(words))
                vectors[row], has_vector[row] = placed[words], True
            if progress is not None:
                progress(row + 1)
        return Places(vectors, has_vector)

    def _trained(self, documents: list[list[str]]) -> Any:
        from gensim.models.doc2vec import Doc2Vec as Model
        from gensim.models.doc2vec import TaggedDocument

        hierarchical = self.output == "hs"
        model = Model(
            vector_size=self.width,
            window=self.window,
            min_count=self.min_count,
            epochs=self.epochs or (20 if len(documents) >= MANY else 50),
            dm=1,
            hs=int(hierarchical),
            negative=0 if hierarchical else 5,
            seed=self.seed,
            workers=self.workers,
        )
        tagged = [TaggedDocument(document, [row]) for row, document in enumerate(documents)]
        model.build_vocab(tagged)
        if not len(model.wv):
            raise DataError(
                f"Doc2Vec needs words that come {self.min_count} times; {len(documents):,} texts have none; lower "
                "min_count, or use the space lsa"
            )
        model.train(tagged, total_examples=model.corpus_count, epochs=model.epochs)
        return model
