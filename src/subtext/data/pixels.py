"""Images as the input of an encoder: tensors of pixels, with random changes while training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.image_files import FILTERS, open_image, read_square
from subtext.data.inputs import Draw, InputBatch, Tensors, read_settings, settings_hash, write_settings
from subtext.errors import DataError
from subtext.ops import draw as draws

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue in [0, 1]."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue."""

_FILE, PATCHES = "pixels.json", "patches.json"
_EPSILON = 1e-5
"""Precision of the scale of an image in patches."""
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ReadImage:
    """An image as `PixelInput` reads it without a draw: of no more memory than the model needs.

    Attributes:
        pixels: (S S 3) uint8.
        fingerprint: Of the PixelInput, which alone takes it.
    """

    pixels: NDArray[np.uint8]
    fingerprint: str


@dataclass(frozen=True)
class PixelInput:
    """Images -> "pixels" (N 3 S S) float32, (value in [0, 1] - mean) / std, and "ids".

    Args:
        size: S, the side in pixels.
        mean: (3) per channel, subtracted from values in [0, 1].
        std: (3) per channel, a divisor.
        resize: "crop": the square in the middle, `crop_share` of the short side; "edge": the same in whole pixels, as
            `transformers` resizes the short side to size / crop_share and then crops; "squash": the full image, its
            aspect lost.
        crop_share: Share of the short side that a crop keeps, in (0, 1].
        filter: How pixels are resampled.
        least_area: While training: crops of this share of the image or more, of aspects 3:4 to 4:3 (the random resized
            crop of Szegedy et al. 2015); 1 for the same crop as without a draw.
        flip: While training: share of images mirrored left to right; leave at 0 where texts say left and right.
        erase: While training: share of images with a rectangle of 2 to 33 % of the area set to the mean (Zhong et al.
            2020, random erasing).

    Raises:
        DataError: If an option is out of its range.
    """

    size: int = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    resize: Literal["crop", "edge", "squash"] = "crop"
    crop_share: float = 0.875
    filter: Literal["bilinear", "bicubic", "lanczos"] = "bilinear"
    least_area: float = 1.0
    flip: float = 0.0
    erase: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DataError(f"size is the side of an image in pixels, 1 or more; it got {self.size}")
        for name, bracket in (("crop_share", "("), ("least_area", "("), ("flip", "["), ("erase", "[")):
            share = getattr(self, name)
            if not 0 <= share <= 1 or (bracket == "(" and share == 0):
                raise DataError(f"{name} is a share in {bracket}0, 1]; it got {share}")
        if min(self.std) <= 0:
            raise DataError(f"std needs numbers above 0; it got {self.std}")

    @property
    def augments(self) -> bool:
        """Whether any of crop, flip and erasing is on."""
        return self.least_area < 1 or self.flip > 0 or self.erase > 0

    @property
    def fingerprint(self) -> str:
        """Changes with everything that matters without a draw."""
        names = ("size", "mean", "std", "resize", "crop_share", "filter")
        return settings_hash({"kind": "pixels"} | {name: getattr(self, name) for name in names})

    @property
    def square(self) -> dict[str, Any]:
        """The arguments of `read_square`."""
        return {name: getattr(self, name) for name in ("size", "resize", "crop_share", "filter")}

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Read the pixels of a batch.

        Args:
            batch: N images.
            draw: Seed and epoch of augmentation; None outside of training.

        Returns:
            "pixels" (N 3 S S) float32, and "ids" (N).

        Raises:
            DataError: If an image cannot be read; the message names the item.
        """
        pixels = np.empty((len(batch.values), self.size, self.size, 3), dtype=np.uint8)
        # (N 10): flip, four of the crop, whether to erase, four of the erased rectangle.
        random = (
            draws.uniform(batch.keys, seed=draw.seed, epoch=draw.epoch, purpose="image augmentation", count=10)
            if draw is not None and self.augments
            else None
        )
        for index, (name, value) in enumerate(zip(batch.ids, batch.values, strict=True)):
            if value is None:
                raise DataError(f"item '{name}' has no image, only a name; read it from features, or give its 'image'")
            try:
                pixels[index] = self._pixels(value, batch.root, None if random is None else random[index])
            except DataError as error:
                raise DataError(f"item '{name}': {error}") from error
        mean, std = (torch.tensor(value, dtype=torch.float32).view(1, 3, 1, 1) for value in (self.mean, self.std))
        # Channels stay last in memory: convolutions on a processor run by up to 1.6 times faster so.
        tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32).div_(255).sub_(mean).div_(std)
        if random is not None:
            for row in np.flatnonzero(random[:, 5] < self.erase):
                area, aspect, across, down = random[row, 6:10]
                left, top, right, bottom = _rectangle(
                    self.size, self.size, 0.02 + 0.31 * area, np.exp((2 * aspect - 1) * np.log(3.3)), (across, down)
                )
                tensor[row, :, round(top) : round(bottom), round(left) : round(right)] = 0.0
        return {"pixels": tensor, "ids": torch.from_numpy(np.ascontiguousarray(batch.rows))}

    def save(self, folder: Path) -> None:
        """Write the settings.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / _FILE, asdict(self))

    @staticmethod
    def load(folder: Path) -> PixelInput:
        """Load the Input that `save` wrote.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.
        """
        values = read_settings(folder / _FILE, tuple(PixelInput.__dataclass_fields__))
        return PixelInput(**values | {name: tuple(values[name]) for name in ("mean", "std")})

    def _pixels(self, value: Any, root: Path, random: NDArray[np.float64] | None) -> NDArray[np.uint8]:
        if isinstance(value, ReadImage):
            if random is not None or value.fingerprint != self.fingerprint:
                raise DataError("an image was read for another model, or without a draw; read its file again")
            return value.pixels
        if random is None or self.least_area == 1:
            array = read_square(value, root, **self.square)
        else:
            # A random crop needs as many pixels as the full image has otherwise.
            share = min(self.crop_share, self.least_area**0.5)
            image = open_image(value, root, at_least=int(self.size / share) + 1)
            box = random_box(*image.size, self.least_area, random[1:5])
            image = image.resize((self.size, self.size), FILTERS[self.filter], box=box, reducing_gap=3.0)
            array = np.asarray(image)
        return array[:, ::-1] if random is not None and random[0] < self.flip else array


