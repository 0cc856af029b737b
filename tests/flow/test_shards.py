"""An index in shards, as Subtext built it by Ray before, is copied into a store of today; see tests/data."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stored
from command import call

from subtext.api.index import shards as shards_module
from subtext.api.index.shards import copy_shards, read_shards
from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import changed_since
from subtext.retrieval.condition import matching, parse
from subtext.retrieval.journal import journal
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.verification import damage

DATA = Path(__file__).parents[1] / "data" / "index_in_shards.zip"
"""Three shards of 40 images and 40 texts; one image was deleted later, four images and a text were added to shards."""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    zipfile.ZipFile(DATA).extractall(tmp_path)
    return tmp_path / "index_in_shards"


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zipfile.ZipFile(DATA).read("expected.json"))
    return found


def assert_as_before(new: Store) -> None:
    """Assert that a copy answers as the index in shards did, which `expected.json` tells."""
    wanted = expected()
    with new.reading() as view:
        deleted = sorted(bytes(digest).hex() for (digest,) in view.records("deleted"))
    assert new.manifest.fingerprint == wanted["model"] and deleted == wanted["forgotten"]
    with new.reading() as view:
        for side in ("images", "texts"):
            keys = matching(view, side, [])
            for key, item, before in zip(keys, view.items(side, keys), wanted["sides"][side], strict=True):
                assert [item.id, item.path, item.captions, item.metadata] == [
                    before[name] for name in ("id", "path", "captions", "metadata")
                ]
                assert view.rows(side, keys=[int(key)])[0].content.hex() == before["content"]
                assert view.vectors(side, np.array([key]))[0].tolist() == before["vectors"]
            for count in (1, 2):
                hits = view.nearest(side, stored.vectors(range(1000, 1004), count), top=9)
                got = [[[item.id for item in view.items(side, own.keys)], own.scores.tolist()] for own in hits]
                assert got == wanted["nearest"][f"{side} {count}"]
        for condition, ids in wanted["where"].items():
            keys = matching(view, "images", [parse(condition)])
            assert [item.id for item in view.items("images", keys)] == ids, condition
        calibration = stored.calibration(new)
        assert calibration is not None and changed_since(view, calibration) == wanted["stale"]
        assert [(job.verb, job.source and job.source.get("data"), job.finished is None) for job in journal(view)] == [
            ("migrate", None, False),
            ("add", "/photos/more", False),
        ]
    assert damage(new) == []


def test_a_copy_has_the_same_items_hits_and_scores(index: Path, address_of: Callable[[str], str]) -> None:
    result = call("index", "migrate", index, address_of("new"))
    assert "43 images and 40 texts" in result.output and "s3cret" not in result.output
    assert_as_before(open_store(address_of("new")))


def test_an_interrupted_copy_is_resumed(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "BATCH", 10)
    put = shards_module._change
    blocks = []

    def interrupted(*words: Any) -> Any:
        blocks.append(put(*words))
        if len(blocks) == 4:
            raise KeyboardInterrupt
        return blocks[-1]

    monkeypatch.setattr(shards_module, "_change", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy_shards(read_shards(index), tmp_path / "new")
    assert Folder(tmp_path / "new").counts == {"images": 30, "texts": 0}
    assert_as_before(copy_shards(read_shards(index), tmp_path / "new"))
    with pytest.raises(SearchIndexError, match="is an index already"):
        copy_shards(read_shards(index), tmp_path / "new")


def test_a_copy_that_is_cut_off_at_its_end_gets_the_calibration_when_resumed(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*words: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shards_module.Calibration, "from_json", killed)
        copy_shards(read_shards(index), tmp_path / "new")
    assert_as_before(copy_shards(read_shards(index), tmp_path / "new"))


def test_opening_it_names_the_command(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SearchIndexError, match=r"subtext index migrate .*index_in_shards NEW"):
        open_store(index)
    for command in (("info", index), ("verify", index), ("delete", index, "p1"), ("compact", index)):
        assert "subtext index migrate" in call("index", *command, code=1).stderr
    with pytest.raises(SearchIndexError, match="not an index in shards"):
        read_shards(tmp_path)


def test_damage_is_noticed(index: Path) -> None:
    file = index / "shards.json"
    text = file.read_text()
    file.write_text(text.replace('"width": 8', '"width": 9'))
    with pytest.raises(SearchIndexError, match="damaged"):
        read_shards(index)
    found = json.loads(text)
    del found["shards"][0]["folder"], found["checksum"]
    file.write_text(json.dumps(found))
    with pytest.raises(SearchIndexError, match="cannot be read"):
        read_shards(index)
