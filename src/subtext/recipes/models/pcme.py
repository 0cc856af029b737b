"""PCME (Chun et al. 2021): items are normal distributions, compared by samples from both."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from subtext.recipes.options import BuildContext, RegionInputOptions, Setup
from subtext.settings import Interval
from subtext.training.plan import Plan, Requires

_SAMPLES = Requires("rank_by", ("samples",))
_KL = Requires("kl_weight", ("0", "0.0"), needs="kl_weight above 0", negated=True)
PLAN = Plan(epochs=30, batch_size=128, lr=2e-4, optimiser="adamp", schedule="cosine", positives="pair")


def pcme(
    context: BuildContext,
    *,
    inputs: RegionInputOptions = RegionInputOptions(random_erasing=0.2, token_dropout=0.1),
    embed_dim: Annotated[int, "dimension of the joint space and of the GRU", Interval(1)] = 1024,
    samples: Annotated[int, "samples per item; DAA paper: 5", Interval(1)] = 7,
    rank_by: Annotated[Literal["samples", "mean"], "rank by the samples, or by the means"] = "samples",
    sample_seed: Annotated[int, "seed of the samples outside training", _SAMPLES] = 0,
    init_log_std: Annotated[float, "initial log standard deviation; paper: 0"] = -3.0,
    init_scale: Annotated[float, "initial scale of distances, learnt; paper: 5 on CUB"] = 15.0,
    init_shift: Annotated[float, "initial shift of distances, learnt; paper: 5 on CUB"] = 15.0,
    kl_weight: Annotated[float, "weight of the KL divergence from N(0, 1); paper: 1e-3 on CUB", Interval(0)] = 1e-5,
    kl_variance: Annotated[
        Literal["published", "consistent"],
        "log variance in the divergence: log_std as in the published code, or 2 log_std",
        _KL,
    ] = "published",
    uniformity_weight: Annotated[float, "weight of the uniformity of samples; paper: 10 on CUB", Interval(0)] = 0.0,
) -> Setup:
    """PCME: K samples per item, a match probability over all pairs of samples, and a soft contrastive loss.

    The text's parts are word embeddings, the image's are cells or regions, as for `pvse`. With a BERT-like text
    (`text=NAME`) it is PCME-bert. Samples are functions of seed, epoch and the item's name, so a ranking is
    reproducible. Published with 30 epochs of the heads and then 30 of everything, at a tenth of the rate: with a
    pretrained image backbone give `epochs=60 freeze_epochs=30 backbone_lr_scale=0.1`.

    Args:
        context: The data set, and what its texts and features are like.
        inputs: How images and texts are encoded.
        embed_dim: Dimension of the joint space and of the GRU.
        samples: Samples per item; DAA paper: 5.
        rank_by: Rank by the samples, or by the means.
        sample_seed: Seed of the samples outside training.
        init_log_std: Initial log standard deviation; paper: 0.
        init_scale: Initial scale of distances, learnt; paper: 5 on CUB.
        init_shift: Initial shift of distances, learnt; paper: 5 on CUB.
        kl_weight: Weight of the KL divergence from N(0, 1); paper: 1e-3 on CUB.
        kl_variance: Log variance in the divergence: log_std as in the published code, or 2 log_std.
        uniformity_weight: Weight of the uniformity of samples; paper: 10 on CUB.

    Returns:
        The model, its objective and its plan.

    Raises:
        RequirementError: For an encoder or a feature file that is not available.
    """
    from subtext.models.encoders.language import Language
    from subtext.models.encoders.words import Recurrent
    from subtext.models.heads.gaussian import Gaussian, Spread
    from subtext.models.heads.parts import Pie
    from subtext.models.similarity.probabilistic import MatchProbability
    from subtext.objectives.losses.soft_contrastive import SoftContrastive
    from subtext.objectives.objective import Penalty
    from subtext.objectives.regularisers import KL, Uniformity
    from subtext.recipes.encoders import image_side, text_side
    from subtext.recipes.parts import gaussian_terms, setup_of

    image = image_side(context, inputs)
    text = text_side(context, inputs, embed_dim, parts="words")
    sampling: dict[str, Any] = {"draws": samples, "seed": sample_seed}
    sampling["drawn"] = "always" if rank_by == "samples" else "learning"
    heads = []
    for name, encoder in (("image", image.encoder), ("text", text.encoder)):
        parts_width, pooled_width = encoder.parts_width, encoder.pooled_width
        language, gru = isinstance(encoder, Language), isinstance(encoder, Recurrent)
        if language:
            mean = Pie(parts_width, parts_width, embed_dim, base="parts")
        else:
            # A GRU over words has the dimension of the joint space; anything else needs a map to it.
            mean = Pie(parts_width, pooled_width, embed_dim, project=not gru or pooled_width != embed_dim)
        # Words that come in order have a GRU of their own for the spread.
        ordered = language or gru
        spread = Spread(parts_width, embed_dim, pooled_width=pooled_width, recurrent=ordered, start=init_log_std)
        heads.append(Gaussian(mean, spread, embed_dim, side=name, **sampling))
    divergence = KL(published=kl_variance == "published")
    parts = gaussian_terms(SoftContrastive(), divergence, reduction="sum", weight=kl_weight)
    if uniformity_weight:
        parts["uniformity"] = Penalty(Uniformity(), uniformity_weight)
    similarity = MatchProbability(scale=init_scale, shift=init_shift)
    return setup_of((image, text), (heads[0], heads[1]), similarity, parts, PLAN)
