"""Images in object stores (s3://, gs://, az://) and behind https://: their sizes and times, and their bytes.

An address stands where a path of an image stands. Its size and time come from one listing of a folder, or from one
request. Its bytes are downloaded once, ahead of those who read them, and kept in files without a name until they are
released: what is inside the image, the check, the digest and the vector are of the same bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from subtext.data.addresses import ADDRESS, is_address, is_https, shown
from subtext.data.spool import RowFinder
from subtext.data.web_images import ANSWER, UNSAID, AbsentError, State, absent, download, head, key_of, require_small
from subtext.errors import DataError, StoreError

Item = TypeVar("Item")

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
}
"""Scheme -> the variables of the environment that have the credentials."""
THREADS = 16
"""Requests at a time."""
BLOCK = 1024
"""Rows whose addresses are asked for together."""
IN_FLIGHT = 2**28
"""Bytes that are downloaded at a time; one image alone may have more."""
AHEAD, AHEAD_BYTES = 128, 2**27
"""Images, and their bytes, that are downloaded ahead of who reads them; one image alone may have more."""
PART = 2**25
"""Bytes of one file of kept images."""
CONNECT, ATTEMPTS = 10, 3
"""Seconds until a store has to accept a connection; how often it is asked."""
LOOKED = 1.0
"""Seconds in which a bucket that was there is not looked for again."""
_DENIED = re.compile(r"ACCESS_DENIED|\b403\b|PERMISSION_DENIED|PermissionDenied|AuthorizationPermissionMismatch")
_NO_OBJECT = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|BlobNotFound")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|ContainerNotFound|bucket does not exist")
_WRONG_KEY = re.compile(
    r"INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH|EXPIRED|UNAUTHENTICATED|\b401\b"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|credentials|access token",
    re.IGNORECASE,
)


class _States:
    """The states of addresses, and the folders that this reading has listed; 50 bytes are held of each address."""

    def __init__(self) -> None:
        self._finder, self._lock = RowFinder(), threading.Lock()
        self._keys, self._turns = array("Q"), array("I")
        self._columns = array("q"), array("q"), array("q")
        self._turn, self._listed, self.listed = 0, dict[str, int](), 0

    def _row(self, key: int) -> int | None:
        return self._finder.find(key, lambda row: self._keys[row] == key)

    def __setitem__(self, address: str, state: State | None) -> None:
        key = key_of(address)
        with self._lock:
            row = self._row(key)
            if row is None:
                row = len(self._keys)
                self._finder.add(key, row)
                self._keys.append(key)
                self._turns.append(0)
                for column in self._columns:
                    column.append(0)
            for column, value in zip(self._columns, state or (-1, 0, 0), strict=True):
                column[row] = value
            self._turns[row] = self._turn

    def begin(self) -> None:
        """Begin a reading."""
        self._listed.clear()
        self.listed = 0

    def take_listing(self, folder: str, states: Iterable[tuple[str, State]]) -> None:
        """Take a listing of a folder: what it does not have is not there."""
        self._turn += 1
        for address, state in states:
            self[address] = state
            self.listed += 1
        self._listed[folder] = self._turn

    def is_listed(self, address: str) -> bool:
        """Whether an address lies in a folder that was listed."""
        return any(address.startswith(folder) for folder in self._listed)

    def get(self, address: str) -> tuple[bool, State | None]:
        """Whether the state of an address is known, and the state; None for one where nothing is."""
        turn = max((turn for folder, turn in self._listed.items() if address.startswith(folder)), default=0)
        key = key_of(address)
        with self._lock:
            row = self._row(key)
            if row is None or self._turns[row] < turn:
                return turn > 0, None
            size, changed, tag = (column[row] for column in self._columns)
        return True, None if size < 0 else State(size, changed, tag)


_states = _States()
_failed: dict[str, str] = {}
"""Address -> why it cannot be read, as was found when it was downloaded ahead."""


def begin() -> None:
    """Begin a reading: what was listed, or could not be read, before may have changed."""
    _states.begin()
    _failed.clear()


def state_of(address: str) -> State | None:
    """The state of an address as it was listed or asked for in this reading; else it is asked for now.

    Args:
        address: The address.

    Returns:
        The state; None where nothing is, or nothing that may be read.

    Raises:
        StoreError: If the store cannot be used.
    """
    known, state = _states.get(address)
    if not known:
        _look(address)
        state = _states.get(address)[1]
    return state


def is_there(address: str) -> bool:
    """Test whether an image lies at an address, or something that cannot be read.

    Args:
        address: The address.

    Returns:
        Whether it does.

    Raises:
        StoreError: If the store cannot be used.
    """
    return address in _failed or state_of(address) is not None


def was_asked(address: str) -> bool:
    """Test whether the state of an address was asked for, in this reading or an earlier one.

    Args:
        address: The address.

    Returns:
        Whether it was.
    """
    return _states.get(address)[0]


def known_state(address: str) -> State | None:
    """The state of what was listed or asked for; nothing is asked now.

    Args:
        address: Of any file of a store.

    Returns:
        The state; None for none that is known.
    """
    return _states.get(address)[1]


def listed() -> int:
    """Number of the objects that listings of this reading have.

    Returns:
        The number.
    """
    return _states.listed


def look(addresses: Iterable[str]) -> None:
    """Ask for the states of addresses that no listing of this reading has, some at a time.

    Args:
        addresses: The addresses.

    Raises:
        StoreError: If a store cannot be used.
    """
    wanted = [address for address in dict.fromkeys(addresses) if not _states.is_listed(address)]
    if wanted:
        with ThreadPoolExecutor(min(THREADS, len(wanted)), thread_name_prefix="store") as pool:
            for _ in pool.map(_look, wanted):
                pass


def _look(address: str) -> None:
    """Ask for the state of one address. What was kept of another state is let go."""
    before = _states.get(address)
    _failed.pop(address, None)
    state: State | None = None
    try:
        state = head(address) if is_https(address) else _head_of_object(address)
    except AbsentError:
        pass
    except DataError as problem:
        _failed[address] = str(problem)
    _states[address] = state
    if before != (True, state):
        _kept.drop([address])


def looked_up(items: Iterable[Item], address_of: Callable[[Item], str | None]) -> Iterator[Item]:
    """Give items on, after the states of their addresses were asked for, a block at a time.

    Args:
        items: The items.
        address_of: The address of an item whose state is needed; None for none.

    Yields:
        The items, in their order.
    """
    remaining = iter(items)
    while block := list(islice(remaining, BLOCK)):
        look(address for item in block if (address := address_of(item)) is not None)
        yield from block


def list_store(folder: Path) -> list[str]:
    """List what lies below a folder of a store, by one listing, which gives the states of all.

    Args:
        folder: A `StoreFolder`: a bucket, or a part of one.

    Returns:
        Paths from the folder, sorted; none where nothing lies there.

    Raises:
        StoreError: If it cannot be listed.
    """
    whole = str(folder)
    if is_https(whole):
        raise DataError(f"{shown(whole)} cannot be listed: behind https there are no folders; name images in a table")
    from pyarrow import fs

    system, path = _opened(whole)
    try:
        infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    except FileNotFoundError:
        infos = []
    except (OSError, ValueError) as problem:
        raise _unusable(whole, problem) from problem
    names = list[str]()

    def found() -> Iterator[tuple[str, State]]:
        while infos:  # Each takes more memory than what is kept of it.
            info = infos.pop()
            if info.type == fs.FileType.File:
                name = info.path[len(path) + 1 :]
                names.append(name)
                address, state = f"{whole}/{name}", _state(info)
                if _states.get(address) != (True, state):
                    _kept.drop([address])
                    _failed.pop(address, None)
                yield address, state

    _states.take_listing(f"{whole}/", found())
    names.sort()
    return names


def _state(info: Any) -> State:
    # A listing has milliseconds where the answer for one object has seconds.
    return State(info.size, info.mtime_ns // 10**9 * 10**9)


def content(address: str, *, most: int | None = None, keep: bool = True, public: bool = False) -> bytes:
    """The bytes at an address: those that were kept, or a download.

    Args:
        address: The address.
        most: Bytes that an image may have; None for no limit.
        keep: Whether they are kept for those who read them later; see `release`.
        public: Whether a host of a private network is refused.

    Returns:
        The bytes.

    Raises:
        DataError: If this image cannot be read.
        StoreError: If its store cannot be used.
    """
    if keep and (kept := _kept.get(address)) is not None:
        return kept
    if keep and address in _failed:
        raise DataError(_failed[address])
    take = partial(_kept.put, address) if keep else None
    try:
        if is_https(address):
            state, data = download(address, most, public=public, hold=_room.hold, take=take)
            if not _states.get(address)[0]:
                _states[address] = state
            return data
        return _download_of_object(address, most, take=take)
    except AbsentError:
        _states[address] = None
        raise


def fetched(
    items: Iterable[Item], address_of: Callable[[Item], str | None], *, most: int | None = None
) -> Iterator[Item]:
    """Give items on, in their order, after the images at their addresses were downloaded by threads, ahead of them.

    Args:
        items: The items.
        address_of: The address of an item; None for none.
        most: As for `content`.

    Yields:
        The items. What cannot be read is said by whoever reads it.

    Raises:
        StoreError: If a store cannot be used.
    """
    waiting: deque[tuple[Item, str | None, int]] = deque()
    ahead = 0
    pool: ThreadPoolExecutor | None = None
    # Several rows may name one image.
    begun: dict[str, Future[None]] = {}

    def finished() -> Item:
        nonlocal ahead
        item, address, size = waiting.popleft()
        ahead -= size
        if address is not None and address in begun:
            begun.pop(address).result()
        return item

    try:
        for item in items:
            address, size = address_of(item), 0
            if address is not None and address not in begun:
                pool = pool or ThreadPoolExecutor(THREADS, thread_name_prefix="store")
                state = _states.get(address)[1]
                size = UNSAID if state is None else state.size
                begun[address] = pool.submit(_keep, address, most)
            waiting.append((item, address, size))
            ahead += size
            while waiting and (waiting[0][1] is None or len(waiting) > AHEAD or ahead > AHEAD_BYTES):
                yield finished()
        while waiting:
            yield finished()
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _keep(address: str, most: int | None) -> None:
    known, state = _states.get(address)
    if address in _kept or address in _failed or (known and state is None):
        return
    try:
        content(address, most=most)
    except AbsentError:
        pass  # That nothing is there is its state.
    except DataError as problem:
        _failed[address] = str(problem)


def release(values: Iterable[object]) -> None:
    """Let the kept bytes of images go.

    Args:
        values: Images; those that are no addresses are passed over.
    """
    _kept.drop([value for value in values if isinstance(value, str) and is_address(value)])


def downloaded_again() -> str:
    """Say how many images could not be kept since this was last called.

    Returns:
        The end of a sentence; "" for none.
    """
    number, _kept.refused = _kept.refused, 0
    if not number:
        return ""
    return (
        f"the folder of temporary files, {tempfile.gettempdir()}, had no room for {number:,} downloaded images, which "
        "are downloaded again where they are read again; free some, or name another folder (TMPDIR)"
    )


class _Part:
    """One file of kept images."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (ends with the last of its images)
        weakref.finalize(self, self.file.close)
        self.size = self.images = 0


