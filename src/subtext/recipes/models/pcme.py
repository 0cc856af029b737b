"""PCME (Chun et al. 2021): items are normal distributions, compared by draws from both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from subtext.data.build_context import BuildContext
    from subtext.recipes.encoders import Side
    from subtext.recipes.probabilistic import Name
    from subtext.training.setup import Setup

PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, optimiser="adamp", schedule="cosine", positives="pair")


def pcme(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(),
    pixels: Pixels = Pixels(erase=0.2),
    words: Words = Words(word_drop=0.1),
    width: Annotated[int, "width of the joint space, and of the GRU", Span(1)] = 1024,
    draws: Annotated[int, "vectors drawn of every item; 5 in the DAA paper", Span(1)] = 7,
    ranking: Annotated[
        Literal["draws", "mean"], "what items are ranked by once trained: their draws, or their means alone"
    ] = "draws",
    draw_seed: Annotated[int, "seed of the draws where nothing is learnt"] = 0,
    log_std: Annotated[float, "what the log deviations start at; 0 as published, which is long in coming down"] = -3.0,
    scale: Annotated[float, "of distances in the match probability, learnt from there; 5 for CUB"] = 15.0,
    shift: Annotated[float, "beside them, learnt from there; 5 for CUB"] = 15.0,
    kl: Annotated[float, "weight of the divergence from a standard normal; 1e-3 for CUB", Span(0)] = 1e-5,
    kl_variance: Annotated[
        Literal["published", "consistent"], "what the divergence takes for the log variance: log_std as that code, or 2"
    ] = "published",
    uniformity: Annotated[float, "weight of the uniformity of a batch's draws; 10 for CUB", Span(0)] = 0.0,
) -> Setup:
    """PCME: K draws an item, a match probability over all pairs of draws, and a soft contrastive loss.

    Words' embeddings are the text's parts, cells or regions the picture's, as for `pvse`. With a BERT-like text
    (`text=NAME`) it is PCME-bert. Draws are functions of seed, epoch and the item's name: what is ranked by them is the
    same every time. Published with 30 epochs of the heads and then 30 of everything, at a tenth of the rate: with a
    pretrained picture backbone give `epochs=60 freeze_epochs=30 encoder_factor=0.1`.
    """
    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.similarity.match_probability import MatchProbability
    from subtext.objectives.losses.soft_contrastive import SoftContrastive
    from subtext.objectives.objective import Objective, Penalty
    from subtext.objectives.regularisers.kl import KL
    from subtext.objectives.regularisers.uniformity import Uniformity
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.probabilistic import model_of, parts_of
    from subtext.training.setup import Setup

    shape = GruShape(width, words.word_width, words.gru_layers, words.both_directions)
    sides: dict[Name, Side] = {
        "image": image_side(context, pictures, pixels, regions),
        "text": text_side(context, words, shape, parts="words"),
    }
    drawn = "always" if ranking == "draws" else "learning"
    told = {"draws": draws, "drawn": drawn, "seed": draw_seed}
    heads = {name: _head(name, side, width, log_std=log_std, told=told) for name, side in sides.items()}
    divergence = KL(published=kl_variance == "published")
    parts = parts_of(SoftContrastive(), divergence, reduction="sum", weight=kl)
    if uniformity:
        parts["uniformity"] = Penalty(Uniformity(), uniformity)
    model = model_of(sides, heads, MatchProbability(scale=scale, shift=shift))
    return Setup(model=model, objective=Objective(parts), plan=PLAN)


def _head(name: Name, side: Side, width: int, *, log_std: float, told: dict[str, Any]) -> Any:
    """Mean and spread from what encodes a side: words that come in order have a GRU of their own for the spread.

    told  further arguments of the gaussian head
    """
    from subtext.models.encoders.language import Language
    from subtext.models.encoders.recurrent import Recurrent
    from subtext.models.heads.gaussian import Gaussian, Spread
    from subtext.models.heads.pie import Pie

    encoder = side.encoder
    parts_width, pooled_width = encoder.parts_width, encoder.pooled_width
    language, ordered = isinstance(encoder, Language), isinstance(encoder, Language | Recurrent)
    mean: nn.Module
    if language:
        mean = Pie(parts_width, parts_width, width, whole="parts")
    else:
        # A GRU over words gives the joint space's width itself; anything else needs a map to it.
        project = not isinstance(encoder, Recurrent) or pooled_width != width
        mean = Pie(parts_width, pooled_width, width, project=project)
    spread = Spread(parts_width, width, pooled_width=pooled_width, recurrent=ordered, start=log_std)
    return Gaussian(mean, spread, width, side=name, **told)
