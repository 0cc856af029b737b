"""An update takes from an index nothing that it should not, whatever happens to the data."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import coloured_images
import pytest
from command import call
from PIL import Image

from subtext.api.index.build import add_to_index, build_index, update_index, watch_index
from subtext.api.search import open_index
from subtext.errors import DataError
from subtext.retrieval import build as index_build
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.traces import ADDED, ROWS
from subtext.retrieval.verification import verify


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture
def photos(tmp_path: Path, runs: Path) -> Path:
    """A folder of twelve pictures, and an index of it beside it."""
    for name, colour in coloured_images.COLOURS.items():
        picture(tmp_path / "photos" / f"{name}.png", colour)
    build_index(tmp_path / "index", tmp_path / "photos", run=runs / "run", quiet=True)
    return tmp_path / "photos"


def picture(file: Path, colour: tuple[int, int, int]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 40), colour).save(file)
    return file


def ids(index: Path | str, side: str = "images") -> set[str]:
    store = open_store(index)
    with store.reading() as view:
        found = {row.id for row in view.rows(side, keys=view.keys(side).tolist())}  # type: ignore[arg-type]
    assert verify(index) == []
    return found


def table(file: Path, names: list[str], *, more: str = "") -> Path:
    """A table of pictures beside it, with a caption each."""
    rows = [{"image": f"photos/{name}.png", "id": name, "caption": f"a {name} square"} for name in names]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + more)
    return file


ALL = {f"{name}.png" for name in coloured_images.COLOURS}
NAMES = list(coloured_images.COLOURS)


def test_folder_of_photos_stays_one(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = photos.parent / "index"
    (photos / "captions.csv").write_text("file_name,caption\nred.png,one\n")
    assert update_index(index).unchanged == 12
    said = capsys.readouterr().err
    assert "photos was images (JPEG" in said and "looks like one JSON-lines, CSV" in said and "(--data)" in said
    picture(photos / "sub" / "new.png", (1, 2, 3))
    (photos / "sub" / "metadata.csv").write_text("file_name,caption\nnew.png,one\n")
    with tarfile.open(photos / "backup.tar", "w") as tar:
        tar.add(photos / "red.png", "red.png")
    assert update_index(index, quiet=True).embedded == 1 and ids(index) == {*ALL, "sub/new.png"}
    assert add_to_index(index, photos, quiet=True).unchanged == 13, "an addition does not guess, either"
    assert update_index(index, quiet=True).unchanged == 13
    moved = photos.rename(photos.parent / "moved")
    assert update_index(index, data=moved, quiet=True).amended == 13
    assert update_index(index, quiet=True).unchanged == 13 and ids(index) == {*ALL, "sub/new.png"}


def test_folder_of_tables_keeps_its_table(runs: Path, tmp_path: Path) -> None:
    folder, index = tmp_path / "data", tmp_path / "index"
    for name in ("red", "green", "blue"):
        picture(folder / "a" / f"{name}.png", coloured_images.COLOURS[name])
    rows = "file_name,caption\nred.png,one\ngreen.png,two\n"
    (folder / "a" / "metadata.csv").write_text(rows)
    build_index(index, folder, run=runs / "run", quiet=True)
    (folder / "metadata.csv").write_text("file_name,caption\na/blue.png,three\n")
    assert update_index(index, quiet=True).unchanged == 4, "metadata above those of the sub-folders"
    (folder / "a" / "metadata.csv").unlink()
    with pytest.raises(DataError, match=r"needs at least one image; it has none|is not now"):
        update_index(index, quiet=True)
    assert len(ids(index)) == 2
    single, other = folder / "a", tmp_path / "other"
    (single / "list.csv").write_text(rows)
    (single / "._list.csv").write_bytes(b"\0\5\x16\7")
    build_index(other, single, run=runs / "run", quiet=True)
    (single / "more.csv").write_text("file_name,caption\nblue.png,three\n")
    (single / "metadata.csv").write_text("file_name,caption\nblue.png,three\n")
    assert update_index(other, quiet=True).unchanged == 4, "two more tables"
    (single / "list.csv").unlink()
    with pytest.raises(DataError, match=r"\(list\.csv\) when it was first read, and is not now; nothing was read; put"):
        update_index(other, quiet=True)
    assert len(ids(other)) == 2


@pytest.fixture
def place(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a table of twelve pictures, and the table."""
    for name, colour in coloured_images.COLOURS.items():
        picture(tmp_path / "photos" / f"{name}.png", colour)
    file = table(tmp_path / "data.jsonl", NAMES)
    build_index(address_of("library"), file, run=runs / "run", quiet=True)
    yield address_of("library"), file
    open_store(address_of("library")).remove()


