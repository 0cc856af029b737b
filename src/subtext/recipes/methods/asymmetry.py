"""Asymmetry-sensitive contrast (AsCL, Gong et al. 2024): texts that say more, less, or what a picture does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.errors import RecipeError
from subtext.training.option_marks import Span, When

if TYPE_CHECKING:
    from subtext.models.model import Model
    from subtext.objectives.objective import Penalty, Term
    from subtext.training.setup import Setup

Negatives = Literal["mixture", "gaussian", "shuffle", "cutoff", "token_cutoff", "feature_cutoff", "dropout", "none"]
_GAUSSIAN = When("negatives", ("mixture", "gaussian"))
_SHUFFLE = When("negatives", ("mixture", "shuffle"))
_TOKENS = When("negatives", ("mixture", "cutoff", "token_cutoff"))
_FEATURES = When("negatives", ("mixture", "cutoff", "feature_cutoff"))
_DROPOUT = When("negatives", ("mixture", "dropout"))
_PLACES = "words change places; or their vectors, which is unseen where scores read no order"
_ANY = When("negatives", ("none",), needs="negatives other than none", but=True)
_LONG = When("positives", ("mixed", "long"))


def asymmetry(
    setup: Setup,
    *,
    negatives: Annotated[Negatives, "noise that makes a text wrong; mixture: one of four ways a text"] = "mixture",
    positives: Annotated[
        Literal["mixed", "long", "short", "none"],
        "a further right text: two of the picture's, a part of one, or either",
    ] = "mixed",
    shuffle: Annotated[Literal["input", "embedding"], _PLACES, _SHUFFLE] = "input",
    concatenate: Annotated[
        Literal["own", "any"], "a long text: the text and another, or two drawn anew", _LONG
    ] = "own",
    outscoring: Annotated[bool, "wrong texts that score above the right one count too (alpha is 1)", _ANY] = False,
    gaussian: Annotated[float, "deviation of added noise, of the vectors' own size", Span(0), _GAUSSIAN] = 0.1,
    tokens: Annotated[float, "share of word vectors cut off", Span(0, 1), _TOKENS] = 0.15,
    features: Annotated[float, "share of dimensions cut off", Span(0, 1), _FEATURES] = 0.2,
    dropout: Annotated[float, "share of numbers dropped", Span(0, 1), _DROPOUT] = 0.2,
) -> Setup:
    """Contrasts pictures with texts made to say more, less, or something else (AsCL, Gong et al. 2024, eq. 5 to 7).

    Every text of a batch gives a wrong one, by noise, and a right one, by another text of its picture or by its first
    words; the right one gives a wrong one, too. Pictures tell texts from all wrong ones that score below their own; the
    right ones have the host's losses once more, and each half counts half. Noise on word vectors needs a host that
    compares words (ascl, scan, chan, imram).
    """
    from dataclasses import replace

    from subtext.objectives.generation import Rates
    from subtext.objectives.objective import Objective
    from subtext.training.rewriting import Rewriting

    if negatives == "none" and positives == "none":
        raise RecipeError("asymmetry makes no text with negatives=none and positives=none; leave the method out")
    if setup.rewriting is not None:
        raise RecipeError("asymmetry is named twice; name it once")
    if negatives != "none" and not setup.opened:
        _require_words(setup.model, negatives, shuffle)
    asked = Rewriting(
        negatives=negatives,
        positives=positives,
        shuffle_at=shuffle,
        concatenate=concatenate,
        outscoring=outscoring,
        unit_parts=_unit_words(setup.model),
        rates=Rates(gaussian, tokens, features, dropout),
    )
    parts: dict[str, Term | Penalty] = {}
    for name, part in setup.objective.parts.items():
        if not _ranks(part):
            parts[name] = part
            continue
        parts |= _contrasts(name, part, noisy=negatives != "none", retold=positives != "none")
    if not any(_ranks(part) for part in setup.objective.parts.values()):
        raise RecipeError(
            "asymmetry needs a host that ranks pictures and texts by a softmax or a triplet loss; this objective has "
            f"{', '.join(setup.objective.parts)}; take another host"
        )
    return replace(setup, objective=Objective(parts), rewriting=asked)


def _ranks(part: Term | Penalty) -> bool:
    """Whether a part is a loss between pictures and texts that may read more texts.

    Raises RecipeError where it has sample weights or chosen negatives, which know the batch's own texts alone.
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
            "asymmetry widens the losses between pictures and texts; one of them has sample weights or chosen "
            "negatives, which know the batch's own texts alone; take one of these methods"
        )
    return True


def _contrasts(name: str, part: Term | Penalty, *, noisy: bool, retold: bool) -> dict[str, Term | Penalty]:
    """A term with what it reads besides."""
    from dataclasses import replace

    from subtext.objectives.objective import Term

    assert isinstance(part, Term)
    images = part.on == "image_to_text"
    weight = part.weight / 2 if retold else part.weight
    found: dict[str, Term | Penalty] = {
        name: replace(part, on="image_to_noised" if images and noisy else part.on, weight=weight)
    }
    if retold:
        found[f"{name}, retold"] = replace(part, on="image_to_retold" if images else "retold_to_image", weight=weight)
    return found


def _require_words(model: Model, negatives: Negatives, shuffle: Literal["input", "embedding"]) -> None:
    """Raise RecipeError where noise would find nothing to act on, or change nothing.

    A mixture shuffles some texts: of a bag of words they would be their own copies, taken for wrong.
    """
    from subtext.models.encoders.bag import Bag
    from subtext.models.heads.parts import Fused, Parts

    head = model.text.head
    on_words = negatives == "shuffle" and shuffle == "input"
    if not on_words and not (isinstance(head, Parts) or (isinstance(head, Fused) and head.keep)):
        raise RecipeError(
            f"noise on word vectors needs a host that compares words (ascl, scan, chan, imram); the texts of this one "
            f"end in {type(head).__name__}; take negatives=shuffle, negatives=none, or another host"
        )
    if shuffle == "input" and negatives in ("mixture", "shuffle") and isinstance(model.text.encoder, Bag):
        other = "" if on_words else ", or other noise (negatives=gaussian, cutoff or dropout)"
        raise RecipeError(
            f"shuffling needs an encoder that knows an order of words; a bag has none; take text=gru{other}"
        )


def _unit_words(model: Model) -> bool:
    """Whether word vectors come with unit length."""
    head = model.text.head
    return bool(getattr(getattr(head, "parts", head), "normalise", False))
