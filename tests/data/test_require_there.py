"""A file that is not there is named at once: before torch is imported, and before a model is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import subtext as st
from subtext.errors import DataError

CALLS = {
    "train": "st.train('dual', data='none.jsonl', out='run')",
    "features": "st.train('dual', data=st.DataConfig('there.jsonl', features='none.npz'), out='run')",
    "evaluate": "st.evaluate('starter', 'none.jsonl')",
    "build_index": "st.build_index('index', 'none.jsonl', model='starter')",
    "curate": "st.curate('none.jsonl', model='starter', out='curated')",
    "embed": "st.embed(model='starter', data='none.jsonl')",
    "score": "st.score('none.jsonl', model='starter')",
}
SCRIPT = f"""
import sys
import subtext as st
for name, call in {CALLS!r}.items():
    try:
        eval(call)
    except st.DataError as error:
        print(name, "torch" in sys.modules, error)
"""


def test_missing_files_are_named_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_text('{"image": "a.png", "captions": ["a"]}\n')
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    said = {name: rest for name, _, rest in (line.partition(" ") for line in done.stdout.splitlines())}
    assert said.keys() == CALLS.keys()
    for name, words in said.items():
        assert words.startswith("False ") and words.endswith("does not exist"), (name, words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.jsonl"], "nothing was begun"


def test_patterns_and_addresses_that_a_reader_knows_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = st.DataConfig("made:rows")
    with pytest.raises(DataError, match="made:rows does not exist"):
        config.require_there()
    monkeypatch.setattr("subtext.data.readers.readers", lambda: [Made])
    assert config.require_there() is config


class Made:
    """A reader of addresses."""

    @staticmethod
    def recognises(path: Path) -> bool:
        return str(path).startswith("made:")
