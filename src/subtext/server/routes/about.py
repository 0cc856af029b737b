"""/healthz, /metrics and /libraries: the state of the server, and what it has."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from subtext.data.features import FeatureInput
from subtext.server.library import Library
from subtext.server.schemas import About, Health, Libraries
from subtext.server.state import REFUSALS, Open, Reading
from subtext.version import __version__

router = APIRouter(responses=REFUSALS, tags=["about"])


@router.get("/healthz")
def healthz(server: Open) -> Health:
    """Whether the server and its libraries answer. Without the read token it tells no names."""
    generations = {}
    for name, library in server.libraries.items():
        with library.store.reading() as view:
            generations[name] = view.generation
    return Health(status="ok", version=__version__, libraries={} if server.settings.read_token else generations)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(server: Reading) -> str:
    """Metrics for Prometheus."""
    return server.metrics.text(server.item_counts())


@router.get("/libraries")
def libraries(server: Reading) -> Libraries:
    """The libraries that can be searched here."""
    return Libraries(
        libraries=[_about(library) for library in server.libraries.values()],
        version=__version__,
        writable=bool(server.settings.token),
    )


def _about(library: Library) -> About:
    model = library.index.model
    with library.store.reading() as view:
        counts, generation = view.counts, view.generation
    return About(
        name=library.name,
        pictures=counts["images"],
        texts=counts["texts"],
        host=library.store.manifest.host,
        changed=generation,
        asks_pictures=not isinstance(model.image.input_spec, FeatureInput),
        asks_words=not isinstance(model.text.input_spec, FeatureInput),
    )
