"""Spaces: vectors of the texts of a data set, fitted on some of them, in which similar texts are close.

Features that another program computed (of the images, "Img NNs", or of the texts), sentence encoders of `transformers`,
latent semantic analysis (Deerwester and others 1990), and Doc2Vec (Le and Mikolov 2014) as Thomas and Kovashka 2020
(section 3.1) use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array

from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureFile
from subtext.data.prepare import first_sentences
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError, Setting
from subtext.graphs.graph import image_of_text
from subtext.ops import draw
from subtext.text_helpers import install_hint

if TYPE_CHECKING:
    from subtext.models.encoders.language import SentenceEncoder

DistanceName = Literal["l2", "cosine"]
TextProgress = Callable[[int], None]
"""Called with the number of finished texts."""


@dataclass(frozen=True)
class TextVectors:
    """Vectors of the texts of a data set.

    Attributes:
        vectors: (N D) float32, finite.
        known: (N) bool; False for a text without a vector (it has none of the words that the space knows): it gets no
            neighbours and is no neighbour.
    """

    vectors: Float[np.ndarray, "n d"]
    known: Bool[np.ndarray, "n"]


@runtime_checkable
class Space(Protocol):
    """Maps texts to vectors, fitted on some of them."""

    @property
    def distance(self) -> DistanceName:
        """Its default distance."""

    def settings(self) -> Mapping[str, Any]:
        """The name of the space, and everything that its vectors depend on.

        Returns:
            "name" and settings, as JSON values.
        """

    def __call__(
        self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: TextProgress | None = None
    ) -> TextVectors:
        """Vectors of all texts of a data set.

        Args:
            pairs: The data set of N texts.
            learn: (N) bool, texts that the space may be fitted to.
            progress: Called with the number of finished texts.

        Returns:
            The vectors.
        """


def words_of(texts: Items) -> list[str]:
    """The texts as strings.

    Args:
        texts: Of a data set.

    Returns:
        One string per text.

    Raises:
        DataError: If a text has features instead of words.
    """
    words = [value for value in texts.values if isinstance(value, str)]
    if len(words) < len(texts):
        name = next(n for n, value in zip(texts.ids, texts.values, strict=True) if not isinstance(value, str))
        raise DataError(
            f"this space needs words for every text; '{name}' has none; use a space of features (features:FILE)"
        )
    return words


def unit_rows(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Scale rows to length 1; a row of zeros stays one.

    Args:
        vectors: (N D).

    Returns:
        (N D) float32.
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


@dataclass(frozen=True)
class FeatureSpace:
    """Rows of a file of features, joined by name; a grid is averaged over its cells.

    Distances are L2 on the features as they are.

    Args:
        file: The features.
        of: "images": each text has the vector of its image, so that neighbours are images that look alike, and their
            texts with them (the "Img NNs" of Thomas and Kovashka 2020, Table 2); "texts": the file names texts.

    Raises:
        DataError: If an item has no row, or a text has no image.
    """

    file: FeatureFile
    of: Literal["images", "texts"] = "images"

    distance: ClassVar[DistanceName] = "l2"

    def settings(self) -> Mapping[str, Any]:
        """The name of the space, and everything that its vectors depend on.

        Returns:
            "name" and settings, as JSON values.
        """
        return {"name": "features", "of": self.of, "features": self.file.fingerprint}

    def __call__(
        self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: TextProgress | None = None
    ) -> TextVectors:
        """Vectors of all texts; nothing is fitted.

        Args:
            pairs: The data set of N texts.
            learn: Not read.
            progress: Called with the number of finished texts.

        Returns:
            The vectors.

        Raises:
            DataError: If an item has no row, or a text has no image.
        """
        items = pairs.images if self.of == "images" else pairs.texts
        rows = self.file.rows(items.ids, items.values)
        name = "pooled" if self.file.pooled is not None else "grid"
        taken = self.file.take(name, rows)
        vectors = taken if taken.ndim == 2 else taken.mean(axis=1, dtype=np.float32)
        if self.of == "images":
            image_rows = image_of_text(pairs)
            if (image_rows < 0).any():
                missing = pairs.texts.ids[int(np.flatnonzero(image_rows < 0)[0])]
                raise DataError(f"features of images need an image for every text; {missing!r} has none")
            vectors = vectors[image_rows]
        if progress is not None:
            progress(len(vectors))
        return TextVectors(vectors, np.ones(len(vectors), dtype=bool))


@dataclass(frozen=True)
class SentenceSpace:
    """The vectors of a sentence encoder as unit rows, with cosine distances.

    Args:
        encoder: Texts -> vectors.

    Raises:
        RequirementError: If the model or its tokeniser cannot be read.
    """

    encoder: SentenceEncoder

    distance: ClassVar[DistanceName] = "cosine"

    def settings(self) -> Mapping[str, Any]:
        """The name of the space, and everything that its vectors depend on.

        Returns:
            "name" and settings, as JSON values.
        """
        return {"name": "sentence"} | {name: getattr(self.encoder, name) for name in ("model", "pooling", "max_tokens")}

    def __call__(
        self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: TextProgress | None = None
    ) -> TextVectors:
        """Vectors of all texts; nothing is fitted.

        Args:
            pairs: The data set of N texts.
            learn: Not read.
            progress: Called with the number of finished texts.

        Returns:
            The vectors, of unit length.
        """
        return TextVectors(
            unit_rows(self.encoder(words_of(pairs.texts), progress)), np.ones(len(pairs.texts), dtype=bool)
        )


def tfidf(texts: Sequence[str], learn: Bool[np.ndarray, "n"]) -> csr_array:
    """Term count times inverse document frequency of each text, as unit rows; words are those of the texts to fit.

        tf * (ln((1 + T) / (1 + df)) + 1)        T texts to learn from, df of them have the word

    A text of unknown words alone is a row of nothing.

    Args:
        texts: N texts.
        learn: (N) bool, texts to fit.

    Returns:
        (N V) float32, sparse.

    Raises:
        DataError: If no text to fit has a word.

    Example:
        >>> [round(float(value), 3) for value in tfidf(["a dog", "a cat"], np.array([True, True])).data[:2]]
        [0.58, 0.815]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=tokenise)
    try:
        vectorizer.fit([text for text, known in zip(texts, learn, strict=True) if known])
    except ValueError as problem:
        raise DataError(
            f"TF-IDF needs texts with words; none of the {int(learn.sum()):,} to learn from has one"
        ) from problem
    return csr_array(vectorizer.transform(texts), dtype=np.float32)


