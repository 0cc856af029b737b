"""Safe decoding of images: the content of any file becomes an RGB image, or a DataError with the reason."""

from __future__ import annotations

import base64
import os
import re
import struct
import traceback
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from subtext.errors import DataError
from subtext.text_helpers import install_hint

THUMBNAIL = 160
"""Pixels of the longer side of a thumbnail, for screens of double density."""

MAX_PIXELS = 89_478_485
"""Largest image that is decoded, width times height: Pillow's own limit. Larger ones may be decompression bombs."""

LARGE = 2**24
"""Pixels above which an image is scaled down before anything else, where its reader needs far fewer."""
_STRIP = 2**20
"""Pixels that are converted at a time."""

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
LONGEST = 4
"""Sides of an image, long by short, up to which it is resized before it is cropped."""

# Errors of Pillow's decoders on damaged files, and its warnings of damage, which may be configured as errors.
BROKEN = (
    OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RuntimeError, struct.error, zlib.error, Image.DecompressionBombError, Warning,
)  # fmt: skip
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
"""Brands of HEIC files; those that begin with "mif1" may also be AVIF, which Pillow reads."""
_INSIDE = re.compile(r"^(?P<file>.+)\?offset=(?P<offset>\d+)&size=(?P<size>\d+)$", re.DOTALL)


def inside(file: str, offset: int, size: int) -> str:
    """Make the value of an image that lies inside another file, such as a tar.

    Args:
        file: Path of the file.
        offset: First byte of the image.
        size: Number of its bytes.

    Returns:
        The value, a string.
    """
    return f"{file}?offset={offset}&size={size}"


def read_bytes(source: str | Path | bytes, root: Path, *, within: Sequence[Path] | None = None) -> bytes:
    """Read the bytes of an image as a file has them.

    Args:
        source: A path (against root), a part of a file (`inside`), or the bytes themselves.
        root: Folder of relative paths.
        within: Folders, resolved, that the file must lie in when all links are followed; None for no limit.

    Returns:
        The bytes.

    Raises:
        DataError: If there is no such file, it is empty, or it lies elsewhere.
    """
    if isinstance(source, bytes):
        if not source:
            raise DataError("image of 0 bytes is empty (0 bytes); remove it or download it again")
        return source
    source = str(source)
    try:
        path, offset, size = _located(source, root)
        if within is not None:
            # What is opened below is what is checked here, whatever its name looks like.
            path = path.resolve()
            if not any(path.is_relative_to(folder) for folder in within):
                raise DataError(f"image {source} is outside of the folders whose images may be read")
        if path.is_dir():
            raise DataError(f"image {source} is a folder; name the file in it")
        if path.exists() and not path.is_file():
            raise DataError(f"image {source} is no ordinary file")
        with path.open("rb") as file:
            rest = max(0, os.fstat(file.fileno()).st_size - offset)
            if size is not None and rest < size:
                raise DataError(f"image {source} is cut off: {rest} bytes of it are left")
            file.seek(offset)
            data = file.read(size)
    except FileNotFoundError as error:
        raise DataError(
            f"image {source} is not in {root}; give its path from there, or the folder that image paths start from"
        ) from error
    except DataError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"image {source!r} cannot be read: {error}") from error
    if size is not None and len(data) < size:
        raise DataError(f"image {source} is cut off: {len(data)} bytes of it are left")
    if not data:
        raise DataError(f"image {source} is empty (0 bytes); remove it or download it again")
    return data


def _located(source: str, root: Path) -> tuple[Path, int, int | None]:
    """The file of an image, and the offset and size of the image in it; no size for a file that is an image."""
    match = _INSIDE.match(source)
    if match is None or (root / source).is_file():
        return root / source, 0, None
    return root / match["file"], int(match["offset"]), int(match["size"])


def image_exists(source: str, root: Path) -> bool:
    """Test whether a path is a file; a name that no disk can have is none.

    Args:
        source: A path (against root) or a part of a file.
        root: Folder of relative paths.

    Returns:
        Whether the file exists.
    """
    return os.path.isfile(os.path.join(root, source))  # noqa: PTH113, PTH118 (Path.is_file raises for such names)


