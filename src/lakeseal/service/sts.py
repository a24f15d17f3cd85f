"""`Sts`: short-lived credentials for S3, from whoever speaks AWS's Security Token Service: AssumeRole, signed.

What it lends opens one table and nothing beside it: the role that is assumed is narrowed by a session policy to the
table's files, and to reading where reading was asked for. It is lent again until half of its time is over.

Signing (Signature Version 4) is written out: a dependency on the vendor's SDK for one request would outweigh all others
together. The test holds it against that SDK's own signer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from collections import OrderedDict
from datetime import datetime
from typing import Annotated
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from msgspec import Meta, Struct

from lakeseal.clock import now, now_ms
from lakeseal.errors import InvalidArgument, StorageError, StorageUnavailable
from lakeseal.service.http_client import ALLOW_HTTP_VARIABLE
from lakeseal.service.settings import is_loopback
from lakeseal.storage.location import parse

READS = ("s3:GetObject",)
WRITES = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_TIMEOUT = httpx.Timeout(10.0)
_MOST_KEPT = 10_000
_MOST_REPLY = 2**20
_FORM = "application/x-www-form-urlencoded; charset=utf-8"


class StsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    endpoint: str
    role_arn: Annotated[str, Meta(min_length=1, max_length=2048)]
    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    region: str = "us-east-1"
    duration_seconds: Annotated[int, Meta(ge=900, le=43_200)] = 3600
    partition: str = "aws"
    """Of resources' names: `arn:<partition>:s3:::…`."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
            raise InvalidArgument("The endpoint of STS is https://host[:port]")
        if parts.scheme == "http" and not is_loopback(parts.hostname) and os.environ.get(ALLOW_HTTP_VARIABLE) != "1":
            raise InvalidArgument(
                f"Credentials would travel from {parts.hostname} in the clear",
                hint=f"Use https://, or set {ALLOW_HTTP_VARIABLE}=1 if the network between is yours alone",
            )

    def __repr__(self) -> str:
        return f"sts({self.endpoint!r}, {self.role_arn!r})"


class LentCredential(Struct, frozen=True, kw_only=True):
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_ms: int

    def __repr__(self) -> str:
        return f"a credential until {self.expires_ms}"


class Sts:
    """For any thread."""

    def __init__(self, settings: StsSettings) -> None:
        self._settings = settings
        self._lent: OrderedDict[tuple[str, bool], tuple[int, LentCredential]] = OrderedDict()
        self._lock = threading.Lock()

    def lend(self, table: str, *, writes: bool) -> LentCredential:
        """For the files of one table."""
        key = (table, writes)
        with self._lock:
            until, found = self._lent.get(key, (0, None))
        now = now_ms()
        if found is not None and now < until:
            return found
        made = self._assume(table, writes=writes)
        with self._lock:
            self._lent[key] = ((now + made.expires_ms) // 2, made)
            self._lent.move_to_end(key)
            while len(self._lent) > _MOST_KEPT:
                self._lent.popitem(last=False)
        return made

    def _assume(self, table: str, *, writes: bool) -> LentCredential:
        said = self._settings
        form = {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            "RoleArn": said.role_arn,
            "RoleSessionName": "lakeseal-" + hashlib.sha256(table.encode()).hexdigest()[:16],
            "DurationSeconds": str(said.duration_seconds),
            "Policy": policy_for(table, writes=writes, partition=said.partition),
        }
        body = "&".join(f"{name}={quote(text, safe='-_.~')}" for name, text in form.items()).encode()
        headers = signed_headers(said, body, now())
        try:
            answer = httpx.post(said.endpoint, content=body, headers=headers, timeout=_TIMEOUT, follow_redirects=False)
        except httpx.HTTPError as error:
            raise StorageUnavailable(f"STS at {said.endpoint} does not answer: {type(error).__name__}") from None
        text = answer.text[:_MOST_REPLY]
        if answer.status_code != 200:
            why = _element(text, "Code") or str(answer.status_code)
            failure = StorageUnavailable if answer.status_code >= 500 else StorageError
            raise failure(
                f"STS at {said.endpoint} lends nothing: {why}", hint="Check the role and the keys of --credentials"
            )
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
        found = [_element(text, name) for name in names]
        if any(one is None for one in found):
            raise StorageError(f"What answers at {said.endpoint} is no STS")
        key_id, secret, token, expires = (one or "" for one in found)
        return LentCredential(
            access_key_id=key_id, secret_access_key=secret, session_token=token, expires_ms=_millis(expires)
        )


def policy_for(table: str, *, writes: bool, partition: str = "aws") -> str:
    """What a credential for one table allows: its files, and lists of them."""
    place = parse(table)
    if place.kind != "s3":
        raise InvalidArgument("STS lends credentials for tables on S3 only", table=table)
    bucket = f"arn:{partition}:s3:::{place.bucket}"
    # In a policy these stand for others, unless they are written so.
    path = re.sub(r"[*?$]", lambda found: f"${{{found[0]}}}", place.path)
    if not path:
        raise InvalidArgument("A table that is a whole bucket is lent to nobody", table=table)
    files = {"Effect": "Allow", "Action": WRITES if writes else READS, "Resource": f"{bucket}/{path}/*"}
    # With its slash: without it, a list has what is beside the table too, whose name begins alike.
    lists = {
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": bucket,
        "Condition": {"StringLike": {"s3:prefix": [f"{path}/", f"{path}/*"]}},
    }
    return msgspec.json.encode({"Version": "2012-10-17", "Statement": [files, lists]}).decode()


def signed_headers(settings: StsSettings, body: bytes, now: datetime) -> dict[str, str]:
    """Of a POST of this body to the endpoint, by Signature Version 4."""
    parts = urlsplit(settings.endpoint)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"content-type": _FORM, "host": parts.netloc, "x-amz-date": stamp}
    if settings.session_token is not None:
        headers["x-amz-security-token"] = settings.session_token
    names = ";".join(sorted(headers))
    asked = "\n".join(
        [
            "POST",
            quote(parts.path or "/", safe="/-_.~"),
            "",
            *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{day}/{settings.region}/sts/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = b"AWS4" + settings.secret_access_key.encode()
    for part in (day, settings.region, "sts", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{settings.access_key_id}/{scope}"
    said = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": said}


def _element(text: str, name: str) -> str | None:
    """The text of an element that stands once in a reply; keys and tokens hold nothing that XML would escape."""
    found = re.search(f"<{name}>([^<>&]{{1,20000}})</{name}>", text)
    return None if found is None else found[1].strip()


def _millis(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise StorageError("STS says no time until which its credential holds") from None
