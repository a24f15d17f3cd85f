"""An S3 on loopback, for tests: `with s3_server() as s3: open_store(s3.uri("table"), s3.storage_options)`.

It is moto's, with one repair: moto looks for an object and then stores it, so of two conditional puts at once both may
win. Here requests that write take turns. The bucket exists; buckets and objects are gone when the block ends, unless
another such server still runs in the process.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from msgspec import Struct

_lock = threading.Lock()
_running = 0


class S3Server(Struct, frozen=True, kw_only=True):
    endpoint: str
    bucket: str

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing-secret",
            "aws_region": "us-east-1",
            "aws_endpoint_url": self.endpoint,
            "allow_http": "true",
        }

    def uri(self, path: str = "") -> str:
        return f"s3://{self.bucket}/{path}" if path else f"s3://{self.bucket}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    global _running
    # Only tests have moto and its web server installed.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log_request(self, *_: object) -> None: ...

    app = _Serialised(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="s3-server", daemon=True)
    thread.start()
    with _lock:
        _running += 1
    try:
        bucket = f"lakeseal-{uuid.uuid4().hex[:12]}"
        s3_backends["123456789012"]["aws"].create_bucket(bucket, "us-east-1")
        yield S3Server(endpoint=f"http://127.0.0.1:{server.server_port}", bucket=bucket)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        with _lock:
            _running -= 1
            if not _running:
                s3_backends.reset()


class _Serialised:
    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length:
            # Read before taking the turn: a client that goes away in the middle must not hold up the others.
            environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(length))
        with self._turn:
            return self._app(environ, start_response)
