"""All that a server has open: its libraries, which answer queries in batches and cache the answers; metrics and log."""

from __future__ import annotations

import hmac
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from PIL import Image

from subtext.api.load import open_run
from subtext.api.search import open_index
from subtext.data.addresses import as_path, is_address
from subtext.data.features import FeatureInput
from subtext.errors import DataError, OutputError, RequirementError, SearchIndexError, SubtextError
from subtext.report.progress import say
from subtext.retrieval.calibration import calibration_mark
from subtext.retrieval.condition import as_conditions
from subtext.retrieval.index import Answer, Index, Query
from subtext.retrieval.manifest import Revision
from subtext.retrieval.pictures import MissingPictures, missing_pictures
from subtext.retrieval.rerank import Reranker
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.registry import open_store, store_class
from subtext.retrieval.stores.store import Store
from subtext.retrieval.traces import ADDED, remove_traces
from subtext.retrieval.visible import VisibleStore
from subtext.server.decoding import Decoder
from subtext.server.images import Thumbnails, changing, remove_orphans, storage_of
from subtext.server.monitoring import Metrics, RequestLog
from subtext.server.refusal import RETRY_SECONDS, Refusal
from subtext.server.settings import LOOPBACK, Settings

T = TypeVar("T")

BATCH = 64
"""Queries in a batch, at most."""
HINTING = 64
"""Groups of clients, by address, of which each gets suggestions for one query at a time."""
CHECK_SECONDS = 5.0
"""Seconds between checks whether an index was re-embedded, or items were deleted, by another process."""


AGAIN_SECONDS = 1.0
"""Seconds until the next check where one fails, as when nothing is at the place of an index."""