class _Kept:
    """Downloaded images in files without a name, up to half of the room of the folder of temporary files.

    Attributes:
        refused: Images for which there was no room.
    """

    def __init__(self) -> None:
        self._lock, self._places = threading.Lock(), dict[str, tuple[_Part, int, int]]()
        self._part: _Part | None = None
        self._recent = dict[str, bytes]()
        self.limit: int | None = None
        self._used = self.refused = 0

    def get(self, address: str) -> bytes | None:
        """The kept bytes; None for none."""
        with self._lock:
            if (place := self._places.get(address)) is None:
                return self._recent.get(address)
            part, start, size = place
            part.file.seek(start)
            return part.file.read(size)

    def put(self, address: str, data: bytes) -> None:
        """Keep the bytes of an image, if there is room."""
        with self._lock:
            if address in self._places:
                return
            if self.limit is None:
                self.limit = shutil.disk_usage(tempfile.gettempdir()).free // 2
            if self._used + len(data) > self.limit:
                self._hold(address, data)
                return
            if self._part is None or self._part.size > PART:
                self._part = _Part()
            part = self._part
            try:
                part.file.seek(part.size)
                left = memoryview(data)
                while left:
                    left = left[part.file.write(left) :]
            except OSError:
                self._hold(address, data)
                return
            self._places[address] = part, part.size, len(data)
            part.size, part.images, self._used = part.size + len(data), part.images + 1, self._used + len(data)

    def _hold(self, address: str, data: bytes) -> None:
        """Hold an image for which there is no room in memory, until later ones take its place."""
        self.refused += 1
        self._recent[address] = data
        while sum(map(len, self._recent.values())) > IN_FLIGHT and len(self._recent) > 1:
            del self._recent[next(iter(self._recent))]

    def __contains__(self, address: object) -> bool:
        return address in self._places or address in self._recent

    def drop(self, addresses: Sequence[str]) -> None:
        """Let images go; a file without images ends."""
        with self._lock:
            for address in addresses:
                self._recent.pop(address, None)
                if (place := self._places.pop(address, None)) is None:
                    continue
                part = place[0]
                part.images -= 1
                if not part.images:
                    self._used -= part.size
                    self._part = None if part is self._part else self._part
                    part.file.close()


