"""An update by a list of changes does what an update by the changed data would do, and reads nothing else."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coloured_images
import pytest
from command import call, invoke
from PIL import Image

from subtext.api.index.build import build_index, update_index
from subtext.data import image_files
from subtext.errors import ArgumentError, DataError
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.verification import verify

NAMES = list(coloured_images.COLOURS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture
def place(address_of: Callable[[str], str], runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a table of twelve images with two texts each, and the table."""
    address, file = address_of("library"), tmp_path / "data.jsonl"
    with coloured_images.index_of_table(address, file, [row(name) for name in NAMES], runs / "run"):
        yield address, file


def row(name: str, **more: Any) -> dict[str, Any]:
    texts = [f"a {name} square", f"ein Quadrat, {name}"]
    return {"image": f"photos/{name}.png", "id": name, "captions": texts, "year": 1900 + len(name), **more}


def write(file: Path, rows: list[Any]) -> Path:
    file.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in rows))
    return file


def content(address: str) -> dict[str, tuple[Any, ...]]:
    """Id of each image -> its texts, metadata and path."""
    with open_store(address).reading() as view:
        items = view.items("images", view.keys("images"))
        texts = {item.id: item.captions for item in view.items("texts", view.keys("texts"))}
        linked = {text for item in items for text in item.captions}
    assert verify(address) == [] and {text for own in texts.values() for text in own} == linked
    return {item.id: (sorted(item.captions), item.metadata, item.path) for item in items}


def test_changes_give_the_index_of_the_changed_data(place: tuple[str, Path], runs: Path, tmp_path: Path) -> None:
    address, file = place
    Image.new("RGB", (40, 40), (9, 9, 9)).save(file.parent / "photos" / "new.png")
    Image.new("RGB", (40, 40), (99, 9, 9)).save(file.parent / "photos" / "red.png")
    lines = [
        row("new", captions=["something new"]),
        row("red"),
        row("green", year=2020),
        row("blue", captions=["only one now"]),
        {"id": "pink", "deleted": True},
        {"id": "cyan", "deleted": True},
        row("old-cyan") | {"image": "photos/cyan.png", "captions": ["a cyan square", "ein Quadrat, cyan"]},
    ]
    change = update_index(address, changes=write(tmp_path / "changes.jsonl", lines), quiet=True)
    # The new image and its text, the red image, the blue text; green; texts of blue and pink, and pink itself.
    assert (change.embedded, change.amended, change.renamed, change.deleted) == (4, 3, 3, 4)
    gone = {"new", "red", "green", "blue", "pink", "cyan"}
    write(file, [row(name) for name in NAMES if name not in gone] + [line for line in lines if "image" in line])
    build_index(tmp_path / "again", file, run=runs / "run", quiet=True)
    assert content(address) == content(str(tmp_path / "again"))
    full = update_index(address, quiet=True)
    assert (full.embedded, full.amended, full.deleted) == (0, 0, 0), "the data say the same"