@dataclass(frozen=True)
class PatchInput:
    """Images of their own aspect -> "pixels" (N P 3K²) float32, patches, "mask" (N P), "shapes" (N 2) and "ids".

    An image is resized to the most patches of K x K pixels, in rows and columns, that are no more than P together
    (NaFlex, Tschannen et al. 2025). What is left of P is masked.

    Args:
        patches: P, the most patches of an image.
        patch: K, the side of a patch in pixels.
        mean: (3) per channel, subtracted from values in [0, 1].
        std: (3) per channel, a divisor.
        filter: How pixels are resampled.
    """

    patches: int = 256
    patch: int = 16
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    filter: Literal["bilinear", "bicubic", "lanczos"] = "bilinear"

    @property
    def augments(self) -> bool:
        """Never."""
        return False

    @property
    def fingerprint(self) -> str:
        """Changes with any setting."""
        return settings_hash({"kind": "patches", **asdict(self)})

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Read the patches of a batch.

        Args:
            batch: N images.
            draw: Not used: nothing is augmented.

        Returns:
            "pixels" (N P 3K²) float32, "mask" (N P) bool, "shapes" (N 2) int64, rows and columns, and "ids" (N).

        Raises:
            DataError: If an image cannot be read; the message names the item.
        """
        side = self.patch
        table = np.zeros((len(batch.values), self.patches, 3 * side**2), dtype=np.float32)
        shapes = np.zeros((len(batch.values), 2), dtype=np.int64)
        mean, std = (np.asarray(value, dtype=np.float32) for value in (self.mean, self.std))
        for index, (name, value) in enumerate(zip(batch.ids, batch.values, strict=True)):
            if value is None:
                raise DataError(f"item '{name}' has no image, only a name; read it from features, or give its 'image'")
            try:
                image = open_image(value, batch.root, at_least=side * int(self.patches**0.5) + 1)
            except DataError as error:
                raise DataError(f"item '{name}': {error}") from error
            rows, columns = shapes[index] = self.shape(image.height, image.width)
            resized = image.resize((int(columns) * side, int(rows) * side), FILTERS[self.filter])
            colours = (np.asarray(resized, dtype=np.float32) / 255 - mean) / std
            cut = colours.reshape(rows, side, columns, side, 3).transpose(0, 2, 1, 3, 4)
            table[index, : rows * columns] = cut.reshape(rows * columns, -1)
        mask = np.arange(self.patches)[None] < shapes.prod(axis=1)[:, None]
        arrays = {"pixels": table, "mask": mask, "shapes": shapes, "ids": np.ascontiguousarray(batch.rows)}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches of an image: the scale is found by bisection, as in the training.

        Args:
            height: Of the image, pixels.
            width: Of the image, pixels.

        Returns:
            Rows and columns, each 1 or more.
        """
        low, high = _EPSILON / 10, 100.0
        while high - low >= _EPSILON:
            middle = (low + high) / 2
            rows, columns = self._scaled(height, middle), self._scaled(width, middle)
            low, high = (middle, high) if rows * columns <= self.patches else (low, middle)
        rows, columns = self._scaled(height, low), self._scaled(width, low)
        # An extreme aspect has one row or column at any scale.
        return min(rows, self.patches), min(columns, self.patches)

    def _scaled(self, pixels: int, scale: float) -> int:
        return max(1, math.ceil(pixels * scale / self.patch))

    def save(self, folder: Path) -> None:
        """Write the settings.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / PATCHES, asdict(self))

    @staticmethod
    def load(folder: Path) -> PatchInput:
        """Load the Input that `save` wrote.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.
        """
        values = read_settings(folder / PATCHES, tuple(PatchInput.__dataclass_fields__))
        return PatchInput(**values | {name: tuple(values[name]) for name in ("mean", "std")})


def random_box(width: int, height: int, least_area: float, random: NDArray[np.float64]) -> _Box:
    """Sample a box of an image, of aspect 3:4 to 4:3.

    A side that does not fit is cut to the image's, so the box of a very long image can be smaller.

    Args:
        width: Of the image, pixels.
        height: Of the image, pixels.
        least_area: Least share of the image's area.
        random: (4) numbers in [0, 1).

    Returns:
        Left, top, right and bottom in pixels.
    """
    area = least_area + (1 - least_area) * random[0]
    aspect = np.exp((2 * random[1] - 1) * np.log(4 / 3))
    return _rectangle(width, height, area, aspect, (random[2], random[3]))


def _rectangle(width: int, height: int, share: float, aspect: float, index: tuple[float, float]) -> _Box:
    across = min(float(width), max(1.0, float(np.sqrt(width * height * share * aspect))))
    down = min(float(height), max(1.0, float(np.sqrt(width * height * share / aspect))))
    left, top = index[0] * (width - across), index[1] * (height - down)
    return (float(left), float(top), float(left + across), float(top + down))
