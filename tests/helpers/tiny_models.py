"""Small random models of transformers on disk, each as its own folder with tokeniser and picture numbers."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Replace as Replaced, Sequence
from tokenizers.models import BPE, WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Split, Whitespace
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
    """A SigLIP 2 of one layer a side, which reads pictures of variable size."""
    siglip_2(folder, "5")
    size = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    torch.manual_seed(7)
    text = {**_SMALL, "vocab_size": size, "max_position_embeddings": 16, "projection_size": 16}
    vision = {**_SMALL, "num_patches": 16, "patch_size": 8}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    numbers = {"max_num_patches": 20, "patch_size": 8, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = {"image_processor_type": "Siglip2ImageProcessor", "processor_class": "Siglip2Processor", **numbers}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": processor}))
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


_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def siglip_2(folder: Path, form: str) -> Path:
    """A SigLIP 2 of one layer a side in the form of the hub: config.json without codes of tokens, Gemma's tokeniser."""
    letters = ["▁", *string.ascii_letters, *string.punctuation, *"éàîÉÎσς"]
    bytes_ = [f"<0x{code:02X}>" for code in range(256)]
    vocabulary = dict.fromkeys(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *letters, *bytes_, "th", "the", "▁the"])
    codes = {token: code for code, token in enumerate(vocabulary)}
    inner = Tokenizer(
        BPE(codes, [("t", "h"), ("th", "e"), ("▁", "the")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    inner.normalizer = Replace(" ", "▁")
    inner.pre_tokenizer = Split(" ", "merged_with_previous")
    inner.decoder = Sequence([Replaced("▁", " "), ByteFallback(), Fuse()])
    inner.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    inner.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    hub_siglip(folder, len(codes))
    inner.save(str(folder / "tokenizer.json"))
    marks = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    told = {**marks, "model_max_length": 16, "padding_side": "right", "processor_class": "SiglipProcessor"}
    if form == "5":
        told |= {"backend": "tokenizers", "mask_token": "<mask>", "tokenizer_class": "GemmaTokenizer"}
    else:
        plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        added = {str(code): {"content": token, **plain} for token, code in list(codes.items())[:5]}
        told |= {"add_bos_token": False, "add_eos_token": True, "added_tokens_decoder": added, "sp_model_kwargs": {},
                 "clean_up_tokenization_spaces": False, "tokenizer_class": "GemmaTokenizer"}  # fmt: skip
        (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    numbers = {"size": {"height": 32, "width": 32}, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
               "do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}  # fmt: skip
    old = {**numbers, "image_processor_type": "SiglipImageProcessor", "processor_class": "SiglipProcessor"}
    name = "processor_config.json" if form == "5" else "preprocessor_config.json"
    (folder / name).write_text(json.dumps({"image_processor": old} if form == "5" else old))
    return folder


def hub_siglip(folder: Path, words: int) -> None:
    torch.manual_seed(7)
    text = {**_SMALL, "vocab_size": words, "max_position_embeddings": 16, "projection_size": 16}
    vision = {**_SMALL, "image_size": 32, "patch_size": 16}
    made = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
    made.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        config["text_config"].pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))


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