def cosines(rows: csr_array, left: Int[np.ndarray, "m"], right: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """The cosine of each pair of unit rows.

    Args:
        rows: (N V) unit rows.
        left: (M) rows.
        right: (M) rows.

    Returns:
        (M) float32.
    """
    return np.asarray((rows[left] * rows[right]).sum(axis=1), dtype=np.float32)


@dataclass(frozen=True)
class LsaSpace:
    """TF-IDF of the words, then the D right singular vectors of the largest singular values; unit rows.

    Words of any script are read (`data.words`). A text has no vector if it has no known word, or if none of the D
    directions contains its words: with a larger D fewer texts are without. Distances are cosine distances.

    Args:
        width: D, 1 or more; fewer where there are fewer words or texts.
        seed: Of the randomised search for the directions.

    Raises:
        DataError: If no text to fit has a word.
        RequirementError: If the width is below 1.

    Complexity:
        Time of 2 x 5 products of the sparse matrix with D + 16 columns (Halko, Martinsson and Tropp 2011).
    """

    width: int = 200
    seed: int = 0

    distance: ClassVar[DistanceName] = "cosine"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise RequirementError(f"Lsa needs a width of 1 or more; it got {self.width}")

    def settings(self) -> Mapping[str, Any]:
        """The name of the space, and everything that its vectors depend on.

        Returns:
            "name" and settings, as JSON values.
        """
        return {"name": "lsa", **asdict(self)}

    def __call__(
        self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: TextProgress | None = None
    ) -> TextVectors:
        """Vectors of all texts, fitted on those that `learn` marks.

        Args:
            pairs: The data set of N texts.
            learn: (N) bool.
            progress: Called with the number of finished texts.

        Returns:
            The vectors, of unit length.
        """
        from sklearn.utils.extmath import randomized_svd

        rows = tfidf(words_of(pairs.texts), learn)
        learnt = rows[np.flatnonzero(learn)]
        width = min(self.width, *learnt.shape)
        directions = randomized_svd(learnt, width, n_oversamples=16, n_iter=5, random_state=self.seed % 2**32)[2]
        vectors = np.ascontiguousarray(rows @ directions.T)
        if progress is not None:
            progress(len(vectors))
        return TextVectors(unit_rows(vectors), np.abs(vectors).max(axis=1) > 1e-6)


def _require_gensim(reader: str, alternative: str) -> None:
    """Raise RequirementError where gensim is not installed."""
    if find_spec("gensim") is None:
        raise RequirementError(
            f"{reader} needs gensim, which is not installed; {install_hint('neighbours')}, or {alternative}"
        )


_TAG = re.compile(r"<[^>]+>")
_GAP = re.compile(r"[!-/:-@\[-`{-~\s]+")
SHORTEST = 3
"""Letters of the shortest word that is read."""


def doc2vec_words(text: str, *, sentences: int | None = None) -> list[str]:
    """Lower-case words without tags, punctuation and gensim's 337 stop-words, of three letters or more.

    Characters beyond ASCII become "?", as in the authors' code, and so part a word: this reading is for English.
    Letters and digits that touch stay together ("25bn"), as in the authors' output.

    Args:
        text: English text, with tags or without.
        sentences: Number of sentences read, from the start (two for Politics); None for all.

    Returns:
        The words, in order.

    Raises:
        RequirementError: If gensim is not installed.

    Example:
        >>> " ".join(doc2vec_words("The <b>Border-wall</b> plan is a 5-year, $25bn idea; it isn't cheap!"))
        'border wall plan year 25bn idea isn cheap'
    """
    _require_gensim("the space doc2vec", "use the space lsa")
    from gensim.parsing.preprocessing import STOPWORDS

    if sentences is not None:
        text = first_sentences(text, sentences)
    plain = text.encode("ascii", "replace").decode("ascii").lower()
    return [word for word in _GAP.split(_TAG.sub("", plain)) if len(word) >= SHORTEST and word not in STOPWORDS]


MANY = 150_000
"""Texts from which on the paper's 20 epochs are enough, as for its 196,905 of Politics; the authors' code takes 50 for
smaller sets."""


@dataclass(frozen=True)
class Doc2VecSpace:
    """Distributed memory (Doc2Vec), trained on some texts; the vector of every text is inferred, also of these.

    A text without a known word has no vector. The vector of a text depends on its words alone, not on its neighbours in
    the file. Distances are L2 on the vectors as they are.

    Args:
        width: D, the paper's 200.
        window: Words to either side, the paper's 20.
        min_count: Occurrences below which a word is left out, the paper's 20; set it low for a small set.
        epochs: Epochs of training, and of inference for each text; None: 20 from 150,000 texts on, else 50.
        output: "hs": a hierarchical softmax, as in the paper; "ns": 5 negative samples, as in the authors' code.
        sentences: Number of sentences read of each text, from its start; None for all (two for Politics in the paper).
        seed: Of the weights and of inference.
        workers: Threads; more than one is faster, and gives other vectors at every run.

    Raises:
        RequirementError: If gensim is missing, or a number is below 1.
        DataError: If no word occurs `min_count` times.
    """

    width: int = 200
    window: int = 20
    min_count: int = 20
    epochs: int | None = None
    output: Literal["hs", "ns"] = "hs"
    sentences: int | None = None
    seed: int = 0
    workers: int = 1

    distance: ClassVar[DistanceName] = "l2"

    def __post_init__(self) -> None:
        for name in ("width", "window", "min_count", "workers"):
            if getattr(self, name) < 1:
                raise RequirementError(f"Doc2Vec needs {name} of 1 or more; it got {getattr(self, name)}")

    def settings(self) -> Mapping[str, Any]:
        """The name of the space, and everything that its vectors depend on.

        Returns:
            "name" and settings, as JSON values.
        """
        return {"name": "doc2vec", **asdict(self)}

    def __call__(
        self, pairs: Dataset, learn: Bool[np.ndarray, "n"], progress: TextProgress | None = None
    ) -> TextVectors:
        """Vectors of all texts, fitted on those that `learn` marks.

        Args:
            pairs: The data set of N texts.
            learn: (N) bool.
            progress: Called with the number of finished texts.

        Returns:
            The vectors.

        Raises:
            DataError: If no word occurs `min_count` times.
        """
        documents = [doc2vec_words(text, sentences=self.sentences) for text in words_of(pairs.texts)]
        model = self._train([documents[row] for row in np.flatnonzero(learn)])
        vectors = np.zeros((len(documents), self.width), dtype=np.float32)
        has_vector = np.zeros(len(documents), dtype=bool)
        vector_of: dict[tuple[str, ...], NDArray[np.float32]] = {}
        for row, document in enumerate(documents):
            words = tuple(word for word in document if word in model.wv.key_to_index)
            if words:
                if words not in vector_of:
                    vector_of[words] = self._infer(model, words)
                vectors[row], has_vector[row] = vector_of[words], True
            if progress is not None:
                progress(row + 1)
        return TextVectors(vectors, has_vector)

    def _infer(self, model: Any, words: tuple[str, ...]) -> NDArray[np.float32]:
        """(D) the vector of a text, by steps on that vector alone.

        As gensim's `infer_vector`, but for the start, which gensim draws by Python's `hash`: another in each process.
        """
        from gensim.models.doc2vec import train_document_dm

        key = np.array([draw.key(" ".join(words))])
        start = draw.uniform(key, seed=self.seed, epoch=0, purpose="doc2vec", count=self.width)
        vector = ((start - 0.5) / self.width).astype(np.float32)
        fixed = {"learn_words": False, "learn_hidden": False, "doctags_lockf": np.ones(1, dtype=np.float32)}
        # Steps draw from this generator: set anew, a text's vector is a function of its words.
        model.random.seed(self.seed)
        for rate in np.linspace(model.alpha, model.min_alpha, model.epochs):
            train_document_dm(model, list(words), [0], rate, doctag_vectors=vector, **fixed)
        inferred: NDArray[np.float32] = vector[0]
        return inferred

    def _train(self, documents: list[list[str]]) -> Any:
        from gensim.models.doc2vec import Doc2Vec as Model, TaggedDocument

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
                f"Doc2Vec needs words that occur {self.min_count} times; {len(documents):,} texts have none; lower ",
                Setting("min_count"),
                ", or use the space lsa",
            )
        model.train(tagged, total_examples=model.corpus_count, epochs=model.epochs)
        return model


