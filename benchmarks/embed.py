"""Images a second, from a JPEG on the disk to a vector, by a pretrained dual encoder.

The peer is the loop that a user would write: `transformers` with the model's own processor, in a DataLoader of as many
workers and images a batch. The third contestant is `encode` of sentence-transformers. All have the same weights: a
random CLIP of the shape of ViT-B/32 (--quick: narrower, so that reading the images weighs more).

    python -m benchmarks.embed [--quick] [--repeats N] [--json]
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
# What an earlier repeat gave is not to be kept for a later one.
os.environ["SUBTEXT_CACHE_LIMIT"] = "0"

import numpy as np
import torch
import transformers
from PIL import Image
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from torch.utils.data import DataLoader

import subtext as st
from benchmarks.common import interleaved, options, report
from subtext.data.dataset import Dataset
from subtext.evaluation.embedding import embed_items

BATCH, WORKERS = 16, 2
SIZE = (1024, 683)


def photographs(folder: Path, count: int) -> list[Path]:
    """JPEGs of the size of an archive's previews, with detail at several scales."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        pixels = np.zeros((SIZE[1], SIZE[0], 3), dtype=np.float64)
        for scale in (8, 64, 256):
            coarse = rng.integers(0, 256, (SIZE[1] // scale + 2, SIZE[0] // scale + 2, 3), dtype=np.uint8)
            pixels += np.asarray(Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)) / 3
        paths.append(folder / f"{number:04d}.jpg")
        Image.fromarray(pixels.astype(np.uint8)).save(paths[-1], quality=88)
    return paths


def model(folder: Path, *, quick: bool, layers: int = 12) -> None:
    """A random CLIP with its processor, as `save_pretrained` leaves it."""
    inner = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "[END]": 3}, unk_token="[UNK]"))
    tokeniser = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]")
    text = {"vocab_size": 4, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    text |= {"intermediate_size": 64, "eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 1}
    vision = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768} if quick else {}
    vision |= {"num_hidden_layers": layers}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text, vision_config={"patch_size": 32, **vision}, projection_dim=512)
    transformers.CLIPModel(config).save_pretrained(folder)
    processor = transformers.CLIPImageProcessorPil()
    transformers.CLIPProcessor(processor, tokeniser).save_pretrained(folder)


class Files(torch.utils.data.Dataset[Tensor]):
    """The data set of the loop that a user would write."""

    def __init__(self, paths: list[Path], processor: Any) -> None:
        self.paths, self.processor = paths, processor

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        image = Image.open(self.paths[row]).convert("RGB")
        pixels: Tensor = self.processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels


def main() -> None:
    """Measure and print."""
    asked = options("images a second from file to vector, beside transformers and sentence-transformers")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    count = 48 if asked.quick else 256
    with tempfile.TemporaryDirectory() as place:
        paths, folder = photographs(Path(place), count), Path(place) / "clip"
        model(folder, quick=asked.quick)
        own = st.load(model=folder)
        rows = [{"image": path.name, "caption": "a"} for path in paths]
        items: Dataset = st.read(rows, images=place)
        plain: Any = transformers.CLIPModel.from_pretrained(folder).eval()
        processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
        sentence = SentenceTransformer(str(folder), device="cpu")
        found: dict[str, Tensor] = {}

        def ours() -> None:
            found["ours"] = embed_items(own, own.image, items.images, items.root, reading=(BATCH, WORKERS)).vectors[
                :, 0
            ]

        def peer() -> None:
            loader = DataLoader(Files(paths, processor), batch_size=BATCH, num_workers=WORKERS)
            with torch.inference_mode():
                vectors = [plain.get_image_features(pixel_values=pixels).pooler_output for pixels in loader]
            found["peer"] = torch.nn.functional.normalize(torch.cat(vectors), dim=1)

        def third() -> None:
            encoded = sentence.encode([str(path) for path in paths], batch_size=BATCH, show_progress_bar=False)
            found["third"] = torch.nn.functional.normalize(torch.as_tensor(encoded), dim=1)

        timings = interleaved({"ours": ours, "peer": peer, "third": third}, repeats=asked.repeats)
    facts = {
        "name": "embed",
        "peer": "transformers, DataLoader",
        "size": f"{count} JPEGs of {SIZE[0]} x {SIZE[1]}, batches of {BATCH}, {WORKERS} workers",
        "max_difference": float((found["ours"] - found["peer"]).abs().max()),
        "images_a_second": round(count / timings["ours"].best, 1),
        "peer_images_a_second": round(count / timings["peer"].best, 1),
        "sentence_transformers_images_a_second": round(count / timings["third"].best, 1),
        "sentence_transformers_ratio": timings["third"].best / timings["ours"].best,
        "sentence_transformers_max_difference": float((found["ours"] - found["third"]).abs().max()),
        "threads": torch.get_num_threads(),
    }
    report(asked, facts, timings["ours"], timings["peer"])


if __name__ == "__main__":
    main()
