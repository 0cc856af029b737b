"""The tools of `subtext mcp`, called by the client of the SDK: in memory, and over standard input and output."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import served_index
from PIL import Image

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters

from subtext.errors import SubtextError
from subtext.server.state import ServerState
from subtext.server.tools import tool_server


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_index.made(tmp_path_factory.mktemp("tools"), "colours")[0]


def ask(server: Any, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(server) as client:
            return await work(client)

    return asyncio.run(run())


def called(server: Any, name: str, **arguments: Any) -> Any:
    """What a tool returns: its structured content, its image, or the sentence of its error."""
    result = ask(server, lambda client: client.call_tool(name, arguments))
    if result.is_error:
        return result.content[0].text
    return result.structured_content or result.content[0]


@contextmanager
def tools(library: Path, *where: str, **changes: Any) -> Iterator[Any]:
    state = ServerState(served_index.settings(library, log="", where=where, **changes))
    try:
        yield tool_server(state)
    finally:
        state.close()


@pytest.fixture(scope="module")
def server(library: Path) -> Iterator[Any]:
    with tools(library) as found:
        yield found


def test_tools_are_read_only_and_described(server: Any) -> None:
    tools = ask(server, lambda client: client.list_tools()).tools
    assert [tool.name for tool in tools] == ["search", "similar", "details", "facets", "thumbnail"]
    for tool in tools:
        assert tool.annotations.read_only_hint and not tool.annotations.destructive_hint
        assert tool.description and "library" in tool.input_schema["properties"]


def test_tools_give_what_the_server_gives(server: Any, library: Path) -> None:
    with served_index.client(library) as http:
        words = {"q": "a blue square", "top": 5, "where": "place < 8"}
        found = called(server, "search", query="a blue square", top=5, where=["place < 8"])
        assert found["hits"] and found["hits"] == http.get("/search", params=words).json()["hits"]
        near = called(server, "similar", id="cyan", top=4)
        assert near["hits"] == http.get("/similar", params={"id": "cyan", "side": "images", "top": 4}).json()["hits"]
        detail = called(server, "details", id="cyan")
        assert detail == http.get("/item", params={"id": "cyan"}).json() and detail["texts"]
        assert called(server, "facets")["fields"] == http.get("/fields").json()["fields"]
    image = called(server, "thumbnail", id="cyan", size=96)
    assert image.mime_type == "image/webp"
    assert max(Image.open(io.BytesIO(base64.b64decode(image.data))).size) <= 96


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("search", {}, "words (q) are needed"),
        ("search", {"query": " "}, "only spaces"),
        ("search", {"query": "a", "top": 100000}, "top"),
        ("search", {"query": "a", "where": ["nothing = 1"]}, "nothing"),
        ("search", {"query": "a", "library": "other"}, "there is no such library here; there are colours"),
        ("similar", {"id": "gone"}, "there is no such item among the images"),
        ("details", {"id": "gone"}, "there is no such item among the images"),
        ("thumbnail", {"id": "gone"}, "no"),
        ("thumbnail", {"id": "cyan", "size": 3}, "size"),
    ],
)
def test_tools_refuse_in_one_sentence(server: Any, name: str, arguments: dict[str, Any], sentence: str) -> None:
    text = called(server, name, **arguments)
    assert isinstance(text, str) and sentence in text and "Traceback" not in text


@pytest.fixture(scope="module")
def scoped(library: Path) -> Iterator[Any]:
    with tools(library, "place < 3") as found:
        yield found


def test_tools_with_a_condition_show_no_other_item_in_every_route(server: Any, scoped: Any, library: Path) -> None:
    everything = called(server, "search", query="a square", top=50)["hits"]
    offered = {hit["id"] for hit in everything if hit["metadata"]["place"] < 3}
    hidden = {hit["id"] for hit in everything} - offered
    assert offered and hidden
    for target in ("images", "texts"):
        hits = called(scoped, "search", query="a square", top=50, target=target)["hits"]
        near = called(scoped, "similar", id=min(offered), top=50, target=target)["hits"]
        shown = json.dumps([hits, near])
        assert not [name for name in hidden if f'"{name}"' in shown]
    facets = {field["name"]: field for field in called(scoped, "facets")["fields"]}
    assert facets["place"]["high"] < 3
    gone = min(hidden)
    for name, arguments in (
        ("similar", {"id": gone}),
        ("details", {"id": gone}),
        ("thumbnail", {"id": gone}),
        ("search", {"like": [gone]}),
    ):
        unknown = json.loads(json.dumps(arguments).replace(gone, "gone"))
        said = called(scoped, name, **arguments)
        assert isinstance(said, str) and said == called(scoped, name, **unknown).replace("'gone'", f"'{gone}'")
    assert called(scoped, "details", id=min(offered))["item"]["id"] == min(offered)
    with pytest.raises(SubtextError, match="nothing"), tools(library, "nothing = 1"):
        pass


def test_tools_have_the_rate_of_the_server(library: Path) -> None:
    with tools(library, limits={"rate": 0.01, "burst": 2}) as slow:
        answers = [called(slow, "facets") for _ in range(3)]
    assert isinstance(answers[1], dict) and "too many calls; wait" in answers[2]


def test_tools_answer_over_standard_input_and_output(library: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "subtext", "mcp", str(library), "--where", "place < 8", "--device", "cpu"],
        env=dict(os.environ),
    )

    async def work(client: Client) -> Any:
        hits = (await client.call_tool("search", {"query": "a blue square"})).structured_content["hits"]
        return hits, (await client.call_tool("details", {"id": hits[0]["id"]})).structured_content

    hits, detail = ask(command, work)
    assert hits and detail["item"]["id"] == hits[0]["id"] and all(hit["metadata"]["place"] < 8 for hit in hits)
