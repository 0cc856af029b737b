"""Pretrained dual encoders: both towers of one model, of `transformers` or of `open_clip` (extra)."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from subtext.core import Encoded
from subtext.errors import RequirementError, Setting
from subtext.models.encoders.backbone import (
    Pretrained,
    Weights,
    has_weights,
    import_extra,
    layers,
    open_body,
)
from subtext.models.encoders.hub import Preprocessing

_HALVES = ("altclip", "clip", "clipseg", "metaclip_2", "siglip", "siglip2")
"""Families whose towers and projections are modules of their own; of others, `get_image_features` is called."""

_METHODS = ("get_image_features", "get_text_features")


def module_folder(name: str, *, option: str = "model") -> str:
    """The folder of the `transformers` model inside one of sentence-transformers.

    Args:
        name: A folder or a hub name.
        option: The option that gave the name, for messages.

    Returns:
        The folder; any other name as it is.

    Raises:
        RequirementError: If extra modules change the vectors, or their list cannot be read.
    """
    modules = Path(name, "modules.json")
    if not modules.is_file():
        return name
    try:
        first, *others = [(str(module["type"]), str(module["path"])) for module in json.loads(modules.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise RequirementError(
            Setting(option, name),
            f" needs a {modules.name} that lists its modules; it cannot be read: {error!r}; copy the folder again",
        ) from error
    changing = [kind.rpartition(".")[2] for kind, _ in others if not kind.endswith((".Pooling", ".Normalize"))]
    if changing:
        raise RequirementError(
            Setting(option, name),
            f" needs vectors that come from its first module alone; it has {', '.join(changing)} behind "
            "it; give the folder of a model without",
        )
    # An empty path is the folder itself.
    return str(Path(name, first[1]))


@dataclass(frozen=True)
class Dual:
    """Both towers of a dual encoder, and its scale and shift.

    Attributes:
        image: Encoder of images.
        text: Encoder of texts.
        scale: Factor of the cosine in a score.
        shift: Added to it; None for a model without (CLIP).
    """

    image: SingleTower | FeatureTower
    text: SingleTower | FeatureTower
    scale: float
    shift: float | None

    @staticmethod
    def open(name: str, *, weights: Weights = "pretrained", assets: Path | None = None) -> Dual:
        """Open both towers by hub name or folder (see `open_body`), or from the configuration that one tower saved.

        Args:
            name: A hub name, or a folder.
            weights: "pretrained" or "random".
            assets: Folder of a saved run, of which the configuration alone is read; None to open the named model.

        Returns:
            Both towers.

        Raises:
            RequirementError: If the model has one tower, or two that were not trained together, if weights are missing.
        """

        def require_two_towers(body: PreTrainedModel) -> None:
            if all(callable(getattr(body, method, None)) for method in _METHODS):
                return
            side, article = ("image", "an") if body.main_input_name == "pixel_values" else ("text", "a")
            raise RequirementError(
                Setting("model", name),
                f" needs images and texts in one space, as CLIP and SigLIP learnt them; it holds "
                f"{type(body).__name__}, {article} {side} encoder alone; train it together with another (subtext train "
                f"--{side} {name} --data DATA)",
            )

        model = open_body(name, weights=weights, assets=assets, option="model", complete=require_two_towers)
        require_two_towers(model)
        config, pretrained = model.config, has_weights(name, weights)
        scale, shift = _scale_and_shift(model)
        halves: Any
        if config.model_type in _HALVES:
            projections = (getattr(model, f"{side}_projection", None) for side in ("visual", "text"))
            towers = zip((model.vision_model, model.text_model), projections, ("pixels", "tokens"), strict=True)
            halves = [
                SingleTower(body, projection, config, input_name=input_name, pretrained=pretrained)
                for body, projection, input_name in towers
            ]
        else:
            halves = [
                FeatureTower(model, method, input_name=input_name, pretrained=pretrained)
                for method, input_name in zip(_METHODS, ("pixels", "tokens"), strict=True)
            ]
        image, text = halves
        if image.pooled_width != text.pooled_width:
            raise RequirementError(
                Setting("model", name),
                f" needs images and texts in one space; {type(model).__name__} gives {image.pooled_width} "
                f"numbers for an image and {text.pooled_width} for a text; give a dual encoder such as CLIP or SigLIP",
            )
        return Dual(image, text, scale, shift)


class SingleTower(Pretrained):
    """The encoder of one modality in a pretrained dual encoder.

    Args:
        body: The tower's transformer.
        projection: Map into the joint space; None where the body has it (SigLIP).
        config: Configuration of the full model, from which either tower restores both.
        input_name: "pixels" or "tokens".
        pretrained: Whether the body is pretrained, see `Pretrained`.
    """

    def __init__(
        self,
        body: PreTrainedModel,
        projection: nn.Module | None,
        config: PretrainedConfig,
        *,
        input_name: str,
        pretrained: bool = False,
    ) -> None:
        super().__init__(body, pretrained=pretrained)
        self.projection = nn.Identity() if projection is None else projection
        self.config = config
        self.input_name = input_name
        side_config = config.vision_config if input_name == "pixels" else config.text_config
        self.parts_width = int(side_config.hidden_size)
        outer = getattr(config, "projection_dim", None) if projection is not None else None
        self.pooled_width = int(outer or getattr(side_config, "projection_size", None) or side_config.hidden_size)
        # SigLIP learnt with texts padded to full length and nothing masked, and reads its last token.
        self.full_length = input_name == "tokens" and "siglip" in config.model_type
        # SigLIP 2 of variable size (NaFlex) reads patches.
        self.variable = config.model_type == "siglip2"
        self.size = 0 if self.variable else int(config.vision_config.image_size)
        self.longest = int(side_config.max_position_embeddings) if input_name == "tokens" else 0

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """States and joint vectors of images or texts.

        Args:
            inputs: "pixels" (N 3 H W); where images are of variable size "pixels" (N P 3K²), "mask" (N P) and "shapes"
                (N 2), rows and columns of patches; or "tokens" (N P) int64 with "mask" (N P) bool, P `longest` where
                the model learnt with texts at full length.

        Returns:
            Encoded with `parts` (N P E), last hidden states, with their mask; `pooled` (N G), the projected
            vector that the model compares, not yet of unit length.
        """
        self.keep_frozen()
        if self.input_name == "pixels":
            pixels = inputs["pixels"]
            if self.variable:
                seen = inputs["mask"]
                output = self.body(pixels, seen.to(torch.int32), inputs["shapes"])
                return Encoded(parts=output.last_hidden_state, mask=seen, pooled=self.projection(output.pooler_output))
            resized = tuple(pixels.shape[-2:]) != (self.config.vision_config.image_size,) * 2
            output = self.body(pixel_values=pixels, interpolate_pos_encoding=resized)
            return Encoded(parts=output.last_hidden_state, pooled=self.projection(output.pooler_output))
        tokens, mask = inputs["tokens"], inputs["mask"]
        masked = {} if self.full_length else {"attention_mask": mask.to(tokens.dtype)}
        output = self.body(input_ids=tokens, **masked)
        return Encoded(parts=output.last_hidden_state, mask=mask, pooled=self.projection(output.pooler_output))

    def body_layers(self) -> list[list[nn.Parameter]]:
        """Parameters of a pretrained transformer and its projection, bottom to top.

        Returns:
            A list per layer; empty where the body is not pretrained.
        """
        if not self.pretrained:
            return []
        top = list(self.projection.parameters())
        return [*layers(self.body), top] if top else layers(self.body)

    def save_assets(self, folder: Path) -> None:
        """Write the configuration of the full model.

        Args:
            folder: An existing folder.
        """
        self.config.save_pretrained(folder)


class FeatureTower(Pretrained):
    """One modality of any dual encoder of `transformers` with `get_image_features` and `get_text_features`.

    Args:
        model: The full model; only the modules that this modality uses are kept.
        method: The name of that method.
        input_name: "pixels" or "tokens".
        pretrained: Whether the body is pretrained, see `Pretrained`.

    Raises:
        RequirementError: If the model does not say the sizes of its inputs, or its method gives no vector per item.
    """

    parts_width = None
    full_length = False

    def __init__(self, model: PreTrainedModel, method: str, *, input_name: str, pretrained: bool = False) -> None:
        config = model.config
        image_size = getattr(getattr(config, "vision_config", config), "image_size", None)
        longest = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
        if not isinstance(image_size, int) or not isinstance(longest, int):
            raise RequirementError(
                "a dual encoder needs square images and a longest text in its configuration; "
                f"{type(model).__name__} has image_size {image_size} and max_position_embeddings {longest}; give "
                "another model"
            )
        used: set[str] = set()
        hooks = [
            child.register_forward_hook(lambda *_, name=name: used.add(name)) for name, child in model.named_children()
        ]
        super().__init__(copy.copy(model), pretrained=pretrained)
        self.config, self.size, self.longest = config, image_size, longest
        self.method, self.input_name = method, input_name
        tokens = torch.ones(1, 4, dtype=torch.int64)
        pixels = torch.zeros(1, 3, image_size, image_size)
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                inputs = {"pixels": pixels} if input_name == "pixels" else {"tokens": tokens, "mask": tokens > 0}
                vector = self(inputs).pooled
        finally:
            model.train(was_training)
            for hook in hooks:
                hook.remove()
        if not isinstance(vector, Tensor) or vector.ndim != 2:
            raise RequirementError(
                f"a dual encoder needs one vector of an item; {method} of {type(model).__name__} gives none; give "
                "another model"
            )
        self.pooled_width = int(vector.shape[1])
        self.body._modules = {name: child for name, child in model.named_children() if name in used}
        # Similarities learn these.
        self.body._parameters = {k: v for k, v in self.body._parameters.items() if not k.startswith("logit_")}

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Joint vectors of images or texts.

        Args:
            inputs: "pixels" (N 3 H W), or "tokens" (N P) int64 with "mask" (N P) bool.

        Returns:
            Encoded with `pooled` (N G), what that method gives, not yet of unit length.
        """
        self.keep_frozen()
        if self.input_name == "pixels":
            arguments = {"pixel_values": inputs["pixels"]}
        else:
            mask = inputs["mask"].to(inputs["tokens"].dtype)
            arguments = {"input_ids": inputs["tokens"], "attention_mask": mask}
        output = getattr(self.body, self.method)(**arguments)
        return Encoded(pooled=getattr(output, "pooler_output", output))

    def save_assets(self, folder: Path) -> None:
        """Write the configuration of the full model.

        Args:
            folder: An existing folder.
        """
        self.config.save_pretrained(folder)


