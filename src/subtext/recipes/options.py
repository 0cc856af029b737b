"""What every host can be told about its two sides; each field is a command-line option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from subtext.errors import RecipeError


@dataclass(frozen=True)
class Pictures:
    """What reads the pictures of a host."""

    image: Annotated[str, "auto (features, else tiny), features, tiny, a backbone's name or folder, timm:NAME"] = "auto"
    weights: Annotated[Literal["pretrained", "random"], "what the picture backbone starts from"] = "pretrained"
    feature_scaling: Annotated[
        Literal["none", "unit", "standard"], "precomputed features: as they are, of unit length, or standardised"
    ] = "none"
    feature_dropout: Annotated[float, "share of precomputed features' numbers zeroed while training"] = 0.0
    region_drop: Annotated[float, "share of precomputed regions hidden while training"] = 0.0
    append_pooled: Annotated[bool, "the pooled feature as one more region"] = False


@dataclass(frozen=True)
class Pixels:
    """How pictures that are not precomputed features become pixels."""

    image_size: Annotated[int, "side of a picture in pixels; 0 for the backbone's own"] = 0
    resize: Annotated[
        Literal["auto", "crop", "squash"], "middle square, or the whole picture squashed; auto: as the backbone learnt"
    ] = "auto"
    flip: Annotated[float, "share of pictures mirrored while training"] = 0.0
    least_area: Annotated[float, "random crops of this share of a picture or more while training; 1 for none"] = 1.0
    erase: Annotated[float, "share of pictures with a random rectangle erased while training"] = 0.0


@dataclass(frozen=True)
class Words:
    """The text side of a host."""

    text: Annotated[
        str,
        "auto (features, else the host's own), gru, bag (of words), features, a BERT-like backbone's name or folder",
    ] = "auto"
    text_weights: Annotated[Literal["pretrained", "random"], "what the text backbone starts from"] = "pretrained"
    text_pooling: Annotated[Literal["cls", "mean"], "text backbone: which vector stands for the whole text"] = "cls"
    text_scaling: Annotated[
        Literal["none", "unit", "standard"], "text features: as they are, of unit length, or standardised"
    ] = "standard"
    min_count: Annotated[int, "gru, bag: words seen less often in the training texts are unknown"] = 1
    max_tokens: Annotated[int, "longest text in words or subwords; the rest is cut"] = 64
    word_width: Annotated[int, "gru, bag: width of the word embedding; dual: 0 for what suits the encoder"] = 300
    gru_layers: Annotated[int, "gru: layers"] = 1
    both_directions: Annotated[bool, "gru: read from the end as well"] = True
    word_drop: Annotated[float, "gru, bag: share of words left out while training"] = 0.0
    token_mask: Annotated[float, "share of words or subwords masked while training"] = 0.0
    word_dropout: Annotated[float, "gru, bag: share of the embedding's numbers zeroed while training"] = 0.0


@dataclass(frozen=True)
class Ranking:
    """What ranks the pairs of a host that was published with a triplet loss."""

    loss: Annotated[Literal["triplet", "softmax"], "triplet as published, or a softmax over the batch (InfoNCE)"] = (
        "triplet"
    )
    temperature: Annotated[float, "softmax: temperature of the scores"] = 0.05

    def refuse_unused(self, changed: Mapping[str, bool]) -> None:
        """Raise RecipeError for an option that was changed and belongs to the other loss.

        changed  options of the triplet loss -> whether they are not at their defaults
        """
        unused = [name for name, is_changed in changed.items() if is_changed]
        if self.loss == "triplet":
            unused = [] if self.temperature == Ranking.temperature else ["temperature"]
        if unused:
            other = "softmax" if self.loss == "triplet" else "triplet"
            raise RecipeError(
                f"{', '.join(unused)} needs loss={other}; the loss is {self.loss}; leave it out, or change the loss"
            )
