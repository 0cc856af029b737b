"""A server with --where: what it hides answers in every route as what does not exist, and lends nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import coloured_images
import numpy as np
import pytest
import served_index
import tiny_models
from command import call
from fastapi.testclient import TestClient
from starlette.routing import Route

from subtext.errors import SubtextError
from subtext.retrieval.condition import as_conditions
from subtext.retrieval.lists import change_lists, new_list
from subtext.retrieval.neighbours import near_of
from subtext.retrieval.stores.registry import open_store
from subtext.retrieval.visible import VisibleStore

OPEN = "rights = open"
HIDDEN = [name for number, name in enumerate(coloured_images.COLOURS) if number % 3 == 1]
SECRETS = [*HIDDEN, "quetzal", "zanzibar", "donor", "closed", r"(?<![\d.])1911(?!\d)"]
"""Ids of hidden images, a word of their texts, and a field and values that only they have: as patterns."""
LINKS = ("a" * 16, "b" * 16)
"""Lists of an open and a hidden image, and of hidden ones alone."""
PICTURE = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures, of which four are not to be seen; one index by the model alone, one with a sentence encoder."""
    folder = coloured_images.runs(tmp_path_factory.mktemp("hidden"), "run")
    rows = [json.loads(line) for line in (folder / "data" / "metadata.jsonl").read_text().splitlines()]
    for row in rows:
        row |= {"rights": "open", "year": 1950 + row["place"]}
        if row["id"] in HIDDEN:
            row |= {"rights": "closed", "donor": "zanzibar", "year": 1911}
            row["captions"] = [f"{text} quetzal" for text in row["captions"]]
    (folder / "data" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, encoder in (("alone", "none"), ("read", tiny_models.bert(folder / "encoder"))):
        options = ["--run", folder / "run", "--split", "all", "--text-encoder", encoder, "-q"]
        call("index", "build", folder / name, *options)
        with open_store(folder / name).writing("list") as writer:
            mixed, closed = new_list("both", ["red", "green"]), new_list("closed", HIDDEN, "quetzal")
            own = [replace(one, link=link) for one, link in zip((mixed, closed), LINKS, strict=True)]
            change_lists(writer, lambda _, own=own: own)
    call("index", "restore", folder / "alone", folder / "without")
    call("index", "delete", folder / "without", *HIDDEN)
    return folder


@pytest.fixture(scope="module", params=["alone", "read"])
def shown(request: pytest.FixtureRequest, place: Path) -> Iterator[TestClient]:
    with served_index.client(place / request.param, where=(OPEN,)) as client:
        yield client


def routes_of(table: object) -> set[str]:
    """Every method and path of an application, or of a router in it."""
    inner = getattr(getattr(table, "original_router", table), "routes", None)
    if inner is not None:
        return set().union(*map(routes_of, inner))
    assert isinstance(table, Route), f"{table} is no route that can be walked"
    return {f"{method} {table.path}" for method in table.methods or () if method != "HEAD"}


Asked = tuple[str, dict[str, object]]


def picture(name: str) -> bytes:
    return served_index.picture(coloured_images.COLOURS[name])


def requests(name: str) -> dict[str, list[Asked]]:
    """What is asked of each route: with the id of an item where the route takes one, and else for everything."""
    writes = {"headers": served_index.WRITES}

    def ask(path: str, **params: object) -> Asked:
        return path, {"params": params}

    words = [
        ask("/search", q=q, top=50, target=target, explain=True)
        for target in ("images", "texts")
        for q in ("a square", "quetzal square", "zanzibar", "quetzel", "green", '"green square quetzal"')
    ]
    conditions = ["rights = closed", "donor = zanzibar", "year < 1950", "text contains quetzal", f"id = {name}"]
    return {
        "GET /": [ask("/")],
        "GET /page/{name}": [ask("/page/app.js")],
        "GET /openapi.json": [ask("/openapi.json")],
        "GET /healthz": [ask("/healthz")],
        "GET /readyz": [ask("/readyz")],
        "GET /metrics": [ask("/metrics")],
        "GET /libraries": [ask("/libraries")],
        "GET /fields": [ask("/fields"), ask("/fields", target="texts")],
        "GET /search": [
            *words,
            ask("/search", like=name, top=50),
            ask("/search", q="a red square", not_like=name, top=50),
            ask("/search", q="a square", not_text="quetzal", top=50, hubness="csls", diversity=0.5),
            *(ask("/search", q="a square", where=condition, top=50) for condition in conditions),
            *(ask("/search", q="a square", signals=signal, top=50) for signal in ("pixels", "texts")),
            ask("/search", q="a square", order="year", top=50),
        ],
        "POST /search": [
            ("/search", {"params": {"top": 50, "target": target}, "content": picture(HIDDEN[0]), "headers": PICTURE})
            for target in ("images", "texts")
        ],
        "GET /similar": [
            *(
                ask("/similar", id=own, top=50, target=target)
                for own in (name, "red")
                for target in ("images", "texts")
            ),
            ask("/similar", id=f"{name}/0", side="texts", top=50),
        ],
        "GET /items": [
            *(ask("/items", target=target) for target in ("images", "texts")),
            *(ask("/items", where=condition, target="images") for condition in conditions),
            ask("/items", order="year"),
        ],
        "GET /item": [ask("/item", id=name), ask("/item", id=f"{name}/0", target="texts"), ask("/item", id="red")],
        "GET /thumbnail": [ask("/thumbnail", id=name), ask("/thumbnail", id=name.upper(), size=96)],
        "GET /lists": [ask("/lists")],
        "GET /lists/{link}": [ask(f"/lists/{link}") for link in LINKS],
        "POST /lists": [("/lists", {"json": {"name": "new", "ids": ["red", name]}, **writes})],
        "PUT /lists/{link}": [
            (f"/lists/{LINKS[0]}", {"json": {"ids": ["red", name]}, **writes}),
            (f"/lists/{LINKS[1]}", {"json": {"name": "mine"}, **writes}),
        ],
        "DELETE /lists/{link}": [(f"/lists/{LINKS[1]}", writes)],
        "POST /score": [("/score", {"json": {"q": "a square", "ids": ["red", name]}})],
        "POST /delete": [
            ("/delete", {"json": {"ids": [name]}, **writes}),
            ("/delete", {"json": {"ids": [f"{name}/1"], "target": "texts"}, **writes}),
        ],
        "POST /add": [("/add", {"json": {"items": [served_index.item(name)]}, **writes})],
    }


def answers(client: TestClient, name: str) -> dict[str, list[tuple[int, str]]]:
    """Status and body of each request; what tells times, other copies and the asked id itself apart is left out."""
    found = {}
    for route, asked in requests(name).items():
        method = route.partition(" ")[0]
        for path, options in asked:
            answer = client.request(method, path, **options)  # type: ignore[arg-type]
            body = answer.content.decode("latin-1") if answer.headers["content-type"] != "image/webp" else "an image"
            if route == "GET /metrics":
                body = "\n".join(line for line in body.splitlines() if line.startswith("subtext_items"))
            headers = {} if route == "GET /metrics" else dict(answer.headers)  # It counts the requests so far.
            found.setdefault(route, []).append((answer.status_code, f"{body} {headers}"))
    return found


def plain(body: str, name: str) -> str:
    """A body without the id that was asked for, and without headers."""
    return re.sub(rf"\b{name}\b", "NAME", body.partition(" {'")[0])


@pytest.mark.parametrize("hidden", HIDDEN)
def test_every_route_hides_an_item_as_one_that_does_not_exist(shown: TestClient, hidden: str) -> None:
    ours, none = answers(shown, hidden), answers(shown, "nothere")
    assert set(ours) == routes_of(shown.app), "every route of the application has a case here"
    for route in ours:
        asked_alike = zip(requests(hidden)[route], requests("nothere")[route], strict=True)
        for (status, body), (wanted_status, wanted), (asked, other) in zip(
            ours[route], none[route], asked_alike, strict=True
        ):
            assert status == wanted_status and status < 500, (asked, body)
            if route in ("GET /openapi.json", "GET /page/{name}", "GET /"):
                continue
            # What was asked may be said again; nothing else of a hidden item is.
            said = [word for word in SECRETS if not re.search(word, json.dumps(asked, default=str))]
            assert not [word for word in said if re.search(word, body)], (asked, body)
            if asked != other:
                body, wanted = plain(body, hidden), plain(wanted, "nothere")
            assert body == wanted, asked


def test_every_route_answers_as_if_hidden_items_had_been_deleted(place: Path) -> None:
    """Scores, counts, fields and suggestions too: nothing can be told from them."""
    with (
        served_index.client(place / "alone", where=(OPEN,)) as shown,
        served_index.client(place / "without") as without,
    ):
        ours, wanted = answers(shown, "green"), answers(without, "green")
    # The list of deleted images stays, as an empty one.
    lists = {route for route in ours if "/lists" in route}
    different = {"GET /libraries", "POST /add", "GET /openapi.json", *lists}
    for route in ours.keys() - different:
        for (status, body), (wanted_status, wanted_body), asked in zip(
            ours[route], wanted[route], requests("green")[route], strict=True
        ):
            mine, other = (
                re.sub(r'alone|without|"next":"[^"]*"', "", plain(text, "green")) for text in (body, wanted_body)
            )
            assert (status, mine) == (wanted_status, other), asked


def test_nothing_can_be_added_unseen(shown: TestClient) -> None:
    """An id may be taken by an item that nobody may know of."""
    added = shown.post("/add", json={"items": [served_index.item("new")]}, headers=served_index.WRITES)
    assert added.status_code == 403 and "--where" in added.json()["error"]


def test_hidden_neighbours_lend_nothing(place: Path) -> None:
    whole = open_store(place / "read")
    part = VisibleStore(whole, as_conditions([OPEN]))
    with whole.reading() as every, part.reading() as view:
        hidden = set(every.keys_of("images", HIDDEN).values())
        near = near_of(view, view.keys("images"))
        met = {other for own in near_of(every, view.keys("images")).values() for _, other in own}
        assert near and hidden & met and not hidden & {other for own in near.values() for _, other in own}
        keys = view.owners("neighbours")[0]
        vectors, there = view.vectors_in("neighbours", keys)
        assert there.all() and not np.allclose(vectors, every.vectors_in("neighbours", keys)[0])
        query = vectors[0]
        known, scores, errors = view.scores("neighbours", query)
        found = view.nearest_in("neighbours", query[None], top=50)[0]
        assert sorted(found.keys.tolist()) == known.tolist() == keys.tolist()
        near = {
            key: (score, off) for key, score, off in zip(*map(np.ndarray.tolist, (known, scores, errors)), strict=True)
        }
        for key, score in zip(found.keys.tolist(), found.scores.tolist(), strict=True):
            assert near[key][0] == pytest.approx(score, abs=near[key][1] + 1e-6)


def test_a_condition_on_an_unknown_field_is_refused_before_anything_is_served(place: Path) -> None:
    with pytest.raises(SubtextError, match="right"), served_index.client(place / "alone", where=("right = open",)):
        pass
