"""A small random SigLIP in the form of the hub, whose tokeniser is a file of sentencepiece."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
import tiny_models

TEXTS = ["a dog runs", "Two RED Boats", "ÉTÉ à l'Île, ΣΑΣ", "the red boats of the harbour " * 9, "."]


def write(folder: Path, form: str) -> Path:
    """A SigLIP of one layer; gives the folder."""
    spm = pytest.importorskip("sentencepiece")
    (folder / "words.txt").write_text("\n".join([string.ascii_lowercase, *TEXTS, *tiny_models.WORDS] * 20).lower())
    spm.SentencePieceTrainer.train(
        input=str(folder / "words.txt"), model_prefix=str(folder / "spiece"), vocab_size=64, pad_id=0, eos_id=1,
        unk_id=2, bos_id=-1, minloglevel=3, hard_vocab_limit=False, character_coverage=1.0,
    )  # fmt: skip
    size = spm.SentencePieceProcessor(str(folder / "spiece.model")).get_piece_size()
    tiny_models.hub_siglip(folder, size)
    told = {"do_lower_case": True, "eos_token": "</s>", "model_input_names": ["input_ids"], "model_max_length": 16,
            "pad_token": "</s>", "processor_class": "SiglipProcessor", "sp_model_kwargs": {}, "unk_token": "<unk>",
            "tokenizer_class": "SiglipTokenizer"}  # fmt: skip
    told |= {"backend": "sentencepiece"} if form == "5" else {"clean_up_tokenization_spaces": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    numbers = {"size": {"height": 32, "width": 32}, "resample": 3, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(numbers))
    return folder