_kept = _Kept()


class _Room:
    """Bounds the bytes that are downloaded at one time."""

    def __init__(self) -> None:
        self._taken, self._changed = 0, threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Wait until there is room for so many bytes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + size <= IN_FLIGHT)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


_room = _Room()


def _opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    found = ADDRESS.match(address)
    assert found is not None
    scheme, path = found["scheme"].lower(), found["rest"].rstrip("/")
    names = {
        "s3": (
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SKIP_SIGNATURE",
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
        ),
        "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE", "STORAGE_EMULATOR_HOST"),
        "az": (
            "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN",
        ),
    }[scheme]  # fmt: skip
    values = tuple((name, value) for name in names if (value := os.environ.get(name)))
    try:
        return _file_system(scheme, path.partition("/")[0], values), path
    except (OSError, ValueError, NotImplementedError, ImportError) as problem:
        raise _unusable(address, problem) from problem


@lru_cache(64)
def _file_system(scheme: str, bucket: str, values: tuple[tuple[str, str], ...]) -> Any:
    from pyarrow import fs

    given = dict(values)

    def is_on(name: str) -> bool:
        return given.get(name, "").lower() in ("1", "true")

    if scheme == "gs":
        patience = timedelta(seconds=ANSWER)
        return fs.GcsFileSystem(anonymous=is_on("GOOGLE_SKIP_SIGNATURE"), retry_time_limit=patience)
    if scheme == "az":
        if "AZURE_STORAGE_ACCOUNT_NAME" not in given:
            raise ValueError("no account is named; it stands in AZURE_STORAGE_ACCOUNT_NAME")
        return fs.AzureFileSystem(
            given["AZURE_STORAGE_ACCOUNT_NAME"],
            account_key=given.get("AZURE_STORAGE_ACCOUNT_KEY"),
            sas_token=given.get("AZURE_STORAGE_SAS_TOKEN"),
        )
    options: dict[str, Any] = {}
    if endpoint := given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL"):
        server = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options = {"endpoint_override": f"{server.netloc}{server.path.rstrip('/')}", "scheme": server.scheme}
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"
    else:
        options["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        anonymous=is_on("AWS_SKIP_SIGNATURE"),
        connect_timeout=CONNECT,
        request_timeout=ANSWER,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **options,
    )