def stored_size(source: str | Path | bytes, root: Path) -> int | None:
    """Get the size of an image file without reading it.

    Args:
        source: A path (against root), a part of a file, or bytes.
        root: Folder of relative paths.

    Returns:
        Bytes; None if there is no such file.
    """
    if isinstance(source, bytes):
        return len(source)
    try:
        path, _, size = _located(str(source), root)
        return path.stat().st_size if size is None else size
    except (OSError, ValueError):
        return None


def image_stamp(source: str, root: Path) -> tuple[int, int, int] | None:
    """Get a stamp of an image file that changes with its content.

    A file that is overwritten in place gets another stamp, even with its old time of writing; renaming its folder
    changes nothing.

    Args:
        source: A path (against root) or a part of a file.
        root: Folder of relative paths.

    Returns:
        Size, time of writing and time of change; None if there is no such file.
    """
    try:
        file = _located(source, root)[0].stat()
    except (OSError, ValueError):
        return None
    return file.st_size, file.st_mtime_ns, file.st_ctime_ns


def open_image(source: Any, root: Path = Path(), *, at_least: int | None = None) -> Image.Image:
    """Decode an RGB image: rotated as its EXIF says, the first frame of an animation, transparency on white.

    A file takes 4 bytes of memory per pixel, or 8 where it is not RGB and `at_least` is no help.

    Args:
        source: Path (against root), a part of a file (`inside`), bytes, PIL image, or array (H W) or (H W 3).
        root: Folder of relative paths.
        at_least: JPEG is decoded at the smallest of its own scales whose sides are still this long: several times
            faster. An image of more than LARGE pixels is scaled down to sides of three times this or more.

    Returns:
        The image.

    Raises:
        DataError: If the file is missing, empty, cut off, no image, or has more than MAX_PIXELS; the message has the
            reason.
    """
    if isinstance(source, np.ndarray):
        fits = source.ndim == 2 or (source.ndim == 3 and source.shape[2] in (1, 3, 4))
        if not fits or source.dtype != np.uint8 or 0 in source.shape:
            needs = "an image given as an array needs uint8 (height, width, 3)"
            raise DataError(f"{needs}; it got {source.dtype} of shape {source.shape}")
        return _rgb(Image.fromarray(source[:, :, 0] if source.ndim == 3 and source.shape[2] == 1 else source))
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        if isinstance(source, Image.Image):
            return _rgb(_upright(source))
        # An image that fails gives its memory back at once; the error, and the decoder in its frames, would hold it.
        data = read_bytes(source, root)
        prepare_decoder(data[:64], name)
        with Image.open(BytesIO(data)) as image, ExitStack() as failed:
            failed.callback(image.close)
            if image.format == "EPS":
                raise DataError(f"image {name} is EPS, a program that is not run; save it again as PNG")
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise DataError(
                    f"image {name} has {width} x {height} pixels, above the limit of {MAX_PIXELS:,}; make it smaller"
                )
            if at_least is not None and image.format == "JPEG":
                image.draft("RGB", (at_least, at_least))
            image.load()
            factor = 1
            if at_least is not None and image.width * image.height > LARGE:
                factor = max(1, min(image.size) // (3 * at_least))
            upright = _upright_rgb(image, factor)
            failed.pop_all()
            return upright
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"image {name} has more than {MAX_PIXELS:,} pixels; make it smaller") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is no image that can be read; it is another kind of file, or damaged") from error
    except BROKEN as error:
        traceback.clear_frames(error.__traceback__)
        raise DataError(f"image {name} cannot be decoded: {str(error) or type(error).__name__}") from error


def read_square(
    source: Any,
    root: Path = Path(),
    *,
    size: int,
    resize: Literal["crop", "edge", "squash"],
    crop_share: float,
    filter: Literal["bilinear", "bicubic", "lanczos"],
) -> NDArray[np.uint8]:
    """Decode an image and resize it to a square.

    Args:
        source: As `open_image` takes it.
        root: Folder of relative paths.
        size: S, the side in pixels.
        resize: How; see `data.pixels.PixelInput`, as for `crop_share` and `filter`.
        crop_share: Share of the short side that a crop keeps, in (0, 1].
        filter: How pixels are resampled.

    Returns:
        (S S 3) uint8.

    Raises:
        DataError: As `open_image`.
    """
    image = open_image(source, root, at_least=int(size / crop_share) + 1)
    width, height = image.size
    # Cropping before resizing keeps extreme aspects small.
    if resize == "squash":
        box = (0.0, 0.0, float(width), float(height))
    elif resize == "edge":
        short = round(size / crop_share)
        sides = (short * width // min(width, height), short * height // min(width, height))
        across, down = (sides[0] - size) // 2, (sides[1] - size) // 2
        corners = (across, down, across + size, down + size)
        # Pillow rounds otherwise where it resizes a part, so that only extreme aspects are cut first.
        if max(sides) <= LONGEST * short:
            image = image.resize(sides, FILTERS[filter], reducing_gap=3.0)
            width, height = sides
        scales = (width / sides[0], height / sides[1])
        box = (corners[0] * scales[0], corners[1] * scales[1], corners[2] * scales[0], corners[3] * scales[1])
    else:
        side = max(1.0, min(width, height) * crop_share)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), FILTERS[filter], box=box, reducing_gap=3.0))


