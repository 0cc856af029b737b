"""An index is what was opened, not what now stands at its path: others take its place at every moment."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import replaced_index
import stored_items
from database import started
from replaced_index import FolderPlace

from subtext.api.index.maintain import restore_index
from subtext.errors import OutputError, SearchIndexError
from subtext.retrieval.held_folder import HeldFolder
from subtext.retrieval.stores import folder as folder_module, lance
from subtext.retrieval.stores.errors import IndexMovedError
from subtext.retrieval.stores.folder import Folder, backup
from subtext.retrieval.stores.item import Applied
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import verify

QUERIES = stored_items.vectors(range(1000, 1003), 1)
SEEDS = {"folder": 13, "link": 13}
SWAPS = [
    pytest.param(seed, verb, kind, marks=[] if seed == 0 and (kind in SEEDS or verb == "add") else pytest.mark.slow)
    for kind in replaced_index.PLACES
    for seed in range(SEEDS.get(kind, 5))
    for verb in replaced_index.VERBS
]
"""Folders are fast; of the others there are fifty swaps of each kind, all verbs together."""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """A server for the places that need one, started with the first of them."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lance, "GRACE", 0.0)

        class Started:
            """The server."""

            def __getattr__(self, name: str) -> object:
                replaced_index.DatabasePlace.server = stack.enter_context(started())
                return getattr(replaced_index.DatabasePlace.server, name)

        patch.setattr(replaced_index.DatabasePlace, "server", Started())
        yield


def whole(address: str) -> set[str]:
    """The ids of an index, which is whole and has the vectors of these items."""
    assert verify(address) == []
    store = open_store(address)
    found = stored_items.ids(store)
    numbers = [int(name[1:]) for name in found]
    assert stored_items.nearest(store, QUERIES, exact=True) == stored_items.plain(QUERIES, numbers)
    store.close()
    return found


def assert_all_or_nothing(verb: str, found: set[str], before: set[str]) -> None:
    """Assert that each piece of a change was made completely, or not at all, and nothing else."""
    changed = found ^ before
    if verb in ("add", "delete"):
        pieces = [
            {f"p{number}" for number in piece}
            for piece in (replaced_index.ADDED if verb == "add" else replaced_index.DELETED)
        ]
        assert all(piece & changed in (set(), piece & (found | before)) for piece in pieces)
        assert changed <= set().union(*pieces)
    elif verb == "update":
        assert changed in (set(), {f"p{number}" for number in range(30, 36)})
    else:
        assert not changed


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], int]:
    """How many calls of functions a verb makes in a place when nobody takes it."""
    known: dict[tuple[str, str], int] = {}

    def length(kind: str, verb: str) -> int:
        if (kind, verb) not in known:
            store = replaced_index.made(replaced_index.PLACES[kind](tmp_path_factory.mktemp("length")), copy=False)
            with replaced_index.at_call(10**9, lambda: None) as made:
                replaced_index.VERBS[verb](store)
            known[kind, verb] = made[0]
        return known[kind, verb]

    return length


@pytest.mark.parametrize("other", ["another", "copy"])
@pytest.mark.parametrize(("seed", "verb", "kind"), SWAPS)
def test_both_indexes_are_whole_when_one_is_replaced_during_a_change(
    tmp_path: Path, lengths: Callable[[str, str], int], seed: int, verb: str, kind: str, other: str
) -> None:
    place = replaced_index.PLACES[kind](tmp_path)
    store = replaced_index.made(place, copy=other == "copy")
    before = {"first": place.content(place.live), "other": place.content(place.other)}
    ids = {"first": {f"p{number}" for number in replaced_index.OWN}}
    ids["other"] = (
        ids["first"] - {replaced_index.GONE} if other == "copy" else {f"p{number}" for number in replaced_index.OTHER}
    )
    call = random.Random(f"{seed} {verb} {kind} {other}").randint(1, lengths(kind, verb))
    refused = ""
    with replaced_index.at_call(call, place.swap) as made:
        try:
            replaced_index.VERBS[verb](store)
        except (IndexMovedError, SearchIndexError) as problem:
            refused = str(problem)
    store.close()
    if made[0] < call:
        place.swap()
    after = {"first": place.content(place.aside), "other": place.content(place.live)}
    changed = {name for name in after if after[name] != before[name]}
    # A writer that has not begun when a copy takes the place changes the copy, and nothing else.
    assert len(changed) < 2 and (other == "copy" or changed <= {"first"}), (call, changed, refused)
    # A small index in PostgreSQL is compacted by the server itself, which changes no row.
    done = changed or (kind, verb) == ("postgresql", "compact")
    assert done or refused, "what says that it was done was done"
    if refused:
        assert "/proc/" not in refused and "Traceback" not in refused
    for name, address in (("first", place.aside), ("other", place.live)):
        assert_all_or_nothing(verb, whole(address), ids[name])


