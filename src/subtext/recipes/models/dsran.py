"""DSRAN (Wen et al. 2020): graph attention among regions and cells, and a gate; a dual encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.recipes.options import Pictures, Pixels, Regions, Words
from subtext.training.option_marks import Span, When
from subtext.training.plan import Plan

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext
    from subtext.training.setup import Setup

_REGIONS = When("image", ("regions", "regions beside a vector"), needs="image=features of regions")
PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, factor=0.1, positives="pair")


def dsran(
    context: BuildContext,
    *,
    pictures: Pictures = Pictures(),
    regions: Regions = Regions(append_pooled=True),
    pixels: Pixels = Pixels(flip=0.5),
    words: Words = Words(),
    width: Annotated[int, "width of the joint space, and of the GRU", Span(1)] = 1024,
    cells: Annotated[
        int, "features: how many of the first parts are cells of a grid; the rest are regions", Span(0), _REGIONS
    ] = 0,
    joint: Annotated[int, "graphs of all parts together; 2 have a gate between them", Span(1, 3)] = 2,
    dropout: Annotated[float, "dropout inside the graphs", Span(0, 1)] = 0.2,
    margin: Annotated[float, "margin, in cosine", Span(0)] = 0.2,
    easy_epochs: Annotated[int, "epochs over all negatives before the hardest one alone", Span(0)] = 0,
) -> Setup:
    """DSRAN: regions attend to regions, cells to cells, then all to all; words attend to words; a triplet loss.

    Vectors alone decide the score, so it fills an index. Without `cells` all parts are of one kind: regions, or the
    cells of a backbone. The schedule is that of VSE++, on which the authors built.
    """
    from subtext.models.encoders.recurrent import GruShape
    from subtext.models.heads.graph import Graph
    from subtext.models.model import Branch, Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.pairwise import ranked

    image = image_side(context, pictures, pixels, regions)
    text = text_side(context, words, GruShape(width, words.word_width, words.gru_layers, words.both_directions))
    image_head = Graph(image.encoder.parts_width, width, cells=cells, joint=joint, dropout=dropout)
    text_head = Graph(text.encoder.parts_width, width, joint=0, dropout=dropout)
    model = Model(
        Branch(image.input_spec, image.encoder, image_head), Branch(text.input_spec, text.encoder, text_head), Cosine()
    )
    return ranked(model, margin=margin, plan=PLAN, easy_epochs=easy_epochs)