def prepare_decoder(start: bytes, name: str) -> None:
    """Register the Pillow plugin that a file needs.

    Args:
        start: The first 64 bytes.
        name: Name of the file, for the message.

    Raises:
        DataError: For HEIC if the package for it is not installed.
    """
    if start[4:8] != b"ftyp" or start[8:12] not in _HEIF or b"avif" in start:
        return
    try:
        import pillow_heif
    except ImportError as error:
        raise DataError(f"image {name} is HEIC, which needs pillow-heif; {install_hint('heic')}") from error
    pillow_heif.register_heif_opener()


def thumbnail(source: Any, root: Path = Path(), *, size: int = THUMBNAIL) -> str | None:
    """Encode a small version of an image as a data URI.

    The smaller of PNG, for drawings of few colours, and JPEG.

    Args:
        source: As `open_image` takes it.
        root: Folder of relative paths.
        size: Largest width and height in pixels.

    Returns:
        The data URI; None if the image cannot be read.
    """
    try:
        image = open_image(source, root, at_least=size)
    except DataError:
        return None
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    encoded = []
    for form in ("png", "jpeg"):
        buffer = BytesIO()
        image.save(buffer, form, optimize=True, quality=85)
        encoded.append(f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}")
    return min(encoded, key=len)


def difference_hash(image: Image.Image) -> int:
    """Compute the difference hash: 64 bits, whether the image is brighter in the next cell of an 8 x 8 grid.

    Copies that were scaled or compressed again differ in a few bits at most.

    Args:
        image: The image.

    Returns:
        The bits as an integer.
    """
    small = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16)
    bits = (small[:, 1:] > small[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _upright(image: Image.Image, *, in_place: bool = False) -> Image.Image:
    """Rotated as EXIF says; a damaged EXIF block is ignored."""
    try:
        if in_place:
            ImageOps.exif_transpose(image, in_place=True)
            return image
        return ImageOps.exif_transpose(image)
    except BROKEN:
        return image


def _upright_rgb(image: Image.Image, factor: int) -> Image.Image:
    """As `_upright(_rgb(image).reduce(factor))`, without copies of the full image, which may be changed."""
    width, height = image.size
    if factor == 1 and (width * height <= _STRIP or (image.mode == "RGB" and "transparency" not in image.info)):
        return _rgb(_upright(image, in_place=True))
    rows = max(1, _STRIP // (width * factor)) * factor
    boxes = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    largest = max(map(_largest_grey, map(image.crop, boxes))) if image.mode.startswith(("I", "F")) else None
    small = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for box in boxes:
        small.paste(_rgb(image.crop(box), largest).reduce(factor), (0, box[1] // factor))
    small.info = {name: value for name, value in image.info.items() if name != "transparency"}
    return _upright(small, in_place=True)


def _largest_grey(image: Image.Image) -> float:
    return float(np.nan_to_num(np.asarray(image).astype(np.float64)).max(initial=0))


def _rgb(image: Image.Image, largest: float | None = None) -> Image.Image:
    """As RGB; `largest` is the largest grey of the image that this is a part of."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith(("I", "F")):
        # Greys of 16 and 32 bits are divided by 257, as 65,535 is to 255; floats in [0, 1] are stretched to 255.
        grey = np.nan_to_num(np.asarray(image).astype(np.float64))
        largest = _largest_grey(image) if largest is None else largest
        if image.mode == "F":
            grey = grey * 255 if largest <= 1 else grey
        elif image.mode.startswith("I;16") or largest > 255:
            grey = grey / 257
        return Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "La", "PA", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        ground = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, clear).convert("RGB")
    return image.convert("RGB")