def hits(store: Store) -> list[list[tuple[str, float]]]:
    return stored_items.answers(store, QUERIES)


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        pytest.param(seed, kind, marks=[] if seed < (4 if kind in SEEDS else 1) else pytest.mark.slow)
        for kind in replaced_index.PLACES
        for seed in range(50 if kind in SEEDS else 20)
    ],
)
def test_reader_never_mixes_replaced_indexes(tmp_path: Path, kind: str, seed: int) -> None:
    place = replaced_index.PLACES[kind](tmp_path)
    store = replaced_index.made(place, copy=seed % 2 == 0)
    own, theirs = hits(store), hits(open_store(place.other))
    with replaced_index.at_call(10**9, lambda: None) as made:
        hits(open_store(place.live))
    opened, call = store, random.Random(seed).randint(1, made[0])
    with replaced_index.at_call(call, place.swap) as made, suppress(IndexMovedError):
        opened = store if seed % 4 < 2 else open_store(place.live)
        assert hits(opened) in (own, theirs)
    if made[0] < call:
        place.swap()
    same = opened.manifest.identity == open_store(place.live).manifest.identity
    with ThreadPoolExecutor(1) as another:
        for ask in (hits, lambda it: another.submit(hits, it).result()):
            if same:
                assert ask(opened) == theirs, "a copy of the same index is opened"
                continue
            with pytest.raises(IndexMovedError, match="was replaced by another index, or moved to another model"):
                ask(opened)
    assert hits(open_store(place.live)) == theirs


def test_replaced_index_is_not_mixed_in_old_and_new_threads(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=True)
    first, second, answers = threading.Event(), threading.Event(), dict[str, object]()

    def ask() -> None:
        answers["before"] = hits(store)
        first.set()
        second.wait(20)
        answers["after"] = hits(store)

    thread = threading.Thread(target=ask)
    thread.start()
    first.wait(20)
    with store.reading():
        place.swap()
        during = hits(store)
        assert during == answers["before"], "a view stays at its moment"
    second.set()
    thread.join(20)
    assert answers["after"] == hits(store) == hits(open_store(place.live)) != during


def test_removed_index_raises_and_comes_back(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=True)
    wanted = hits(store)
    Path(place.live).rename(place.aside)
    for _ in range(2):
        with pytest.raises(IndexMovedError, match="was removed or moved since it was opened; open it again"):
            hits(store)
        with pytest.raises(IndexMovedError, match="was removed or moved since"), store.writing("add"):
            pass
    assert not Path(place.live).exists(), "nothing is left at its place"
    shutil.copytree(place.aside, place.live)
    assert hits(store) == wanted
    assert backup(store, tmp_path / "copy").counts == store.counts