def _head_of_object(address: str) -> State:
    from pyarrow import fs

    system, path = _opened(address)
    try:
        info = system.get_file_info(path)
    except (OSError, ValueError) as problem:
        raise _of_object(address, problem) from problem
    if info.type != fs.FileType.File:
        raise _of_object(address, FileNotFoundError())
    return _state(info)


def _download_of_object(address: str, most: int | None, *, take: Callable[[bytes], None] | None) -> bytes:
    system, path = _opened(address)
    try:
        with system.open_input_file(path) as file:
            size = file.size()
            require_small(address, size, most)
            about = file.metadata() or {}
            with _room.hold(size):
                data: bytes = file.read()
                if take is not None:
                    take(data)
    except (OSError, ValueError) as problem:
        if isinstance(problem, DataError):
            raise
        raise _of_object(address, problem) from problem
    if not _states.get(address)[0]:
        # Else a request of its own tells the time.
        said = about.get("Last-Modified", b"").decode("ascii", "replace")
        try:
            changed = datetime.fromisoformat(said.replace("Z", "+00:00"))
        except ValueError:
            return data
        _states[address] = State(size, int(changed.timestamp()) * 10**9)
    return data


def _of_object(address: str, problem: Exception) -> DataError | StoreError:
    """What is wrong with one object, if its bucket can be used."""
    text = str(problem)
    denied = _DENIED.search(text) is not None
    if not (isinstance(problem, FileNotFoundError) or denied or _NO_OBJECT.search(text)):
        return _unusable(address, problem)
    # An answer without a body says neither that a bucket is gone nor that a key is wrong.
    _require_bucket(address)
    if denied:
        return DataError(
            f"image {address} may not be read with these credentials; give the right to read it, or other credentials "
            f"({CREDENTIALS[address[:2].lower()]})"
        )
    return absent(address)


