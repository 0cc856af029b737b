"""Requests made from what OpenAPI says of the server, right ones and wrong ones: none ends in a fault of the server."""

from __future__ import annotations

import base64

import coloured_images
import pytest
import schemathesis
import served_index
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

PICTURES = strategies.sampled_from([served_index.picture(), served_index.picture((1, 2, 3), (9, 30))])
for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff"):
    schemathesis.openapi.media_type(f"image/{kind}", PICTURES)
schemathesis.openapi.format("byte", PICTURES.map(lambda data: base64.b64encode(data).decode()))
# A number is a year.
schemathesis.openapi.format("field", strategies.just("place"))
schemathesis.openapi.format("condition", strategies.sampled_from(["place >= 3", "split = test", "text contains red"]))
OPERATIONS = (
    "GET /search", "POST /search", "GET /similar", "POST /score", "GET /items", "GET /item", "GET /thumbnail",
    "GET /fields", "POST /add", "POST /delete", "GET /healthz", "GET /readyz", "GET /metrics", "GET /libraries",
    "GET /lists", "POST /lists", "GET /lists/{link}", "PUT /lists/{link}", "DELETE /lists/{link}",
)  # fmt: skip

NEVER_WRONG = ("GET /healthz", "GET /readyz", "GET /metrics", "GET /libraries")
"""Those without parameters."""


def suited(name: str, query: dict[str, object]) -> dict[str, object]:
    """The parameters of a right search, with values that suit one another and the library.

    OpenAPI cannot say that `signals` needs one that the library has for the query, `like` an item that is there,
    `hubness` a query of one part, `min_probability` a calibration, and `rerank` a second model.
    """
    if not name.endswith(" /search"):
        return query
    words, parts = {"q": query.get("q") or "a red square"}, ["index", "min_probability", "rerank"]
    if query.get("hubness"):
        parts += ["like", "not_like", "not_text"]
        if name.startswith("POST"):
            words, parts = {}, [*parts, "q"]
    values = {key: value for key, value in query.items() if key not in parts}
    for key in ("like", "not_like"):
        if key in values:
            values[key] = list(coloured_images.COLOURS)[: len(values[key])]  # type: ignore[arg-type]
    if values.get("signals"):
        values["signals"] = [*values["signals"], "pixels"]  # type: ignore[misc]
    return {**values, **words}


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory):
    index = served_index.made(tmp_path_factory.mktemp("schema"), "library")[0]
    with served_index.running(index) as port:
        schema = schemathesis.openapi.from_url(f"http://localhost:{port}/openapi.json")
        found = [result.ok() for result in schema.get_all_operations()]
        yield {f"{one.method.upper()} {one.path}": one for one in found}


def test_all_routes_are_described(operations) -> None:
    assert set(operations) == set(OPERATIONS)


# The server's threads draw from the module's generator meanwhile, which hypothesis takes for its strategies' doing.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, id=f"{'right' if mode is GenerationMode.POSITIVE else 'wrong'}-{name}")
        for name in OPERATIONS
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if mode is GenerationMode.POSITIVE or name not in NEVER_WRONG
    ],
)
@pytest.mark.parametrize("examples", [8, pytest.param(110, marks=pytest.mark.slow)])
def test_no_request_causes_server_error(operations, name: str, mode: GenerationMode, examples: int) -> None:
    operation = operations[name]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    def assert_no_fault(case) -> None:
        # A longer head is refused by the HTTP library, which closes the line at once.
        assume(len(str(case.query)) < 3000)
        if mode is GenerationMode.POSITIVE:
            case.query = suited(name, case.query or {})
        case.call_and_validate(headers=served_index.WRITES, checks=CHECKS.get_all())

    assert_no_fault()
