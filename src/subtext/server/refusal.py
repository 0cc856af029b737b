"""A request that is refused, with its HTTP status."""

from __future__ import annotations

from http import HTTPStatus

from subtext.errors import SubtextError

RETRY_SECONDS = 1
"""Seconds after which a refused client may try again."""


class Refusal(SubtextError):
    """A request that is refused.

    Args:
        status: HTTP status.
        sentence: Why the request is refused.
        retry: Seconds after which the request may be repeated; None if that would not help.
    """

    def __init__(self, status: int, sentence: str, *, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status = int(status)
        self.retry = retry

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {} if self.retry is None else {"Retry-After": str(self.retry)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else headers