class Cache(Generic[T]):
    """The values that were used last.

    Args:
        limit: Total weight of the values.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: Hashable) -> T | None:
        """The value; None where there is none.

        Args:
            key: Key of the value.

        Returns:
            The value, or None.

        Example:
            >>> cache = Cache[str](4)
            >>> cache.put("dog", "a dog", weight=3)
            >>> cache.get("dog"), cache.put("cat", "a cat", weight=2), cache.get("dog"), cache.get("cat")
            ('a dog', None, None, 'a cat')
        """
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: T, *, weight: int = 1) -> None:
        """Store a value; those that were not used for longest go.

        Args:
            key: Key of the value.
            value: The value.
            weight: Weight of the value, as counted by `limit`.
        """
        with self._lock:
            if key in self._values:
                self._weight -= self._values.pop(key)[1]
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self.limit:
                self._weight -= self._values.popitem(last=False)[1][1]


def state_of(index: Index) -> Hashable:
    """Differs whenever answers may: by the index, its model, its changes, and its calibration.

    Args:
        index: The index with its model.

    Returns:
        A key that can be compared and hashed.
    """
    with index.store.reading() as view:
        return view.revision, calibration_mark(view)


@dataclass(frozen=True)
class Waiting:
    """Work that waits for the thread that computes.

    Attributes:
        client: Who asks.
        work: A query, or other work on the index.
        future: What comes of it; of a query the answer, and the state of the index that gave it.
    """

    client: str
    work: Query | Callable[[Index], Any]
    future: Future[Any] = field(default_factory=Future)


class _Failing:
    """What fails in here is raised where those wait whom it concerns."""

    def __init__(self, waiting: Sequence[Waiting]) -> None:
        self.waiting = waiting

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> bool:
        for one in self.waiting:
            if problem is not None and not one.future.done():
                one.future.set_exception(problem)
        return problem is not None


class Batcher:
    """Answers the queries of many clients on one index: one thread answers those that wait as one batch.

    A batch has any number of queries that are answered together, and of each client one that takes a pass of its own,
    or other work: one that asks much delays itself.

    Args:
        current_index: Returns the index; it is called before each batch, as the index may be opened again.
        cached_hits: Hits of earlier answers that are cached.
        seconds: That a client waits at most.
        metrics: Counts of this process.
    """

    def __init__(
        self, current_index: Callable[[], Index], *, cached_hits: int, seconds: float, metrics: Metrics
    ) -> None:
        self.current_index = current_index
        self.seconds = seconds
        self.metrics = metrics
        self._cache: Cache[Answer] = Cache(cached_hits)
        self._queue: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        self._hinting = [threading.Lock() for _ in range(HINTING)]

    def answer(self, query: Query, *, client: str = "", rerank: Reranker | None = None) -> Answer:
        """The answer, from the cache where the index has not changed.

        Args:
            query: The query.
            client: Who asks.
            rerank: A second model that orders the results; None for none.

        Returns:
            The answer.

        Raises:
            Refusal: If it takes too long, and what `Index.answer` raises.
        """
        if rerank is not None:
            answer = self.run(lambda index: index.answer(query, rerank=rerank, hints=False), client=client)
            return self._with_hints(answer, query, client)
        cached = self._cache.get((state_of(self.current_index()), query.cache_key))
        self.metrics.event("cache_misses" if cached is None else "cache_hits")
        if cached is not None:
            return cached
        answer, state = self._wait(Waiting(client, query))
        answer = self._with_hints(answer, query, client)
        if state_of(self.current_index()) == state:  # Else the hints are of another moment than the answer.
            self._cache.put((state, query.cache_key), answer, weight=1 + len(answer))
        return answer

    def run(self, work: Callable[[Index], T], *, client: str = "") -> T:
        """Run other work that needs the model, in its turn.

        Args:
            work: Called with the index in the thread that answers queries.
            client: Who asks.

        Returns:
            What the work returns.

        Raises:
            Refusal: If it takes too long; also raises the errors of the work.
        """
        return self._wait(Waiting(client, work))

    def close(self) -> None:
        """Finish the queue, then end the thread."""
        self._thread.shutdown(wait=True)

    def _with_hints(self, answer: Answer, query: Query, client: str) -> Answer:
        """In the thread of the request, as others wait for the one that answers; and one at a time for a client."""
        with self._hinting[hash(client) % HINTING]:
            return self.current_index().with_hints(answer, query)

    def _wait(self, waiting: Waiting) -> Any:
        self._queue.append(waiting)
        self._thread.submit(self._answer_queue)
        try:
            return waiting.future.result(timeout=self.seconds)
        except FutureTimeout as problem:
            waiting.future.cancel()
            sentence = f"no answer within {self.seconds:g} s; the server is busy; try again"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence, retry=RETRY_SECONDS) from problem

    def _answer_queue(self) -> None:
        """Answer a batch of those that wait; the turns of queries that joined another's batch have nothing to do."""
        batch: list[Waiting] = []
        with _Failing(batch):
            index: Index | None = None
            try:
                index = self.current_index()
            finally:
                batch += self._batch(index)
            queries = [one for one in batch if isinstance(one.work, Query)]
            with _Failing(queries):
                self._answer(index, queries)
            for one in batch:
                if not isinstance(one.work, Query):
                    with _Failing([one]):
                        one.future.set_result(one.work(index))

    def _answer(self, index: Index, waiting: Sequence[Waiting]) -> None:
        """Answer queries as one batch."""
        if not waiting:
            return
        self.metrics.batch(len(waiting))
        # One moment: the answers are remembered as those of this state.
        with index.store.reading():
            state = state_of(index)
            answers = index.answer_many([one.work for one in waiting if isinstance(one.work, Query)], hints=False)
        for one, answer in zip(waiting, answers, strict=True):
            if isinstance(answer, Answer):
                one.future.set_result((answer, state))
            else:
                one.future.set_exception(answer)

    def _batch(self, index: Index | None) -> list[Waiting]:
        """Take from the queue what is answered next: one of each client, and all that adds little; else all."""
        batch: list[Waiting] = []
        later: list[Waiting] = []
        taken: set[str] = set()
        while self._queue and len(batch) < BATCH:
            waiting = self._queue.popleft()
            together = isinstance(waiting.work, Query) and index is not None and index.batches(waiting.work)
            alone = index is not None and not together
            if alone and waiting.client in taken:
                later.append(waiting)
            elif waiting.future.set_running_or_notify_cancel():
                batch.append(waiting)
                taken.update([waiting.client] if alone else [])
        self._queue.extendleft(reversed(later))
        return batch


def image_roots(store: Store, home: Path | None, more: Sequence[str]) -> list[Path]:
    """The folders whose images may be shown: those of all data sets that the index was made of, and others.

    Args:
        store: The index.
        home: Folder of its uploads; None for none.
        more: Further folders.

    Returns:
        Resolved paths.
    """
    from subtext.api.index.maintain import recorded_sources

    added = [] if home is None else [home / ADDED]
    sources = [sources for sources, _ in recorded_sources(store)]
    own = [sources.images or sources.data for sources in sources if isinstance(sources.data, Path)]
    own = [place for place in own if not is_address(place)]  # The one who serves an index names such places.
    folders = [Path(place) if Path(place).is_dir() else Path(place).parent for place in own]
    every = [Path(store.manifest.root), *folders, *added, *map(as_path, more)]
    return list(dict.fromkeys(place.resolve() for place in every))


