"""The ranker of an index: how much each kind of evidence counts, learnt from the archive itself.

An item has up to seven signals for a query, each a number that is larger where the item fits better:

    pixels         the model's score of the image and the query
    texts          the score of its best text, by the sentence encoder, or by the model where the index has no encoder
    words          words of the query in its best text (BM25)
    machine_texts  as texts, of the texts that machines wrote, which are not among the texts above
    machine_words  as words, of these
    fields         words of the query in its id, file name and metadata (BM25)
    neighbours     the texts of the images that look like it, by the sentence encoder

Signals have different units. So each is expressed in standard deviations above its mean over a fixed sample of the
index, for this query. The score of an item is the weighted sum of these deviations. An item may lack a signal. One
without texts gets a constant in place of its texts and words, and its other signals weigh more; both are learnt. (Zero
would be the mean, which lifts it above half of all items with texts.)

The deviations of words are multiplied by the share of the words of the query that one text has, of those that match
best, and those of fields by the square of the share that the fields of one image have. The best item is some deviations
above the mean for any query that has a rare word, whether this is all of the query, as "1987-118", or one word of an
idiom.

The weights maximise the likelihood that the right item is chosen among all, for queries whose item is known: a
multinomial logit (McFadden 1974), with an L2 penalty, and without negative weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import STALE, DirectionCalibration, changed_since
from subtext.retrieval.manifest import Manifest, checksum, with_checksum
from subtext.retrieval.stores.documents import RANKER
from subtext.retrieval.stores.item import SIDES, Change, Side
from subtext.retrieval.stores.store import View, Writer
from subtext.version import FORMAT, require_format

Signal = Literal["pixels", "texts", "words", "machine_texts", "machine_words", "fields", "neighbours"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
OWN: tuple[Signal, ...] = ("texts", "words")
"""Signals of an image's own texts: it has all of them or none."""
BY_MACHINES: tuple[Signal, ...] = ("machine_texts", "machine_words")
"""Signals of its texts that machines wrote, likewise."""
FitName = Literal["fixed weights", "made queries", "given pairs", "everyday captions"]
"""What taught the weights. Everyday captions teach none: they say what fits on a bare folder, see `everyday`."""
LEXICAL: tuple[Signal, ...] = ("words", "machine_words", "fields")
"""Signals that most items have none of: their values are 0."""
HIGHEST = 8.0
"""Standard deviations that the best item may be above the mean by a signal of words."""
PENALTY = 1e-3
"""L2 penalty on the squared weights, in units of one query."""


def fit_choices(
    inputs: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    truth: NDArray[np.int64],
    *,
    signed: Sequence[int] = (),
    penalty: float = PENALTY,
) -> NDArray[np.float64]:
    """Weights under which the right item of each query is likeliest to be chosen among the allowed ones.

    Minimises the mean over queries of -log(exp(x_t w) / sum_i exp(x_i w)) + penalty |w|^2 / 2 by Newton's method; a
    weight that would become negative stays at 0. The function is convex, so there is one minimum.

    Args:
        inputs: (Q N F) inputs of N items for Q queries.
        allowed: (Q N) the items that can be chosen; among them the right one.
        truth: (Q) the right item of each query.
        signed: Inputs whose weights may be negative.
        penalty: On the squared weights, above 0.

    Returns:
        (F) weights.

    Complexity:
        Q N F^2 for each of some ten steps.

    Example:
        >>> inputs = np.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 3.0]]])
        >>> weights = fit_choices(inputs, np.ones((2, 2), dtype=bool), np.array([0, 0]), penalty=0.1)
        >>> weights.round(2).tolist()
        [1.63, 0.0]
    """
    count, _, width = inputs.shape
    chosen = inputs[np.arange(count), truth]
    least = np.zeros(width)
    least[list(signed)] = -np.inf

    def value(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = np.where(allowed, inputs @ weights, -np.inf)
        highest = scores.max(axis=1, keepdims=True)
        odds = np.exp(scores - highest)
        total = odds.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) + highest[:, 0] - chosen @ weights))
        return loss + penalty * float(weights @ weights) / 2, odds / total

    weights = np.zeros(width)
    loss, shares = value(weights)
    for _ in range(100):
        expected = np.einsum("qn,qnf->qf", shares, inputs)
        gradient = (expected - chosen).mean(axis=0) + penalty * weights
        # (F F): the mean covariance of the inputs under the shares.
        spread = np.einsum("qn,qnf,qng->fg", shares, inputs, inputs, optimize=True) - expected.T @ expected
        curvature = spread / count + penalty * np.eye(width)
        free = (weights > least) | (gradient < 0)
        step = np.zeros(width)
        while free.any():
            step[:] = 0
            step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
            # A weight at its bound that the others would push below it stays there, or the step leads nowhere.
            blocked = free & (weights <= least) & (step < 0)
            if not blocked.any():
                break
            free &= ~blocked
        size = 1.0
        while True:
            tried = np.maximum(weights + size * step, least)
            tried_loss, tried_shares = value(tried)
            if tried_loss <= loss or size < 1e-6:
                break
            size /= 2
        if tried_loss > loss - 1e-10:
            break
        weights, loss, shares = tried, tried_loss, tried_shares
    return weights


