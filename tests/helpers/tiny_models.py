"""Small random models of transformers on disk, each as its own folder with tokeniser and picture numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPModel,
    DetrConfig,
    DetrForObjectDetection,
    Dinov2Config,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
    Siglip2Config,
    Siglip2Model,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
    ViTModel,
    YolosConfig,
    YolosForObjectDetection,
)

WORDS = tuple(
    "a dog runs on the beach two red boats in water man rides horse under sky small cat sleeps".split()  # noqa: SIM905
)
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_VISION = {**_TEXT, "image_size": 32, "patch_size": 8}


def bert(folder: Path) -> Path:
    """A BERT of two layers, 16 wide."""
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=_tokeniser(folder), max_position_embeddings=32, **_TEXT)).save_pretrained(folder)
    return folder


def vit(folder: Path) -> Path:
    """A vision transformer of two layers, 16 wide, for pictures of 32 pixels."""
    torch.manual_seed(2)
    ViTModel(ViTConfig(**_VISION)).save_pretrained(folder)
    _numbers(folder)
    return folder


def clip(folder: Path) -> Path:
    """A CLIP of two layers a side, with a joint space 12 wide."""
    torch.manual_seed(3)
    size = _tokeniser(folder)
    # Its tokens end in [SEP], which stands last in the vocabulary, as CLIP's own end mark does.
    text = {**_TEXT, "vocab_size": size, "max_position_embeddings": 16, "eos_token_id": size - 1, "bos_token_id": 1}
    model = CLIPModel(CLIPConfig(text_config={**text, "pad_token_id": 0}, vision_config=_VISION, projection_dim=12))
    model.save_pretrained(folder)
    _numbers(folder)
    return folder


def naflex(folder: Path) -> Path:
    """A SigLIP 2 of two layers a side, which reads pictures of variable size; without a tokeniser."""
    vision = {**{name: value for name, value in _VISION.items() if name != "image_size"}, "num_patches": 16}
    Siglip2Model(Siglip2Config(text_config=_TEXT, vision_config=vision)).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"max_num_patches": 16, "patch_size": 8}')
    return folder


def siglip(folder: Path) -> Path:
    """A SigLIP of two layers a side, 16 wide, which reads texts at full length."""
    torch.manual_seed(4)
    size = _tokeniser(folder)
    text = {**_TEXT, "vocab_size": size, "max_position_embeddings": 16, "eos_token_id": size - 1, "bos_token_id": 1}
    text["pad_token_id"] = 0
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=_VISION))
    with torch.no_grad():
        model.logit_scale.fill_(4.8)
        model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    _numbers(folder)
    return folder


PROCESSED: dict[str, tuple[str, dict[str, object]]] = {
    "clip": ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
    "siglip": ("Siglip", {"size": {"height": 32, "width": 32}}),
    "siglip2": ("Siglip", {"size": {"height": 32, "width": 32}, "resample": 2}),
    "vit": ("ViT", {"size": {"height": 32, "width": 32}}),
    "dinov2": (
        "Bit",
        {
            "size": {"shortest_edge": 37},
            "crop_size": {"height": 32, "width": 32},
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
    ),
}
"""Family -> the image processor of `transformers` that its published models have, and its settings for 32 pixels."""


def processed(family: str, folder: Path) -> tuple[Path, Any]:
    """A small random model of a family, with its image processor saved as `transformers` saves it; and that."""
    kind, settings = PROCESSED[family]
    # Without torchvision transformers falls back to these.
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    if family in ("clip", "siglip", "siglip2"):
        (clip if family == "clip" else siglip)(folder)
        (folder / "preprocessor_config.json").unlink()
        tokeniser = PreTrainedTokenizerFast.from_pretrained(folder)
        getattr(transformers, f"{kind}Processor")(processor, tokeniser).save_pretrained(folder)
        assert (folder / "processor_config.json").is_file() and not (folder / "preprocessor_config.json").exists()
    else:
        torch.manual_seed(2)
        config = ViTConfig(**_VISION) if family == "vit" else Dinov2Config(**_VISION)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder, processor


def detectors(folder: Path) -> dict[str, Path]:
    """Object detectors of seven queries, 16 wide: DETR, YOLOS and RT-DETR, without timm; each in a folder."""
    torch.manual_seed(5)
    plain: dict[str, Any] = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    sizes = {"d_model": 16, "num_queries": 7, "num_labels": 5, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, **heads}
    small = {"embedding_size": 8, "layer_type": "basic"}
    one = ResNetConfig(**small, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])
    stages = {"hidden_sizes": [8, 16, 16, 16], "depths": [1] * 4, "out_features": ["stage2", "stage3", "stage4"]}
    three = RTDetrResNetConfig(**small, **stages)
    widths = {name: [16] * 3 for name in ("encoder_in_channels", "decoder_in_channels")}
    told = {**sizes, **widths, "encoder_hidden_dim": 16, "num_denoising": 0, "decoder_n_points": 2}
    made: dict[str, PreTrainedModel] = {
        "detr": DetrForObjectDetection(
            DetrConfig(**plain, **sizes, backbone_config=one, encoder_layers=1, decoder_layers=1)
        ),
        "yolos": YolosForObjectDetection(
            YolosConfig(**{**_VISION, "image_size": [32, 32]}, num_detection_tokens=7, num_labels=5)
        ),
        "rt_detr": RTDetrForObjectDetection(
            RTDetrConfig(**plain, **told, backbone_config=three, decoder_layers=1, anchor_image_size=None)
        ),
    }
    for name, model in made.items():
        with torch.no_grad():
            for parameter in model.parameters():
                # As they start, all boxes lie in the middle.
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder / name)
        _numbers(folder / name)
    return {name: folder / name for name in made}


def _tokeniser(folder: Path) -> int:
    """Write a tokeniser of whole words; how many tokens it has."""
    tokens = [*MARKS[:3], *WORDS, *MARKS[4:], "[SEP]"]
    codes = {token: code for code, token in enumerate(tokens)}
    inner = Tokenizer(WordLevel(codes, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", codes["[CLS]"]), ("[SEP]", codes["[SEP]"])]
    )
    outer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=16,
    )
    outer.save_pretrained(folder)
    return len(codes)


def _numbers(folder: Path) -> None:
    numbers = {
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
        "do_center_crop": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.2, 0.2],
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(numbers))
