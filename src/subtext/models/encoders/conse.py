"""An image in the space of a sentence encoder, without training: ConSE (Norouzi et al. 2014), for `model=starter`."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.output_cache import OutputWriter, content_digest, user_cache
from subtext.data.starter import NAME, STARTER
from subtext.errors import OutputError
from subtext.models.encoders.lite import EfficientNetLite2, LiteVision, published
from subtext.models.heads.mean import pooled_of
from subtext.ops.numerics import unit

CLASSES = tuple(Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="utf-8").splitlines())
"""The names of the classes of ImageNet (ILSVRC 2012) in the order of the classifier, as WordNet has them."""
TEMPERATURE = 2.0
"""Divides the classifier's numbers before their softmax: the probabilities of several classes then count."""
MOST = 20
"""Classes that an image is a mixture of, the most probable ones."""


class Conse(LiteVision):
    """A mixture of the names of an image's most probable classes, as vectors of a sentence encoder.

    vector = sum over the k most probable classes c of p_c (n_c - m)     p = softmax(logits / T)

    n_c is the vector of the name of class c, and m the mean of all of them: what all names have in common says nothing
    of an image, and drew each image to the same texts. The vectors of the names are computed at the first image, by
    `name_vectors`, and are not saved.

    Args:
        body: An `EfficientNetLite2`.
        pretrained: Whether body and classifier are pretrained, see `Pretrained`.
    """

    def __init__(self, body: Any, *, pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        self.classifier = nn.Linear(self.pooled_width, len(CLASSES))
        self.parts_width, self.pooled_width = None, 384
        # What the tensors of the model do not show is a part of its fingerprint.
        about = hashlib.blake2b(repr((CLASSES, TEMPERATURE, MOST)).encode(), digest_size=16).digest()
        self.register_buffer("about", torch.tensor(list(about), dtype=torch.uint8))

    @staticmethod
    def open(*, fetch: bool = True) -> Conse:  # type: ignore[override]
        """Open the encoder with the weights of the installed package.

        Raises the errors of `starter_file`.

        Args:
            fetch: Whether to read the weights now; not for a saved run, whose tensors follow.

        Returns:
            The encoder.
        """
        encoder = Conse(EfficientNetLite2(), pretrained=True)
        encoder.installed = ("body.", "classifier.")
        if fetch:
            encoder.load_installed()
        return encoder

    def load_installed(self) -> None:
        """Load body and classifier from the installed package.

        Raises the errors of `starter_file`.
        """
        tensors = published()
        self.body.load_published(tensors)
        self.classifier.load_state_dict({"weight": tensors["_fc.weight"], "bias": tensors["_fc.bias"]})

    def finish(self, outputs: Encoded) -> Encoded:
        """The mixture of each image.

        Args:
            outputs: With `pooled` (N 1280), see `LiteVision.run_body`.

        Returns:
            Encoded with `pooled` (N 384), not of unit length.
        """
        pooled = pooled_of(outputs, "the mixture of class names")
        shares, classes = (self.classifier(pooled) / TEMPERATURE).softmax(dim=1).topk(MOST)
        return Encoded(pooled=(shares[:, :, None] * _centred(pooled.device)[classes]).sum(dim=1))

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of the body and the classifier, bottom to top.

        Returns:
            A list per layer; empty where nothing is pretrained.
        """
        below = super().body_layers()
        return [*below, list(self.classifier.parameters())] if below else []


@cache
def name_vectors() -> Float[Tensor, "c d"]:
    """The vectors of `CLASSES` by the text tower of `starter`, from the user's cache where they are in it.

    Raises the errors of `starter_file`.

    Returns:
        (1000 384) float32, of unit length.
    """
    content = content_digest("\n".join(CLASSES).encode())
    about = {"encoder": "names of classes", "weights": STARTER["text"].sha256, "fields": ["parts"]}
    cache = user_cache()
    found = None if cache is None else cache.find(about, {content})
    if found is not None and found.rows:
        segment, output = found.rows[content]
        vectors, _ = found.segments[segment].output(output)
        return torch.from_numpy(np.array(vectors))
    from subtext.models.encoders.language import SentenceEncoder

    computed = unit(torch.from_numpy(SentenceEncoder(NAME)(CLASSES))).numpy()
    if cache is not None:
        with suppress(OutputError):  # They are computed again.
            writer = OutputWriter(cache, about, computed.dtype)
            writer.add([[content]], [computed], None, left=1)
            writer.flush()
    return torch.from_numpy(computed)


@cache
def _centred(device: torch.device) -> Float[Tensor, "c d"]:
    # The first image may come in inference mode, whose tensors no later training could use.
    with torch.inference_mode(False):
        vectors = name_vectors()
        return (vectors - vectors.mean(dim=0)).to(device)
