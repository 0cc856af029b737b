"""How the ranker of an index learns: from queries that are made of its own texts, or from given pairs.

A trial is a query whose image is known. What the query was made of is hidden from that image: a sentence that was taken
out, or a text that is the query. Other images that have the words of the query as much as the right one are left out of
the trial: they are near-copies, or fit as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.languages import is_foreign, language_of, said_language
from subtext.errors import RequirementError
from subtext.ops import draw
from subtext.retrieval import everyday
from subtext.retrieval.confidence import (
    BEST,
    MIN_GROUPS,
    SAMPLES,
    Background,
    Evidence,
    Observations,
    best_products,
    fit_direction,
    sample,
)
from subtext.retrieval.evidence import COVERING, Gatherer, Values, best_in, best_of, covered
from subtext.retrieval.made_queries import sentences, taken_out
from subtext.retrieval.ranker import (
    BY_MACHINES,
    FIXED,
    LEXICAL,
    OWN,
    SIGNALS,
    FitName,
    Moments,
    Ranker,
    Signal,
    Weights,
    last_keys,
    learn,
)
from subtext.retrieval.stores.item import SIDES, Item, machine_of
from subtext.retrieval.stores.store import Store, View
from subtext.retrieval.word_index import WordIndex
from subtext.retrieval.words import fold, spaced, words
from subtext.version import __version__

if TYPE_CHECKING:
    from subtext.models.model import Model

LEAST = 200
"""Trials below which the weights are fixed."""
MADE = 400
"""Queries that are made."""
POOL = 1024
"""Images that a trial chooses among, besides the right ones of all trials."""
LONGEST = 40
"""Words of a text that is a query as it is; people write no longer ones."""
GIVEN = 1000
"""Given pairs that teach the weights."""
MOST_IMAGES = 20_000
"""Images of an index up to which all are scored for each given pair, so that there is a probability."""
EVIDENCE_TEMPERATURES = np.geomspace(0.25, 4, 24)
"""In log odds, which the scores of evidence are in."""
TOGETHER = 32
"""Texts that are embedded together."""
FLATTERED = 0.1
"""Share of images that the model was trained on from which queries that are made of texts flatter it."""
AS_MUCH = 0.9
"""Share of the BM25 score of the right text from which another text has the words of the query, too."""

Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Trial:
    """A query whose image is known.

    Attributes:
        query: Its words.
        image: Key of the image.
        source: The text that the query was made of, or is.
        kept: Keys of the texts of the image that stay.
        rest: What is left of the source; None for nothing.
        learnt: Whether the model was trained on the image.
        whole: Whether the query is a sentence or a text, and no part of a sentence.
    """

    query: str
    image: int
    source: str
    kept: tuple[int, ...]
    rest: str | None = None
    learnt: bool = False
    whole: bool = True


@dataclass(frozen=True)
class TextEmbedders:
    """What embeds texts for an index.

    Attributes:
        model: Texts to (N K D) by the model.
        encoder: Texts to (N E) by the sentence encoder; None for none.
    """

    model: Embed
    encoder: Embed | None


def embedders_of(store: Store, model: Model) -> TextEmbedders:
    """What embeds texts for an index.

    Args:
        store: The index.
        model: The model that made it.

    Returns:
        Both, which embed some texts at a time.
    """
    from subtext.retrieval.index import Index

    index = Index(store, model)

    def some(embed: Embed) -> Embed:
        def all_of(texts: Sequence[str]) -> NDArray[np.float32]:
            # Texts of like length are embedded together; an empty one, of which nothing is left, is never compared.
            order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
            blocks = [order[start : start + TOGETHER] for start in range(0, len(order), TOGETHER)]
            rows = [embed([texts[row] or "-" for row in block]) for block in blocks]
            return np.concatenate(rows)[np.argsort(order)]

        return all_of

    encoder = None if store.manifest.encoder is None else some(index.sentence_encoder)
    return TextEmbedders(some(lambda texts: index.model.embed_texts(list(texts)).vectors.float().numpy()), encoder)


@dataclass(frozen=True)
class Trials:
    """The signals of K images for Q trials.

    Attributes:
        keys: (K) of the images, ascending.
        deviations: Signal -> (Q K) standard deviations above the mean, of words as `ranker` weighs them; NaN where an
            image lacks the signal.
        allowed: (Q K) images that the trial chooses among.
        truth: (Q) rows of the right images.
        learnt: (K) whether the model was trained on the image.
    """

    keys: NDArray[np.int64]
    deviations: Mapping[Signal, Values]
    allowed: NDArray[np.bool_]
    truth: NDArray[np.int64]
    learnt: NDArray[np.bool_]

    @property
    def teaching(self) -> NDArray[np.bool_]:
        """(Q K) images that given pairs teach the weights among: those that the model was not trained on.

        It ranks the others by what it remembers of their own texts: as wrong images of a trial they would teach that
        pixels say little. Where hardly any image is left, all are taken.
        """
        if (~self.learnt).sum() < LEAST:
            return self.allowed
        among = self.allowed & ~self.learnt
        among[np.arange(len(self.truth)), self.truth] = True
        return among

    def scores(self, weights: Weights) -> Values:
        """(Q K) scores; -inf for an image that is left out.

        Args:
            weights: Of the signals.

        Returns:
            The scores.
        """
        return np.where(self.allowed, weights.score(self.deviations), -np.inf)


def make_trials(view: View, used: set[str] | None, *, seed: int = 0) -> list[Trial]:
    """Make queries of the texts of an index; images that the model was not trained on come first.

    Args:
        view: The index at one moment.
        used: Names of what the model was trained on; None for all images.
        seed: Of the images, texts, sentences and spans.

    Returns:
        At most `MADE` trials.
    """
    _, owners = view.owner_links()
    keys = np.unique(owners)
    order = draw.uniform(keys, seed=seed, epoch=0, purpose="ranker: images", count=3)
    ranked = keys[np.argsort(order[:, 0], kind="stable")]
    chances = dict(zip(keys.tolist(), order[:, 1:].tolist(), strict=True))
    encoder = view.manifest.encoder
    reads = view.manifest.languages if encoder is None else encoder.languages
    fresh, learnt = list[Trial](), list[Trial]()
    for start in range(0, len(ranked), MADE):
        some = ranked[start : start + MADE]
        partners = view.partners("images", some)
        rows = view.rows("texts", keys=sorted({k for own in partners.values() for k in own}))
        # Nobody asks as machines write; a query in a language that is not read is searched by its words alone.
        read = [
            row for row in rows if not machine_of(row.metadata) and not is_foreign(said_language(row.fields), reads)
        ]
        texts = {row.key: row.text for row in read}
        for item in view.items("images", some):
            own = [(key, text) for key in partners[item.key] if (text := texts.get(key))]
            trial = _made(item.key, own, *chances[item.key])
            if trial is not None and not is_foreign(language_of(trial.query), reads):
                is_old = _is_learnt(item, used)
                (learnt if is_old else fresh).append(replace(trial, learnt=is_old))
        if len(fresh) >= MADE:
            break
    return [*fresh, *learnt][:MADE]


def _is_learnt(item: Item, used: set[str] | None) -> bool:
    """Whether a model was trained on an item, by the names of what it was trained on."""
    return used is None or not used.isdisjoint([item.id, item.path or "", *item.own_texts])


def _made(image: int, texts: Sequence[tuple[int, str]], which: float, where: float) -> Trial | None:
    """A trial of an image: one of several texts as it is, if it is short; else a part of it."""
    if not texts:
        return None
    key, text = texts[int(which * len(texts))]
    kept = tuple(other for other, _ in texts if other != key)
    if kept and len(words(text)) <= LONGEST:
        return Trial(text, image, text, kept)
    parts = taken_out(text, where)
    return None if parts is None else Trial(parts[0], image, text, kept, parts[1], whole=parts[0] in sentences(text))


def run_trials(
    view: View,
    trials: Sequence[Trial],
    models: TextEmbedders,
    used: set[str] | None,
    *,
    pool: int = POOL,
    seed: int = 0,
    hide_texts: bool = True,
) -> Trials:
    """The signals of the images for each trial, as a search has them; words are counted among the images of the pool.

    Args:
        view: The index at one moment.
        trials: One or more.
        models: What embeds texts.
        used: Names of what the model was trained on; None for all images.
        pool: Images that a trial chooses among, besides the right ones.
        seed: Of the right images that count as without texts.
        hide_texts: Let as many right images lack texts as images do: one that a query is made of has texts.

    Returns:
        The trials.
    """
    keys = np.union1d(sample(view, "images", pool), np.array([trial.image for trial in trials], dtype=np.int64))
    gatherer = Gatherer(view, "images", FIXED)
    queries = [trial.query for trial in trials]
    truth = np.searchsorted(keys, [trial.image for trial in trials])
    shape = len(trials), len(keys)
    vectors = models.model(queries)
    sentence_vectors = None if models.encoder is None else models.encoder(queries)[:, None]
    values: dict[Signal, Values] = {"pixels": best_products(vectors, view.vectors("images", keys)).astype(np.float64)}
    owners, text_keys = gatherer.own_texts(keys)
    machine_owners, machine_keys = gatherer.own_texts(keys, "machine_texts")
    own_keys = np.union1d(text_keys, machine_keys)
    rows, machine_rows = np.searchsorted(own_keys, text_keys), np.searchsorted(own_keys, machine_keys)
    space = gatherer.text_space
    asked = vectors if sentence_vectors is None or space == "texts" else sentence_vectors
    own_vectors, has_vector = view.vectors_in(space, own_keys)
    compared = np.where(has_vector, best_products(asked, own_vectors), np.nan).astype(np.float64)
    texts = {row.key: row.text or "" for row in view.rows("texts", keys=own_keys.tolist())}
    counted = WordIndex([spaced(texts[key]) for key in own_keys.tolist()])
    rests = [trial.rest or "" for trial in trials]
    by_model = models.encoder is None or space == "texts"
    rest_vectors = models.model(rests) if by_model or models.encoder is None else models.encoder(rests)[:, None]
    there: tuple[Signal, ...] = (*OWN, *BY_MACHINES) if len(machine_keys) else OWN
    values |= {signal: np.full(shape, np.nan) for signal in there}
    allowed = np.ones(shape, dtype=np.bool_)
    # As many right images lack texts as images do.
    bare = 1 - len(np.unique(owners)) / max(1, len(keys))
    chances = draw.uniform(np.arange(len(trials)), seed=seed, epoch=0, purpose="ranker: without texts")[:, 0]
    places, spelled = np.searchsorted(keys, owners), [spaced(texts[key]).split() for key in own_keys.tolist()]
    shares = {signal: np.zeros(len(trials)) for signal in there if signal in LEXICAL}
    for number, trial in enumerate(trials):
        right = truth[number]
        said = counted.scores(trial.query)
        values["texts"][number] = best_of(owners, compared[number][rows], keys, soft=True)
        values["words"][number] = best_of(owners, said[rows], keys)
        source = counted.score(trial.query, spaced(trial.source))
        allowed[number] = ~(values["words"][number] >= AS_MUCH * source) if source > 0 else True
        allowed[number, right] = True
        if len(machine_keys):
            values["machine_texts"][number] = best_of(machine_owners, compared[number][machine_rows], keys, soft=True)
            values["machine_words"][number] = best_of(machine_owners, said[machine_rows], keys)
            best = machine_rows[np.argsort(-said[machine_rows], kind="stable")[:COVERING]]
            shares["machine_words"][number] = covered(trial.query, [spelled[row] for row in best.tolist()])
        kept = np.searchsorted(own_keys, np.intersect1d(trial.kept, text_keys))
        left = [(compared[number, row], said[row]) for row in kept.tolist()]
        if trial.rest:
            own = best_products(asked[number : number + 1], rest_vectors[number : number + 1])[0, 0]
            left.append((float(own), counted.score(trial.query, spaced(trial.rest))))
        if hide_texts and chances[number] < bare:
            left = []
        # What is hidden from the trial, and from its image, has none of its words.
        others = rows[allowed[number, places] & (places != right)]
        best = others[np.argsort(-said[others], kind="stable")[:COVERING]]
        its_own = [*(spelled[row] for row in kept.tolist()), spaced(trial.rest or "").split()] if left else []
        shares["words"][number] = covered(trial.query, [*(spelled[row] for row in best.tolist()), *its_own])
        none, first = np.full(2, np.nan), np.zeros(1, dtype=np.int64)
        cosines, shared = np.array(left).T if left else none[:, None]
        known = cosines[~np.isnan(cosines)]
        values["texts"][number, right] = best_in(known, first, soft=True)[0] if len(known) else np.nan
        values["words"][number, right] = best_in(shared, first)[0]
    if sentence_vectors is not None and len(view.owners("neighbours")[0]):
        lent, has_lent = view.vectors_in("neighbours", keys)
        values["neighbours"] = np.where(has_lent, best_products(sentence_vectors, lent), np.nan).astype(np.float64)
    learnt = np.array([_is_learnt(item, used) for item in view.items("images", keys)])
    deviations = {signal: _standardised(signal, values[signal]) for signal in SIGNALS if signal in values}
    deviations |= {signal: deviations[signal] * share[:, None] for signal, share in shares.items()}
    return Trials(keys, deviations, allowed, truth, learnt)


def _standardised(signal: Signal, values: Values) -> Values:
    moments = [Moments.of(row, best=float(np.nanmax(row)) if signal in LEXICAL else -np.inf) for row in values]
    means, deviations = (np.array([getattr(own, name) for own in moments]) for name in ("mean", "deviation"))
    return (values - means[:, None]) / deviations[:, None]


def fit_made(view: View, models: TextEmbedders, used: set[str] | None, *, note: str = "", seed: int = 0) -> Ranker:
    """Fit the ranker of an index by queries that are made of its texts; fixed weights where there are too few.

    Of images and texts that the model was trained on its scores are better than of others, and so are their neighbours.
    Where it was trained on a part of the archive, these two keep the ratio of the fixed weights to the weight of texts.
    So they do where few queries are whole sentences: what is left of a short text without some of its words says less
    than the texts that people search, and the others would seem to say more.

    Args:
        view: The index at one moment.
        models: What embeds texts.
        used: Names of what the model was trained on; None for all images.
        note: What a reader of the record should know of them.
        seed: Of what is drawn.

    Returns:
        The ranker.
    """
    trials = make_trials(view, used, seed=seed)
    if len(trials) < LEAST:
        few = f"fixed weights: queries can be made of {len(trials)} images with texts, and {LEAST} are needed"
        return new_ranker(view, FIXED, "fixed weights", {"queries": len(trials), "note": few}, [])
    fresh = [trial for trial in trials if not trial.learnt]
    seen = [_is_learnt(item, used) for item in view.items("images", sample(view, "images", POOL))]
    held: tuple[Signal, ...] = ()
    if len(fresh) < LEAST or np.mean(seen) >= FLATTERED:
        # Queries that are made of texts such as it was trained on say more of its scores than those of people.
        held = ("pixels", "neighbours")
        note = "the model was trained on images of this archive: pixels and neighbours have their fixed share" + (
            note and f"; {note}"
        )
    trials = fresh if len(fresh) >= LEAST else trials
    if not held and sum(trial.whole for trial in trials) < LEAST:
        held = ("pixels", "neighbours")
        note = "many queries are parts of a sentence: pixels and neighbours have their fixed share" + (
            note and f"; {note}"
        )
    ran = run_trials(view, trials, models, used, seed=seed)
    weights = learn(ran.deviations, ran.allowed, ran.truth, held=held, least=("words",), own_first=True)
    return new_ranker(
        view,
        weights,
        "made queries",
        {"queries": len(trials), "note": note, **_ranks(ran, weights)},
        _levels(ran, weights),
    )


def fit_everyday(view: View, models: TextEmbedders) -> Ranker | None:
    """What everyday captions say of an index of images without texts; its weights are fixed.

    Args:
        view: The index at one moment.
        models: What embeds texts.

    Returns:
        The ranker; None for fewer than `everyday.LEAST` images.
    """
    if view.counts["images"] < everyday.LEAST:
        return None
    background = Background.of(view, "images")
    levels, temperature = everyday.everyday_levels(lambda texts: background.scores(models.model(texts)))
    about = {"queries": len(everyday.EVERYDAY), "note": "", "temperature": temperature}
    return new_ranker(view, FIXED, "everyday captions", about, levels)


def given_trials(view: View, pairs: Dataset, *, seed: int = 0) -> list[Trial]:
    """The texts of given pairs as queries, of those whose image is in the index.

    Args:
        view: The index at one moment.
        pairs: Images and texts.
        seed: Of the texts that are chosen.

    Returns:
        At most `GIVEN` trials. A text that the index has, too, is hidden from its image.
    """
    images, texts = pairs.links[:, 0], pairs.links[:, 1]
    order = draw.uniform(pairs.texts.keys[texts], seed=seed, epoch=0, purpose="ranker: given pairs")[:, 0]
    known = view.keys_of("images", [pairs.images.ids[row] for row in np.unique(images).tolist()])
    chosen = []
    for row in np.argsort(order, kind="stable").tolist():
        key, text = known.get(pairs.images.ids[images[row]]), pairs.texts.values[texts[row]]
        if key is not None and isinstance(text, str) and text.strip():
            chosen.append((key, text))
    chosen = chosen[:GIVEN]
    partners = view.partners("images", sorted({key for key, _ in chosen}))
    own = {
        row.key: row.text for row in view.rows("texts", keys=sorted({k for found in partners.values() for k in found}))
    }
    return [
        Trial(text, key, "", tuple(other for other in partners.get(key, ()) if fold(own[other] or "") != fold(text)))
        for key, text in chosen
    ]


def fit_given(
    view: View,
    pairs: Dataset,
    models: TextEmbedders,
    used: set[str] | None,
    *,
    data: Mapping[str, Any],
    seed: int = 0,
) -> Ranker | None:
    """Fit the ranker of an index by given pairs, and the probability of a hit.

    Args:
        view: The index at one moment.
        pairs: Images with texts as people would search for them.
        models: What embeds texts.
        used: Names of what the model was trained on; None for all images.
        data: Where the pairs came from, as plain data.
        seed: Of what is drawn.

    Returns:
        The ranker; None for fewer than `MIN_GROUPS` queries whose image is in the index. It has no `direction` for an
        index of more than `MOST_IMAGES` images, and where nothing tells right hits from wrong ones.
    """
    trials = given_trials(view, pairs, seed=seed)
    if len(trials) < MIN_GROUPS:
        return None
    whole = view.counts["images"] <= MOST_IMAGES
    ran = run_trials(view, trials, models, used, pool=MOST_IMAGES if whole else POOL, seed=seed, hide_texts=False)
    weights = learn(ran.deviations, ran.teaching, ran.truth)
    about = {"queries": len(trials), "data": dict(data), "note": "", **_ranks(ran, weights)}
    ranker = new_ranker(view, weights, "given pairs", about, _levels(ran, weights))
    if not whole:
        return ranker
    scores = ran.scores(weights)
    sampled = np.searchsorted(ran.keys, sample(view, "images", SAMPLES))
    background = Background(ran.keys[sampled], np.zeros((0, 1, 1), dtype=np.float32), view.counts["images"])
    halves = draw.uniform(ran.keys[ran.truth], seed=seed, epoch=0, purpose="calibration: half")[:, 0] < 0.5
    observed = Observations([], [], [], halves)
    for number, own in enumerate(scores):
        best = np.argsort(-own, kind="stable")[:BEST]
        observed.evidence.append(
            Evidence.collect(
                ran.keys[best],
                own[best].astype(np.float32),
                background,
                own[sampled].astype(np.float32),
                np.zeros(0, dtype=np.float32),
            )
        )
        observed.correct.append(best == ran.truth[number])
        observed.truth.append(own[ran.truth[number]][None])
    try:
        direction = fit_direction(observed, temperatures=EVIDENCE_TEMPERATURES)
    except RequirementError:
        return ranker
    return replace(ranker, direction=direction)


def _ranks(ran: Trials, weights: Weights) -> dict[str, float]:
    """How often the right image is the first, and among the first ten."""
    scores = ran.scores(weights)
    right = scores[np.arange(len(scores)), ran.truth]
    better = (scores > right[:, None]).sum(axis=1)
    return {f"recall@{depth}": round(float((better < depth).mean()), 4) for depth in (1, 10)}


def _levels(ran: Trials, weights: Weights) -> list[float]:
    """(101) quantiles of the best score."""
    return np.quantile(ran.scores(weights).max(axis=1), np.linspace(0, 1, 101)).round(6).tolist()


def new_ranker(view: View, weights: Weights, fit: FitName, about: Mapping[str, Any], levels: Sequence[float]) -> Ranker:
    """A ranker of an index as it is.

    Args:
        view: The index at one moment.
        weights: Of the signals.
        fit: What taught them.
        about: See `Ranker`.
        levels: See `Ranker`.

    Returns:
        The ranker.
    """
    manifest = view.manifest
    return Ranker(
        weights=weights,
        fit=fit,
        about=about,
        levels=levels,
        direction=None,
        fingerprint=manifest.fingerprint,
        encoder="" if manifest.encoder is None else manifest.encoder.fingerprint,
        counts={side: view.counts[side] for side in SIDES},
        last=last_keys(view),
        identity=manifest.identity,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
