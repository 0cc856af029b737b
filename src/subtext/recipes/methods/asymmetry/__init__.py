"""Asymmetry-sensitive contrast (AsCL, Gong et al. 2024): longer, shorter and noisy texts beside those of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard

from subtext.errors import RecipeError
from subtext.recipes.options import Setup
from subtext.settings import Interval
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.objectives.objective import Penalty, Term

_GAUSSIAN = Requires("negatives", ("mixture", "gaussian"))
_SHUFFLE = Requires("negatives", ("mixture", "shuffle"))
_TOKENS = Requires("negatives", ("mixture", "cutoff", "token_cutoff"))
_FEATURES = Requires("negatives", ("mixture", "cutoff", "feature_cutoff"))
_DROPOUT = Requires("negatives", ("mixture", "dropout"))
_ANY = Requires("negatives", ("none",), needs="negatives other than none", negated=True)
_LONG = Requires("positives", ("mixed", "long"))


def asymmetry(
    setup: Setup,
    *,
    negatives: Annotated[
        Literal["mixture", "gaussian", "shuffle", "cutoff", "token_cutoff", "feature_cutoff", "dropout", "none"],
        "noise that makes a negative text; mixture: one of four kinds per text",
    ] = "mixture",
    positives: Annotated[
        Literal["mixed", "long", "short", "none"],
        "one more positive text: two captions joined, a part of one, or either",
    ] = "mixed",
    shuffle: Annotated[
        Literal["input", "embedding"], "shuffle words, or word vectors (no effect where scores ignore order)", _SHUFFLE
    ] = "input",
    concatenate: Annotated[
        Literal["own", "any"], "long text: the text and another, or any two of the image", _LONG
    ] = "own",
    outscoring: Annotated[bool, "also count negatives that score above the positive (alpha is 1)", _ANY] = False,
    gaussian_std: Annotated[
        float, "standard deviation of added noise, relative to the vectors", Interval(0), _GAUSSIAN
    ] = 0.1,
    token_share: Annotated[float, "share of word vectors set to zero", Interval(0, below=1), _TOKENS] = 0.15,
    feature_share: Annotated[float, "share of dimensions set to zero", Interval(0, below=1), _FEATURES] = 0.2,
    dropout: Annotated[float, "dropout rate", Interval(0, below=1), _DROPOUT] = 0.2,
) -> Setup:
    """Contrasts images with longer, shorter and noisy texts (AsCL, Gong et al. 2024, eq. 5 to 7).

    Every text of a batch gets a negative, by noise, and a positive, from another text of its image or its own first
    words; the positive gets a negative, too. All negatives that score below the positive count in the image-to-text
    loss. The model's losses are computed once more with the added positives, and each half counts half. Noise on word
    vectors needs a model that compares words (ascl, scan, chan, imram).

    Args:
        setup: What the model, its objective and its batches are so far.
        negatives: Noise that makes a negative text; mixture: one of four kinds per text.
        positives: One more positive text: two captions joined, a part of one, or either.
        shuffle: Shuffle words, or word vectors (no effect where scores ignore order).
        concatenate: Long text: the text and another, or any two of the image.
        outscoring: Also count negatives that score above the positive (alpha is 1).
        gaussian_std: Standard deviation of added noise, relative to the vectors.
        token_share: Share of word vectors set to zero.
        feature_share: Share of dimensions set to zero.
        dropout: Dropout rate.

    Returns:
        The changed setup.

    Raises:
        RecipeError: If it would change nothing, is named twice, or does not fit the encoders or the losses of the
            model.
    """
    from dataclasses import replace

    from subtext.models.encoders.words import Bag
    from subtext.models.heads.parts import FusedMean, Parts
    from subtext.objectives.generation import Rates
    from subtext.objectives.objective import Objective
    from subtext.recipes.methods.asymmetry.rewriting import Rewriting

    if negatives == "none" and positives == "none":
        raise RecipeError("asymmetry makes no text with negatives=none and positives=none; leave the method out")
    if any(isinstance(extra, Rewriting) for extra in setup.extras):
        raise RecipeError("asymmetry is named twice; name it once")
    head = setup.model.text.head
    if negatives != "none":
        # Noise must have something to act on, and change it. A mixture shuffles some texts: with a bag of words these
        # negatives would equal the positive.
        on_words = negatives == "shuffle" and shuffle == "input"
        if not on_words and not (isinstance(head, Parts) or (isinstance(head, FusedMean) and head.keep)):
            raise RecipeError(
                "noise on word vectors needs a model that compares words (ascl, scan, chan, imram); the text head of "
                f"this one is {type(head).__name__}; choose negatives=shuffle, negatives=none, or another model"
            )
        if shuffle == "input" and negatives in ("mixture", "shuffle") and isinstance(setup.model.text.encoder, Bag):
            alternative = "" if on_words else ", or other noise (negatives=gaussian, cutoff or dropout)"
            raise RecipeError(
                "shuffling needs an encoder that reads the order of words; a bag ignores it; choose text=gru"
                f"{alternative}"
            )
    rewriting = Rewriting(
        negatives=negatives,
        positives=positives,
        shuffle_at=shuffle,
        concatenate=concatenate,
        outscoring=outscoring,
        unit_parts=bool(getattr(getattr(head, "parts", head), "normalise", False)),
        rates=Rates(gaussian_std, token_share, feature_share, dropout),
    )
    parts: dict[str, Term | Penalty] = {}
    for name, part in setup.objective.parts.items():
        parts[name] = part
        if not _ranks(part):
            continue
        images = part.on == "image_to_text"
        weight = part.weight if positives == "none" else part.weight / 2
        parts[name] = replace(part, on="image_to_noised" if images and negatives != "none" else part.on, weight=weight)
        if positives != "none":
            on = "image_to_rewritten" if images else "rewritten_to_image"
            parts[f"{name}, rewritten"] = replace(part, on=on, weight=weight)
    if not any(map(_ranks, setup.objective.parts.values())):
        raise RecipeError(
            "asymmetry needs a model that ranks images and texts by a softmax or a triplet loss; this objective has "
            f"{', '.join(parts)}; choose another model"
        )
    return replace(setup, objective=Objective(parts), extras=(*setup.extras, rewriting))


def _ranks(part: Term | Penalty) -> TypeGuard[Term]:
    """Whether a part is a loss between images and texts that can read more texts.

    Raises:
        RecipeError: If it has sample weights or sampled negatives, which are defined for the batch's texts alone.
    """
    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.ratio import Ratio
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Term

    if not isinstance(part, Term) or part.on not in DIRECTIONS or not isinstance(part.loss, InfoNCE | Ratio | Triplet):
        return False
    if part.weighting is not None or part.mining is not None:
        raise RecipeError(
            "asymmetry extends the losses between images and texts; one of them has sample weights or sampled "
            "negatives, which are defined for the batch's texts alone; use one of these methods"
        )
    return True