def test_replaced_tables_are_read_anew(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    copy = backup(folder, tmp_path / "copy")
    wanted = hits(folder)
    with folder.writing("delete") as writer:
        writer.delete("images", ["p1", "p2"])
    assert hits(folder) != wanted
    shutil.rmtree(folder.path / "store-1")
    shutil.copytree(copy.path / "store-1", folder.path / "store-1")
    with pytest.raises(SearchIndexError, match="the last ones were lost, and deleted items may be back"):
        hits(folder)
    (copy.path / "manifest.json").replace(folder.path / "manifest.json")
    assert hits(folder) == wanted and verify(folder.path) == []


def test_segment_of_same_name_in_a_copy_is_another(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=True)
    for address, numbers in ((place.live, range(200, 230)), (place.other, range(300, 330))):
        with open_store(address).writing("add") as writer:
            writer.put(stored_items.images(numbers))
    assert "p200" in stored_items.ids(store)
    names = [sorted(file.name for file in Path(at, "store-1").iterdir()) for at in (place.live, place.other)]
    assert names[0] == names[1]
    place.swap()
    expected = [number for number in (*range(40), *range(300, 330)) if f"p{number}" != replaced_index.GONE]
    assert stored_items.nearest(store, QUERIES) == stored_items.plain(QUERIES, expected)


@pytest.mark.parametrize("through", [True, False])
def test_commit_refuses_replaced_folder(tmp_path: Path, through: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no path leads through a descriptor."""
    if not through:
        monkeypatch.setattr("subtext.data.folder_handle.THROUGH", ())
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=False)
    before = place.content(place.other), place.content(place.live)
    told = r"live was moved away, removed or replaced while it was used; .*; what was acknowledged before stands in the"
    with pytest.raises(IndexMovedError, match=told), store.writing("add") as writer:
        place.swap()
        with pytest.raises(IndexMovedError, match=told):
            writer.put(stored_items.images(range(100, 104)))
        with pytest.raises(IndexMovedError, match=told):
            writer.ids("images")
    assert (place.content(place.live), place.content(place.aside)) == before
    assert verify(place.live) == verify(place.aside) == []


def test_store_that_is_replaced_inside_an_index_is_refused(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=False)
    first, before = Path(place.live, "store-1"), place.content(place.other)
    told = "needs the items of its own|live/store-1 was moved away, removed or replaced while it was used"
    with pytest.raises(SearchIndexError, match=told), store.writing("add") as writer:
        first.rename(tmp_path / "aside")
        Path(place.other, "store-1").rename(first)
        writer.apply(stored_items.images(range(100, 104)))
    with pytest.raises(SearchIndexError, match="needs the items of its own; it has those of another index"):
        hits(store)
    with pytest.raises(SearchIndexError, match="needs the items of its own"):
        open_store(place.live)
    first.rename(Path(place.other, "store-1"))
    (tmp_path / "aside").rename(first)
    assert place.content(place.other) == before and verify(place.other) == verify(place.live) == []
    assert len(hits(store)) == len(QUERIES)


def test_removed_index_is_not_made_again_by_a_writer(tmp_path: Path) -> None:
    store = stored_items.made(tmp_path / "index")
    with pytest.raises((IndexMovedError, OutputError)) as told, store.writing("add") as writer:
        shutil.rmtree(tmp_path / "index")
        writer.put(stored_items.images(range(100, 104)))
    assert not [*tmp_path.iterdir()] and "/proc/" not in str(told.value)


def test_change_that_was_made_before_a_swap_is_reported(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=False)
    with (
        pytest.raises(IndexMovedError, match="what `add` had done until then is in it"),
        store.writing("add") as writer,
    ):
        writer.put(stored_items.images(range(100, 104)))
        place.swap()
    assert {"p100", "p103"} <= whole(place.aside) and whole(place.live) == {f"p{n}" for n in replaced_index.OTHER}


def test_failed_build_removes_no_other_index(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    replaced_index.made(place, copy=False).close()
    empty = Folder.create(tmp_path / "empty", stored_items.manifest())
    empty.path.rename(tmp_path / "away")
    Path(place.live).rename(empty.path)
    empty.remove()
    assert verify(empty.path) == [] and not [*(tmp_path / "away").iterdir()]


def test_restore_replaces_no_index_that_came_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = FolderPlace(tmp_path)
    replaced_index.made(place, copy=False).close()
    before, plain = place.content(place.live), folder_module._copy

    def slow(folder: Folder, target: Path) -> object:
        made = plain(folder, target)
        Path(place.live).rename(tmp_path / "restored")
        return made

    monkeypatch.setattr(folder_module, "_copy", slow)
    with pytest.raises(OutputError, match="was taken by another folder meanwhile; name another place"):
        restore_index(place.other, tmp_path / "restored")
    assert place.content(str(tmp_path / "restored")) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other", "restored"]


def test_error_behind_the_commit_says_that_the_change_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored_items.made(tmp_path / "index")

    def fails(path: Path, text: str, **more: object) -> None:
        raise OutputError(f"{path} needs to be written, and cannot be: Input/output error; what stood there before "
                          "still stands; see to that and do it again")  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "write_text", fails)
        stands = "has the change, which stands; what follows it was not done"
        with pytest.raises(OutputError, match=stands) as told, folder.writing("add") as writer:
            writer.put(stored_items.images(range(100, 104)))
    assert "before still stands" not in str(told.value) and "/proc/" not in str(told.value)
    assert "p100" in stored_items.ids(Folder(folder.path))
    with Folder(folder.path).writing("add") as writer:
        assert writer.put(stored_items.images(range(0))) is None
    assert verify(folder.path) == []


def test_held_folder_is_itself_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("mine")
    held = HeldFolder(tmp_path / "a")
    assert held.is_there and held.named(f"{held.here}/file is bad") == f"{tmp_path / 'a'}/file is bad"
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir()
    assert not held.is_there
    if held.here != held.path:
        assert (held.here / "file").read_text() == "mine"
        assert held.named(f"{held.here}7/file") == f"{held.here}7/file", "of another descriptor"
    with pytest.raises(SearchIndexError, match="it is not there"):
        HeldFolder(tmp_path / "c")


def test_applied_says_nothing_of_a_refused_change(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    store = replaced_index.made(place, copy=True)
    applied: list[Applied] = []
    with suppress(IndexMovedError), store.writing("delete") as writer:
        applied.append(writer.apply(stored_items.images(range(100, 102))))
        place.swap()
        applied.append(writer.apply(stored_items.images(range(102, 104))))
    assert len(applied) == 1 and {"p100", "p101"} <= whole(place.aside) - whole(place.live)
