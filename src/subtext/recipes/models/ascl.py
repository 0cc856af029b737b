"""AsCL's model (Gong et al. 2024): cross attention both ways, local and global; its texts are made by `asymmetry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from subtext.data.build_context import BuildContext
    from subtext.models.model import Model
    from subtext.objectives.objective import Objective
    from subtext.recipes.pairwise import Sides
    from subtext.training.setup import Setup

FusionOption = Literal["gated", "mean", "sum", "concat", "none"]
LossOption = Literal["softmax", "ratio", "triplet"]
_TRIPLET = When("loss", ("triplet",))
_ATTENTION = When("attention", ("True",), needs="attention=True")
PLAN = Plan(
    epochs=20,
    batch_size=64,
    lr=5e-4,
    schedule="step",
    step_epochs=10,
    factor=0.1,
    freeze_epochs=-1,
    positives="pair",
)


def ascl(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    width: Annotated[int, "width of the joint space, and of each direction of a GRU", Span(1)] = 1024,
    attention: Annotated[bool, "cross attention; without it (w/o MF) a cosine, which can be indexed"] = True,
    heads: Annotated[int, "heads, which divide the width; 0 for 8 where they do", Span(0), _ATTENTION] = 0,
    local_share: Annotated[float, "share of the local score; 0.6 on Flickr30K", Span(0, 1.0001), _ATTENTION] = 0.8,
    directions: Annotated[
        Literal["apart", "shared"], "parameters of words that ask and of regions that ask", _ATTENTION
    ] = "apart",
    fusion: Annotated[FusionOption, "how the whole picture's feature joins its regions; none leaves it out"] = "gated",
    temperature: Annotated[float, "temperature of the scores; 0.01 on Flickr30K"] = 0.05,
    bf16: Annotated[bool, "scores in bfloat16 where the machine has it; training stays in float32", _ATTENTION] = False,
    loss: Annotated[LossOption, "softmax (InfoNCE), its ratios as printed, or the hardest negative"] = "softmax",
    margin: Annotated[float, "margin, in scores that are not divided", Span(0), _TRIPLET] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0), _TRIPLET] = 0,
) -> Setup:
    """AsCL's similarity and a softmax over the batch (its ablation w/o P&N); `--with asymmetry` makes it AsCL.

    A pretrained text backbone stays as it is unless told (`freeze_epochs`): the published rate would destroy it.
    """
    from subtext.models.similarity.ascl import Ascl
    from subtext.recipes.pairwise import model_of, pair_sides, parts_heads
    from subtext.training.setup import Setup

    sides = pair_sides(context, (pictures, pixels, regions), words, width)
    if attention:
        similarity = Ascl(
            width=width,
            heads=heads,
            local_share=local_share,
            fusion=fusion,
            directions=directions,
            temperature=temperature,
            bf16=bf16,
        )
        reads_whole = fusion != "none" and local_share < 1
        model = model_of(sides, parts_heads(sides, width, unit=False, pooled=reads_whole), similarity)
    else:
        model = _without_attention(sides, width, fusion=fusion, temperature=temperature)
    return Setup(model=model, objective=_objective(loss, temperature, margin, easy_epochs), plan=PLAN)


def _objective(loss: LossOption, temperature: float, margin: float, easy_epochs: int) -> Objective:
    """Both directions, summed as printed. A triplet's margin and value are of scores that are not divided."""
    from subtext.core import DIRECTIONS
    from subtext.objectives.losses.infonce import InfoNCE
    from subtext.objectives.losses.ratio import Ratio
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.pairwise import hinges

    if loss == "triplet":
        return Objective({**hinges(margin / temperature, easy_epochs, reduction="mean", weight=temperature)})
    value = Ratio() if loss == "ratio" else InfoNCE()
    return Objective({side: Term(value, on=side) for side in DIRECTIONS})


def _without_attention(sides: Sides, width: int, *, fusion: FusionOption, temperature: float) -> Model:
    """A dual encoder: means of regions, fused with the whole picture's feature, and of words."""
    from subtext.models.heads.parts import Fused
    from subtext.models.similarity.cosine import Cosine
    from subtext.recipes.pairwise import model_of, parts_heads

    image, text = parts_heads(sides, width, unit=False, pooled=fusion != "none")
    heads: tuple[nn.Module, nn.Module] = (Fused(image, width, fusion), Fused(text, width, "none", keep=True))
    return model_of(sides, heads, Cosine(temperature=temperature))