@dataclass(frozen=True)
class Moments:
    """What a signal is over the sample, for one query.

    Attributes:
        mean: Of the items that have the signal.
        deviation: Their standard deviation; 1 where all are equal, as none is above the mean.
    """

    mean: float
    deviation: float

    @staticmethod
    def of(values: NDArray[np.float64], *, best: float = -np.inf) -> Moments:
        """The moments of a signal.

        Args:
            values: (M) of the sample; NaN where an item lacks the signal.
            best: Of words, the largest value of all items. A word that one item has would lift it by as many deviations
                as the root of the number of items: it is at most `HIGHEST` above the mean.

        Returns:
            Mean and deviation.
        """
        known = values[~np.isnan(values)]
        if not len(known):
            return Moments(0.0, 1.0)
        mean = float(known.mean())
        deviation = max(float(known.std()), (best - mean) / HIGHEST)
        # Rounding leaves a deviation to values that are all equal.
        return Moments(mean, deviation if deviation > 1e-9 * max(1.0, float(np.abs(known).max())) else 1.0)


@dataclass(frozen=True)
class Weights:
    """The weights of the signals, in log odds per standard deviation.

    Attributes:
        full: Signal -> weight, for an image with texts.
        bare: Signal -> weight, for an image without texts.
        without_texts: In place of the signals of its texts, for an image without any.
        without_neighbours: In place of the signal, for an image without neighbours that have texts.
        without_machine_texts: In place of the signals of its texts by machines, for an image without any.
    """

    full: Mapping[Signal, float]
    bare: Mapping[Signal, float]
    without_texts: float = 0.0
    without_neighbours: float = 0.0
    without_machine_texts: float = 0.0

    def applied(
        self, deviations: Mapping[Signal, NDArray[Any]]
    ) -> tuple[dict[Signal, NDArray[Any]], dict[Signal, NDArray[Any]]]:
        """What each signal weighs for each item, and what it adds to its score.

        Args:
            deviations: Signal -> (N) or (Q N) standard deviations above the mean; NaN where an item lacks the signal.

        Returns:
            Signal -> weights, and signal -> amounts, of the same shape. The first signal of an image's own texts has
            the constant of an image that has none, and the first of its texts by machines that of one without these.
        """
        own = [signal for signal in OWN if signal in deviations]
        bare = np.isnan(deviations[own[0]]) if own else None
        constants = {"neighbours": self.without_neighbours}
        for kind, constant in ((OWN, self.without_texts), (BY_MACHINES, self.without_machine_texts)):
            constants |= dict.fromkeys([own for own in kind if own in deviations][:1], constant)
        weights, amounts = dict[Signal, NDArray[Any]](), dict[Signal, NDArray[Any]]()
        for signal, values in deviations.items():
            lacks = np.isnan(values)
            weight = np.full(values.shape, self.full.get(signal, 0.0), dtype=values.dtype)
            if bare is not None and signal not in OWN:
                weight[bare] = self.bare.get(signal, 0.0)
            amount = weight * values
            amount[lacks] = constants.get(signal, 0.0)
            weights[signal], amounts[signal] = weight, amount
        return weights, amounts

    def score(self, deviations: Mapping[Signal, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The scores of items.

        Args:
            deviations: As for `applied`.

        Returns:
            Sums of all amounts.
        """
        amounts = self.applied(deviations)[1]
        return np.sum(list(amounts.values()), axis=0)


FIXED = Weights(
    full={
        "pixels": 0.3,
        "texts": 1.0,
        "words": 0.6,
        "machine_texts": 0.5,
        "machine_words": 0.3,
        "fields": 2.0,
        "neighbours": 0.15,
    },
    bare={"pixels": 1.0, "machine_texts": 1.0, "machine_words": 0.6, "fields": 2.0, "neighbours": 0.6},
    without_texts=1.0,
    without_machine_texts=1.0,
)
"""Where an archive has too few texts to learn from."""


def design(
    deviations: Mapping[Signal, NDArray[np.float64]],
) -> tuple[NDArray[np.float64], list[tuple[str, Signal]], list[int]]:
    """The inputs of `fit_choices`, one for each weight of `Weights` that the items say something about.

    Args:
        deviations: Signal -> (Q N) standard deviations above the mean; NaN where an item lacks the signal.

    Returns:
        (Q N F) inputs; (attribute of `Weights`, signal) of each; and those that may be negative.
    """
    own = [signal for signal in OWN if signal in deviations]
    shape = next(iter(deviations.values())).shape
    bare = np.isnan(deviations[own[0]]) if own else np.zeros(shape, dtype=np.bool_)
    columns, names = list[NDArray[np.float64]](), list[tuple[str, Signal]]()
    for signal, values in deviations.items():
        present = np.where(np.isnan(values), 0.0, values)
        columns.append(np.where(bare, 0.0, present))
        names.append(("full", signal))
        if signal not in OWN and bare.any():
            columns.append(np.where(bare, present, 0.0))
            names.append(("bare", signal))
    if bare.any():
        columns.append(bare.astype(np.float64))
        names.append(("without_texts", own[0]))
    by_machines = [signal for signal in BY_MACHINES if signal in deviations][:1]
    lacking: list[tuple[str, Signal]] = [("neighbours", "neighbours"), *(("machine_texts", own) for own in by_machines)]
    for name, signal in lacking:
        if signal in deviations and (alone := np.isnan(deviations[signal])).any():
            columns.append(alone.astype(np.float64))
            names.append((f"without_{name}", signal))
    return np.stack(columns, axis=-1), names, [row for row, (kind, _) in enumerate(names) if kind.startswith("without")]


TAUGHT = 30
"""Queries whose image has texts, has none, or has some by machines, below which they teach nothing of such images."""


def learn(
    deviations: Mapping[Signal, NDArray[np.float64]],
    allowed: NDArray[np.bool_],
    truth: NDArray[np.int64],
    *,
    held: Sequence[Signal] = (),
    least: Sequence[Signal] = (),
    own_first: bool = False,
) -> Weights:
    """The weights that choose the right items.

    Where hardly a right image has texts, the weights of images with texts have the ratio of `FIXED` to the others, and
    the other way round: as wrong images alone, they would teach that all evidence for them is bad.

    Args:
        deviations: Signal -> (Q N) standard deviations above the mean; NaN where an item lacks the signal.
        allowed: (Q N) the items that can be chosen.
        truth: (Q) the right item of each query.
        held: Signals of which the queries teach nothing: their ratio to the weight of texts is that of `FIXED`. With
            pixels so is the constant of images without texts.
        least: Signals that weigh at least so much.
        own_first: The texts of an image weigh at least as much as those of its neighbours.

    Returns:
        The weights. Fields weigh at least as much as words: no query that is made of texts teaches what an inventory
        number is worth.
    """
    rows = np.arange(len(truth))
    for signal in BY_MACHINES:
        if signal in deviations and (~np.isnan(deviations[signal][rows, truth])).sum() < TAUGHT:
            held = (*held, signal)
    taught = {signal: values for signal, values in deviations.items() if signal not in held}
    own = [signal for signal in OWN if signal in deviations]
    bare = np.isnan(deviations[own[0]]) if own else np.zeros(allowed.shape, dtype=np.bool_)
    right_bare = bare[rows, truth]
    counts = {"full": int((~right_bare).sum()), "bare": int(right_bare.sum())}
    # Of two kinds of images that are both there, the one that teaches nothing.
    kind = min(counts, key=lambda name: counts[name])
    untaught = kind if own and bare.any() and not bare.all() and counts[kind] < TAUGHT else None
    if untaught is not None:
        wanted = right_bare if untaught == "full" else ~right_bare
        allowed = allowed & (bare if untaught == "full" else ~bare)
        allowed, truth = allowed[wanted], truth[wanted]
        taught = {signal: values[wanted] for signal, values in taught.items()}
    inputs, names, signed = design(taught)
    together = [names.index(("full", signal)) for signal in ("texts", "neighbours") if ("full", signal) in names]
    own_first = own_first and len(together) == 2
    if own_first:
        # As no weight is below 0, that of texts is what is learnt for them and for both.
        inputs[..., together[1]] += inputs[..., together[0]]
    learnt = fit_choices(inputs, allowed, truth, signed=signed)
    if own_first:
        learnt[together[0]] += learnt[together[1]]
    found = dict(zip(names, learnt.tolist(), strict=True))
    full = {signal: value for (kind, signal), value in found.items() if kind == "full"}
    bare_weights = {signal: value for (kind, signal), value in found.items() if kind == "bare"}
    constants = {kind: value for (kind, _), value in found.items() if kind.startswith("without")}
    if untaught == "full":
        scale = _ratio(bare_weights, FIXED.bare)
        full = {signal: scale * FIXED.full[signal] for signal in deviations}
        constants["without_texts"] = scale * FIXED.without_texts
    # Where no text says anything of its image, the others have their fixed weights.
    scale = max((full.get(signal, 0.0) / FIXED.full[signal] for signal in OWN), default=0.0) or 1.0
    if untaught == "bare":
        scale = _ratio(full, FIXED.full)
        bare_weights = {signal: scale * FIXED.bare[signal] for signal in deviations if signal in FIXED.bare}
        constants["without_texts"] = scale * FIXED.without_texts
    full |= {signal: scale * FIXED.full[signal] for signal in held if signal in deviations}
    if "pixels" in held and "without_texts" in constants:
        # It is weighed against pixels and neighbours, of which nothing is learnt.
        constants["without_texts"] = scale * FIXED.without_texts
    if set(held) & set(BY_MACHINES):
        constants["without_machine_texts"] = scale * FIXED.without_machine_texts
    bare_weights |= {signal: scale * FIXED.bare[signal] for signal in held if signal in deviations}
    full |= {signal: max(full.get(signal, 0.0), scale * FIXED.full[signal]) for signal in least}
    full["fields"] = max(full.get("words", 0.0), scale * FIXED.full["fields"])
    shared = {signal: value for signal, value in full.items() if signal not in OWN}
    return Weights(full, {**shared, **bare_weights, "fields": full["fields"]}, **constants)


def _ratio(found: Mapping[Signal, float], fixed: Mapping[Signal, float]) -> float:
    """How much larger learnt weights are than the fixed ones, together; 1 where nothing was learnt."""
    known = [signal for signal in found if signal in fixed]
    return sum(found[signal] for signal in known) / (sum(fixed[signal] for signal in known) or 1.0) or 1.0


@dataclass(frozen=True)
class Ranker:
    """The ranker of an index, as the index stores it.

    Attributes:
        weights: Of the signals.
        fit: What taught the weights.
        about: Queries that it learnt from, their number, and what else a reader of the record should know.
        levels: (101) quantiles, rising, of the best score over queries that have a match; empty for fixed weights. Of
            everyday captions those of their levels.
        direction: Turns scores into probabilities; None without given pairs.
        fingerprint: Of the model that made the index.
        encoder: Fingerprint of its sentence encoder; "" for none.
        counts: Number of items of each side at that time.
        last: Greatest key of each side at that time.
        identity: Of the index; see `Revision`.
        created: UTC time, ISO 8601.
        version: Version of Subtext.
        format: Format of the file.
    """

    weights: Weights
    fit: FitName
    about: Mapping[str, Any]
    levels: Sequence[float]
    direction: DirectionCalibration | None
    fingerprint: str
    encoder: str
    counts: Mapping[Side, int]
    last: Mapping[Side, int]
    identity: str
    created: str = ""
    version: str = ""
    format: int = FORMAT

    @property
    def summary(self) -> str:
        """What taught the weights, and the weights."""
        if self.fit == "everyday captions":
            return (
                f"{self.created}, fixed weights; {self.about['queries']:,} everyday captions tell whether anything fits"
            )
        weights = ", ".join(
            f"{signal} {self.weights.full[signal]:.2f}" for signal in SIGNALS if signal in self.weights.full
        )
        count = f"{self.about['queries']:,} " if self.fit != "fixed weights" else ""
        note = self.about.get("note", "").removeprefix(f"{self.fit}: ")
        return f"{self.created}, {count}{self.fit}: {weights}{f'; {note}' if note else ''}"

    def to_json(self) -> str:
        """As indented JSON, with a checksum of all the rest.

        Returns:
            JSON text.
        """
        return with_checksum({"kind": "subtext ranker", **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str, *, where: str) -> Ranker:
        """Read a ranker.

        Args:
            text: JSON text.
            where: Place of the text, for messages.

        Returns:
            The ranker.

        Raises:
            SearchIndexError: If the text is no ranker, is damaged, or has another format.
        """
        try:
            content = json.loads(text)
            require_format(content.get("format"), where, "index update", SearchIndexError)
            if content.pop("checksum", None) != checksum(content) or content.pop("kind") != "subtext ranker":
                raise SearchIndexError(f"{where} needs its own checksum; it was changed or damaged; {ADVICE}")
            direction = content.pop("direction")
            if direction is not None:
                direction = DirectionCalibration(**{**direction, "weights": tuple(direction["weights"])})
            return Ranker(weights=Weights(**content.pop("weights")), direction=direction, **content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise SearchIndexError(f"{where} needs to be a ranker; {problem!r}; {ADVICE}") from problem


ADVICE = "fit it again (subtext index update)"


def stored_ranker(view: View) -> Ranker | None:
    """The ranker of an index.

    Args:
        view: The index at one moment.

    Returns:
        The ranker; None for an index without one.

    Raises:
        SearchIndexError: If it is damaged, or was fitted for another index, model or sentence encoder.
    """
    mark = float(dict(view.records("documents")).get(RANKER, 0.0))
    name = f"ranker {mark}"
    if name not in view.cache:
        documents = view.records(RANKER)
        where = f"the ranker of {view.manifest.run or 'the index'}"
        ranker = Ranker.from_json(documents[0][0], where=where) if documents else None
        if ranker is not None:
            require_own(ranker, view.manifest, where)
        view.cache[name] = ranker
    found: Ranker | None = view.cache[name]
    return found


def require_own(ranker: Ranker, manifest: Manifest, where: str) -> None:
    """Require that a ranker was fitted for an index as it is.

    Args:
        ranker: The ranker.
        manifest: Of the index.
        where: Place of the ranker, for messages.

    Raises:
        SearchIndexError: If it was fitted for another index, model or sentence encoder.
    """
    encoder = "" if manifest.encoder is None else manifest.encoder.fingerprint
    wrong = (
        f"the model {manifest.fingerprint[:12]}; it is of the model {ranker.fingerprint[:12]}"
        if ranker.fingerprint != manifest.fingerprint
        else f"the sentence encoder {encoder[:12] or '(none)'}; it is of {ranker.encoder[:12] or 'none'}"
        if ranker.encoder != encoder
        else "this index; it is of another"
        if ranker.identity != manifest.identity
        else ""
    )
    if wrong:
        raise SearchIndexError(f"{where} needs to be of {wrong}; {ADVICE}")


def is_stale(view: View, ranker: Ranker) -> bool:
    """Whether more than a tenth of the items were added or deleted since a ranker was fitted.

    Args:
        view: The index at one moment.
        ranker: Its ranker.

    Returns:
        True for a ranker that is to be fitted again.
    """
    return changed_since(view, ranker) > STALE


def store_ranker(writer: Writer, ranker: Ranker) -> None:
    """Store a ranker in an index.

    Args:
        writer: Of the index.
        ranker: The ranker.

    Raises:
        SearchIndexError: For the ranker of another index.
    """
    require_own(ranker, writer.manifest, f"the ranker for {writer.store.path}")
    writer.apply(Change(documents={RANKER: ranker.to_json()}))


def last_keys(view: View) -> dict[Side, int]:
    """The greatest key of each side, by which later changes are counted.

    Args:
        view: The index at one moment.

    Returns:
        Side -> key; 0 for an empty side.
    """
    return {side: int(view.keys(side).max(initial=0)) for side in SIDES}