def test_brake_stops_update_and_watch(place: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    address, file = place
    table(file, NAMES[:2])
    said = call("index", "update", address, "-q", code=1).stderr
    assert (
        "its data no longer has 10 images and 10 texts, of its 24 items, first 'blue'" in said
        and "half written" in said
    )
    shown = str(open_store(address).path)
    assert "subtext index update" in said and "--allow-deleting 20`" in said and "s3cret" not in said
    assert ids(address) == set(NAMES)
    with pytest.raises(DataError, match="--allow-deleting 20"):
        update_index(address, quiet=True)
    steps: list[float] = []

    def wait(seconds: float) -> None:
        steps.append(seconds)
        if len(steps) == 3:
            table(file, NAMES[:11])

    assert watch_index(address, max_checks=5, interval=0, wait=wait) == 5
    watched = capsys.readouterr().err
    assert (
        watched.count("--allow-deleting 20") == 1 and f"{shown}: 0 items embedded, 22 unchanged, 2 deleted" in watched
    )
    table(file, NAMES[:2])
    call("index", "update", address, "-q", "--allow-deleting", 17, code=1)
    assert "18 deleted" in call("index", "update", address, "-q", "--allow-deleting", 18).stdout
    assert ids(address) == set(NAMES[:2])


def test_brake_knows_renamed_items(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    address, file = place
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    renamed = [{**row, "id": f"new-{row['id']}"} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in renamed))
    monkeypatch.setattr(index_build, "CHUNK", 4)
    with monkeypatch.context() as patched:
        patched.setattr("subtext.retrieval.build.prune", lambda *words: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            update_index(address, quiet=True)
    change = update_index(address, quiet=True)
    assert change.deleted == 24 and change.embedded == 0, "an update that was cut off before it deleted goes on"
    assert ids(address) == {f"new-{name}" for name in NAMES}
    table(file, NAMES)
    assert update_index(address, quiet=True).renamed == 24 and ids(address) == set(NAMES)


def test_cut_off_table_deletes_nothing(place: tuple[str, Path]) -> None:
    address, file = place
    table(file, NAMES[:10], more='{"image": "photos/pin')
    change = update_index(address, on_error="skip", quiet=True)
    assert (change.deleted, change.withheld) == (0, 4) and ids(address) == set(NAMES)
    assert "4 missing from data with unreadable rows stay, as they may be these" in str(change)
    assert "--allow-deleting 4` deletes them" in str(change)
    assert update_index(address, on_error="skip", allow_deleting=4, quiet=True).deleted == 4
    assert ids(address) == set(NAMES[:10])


def test_unreadable_image_stays(place: tuple[str, Path]) -> None:
    address, file = place
    images = file.parent / "photos"
    rows = [{"image": f"photos/{n}.png", "id": n, "caption": "two of them", "group": "g"} for n in ("red", "green")]
    table(file, NAMES[2:], more="".join(json.dumps(row) + "\n" for row in rows))
    update_index(address, quiet=True)
    good = {name: (images / name).read_bytes() for name in ("red.png", "blue.png", "cyan.png")}
    (images / "red.png").write_bytes(good["red.png"][:60])
    (images / "blue.png").unlink()
    (images / "cyan.png").write_bytes(b"")
    change = update_index(address, on_error="skip", quiet=True)
    assert (change.deleted, change.unread) == (0, ("blue", "cyan", "red")) and ids(address) == set(NAMES)
    assert "3 could not be read and stay as before (blue, cyan, red)" in str(change)
    with open_store(address).reading() as view:
        captions = {item.id: item.captions for item in view.items("images", view.keys("images"))}
    assert captions["red"] == captions["green"] == ["two of them"], "a text of an image that cannot be read keeps it"
    assert captions["blue"] == ["a blue square"]
    for name, content in good.items():
        (images / name).write_bytes(content)
    change = update_index(address, quiet=True)
    assert (change.embedded, change.deleted, change.unread) == (0, 0, ()), "the same bytes again"
    file.unlink()
    with pytest.raises(DataError, match="is not there"):
        update_index(address, on_error="skip", quiet=True)
    assert ids(address) == set(NAMES)


def test_watch_goes_on_beside_bad_file(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, turn = photos.parent / "index", [0]

    def wait(seconds: float) -> None:
        turn[0] += 1
        if turn[0] == 1:
            (photos / "bad.png").write_text("no image")
            picture(photos / "teal.png", (0, 128, 128))
        elif turn[0] == 3:
            picture(photos / "olive.png", (128, 128, 0))
        elif turn[0] == 5:
            picture(photos / "bad.png", (9, 9, 99))

    watch_index(index, max_checks=8, interval=0, wait=wait)
    said = capsys.readouterr().err
    assert said.count("bad.png") == 1 and said.count("embedded") == 4, "one update for each change"
    assert ids(index) == {*ALL, "teal.png", "olive.png", "bad.png"}


def test_watch_waits_for_writers(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, turn = photos.parent / "index", [0]
    held = open_store(index).writing("add")

    def wait(seconds: float) -> None:
        turn[0] += 1
        picture(photos / f"{turn[0]}.png", (9, 50 * turn[0], 9))
        if turn[0] == 1:
            held.__enter__()
        elif turn[0] == 3:
            held.__exit__(None, None, None)

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("subtext.retrieval.stores.folder.PATIENCE", 0.1)
        watch_index(index, max_checks=4, interval=0, wait=wait)
    assert capsys.readouterr().err.count("not updated yet") == 1
    assert ids(index) == {*ALL, "1.png", "2.png", "3.png"}


def test_watch_sees_images_of_table(place: tuple[str, Path]) -> None:
    address, file = place
    turn, found = [0], list[float]()

    def score() -> float:
        hits = open_index(address).search(image=file.parent / "photos" / "red.png", top=12)
        return next(hit.score for hit in hits if hit.id == "red")

    def wait(seconds: float) -> None:
        turn[0] += 1
        if turn[0] == 1:
            picture(file.parent / "photos" / "red.png", (1, 250, 7))
            found.append(score())

    watch_index(address, max_checks=3, interval=0, wait=wait, quiet=True)
    assert found[0] < 0.999 * score()


def test_index_inside_of_data_is_passed_over(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in ("red", "green"):
        picture(folder / f"{name}.png", coloured_images.COLOURS[name])
    index = folder / "kept" / "library"
    index.parent.mkdir()
    build_index(index, folder, run=runs / "run", quiet=True)
    picture(index / "cache" / "thumbnails" / "ab-96.webp", (1, 2, 3))
    picture(index / ADDED / "up.png", (4, 5, 6))
    (index / ADDED / ROWS).write_text('{"image": "up.png", "caption": "hello", "id": "up1"}\n')
    shutil.copytree(index, folder / "copy of library")
    storage = folder / "storage"
    (storage / "logs").mkdir(parents=True)
    (storage / "logs" / "serve-1.jsonl").touch()
    picture(storage / "cache" / "thumbnails" / "ab-96.webp", (1, 2, 3))
    assert update_index(index, quiet=True).unchanged == 2 and ids(index) == {"red.png", "green.png"}
    turns = iter(range(9))

    def wait(seconds: float) -> None:
        picture(index / "cache" / f"{next(turns)}.png", (1, 2, 3))

    watch_index(index, max_checks=3, wait=wait, quiet=True)
    assert ids(index) == {"red.png", "green.png"}


def test_change_time_counts(photos: Path) -> None:
    index, file = photos.parent / "index", photos / "red.png"
    written = file.stat().st_mtime_ns
    other = picture(photos.parent / "other.bmp", (220, 30, 31))
    for name in ("one.bmp", "two.bmp"):
        shutil.copy(other, photos / name)
    update_index(index, quiet=True)
    picture(photos / "one.bmp", (0, 0, 200))
    assert (photos / "one.bmp").stat().st_size == other.stat().st_size
    os.utime(photos / "one.bmp", ns=(written, written))
    os.utime(photos / "two.bmp", ns=(written, written))
    assert update_index(index, quiet=True).embedded == 1
    os.utime(photos / "one.bmp", ns=(written, written))
    change = update_index(index, quiet=True)
    assert (change.embedded, change.amended, change.unchanged) == (0, 0, 14), "the same content is not embedded again"


def test_verify_files_reads_all(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = photos.parent / "index"
    stamps = {name: index_build.file_stamp(name, photos) for name in ALL}
    picture(photos / "red.png", (1, 2, 3))
    # A disk that keeps size and times of a file whose content rots.
    monkeypatch.setattr(index_build, "file_stamp", lambda value, root: stamps[Path(value).name])
    assert update_index(index, quiet=True).unchanged == 12
    assert "1 item embedded, 11 unchanged" in call("index", "update", index, "--verify-files", "-q").stdout


def test_deleted_uploads_do_not_stop_updates(photos: Path) -> None:
    index = photos.parent / "index"
    (index / ADDED).mkdir()
    picture(index / ADDED / "up.png", (4, 5, 6))
    row = {"id": "up", "file_name": "up.png", "captions": ["hello"], "text_ids": ["up#0"]}
    (index / ADDED / ROWS).write_text(json.dumps(row) + "\n")
    add_to_index(index, index / ADDED, quiet=True)
    call("index", "delete", index, "up")
    assert (index / ADDED / ROWS).read_text() == ""
    assert update_index(index, quiet=True).unchanged == 12 and ids(index) == ALL
