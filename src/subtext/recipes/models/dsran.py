"""DSRAN (Wen et al. 2020): graph attention among regions and cells, and a gate; a dual encoder."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_REGIONS = Requires("image", ("regions", "regions beside a vector"), needs="image=features of regions")
PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, schedule="step", step_epochs=15, lr_factor=0.1, positives="pair")


def dsran(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(append_pooled=True, flip=0.5),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    grid_cells: Annotated[
        int, "features: number of leading parts that are grid cells; the rest are regions", Interval(0), _REGIONS
    ] = 0,
    joint_layers: Annotated[
        int, "graph layers over all parts together; 2 have a gate between them", Interval(1, below=3)
    ] = 2,
    dropout: Annotated[float, "dropout inside the graphs", Interval(0, below=1)] = 0.2,
    margin: Annotated[float, "margin, in cosine", Interval(0)] = 0.2,
    all_negatives_epochs: Annotated[int, "number of first epochs with all negatives", Interval(0)] = 0,
) -> Setup:
    """DSRAN: graph attention within regions, cells and words, then over regions and cells; a triplet loss.

    Vectors alone decide the score, so it fills an index. Without `grid_cells` all parts are of one kind: regions, or
    the cells of a backbone. The schedule is that of VSE++, on which the authors built.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space and of the GRU.
        grid_cells: Features: number of leading parts that are grid cells; the rest are regions.
        joint_layers: Graph layers over all parts together; 2 have a gate between them.
        dropout: Dropout inside the graphs.
        margin: Margin, in cosine.
        all_negatives_epochs: Number of first epochs with all negatives.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.heads.graph import GraphAttention
    from subtext.models.similarity.cosine import Cosine
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import hardest_negative_triplet, setup_of

    image, text = image_side(context, inputs), text_side(context, inputs, embed_dim)
    heads = (
        GraphAttention(image.encoder.parts_width, embed_dim, cells=grid_cells, joint=joint_layers, dropout=dropout),
        GraphAttention(text.encoder.parts_width, embed_dim, joint=0, dropout=dropout),
    )
    terms, options = hardest_negative_triplet(margin, all_negatives_epochs), ("margin", "all_negatives_epochs")
    return setup_of((image, text), heads, Cosine(), terms, PLAN, loss_options=options)
