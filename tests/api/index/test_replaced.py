"""The commands of an index, while another one takes its place at a moment of them: both are whole afterwards."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import coloured_images
import numpy as np
import pytest
import replaced_index
import stored_items
from PIL import Image
from replaced_index import FolderPlace

from subtext.api.index.build import add_to_index, import_index, move_index, update_index
from subtext.api.index.maintain import compact_index, delete_from_index
from subtext.errors import DataError, SubtextError
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.verification import verify

FEW = ("red", "green", "blue", "yellow")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, an index of twelve squares at `live`, and one of four of them at `other`."""
    from subtext.api.index.build import build_index

    folder = coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other")
    (folder / "runs").mkdir()
    for name in ("run", "other"):
        (folder / name).rename(folder / "runs" / name)
    for name, chosen in (("live", coloured_images.COLOURS), ("other", FEW)):
        rows = [json.loads(line) for line in (folder / "data" / "metadata.jsonl").read_text().splitlines()]
        table = folder / "data" / f"{name}.jsonl"
        table.write_text("".join(json.dumps(row) + "\n" for row in rows if row["id"] in chosen))
        build_index(folder / name, table, run=folder / "runs" / "run", quiet=True)
    new = Image.new("RGB", (40, 40), (1, 90, 90))
    new.save(folder / "data" / "teal.png")
    row = {"file_name": "teal.png", "id": "teal", "captions": ["a teal square"], "split": "train"}
    (folder / "data" / "more.jsonl").write_text(json.dumps(row) + "\n")
    return folder


VERBS: dict[str, Callable[[str, Path], object]] = {
    "add": lambda index, made: add_to_index(index, made / "data" / "more.jsonl", quiet=True, workers=0),
    "update": lambda index, made: update_index(index, quiet=True, workers=0),
    "delete": lambda index, made: delete_from_index(index, ("red", "blue")),
    "compact": lambda index, made: compact_index(index),
    "move": lambda index, made: move_index(
        index, run=made / "runs" / "other", even_if_worse=True, quiet=True, workers=0
    ),
}


@pytest.fixture(scope="module")
def lengths(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    known: dict[str, int] = {}

    def length(verb: str) -> int:
        if verb not in known:
            shutil.copytree(made / "live", index := tmp_path_factory.mktemp("length") / "live")
            for _ in range(2):  # What is imported at the first time is not counted.
                with replaced_index.at_call(10**12, lambda: None) as calls:
                    VERBS[verb](str(index), made)
                if verb in ("delete", "move"):
                    shutil.rmtree(index)
                    shutil.copytree(made / "live", index)
            known[verb] = calls[0]
        return known[verb]

    return length


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("seed", range(10))
def test_both_indexes_are_whole_when_one_is_replaced_during_a_command(
    made: Path, tmp_path: Path, lengths: Callable[[str], int], verb: str, seed: int
) -> None:
    place = FolderPlace(tmp_path)
    for name in ("live", "other"):
        shutil.copytree(made / name, tmp_path / name)
    for index in (place.live, place.other):
        delete_from_index(index, ("green",))
    before = {"first": place.content(place.live), "other": place.content(place.other)}
    ids = {"first": {*coloured_images.COLOURS} - {"green"}, "other": {*FEW} - {"green"}}
    call, refused = random.Random(f"{seed} {verb}").randint(1, lengths(verb)), ""
    with replaced_index.at_call(call, place.swap) as calls:
        try:
            VERBS[verb](place.live, made)
        except SubtextError as problem:
            refused = str(problem)
    if calls[0] < call:
        place.swap()
    after = {"first": place.content(place.aside), "other": place.content(place.live)}
    changed = [name for name in after if after[name] != before[name]]
    assert len(changed) < 2, (call, refused)
    assert refused or changed or verb == "compact"
    assert "/proc/" not in refused
    for name, address in (("first", place.aside), ("other", place.live)):
        assert verify(address) == []
        found = stored_items.ids(Folder(address))
        if verb == "add":
            assert found - {"teal"} == ids[name]
        elif verb == "delete":
            assert found in (ids[name], ids[name] - {"red", "blue"})
        else:
            assert found == ids[name]


@pytest.mark.parametrize("groups", [np.array(["a", "b", "c"]), np.array([0.5, 1.5, 2.5]), np.arange(2)])
def test_import_of_groups_that_are_no_numbers_raises(tmp_path: Path, groups: np.ndarray) -> None:
    content = {f"{side}_ids": np.array(["a", "b", "c"]) for side in ("image", "text")}
    vectors = {f"{side}_vectors": np.eye(3, 4, dtype=np.float32) for side in ("image", "text")}
    np.savez(tmp_path / "v.npz", **content, **vectors, image_groups=groups, text_groups=np.arange(3))
    with pytest.raises(
        DataError, match=r"v\.npz needs a whole number for each id in 'image_groups', .* leave them out"
    ):
        import_index(tmp_path / "index", tmp_path / "v.npz")
    assert not (tmp_path / "index").exists()
