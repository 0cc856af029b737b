"""Safe decoding of images: the content of any file becomes an RGB image, or a DataError with the reason."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import threading
import traceback
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageFile, ImageOps, UnidentifiedImageError, features

from subtext.data.addresses import is_address, shown
from subtext.data.object_store import content, is_there, state_of
from subtext.errors import DataError
from subtext.text_helpers import counted, install_hint

THUMBNAIL = 160
"""Pixels of the longer side of a thumbnail, for screens of double density."""

LEAST_PIXELS = 89_478_485
"""Pixels of an image that is decoded on any machine: Pillow's own limit."""
MOST_PIXELS = 2**30
"""Pixels above which an image counts as a decompression bomb, unless the limit is set."""
PIXEL_BYTES = 8
"""Bytes of memory per pixel, at most, while an image is decoded."""

LARGE = 2**24
"""Pixels above which an image is scaled down before anything else, where its reader needs far fewer."""
_FACTORS = (8, 4, 2)
"""How many times an image is scaled down while it is decoded: what JPEG can, at 8 the mean of each block."""
PAGES = "pages"
"""Key of the number of pages among the facts (`info`) of an image that was opened, where it has several."""
_STRIP = 2**20
"""Pixels that are converted at a time."""
_ALONE = 2**23
"""Pixels from which images share the memory: of smaller ones, any number is decoded at a time."""

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
    RuntimeError, struct.error, zlib.error, Image.DecompressionBombError, Warning, ImageCms.PyCMSError,
)  # fmt: skip
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
"""Brands of HEIC files; those that begin with "mif1" may also be AVIF, which Pillow reads."""
_OWN_PARTS = (  # The beginning of a file, Pillow's name of what reads it, and the name for people.
    (b"\0\0\0\x0cjP  ", "jpg_2000", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "jpg_2000", "JPEG 2000"),
    (b"RIFF", "webp", "WebP"),
)
_PAGE_KIND, _BITS, _PHOTOMETRIC, _SAMPLES = 254, 258, 262, 339
"""Tags of TIFF: whether a page is a smaller copy of another, bits per sample, whether 0 is white, kind of numbers."""
LARGEST_FILE = 4
"""Bytes of a file that is read from elsewhere, for each pixel of the largest image: no file needs more of them."""
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
        source: A path (against root), a part of a file (`inside`), an address, or the bytes themselves.
        root: Folder of relative paths.
        within: Folders, resolved, that the file must lie in when all links are followed; None for no limit. An address
            of https has to lie on a public host, or below one of those that are addresses.

    Returns:
        The bytes.

    Raises:
        DataError: If there is no such file, it is empty, or it lies elsewhere.
        StoreError: If its store cannot be used.
    """
    if isinstance(source, bytes):
        if not source:
            raise DataError("image of 0 bytes is empty (0 bytes); remove it or download it again")
        return source
    source = str(source)
    if is_address(source):
        most = LARGEST_FILE * most_pixels()
        if within is None:
            data = content(source, most=most)
        else:
            # What a server shows is kept as a thumbnail, and a visitor must not reach into its network.
            data = content(source, most=most, keep=False, public=not _is_within(source, within))
        if not data:
            raise DataError(f"image {shown(source)} is empty (0 bytes); remove it or store it again")
        return data
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


def _is_within(address: str, within: Sequence[Path]) -> bool:
    path = re.split(r"[?#]", address)[0]
    while path != (decoded := unquote(path)):
        path = decoded
    # A host may resolve such parts, and some leave out what follows a semicolon.
    if any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", path)):
        return False
    folders = (str(folder).rstrip("/") for folder in within if is_address(folder))
    return any(f"{address}/".startswith(f"{folder}/") for folder in folders)


def _located(source: str, root: Path) -> tuple[Path, int, int | None]:
    """The file of an image, and the offset and size of the image in it; no size for a file that is an image."""
    match = _INSIDE.match(source)
    if match is None or (root / source).is_file():
        return root / source, 0, None
    return root / match["file"], int(match["offset"]), int(match["size"])


Gap = Literal["no file", "not there", "outside", "unreadable"]
"""Why an image has no picture to show."""


def picture_gap(source: str | None, root: Path, *, within: Sequence[Path] | None = None) -> Gap | None:
    """Why an image has no picture to show, without reading it.

    Args:
        source: A path (against root) or a part of a file; None for an image that has no file.
        root: Folder of relative paths.
        within: Folders, resolved, that the file must lie in when all links are followed; None for no limit.

    Returns:
        The reason; None for a file that can be opened, and for an address, which is not asked.
    """
    if source is None:
        return "no file"
    if is_address(source):
        return None
    try:
        path, offset, size = _located(source, root)
        if within is not None and not any(path.resolve().is_relative_to(folder) for folder in within):
            return "outside" if path.exists() else "not there"
        found = path.stat()
    except FileNotFoundError:
        return "not there"
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    cut_off = found.st_size < offset + (1 if size is None else size)
    return "unreadable" if cut_off or not path.is_file() or not os.access(path, os.R_OK) else None


def image_exists(source: str, root: Path) -> bool:
    """Test whether a path is a file; a name that no disk can have is none.

    Args:
        source: A path (against root) or a part of a file.
        root: Folder of relative paths.

    Returns:
        Whether the file exists.
    """
    if is_address(source):
        return is_there(source)
    return os.path.isfile(os.path.join(root, source))  # noqa: PTH113, PTH118 (Path.is_file raises for such names)


def stored_size(source: str | Path | bytes, root: Path) -> int | None:
    """Get the size of an image file without reading it.

    Args:
        source: A path (against root), a part of a file, or bytes.
        root: Folder of relative paths.

    Returns:
        Bytes; None if there is no such file, and for an address, whose size is limited where it is downloaded.
    """
    if isinstance(source, bytes):
        return len(source)
    if is_address(source):
        return None
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
    if is_address(source):
        return state_of(source)
    try:
        file = _located(source, root)[0].stat()
    except (OSError, ValueError):
        return None
    return file.st_size, file.st_mtime_ns, file.st_ctime_ns


def file_stamp(value: str, root: Path) -> str:
    """Size, time of writing and time of change of an image's file, as an index keeps them.

    Args:
        value: Path of the image.
        root: Folder that relative paths start from.

    Returns:
        The three numbers; "" if there is no such file.
    """
    return " ".join(map(str, image_stamp(value, root) or ()))


def image_digest(source: str, root: Path) -> bytes:
    """Digest of an image's bytes, as an index keeps it.

    Args:
        source: Path of the image.
        root: Folder of relative paths.

    Returns:
        16 bytes.

    Raises:
        DataError: If it cannot be read.
    """
    return hashlib.blake2b(read_bytes(source, root), digest_size=16).digest()


class _OwnLimit:
    """Takes the limit of Pillow away while any thread reads an image here, where the limit is `most_pixels`."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                Image.MAX_IMAGE_PIXELS = self._before


