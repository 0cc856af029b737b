"""An https server on 127.0.0.1 and 127.0.0.2 with a certificate of its own, for the tests of images behind https."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


class Host:
    """What a host has, and what it was asked.

    Attributes:
        pages: Path -> status, head, and body of the answer.
        asked: Method and path of each request.
        named: The host that each request names.
        port: Of the server.
    """

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.named: list[str] = []
        self.port = 0

    def at(self, path: str, host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}/{path}"

    def put(self, path: str, body: bytes, status: int = 200, **head: str) -> str:
        self.pages[f"/{path}"] = (status, {name.replace("_", "-"): value for name, value in head.items()}, body)
        return self.at(path)


@contextmanager
def served(folder: Path) -> Iterator[Host]:
    """A host that this process trusts while the block runs."""
    from subtext.data import web_images

    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.asked.append(f"{self.command} {self.path}")
            host.named.append(self.headers["Host"])
            status, head, body = host.pages.get(self.path.partition("?")[0], (404, {}, b""))
            if self.command == "HEAD" and "No-Head" in head:
                status, body = 405, b""
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **head}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET" and "Drip" in head:
                with suppress(OSError):  # Whoever asked may not wait for the end.
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        time.sleep(float(head["Drip"]))
            elif self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder / "host.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    host.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "host.pem"))
        web_images._trusted.cache_clear()
        try:
            yield host
        finally:
            server.shutdown()
            server.server_close()
            web_images._trusted.cache_clear()


def _certificate(file: Path) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    places = [x509.IPAddress(ipaddress.ip_address(place)) for place in ("127.0.0.1", "127.0.0.2")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return file
