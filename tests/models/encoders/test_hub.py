"""A model's name is a folder, in the cache, or asked for once: no retries, no noise, and near names."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models

from subtext.errors import RequirementError
from subtext.models.encoders import hub
from subtext.models.encoders.backbone import open_body, read_model
from subtext.models.encoders.hub import model_file, preprocessing_of, require_model
from subtext.models.encoders.language import tokeniser

pytestmark = pytest.mark.contract


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """What the network was asked for, which it refuses."""
    found: list[object] = []

    def refuse(host: object, *_: object, **__: object) -> None:
        found.append(host)
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/nowhere/at/all", "there is no such folder; give a folder"),
        ("./nowhere", "there is no such folder"),
        ("a/b/c", "there is no such folder"),
        ("resnet18", r"did you mean resnet-18"),
        ("mobilenet_v1", r"did you mean mobilenet-v1"),
        ("gruu", r"did you mean gru\?"),
        ("a b", "neither a folder nor a name that the hub could have"),
        ("", "there is no such folder"),
    ],
)
def test_invalid_hub_name_raises_without_request(asked: list[object], name: str, said: str) -> None:
    with pytest.raises(RequirementError, match=said) as caught:
        open_body(name, option="image")
    assert str(caught.value).startswith(f"image={name} needs a folder or a model of the hub") and not asked


def test_unreachable_hub_is_requested_once(
    asked: list[object], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"it waited {seconds} s to ask again"))
    with pytest.raises(RequirementError, match=r"cannot be reached; did you mean microsoft/resnet-50"):
        open_body("microsoft/resnet-5O")
    with pytest.raises(RequirementError, match=r"cannot be reached; give a folder .*, or weights=random$"):
        open_body("vit-base")
    with pytest.raises(RequirementError, match=r"cannot be reached; give a folder .*, or weights=random$"):
        open_body("resnet-50")
    with pytest.raises(RequirementError, match="cannot be reached"):
        model_file("someone/something", "preprocessor_config.json")
    assert 4 <= len(asked) < 8
    assert capfd.readouterr().err == ""


def test_cached_model_needs_no_request(asked: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda source, path: str(tmp_path / path))
    assert read_model("someone/something", lambda source, local: (source, local), files=["config.json"]) == (
        "someone/something",
        True,
    )
    assert model_file("someone/something", "preprocessor_config.json") == tmp_path / "preprocessor_config.json"
    assert not asked


def test_incomplete_cache_falls_back_to_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[bool] = []

    def read(source: str, local: bool) -> str:
        tried.append(local)
        if local:
            raise OSError("model.safetensors is not in the cache")
        return source

    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda source, path: str(tmp_path / path))
    monkeypatch.setattr(hub, "_ask", lambda source: None)
    assert read_model("someone/something", read, files=["config.json"]) == "someone/something"
    assert tried == [True, False]


def test_failed_hub_name_is_requested_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    class Session:
        def head(self, url: str, **_: object) -> None:
            asked.append(url)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "get_session", Session)
    monkeypatch.setattr(hub, "hf_raise_for_status", lambda response: None)
    for _ in range(2):
        require_model("someone/answered")
    assert len(asked) == 1 and "someone/answered" in asked[0]


@pytest.mark.parametrize("name", ["tiny", "starter", "open_clip:ViT-B-32/openai", "."])
def test_names_outside_the_hub_need_no_request(asked: list[object], name: str) -> None:
    require_model(name)
    assert not asked


def without_torch(code: str, tmp_path: Path, endpoint: str, *words: object) -> subprocess.CompletedProcess[str]:
    """What a process ends with that may not import torch, and whose hub is at that address."""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": endpoint}
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['torch'] = None\n{code}", *map(str, words)],
        capture_output=True, text=True, check=False, env=environment, timeout=60,
    )  # fmt: skip


def silent(use: Callable[[str], None]) -> int:
    """Connections to a host that accepts them and never answers, while `use` has its address."""
    with socket.create_server(("127.0.0.1", 0)) as host:
        use(f"http://127.0.0.1:{host.getsockname()[1]}")
        host.setblocking(False)
        number = 0
        while True:
            try:
                host.accept()[0].close()
            except BlockingIOError:
                return number
            number += 1


NOWHERE = "http://127.0.0.1:9"
"""A closed port."""
MODEL = "google/siglip2-base-patch16-224"


def test_missing_model_raises_before_torch_import(tmp_path: Path) -> None:
    code = f"from subtext.models.encoders.hub import require_model; require_model({MODEL!r})"
    ended = without_torch(code, tmp_path, NOWHERE)
    assert f"RequirementError: model={MODEL} needs a folder or a model of the hub; it is no folder" in ended.stderr


def test_silent_hub_times_out_after_one_request(tmp_path: Path) -> None:
    # One connection, whose time limit is ours: the library's own requests have none, or retries.
    code = f"from subtext.models.encoders.hub import require_model; require_model({MODEL!r})"

    def use(address: str) -> None:
        assert "the hub cannot be reached" in without_torch(code, tmp_path, address).stderr

    assert silent(use) == 1 and hub.SECONDS <= 3


@pytest.mark.parametrize(
    "words",
    [
        ["index", "build", "{}/new", "{}"],
        ["embed", "--data", "{}", "--out", "{}/vectors.npz"],
        ["score", "{}"],
        ["curate", "{}", "--out", "{}/curated"],
        ["evaluate", "--data", "{}"],
        ["audit", "--data", "{}"],
        ["train", "adapt", "--data", "{}", "--out", "{}/run"],
        ["index", "move", "{}/library"],
        ["serve", "{}/library"],
    ],
    ids=lambda words: " ".join(word for word in words if word.isalpha()),
)
def test_commands_reject_missing_model_before_torch_import(tmp_path: Path, words: list[str]) -> None:
    arguments = [word.format(tmp_path) for word in words]
    ended = without_torch("from subtext.cli import main; main()", tmp_path, NOWHERE, *arguments, "--model", MODEL)
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.startswith(f"error: --model {MODEL} needs a folder or a model of the hub; it is no folder here")
    assert ended.stderr.endswith("; or --model starter, which is installed and needs no network\n")
    assert ended.stderr.count("\n") == 1


def test_folder_without_tokeniser_raises(tmp_path: Path) -> None:
    folder = tiny_models.bert(tmp_path)
    assert len(tokeniser(str(folder))) > 10
    for path in folder.glob("token*"):
        path.unlink()
    with pytest.raises(RequirementError, match="the one there has no vocabulary; give a folder that holds both"):
        tokeniser(str(folder))


def test_unreadable_model_folder_raises_with_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{ no json")
    with pytest.raises(
        RequirementError, match=rf"^image={tmp_path} needs config.json and model.safetensors to be read"
    ):
        open_body(str(tmp_path), option="image")


@pytest.mark.parametrize("kept", [0, 4, 200])
def test_truncated_weights_raise(tmp_path: Path, kept: int) -> None:
    folder = tiny_models.bert(tmp_path / "bert")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(
        RequirementError, match=r"^text=.* needs config.json and model.safetensors to be read; .*header"
    ):
        open_body(str(folder), option="text")


def test_invalid_configuration_values_raise(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "resnet", "depths": "many"}')
    with pytest.raises(RequirementError, match=rf"^image={tmp_path} needs config.json to be read; .*depths"):
        open_body(str(tmp_path), weights="random", option="image")


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "\udcff", '{"size": null}', '{"size": 0}', '{"size": true}', '{"size": 8, "crop_pct": "much"}'),
        *(f'{{"size": 8, "image_{name}": {bad}}}' for name in ("mean", "std") for bad in ("null", "0.5", '"abc"')),
        '{"size": 8, "image_std": [1, 1]}',
    ],
)
def test_unreadable_preprocessor_config_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "preprocessor_config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RequirementError, match=r"^image=.* needs .*preprocessor_config.json"):
        preprocessing_of(str(tmp_path), option="image")