def pictures_of(settings: Settings) -> dict[str, MissingPictures]:
    """The images of each index that have no picture to show; no model is opened.

    Args:
        settings: The settings of the server.

    Returns:
        Name of the library -> the counts.
    """
    found = {}
    for index in settings.indexes:
        whole, name = open_store(index), store_class(index).name_of(index)
        conditions = as_conditions(settings.where, certain=True)
        store = VisibleStore(whole, conditions) if conditions else whole
        storage = Path(settings.storage_dir) / name if settings.storage_dir else None
        home = Path(whole.path) if isinstance(whole, Folder) else storage
        roots = image_roots(store, home, settings.image_folders)
        found[name] = missing_pictures(store, within=roots, storage=storage)
    return found


WARM_WORDS, WARM_IMAGE = "a photo of a house", (32, 32)
"""Of the queries that are answered before those of clients."""


def warm(index: Index) -> None:
    """Answer a query of each kind, so that no client waits for what is loaded when it is first used.

    Args:
        index: The index with its model.
    """
    queries = [Query(text=WARM_WORDS, top=1), Query(text=WARM_WORDS, target="texts", top=1)]
    if index.model is not None and not isinstance(index.model.image.input_spec, FeatureInput):
        queries.append(Query(image=Image.new("RGB", WARM_IMAGE, (90, 120, 150)), top=1))
    for query in queries:
        # A model may read no words, and an index have no texts: who asks for these is told so.
        with suppress(RequirementError, DataError):
            index.answer(query)


class Library:
    """An index that is served, opened again when it is replaced, with its thumbnails, uploads and query batches.

    An index is warm before it answers clients; the former one answers meanwhile, if it is still there.

    Args:
        name: By which requests name it.
        open_index: Opens it; called again when it was re-embedded with another model.
        settings: The settings of the server.
        metrics: Counts of this process.
        decoder: Makes thumbnails.
    """

    def __init__(
        self, name: str, open_index: Callable[[], Index], settings: Settings, metrics: Metrics, decoder: Decoder
    ) -> None:
        self.name, self._settings, self._decoder = name, settings, decoder
        self._open = open_index
        # An index that is no folder has its thumbnails and uploads in a folder beside it, or none.
        self.storage_dir = Path(settings.storage_dir) / name if settings.storage_dir else None
        self._index = self._opened()
        self._checked = time.monotonic()
        self._swept: Revision | None = None
        self._reopening = threading.Lock()
        store, limits = self._index.store.whole, settings.limits
        self.batcher = Batcher(
            lambda: self.index, cached_hits=limits.cached_hits, seconds=limits.answer_seconds, metrics=metrics
        )
        self.fields: Cache[Any] = Cache(10)
        if self.home is not None and (self.home / ADDED).is_dir():
            # Another process may be writing, or the folder be read-only: then the next addition does it.
            with suppress(Refusal, OutputError), changing(store, "serve", self.storage_dir):
                remove_orphans(store, self.storage_dir)

    def _opened(self) -> Index:
        """The index that is now at its place, and what depends on it."""
        index = self._open()
        store = index.store
        if conditions := as_conditions(self._settings.where, certain=True):
            index = Index(VisibleStore(store, conditions), index.model)
        storage_of(store, self.storage_dir)  # Raises for an index with links in it.
        self.home = Path(store.path) if isinstance(store, Folder) else self.storage_dir
        self.thumbnails = Thumbnails(
            image_roots(store, self.home, self._settings.image_folders), self.storage_dir, self._decoder
        )
        warm(index)
        return index

    def reload(self) -> None:
        """Open the index again, with its model; requests get answers of the former one meanwhile.

        Raises what opening an index raises; then the former one goes on.
        """
        with self._reopening:
            self._index = self._opened()
            self._checked = time.monotonic()

    @property
    def index(self) -> Index:
        """The index: a new one soon after another one, or one with another model, has taken its place.

        Raises:
            IndexMovedError: While the server of a database is away.
        """
        now = time.monotonic()
        if now - self._checked > CHECK_SECONDS and self._reopening.acquire(blocking=False):
            try:
                if self._index.store.was_replaced:
                    self._index = self._opened()
                # Other processes may have deleted items.
                with self._index.store.reading() as view:
                    revision = view.revision
                if revision != self._swept:
                    with suppress(OutputError, SearchIndexError):
                        self.sweep({})
                        self._swept = revision
                self._checked = now
            except SubtextError:
                self._checked = now - CHECK_SECONDS + AGAIN_SECONDS
                raise
            finally:
                self._reopening.release()
        return self._index

    @property
    def store(self) -> Store:
        """The index's store, to read; what changes it takes the whole one (`Store.whole`)."""
        return self.index.store

    def sweep(self, deleted: Mapping[str, Sequence[str]]) -> None:
        """Remove what is stored of deleted items beside a database; a folder does that by itself.

        Args:
            deleted: See `remove_traces`; the index names their texts, and other deleted items.
        """
        store = self._index.store.whole
        if self.storage_dir is not None and not isinstance(store, Folder):
            with store.reading() as view:
                hashes = [bytes(digest).hex() for (digest,) in view.records("deleted")]
            remove_traces(self.storage_dir, {**dict.fromkeys(hashes, ()), **deleted})


