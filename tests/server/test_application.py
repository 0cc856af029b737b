"""The server: what it answers, who may change what, and what is left of what was deleted."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import served_index
from command import call
from PIL import Image
from pydantic import TypeAdapter

from subtext.api.search import open_index, search
from subtext.errors import RequirementError
from subtext.retrieval.condition import parse
from subtext.retrieval.index import Query
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Item
from subtext.retrieval.verification import verify
from subtext.server import schemas, security
from subtext.server.application import build
from subtext.server.images import Upload, add_uploads
from subtext.server.monitoring import Metrics
from subtext.server.refusal import Refusal
from subtext.server.settings import Settings
from subtext.server.state import Batcher


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    served_index.made(folder, "library", "other")
    return folder


@pytest.fixture(scope="module")
def client(place: Path):
    with served_index.client(place / "library", place / "other") as found:
        yield found


@pytest.fixture
def fresh(place: Path, tmp_path: Path) -> Path:
    """An index of its own, to be changed."""
    call("index", "restore", place / "library", tmp_path / "library")
    return tmp_path / "library"


def test_text_search_equals_index_search(place: Path, client) -> None:
    engine = open_index(place / "library")
    hits = engine.search("a blue square", top=5, where=[parse("place < 8")])
    got = client.get("/search", params={"q": "a blue square", "top": 5, "where": "place < 8"}).json()
    assert [hit["id"] for hit in got["hits"]] == [hit.id for hit in hits]
    assert [hit["score"] for hit in got["hits"]] == pytest.approx([hit.score for hit in hits], abs=1e-6)
    assert got["hits"][0]["captions"] == hits[0].captions and got["hits"][0]["file"] == f"{hits[0].id}.png"
    typed = json.dumps({"field": "place", "test": "<", "value": 8})
    assert client.get("/search", params={"q": "a blue square", "top": 5, "where": typed}).json() == got
    assert str(place) not in json.dumps(got)


def test_a_second_model_reranks_where_a_request_says_so(place: Path, client) -> None:
    """An untrained run of another seed: its order is not the first model's."""
    second = place / "run-other"
    asked = {"q": "a blue square", "top": 4, "rerank": True}
    wanted = search(place / "library", "a blue square", top=4, rerank=second, device="cpu")
    body = (place / "data" / "red.png").read_bytes()
    of_image = search(
        place / "library", image=place / "data" / "red.png", target="texts", top=4, rerank=second, device="cpu"
    )
    with served_index.client(place / "library", rerank=str(second)) as own:
        got = own.get("/search", params=asked).json()
        params = {"target": "texts", "top": 4, "rerank": True}
        texts = own.post("/search", params=params, content=body, headers={"Content-Type": "image/png"}).json()
        plain = own.get("/search", params=asked | {"rerank": False}).json()
        both = own.get("/search", params=asked | {"not_like": "red"})
    assert got["unit"] == "score" and plain["unit"] == "evidence"
    assert [(hit["id"], hit["score"]) for hit in got["hits"]] == [
        (hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in wanted.hits
    ]
    assert [hit["id"] for hit in texts["hits"]] == [hit.id for hit in of_image.hits]
    assert both.status_code == 422 and "text alone or image alone" in both.text
    refused = client.get("/search", params=asked)
    assert refused.status_code == 422 and "this server has none; start it with --rerank RUN" in refused.text


def test_combined_query_returns_reasons(place: Path, client) -> None:
    engine = open_index(place / "library")
    params = {"q": "a blue square", "not_like": "red", "top": 5, "explain": True, "diversity": 0.3}
    got = client.get("/search", params=params).json()
    wanted = engine.search("a blue square", not_like=["red"], top=5, diversity=0.3, explain=True)
    assert [hit["id"] for hit in got["hits"]] == [hit.id for hit in wanted.hits] and got["unit"] == "evidence"
    assert got["hits"][0]["reasons"][0]["text"] == wanted.hits[0].reasons[0].text
    assert "%" in got["hits"][0]["why"] and not got["approximate"]
    data = (place / "data" / "purple.png").read_bytes()
    both = client.post(
        "/search", params={"q": "a blue square", "top": 3}, content=data, headers={"Content-Type": "image/png"}
    )
    hits = engine.search("a blue square", image=data, top=3)
    assert [hit["id"] for hit in both.json()["hits"]] == [hit.id for hit in hits]
    refused = client.get("/search", params={"q": "red", "min_probability": 0.5})
    assert refused.status_code == 422 and "calibrate" in refused.json()["error"]


def test_zero_weight_parts_are_ignored(place: Path, client) -> None:
    data = (place / "data" / "purple.png").read_bytes()

    def asked(**params: object) -> dict[str, object]:
        return client.post("/search", params=params, content=data, headers={"Content-Type": "image/png"}).json()

    words = client.get("/search", params={"q": "a blue square", "top": 12}).json()
    assert asked(q="a blue square", image_weight=0, top=12) == words
    alone = asked(q="qqqq", image_weight=1, top=12)
    assert alone["hits"] == asked(top=12)["hits"] and alone["message"] is None and alone["unit"] == "cosine"
    mixed = asked(q="qqqq", top=12)
    assert mixed["fits"] is None and "they add nothing" in mixed["message"]


def test_example_items_combine_with_text(place: Path, client) -> None:
    engine = open_index(place / "library")
    for given, query in (
        ({"q": "a blue square", "like": "red"}, Query(text="a blue square", like=["red"], top=12)),
        (
            {"q": "a blue square", "like": "red", "image_weight": 0.8},
            Query(text="a blue square", like=["red"], image_weight=0.8, top=12),
        ),
        ({"like": "red", "not_like": "pink"}, Query(like=["red"], not_like=["pink"], top=12)),
    ):
        got = client.get("/search", params={**given, "top": 12}).json()
        hits = engine.answer(query).hits
        assert [hit["id"] for hit in got["hits"]] == [hit.id for hit in hits]
        assert got["unit"] == ("evidence" if "q" in given else "deviations")
    near = client.get("/similar", params={"id": "red", "top": 11}).json()
    assert client.get("/search", params={"like": "red", "top": 11}).json()["hits"] == near["hits"]
    refused = client.get("/search", params={"not_like": "red"})
    assert refused.status_code == 422 and "there is neither" in refused.json()["error"]


def test_unknown_words_are_reported(client) -> None:
    some = client.get("/search", params={"q": "a blue qqqq"}).json()
    none = client.get("/search", params={"q": "qqqq zzzz"}).json()
    assert some["unknown_words"] == ["qqqq"] and some["fits"] is None and "qqqq" in some["message"]
    assert none["fits"] is False and none["hits"]
    empty = client.get("/search", params={"q": "a blue square", "where": "place > 99"}).json()
    assert empty["fits"] is False and empty["hits"] == []


def test_truncated_query_is_reported(fresh: Path) -> None:
    long, told = "a blue square " * 30, "longer than the 64 tokens that the model takes"
    with served_index.client(fresh) as client:
        for _ in range(2):
            answer = client.get("/search", params={"q": long, "top": 2}).json()
            assert answer["message"].startswith("1 text of 1 is longer") and told in answer["message"]
        assert answer["hits"] and answer["fits"] is None
        assert told in client.get("/search", params={"q": "red", "not_text": long}).json()["message"]
        assert told in client.post("/score", json={"q": long, "ids": ["red"]}).json()["message"]
        items = {"items": [served_index.item("teal", None, "a teal square", long)]}
        assert told in client.post("/add", json=items, headers=served_index.WRITES).json()["note"]
        short = "a blue square " * 20
        assert client.get("/search", params={"q": short}).json()["message"] is None
        assert client.post("/score", json={"q": short, "ids": ["red"]}).json()["message"] is None


def test_image_finds_itself_and_is_not_stored(place: Path, client) -> None:
    client.get("/libraries")  # The first request begins the log.
    before = sorted(file.name for file in (place / "library").rglob("*"))
    data = (place / "data" / "purple.png").read_bytes()
    got = client.post("/search?top=2", content=data, headers={"Content-Type": "image/png"}).json()
    assert got["hits"][0]["id"] == "purple" and got["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert sorted(file.name for file in (place / "library").rglob("*")) == before


def test_item_returns_neighbours_of_both_modalities(client) -> None:
    shown = client.get("/item", params={"id": "cyan"}).json()
    assert [text["text"] for text in shown["texts"]] == ["a cyan square", "ein Quadrat, cyan"]
    near = client.get("/similar", params={"id": "cyan", "top": 3}).json()["hits"]
    assert len(near) == 3 and "cyan" not in [hit["id"] for hit in near]
    texts = client.get("/similar", params={"id": "cyan", "target": "texts", "top": 24}).json()["hits"]
    scores = {hit["id"]: hit["score"] for hit in texts}
    assert len(scores) == 24
    assert [text["score"] for text in shown["texts"]] == pytest.approx(
        [scores[text["id"]] for text in shown["texts"]], abs=1e-5
    )
    text = client.get("/item", params={"id": shown["texts"][0]["id"], "target": "texts"}).json()
    assert [one["id"] for one in text["images"]] == ["cyan"]
    assert text["images"][0]["score"] == pytest.approx(shown["texts"][0]["score"], abs=1e-6)
    scored = client.post("/score", json={"q": "a cyan square", "ids": ["cyan", "red"]}).json()["pairs"]
    found = client.get("/search", params={"q": "a cyan square", "top": 12, "signals": "pixels"}).json()["hits"]
    assert scored[0]["score"] == pytest.approx(next(h["score"] for h in found if h["id"] == "cyan"), abs=1e-5)


def test_pages_have_each_item_once_while_items_change(place: Path, fresh: Path) -> None:
    """Items are deleted from pages that were read and from the next one, and others are added."""
    with served_index.client(fresh) as client:
        every = [one["id"] for one in client.get("/items").json()["items"]]
        assert client.get("/items").json()["next"] is None
        page = client.get("/items?top=4").json()
        read = [one["id"] for one in page["items"]]
        for gone, new in ((every[0], "new0"), (every[5], "new1"), (every[3], "new2")):
            assert client.post("/delete", json={"ids": [gone]}, headers=served_index.WRITES).status_code == 200
            added = {"items": [served_index.item(new)]}
            assert client.post("/add", json=added, headers=served_index.WRITES).status_code == 201
            page = client.get(f"/items?top=3&{page['next']}").json()
            read += [one["id"] for one in page["items"]]
        while page["next"]:
            page = client.get(f"/items?top=2&{page['next']}").json()
            read += [one["id"] for one in page["items"]]
        stayed = set(every) - {every[0], every[3], every[5]}
        assert len(read) == len(set(read)) and stayed | {"new0", "new1", "new2"} <= set(read)
        # A page of another index, such as one of before a move to another model, is refused.
        begun = client.get("/items?top=4").json()["next"]
        with served_index.client(place / "other") as other:
            answer = other.get(f"/items?top=4&{begun}")
            assert answer.status_code == 409 and "begin with the first page" in answer.json()["error"]


def test_items_are_paged_with_fields_and_libraries(client) -> None:
    page = client.get("/items", params={"top": 10}).json()
    page = client.get(f"/items?top=5&{page['next']}").json()
    assert page["total"] == 12 and [one["id"] for one in page["items"]] == ["pink", "cyan"] and page["next"] is None
    chosen = client.get("/items", params={"where": "split = test"}).json()
    assert chosen["total"] == 2 and {one["id"] for one in chosen["items"]} == {"pink", "cyan"}
    fields = {one["name"]: one for one in client.get("/fields").json()["fields"]}
    assert fields["place"]["kind"] == "number" and (fields["place"]["low"], fields["place"]["high"]) == (0, 11)
    assert fields["split"]["values"][0] == ["train", 8]
    found = client.get("/libraries").json()
    assert [one["name"] for one in found["libraries"]] == ["library", "other"] and found["writable"]
    both = [client.get("/search", params={"q": "a red square", "index": name}).json() for name in ("library", "other")]
    assert both[0]["hits"] != both[1]["hits"] and both[1]["index"] == "other"
    assert client.get("/search", params={"q": "red", "index": "third"}).status_code == 404


def test_thumbnails_are_small_and_re_encoded(place: Path, client) -> None:
    answer = client.get("/thumbnail", params={"id": "red", "size": 96})
    assert answer.headers["content-type"] == "image/webp"
    assert answer.content != (place / "data" / "red.png").read_bytes()
    again = client.get(
        "/thumbnail", params={"id": "red", "size": 96}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304 and again.content == b""
    assert len(list((place / "library" / "cache").rglob("*.webp"))) == 1
    assert client.get("/thumbnail", params={"id": "red", "size": 97}).status_code == 422
    assert client.get("/thumbnail", params={"id": "nobody"}).status_code == 404


def test_metrics_in_prometheus_format(place: Path, tmp_path: Path) -> None:
    with served_index.client(place / "library") as own:
        for _ in range(3):
            own.get("/search", params={"q": "a green square"})
        own.get("/nowhere")
        text = own.get("/metrics").text
    assert 'subtext_http_requests_total{method="GET",route="/search",status="200"} 3.0' in text
    assert 'subtext_http_requests_total{method="GET",route="other",status="404"} 1.0' in text
    assert "subtext_cache_hits_total 2.0" in text and "subtext_cache_misses_total 1.0" in text
    assert 'subtext_items{library="library",side="images"} 12.0' in text
    assert "process_resident_memory_bytes" in text


def test_concurrent_queries_are_batched(place: Path) -> None:
    engine, metrics = open_index(place / "library"), Metrics()
    gate = threading.Event()
    batcher = Batcher(lambda: engine, cached_hits=0, seconds=60, metrics=metrics)
    words = [f"a {name} square" for name in ("red", "blue", "green", "black")]
    wanted = [[hit.id for hit in engine.search(text, top=4)] for text in words]
    blocked = batcher._thread.submit(gate.wait)
    with ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(batcher.answer, Query(text=text, top=4)) for text in words]
        bad = clients.submit(batcher.answer, Query(text="red", where=("colour = 1",)))
        until = time.monotonic() + 30
        while len(batcher._queue) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        gate.set()
        assert [[hit.id for hit in one.result().hits] for one in asked] == wanted
        with pytest.raises(RequirementError, match="colour"):
            bad.result()
    assert blocked.result() and "subtext_batches_total 1.0\n" in metrics.text({})
    batcher.close()


def test_client_that_asks_much_delays_itself(place: Path) -> None:
    engine = open_index(place / "library")
    batcher = Batcher(lambda: engine, cached_hits=0, seconds=60, metrics=Metrics())
    order: list[str] = []
    gate = threading.Event()
    blocked = batcher._thread.submit(gate.wait)
    with ThreadPoolExecutor(9) as clients:
        for number, client in enumerate("aaaab"):
            clients.submit(batcher.run, lambda _, client=client: order.append(client), client=client)
            until = time.monotonic() + 30
            while len(batcher._queue) <= number and time.monotonic() < until:
                time.sleep(0.01)
        gate.set()
    assert blocked.result() and order == ["a", "b", "a", "a", "a"]
    batcher.close()


def test_long_wait_returns_503_with_retry_after(place: Path) -> None:
    engine = open_index(place / "library")
    batcher = Batcher(lambda: engine, cached_hits=10, seconds=0.05, metrics=Metrics())
    gate = threading.Event()
    batcher._thread.submit(gate.wait)
    with pytest.raises(Refusal, match="busy") as refused:
        batcher.answer(Query(text="red"))
    assert refused.value.status == 503 and refused.value.headers["Retry-After"] == "1"
    gate.set()
    batcher.close()


def test_overload_returns_503_and_rate_limit_429(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_index.client(place / "library", limits={"max_requests": 0}) as own:
        answer = own.get("/search", params={"q": "red"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert own.get("/healthz").status_code == 200
    # By a clock that stands: two answers may take longer than a second.
    monkeypatch.setattr(security, "RateLimit", partial(security.RateLimit, clock=lambda: 0.0))
    with served_index.client(place / "library", limits={"rate": 0.5, "burst": 2}) as own:
        codes = [own.get("/search", params={"q": "red"}) for _ in range(3)]
        assert [one.status_code for one in codes] == [200, 200, 429] and codes[2].headers["retry-after"] == "2"


def test_added_and_deleted_items_leave_consistent_index(fresh: Path) -> None:
    with served_index.client(fresh) as own:
        before = own.get("/search", params={"q": "a teal square", "top": 50}).json()
        body = {
            "items": [
                served_index.item("teal", served_index.picture((0, 128, 128)), "a teal square", "calm", year=1999)
            ]
        }
        answer = own.post("/add", json=body, headers=served_index.WRITES)
        assert answer.status_code == 201, answer.text
        assert answer.json()["image_count"] == 1 and answer.json()["text_count"] == 2
        after = own.get("/search", params={"q": "a teal square", "top": 50}).json()
        assert len(after["hits"]) == len(before["hits"]) + 1, "an answer that was kept is not given any more"
        hit = next(hit for hit in after["hits"] if hit["id"] == "teal")
        assert hit["captions"] == ["a teal square", "calm"] and hit["metadata"]["year"] == 1999
        assert own.get("/thumbnail", params={"id": "teal"}).status_code == 200
        assert own.get("/item", params={"id": "teal"}).status_code == 200
        assert own.post("/add", json=body, headers=served_index.WRITES).status_code == 409
        assert '"teal"' in _logged(fresh) and "a teal square" not in _logged(fresh)
        assert list((fresh / "cache").rglob("*.webp")) and list((fresh / "added").glob("*.png"))
        gone = own.post("/delete", json={"ids": ["teal"]}, headers=served_index.WRITES)
        assert gone.json()["image_count"] == 1 and gone.json()["text_count"] == 2
        assert own.get("/search", params={"q": "a teal square", "top": 50}).json()["hits"] == before["hits"]
        assert own.get("/thumbnail", params={"id": "teal"}).status_code == 404
        assert own.get("/item", params={"id": "teal"}).status_code == 404
        assert own.get("/items", params={"where": "text contains calm"}).json()["total"] == 0
        assert '"teal"' not in _logged(fresh)
        own.get("/item", params={"id": "red"})
        assert '"red"' in _logged(fresh), "the log goes on after it was replaced"
    assert not list((fresh / "cache").rglob("*.webp")) and not list((fresh / "added").glob("*.png"))
    assert (fresh / "added" / "metadata.jsonl").read_text() == ""
    assert verify(fresh) == []


def test_unicode_line_separators_in_ids_and_queries(fresh: Path) -> None:
    name = "te\u2029a\u2028l"
    with served_index.client(fresh) as own:
        assert (
            own.post("/add", json={"items": [served_index.item(name)]}, headers=served_index.WRITES).status_code == 201
        )
        assert own.get("/item", params={"id": name}).status_code == 200
        assert (
            own.post("/add", json={"items": [served_index.item("gold")]}, headers=served_index.WRITES).status_code
            == 201
        )
        assert own.post("/delete", json={"ids": [name]}, headers=served_index.WRITES).status_code == 200
        assert "te\u2029a" not in _logged(fresh)
    rows = (fresh / "added" / "metadata.jsonl").read_text().split("\n")
    assert [json.loads(row)["id"] for row in rows if row] == ["gold"]


def test_unknown_parameters_return_422(place: Path, client) -> None:
    answer = client.get("/thumbnail", params={"id": "red", "sise": 96})
    assert answer.status_code == 422 and answer.json()["error"] == "'sise' is not accepted here"
    for path in ("/search?q=red&tpo=3", "/items?targets=texts", "/item?id=red&x=1", "/fields?to=1", "/healthz?x=1"):
        assert "is not accepted here" in client.get(path).json()["error"]
    assert client.post("/delete?dry=1", json={"ids": ["red"]}, headers=served_index.WRITES).status_code == 422


def test_openapi_marks_routes_that_need_token(place: Path, client) -> None:
    def needing(own) -> set[str]:
        paths = own.get("/openapi.json").json()["paths"]
        return {path for path, operations in paths.items() for one in operations.values() if "security" in one}

    assert needing(client) == {"/add", "/delete", "/lists", "/lists/{link}"}
    with served_index.client(place / "library", read_token=served_index.READ_TOKEN) as own:
        own.headers["Authorization"] = f"Bearer {served_index.READ_TOKEN}"
        assert needing(own) == set(own.get("/openapi.json").json()["paths"]) - {"/healthz", "/readyz"}


def test_update_keeps_items_added_by_server(fresh: Path) -> None:
    with served_index.client(fresh) as own:
        own.post(
            "/add", json={"items": [served_index.item("teal"), served_index.item("gold")]}, headers=served_index.WRITES
        )
    told = call("index", "update", fresh, "--quiet").stdout
    assert "deleted" not in told and Folder(fresh).counts == {"images": 14, "texts": 26}
    call("index", "delete", fresh, "gold")
    assert [json.loads(line)["id"] for line in (fresh / "added" / "metadata.jsonl").read_text().splitlines()] == [
        "teal"
    ]
    assert len(list((fresh / "added").glob("*.png"))) == 1


def test_failed_addition_leaves_no_file(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_index(fresh)
    from subtext.server import images

    def fail(*_: object, **__: object) -> None:
        raise RequirementError("no")

    monkeypatch.setattr(images, "ingest", fail)
    with pytest.raises(RequirementError):
        add_uploads(engine, [Upload("teal", served_index.picture(), ".png", ("a teal square",))])
    assert engine.store.counts["images"] == 12
    assert [file.name for file in (fresh / "added").iterdir()] == ["metadata.jsonl"]


def test_lock_of_another_writer_returns_503_after_waiting(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subtext.server import images

    monkeypatch.setattr(images, "LOCK_SECONDS", 0.1)
    with served_index.client(fresh) as own, Folder(fresh).writing("add"):
        answer = own.post("/delete", json={"ids": ["red"]}, headers=served_index.WRITES)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
        assert own.get("/search", params={"q": "red"}).status_code == 200, "readers go on"


def test_token_rights(place: Path) -> None:
    body = {"ids": ["nobody"]}
    with served_index.client(place / "library", token="") as own:
        assert own.post("/delete", json=body, headers=served_index.WRITES).status_code == 403
    with served_index.client(place / "library", read_token=served_index.READ_TOKEN) as own:
        reads = {"Authorization": f"Bearer {served_index.READ_TOKEN}"}
        assert own.get("/search", params={"q": "red"}).status_code == 401
        assert own.get("/thumbnail", params={"id": "red"}).status_code == 401
        for path in ("/", "/page/app.js"):
            assert own.get(path).status_code == 200, "the page itself asks for the token"
        for path in ("/healthz", "/readyz"):
            answer = own.get(path)
            assert answer.status_code == 200 and "library" not in answer.text, "who watches over the server needs none"
        for path in ("/openapi.json", "/docs", "/nowhere", "/search", "/search?tpo=3", "/items?offset=-1", "/metrics"):
            assert own.get(path).status_code == 401, path
        for path, kind in (("/score", "application/json"), ("/search", "image/png"), ("/delete", "application/json")):
            assert own.post(path, content=b"{", headers={"Content-Type": kind}).status_code == 401, path
        for headers in (reads, served_index.WRITES):
            assert own.get("/search", params={"q": "red"}, headers=headers).status_code == 200
        assert own.post("/delete", json=body, headers=reads).status_code == 401
        wrong = own.post("/delete", json=body, headers={"Authorization": "Bearer nothing"})
        assert wrong.status_code == 401 and wrong.headers["www-authenticate"] == "Bearer"
        assert own.post("/delete", json=body, headers=served_index.WRITES).status_code == 404


def test_image_outside_collection_is_not_served(place: Path, tmp_path: Path) -> None:
    """Neither one that a path leads to, nor one that a link leads to, even one named as a part of a file is."""
    data = tmp_path / "data"
    data.mkdir()
    # A file of its own each: one file is one item.
    outside = {name: tmp_path / f"{name}.png" for name in ("link", "far", "up", "part")}
    for number, file in enumerate(outside.values()):
        file.write_bytes(served_index.picture((number, 9, 9)))
    (data / "link.png").symlink_to(outside["link"])
    (data / "own.png").write_bytes(served_index.picture((1, 2, 3)))
    part = f"own.png?offset=0&size={outside['part'].stat().st_size}"
    (data / part).symlink_to(outside["part"])
    rows = [("own", "own.png"), ("link", "link.png"), ("far", str(outside["far"])), ("up", "../up.png")]
    rows.append(("part", part))
    lines = [json.dumps({"image": path, "id": name, "caption": name, "split": "train"}) for name, path in rows]
    (data / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    index = tmp_path / "index"
    call("index", "build", index, "--run", place / "run-library", "--data", data / "pairs.jsonl", "--quiet")
    with served_index.client(index) as own:
        codes = {name: own.get("/thumbnail", params={"id": name}).status_code for name, _ in rows}
        assert codes == {"own": 200, "link": 404, "far": 404, "up": 404, "part": 404}
        assert str(tmp_path) not in own.get("/items").text
    with served_index.client(index, image_folders=(str(tmp_path),)) as own:
        assert own.get("/thumbnail", params={"id": "far"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("a/b.jpg", "a/b.jpg"), ("a/../b.jpg", "b.jpg"), ("./a//b.jpg", "a/b.jpg"), ("a/../../s.jpg", "s.jpg"),
        ("../secret.jpg", "secret.jpg"), ("/etc/secret.jpg", "secret.jpg"), ("/srv/photos/b.jpg", "b.jpg"),
        ("/srv/photos/../secret.jpg", "secret.jpg"), ("../photos2/secret.jpg", "secret.jpg"),
    ],
)  # fmt: skip
def test_file_outside_the_collection_is_shown_by_its_name_alone(path: str, shown: str) -> None:
    for root in ("/srv/photos", "/srv/photos/", "/srv/x/../photos"):
        item = Item(1, "a", path, [], {})
        assert schemas.ItemOut.of(item, "images", root).file == shown


def test_symlinks_in_index_folder_are_not_followed(place: Path, fresh: Path, tmp_path: Path) -> None:
    """A link in the cache or as a log leads to a file of this machine, and the data set of additions is anything."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with served_index.client(fresh, log="index") as own:
        picture = own.get("/thumbnail", params={"id": "red", "size": 96}).content
    (cached,) = (fresh / "cache" / "thumbnails").iterdir()
    cached.unlink()
    cached.symlink_to(secret)
    for log in (fresh / "logs").iterdir():
        log.unlink()
        log.symlink_to(secret)
    os.mkfifo(fresh / "logs" / "wait.jsonl")
    with served_index.client(fresh, log="index") as own:
        assert own.get("/thumbnail", params={"id": "red", "size": 96}).content == picture
        assert own.post("/delete", json={"ids": ["red"]}, headers=served_index.WRITES).status_code == 200
    assert secret.read_text() == "secret"
    (fresh / "added").mkdir(exist_ok=True)
    for rows in (
        "no JSON",
        "{}",
        '{"id": 3}',
        "[1]",
        '{"id": "a", "file_name": "b", "text_ids": [], "captions": ["c"]}',
    ):
        (fresh / "added" / "metadata.jsonl").write_text(rows + "\n")
        told = call("index", "delete", fresh, "blue", code=1).stderr
        assert "metadata.jsonl needs a row of JSON for each added image" in told, rows
    (fresh / "added" / "metadata.jsonl").unlink()
    call("index", "delete", fresh, "blue")


def test_image_beyond_pixel_limit_is_not_decoded(place: Path, tmp_path: Path) -> None:
    forms = {"webp": 404, "tiff": 404, "png": 200, "jpeg": 200}
    for form in forms:
        Image.new("RGB", (1500, 1000)).save(tmp_path / f"a.{form}")
    Image.new("RGB", (3000, 1000)).save(tmp_path / "large.png")
    Image.new("RGB", (3000, 1000)).save(tmp_path / "large.jpeg")
    (tmp_path / "long.bmp").write_bytes(served_index.picture(form="BMP") + bytes(9_000_000))
    names = {
        **{f"a.{form}": code for form, code in forms.items()},
        "large.png": 404,
        "large.jpeg": 200,
        "long.bmp": 404,
    }
    lines = [json.dumps({"image": name, "id": name, "caption": name}) for name in names]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    words = ["--run", place / "run-library", "--data", tmp_path / "pairs.jsonl", "--split", "all", "--quiet"]
    call("index", "build", tmp_path / "index", *words)
    with served_index.client(tmp_path / "index", limits={"pixels": 2_000_000}) as own:
        answers = {name: own.get("/thumbnail", params={"id": name}) for name in names}
        assert {name: answer.status_code for name, answer in answers.items()} == names
        assert "too large to be shown (--max-pixels)" in answers["a.webp"].json()["error"]


def test_moved_index_is_reopened(place: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subtext.server import state

    monkeypatch.setattr(state, "CHECK_SECONDS", 0.0)
    with served_index.client(fresh) as own:
        before = own.get("/search", params={"q": "a red square"}).json()
        call("index", "move", fresh, "--run", place / "run-other", "--quiet", "--even-if-worse")
        after = own.get("/search", params={"q": "a red square"}).json()
    assert [hit["id"] for hit in before["hits"]] != [hit["id"] for hit in after["hits"]]


def test_missing_segment_stops_new_server_but_not_running_one(fresh: Path) -> None:
    with served_index.client(fresh) as own:
        Image.new("RGB", (4, 4)).save(fresh.parent / "x.png")
        next((fresh / "store-1").glob("*.images")).rename(fresh / "gone")
        # Segments that are mapped already are still read; a new server cannot open the index at all.
        assert own.get("/readyz").status_code == 200
    with pytest.raises(Exception, match="needs all its segments"):
        build(Settings((str(fresh),)))


def test_settings_round_trip(place: Path) -> None:
    own = replace(served_index.settings(place / "library"), allowed_hosts=("a.example",), image_folders=("/images",))
    assert TypeAdapter(Settings).validate_json(own.to_json()) == own
    with pytest.raises(RequirementError, match="two are called 'library'"):
        build(Settings((str(place / "library"), str(place / "library"))))


def _logged(index: Path) -> str:
    return "".join(file.read_text() for file in (index / "logs").glob("*.jsonl"))


def test_items_are_ordered_by_date_page_by_page(client) -> None:
    """A number of a field is a year; pages go on where the one before has ended."""
    for descending in (False, True):
        params = {"order": "place", "descending": descending, "top": 5}
        places, after = [], ""
        while True:
            page = client.get(f"/items?{after}", params=params if not after else None)
            assert page.status_code == 200 and page.json()["total"] == 12
            places += [item["metadata"]["place"] for item in page.json()["items"]]
            if (after := page.json()["next"]) is None:
                break
            after = f"order=place&descending={descending}&top=5&{after}"
        assert places == sorted(range(12), reverse=descending)
        best = client.get("/search", params={"q": "a red square", "top": 6, **params}).json()["hits"]
        found = [hit["metadata"]["place"] for hit in best]
        assert len(found) == 5 and found == sorted(found, reverse=descending)
    assert client.get("/items", params={"order": "language", "target": "texts"}).status_code == 422
    assert (
        client.get(
            "/items", params={"after": client.get("/items?top=1").json()["next"][6:], "order": "place"}
        ).status_code
        == 409
    )


def test_dates_are_counted_and_ids_folded_over_http(fresh: Path) -> None:
    with served_index.client(fresh) as own:
        items = [
            served_index.item(f"d{number}", date=date) for number, date in enumerate(["um 1900", "o. D.", "1890-1895"])
        ]
        assert own.post("/add", json={"items": items}, headers=served_index.WRITES).status_code == 201
        where = [json.dumps({"field": "date", "test": ">=", "value": "1893"}), "date <= 1900"]
        for dates, ids in {"possible": ["d0", "d2"], "certain": []}.items():
            params = {"where": where, "dates": dates, "order": "date", "descending": True}
            page = own.get("/items", params=params).json()
            assert [item["id"] for item in page["items"]] == ids
            assert page["dates"] == {"possible": 2, "certain": 0, "undated": 13}
            found = own.get("/search", params={"q": "a square", **params}).json()
            assert [hit["id"] for hit in found["hits"]] == ids and found["dates"] == page["dates"]
        field = next(one for one in own.get("/fields").json()["fields"] if one["name"] == "date")
        assert (field["kind"], field["low"], field["high"]) == ("date", "1890-01-01", "1901-12-31")
        assert own.get("/item", params={"id": "D0"}).json()["item"]["id"] == "d0"
        assert own.get("/thumbnail", params={"id": "D0"}).status_code == 200
        twin = [served_index.item("ÀB"), served_index.item("áb")]
        assert own.post("/add", json={"items": twin}, headers=served_index.WRITES).status_code == 201
        refused = own.post("/delete", json={"ids": ["ab", "d0"]}, headers=served_index.WRITES)
        assert refused.status_code == 422 and "'ab' fits 'ÀB' and 'áb'" in refused.json()["error"]
        assert own.get("/items").json()["total"] == 17, "nothing was deleted"
        assert own.post("/delete", json={"ids": ["D0", "áb"]}, headers=served_index.WRITES).json()["image_count"] == 2
