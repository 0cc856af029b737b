"""Encoders that are given as objects: any torch module as the body of an image or a text tower."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from subtext.core import Encoded
from subtext.data.given import STRINGS, TOKENS, name_of
from subtext.errors import OF_OBJECTS, RequirementError
from subtext.models.encoders.backbone import Pretrained


class Given(Pretrained):
    """A module of the user as an encoder; a copy of it learns.

    Args:
        module: Maps pixels (N 3 H W), tokens (N L), keywords as a tokeniser returned them, or a list of texts to
            vectors (N D) or (N P D), or to an output of transformers.
        option: "image" or "text".
        example: Tensors of one item, from which the widths are measured.

    Attributes:
        parts_width: E of parts (N P E); vectors alone are one part each.
        pooled_width: G of vectors (N G).

    Raises:
        RequirementError: If the module cannot be copied, or maps the example to something else.
    """

    def __init__(self, module: nn.Module, option: str, example: dict[str, Tensor]) -> None:
        try:
            body = deepcopy(module)
        except OF_OBJECTS as error:
            raise RequirementError(
                f"{option}={name_of(module)} needs a module that can be copied, since a copy of it learns: "
                f"{str(error).splitlines()[0]:.100}",
                field=option,
            ) from error
        super().__init__(body, pretrained=True)
        self.option = option
        learning = body.training
        try:
            with torch.no_grad():
                encoded = self.eval()(example)
        except RequirementError:
            raise
        except OF_OBJECTS as error:
            shapes = ", ".join(
                f"{name.removeprefix(TOKENS) or 'tokens'} {tuple(it.shape)}" for name, it in example.items()
            )
            got = "a list of texts" if STRINGS in example else shapes
            raise RequirementError(
                f"{option}={name_of(module)} needs a module that maps {got} to vectors (N, D); it raised "
                f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.160}",
                field=option,
            ) from error
        self.train(learning)
        assert encoded.parts is not None and encoded.pooled is not None
        self.parts_width = int(encoded.parts.shape[-1])
        self.pooled_width = int(encoded.pooled.shape[-1])

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """The vectors of a batch.

        Args:
            inputs: "pixels", "strings", or what a tokeniser returned, under names that begin with "given.".

        Returns:
            Pooled vectors (N G), and parts (N P E); of a module that returns vectors alone, these are the only part.
        """
        mask = None
        if STRINGS in inputs:
            texts = [bytes(row.tolist()).rstrip(b"\0").decode("utf-8") for row in inputs[STRINGS].cpu()]
            output = self.body(texts)
        elif "pixels" in inputs:
            output = self.body(inputs["pixels"])
        else:
            given = {name.removeprefix(TOKENS): value for name, value in inputs.items() if name.startswith(TOKENS)}
            mask = given.get("attention_mask")
            output = self.body(given[""]) if "" in given else self.body(**given)
        return self._encoded(output, mask)

    def _encoded(self, output: Any, mask: Tensor | None) -> Encoded:
        pooled = None
        if not isinstance(output, Tensor):
            named = [getattr(output, name, None) for name in ("pooler_output", "image_embeds", "text_embeds")]
            pooled = next((value for value in named if isinstance(value, Tensor)), None)
            output = getattr(output, "last_hidden_state", pooled)
        if not isinstance(output, Tensor) or output.ndim not in (2, 3) or not output.is_floating_point():
            got = f"{output.dtype} of shape {tuple(output.shape)}" if isinstance(output, Tensor) else "no tensor"
            raise RequirementError(
                f"{self.option}={name_of(self.body)} needs a module that returns vectors (N, D) or (N, P, D); it "
                f"returned {got}",
                field=self.option,
            )
        if output.ndim == 2:  # As pooled features: models that compare parts compare the only one.
            return Encoded(parts=output[:, None], pooled=output)
        if mask is None or mask.shape != output.shape[:2]:
            return Encoded(parts=output, pooled=output.mean(dim=1) if pooled is None else pooled)
        is_part = mask.bool()
        share = is_part[:, :, None] / is_part.sum(dim=1).clamp_min(1)[:, None, None]
        return Encoded(parts=output, mask=is_part, pooled=(output * share).sum(dim=1) if pooled is None else pooled)
