"""Options that several models or methods share; each field is a command-line option.

`Requires` beside a help says what reads the option. One that was changed and that nothing reads is refused: `build`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.settings import Interval, IsPath
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.training.setup import BuildContext as BuildContext, Setup as Setup
else:
    # Recipes annotate with these types, and the catalogue reads recipes without torch.
    BuildContext = Setup = object

GIVEN = "object:"
"""Begins the name of an encoder that was given as an object."""
InitialWeights = Literal["pretrained", "frozen", "random"]
_FEATURES = Requires("image", ("features",))
_REGIONS = Requires("image", ("regions",), needs="image=features of regions, and a model that reads them")
_BOTH = Requires("image", ("regions beside a vector",), needs="image=features of regions and of whole images")
_PIXELS = Requires("image", ("pixels",), needs="image=tiny or a backbone")
_DETECTOR = Requires("image", ("detector",), needs="image=detector:NAME")
_BACKBONE = Requires("text", ("backbone",), needs="text=NAME of a backbone")
_VOCABULARY = Requires("text", ("gru", "bag"))
_GRU = Requires("text", ("gru",))
_TWO = Requires("combine", ("image", "text", "mean"), needs="combine other than image, text and mean", negated=True)
_TOKENS = Requires("text", ("gru", "bag", "backbone"), needs="text=gru, bag or a backbone")
_SIGN = Requires("sign", ("0.0",), needs="a sign other than 0", negated=True)
_GAMMA = Requires("gamma", ("0.0",), needs="gamma other than 0", negated=True)
_MULTISET = Requires("second_order", ("multiset",), needs="second_order=multiset")
_LENGTH = Requires("text", ("gru", "bag", "backbone", "starter"), needs="text=gru, bag, starter or a backbone")


@dataclass(frozen=True)
class PixelOptions:
    """How images that are not precomputed features become pixels."""

    image_size: Annotated[
        int, "pixels: height and width of the input; 0 for the size of the backbone", Interval(0), _PIXELS
    ] = 0
    resize: Annotated[
        Literal["auto", "crop", "squash"],
        "pixels: crop the centre, or squash the complete image; auto: as in the training of the backbone",
        _PIXELS,
    ] = "auto"
    flip: Annotated[float, "pixels: probability of a horizontal flip while training", _PIXELS] = 0.0
    min_crop_area: Annotated[
        float, "pixels: smallest share of the image in a random crop while training; 1 for no crop", _PIXELS
    ] = 1.0
    random_erasing: Annotated[float, "pixels: probability of erasing a random rectangle while training", _PIXELS] = 0.0


@dataclass(frozen=True)
class InputOptions(PixelOptions):
    """How a model encodes images and texts."""

    image: Annotated[
        str,
        "image encoder: auto (features; else, in dual, starter where it is installed; else tiny), features, tiny, "
        "starter, a backbone's name or folder, timm:NAME, detector:NAME",
    ] = "auto"
    image_weights: Annotated[
        InitialWeights, "initial weights of the backbone; frozen: pretrained, and they never learn", _PIXELS
    ] = "pretrained"
    feature_scaling: Annotated[
        Literal["none", "unit", "standard"], "leave as they are, scale to unit length, or standardise", _FEATURES
    ] = "none"
    feature_dropout: Annotated[float, "dropout of the features", Interval(0, below=1), _FEATURES] = 0.0
    max_regions: Annotated[int, "detector: keep the N most confident boxes per image", Interval(1), _DETECTOR] = 36
    min_confidence: Annotated[float, "detector: drop boxes below this probability", Interval(0, below=1), _DETECTOR] = (
        0.0
    )
    text: Annotated[
        str,
        "text encoder: auto (features; else, in dual, starter where it is installed; else the model's default), gru, "
        "bag (of words), features, starter, or the name or folder of a BERT-like backbone",
    ] = "auto"
    text_weights: Annotated[
        InitialWeights, "initial weights of the text backbone; frozen: pretrained, and they never learn", _BACKBONE
    ] = "pretrained"
    text_pooling: Annotated[
        Literal["cls", "mean"],
        "text backbone: which output represents the complete text",
        _BACKBONE,
        Requires(
            "text", ("whole",), needs="a model that reads one vector of the text (vse, pvse, or dual by pooling=last)"
        ),
    ] = "cls"
    text_scaling: Annotated[
        Literal["none", "unit", "standard"],
        "leave as they are, scale to unit length, or standardise",
        Requires("text", ("features",)),
    ] = "standard"
    min_count: Annotated[
        int, "treat words with fewer occurrences in the training texts as unknown", Interval(1), _VOCABULARY
    ] = 1
    max_tokens: Annotated[int, "longest text in words or subwords; the rest is cut", Interval(1), _LENGTH] = 64
    word_dim: Annotated[int, "dimension of the word embedding; 0: depends on the encoder", Interval(0), _VOCABULARY] = (
        300
    )
    word_vectors: Annotated[
        Literal["random", "doc2vec"],
        "initial word embedding: random, or learnt by Doc2Vec on the training texts (needs gensim)",
        _VOCABULARY,
    ] = "random"
    gru_layers: Annotated[int, "layers", Interval(1), _GRU] = 1
    bidirectional: Annotated[bool, "read the text in both directions", _GRU] = True
    token_dropout: Annotated[float, "share of words left out while training", Interval(0, below=1), _VOCABULARY] = 0.0
    token_mask: Annotated[float, "share of words or subwords masked while training", Interval(0, below=1), _TOKENS] = (
        0.0
    )
    embedding_dropout: Annotated[float, "dropout of the word embedding", Interval(0, below=1), _VOCABULARY] = 0.0


@dataclass(frozen=True)
class RegionInputOptions(InputOptions):
    """The same for a model that reads an image by its parts; its regions may be precomputed."""

    region_dropout: Annotated[
        float, "share of precomputed regions hidden while training", Interval(0, below=1), _REGIONS
    ] = 0.0
    append_pooled: Annotated[bool, "add the feature of the whole image as one more region", _BOTH] = False
    boxes: Annotated[
        bool, "append the box of each region, relative to the image size; the feature file needs boxes", _REGIONS
    ] = False


@dataclass(frozen=True)
class RankingOptions:
    """The ranking loss of a model that was published with a triplet loss."""

    loss: Annotated[Literal["triplet", "softmax"], "triplet as published, or a softmax over the batch (InfoNCE)"] = (
        "triplet"
    )
    temperature: Annotated[float, "temperature of the scores", Requires("loss", ("softmax",))] = 0.05


TotalWeight = Annotated[float, "lambda, the sum of the weights over a batch"]
ReferenceBatch = Annotated[int, "batch size that total_weight is for; 0 for the batch as it is", Interval(0)]
AverageDirections = Annotated[bool, "average both directions, as in the paper; off: keep the model's own scale"]
DropLast = Annotated[bool, "drop the last batch of an epoch if it is smaller"]


@dataclass(frozen=True)
class WeightOptions:
    """How large weights are, and how those of the two modalities are combined."""

    total_weight: Annotated[float, "lambda, the sum of the weights over a batch; 96 to 196 in the paper"] = 196.0
    reference_batch: ReferenceBatch = 32
    sign: Annotated[float, "Gamma: -1 gives pairs in diverse neighbourhoods more weight, 1 less, 0 all the same"] = -1.0
    combine: Annotated[
        Literal["absdiff", "difference", "sum", "product", "maximum", "image", "text", "mean"],
        "combination of image and text weights; mean: of their scores, before the softmax",
        _SIGN,
    ] = "absdiff"
    total_placement: Annotated[
        Literal["both", "outer", "inner", "scores"],
        "where lambda is applied; inner as printed, nearly uniform",
        _TWO,
        _SIGN,
    ] = "both"
    control: Annotated[
        Literal["none", "permuted", "random"],
        "control: give each pair the scores of another, the same one in all epochs (permuted) or a new one (random)",
        _SIGN,
    ] = "none"
    average_directions: AverageDirections = True
    drop_last: DropLast = True


@dataclass(frozen=True)
class NeighbourOptions:
    """Which neighbours scores are made from, and of which embeddings."""

    graph: Annotated[str, "folder written by `subtext neighbours build`", IsPath()] = ""
    neighbours: Annotated[int, "nearest neighbours used; 0 for all of the graph's", Interval(0), _SIGN] = 0
    views: Annotated[
        Literal["max", "mean", "aligned"], "compare several views by the best pair, all pairs, or view by view", _SIGN
    ] = "max"
    samples: Annotated[
        int,
        "second-order neighbours sampled per pair and epoch; 0 for all",
        Interval(0),
        Requires("views", ("max",)),
        _MULTISET,
        _GAMMA,
        _SIGN,
    ] = 1000
    bank: Annotated[
        Literal["training", "complete", "evaluation"],
        "embeddings of the epoch's own steps; complete: also of the rest, by a pass after it; evaluation: all by it",
        _SIGN,
    ] = "training"
    first_epoch: Annotated[
        Literal["uniform", "encode"], "first epoch: uniform weights, or those of a pass before it", _SIGN
    ] = "uniform"
    storage_dtype: Annotated[Literal["float32", "float16"], "type of the stored embeddings", _SIGN] = "float32"
    weight_tables: Annotated[
        Literal["read", "all"],
        "pairs scored in the run's tables/: those that an epoch reads, or all",
        Requires("mode", ("stats",), needs="mode=val, since stats scores all", negated=True),
        Requires("control", ("permuted", "random"), needs="control=none, since controls score all", negated=True),
    ] = "read"


@dataclass(frozen=True)
class DiscrepancyOptions:
    """What discrepancy compares a pair with."""

    second_order: Annotated[
        Literal["multiset", "unique", "direct"],
        "neighbours of neighbours, each once, or the neighbours themselves",
        _GAMMA,
        _SIGN,
    ] = "multiset"
    average: Annotated[
        Literal["pairs", "lists"],
        "average over all listed pairs, or over the means of the lists",
        _MULTISET,
        _GAMMA,
        _SIGN,
    ] = "pairs"
    use_current: Annotated[bool, "use the pair's current embedding, not that of the epoch before", _GAMMA, _SIGN] = (
        False
    )