@dataclass(frozen=True)
class OpenClip:
    """Both towers of a model of `open_clip`.

    Attributes:
        image: Encoder of images.
        text: Encoder of texts.
        scale: Factor of the cosine in a score.
        shift: Added to it; None for a model without.
        preprocessing: Preprocessing of its images.
    """

    image: TextTower
    text: TextTower
    scale: float
    shift: float | None
    preprocessing: Preprocessing

    @staticmethod
    def open(name: str, *, pretrained: bool = True, fetch: bool = True, image_size: int = 0) -> OpenClip:
        """Open both towers by architecture and weights.

        Args:
            name: Such as "ViT-B-32/laion2b_s34b_b79k".
            pretrained: Whether to use the named weights; False for random ones.
            fetch: Whether to read weights now; not for a saved run, whose tensors follow.
            image_size: Side of images in pixels; 0 for that of the model.

        Returns:
            Both towers.

        Raises:
            RequirementError: If open_clip cannot be imported, does not know the name, or the name lacks its weights.
        """
        architecture, _, tag = name.partition("/")
        has_tag = pretrained and bool(tag)
        open_clip = import_extra("open_clip", f"open_clip:{name}", "open_clip_torch")
        try:
            # With a custom text tower the text side needs nothing of the image side.
            model = open_clip.create_model(
                architecture,
                pretrained=tag if has_tag and fetch else None,
                force_image_size=image_size or None,
                force_custom_text=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise RequirementError(
                f"'open_clip:{name}' needs ARCHITECTURE/WEIGHTS as open_clip.list_pretrained() names them; "
                f"it got: {error}"
            ) from error
        if pretrained and fetch and not tag:
            raise RequirementError(
                Setting("model", f"open_clip:{name}"),
                " needs the name of its weights, open_clip:ARCHITECTURE/WEIGHTS; it got none; add it, or ",
                Setting("weights", "random"),
            )
        settings = model.visual.preprocess_cfg
        size = settings["size"]
        preprocessing = Preprocessing(
            int(size if isinstance(size, int) else size[0]),
            tuple(settings["mean"]),
            tuple(settings["std"]),
            resize="squash" if settings.get("resize_mode") == "squash" else "crop",
            crop_share=1.0,
            filter="bicubic" if settings.get("interpolation") == "bicubic" else "bilinear",
        )
        image, text = (
            TextTower(model.visual, "pixels", pretrained=has_tag),
            TextTower(model.text, "tokens", pretrained=has_tag),
        )
        return OpenClip(image, text, *_scale_and_shift(model), preprocessing)


class TextTower(Pretrained):
    """The encoder of one modality; its pooled vector is in the joint space, before normalisation.

    Args:
        body: The tower.
        input_name: "pixels" or "tokens".
        pretrained: Whether the body is pretrained, see `Pretrained`.
    """

    parts_width = None

    def __init__(self, body: Any, input_name: str, *, pretrained: bool = False) -> None:
        super().__init__(body, pretrained=pretrained)
        self.input_name = input_name
        self.pooled_width = int(body.output_dim)

    def forward(self, inputs: dict[str, Tensor]) -> Encoded:
        """Joint vectors of images or texts.

        Args:
            inputs: "pixels" (N 3 H W) or "tokens" (N P) int64.

        Returns:
            Encoded with `pooled` (N G), not yet of unit length.
        """
        self.keep_frozen()
        return Encoded(pooled=self.body(inputs[self.input_name]))


def _scale_and_shift(model: Any) -> tuple[float, float | None]:
    """The factor and the shift of a model's cosines.

    Raises:
        RequirementError: For a model without a factor.
    """
    shift, scale = getattr(model, "logit_bias", None), getattr(model, "logit_scale", None)
    temperature = getattr(model, "temperature", None)
    if scale is None and not isinstance(temperature, Tensor):
        raise RequirementError(
            f"a dual encoder needs a logit_scale, or a temperature; {type(model).__name__} has neither; give another"
        )
    factor = 1 / float(temperature.detach()) if scale is None else float(scale.detach().exp())  # type: ignore[union-attr]
    return factor, None if shift is None else float(shift.detach())