_seen: dict[tuple[str, int], float] = {}
"""Bucket, and who opened it -> when it was there."""


def _require_bucket(address: str) -> None:
    """Require that a bucket is there, and that it takes the credentials.

    Raises:
        StoreError: If it is not.
    """
    from pyarrow import fs

    system, path = _opened(address)
    bucket = path.partition("/")[0]
    name = bucket, id(system)
    if time.monotonic() - _seen.get(name, -LOOKED) < LOOKED:
        return
    try:
        # The listing of nothing tells a wrong key from a right that is missing.
        system.get_file_info(fs.FileSelector(f"{bucket}/.subtext-nothing", allow_not_found=False))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as problem:
        if not _DENIED.search(str(problem)) or _WRONG_KEY.search(str(problem)):
            raise _unusable(address, problem) from problem
    _seen[name] = time.monotonic()


def _unusable(address: str, problem: Exception) -> StoreError:
    """The error of a store that cannot be used now."""
    scheme, rest = address[:2].lower(), address.partition("://")[2]
    # The query of a request may have a signature that gives access.
    said = re.sub(r"\?[^\s'\"]*", "", str(problem))
    name, text = f"{scheme}://{rest.partition('/')[0]}", " ".join(said.split())
    reason = re.sub(r"^.*?operation: |\(Request ID.*?\)|;? ?Details:.*$| ?Detail: .*$", "", text).strip(" .:")[:200]
    if _NO_BUCKET.search(text):
        return StoreError(f"{name} needs to exist; there is no such bucket, or these credentials do not see it")
    if _DENIED.search(text) or _WRONG_KEY.search(text):
        hint = f"give them in the environment ({CREDENTIALS[scheme]})"
        return StoreError(f"{name} needs credentials with the right to list and read it: {reason or 'denied'}; {hint}")
    return StoreError(f"{name} cannot be used now: {reason}; what was written is kept: do it again when it can")
