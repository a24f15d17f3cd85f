"""Short-lived credentials: signed as the vendor's own SDK signs, lent by moto's STS, and used to read and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

import lakeseal
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument, StorageError, StorageUnavailable
from lakeseal.service import tokens
from lakeseal.service.access import Caller, Grant
from lakeseal.service.credentials import READ, READ_WRITE, Credentials
from lakeseal.service.sts import Sts, StsSettings, policy_for, signed_headers
from lakeseal.testing.proxy import faulty_proxy
from lakeseal.testing.s3 import S3Server, s3_server
from lakeseal.testing.service import service_inside

SECRET = "s3cr3t"
ROLE = "arn:aws:iam::123456789012:role/lake"


def settings(endpoint: str, **more: Any) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "role-arn": ROLE,
        "access-key-id": "AKIAXXXXXXXXXXXXXXXX",
        "secret-access-key": SECRET,
        **more,
    }


def configured(s3: S3Server, prefix: str) -> list[dict[str, Any]]:
    config = {"s3.endpoint": s3.endpoint, "s3.region": "us-east-1"}
    return [
        {"prefix": prefix, "operation": operation, "config": config, "sts": settings(s3.endpoint)}
        for operation in (READ, READ_WRITE)
    ]


def caller(*grants: str) -> Caller:
    return Caller(principal="x", token_id="x", grants=tuple(map(Grant.from_text, grants)))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as found:
        yield found


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("endpoint", ["https://sts.eu-central-1.amazonaws.com", "https://sts.example.com:8443/a b"])
def test_a_request_is_signed_as_the_vendors_sdk_signs_it(endpoint: str, token: str | None) -> None:
    said = StsSettings(
        endpoint=endpoint, role_arn=ROLE, access_key_id="AKIA", secret_access_key=SECRET, session_token=token
    )
    body = b"Action=AssumeRole&Policy=%7B%22a%22%3A%20%22%2A%22%7D"
    theirs = AWSRequest(
        "POST", endpoint, headers={"content-type": "application/x-www-form-urlencoded; charset=utf-8"}, data=body
    )
    SigV4Auth(BotoCredentials("AKIA", SECRET, token), "sts", said.region).add_auth(theirs)
    moment = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert signed_headers(said, body, moment)["Authorization"] == theirs.headers["Authorization"]


def test_a_credential_is_for_one_table_and_for_whom_that_table_is(s3: S3Server) -> None:
    lends = Credentials(configured(s3, "s3://lake/tables"))
    (read,) = lends.of("s3://lake/tables/a", READ, caller("reader:s3://lake/tables/a"))
    assert read.prefix == "s3://lake/tables/a"
    assert read.config["s3.session-token"]
    assert read.config["s3.endpoint"] == s3.endpoint
    assert read.expiration_time_ms is not None
    assert now_ms() + 3_000_000 < read.expiration_time_ms < now_ms() + 4_000_000
    assert lends.of("s3://lake/tables/a", READ_WRITE, caller("reader:s3://lake/tables/a")) == ()
    assert lends.of("s3://lake/tables/b", READ, caller("reader:s3://lake/tables/a")) == ()
    assert lends.of("s3://lake/elsewhere", READ, caller("admin")) == ()
    (write,) = lends.of("s3://lake/tables/a", READ_WRITE, caller("writer:s3://lake/tables/a"))
    assert write.config["s3.access-key-id"] != read.config["s3.access-key-id"]
    assert lends.of("s3://lake/tables/a", READ, caller("admin")) == (read,), "lent again while it lasts"


def test_a_policy_opens_the_tables_files_and_no_others() -> None:
    files, lists = json.loads(policy_for("s3://lake/a*/b?$", writes=False))["Statement"]
    assert files["Resource"] == "arn:aws:s3:::lake/a${*}/b${?}${$}/*"
    assert files["Action"] == ["s3:GetObject"]
    assert lists["Condition"]["StringLike"]["s3:prefix"] == ["a${*}/b${?}${$}/", "a${*}/b${?}${$}/*"]
    (writes, _) = json.loads(policy_for("s3://lake/t", writes=True))["Statement"]
    assert "s3:PutObject" in writes["Action"]
    for wrong in ("gs://lake/t", "s3://lake"):
        with pytest.raises(InvalidArgument):
            policy_for(wrong, writes=True)


def test_an_sts_that_refuses_or_is_none_is_an_error_without_secrets(s3: S3Server) -> None:
    refuses = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    from lakeseal.testing.proxy import Reply

    for status, text, kind, said in (
        (403, refuses, StorageError, "AccessDenied"),
        (503, "", StorageUnavailable, "503"),
        (200, "<html></html>", StorageError, "no STS"),
        (302, "", StorageError, "302"),
    ):
        reply = Reply(status=status, body=text.encode())
        with faulty_proxy(s3.endpoint, lambda _, reply=reply: reply) as proxy:
            lends = Sts(StsSettings(**{k.replace("-", "_"): v for k, v in settings(proxy.endpoint).items()}))
            with pytest.raises(kind, match=said) as raised:
                lends.lend("s3://lake/t", writes=False)
            assert SECRET not in str(raised.value)
    with pytest.raises(InvalidArgument, match="clear"):
        Credentials([{"prefix": "s3://a", "operation": READ, "sts": settings("http://sts.example.com")}])
    with pytest.raises(InvalidArgument, match="for S3"):
        Credentials([{"prefix": "gs://a", "operation": READ, "sts": settings("https://sts.example.com")}])
    with pytest.raises(InvalidArgument, match="neither"):
        Credentials([{"prefix": "s3://a", "operation": READ}])


def test_a_client_reads_and_writes_a_table_with_what_the_catalog_lends(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = s3.uri("tables")
    options = {**s3.storage_options}
    with service_inside(
        ledger=f"sqlite:///{tmp_path}/ledger.db",
        roots=(root,),
        storage_options=options,
        credentials=tuple(configured(s3, root)),
    ) as (url, service):
        token, _ = tokens.create(service.ledger, "me", (Grant.from_text("admin"),), now=now_ms())
        theirs = lakeseal.Catalog(url, token=token, kind="unity")
        theirs.create_schema("sales")
        table = theirs.create("sales.orders", pa.schema([("id", pa.int64())]), kind="catalog")
        table.write(pa.table({"id": [1, 2]}))
        assert table.spec.storage_options["aws_session_token"]
        assert sorted(theirs.table("sales.orders").to_arrow()["id"].to_pylist()) == [1, 2]
        assert "aws_session_token" in repr(table.spec)
        assert table.spec.storage_options["aws_session_token"] not in repr(table.spec)
