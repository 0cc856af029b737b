"""Every annotated signature of the package is checked while testing, and nothing is left to chance.

The hook has to be in place before the package is first imported, which is why it stands above the fixtures. It checks
shapes (jaxtyping) and types (beartype) of every function and dataclass, which doubles the time that the tests take;
CHECK_SHAPES=0 in the environment leaves it out. A function that a compiler reads itself, such as a numba kernel, is
left alone when `@typing.no_type_check` stands among its decorators.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest

# A whole number is welcome where a float is asked for, as it is to the type checker (PEP 484).
if os.environ.get("CHECK_SHAPES") != "0":
    jaxtyping.install_import_hook("subtext", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import torch

# Nothing that the tests import is garbage: to look for it takes a quarter of the time before the first test.
gc.disable()

STORES = ("folder", "postgresql", "lance")
"""Stores that the tests of stores run on; the option --store names others, by the scheme of their addresses."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option --store."""
    parser.addoption("--store", action="append", help="run the tests of stores on this one, such as lance or my-scheme")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that asks for `store_kind` runs on each store."""
    if "store_kind" in metafunc.fixturenames:
        metafunc.parametrize(
            "store_kind",
            metafunc.config.getoption("store") or getattr(metafunc.module, "STORES", STORES),
            scope="module",
        )


@pytest.fixture(scope="session")
def database_server() -> Iterator[Any]:
    """One server of PostgreSQL for all modules that ask for an address in it; each has a database of its own."""
    import database

    with database.started() as server:
        yield server


@pytest.fixture(scope="module")
def address_of(
    store_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """The place of an index of a name, in the store of this test."""
    folder = tmp_path_factory.mktemp("stores")
    if store_kind == "postgresql":
        server, name = request.getfixturevalue("database_server"), f"m{secrets.token_hex(4)}"
        server.run("createdb", name)
        yield partial(server.address, database=name)
    elif store_kind == "folder":
        yield lambda name: str(folder / name)
    else:
        if store_kind == "lance":
            lance = importlib.import_module("subtext.retrieval.stores.lance")
            request.addfinalizer(partial(setattr, lance, "GRACE", lance.GRACE))
            lance.GRACE = 0.0
        yield lambda name: f"{store_kind}://{folder / name}"


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One thread: sums come in one order, so that a number seen once is seen again."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Flushing to the disk is left out: it guards against a loss of power, and the tests only kill processes."""
    plain, os.fsync = os.fsync, lambda descriptor: None
    yield
    os.fsync = plain


def pytest_collectstart(collector: pytest.Collector) -> None:
    """The same numbers for what a module draws while it is imported: torch's own seed is another in every process."""
    if isinstance(collector, pytest.Module):
        seed()


def pytest_collection_finish() -> None:
    """The garbage collector leaves alone what stays to the end: a million objects of torch, and all tests."""
    gc.freeze()
    gc.enable()


def seed() -> None:
    """Start every generator that somebody may draw from without a seed of their own."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (third-party code may still draw from it)
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of outputs is in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("caches")
        patch.setenv("SUBTEXT_CACHE", str(folder / "of-modules"))
        yield folder


@pytest.fixture(autouse=True)
def own_cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that another test encoded is found."""
    monkeypatch.setenv("SUBTEXT_CACHE", str(caches / secrets.token_hex(8)))


@pytest.fixture
def starter_chosen() -> None:
    """`auto` takes the starter towers in this test, as it does for a user who has installed them."""


@pytest.fixture(autouse=True)
def no_starter_chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` takes no starter tower in other tests: they would run for seconds, and differ where none is installed."""
    if "starter_chosen" not in request.fixturenames:
        for module in ("subtext.recipes.choose", "subtext.retrieval.sentences"):
            monkeypatch.setattr(f"{module}.is_installed", lambda side: False)


@pytest.fixture(autouse=True)
def seeds() -> Iterator[None]:
    """The same numbers in every test, alone or among others, and no default left changed behind it."""
    seed()
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
