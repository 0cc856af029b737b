"""The two sides of a model from a recipe's options and the build context: how items are read, and the encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import nn

from subtext.data.feature_file import FeatureShape
from subtext.data.features import FeatureInput
from subtext.data.given import CallableInput, GivenPixels, TokenInput, name_of, saved_length
from subtext.data.inputs import Input, InputBatch
from subtext.data.pixels import PATCHES, PatchInput, PixelInput
from subtext.data.regions import BOX
from subtext.data.starter import NAME as STARTER
from subtext.data.text import OpenClipInput, SubwordInput, Vocabulary, WordInput
from subtext.errors import RequirementError, Setting
from subtext.graphs.spaces import word_vectors
from subtext.models.encoders.precomputed import Precomputed
from subtext.models.encoders.words import Bag, Recurrent
from subtext.recipes.options import GIVEN, InitialWeights, InputOptions, PixelOptions, RegionInputOptions
from subtext.training.setup import BuildContext

_STARTER_TOKENS = 256
"""Subwords that the text tower of `model=starter` reads of a text; it was trained with so many."""
_STARTER_SCALE = 20.0
"""Factor of its cosines: no image-text model was trained that would have learnt one."""

if TYPE_CHECKING:
    from subtext.models.encoders.backbone import Pretrained, Weights
    from subtext.models.encoders.hub import Preprocessing


@dataclass(frozen=True)
class Side:
    """How a modality is read and which encoder it has; a recipe adds the head.

    Attributes:
        input_spec: How items become tensors.
        encoder: Has `parts_width` and `pooled_width`.
        several_parts: Whether an item has more than one part, so that attention has a choice.
    """

    input_spec: Input
    encoder: Any
    several_parts: bool = True


def image_side(context: BuildContext, inputs: InputOptions) -> Side:
    """The image side: precomputed features, or pixels and a backbone.

    A new run is built from the options; a saved one from its assets, and its tensors are filled in later.

    Args:
        context: What the data set, or the saved run, offers.
        inputs: Which encoder, and how images are read; `RegionInputOptions` for a model that reads regions.

    Returns:
        Input and encoder of the images.

    Raises:
        RequirementError: If image=features and there are none, or a backbone is not available.
    """
    saved, shape = context.asset("image"), context.image_features
    kind = _kind(saved, inputs.image, shape, default="tiny")
    if kind == "features":
        scaling, dropout = inputs.feature_scaling, inputs.feature_dropout
        regions = inputs if isinstance(inputs, RegionInputOptions) else None
        return _features("image", saved, shape, scaling=scaling, dropout=dropout, regions=regions)
    if kind.startswith(GIVEN):
        return _given_images(context, saved, inputs, kind)
    from subtext.models.encoders.hub import preprocessing_of

    encoder: Any
    weights, (source, _, name) = _initial(inputs.image_weights), kind.partition(":")
    numbers: Preprocessing | None = None
    if kind == STARTER:
        from subtext.models.encoders.lite import PREPROCESSING, LiteVision

        encoder, numbers = LiteVision.open(weights=weights, fetch=saved is None), PREPROCESSING
    elif source == "timm" and name:
        from subtext.models.encoders.vision import TimmVision

        pretrained = weights == "pretrained"
        fetch = pretrained and saved is None
        encoder = TimmVision.open(name, pretrained=pretrained, fetch=fetch, image_size=inputs.image_size)
        numbers = encoder.preprocessing
    elif source == "detector" and name:
        from subtext.models.encoders.vision import Detector

        if saved is None:
            # Boxes are given in shares of the image: nothing of it may be cropped.
            numbers = replace(preprocessing_of(name, option="image"), resize="squash", crop_share=1.0)
        encoder = Detector.open(
            name, weights=weights, assets=saved, regions=inputs.max_regions, min_confidence=inputs.min_confidence
        )
    else:
        from subtext.models.encoders.vision import Vision

        size: int | None = None
        if saved is None:
            numbers = preprocessing_of(kind, option="image")
            size = inputs.image_size or numbers.size
        encoder = Vision.open(kind, weights=weights, assets=saved, image_size=size)
    return Side(_pixel_input(saved, inputs, numbers), _learning(encoder, inputs.image_weights))


def _initial(weights: InitialWeights) -> Weights:
    return "random" if weights == "random" else "pretrained"


def _learning(encoder: Pretrained, weights: InitialWeights) -> Pretrained:
    """The encoder; with frozen weights nothing is left for a plan to freeze or to slow down."""
    if weights == "frozen":
        if not encoder.pretrained:
            raise RequirementError("frozen weights need a pretrained backbone; this one has none; name another")
        encoder.body.requires_grad_(False)
        encoder.pretrained = False
    return encoder


def text_side(
    context: BuildContext,
    texts: InputOptions,
    width: int,
    *,
    default: Literal["gru", "bag"] = "gru",
    parts: Literal["states", "words", "mean"] = "states",
    bag_width: int = 300,
    dropout: float = 0.0,
    legacy_last: bool = False,
) -> Side:
    """The text side: a GRU or a bag of words over the training texts' vocabulary, features, or a text backbone.

    Args:
        context: What the data set, or the saved run, offers.
        texts: Which encoder, and how texts are read.
        width: Of a GRU's states.
        default: What "auto" is without features.
        parts: What a GRU gives as parts: its states or its words; with "mean" a bag of words gives its mean alone.
        bag_width: Of the words of a bag whose word_dim is 0; that of a GRU is then 300.
        dropout: On what the encoder gives.
        legacy_last: See `encoders.recurrent`.

    Returns:
        Input and encoder of the texts.

    Raises:
        RequirementError: If features or training texts are needed and missing, or a backbone is not available.
    """
    saved, shape = context.asset("text"), context.text_features
    kind = _kind(saved, texts.text, shape, default=default)
    if kind == "features":
        return _features("text", saved, shape, scaling=texts.text_scaling, dropout=dropout)
    if kind.startswith(GIVEN):
        return _given_texts(context, saved, texts, kind)
    if kind not in ("bag", "gru"):
        from subtext.models.encoders.language import Language, tokeniser

        weights, pooling = _initial(texts.text_weights), texts.text_pooling
        backbone = Language.open(kind, weights=weights, assets=saved, pooling=pooling, dropout=dropout)
        _learning(backbone, texts.text_weights)
        if saved is not None:
            return Side(SubwordInput.load(saved), backbone)
        tokens = tokeniser(kind)
        longest = min(texts.max_tokens, int(getattr(tokens, "model_max_length", texts.max_tokens)))
        # Sentences with masked words are none that this encoder was trained on, and its outputs could not be cached.
        mask = 0.0 if kind == STARTER else texts.token_mask
        return Side(SubwordInput(tokens, max_tokens=longest, token_mask=mask), backbone)
    if saved is not None:
        words = WordInput.load(saved)
    elif context.texts:
        vocabulary = Vocabulary.build(context.texts, min_count=texts.min_count)
        words = WordInput(
            vocabulary, max_tokens=texts.max_tokens, word_drop=texts.token_dropout, token_mask=texts.token_mask
        )
    else:
        raise RequirementError(
            "a vocabulary needs the training texts to be built from; there are none; give captions in the training "
            "split, or text features"
        )
    count = len(words.vocabulary)
    if kind == "bag":
        # Both dropouts act on the same numbers.
        both = 1 - (1 - texts.embedding_dropout) * (1 - dropout)
        bag = Bag(count, texts.word_dim or bag_width, dropout=both, parts=parts != "mean")
        _start_words(bag.words, words, texts, context)
        return Side(words, bag)
    gru = Recurrent(
        count,
        width,
        texts.word_dim or 300,
        texts.gru_layers,
        texts.bidirectional,
        parts="words" if parts == "words" else "states",
        word_dropout=texts.embedding_dropout,
        dropout=dropout,
        legacy_last=legacy_last,
    )
    _start_words(gru.words, words, texts, context)
    return Side(words, gru)


def _given_images(context: BuildContext, saved: Path | None, inputs: InputOptions, kind: str) -> Side:
    """The image side of an object: a module reads pixels and learns, a function gets PIL images."""
    given = _object(context, "image", kind)
    if not isinstance(given, nn.Module):
        function = CallableInput("image", given)
        grey = [Image.new("RGB", (64, 64), (127, 127, 127))]
        return _given_vectors(function, function.vectors(grey, Path()).shape)
    from subtext.models.encoders.given import Given
    from subtext.models.encoders.hub import Preprocessing

    # The usual statistics of photographs; 224 pixels unless another size is named.
    usual = Preprocessing(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    spec = _pixel_input(saved, inputs, usual)
    encoder = Given(given, "image", {"pixels": torch.zeros(2, 3, spec.size, spec.size)})
    return Side(
        GivenPixels(**vars(spec), name=name_of(given)),
        _learning(encoder, inputs.image_weights),
        encoder.parts_width is not None,
    )


def _given_texts(context: BuildContext, saved: Path | None, texts: InputOptions, kind: str) -> Side:
    """The text side of an object: a module reads tokens, or texts without a tokeniser; a function gets texts."""
    given, tokeniser = _object(context, "text", kind), context.objects.get("tokeniser")
    if not isinstance(given, nn.Module):
        if tokeniser is not None:
            raise RequirementError(
                "tokeniser needs a torch module as text; a function gets the texts themselves; leave it out",
                field="tokeniser",
            )
        function = CallableInput("text", given)
        return _given_vectors(function, function.vectors(["a text of five words"], Path()).shape)
    from subtext.models.encoders.given import Given

    longest = texts.max_tokens if saved is None else saved_length(saved)
    spec = TokenInput(name_of(given), tokeniser, longest)
    words = ["a text of five words", "another"]
    rows = np.arange(2, dtype=np.int64)
    example = spec(InputBatch(values=words, ids=words, rows=rows, keys=rows, root=Path()))
    encoder = Given(given, "text", {name: value for name, value in example.items() if name != "ids"})
    return Side(spec, _learning(encoder, texts.text_weights), encoder.parts_width is not None)


def _given_vectors(function: CallableInput, shape: tuple[int, ...]) -> Side:
    pooled, grid = (shape[-1], None) if len(shape) == 2 else (None, shape[-1])
    return Side(function, Precomputed(pooled, grid), several_parts=grid is not None)


def _object(context: BuildContext, option: Literal["image", "text"], kind: str) -> Any:
    if option not in context.objects:
        raise RequirementError(
            Setting(option, kind),
            f" needs the object itself, {kind.removeprefix(GIVEN)}, which is given in Python alone: "
            f"options={{'{option}': ...}}",
        )
    return context.objects[option]


def _start_words(embedding: nn.Embedding, words: WordInput, texts: InputOptions, context: BuildContext) -> None:
    """Give the words of a new run the vectors that `word_vectors` names; marks keep theirs."""
    if texts.word_vectors == "random" or not context.texts:
        return
    tokens = words.vocabulary.tokens
    rows, vectors = word_vectors(context.texts, tokens, embedding.embedding_dim, seed=context.seed)
    with torch.no_grad():
        embedding.weight[torch.from_numpy(rows)] = torch.from_numpy(vectors)


def feature_side(context: BuildContext, modality: Literal["image", "text"]) -> Side:
    """The side of a modality whose vectors are precomputed, at unit length.

    Args:
        context: What the data set, or the saved run, offers.
        modality: "image" or "text".

    Returns:
        Input and encoder of the modality.

    Raises:
        RequirementError: If there are none.
    """
    shape = context.image_features if modality == "image" else context.text_features
    return _features(modality, context.asset(modality), shape, scaling="unit", dropout=0.0)


def _kind(saved: Path | None, option: str, features: FeatureShape | None, *, default: str) -> str:
    """What encodes a modality: "features", "gru", "bag", or the name of a backbone."""
    if saved is not None:
        if (saved / "features.json").is_file():
            return "features"
        return default if option in ("auto", "features") else option
    if option == "auto":
        return default if features is None else "features"
    return option


def _features(
    modality: Literal["image", "text"],
    saved: Path | None,
    shape: FeatureShape | None,
    *,
    scaling: Literal["none", "unit", "standard"],
    dropout: float,
    regions: RegionInputOptions | None = None,
) -> Side:
    """The side of a modality whose items are precomputed.

    Args:
        modality: "image" or "text".
        saved: Folder of a saved run's assets; None for a new run.
        shape: Widths of the features, and their mean and deviation; None if there are none.
        scaling: Of the features: none, to unit length, or standardised.
        dropout: Of the features, in [0, 1).
        regions: For a model that reads an image by its parts.
    """
    if saved is not None:
        input_spec = FeatureInput.load(saved)
    elif shape is None:
        file = "features" if modality == "image" else "text_features"
        raise RequirementError(f"{modality}=features needs a feature file; none was given; give {file}=FILE")
    elif regions is None or shape.grid is None:
        input_spec = FeatureInput(modality, pooled=shape.pooled, grid=shape.grid)
    else:
        grid = shape.grid + (BOX if regions.boxes else 0)
        input_spec = FeatureInput(
            modality, region_drop=regions.region_dropout, pooled=shape.pooled, grid=grid, boxes=regions.boxes
        )
    encoder = Precomputed(
        input_spec.pooled,
        input_spec.grid,
        scaling=scaling,
        mean=None if shape is None else shape.mean,
        std=None if shape is None else shape.std,
        dropout=dropout,
        append_pooled=regions is not None and regions.append_pooled,
        boxes=input_spec.boxes,
    )
    return Side(input_spec, encoder, several_parts=input_spec.grid is not None)


def _pixel_input(saved: Path | None, pixels: PixelOptions, numbers: Preprocessing | None) -> PixelInput:
    """The input spec of a saved run, or of a backbone that expects images like this."""
    if saved is not None:
        return PixelInput.load(saved)
    assert numbers is not None
    return PixelInput(
        size=pixels.image_size or numbers.size,
        mean=numbers.mean,
        std=numbers.std,
        resize=numbers.resize if pixels.resize == "auto" else pixels.resize,
        crop_share=numbers.crop_share,
        filter=numbers.filter,
        least_area=pixels.min_crop_area,
        flip=pixels.flip,
        erase=pixels.random_erasing,
    )


def dual_sides(
    context: BuildContext,
    name: str,
    weights: Weights,
    pixels: PixelOptions,
    *,
    max_tokens: int = 0,
    token_mask: float = 0.0,
    prompt: str = "",
) -> tuple[Side, Side, float, float | None]:
    """Both sides of a pretrained dual encoder, with the input that it was trained on, and its scale and shift.

    Args:
        context: What the data set, or the saved run, offers.
        name: Its name or folder, or open_clip:ARCHITECTURE/WEIGHTS.
        weights: "pretrained" or "random".
        pixels: How images become pixels.
        max_tokens: Longest text in subwords; 0 for what the model can read.
        token_mask: Share of subwords masked while training.
        prompt: Of SubwordInput.

    Returns:
        Sides of the images and of the texts, scale, and shift (None where the model has none).

    Raises:
        RequirementError: For a prompt without the place of the text, and for a model that is not available.
    """
    from subtext.models.encoders.dual import Dual, OpenClip, module_folder
    from subtext.models.encoders.families import text_form
    from subtext.models.encoders.hub import patching_of, preprocessing_of
    from subtext.models.encoders.language import tokeniser

    if prompt and prompt.count("{}") != 1:
        raise RequirementError(
            f"text_prompt needs {{}} once, where the text stands; it got {prompt!r}; add it", field="text_prompt"
        )
    saved, saved_text = context.asset("image"), context.asset("text")
    if name == STARTER:
        if weights == "random":
            raise RequirementError(Setting("model", STARTER), " needs its weights; leave ", Setting("weights"), " out")
        return _starter_sides(context, pixels, max_tokens=max_tokens, token_mask=token_mask, prompt=prompt)
    numbers: Preprocessing | None = None
    dual: Any
    text_input: Any
    if name.startswith("open_clip:"):
        name = name.removeprefix("open_clip:")
        pretrained, fetch = weights == "pretrained", saved is None
        dual = OpenClip.open(name, pretrained=pretrained, fetch=fetch, image_size=pixels.image_size)
        numbers = dual.preprocessing
        architecture = name.partition("/")[0]
        text_input = OpenClipInput(architecture, prompt) if saved_text is None else OpenClipInput.load(saved_text)
    else:
        name = name if saved is not None else module_folder(name)
        dual = Dual.open(name, weights=weights, assets=saved)
        variable = getattr(dual.image, "variable", False)
        if variable and pixels != PixelOptions():
            raise RequirementError(
                "image_size, resize, flip, min_crop_area and random_erasing are for images of one size; "
                f"{name} reads them at their own aspect (NaFlex); leave them out"
            )
        if saved_text is not None:
            text_input = SubwordInput.load(saved_text)
        else:
            pixels = replace(pixels, image_size=pixels.image_size or dual.image.size)
            tokens = tokeniser(name, option="model")
            if not variable:
                numbers = preprocessing_of(name, option="model")
            form, note = text_form(dual.text.config, tokens, dual.text.longest)
            assert form.longest is not None
            text_input = SubwordInput(
                tokens,
                max_tokens=min(max_tokens or form.longest, form.longest),
                token_mask=token_mask,
                full_length=dual.text.longest if form.full_length else 0,
                lower=form.lower,
                prompt=prompt or form.prompt,
                note=note and f"{name}: {note}",
            )
    image_input: Input
    if saved is not None and (saved / PATCHES).is_file():
        image_input = PatchInput.load(saved)
    elif saved is None and getattr(dual.image, "variable", False):
        image_input = PatchInput(**vars(patching_of(name, option="model")))
    else:
        image_input = _pixel_input(saved, pixels, numbers)
    return Side(image_input, dual.image), Side(text_input, dual.text), dual.scale, dual.shift


def _starter_sides(
    context: BuildContext, pixels: PixelOptions, *, max_tokens: int, token_mask: float, prompt: str
) -> tuple[Side, Side, float, None]:
    """Both sides of `model=starter`: images among the texts of a sentence encoder by the names of their classes."""
    from subtext.models.encoders.conse import Conse
    from subtext.models.encoders.language import Language, tokeniser
    from subtext.models.encoders.lite import PREPROCESSING

    saved, saved_text = context.asset("image"), context.asset("text")
    image, text = Conse.open(fetch=saved is None), Language.open(STARTER, assets=saved_text)
    if saved_text is None:
        longest = min(max_tokens or _STARTER_TOKENS, int(text.body.config.max_position_embeddings))
        words = SubwordInput(tokeniser(STARTER), max_tokens=longest, token_mask=token_mask, prompt=prompt)
    else:
        words = SubwordInput.load(saved_text)
    return Side(_pixel_input(saved, pixels, PREPROCESSING), image), Side(words, text), _STARTER_SCALE, None