class ServerState:
    """The libraries, metrics and log of a server.

    Raises what opening an index raises.

    Args:
        settings: The settings of the server.

    Raises:
        RequirementError: For two indexes of one name.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        # Images of requests do not delay the thumbnails.
        self.uploads, self.shown = Decoder(settings.limits.pixels), Decoder(settings.limits.pixels)
        self.libraries: dict[str, Library] = {}
        self.reranker: Reranker | None = None
        if settings.rerank is not None:
            self.reranker = Reranker(open_run(settings.rerank, device=settings.device).model, settings.rerank)
        for index in settings.indexes:
            name = store_class(index).name_of(index)
            if name in self.libraries:
                raise RequirementError(f"libraries need names of their own; two are called '{name}'; rename one")
            first = {} if self.libraries else {name: getattr(settings, name) for name in ("run", "model", "features")}
            self.libraries[name] = Library(
                name,
                lambda index=index, first=first: open_index(  # type: ignore[misc]
                    index, device=settings.device, **first
                ).with_model(),
                settings,
                self.metrics,
                self.shown,
            )
        home = next(iter(self.libraries.values())).home
        self.log = RequestLog((home or "-") if settings.log == "index" else settings.log)
        local = LOOPBACK if settings.host in ("127.0.0.1", "::1", "localhost") else ()
        self.allowed_hosts = frozenset((*local, *settings.allowed_hosts))

    def library(self, name: str | None) -> Library:
        """The library of that name, by default the first.

        Args:
            name: Name of the library; None for the first.

        Returns:
            The library.

        Raises:
            Refusal: If there is none.
        """
        if name is None:
            return next(iter(self.libraries.values()))
        if name not in self.libraries:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no such library here; there are {', '.join(self.libraries)}")
        return self.libraries[name]

    def authorise(self, token: str | None, *, writes: bool) -> None:
        """Require that a request may read, or write.

        Args:
            token: Token of the request; None for none.
            writes: Whether the request changes something.

        Raises:
            Refusal: 401 or 403.
        """
        settings = self.settings
        if writes and not settings.token:
            raise Refusal(HTTPStatus.FORBIDDEN, "this server changes nothing; start it with --token-file to allow that")
        if not writes and not settings.read_token:
            return
        accepted = [settings.token] if writes else [settings.token, settings.read_token]
        # Every token is compared in full, so the time taken reveals nothing.
        matches = [hmac.compare_digest((token or "").encode(), value.encode()) for value in accepted if value]
        if not any(matches):
            need = "needs a token" if token is None else "needs another token"
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"this {need} (Authorization: Bearer ...)")

    def item_counts(self) -> dict[tuple[str, str], int]:
        """(library, side) -> items, without libraries whose database is away.

        Returns:
            (library, side) -> number.
        """
        counts: dict[tuple[str, str], int] = {}
        for name, library in self.libraries.items():
            with suppress(SearchIndexError):
                counts |= {(name, side): count for side, count in library.store.counts.items()}
        return counts

    def reload(self) -> None:
        """Open every library again; what cannot be opened is said, and goes on as it was."""
        for name, library in self.libraries.items():
            try:
                library.reload()
            except SubtextError as problem:
                say(f"{name} is not opened again, and goes on as it was: {problem}")
            else:
                say(f"{name} is opened again: {len(library.index):,} images", quiet=self.settings.log == "-")

    def close(self) -> None:
        """Finish the queries that wait, and close files."""
        for library in self.libraries.values():
            library.batcher.close()
        self.uploads.close()
        self.shown.close()
        self.log.close()