_limit: int | None = None
_own_limit = _OwnLimit()


def limit_pixels(millions: float | None) -> None:
    """Set the largest image that this process decodes.

    Args:
        millions: Million pixels, width times height; None for what the memory at hand allows.
    """
    global _limit
    _limit = None if millions is None else int(millions * 1_000_000)
    _memory_limit.cache_clear()


def most_pixels() -> int:
    """The largest image that is decoded, in pixels: as it was set, else half of the memory at hand.

    Returns:
        Width times height.
    """
    return _memory_limit() if _limit is None else _limit


@lru_cache(1)
def _memory_limit() -> int:
    return min(max(LEAST_PIXELS, memory_at_hand() // 2 // PIXEL_BYTES), MOST_PIXELS)


def memory_at_hand() -> int:
    """The memory that this process may still take: what the machine has free, or its container.

    Returns:
        Bytes.
    """
    import psutil

    free = int(psutil.virtual_memory().available)
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            of_group = (int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")) for name in (most, used))
            free = min(free, max(0, next(of_group) - next(of_group)))
    return free


class _ImageMemory:
    """Bounds the large images that are decoded at one time; one alone may take all."""

    def __init__(self) -> None:
        self._taken, self._changed = 0, threading.Condition()

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Wait until there is memory for an image.

        Args:
            pixels: Of the image.

        Returns:
            A context manager.
        """
        if pixels < _ALONE:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + pixels <= most_pixels())
            self._taken += pixels
        try:
            yield
        finally:
            with self._changed:
                self._taken -= pixels
                self._changed.notify_all()


_memory = _ImageMemory()


def identify(file: BufferedIOBase, name: str, formats: Sequence[str] | None = None) -> ImageFile.ImageFile:
    """Read the header of an image, without Pillow's own limit and warnings: both would be those of the whole process.

    Args:
        file: The opened file, at its start.
        name: Of the file, for the message.
        formats: Pillow's names of formats; None for all.

    Returns:
        The image, not yet decoded.

    Raises:
        DataError: If its format needs a package, or a part of Pillow, that is not installed.
    """
    start = file.read(64)
    file.seek(0)
    prepare_decoder(start, name)
    quiet = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
    if quiet not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")
    with _own_limit:
        return Image.open(file, formats=None if formats is None else tuple(formats))  # type: ignore[arg-type]


def open_image(
    source: Any, root: Path = Path(), *, at_least: int | None = None, thumbnail: bool = False
) -> Image.Image:
    """Decode an RGB image: rotated as its EXIF says, the first page or frame, transparency on white.

    A file takes 4 bytes of memory per pixel, or 8 where it is not RGB and `at_least` is no help. A picture gives the
    same pixels from a file, from bytes and from memory, but for rounding where it has more than LARGE pixels.

    Args:
        source: Path (against root), a part of a file (`inside`), address, bytes, PIL image, or array (H W) or (H W 3).
        root: Folder of relative paths.
        at_least: An image of more than LARGE pixels is scaled down by 2, 4 or 8, to sides of three times this or more;
            JPEG while it is decoded.
        thumbnail: Whether any JPEG is decoded at the smallest of its scales whose sides are still `at_least` long:
            several times faster, for people and comparisons, not for models.

    Returns:
        The image.

    Raises:
        DataError: If the file is missing, empty, cut off, no image, or has more than `most_pixels`; the message has the
            reason.
    """
    if isinstance(source, np.ndarray):
        source = _of_array(source)
    elif hasattr(source, "shape") or not (isinstance(source, str | bytes | os.PathLike | Image.Image)):
        got = f" of shape {tuple(source.shape)}" if hasattr(source, "shape") else f": {source!r:.60}"
        raise DataError(
            f"an image needs to be a path, bytes, a PIL image, or an array (height, width, 3) of uint8; it is a "
            f"{type(source).__name__}{got}"
        )
    if isinstance(source, Image.Image) and (file := _file_of(source)) is not None:
        source = file
    name = f"{len(source)} bytes" if isinstance(source, bytes) else shown(str(source))
    try:
        if isinstance(source, Image.Image):
            key = _transparent_grey(source)
            source.load()  # Pillow turns a TIFF then, and its size and orientation with it.
            return _upright_rgb(source, _factor(source.size, at_least), own=False, key=key)
        # An image that fails gives its memory back at once; the error, and the decoder in its frames, would hold it.
        data = read_bytes(source, root)
        with _own_limit, identify(BytesIO(data), name) as image, ExitStack() as failed:
            failed.callback(image.close)
            if image.format == "EPS":
                raise DataError(f"image {name} is EPS, a program that is not run; save it again as PNG")
            pages = _first_page(image)
            width, height = image.size
            if width * height > most_pixels():
                raise DataError(
                    f"image {name} has {width} x {height} pixels, above the limit of {most_pixels():,}; make it "
                    f"smaller, or allow more where there is memory for it (--max-pixels {-(-width * height // 10**6)})"
                )
            factor = _factor(image.size, at_least)
            with _memory.hold(width * height // (factor**2 if image.format in ("JPEG", "MPO") else 1)):
                if at_least is not None and image.format in ("JPEG", "MPO"):
                    target = (at_least, at_least) if thumbnail else (width // factor, height // factor)
                    if thumbnail or factor > 1:
                        image.draft("RGB", target)
                        factor = _factor(image.size, at_least)
                key = _transparent_grey(image)
                image.load()
                upright = _upright_rgb(image, factor, own=True, key=key)
            if pages > 1:
                upright.info[PAGES] = pages
            failed.pop_all()
            return upright
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is no image that can be read; it is another kind of file, or damaged") from error
    except BROKEN as error:
        traceback.clear_frames(error.__traceback__)
        raise DataError(f"image {name} cannot be decoded: {str(error) or type(error).__name__}") from error


def _file_of(image: Image.Image) -> Path | None:
    """The file of a TIFF that is opened and not yet decoded: those that Pillow maps into memory it turns wrongly."""
    name = getattr(image, "filename", "")
    undecoded = image.format == "TIFF" and getattr(image, "tile", None) and image.tell() == 0
    return Path(os.fsdecode(name)).absolute() if undecoded and name and os.path.isfile(name) else None  # noqa: PTH113


def _of_array(array: NDArray[Any]) -> Image.Image:
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    if not fits or array.dtype != np.uint8 or 0 in array.shape:
        needs = "an image given as an array needs uint8 (height, width, 3)"
        raise DataError(f"{needs}; it got {array.dtype} of shape {array.shape}")
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _factor(size: tuple[int, int], at_least: int | None) -> int:
    """How many times an image is scaled down at once."""
    if at_least is None or size[0] * size[1] <= LARGE:
        return 1
    return next((factor for factor in _FACTORS if min(size) // factor >= 3 * at_least), 1)


def pages_of(image: Image.Image) -> list[int]:
    """The numbers of the pages of a TIFF that are no smaller copies of others. The image is at its first page then.

    Args:
        image: The image, not yet decoded.

    Returns:
        The numbers; [0] for another format.
    """
    if image.format != "TIFF" or getattr(image, "n_frames", 1) < 2:
        return [0]
    kinds = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        kinds.append(int(image.tag_v2.get(_PAGE_KIND, 0)) & 1)  # type: ignore[attr-defined]
    image.seek(0)
    return [number for number, kind in enumerate(kinds) if not kind] or [0]


def _first_page(image: Image.Image) -> int:
    """Go to the first page that is no smaller copy; how many there are. Other formats stay at their first frame."""
    with suppress(*BROKEN):  # What is wrong with later pages does not concern the first one.
        pages = pages_of(image)
        if pages[0]:
            image.seek(pages[0])
        return len(pages)
    return 1


def pages_note(pages: int) -> str:
    """Describe that of several pages one is read.

    Args:
        pages: Their number, 2 or more.

    Returns:
        The end of a sentence.
    """
    return f"has {counted(pages, 'page')}; the first is read"


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
            image = image.resize(sides, FILTERS[filter])
            width, height = sides
        scales = (width / sides[0], height / sides[1])
        box = (corners[0] * scales[0], corners[1] * scales[1], corners[2] * scales[0], corners[3] * scales[1])
    else:
        side = max(1.0, min(width, height) * crop_share)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    # A pretrained model (edge, squash) gets the pixels that its own processor makes, without a faster first step.
    gap = 3.0 if resize == "crop" else None
    return np.asarray(image.resize((size, size), FILTERS[filter], box=box, reducing_gap=gap))


def prepare_decoder(start: bytes, name: str) -> None:
    """Register the Pillow plugin that a file needs.

    Args:
        start: The first 64 bytes.
        name: Name of the file, for the message.

    Raises:
        DataError: For HEIC if the package for it is not installed, and for formats that this Pillow cannot read.
    """
    for mark, part, form in _OWN_PARTS:
        if start.startswith(mark) and (part != "webp" or start[8:12] == b"WEBP") and not features.check(part):
            raise DataError(
                f"image {name} is {form}, which this Pillow was built without; pip install --upgrade pillow"
            )
    if start[4:8] != b"ftyp":
        return
    if b"avif" in start or start[8:12] not in _HEIF:
        if b"avif" in start and not features.check("avif"):
            raise DataError(f"image {name} is AVIF, which this Pillow was built without; pip install --upgrade pillow")
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
        image = open_image(source, root, at_least=size, thumbnail=True)
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


def _upright_rgb(image: Image.Image, factor: int, *, own: bool, key: Any = None) -> Image.Image:
    """As `_upright(_rgb(image).reduce(factor))`, without copies of the full image; only an own one may be changed."""
    width, height = image.size
    rows = max(1, _STRIP // (width * factor)) * factor
    boxes = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    look = _look_of(image, _transparent_grey(image) if key is None else key, boxes)
    if factor == 1 and (len(boxes) == 1 or (image.mode == "RGB" and look.key is None)):
        return _rgb(_upright(image, in_place=own), look)
    small = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for box in boxes:
        small.paste(_rgb(image.crop(box), look).reduce(factor), (0, box[1] // factor))
    small.info = {name: value for name, value in image.info.items() if name != "transparency"}
    return _upright(small, in_place=True)


@dataclass(frozen=True)
class _Look:
    """How the numbers of an image become colours, the same in each of its strips.

    Attributes:
        key: The transparent grey or colour; None for none.
        profile: Bytes of the profile of CMYK or LAB; None for none.
        scale: Black and white of greys of more than 8 bits; None for other modes.
        unsigned: Whether such greys of 32 bits have no sign, which Pillow does not know.
    """

    key: Any
    profile: bytes | None
    scale: tuple[float, float] | None = None
    unsigned: bool = False

    def numbers(self, image: Image.Image) -> NDArray[Any]:
        """The greys of an image of more than 8 bits."""
        values = np.asarray(image)
        return values.view(np.uint32) if self.unsigned else values


def _look_of(image: Image.Image, key: Any, boxes: Sequence[tuple[int, int, int, int]]) -> _Look:
    look = _Look(key, image.info.get("icc_profile"))
    if not image.mode.startswith(("I", "F")):
        return look
    tags = getattr(image, "tag_v2", {})
    bits, kind = (int(np.ravel(tags.get(tag, usual))[0]) for tag, usual in ((_BITS, 16), (_SAMPLES, 1)))
    look = replace(look, unsigned=image.mode == "I" and (bits, kind) == (32, 1))
    if image.mode.startswith("I;16"):
        scale = 0.0, 2.0 ** min(bits, 16) - 1
    else:
        ranges = [_range_of(look.numbers(image.crop(box))) for box in boxes]
        scale = _scale_of(min(low for low, _ in ranges), max(high for _, high in ranges), image.mode)
    # In a negative, 0 is white; Pillow turns those of 8 bits.
    return replace(look, scale=scale[::-1] if tags.get(_PHOTOMETRIC) == 0 else scale)


def _range_of(values: NDArray[Any]) -> tuple[float, float]:
    """The lowest and the highest finite number; both 0 where there is none."""
    values = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def _scale_of(low: float, high: float, mode: str) -> tuple[float, float]:
    """Black and white: 0 to 1 (floats), 255 or 65,535 where all numbers fit, else the lowest and highest number."""
    if low < 0:
        return low, high
    scales = (1.0, 255.0, 65535.0) if mode == "F" else (255.0, 65535.0)
    return 0.0, next((scale for scale in scales if high <= scale), high)


def _transparent_grey(image: Image.Image) -> Any:
    """The transparent grey or colour of a PNG in the numbers of the decoded image; its file has another depth."""
    key = image.info.get("transparency")
    tile = getattr(image, "tile", None)
    raw = tile[0][3] if tile and isinstance(tile[0][3], str) else ""
    if isinstance(key, int) and image.mode == "L" and raw in ("L;2", "L;4"):
        return key * (85 if raw == "L;2" else 17)
    if isinstance(key, int) and image.mode == "1":
        return key * 255
    if isinstance(key, tuple) and (raw.startswith("RGB;16") or max(key) > 255):
        return tuple(value >> 8 for value in key)
    return key


def _rgb(image: Image.Image, look: _Look) -> Image.Image:
    """As RGB, in the look of the image that this is a part of."""
    key = look.key
    if image.mode == "RGB" and key is None:
        return image
    if look.scale is not None:
        values, (black, white) = look.numbers(image).astype(np.float64), look.scale
        grey = (np.nan_to_num(values, nan=black, posinf=white, neginf=black) - black) * (255 / ((white - black) or 1))
        grey = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
        return Image.fromarray(np.where(values == key, np.uint8(255), grey)).convert("RGB")
    if image.mode in ("CMYK", "LAB"):
        return _by_profile(image, look.profile)
    if image.mode in ("L", "1", "RGB") and key is not None:
        colours = np.asarray(image.convert("L" if image.mode == "1" else image.mode))
        clear = (colours == key) if colours.ndim == 2 else (colours == np.array(key)).all(axis=2)
        rgb = np.array(image.convert("RGB"))
        rgb[clear] = 255
        return Image.fromarray(rgb)
    if image.mode in ("RGBA", "LA", "La", "PA", "RGBa") or "transparency" in image.info:
        whole = image.convert("RGBA")
        ground = Image.new("RGBA", whole.size, (255, 255, 255, 255))
        return Image.alpha_composite(ground, whole).convert("RGB")
    return image.convert("RGB")


def _by_profile(image: Image.Image, profile: bytes | None) -> Image.Image:
    """CMYK and LAB as RGB by the profile of the image: without it, printed colours are too bright and too green."""
    if profile is not None or image.mode == "LAB":
        # A profile of another kind of image, or a damaged one, is as none.
        with suppress(*BROKEN):
            converted = ImageCms.applyTransform(image, _transform(profile, image.mode))
            assert converted is not None
            return converted
    return image.convert("RGB")


@lru_cache(4)
def _transform(profile: bytes | None, mode: str) -> ImageCms.ImageCmsTransform:
    target = ImageCms.createProfile("sRGB")
    if mode == "LAB" or profile is None:
        return ImageCms.buildTransform(ImageCms.createProfile("LAB"), target, mode, "RGB")
    own = ImageCms.ImageCmsProfile(BytesIO(profile))
    return ImageCms.buildTransform(own, target, mode, "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC)
