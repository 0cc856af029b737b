"""Decoding of images in a process of its own, whose memory and time are limited, and which can be ended.

The work of a decoder cannot be told from the size of a file: a JPEG may have a million scans, a TIFF a million strips
that are all the same megabyte, a PNG a million empty chunks before its pixels. Whoever reads such a file is therefore
a child, `python -m subtext.server.decoding`, which answers one image after the other on its standard input and output.
"""

from __future__ import annotations

import json
import os
import re
import resource
import struct
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from http import HTTPStatus
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from PIL import Image, UnidentifiedImageError

from subtext.data.image_files import BROKEN, identify, open_image, prepare_decoder, read_square
from subtext.errors import DataError
from subtext.server.refusal import RETRY_SECONDS, Refusal

FORMATS = {
    "JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif", "AVIF": ".avif",
    **({"HEIF": ".heic"} if find_spec("pillow_heif") else {}),
}  # fmt: skip
"""Accepted formats and their suffixes. No format that can hold a program, a document or an address."""
HEAVY = {"WEBP": 4, "TIFF": 2, "AVIF": 4, "HEIF": 4}
"""Formats whose decoders need more memory per pixel, and how many times as much."""
PIXEL_BYTES = 8
"""Bytes of memory for each pixel of the largest image."""
SPARE_BYTES = 2**27
"""Further bytes of memory, for the file itself and what is small."""
SCANS = 40
"""Scans of a JPEG of the most pixels; a smaller one may have as many more. Encoders write 10 to 20."""
PARTS = 20_000
"""Marked parts of a JPEG; a large colour profile has some 200."""
CPU_SECONDS = 5
"""Seconds of a processor that an image may take, and one more for each PIXELS_A_SECOND of the limit above it."""
PIXELS_A_SECOND = 20_000_000
PATIENCE = 6
"""Times as long an image may take by the clock, on a machine that is busy with other work."""
TURN_SECONDS = 5.0
"""Seconds that an image waits for those before it."""
MEDIA_TYPE = "image/webp"
TOO_MUCH = "the image takes more time or memory to decode than an image may; save it again, or smaller"
LONGEST_SIDE = 2048
"""Pixels of the longer side of an image that is passed on as it is, not as a square."""
_NO_IMAGE = (UnidentifiedImageError, OSError, ValueError, SyntaxError)
_MARKUP = (b"<script", b"<html", b"<svg", b"<!doctype", b"<?php", b"<iframe")
_HEAD, _TAIL = 1024, 2**16 + 22
"""Bytes in which readers of PDF and ZIP look for their marks."""
_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG that its size follows."""
_READY = b"ready\n"


def cpu_seconds(pixels: int) -> int:
    """Seconds of a processor that an image may take.

    Args:
        pixels: Pixels that an image may have.

    Returns:
        Seconds, 5 or more.

    Example:
        >>> cpu_seconds(12_000_000), cpu_seconds(50_000_000)
        (5, 7)
    """
    return CPU_SECONDS + pixels // PIXELS_A_SECOND


def require_few_scans(data: bytes, pixels: int) -> None:
    """Require that a JPEG has few scans for its size: each is a pass over all of its pixels, and may take 79 bytes.

    Args:
        data: Bytes of the image; of another format, nothing is required.
        pixels: That an image may have.

    Raises:
        Refusal: 413 for too many.
    """
    if not data.startswith(b"\xff\xd8"):
        return
    size, scans, parts, place = 0, 0, 0, 2
    while (found := _MARKER.search(data, place)) is not None and found[1] != b"\xd9":
        marker, place, parts = found[1][0], found.end(), parts + 1
        scans += marker == 0xDA
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 3 : place + 7].ljust(4, b"\x00"))
            size = height * width
        place += max(2, int.from_bytes(data[place : place + 2], "big"))
        if parts > PARTS or (scans > 1 and scans * size > SCANS * pixels):
            sentence = "the JPEG has too many scans, or other parts, for its size; save it again"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)


def _header(data: bytes, formats: tuple[str, ...] | None, pixels: int) -> tuple[str, int]:
    """The format of an image, and its pixels, times HEAVY; raises one of _NO_IMAGE.

    Raises:
        DataError: If a format needs a package.
        Refusal: For too many scans.
    """
    require_few_scans(data, pixels)
    prepare_decoder(data[:64], "it")
    # Pillow knows HEIF from the first file on.
    registered = formats and tuple(form for form in formats if form != "HEIF" or form in Image.OPEN)
    with identify(BytesIO(data), "it", registered) as image:
        form = str(image.format)
        return form, image.width * image.height * HEAVY.get(form, 1)


def require_image(data: bytes, *, pixels: int) -> tuple[str, int]:
    """The suffix for a file with this image, and its pixels, times HEAVY; it is nothing besides. Decodes nothing.

    Args:
        data: Bytes of the image.
        pixels: That it may have: width times height, times HEAVY.

    Returns:
        Suffix, and number of pixels.

    Raises:
        Refusal: 415 for another format, and for an image that is also a page, document or archive; 413 for too many
            pixels or scans.
    """
    try:
        form, size = _header(data, tuple(FORMATS), pixels)
    except (DataError, *_NO_IMAGE) as problem:
        sentence = f"the image cannot be used: it needs {', '.join(FORMATS)}; this is another kind of file"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence) from problem
    if size > pixels:
        sentence = f"an image of {form} may have {pixels // HEAVY.get(form, 1):,} pixels; this one has more"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    lower = data.lower()
    archive = b"PK\x05\x06" in data[-_TAIL:] and zipfile.is_zipfile(BytesIO(data))
    if any(mark in lower for mark in _MARKUP) or b"%PDF-" in data[:_HEAD] or archive:
        sentence = "the image cannot be used: it is also a page, a document or an archive; save it again as an image"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
    return FORMATS.get(form, ".jpg"), size


def thumbnail(data: bytes, size: int, *, pixels: int) -> bytes:
    """An image scaled down, as WebP.

    Args:
        data: Bytes of the image.
        size: Pixels of the longer side, at most.
        pixels: That it may have; a JPEG is decoded at an eighth of its sides, and may have more.

    Returns:
        Bytes of the WebP.

    Raises:
        Refusal: 404 for an image that is too large, or cannot be decoded.
    """
    too_large = Refusal(HTTPStatus.NOT_FOUND, "the image of this item is too large to be shown (--max-pixels)")
    try:
        form, count = _header(data, None, pixels)
        if form != "JPEG" and count > pixels:
            raise too_large
        image = open_image(data, at_least=size, thumbnail=True)
    except (DataError, *_NO_IMAGE) as problem:
        raise Refusal(HTTPStatus.NOT_FOUND, "the image of this item cannot be shown") from problem
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.save(buffer, "WEBP", quality=82, method=2)
    return buffer.getvalue()


class Decoder:
    """A child that decodes images, one after the other. It starts with the first image.

    Args:
        pixels: Pixels that an image may have.
        turn_seconds: Seconds that an image waits for those before it.
    """

    def __init__(self, pixels: int, *, turn_seconds: float = TURN_SECONDS) -> None:
        self.pixels = pixels
        self.turn_seconds = turn_seconds
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def check(self, data: bytes | bytearray) -> str:
        """Decode an uploaded image, to know that it can be.

        Args:
            data: Bytes of the image.

        Returns:
            The suffix of its format, such as ".png".

        Raises:
            Refusal: As `require_image`; 422 for an image that cannot be decoded, 413 where that takes too much time or
                memory, 503 where others have to be decoded first.
        """
        return str(self._ask({"work": "check"}, data)[0]["suffix"])

    def square(self, data: bytes | bytearray, settings: dict[str, Any]) -> tuple[int, bytes]:
        """Decode an uploaded image as a square; raises as `check`.

        Args:
            data: Bytes of the image.
            settings: Arguments of `read_square`.

        Returns:
            Side in pixels, and S * S * 3 bytes.
        """
        answer, pixels = self._ask({"work": "square", "settings": settings}, data)
        return int(answer["size"]), pixels

    def image(self, data: bytes | bytearray) -> Image.Image:
        """Decode an uploaded image, scaled down to LONGEST_SIDE; raises as `check`.

        Args:
            data: Bytes of the image.

        Returns:
            The image, RGB.
        """
        answer, pixels = self._ask({"work": "image"}, data)
        return Image.frombytes("RGB", tuple(answer["size"]), pixels)

    def thumbnail(self, data: bytes, size: int) -> bytes:
        """See the function `thumbnail`.

        Args:
            data: Bytes of the image.
            size: Pixels of the longer side, at most.

        Returns:
            Bytes of a WebP.
        """
        return self._ask({"work": "thumbnail", "size": size}, data)[1]

    def close(self) -> None:
        """End the child, whatever it does."""
        child = self._child
        if child is not None:
            child.kill()
        with self._turn:
            self._end()

    def _ask(self, job: dict[str, Any], data: bytes | bytearray) -> tuple[dict[str, Any], bytes]:
        """What the child answers.

        Raises:
            Refusal: As `check`.
        """
        if not self._turn.acquire(timeout=self.turn_seconds):
            sentence = "the server is busy with other images; try again in a moment"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS)
        try:
            child = self._started()
            timer = threading.Timer(PATIENCE * cpu_seconds(self.pixels), child.kill)
            timer.start()
            try:
                _write(child.stdin, job, data)
                answer, content = _read(child.stdout)
            except (OSError, EOFError) as problem:
                self._end()
                raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_MUCH) from problem
            finally:
                timer.cancel()
        finally:
            self._turn.release()
        if "error" in answer:
            raise Refusal(answer["status"], answer["error"])
        return answer, content

    def _started(self) -> subprocess.Popen[bytes]:
        """The child, once it reads; a new one if it has ended.

        Raises:
            Refusal: 503 if it does not start; it says why on standard error.
        """
        if self._child is None or self._child.poll() is not None:
            self._end()
            places = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
            # Large blocks have pages of their own, which are given back at once.
            own = {"PYTHONPATH": places, "OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(2**20)}
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "subtext.server.decoding", str(self.pixels)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **own},
                # Ctrl-C is for the server, which ends its child.
                process_group=0,
            )
            if self._child.stdout is None or self._child.stdout.readline() != _READY:
                self._end()
                sentence = "the process that decodes images does not start; the server's standard error says why"
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            # What was not sent yet cannot be.
            with self._child, suppress(OSError):
                self._child.communicate()
            self._child = None


def _write(to: IO[bytes] | None, facts: dict[str, Any], data: bytes | bytearray) -> None:
    if to is None:
        raise OSError("there is no pipe")
    to.write(json.dumps({**facts, "bytes": len(data)}).encode() + b"\n")
    to.write(data)
    to.flush()


def _read(source: IO[bytes] | None) -> tuple[dict[str, Any], bytes]:
    """Facts and data, as `_write` wrote them.

    Raises:
        EOFError: At the end.
    """
    line = b"" if source is None else source.readline()
    if source is None or not line.endswith(b"\n"):
        raise EOFError
    facts = json.loads(line)
    data = source.read(facts["bytes"])
    if len(data) < facts["bytes"]:
        raise EOFError
    return facts, data


def _done(job: dict[str, Any], data: bytes, pixels: int) -> tuple[dict[str, Any], bytes]:
    """The work of the child on one image.

    Raises:
        Refusal: As `Decoder.check`.
    """
    if job["work"] == "thumbnail":
        return {}, thumbnail(data, job["size"], pixels=pixels)
    suffix, _ = require_image(data, pixels=pixels)
    try:
        if job["work"] == "square":
            square = read_square(data, **job["settings"])
            return {"size": len(square)}, square.tobytes()
        check = job["work"] == "check"
        image = open_image(data, at_least=64 if check else LONGEST_SIDE // 2, thumbnail=check)
    except DataError as problem:
        if isinstance(problem.__cause__, MemoryError):
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_MUCH) from problem
        sentence = f"the image cannot be decoded: {problem}"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, sentence) from problem
    if job["work"] == "check":
        return {"suffix": suffix}, b""
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    return {"size": image.size}, image.tobytes()


def _limited(pixels: int) -> None:
    """Limit the memory of this process, and write no core where a limit ends it."""
    status = Path("/proc/self/status")
    # Elsewhere the system has no limit that counts what a process really takes; time is limited there as well.
    if status.exists():
        taken = int(re.search(r"VmData:\s+(\d+) kB", status.read_text(encoding="ascii"))[1]) * 1024  # type: ignore[index]
        most = taken + PIXEL_BYTES * pixels + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Decode what comes on standard input, until its end."""
    pixels = int(sys.argv[1])
    source, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Answers go before pictures.
    os.nice(5)
    Image.init()
    _limited(pixels)
    out.write(_READY)
    out.flush()
    # What decoders print of broken files belongs in no log.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    while True:
        try:
            job, data = _read(source)
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = int(used.ru_utime + used.ru_stime) + 1 + cpu_seconds(pixels)
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        try:
            facts, content = _done(job, data, pixels)
        except Refusal as refusal:
            facts, content = {"status": refusal.status, "error": str(refusal)}, b""
        except BROKEN as problem:
            # Such as memory that was refused: the next image finds a new child.
            print(problem, file=sys.stderr)
            return
        _write(out, facts, content)
        del data, content


if __name__ == "__main__":
    main()