def word_vectors(
    texts: Sequence[str], words: Sequence[str], width: int, *, seed: int = 0
) -> tuple[Int[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
    """Vectors of words, by a Doc2Vec that is trained on texts.

    The start of the text encoders of Thomas and Kovashka (2020, section 3.3; 2022, section 3.5): word vectors learnt on
    the data set. Settings are those of `Doc2VecSpace`, but every word of the texts has a vector, stop-words too, since
    the encoder reads them all; the authors' encoder leaves out words that its Doc2Vec left out.

    Args:
        texts: Texts to learn from.
        words: The encoder's words.
        width: D, of the vectors.
        seed: Of the training.

    Returns:
        (K) int64, which of the words occur in the texts, and (K D) their vectors.

    Raises:
        RequirementError: If gensim is missing.
    """
    _require_gensim("word_vectors=doc2vec", "use word_vectors=random")
    return _word_vectors(tuple(texts), tuple(words), width, seed)


# A study trains many models on the same texts, one after the other.
@lru_cache(maxsize=8)
def _word_vectors(
    texts: tuple[str, ...], words: tuple[str, ...], width: int, seed: int
) -> tuple[Int[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
    model = Doc2VecSpace(width, min_count=1, seed=seed)._train([tokenise(text) for text in texts])
    learnt = np.array([row for row, word in enumerate(words) if word in model.wv.key_to_index], dtype=np.int64)
    return learnt, np.stack([model.wv[words[row]] for row in learnt]).astype(np.float32)
