"""Where an index in PostgreSQL is: what libpq connects by, and the name of the index; never a word of a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from subtext.errors import IndexError_

INDEX = "subtext"
"""The index that is meant where an address names none."""
TIMEOUT = 10
"""Seconds that are waited for a server, unless the address says otherwise (connect_timeout)."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_TAKEN = ("public", "information_schema")
_SECRET = ("password", "sslpassword", "passfile", "service", "servicefile", "sslkey", "oauth_client_secret")


@dataclass(frozen=True)
class Address:
    """An index in a database.

    name        of the index, which is the PostgreSQL schema that its tables lie in
    parameters  what libpq connects by, a password among them: never shown
    """

    name: str
    parameters: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(text: str) -> Address:
        """The address of `postgresql://USER@HOST:PORT/DATABASE?index=NAME`; all of libpq's parameters are understood.

        Raises IndexError_ for anything else, without repeating it: a password may be in it.
        """
        base, _, query = text.partition("?")
        given = parse_qsl(query, keep_blank_values=True)
        names = [value for key, value in given if key == "index"] or [INDEX]
        other_parameters = urlencode([(key, value) for key, value in given if key != "index"], quote_via=quote)
        try:
            parameters = conninfo_to_dict(f"{base}?{other_parameters}" if other_parameters else base)
        except (psycopg.Error, ValueError):
            parameters = None
        if parameters is None or not _is_whole(parameters):
            # What libpq says of it, and what it took for a port or a database, may be a part of the password.
            raise IndexError_(
                "an index in PostgreSQL needs an address of the form "
                "postgresql://USER@HOST:PORT/DATABASE?index=NAME; this one cannot be read (it is not repeated, as a "
                "password may be in it); write a password's signs other than letters and digits as %XX, or give it as "
                "PGPASSWORD"
            ) from None
        name = names[-1]
        if not _NAME.fullmatch(name) or name.startswith("pg_") or name in _TAKEN:
            raise IndexError_(
                "an index in PostgreSQL needs a name of letters, digits, _ and -, of at most 63, and not one of "
                f"PostgreSQL's own; it got {name!r}; name it by index=NAME at the end of the address"
            )
        return Address(name, {"connect_timeout": TIMEOUT, "application_name": "subtext", **parameters})

    def __str__(self) -> str:
        """The address without anything secret: user, host, port, database, and name."""
        parts = {key: str(self.parameters.get(key) or "") for key in ("user", "host", "port", "dbname")}
        local = parts["host"].startswith("/")
        user = f"{quote(parts['user'])}@" if parts["user"] else ""
        port = f":{parts['port']}" if parts["port"] and not local else ""
        query = ([("host", parts["host"])] if local else []) + [("index", self.name)]
        host = "" if local else parts["host"]
        return f"postgresql://{user}{host}{port}/{quote(parts['dbname'])}?{urlencode(query, safe='/')}"

    def without_secrets(self, text: str) -> str:
        """A text in which nothing that the address keeps secret is left.

        Whoever speaks to a server hears its messages, which the server may write as it likes.
        """
        for key in _SECRET:
            value = str(self.parameters.get(key) or "")
            for written in {value, quote(value), quote(value, safe="")} - {""}:
                text = text.replace(written, "***")
        return text


def _is_whole(parameters: Mapping[str, Any]) -> bool:
    """Whether no sign of a password, such as a slash, has ended the address's first part too soon."""
    return bool(re.fullmatch(r"[\d,]*", str(parameters.get("port") or ""))) and "@" not in str(parameters.get("dbname"))