def test_second_run_changes_nothing(place: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = place
    file = write(tmp_path / "changes.jsonl", [row("red", year=1), {"id": "pink", "deleted": True}])
    assert "3 deleted" in call("index", "update", address, "-q", "--changes", file).stdout
    before = open_store(address).manifest
    answer = call("index", "update", address, "--changes", file)
    assert "0 items embedded, 3 unchanged, 1 id to delete not in the index" in answer.stdout
    assert "line 2: deletes 'pink', which the index does not have" in answer.stderr
    after = open_store(address).manifest
    assert (after.change, after.generation) == (before.change, before.generation), "readers keep what they have"


def test_bad_lines_are_named_and_the_rest_is_done(place: tuple[str, Path], tmp_path: Path) -> None:
    address, file = place
    (file.parent / "photos" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    lines = [
        "[1, 2]\n",
        row("red", year=7),
        row("absent"),
        {"id": "nobody", "deleted": True},
        {"id": "blue", "deleted": "yes"},
        "{half a line\n",
        row("broken"),
        row("green", group="g"),
        {"id": "cyan", "deleted": True},
        row("grey", captions=["fine", 7]),
    ]
    bad = write(tmp_path / "changes.jsonl", lines)
    before = content(address)
    refused = call("index", "update", address, "-q", "--changes", bad, "--on-error", "raise", code=1).stderr
    assert "nothing was changed" in refused and content(address) == before
    change = update_index(address, changes=bad)
    assert change.unusable == 7 and change.unknown == 1 and change.deleted == 3
    said = "\n".join(change.problems)
    for part in (
        "line 1: needs a JSON object",
        "line 3: image 'photos/absent.png' is not in",
        "line 4: deletes 'nobody'",
        "line 5: 'deleted' needs to be true or false; it is \"yes\"",
        "line 6: is no JSON",
        "line 7: photos/broken.png is no image that can be read",
        "line 8: needs an id of its own and no group",
        "line 10: text 2 of 2 needs to be a string",
    ):
        assert part in said, said
    now = content(address)
    assert now["red"][1]["year"] == 7 and "cyan" not in now and now["blue"] == before["blue"]
    assert now["grey"][0] == ["ein Quadrat, grey", "fine"], "a text that cannot be read costs no other text"
    with pytest.raises(DataError, match=r"nothing was changed: line 1: needs a JSON object"):
        update_index(address, changes=write(tmp_path / "changes.jsonl", ["[]\n"]), quiet=True)


def test_brake_holds_for_changes(place: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = place
    file = write(tmp_path / "changes.jsonl", [{"id": name, "deleted": True} for name in NAMES[:5]])
    refused = call("index", "update", address, "-q", "--changes", file, code=1).stderr
    assert "the changes delete 5 images and 10 texts, of its 36 items, first 'red'" in refused
    assert f"--changes {file} --allow-deleting 15`" in refused and len(content(address)) == 12
    assert "15 deleted" in call("index", "update", address, "-q", "--changes", file, "--allow-deleting", 15).stdout
    assert set(content(address)) == set(NAMES[5:])
    renamed = [{"id": name, "deleted": True} for name in NAMES[5:]]
    renamed += [row(name) | {"id": f"new-{name}"} for name in NAMES[5:]]
    change = update_index(address, changes=renamed, quiet=True)
    assert (change.renamed, change.deleted, change.embedded) == (21, 0, 0), "items with other names are not lost"


def test_standard_input_and_the_last_line_of_an_id(place: tuple[str, Path]) -> None:
    address, _ = place
    lines = [row("red", year=1), row("red", year=2), {"id": "blue", "deleted": True}, row("blue", year=3)]
    lines += [row("pink", year=4), {"id": "pink", "deleted": True}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answer = invoke("index", "update", address, "--changes", "-", input=io.BytesIO(text.encode()))
    assert answer.exit_code == 0, answer.output
    assert "line 1: a later line is about 'red' as well, and counts" in answer.stderr
    now = content(address)
    assert now["red"][1]["year"] == 2 and now["blue"][1]["year"] == 3 and "pink" not in now
    with pytest.raises(ArgumentError, match="changes take the place of the data"):
        update_index(address, changes=[], data="x", quiet=True)
    assert update_index(address, changes=[], quiet=True).unchanged == 0


def test_texts_of_other_images_stay(place: tuple[str, Path], tmp_path: Path) -> None:
    address, file = place
    both = [row(name, captions=["two of them"], group="g") for name in ("red", "green")]
    write(file, [*both, *(row(name) for name in NAMES[2:])])
    update_index(address, quiet=True)
    assert content(address)["green"][0] == ["two of them"]
    change = update_index(address, changes=[row("red", captions=["one of them"]), row("blue", year=1)], quiet=True)
    assert change.unusable == 1 and "row 1: its text has the id 'red#0', as a text of 'green' has" in change.problems[0]
    assert content(address)["green"][0] == content(address)["red"][0] == ["two of them"]
    lines = [row("red", captions=["one of them"]), row("green", captions=["two of them"])]
    assert update_index(address, changes=lines, quiet=True).unusable == 0
    now = content(address)
    assert now["green"][0] == ["two of them"] and now["red"][0] == ["one of them"]
    update_index(address, changes=[{"id": "green", "deleted": True}], quiet=True)
    assert "green" not in content(address)


def test_line_that_names_another_image_never_keeps_the_former(
    place: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, _ = place
    before = content(address)
    lost = {"red": "photos/absent.png", "green": "new/green.png"}
    lines = [row(name, year=1) | {"image": image} for name, image in lost.items()]
    # A table may name its images by a part of their paths; and features have no path.
    lines += [row("blue", year=1) | {"image": "blue.png"}, {"id": "grey", "captions": ["a"], "year": 1}]
    change = update_index(address, changes=lines)
    assert change.unusable == 2
    assert "row 3: an image is found by name or number alone, 'blue.png': " in capsys.readouterr().err
    for image, said in zip(lost.values(), change.problems, strict=True):
        assert f"image '{image}' is not in" in said
    now = content(address)
    assert {name for name in now if now[name] != before[name]} == {"blue", "grey"}
    assert now["blue"][2] == before["blue"][2] and now["grey"][2] == before["grey"][2]
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"nothing was changed: row 1: image 'photos/blue\.png' is not in .*other"):
        update_index(address, changes=[row("blue", year=2)], quiet=True, images=tmp_path / "other")
    assert content(address) == now


def test_only_changed_items_are_read(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the archive has beside the changes is neither listed, read, decoded nor embedded."""
    address, _ = place
    read, listed = list[str](), list[str]()
    plain = image_files.read_bytes
    monkeypatch.setattr(image_files, "read_bytes", lambda source, root: read.append(source) or plain(source, root))
    rows = list[int]()
    with open_store(address).reading() as view:
        plain_rows = type(view).rows

    def counted(self: Any, side: Any, **which: Any) -> Any:
        found = plain_rows(self, side, **which)
        rows.append(len(found))
        return found

    monkeypatch.setattr(type(view), "rows", counted)
    plain_list = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *words: listed.append(str(*words)) or plain_list(*words))
    change = update_index(address, changes=[row("red", year=3)], quiet=True)
    assert change.amended == 3 and not read and max(rows) <= 3
    assert not [folder for folder in listed if "photos" in folder]
