"""Shape checks with the one form of message."""

from __future__ import annotations

from torch import Tensor

from subtext.errors import ShapeError


def dimensions(name: str, value: Tensor, axes: str) -> None:
    """Raise ShapeError unless the tensor has as many axes as `axes` names."""
    wanted = axes.count(",") + 1
    if value.ndim != wanted:
        raise ShapeError(f"{name} needs {wanted} axes ({axes}); it got shape {tuple(value.shape)}")


def exact(name: str, value: Tensor, shape: tuple[int, ...], axes: str) -> None:
    """Raise ShapeError unless the tensor has that shape."""
    if tuple(value.shape) != shape:
        raise ShapeError(f"{name} must be ({axes}) = {shape}; it got {tuple(value.shape)}")
