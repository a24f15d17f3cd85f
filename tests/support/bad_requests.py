"""Requests that somebody sends who means harm, and what a service may answer. Each is sent to a real one, in bytes.

`{place}` is a folder of tables that the service serves, `{good}` the token of an admin, `{narrow}` that of a reader of
one folder of it, `{expired}` and `{revoked}` what their names say."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

from msgspec import Struct

REFUSED = frozenset({400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431, 501, 505})
NOT_LET_IN = frozenset({401, 403, 429})
_JSON = "Content-Type: application/json"
_GOOD = "Authorization: Bearer {good}"


class BadRequest(Struct, frozen=True, kw_only=True):
    name: str
    line: str
    headers: tuple[str, ...] = ()
    body: str = ""
    allowed: frozenset[int] = REFUSED
    """A connection that is closed without an answer is a refusal too."""

    def to_bytes(self, values: Mapping[str, str]) -> bytes:
        body = _filled(self.body, values).encode("utf-8", "surrogateescape")
        headers = [_filled(one, values) for one in self.headers]
        if not any(one.lower().startswith(("host:", "no-host")) for one in headers):
            headers.insert(0, "Host: 127.0.0.1")
        if not any(one.lower().startswith(("content-length:", "transfer-encoding:")) for one in headers):
            headers.append(f"Content-Length: {len(body)}")
        sent = [one for one in headers if not one.startswith("no-host")]
        head = "\r\n".join([_filled(self.line, values), *sent, "Connection: close", "", ""])
        return head.encode("latin-1", "replace") + body


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _post(
    name: str, body: object, *headers: str, call: str = "get-commits", token: str = "good", **more: object
) -> BadRequest:
    text = body if isinstance(body, str) else json.dumps(body)
    sent = (f"Authorization: Bearer {{{token}}}",) if token else ()
    kinds = () if any(one.lower().startswith("content-type") for one in headers) else (_JSON,)
    return BadRequest(
        name=name,
        line=f"POST /v1/{call} HTTP/1.1",
        headers=(*sent, *kinds, *headers),
        body=text,
        **more,  # type: ignore[arg-type]
    )


def _ratify(**changes: object) -> dict[str, object]:
    commit = {"table": "{place}/t", "version": 1, "txn_id": "x", "size": 2, "in_commit_timestamp": 1, "epoch": 0}
    return {"commits": [{**commit, "data": "e30=", **changes}]}


_T = {"table": "{place}/t"}

NOBODY = (
    *(
        _post(f"a question {how}", _T, *headers, token="", allowed=NOT_LET_IN)
        for how, headers in {
            "without a token": (),
            "with an empty token": ("Authorization: Bearer ",),
            "with a password": ("Authorization: Basic YWRtaW46YWRtaW4=",),
            "with a token of nobody": (f"Authorization: Bearer lks_{'0' * 12}_{'A' * 43}",),
            "with a token that ran out": ("Authorization: Bearer {expired}",),
            "with a token that was revoked": ("Authorization: Bearer {revoked}",),
            "with a token and a letter more": ("Authorization: Bearer {good}x",),
            "with a token in other letters": ("Authorization: Bearer {upper}",),
            "with an unsigned token of its own": ("Authorization: Bearer eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ.",),
            "with two tokens": (f"Authorization: Bearer lks_{'1' * 12}_{'A' * 43}", "Authorization: Bearer {good}"),
            "with a token as a cookie": ("Cookie: token={good}; session={good}",),
            "that says who it is for": (
                "X-Forwarded-User: admin",
                "X-Remote-User: admin",
                "X-Forwarded-For: 127.0.0.1",
            ),
            "with a token of SQL": ("Authorization: Bearer ' OR '1'='1",),
        }.items()
    ),
    BadRequest(name="a token in the address", line="GET /v1/owner?token={good} HTTP/1.1", allowed=NOT_LET_IN),
    BadRequest(name="the numbers of the service", line="GET /metrics HTTP/1.1", allowed=NOT_LET_IN),
    BadRequest(name="the list of tables", line="GET /v1/tables HTTP/1.1", allowed=NOT_LET_IN),
)

BEYOND = (
    _post("a table beside one's folder", {"table": "{place}/other"}, token="narrow", allowed=NOT_LET_IN),
    _post("a table of a like name", {"table": "{place}/mine2/t"}, token="narrow", allowed=NOT_LET_IN),
    _post("a table by way of one's folder", {"table": "{place}/mine/../other"}, token="narrow"),
    _post("a table by an escaped way", {"table": "{place}/mine/%2e%2e/other"}, token="narrow"),
    _post("a commit of a reader", _ratify(table="{place}/mine/t"), call="ratify", token="narrow", allowed=NOT_LET_IN),
    _post(
        "a release by a reader", {"table": "{place}/mine/t", "release_id": "r"}, call="begin-release", token="narrow"
    ),
    _post("a table dropped by a reader", {"table": "{place}/mine/t"}, call="drop", token="narrow", allowed=NOT_LET_IN),
    _post("a lease for a reader", {"name": "x", "holder": "y", "seconds": 1}, call="acquire-lease", token="narrow"),
    _post("rights that one gives oneself", {"name": "x.y", "role": "admin"}, call="grant-role", token="narrow"),
    _post(
        "a catalog's tables for a reader of files", {}, call="list-catalogs", token="narrow", allowed=REFUSED | {200}
    ),
    _post("a table beyond what is served", {"table": "file:///etc"}),
    _post("the service's own files", {"table": "file:///proc/self"}),
    _post("a table on another machine", {"table": "file://evil.example.com/t"}),
    _post("a table in somebody's bucket", {"table": "s3://somebody/t"}),
    _post("a table at an address within", {"table": "http://169.254.169.254/latest/meta-data"}),
    _post("a staged file elsewhere", _ratify(data=None, file="../../../etc/passwd"), call="ratify"),
    _post("a staged file of another version", _ratify(data=None, file=f"{9:020}.{'a' * 8}.json"), call="ratify"),
    _post(
        "rows of the ledger with a commit",
        {**_ratify(), "records": [{"table": "tokens", "key": {}, "values": {}}]},
        call="ratify",
    ),
    _post("a commit that is smaller than it says", _ratify(size=2**62), call="ratify"),
    _post("a version before the first", _ratify(version=-1), call="ratify"),
    _post("a version that no number holds", _ratify(version=2**70), call="ratify"),
)

SPOILT = (
    _post("a message that is no JSON", "{"),
    _post("a message in another kind", "table=x", "Content-Type: application/x-www-form-urlencoded"),
    _post("a message that a page could send", _T, "Content-Type: text/plain", "Origin: http://evil.example.com"),
    _post("a list a thousand deep", "[" * 1000 + "]" * 1000),
    _post("an object 100,000 deep", '{"a":' * 100_000 + "1" + "}" * 100_000),
    _post("a number of 10,000 digits", '{"table":"{place}/t","start_version":' + "9" * 10_000 + "}"),
    _post("a text that is not Unicode", '{"table":"\udcff\udcfe"}'),
    _post("half a letter", '{"table":"\\ud800"}'),
    _post("a name with an end in it", {"table": "{place}/t\u0000/other"}),
    _post("a name with a line's end", {"table": "{place}/t\r\nX-Evil: 1"}),
    _post("a name of 100,000 letters", {"table": "{place}/" + "x" * 100_000}),
    _post("a name of SQL", {"table": "'; DROP TABLE commits; --"}),
    _post("a name that is an object", {"table": {"$ne": None}}),
    _post("a body that is said to be enormous", "", "Content-Length: 99999999999"),
    _post("a body of less than nothing", "", "Content-Length: -1"),
    _post("two lengths", _T, "Content-Length: 5", "Content-Length: 50"),
    _post(
        "a length and chunks",
        "0\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ),
    _post("chunks of an odd size", "zz\r\n\r\n", "Transfer-Encoding: chunked"),
    _post("a body that is packed", _T, "Content-Encoding: gzip"),
)

ROADS = (
    BadRequest(name="a file by its path", line="GET /../../../../etc/passwd HTTP/1.1", headers=(_GOOD,)),
    BadRequest(name="a file by an escaped path", line="GET /static/%2e%2e/%2e%2e/app.py HTTP/1.1", headers=(_GOOD,)),
    BadRequest(
        name="an address of another host", line="GET http://evil.example.com/v1/owner HTTP/1.1", allowed=REFUSED
    ),
    BadRequest(name="a method that nobody has", line="BREW /v1/owner HTTP/1.1", headers=(_GOOD,)),
    BadRequest(name="what was sent, sent back", line="TRACE /v1/owner HTTP/1.1", headers=(_GOOD,)),
    BadRequest(name="a tunnel", line="CONNECT 127.0.0.1:22 HTTP/1.1", headers=(_GOOD,)),
    BadRequest(
        name="another method in a header", line="GET /v1/drop HTTP/1.1", headers=(_GOOD, "X-HTTP-Method-Override: POST")
    ),
    BadRequest(name="a head without an end", line="GET /v1/owner HTTP/1.1", headers=("X-Large: " + "x" * 200_000,)),
    BadRequest(name="a header with a space in its name", line="GET /v1/owner HTTP/1.1", headers=("Bad Name: x",)),
    BadRequest(
        name="a question whose numbers are none",
        line="GET /v1/tables?prefix=%00 HTTP/1.1",
        headers=(_GOOD,),
        allowed=REFUSED | {200},
    ),
    BadRequest(
        name="an upgrade to what is not spoken",
        line="GET /v1/owner HTTP/1.1",
        headers=("Connection: Upgrade", "Upgrade: websocket"),
    ),
    BadRequest(name="no HTTP at all", line="\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
)

ALL = (*NOBODY, *BEYOND, *SPOILT, *ROADS)


def send(url: str, request: BadRequest, values: Mapping[str, str]) -> tuple[int, bytes]:
    """The status, 0 where the connection was closed without one; and all that was said."""
    host, _, port = url.removeprefix("http://").partition(":")
    said = b""
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        try:
            connection.sendall(request.to_bytes(values))
            while part := connection.recv(65536):
                said += part
        except (ConnectionError, TimeoutError):
            pass
    head = said.split(b"\r\n", 1)[0].split()
    return (int(head[1]) if len(head) > 1 and head[1].isdigit() else 0), said


def wrong(request: BadRequest, status: int, said: bytes) -> str:
    """What is wrong with the answer; empty if nothing is."""
    if status and status not in request.allowed:
        return f"{request.name}: {status}"
    for secret in (b"Traceback", b"site-packages", b"root:x:0", b"ledger.db", b"sqlite3.", b"X-Evil: 1\r\n"):
        if secret in said:
            return f"{request.name}: the answer tells {secret.decode()!r}"
    return ""
