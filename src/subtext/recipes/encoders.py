"""The two sides of a model from what a recipe is told and supplied: what is read, and by which encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from subtext.errors import RequirementError

if TYPE_CHECKING:
    from subtext.data.build_context import BuildContext, FeatureShape
    from subtext.data.inputs import Input
    from subtext.data.pixels import PixelInput
    from subtext.data.text import WordInput
    from subtext.models.encoders.backbone import Weights
    from subtext.models.encoders.hub import PictureNumbers
    from subtext.models.encoders.recurrent import GruShape
    from subtext.recipes.options import Pictures, Pixels, Regions, Words


@dataclass(frozen=True)
class Side:
    """What a modality reads and what encodes it; a host adds the head.

    encoder  has `parts_width` and `pooled_width`
    several  whether an item has more than one part, so that attention has something to choose from
    """

    input_spec: Input
    encoder: Any
    several: bool = True


def image_side(context: BuildContext, pictures: Pictures, pixels: Pixels, regions: Regions | None = None) -> Side:
    """The picture side: precomputed features, or pixels and a backbone.

    regions  for a host that reads a picture by its parts

    A new run is built from the options; a saved one from its assets, whose tensors follow.

    Raises RequirementError when features are asked for and not supplied, or a backbone cannot be had.
    """
    from subtext.data.pixels import PixelInput
    from subtext.models.encoders.hub import picture_numbers
    from subtext.models.encoders.precomputed import Precomputed

    saved = context.asset("image")
    kind = _kind(saved, pictures.image, context.image_features, otherwise="tiny")
    if kind == "features":
        input_spec = _feature_input("image", saved, context.image_features, regions)
        mean, std = _statistics(context.image_features)
        encoder = Precomputed(
            input_spec.pooled,
            input_spec.grid,
            scaling=pictures.feature_scaling,
            mean=mean,
            std=std,
            dropout=pictures.feature_dropout,
            append_pooled=regions is not None and regions.append_pooled,
            boxes=input_spec.boxes,
        )
        return Side(input_spec, encoder, several=input_spec.grid is not None)
    if kind.startswith("timm:"):
        return _timm(kind.removeprefix("timm:"), pictures, pixels, saved)
    if kind.startswith("detector:"):
        return _detector(kind.removeprefix("detector:"), pictures, pixels, saved)
    from subtext.models.encoders.vision import Vision

    if saved is not None:
        return Side(PixelInput.load(saved), Vision.open(kind, weights=pictures.weights, assets=saved))
    numbers = picture_numbers(kind, option="image")
    backbone = Vision.open(kind, weights=pictures.weights, image_size=pixels.image_size or numbers.size)
    return Side(pixel_input(pixels, numbers), backbone)


def pixel_input(pixels: Pixels, numbers: PictureNumbers) -> PixelInput:
    """The reader of pixels for a backbone that wants its pictures so."""
    from subtext.data.pixels import PixelInput

    return PixelInput(
        size=pixels.image_size or numbers.size,
        mean=numbers.mean,
        std=numbers.std,
        resize=numbers.resize if pixels.resize == "auto" else pixels.resize,
        crop_share=numbers.crop_share,
        filter=numbers.filter,
        least_area=pixels.least_area,
        flip=pixels.flip,
        erase=pixels.erase,
    )


def text_side(
    context: BuildContext,
    words: Words,
    shape: GruShape,
    *,
    otherwise: Literal["gru", "bag"] = "gru",
    parts: Literal["states", "words", "mean"] = "states",
    dropout: float = 0.0,
    legacy_last: bool = False,
) -> Side:
    """The text side: a GRU or a bag of words over the training texts' vocabulary, features, or a text backbone.

    shape        sizes of the GRU                      parts  which parts a GRU gives;
                 with "mean" a bag of words, whose mean is all that is wanted, gives none
    otherwise    what "auto" is without features
    dropout      on what the encoder gives
    legacy_last  see `encoders.recurrent`

    Raises RequirementError when features or training texts are needed and not supplied, or a backbone cannot be had.
    """
    from subtext.models.encoders.bag import Bag
    from subtext.models.encoders.precomputed import Precomputed
    from subtext.models.encoders.recurrent import Recurrent

    saved = context.asset("text")
    kind = _kind(saved, words.text, context.text_features, otherwise=otherwise)
    if kind == "features":
        input_spec = _feature_input("text", saved, context.text_features)
        mean, std = _statistics(context.text_features)
        encoder = Precomputed(
            input_spec.pooled, input_spec.grid, scaling=words.text_scaling, mean=mean, std=std, dropout=dropout
        )
        return Side(input_spec, encoder, several=input_spec.grid is not None)
    if kind not in ("bag", "gru"):
        return _language(kind, words, saved, dropout)
    word_input = _word_input(saved, context.texts, words)
    count = len(word_input.vocabulary)
    if kind == "bag":
        # Both act on the same numbers: a share of what the other leaves.
        both = 1 - (1 - words.word_dropout) * (1 - dropout)
        bag = Bag(count, words.word_width, dropout=both, parts=parts != "mean")
        return Side(word_input, bag)
    gru = Recurrent(
        count,
        shape,
        parts="words" if parts == "words" else "states",
        word_dropout=words.word_dropout,
        dropout=dropout,
        legacy_last=legacy_last,
    )
    return Side(word_input, gru)


def tokeniser(name: str, *, option: str = "text") -> Any:
    """The tokeniser of a text backbone, by name or folder.

    option  what the name was given as, for messages

    Raises RequirementError when it cannot be had, or knows no words.
    """
    from transformers import AutoTokenizer

    from subtext.models.encoders.hub import opened

    found = opened(
        name,
        lambda source, local: AutoTokenizer.from_pretrained(source, local_files_only=local),
        files=["tokenizer.json"],
        option=option,
    )
    # Without its files a tokeniser is made that knows its own marks and nothing else.
    if len(found) <= len(set(found.all_special_ids)):
        raise RequirementError(
            f"{option}={name} needs a tokeniser beside its weights; what it has knows no words; "
            "give a folder that holds both"
        )
    return found


def _kind(saved: Path | None, asked: str, features: FeatureShape | None, *, otherwise: str) -> str:
    """What encodes a modality: "features", "gru", "bag", or the name of a backbone."""
    if saved is not None:
        if (saved / "features.json").is_file():
            return "features"
        return otherwise if asked in ("auto", "features") else asked
    if asked == "auto":
        return otherwise if features is None else "features"
    return asked


def _feature_input(
    modality: Literal["image", "text"],
    saved: Path | None,
    shape: FeatureShape | None,
    regions: Regions | None = None,
) -> Any:
    from subtext.data.boxes import BOX
    from subtext.data.features import FeatureInput

    if saved is not None:
        return FeatureInput.load(saved)
    if shape is None:
        file = "features" if modality == "image" else "text_features"
        raise RequirementError(f"{modality}=features needs a feature file; none was given; give {file}=FILE")
    if regions is None or shape.grid is None:
        return FeatureInput(modality, pooled=shape.pooled, grid=shape.grid)
    grid = shape.grid + (BOX if regions.boxes else 0)
    return FeatureInput(modality, region_drop=regions.region_drop, pooled=shape.pooled, grid=grid, boxes=regions.boxes)


def _word_input(saved: Path | None, texts: tuple[str, ...], words: Words) -> WordInput:
    from subtext.data.text import Vocabulary, WordInput

    if saved is not None:
        return WordInput.load(saved)
    if not texts:
        raise RequirementError(
            "a vocabulary needs the training texts to be built from; there are none; give captions in the training "
            "split, or text features"
        )
    vocabulary = Vocabulary.build(texts, min_count=words.min_count)
    return WordInput(vocabulary, max_tokens=words.max_tokens, word_drop=words.word_drop, token_mask=words.token_mask)


def _statistics(shape: FeatureShape | None) -> tuple[Any, Any]:
    return (None, None) if shape is None else (shape.mean, shape.std)


def _timm(name: str, pictures: Pictures, pixels: Pixels, saved: Path | None) -> Side:
    from subtext.data.pixels import PixelInput
    from subtext.models.encoders.timm_vision import TimmVision

    pretrained = pictures.weights == "pretrained"
    fetch = pretrained and saved is None
    encoder = TimmVision.open(name, pretrained=pretrained, fetch=fetch, image_size=pixels.image_size)
    return Side(pixel_input(pixels, encoder.numbers) if saved is None else PixelInput.load(saved), encoder)


def _detector(name: str, pictures: Pictures, pixels: Pixels, saved: Path | None) -> Side:
    from subtext.data.pixels import PixelInput
    from subtext.models.encoders.detector import Detector
    from subtext.models.encoders.hub import picture_numbers

    if saved is None:
        # Boxes are told in shares of the whole picture: nothing of it is cut off.
        numbers = replace(picture_numbers(name, option="image"), resize="squash", crop_share=1.0)
    input_spec = pixel_input(pixels, numbers) if saved is None else PixelInput.load(saved)
    detector = Detector.open(
        name, weights=pictures.weights, assets=saved, regions=pictures.detected, least=pictures.least_sure
    )
    return Side(input_spec, detector)


def _language(kind: str, words: Words, saved: Path | None, dropout: float) -> Side:
    from subtext.data.text import SubwordInput
    from subtext.models.encoders.language import Language

    encoder = Language.open(kind, weights=words.text_weights, assets=saved, pooling=words.text_pooling, dropout=dropout)
    if saved is not None:
        return Side(SubwordInput.load(saved), encoder)
    found = tokeniser(kind)
    longest = min(words.max_tokens, int(getattr(found, "model_max_length", words.max_tokens)))
    return Side(SubwordInput(found, max_tokens=longest, token_mask=words.token_mask), encoder)


def dual_sides(
    context: BuildContext, name: str, weights: Weights, pixels: Pixels, limits: tuple[int, float]
) -> tuple[Side, Side, float, float | None]:
    """Both sides of a pretrained dual encoder, reading as it was trained to, and its scale and shift.

    name    its name or folder, or open_clip:ARCHITECTURE/WEIGHTS
    limits  longest text in subwords (0: what the model can read) and the share of subwords masked while training
    """
    from subtext.data.pixels import PixelInput
    from subtext.data.text import SubwordInput
    from subtext.models.encoders.dual import Dual
    from subtext.models.encoders.hub import picture_numbers

    if name.startswith("open_clip:"):
        return _open_clip(context, name.removeprefix("open_clip:"), weights, pixels)
    saved_image, saved_text = context.asset("image"), context.asset("text")
    dual = Dual.open(name, weights=weights, assets=saved_image)
    if saved_image is not None and saved_text is not None:
        image_reads, text_reads = PixelInput.load(saved_image), SubwordInput.load(saved_text)
    else:
        size = pixels.image_size or dual.image.size
        image_reads = pixel_input(replace(pixels, image_size=size), picture_numbers(name, option="model"))
        text_reads = SubwordInput(
            tokeniser(name, option="model"),
            max_tokens=min(limits[0] or dual.text.longest, dual.text.longest),
            token_mask=limits[1],
            padding="max" if dual.text.full_length else "longest",
        )
    return Side(image_reads, dual.image), Side(text_reads, dual.text), dual.scale, dual.shift


def _open_clip(
    context: BuildContext, name: str, weights: Weights, pixels: Pixels
) -> tuple[Side, Side, float, float | None]:
    from subtext.data.open_clip_text import OpenClipInput
    from subtext.data.pixels import PixelInput
    from subtext.models.encoders.open_clip_dual import OpenClip

    saved_image, saved_text = context.asset("image"), context.asset("text")
    pretrained, fetch = weights == "pretrained", saved_image is None
    found = OpenClip.open(name, pretrained=pretrained, fetch=fetch, image_size=pixels.image_size)
    image_reads = pixel_input(pixels, found.numbers) if saved_image is None else PixelInput.load(saved_image)
    text_reads = OpenClipInput(name.partition("/")[0]) if saved_text is None else OpenClipInput.load(saved_text)
    return Side(image_reads, found.image), Side(text_reads, found.text), found.scale, found.shift
