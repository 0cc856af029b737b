"""Work on a Ray cluster, in plain tasks: few are in flight, so that this process holds little of the work at a time.

A task is some items of a listing; it returns what is small, or is taken at once. Ray starts a task again whose worker
or machine has ended. What all tasks need, such as the model, is sent to each machine once and opened once by each
worker.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, no_type_check

import numpy as np
from numpy.typing import NDArray

from subtext.data.addresses import is_address
from subtext.data.dataset import Dataset, Items, RowIssue
from subtext.data.image_files import limit_pixels, most_pixels
from subtext.data.object_store import release
from subtext.data.read import decoded_images
from subtext.errors import DataError, OutputError, RequirementError, SearchIndexError, SubtextError
from subtext.text_helpers import install_hint
from subtext.version import __version__

Task = TypeVar("Task")
Result = TypeVar("Result")

QUEUED = 2
"""Tasks in flight for each worker: one that it does, and one that waits for it."""
RETRIES = 5
"""How often a task is done again whose worker or machine has ended."""
HELD = 2**28
"""Bytes of tasks in flight, at most, where more than one is."""
SMALLEST, LARGEST, SHARE = 256, 1024, 8
"""Items of a task, at least and at most, and the tasks that each worker is to have."""
LOOK = 10.0
"""Seconds without a result after which the machines of the cluster are counted again."""
PATIENCE = 120
"""Seconds in which a machine has to answer; one that is busy with other work is asked no further."""
SHARED = 2**20
"""Bytes of a tensor from which on the workers of a machine have one copy of it."""
PACKAGES = ("torch", "transformers", "open_clip", "lance", "pyarrow", "onnxruntime")
"""Packages that a machine needs where this process has loaded them."""

_HELD: dict[str, Any] = {}
"""What the tasks of a worker have in common, by the name of the object."""


class Cluster:
    """A Ray cluster; it is connected to when the first work is done there.

    Args:
        address: HOST:PORT; "auto" for the one of this machine; "local" to start one here.

    Raises:
        RequirementError: If Ray is not installed.
    """

    def __init__(self, address: str) -> None:
        if importlib.util.find_spec("ray") is None:
            raise RequirementError(f"a Ray cluster needs Ray; it is not installed; {install_hint('ray')}")
        self.address = address
        self._connected = self._begun = self._checked = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here: what was shared with it takes memory until then."""
        if self._begun:
            import ray

            ray.shutdown()
        self._connected = self._begun = False

    def connect(self) -> None:
        """Connect, if that was not done yet.

        Raises:
            RequirementError: For a cluster that cannot be reached.
        """
        import ray

        if self._connected:
            return
        self._begun = not ray.is_initialized()
        if self._begun:
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as problem:
                self._begun = False
                raise RequirementError(
                    "embedding on a cluster needs one that can be reached: HOST:PORT, auto for the one of this "
                    f"machine, or local to start one; it got {self.address}: {_brief(problem)}"
                ) from problem
        self._connected = True

    def width(self, *, gpu: bool = False) -> int:
        """The number of workers that fit on the cluster now.

        Args:
            gpu: Whether each needs a GPU.

        Returns:
            Their number, 1 or more.

        Raises:
            RequirementError: If there is none.
        """
        import ray

        self.connect()
        try:
            found = int(ray.cluster_resources().get("GPU" if gpu else "CPU", 0))
        except (ConnectionError, RuntimeError, ray.exceptions.RayError) as problem:
            raise self._lost(problem) from problem
        if not found:
            raise RequirementError(
                f"the cluster at {self.address} needs a {'GPU' if gpu else 'processor'} for its workers; it has none; "
                "start a machine that has one (ray start --address=HOST:PORT)"
            )
        return found

    def size_of_task(self, items: int, unit: int, *, gpu: bool = False) -> int:
        """How many items a task is to have, so that all workers are busy to the end.

        Args:
            items: Number of all items.
            unit: The number is a multiple of this one.
            gpu: Whether each worker needs a GPU.

        Returns:
            Items of a task.
        """
        wanted = min(max(items // (SHARE * self.width(gpu=gpu)), SMALLEST), LARGEST)
        return unit * max(1, wanted // unit)

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        gpu: bool = False,
        ordered: bool = False,
        size: Callable[[Task], int] = lambda _: 0,
    ) -> Iterator[tuple[Task, Result]]:
        """Do tasks on the cluster; the next ones are taken from their source as others are done.

        Args:
            work: Does one of them, on a worker; it is sent there once.
            tasks: The tasks.
            gpu: Whether each needs a GPU.
            ordered: Give the results in the order of the tasks; otherwise each as soon as it is there.
            size: Bytes of a task.

        Yields:
            Each task with its result.

        Raises:
            SubtextError: What the work raises, what a worker lacks, and a cluster that ends.
        """
        import ray

        self.connect()
        # Ray's own worker ends while a task runs, or its machine does: then the task is done again.
        function = ray.remote(_done).options(
            max_retries=RETRIES, **({"num_gpus": 1} if gpu else {"num_cpus": 1}), name=f"subtext {type(work).__name__}"
        )
        # In scope to the end: a worker that is started again reads it again.
        with _tensors_as_arrays():
            shared = ray.put((work, most_pixels()))
        waiting: dict[Any, Task] = {}
        held = 0
        try:
            for task in tasks:
                own = size(task)
                while waiting and (len(waiting) >= QUEUED * self.width(gpu=gpu) or held + own > HELD):
                    done = self._next(waiting, gpu=gpu, ordered=ordered)
                    held -= size(done[0])
                    yield done
                waiting[function.remote([shared], task)] = task
                held += own
            while waiting:
                yield self._next(waiting, gpu=gpu, ordered=ordered)
        finally:
            for left in waiting:
                with suppress(Exception):
                    ray.cancel(left, force=True)
            del shared

    def _next(self, waiting: dict[Any, Task], *, gpu: bool, ordered: bool) -> tuple[Task, Any]:
        """The next task that is done, and its result."""
        import ray

        asked, ready = list(waiting)[: 1 if ordered else None], list[Any]()
        try:
            while not ready:
                ready, _ = ray.wait(asked, num_returns=1, timeout=LOOK)
                if not ready:
                    self.width(gpu=gpu)  # Where the last machine has ended, nothing would ever be done.
            first = ready[0]
            result = ray.get(first)
        except ray.exceptions.RayTaskError as problem:
            # What this package does not raise on purpose: a package that cannot be imported, or a fault.
            raise RequirementError(
                f"a worker of the cluster at {problem.ip} could not do its part: {_brief(problem.cause or problem)}; "
                "what was written before is kept"
            ) from problem
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as problem:
            raise RequirementError(
                f"the workers of the cluster at {self.address} ended {RETRIES + 1} times at the same items, as if "
                "their machines had too little memory for them; give them more, or a smaller batch; what was written "
                "before is kept"
            ) from problem
        except (ConnectionError, ray.exceptions.RayError) as problem:
            raise self._lost(problem) from problem
        task = waiting.pop(first)
        if isinstance(result, SubtextError):
            raise result
        return task, result

    def _lost(self, problem: Exception) -> RequirementError:
        return RequirementError(
            f"the cluster at {self.address} ended, or cannot be reached any more: {_brief(problem)}; what was written "
            "before is kept: do it again"
        )

    def require_machines(self, dataset: Dataset) -> None:
        """Require, once, that every machine of the cluster has this package and sees the images.

        Args:
            dataset: The data set; each machine needs to see its first, its last and a middle image.

        Raises:
            RequirementError: If a machine lacks one of them; it names the machine.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.connect()
        if self._checked:
            return
        self._checked = True

        # Sent as its code, and not by its name, since a machine may lack this package; checks of shapes around it, as
        # tests have them, could not be sent.
        @no_type_check
        def look(version: str, packages: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
            import importlib.util
            import os

            found = {name: importlib.util.find_spec(name) is not None for name in packages}
            try:
                from subtext.version import __version__ as own
            except ImportError:
                own = ""
            return {
                "version": own,
                "packages": [name for name, there in found.items() if not there],
                "files": [name for name in files if not os.path.isfile(name)],  # noqa: PTH113 (any name)
            }

        packages, images = [name for name in PACKAGES if name in sys.modules], _samples(dataset)
        try:
            nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
            asked = {
                ray.remote(look)
                .options(num_cpus=1, max_retries=0, scheduling_strategy=_on(NodeAffinitySchedulingStrategy, node))
                .remote(__version__, packages, images): node["NodeManagerHostname"]
                for node in nodes
            }
            answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
            for reference in silent:
                ray.cancel(reference)
            for reference in answered:
                name = asked[reference]
                try:
                    _require(ray.get(reference), name)
                except ray.exceptions.RayTaskError as problem:
                    raise RequirementError(
                        f"the machine {name} of the cluster cannot work: {_brief(problem.cause or problem)}; install "
                        "the same Python and packages there as here"
                    ) from problem
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                    continue  # A machine that has just ended gets no work.
        except (ConnectionError, ray.exceptions.RayError) as problem:
            raise self._lost(problem) from problem


@contextmanager
def _tensors_as_arrays() -> Iterator[None]:
    """Send tensors as arrays meanwhile: Ray keeps these once on a machine, and its workers read them there.

    As torch pickles them, this process holds one copy more while they are sent, and each worker has its own.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch
    from ray.util import deregister_serializer, register_serializer

    register_serializer(torch.Tensor, serializer=_array_of, deserializer=_tensor_of)
    try:
        yield
    finally:
        deregister_serializer(torch.Tensor)


def _array_of(tensor: Any) -> tuple[Any, ...]:
    """A large tensor as its bytes, type and shape; another one as torch does it, since it may be written to."""
    import torch

    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not is_plain or tensor.requires_grad or tensor.nbytes < SHARED or not tensor.is_contiguous():
        found: tuple[Any, ...] = tensor.__reduce_ex__(2)
        return found
    return tensor.view(-1).view(torch.uint8).numpy(), tensor.dtype, tensor.shape


def _tensor_of(found: tuple[Any, ...]) -> Any:
    """The tensor that `_array_of` got."""
    if callable(found[0]):
        return found[0](*found[1])
    import warnings

    import torch

    with warnings.catch_warnings():
        # It cannot be written to: a model that embeds only reads its large tensors.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(found[0]).view(found[1]).view(found[2])


def _on(strategy: Any, node: Mapping[str, Any]) -> Any:
    return strategy(node_id=node["NodeID"], soft=False)


def _require(found: Mapping[str, Any], name: str) -> None:
    """Require what a machine of a cluster has."""
    if found["version"] != __version__:
        has = f"has {found['version']}" if found["version"] else "has none"
        raise RequirementError(
            f"a Ray cluster needs Subtext {__version__} on every machine; {name} {has}; install it there, in the "
            "environment in which Ray was started"
        )
    if found["packages"]:
        raise RequirementError(
            f"a Ray cluster needs the packages of this machine on every machine; {name} lacks "
            f"{', '.join(found['packages'])}; install them there, in the environment in which Ray was started"
        )
    if found["files"]:
        raise _no_image(name, found["files"][0])


def _no_image(machine: str, file: str) -> RequirementError:
    return RequirementError(
        f"a Ray cluster needs the images on every machine, at the same paths; {machine} does not see {file}; mount "
        "their folder there"
    )


def _brief(problem: BaseException) -> str:
    """The end of an error's message that says what it was, in one line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if isinstance(problem, ImportError) else lines[0] if lines else type(problem).__name__).partition(
        ". "
    )[0][:300]


def _done(shared: list[Any], task: Any) -> Any:
    """Do a task on a worker; an error that is one of this package's is a result."""
    import ray

    name, host = shared[0].hex(), socket.gethostname()
    try:
        if name not in _HELD:
            _HELD.clear()
            try:
                _HELD[name], pixels = ray.get(shared[0])
            except (ImportError, ray.exceptions.RaySystemError) as problem:
                return RequirementError(
                    f"a Ray cluster needs the packages of this machine on every machine; {host} could not open the "
                    f"model: {_brief(problem)}; install them there, in the environment in which Ray was started"
                )
            limit_pixels(pixels / 1_000_000)
        return _HELD[name](task)
    except (OutputError, SearchIndexError) as problem:
        return type(problem)(f"{problem} (a worker on {host})")
    except SubtextError as problem:
        return problem


class ImageCheck:
    """Decodes the images of a data set on a cluster, as `read` does it in threads; see its `verify`.

    Args:
        cluster: The cluster.
        chosen: Which images are decoded; True for all.
    """

    def __init__(self, cluster: Cluster, chosen: bool | Callable[[str | bytes, Path], bool]) -> None:
        self.cluster, self.chosen = cluster, chosen

    def __call__(self, value: str | bytes, root: Path) -> bool:
        """Whether an image is decoded.

        Args:
            value: Path or bytes.
            root: Folder of relative paths.

        Returns:
            Whether it is.
        """
        return self.chosen(value, root) if callable(self.chosen) else self.chosen

    def decode(
        self, dataset: Dataset, rows: NDArray[np.int64], progress: Callable[[int, int], None] | None
    ) -> tuple[dict[int, str], list[RowIssue]]:
        """Decode images.

        Args:
            dataset: The data set.
            rows: Of the images.
            progress: Called with the number of decoded images and their total.

        Returns:
            The images that cannot be decoded, and why; and notes on those of several pages.

        Raises:
            RequirementError: If a machine does not see the images.
        """
        if not len(rows):
            return {}, []
        self.cluster.require_machines(dataset)
        step, total, done = self.cluster.size_of_task(len(rows), 1), len(rows), 0
        parts = (
            (start, dataset.images.take(rows[start : start + step]), dataset.root) for start in range(0, total, step)
        )
        reasons, notes = dict[int, str](), dict[int, list[RowIssue]]()
        checked = self.cluster.map(_decoded, parts, size=lambda part: bytes_of(part[1].values))
        for (start, items, root), found in checked:
            for row, reason in found["reasons"].items():
                value = items.values[row]
                if row in found["absent"] and Path(file := _file(value, root)).is_file():
                    raise _no_image(found["machine"], file)
                reasons[int(rows[start + row])] = reason
            notes[start] = found["notes"]
            done += len(items)
            if progress is not None:
                progress(done, total)
        return dict(sorted(reasons.items())), [note for start in sorted(notes) for note in notes[start]]


def _samples(dataset: Dataset) -> list[str]:
    """Paths of some images of a data set: the first, the last and one between, as far as they are files."""
    values = dataset.images.values
    some = [values[place] for place in sorted({0, len(values) // 2, len(values) - 1})] if values else []
    return [file for value in some if os.path.isfile(file := _file(value, dataset.root))]  # noqa: PTH113 (any name)


def bytes_of(values: Iterable[object]) -> int:
    """Bytes of the images that travel with a task.

    Args:
        values: Paths, bytes or texts.

    Returns:
        The bytes of those that are bytes.
    """
    return sum(len(value) for value in values if isinstance(value, bytes))


def _decoded(part: tuple[int, Items, Path]) -> dict[str, Any]:
    """What a worker finds of some images: those that cannot be decoded, or are not there, and notes."""
    _, items, root = part
    reasons, notes = decoded_images(items, root, np.arange(len(items)), None, workers=1)
    release(items.values)  # Another worker may embed them.
    absent = [row for row in reasons if _is_absent(items.values[row], root)]
    return {"reasons": reasons, "notes": notes, "absent": absent, "machine": socket.gethostname()}


def require_seen(problem: DataError, values: Sequence[object], root: Path) -> None:
    """Raise an error that names this machine, where it does not see an image that cannot be read.

    Args:
        problem: What reading raised, for its cause.
        values: Paths of images, among others.
        root: Folder of relative paths.

    Raises:
        RequirementError: If one of them is not there.
    """
    for value in values:
        if _is_absent(value, root):
            raise _no_image(socket.gethostname(), _file(value, root)) from problem


def _file(value: object, root: Path) -> str:
    """The file that an image lies in; "" for none, and for an address, which every machine opens by itself."""
    is_file = isinstance(value, str) and not is_address(value)
    return os.path.join(root, str(value).partition("?offset=")[0]) if is_file else ""  # noqa: PTH118


def _is_absent(value: object, root: Path) -> bool:
    return bool(file := _file(value, root)) and not os.path.isfile(file)  # noqa: PTH113 (any name)
