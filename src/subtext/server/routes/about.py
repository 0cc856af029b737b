"""/healthz, /metrics and /libraries: how the server is, and what it has."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from subtext import __version__
from subtext.data.features import FeatureInput
from subtext.server.forms import About, Health, Libraries
from subtext.server.library import Library
from subtext.server.routes.open import REFUSALS, Open, Reading

router = APIRouter(responses=REFUSALS, tags=["about"])


@router.get("/healthz")
def healthz(served: Open) -> Health:
    """Whether the server answers: each library is looked into for it. Whoever has no token hears no more than that."""
    found = {}
    for name, library in served.libraries.items():
        with library.store.reading() as view:
            found[name] = view.generation
    return Health(status="ok", version=__version__, libraries={} if served.settings.read_token else found)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(served: Reading) -> str:
    """Counts for Prometheus."""
    return served.metrics.text(served.gauges())


@router.get("/libraries")
def libraries(served: Reading) -> Libraries:
    """What can be searched here."""
    return Libraries(
        libraries=[_about(library) for library in served.libraries.values()],
        version=__version__,
        writable=bool(served.settings.token),
    )


def _about(library: Library) -> About:
    engine = library.engine
    with library.store.reading() as view:
        counts, generation = view.counts, view.generation
    return About(
        name=library.name,
        pictures=counts["images"],
        texts=counts["texts"],
        host=library.store.manifest.host,
        changed=generation,
        asks_pictures=not isinstance(engine.model.image.input_spec, FeatureInput),
        asks_words=not isinstance(engine.model.text.input_spec, FeatureInput),
    )
