"""Requests made from what OpenAPI says of the server, right ones and wrong ones: none ends in a fault of the server."""

from __future__ import annotations

import base64

import pytest
import schemathesis
import served
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.specs.openapi.checks import positive_data_acceptance

PICTURES = strategies.sampled_from([served.picture(), served.picture((1, 2, 3), (9, 30))])
for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff"):
    schemathesis.openapi.media_type(f"image/{kind}", PICTURES)
schemathesis.openapi.format("byte", PICTURES.map(lambda data: base64.b64encode(data).decode()))
schemathesis.openapi.format("condition", strategies.sampled_from(["place >= 3", "split = test", "text contains red"]))
RELATED = ("GET /search", "POST /search")
"""Operations whose right values depend on one another and on the library: `lexical` needs words, `like` an item."""
OPERATIONS = (
    "GET /search", "POST /search", "GET /similar", "POST /score", "GET /items", "GET /item", "GET /thumbnail",
    "GET /fields", "POST /add", "POST /delete", "GET /healthz", "GET /metrics", "GET /libraries",
)  # fmt: skip


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory):
    index = served.made(tmp_path_factory.mktemp("schema"), "library")[0]
    with served.running(index) as port:
        schema = schemathesis.openapi.from_url(f"http://localhost:{port}/openapi.json")
        found = [result.ok() for result in schema.get_all_operations()]
        yield {f"{one.method.upper()} {one.path}": one for one in found}


def test_all_addresses_are_described(operations) -> None:
    assert set(operations) == set(OPERATIONS)


# The server's threads draw from the module's generator meanwhile, which hypothesis takes for its strategies' doing.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_no_request_is_a_fault_of_the_server(operations, name: str, mode: GenerationMode) -> None:
    operation = operations[name]
    if mode is GenerationMode.NEGATIVE and name in ("GET /healthz", "GET /metrics", "GET /libraries"):
        pytest.skip("it has nothing that could be wrong")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=8,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    def assert_no_fault(case) -> None:
        # A longer head is refused by the HTTP library, which closes the line at once.
        assume(len(str(case.query)) < 3000)
        unsure = [positive_data_acceptance] if name in RELATED else []
        case.call_and_validate(headers=served.WRITES, checks=CHECKS.get_all(), excluded_checks=unsure)

    assert_no_fault()
