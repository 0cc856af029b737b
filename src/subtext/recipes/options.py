"""What every host can be told about its two sides; each field is a command-line option.

A `When` beside a help says what reads the option. One that was changed and that nothing reads is refused: `unread`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from subtext.training.option_marks import Span, When

_FEATURES = When("image", ("features",))
_REGIONS = When("image", ("regions",), needs="image=features of regions, and a host that reads them")
_BOTH = When("image", ("regions beside a vector",), needs="image=features of regions and of whole pictures")
_PIXELS = When("image", ("pixels",), needs="image=tiny or a backbone")
_DETECTOR = When("image", ("detector",), needs="image=detector:NAME")
_BACKBONE = When("text", ("backbone",), needs="text=NAME of a backbone")
_VOCABULARY = When("text", ("gru", "bag"))
_GRU = When("text", ("gru",))
_TOKENS = When("text", ("gru", "bag", "backbone"), needs="text=gru, bag or a backbone")


@dataclass(frozen=True)
class Pictures:
    """What reads the pictures of a host."""

    image: Annotated[
        str, "auto (features, else tiny), features, tiny, a backbone's name or folder, timm:NAME, detector:NAME"
    ] = "auto"
    weights: Annotated[Literal["pretrained", "random"], "backbone: what it starts from", _PIXELS] = "pretrained"
    feature_scaling: Annotated[
        Literal["none", "unit", "standard"], "as they are, of unit length, or standardised", _FEATURES
    ] = "none"
    feature_dropout: Annotated[float, "share of their numbers zeroed while training", Span(0, 1), _FEATURES] = 0.0
    detected: Annotated[int, "detector: the surest so many boxes are a picture's regions", Span(1), _DETECTOR] = 36
    least_sure: Annotated[float, "detector: boxes less probable are hidden", Span(0, 1), _DETECTOR] = 0.0


@dataclass(frozen=True)
class Regions:
    """Precomputed regions, for a host that reads a picture by its parts."""

    region_drop: Annotated[float, "share of precomputed regions hidden while training", Span(0, 1), _REGIONS] = 0.0
    append_pooled: Annotated[bool, "the whole picture's feature as one more region", _BOTH] = False
    boxes: Annotated[
        bool, "where each region lies, beside its features: four shares; FILE has to have boxes", _REGIONS
    ] = False


@dataclass(frozen=True)
class Pixels:
    """How pictures that are not precomputed features become pixels."""

    image_size: Annotated[int, "pixels: side of a picture in pixels; 0 for the backbone's own", Span(0), _PIXELS] = 0
    resize: Annotated[
        Literal["auto", "crop", "squash"],
        "pixels: middle square, or the whole picture squashed; auto: as the backbone learnt",
        _PIXELS,
    ] = "auto"
    flip: Annotated[float, "pixels: share of pictures mirrored while training", _PIXELS] = 0.0
    least_area: Annotated[
        float, "pixels: random crops of this share of a picture or more while training; 1 for none", _PIXELS
    ] = 1.0
    erase: Annotated[float, "pixels: share of pictures with a random rectangle erased while training", _PIXELS] = 0.0


@dataclass(frozen=True)
class Words:
    """The text side of a host."""

    text: Annotated[
        str,
        "auto (features, else the host's own), gru, bag (of words), features, a BERT-like backbone's name or folder",
    ] = "auto"
    text_weights: Annotated[Literal["pretrained", "random"], "text backbone: what it starts from", _BACKBONE] = (
        "pretrained"
    )
    text_pooling: Annotated[
        Literal["cls", "mean"],
        "text backbone: which vector is the whole text's",
        _BACKBONE,
        When("text", ("whole",), needs="a host that reads one vector of the text (vse, pvse, or dual by pooling=last)"),
    ] = "cls"
    text_scaling: Annotated[
        Literal["none", "unit", "standard"],
        "as they are, of unit length, or standardised",
        When("text", ("features",)),
    ] = "standard"
    min_count: Annotated[int, "words seen less often in the training texts are unknown", Span(1), _VOCABULARY] = 1
    max_tokens: Annotated[int, "longest text in words or subwords; the rest is cut", Span(1), _TOKENS] = 64
    word_width: Annotated[
        int, "width of the word embedding; dual: 0 for what suits the encoder", Span(0), _VOCABULARY
    ] = 300
    gru_layers: Annotated[int, "layers", Span(1), _GRU] = 1
    both_directions: Annotated[bool, "read from the end as well", _GRU] = True
    word_drop: Annotated[float, "share of words left out while training", Span(0, 1), _VOCABULARY] = 0.0
    token_mask: Annotated[float, "share of words or subwords masked while training", Span(0, 1), _TOKENS] = 0.0
    word_dropout: Annotated[
        float, "share of the embedding's numbers zeroed while training", Span(0, 1), _VOCABULARY
    ] = 0.0


@dataclass(frozen=True)
class Ranking:
    """What ranks the pairs of a host that was published with a triplet loss."""

    loss: Annotated[Literal["triplet", "softmax"], "triplet as published, or a softmax over the batch (InfoNCE)"] = (
        "triplet"
    )
    temperature: Annotated[float, "temperature of the scores", When("loss", ("softmax",))] = 0.05
