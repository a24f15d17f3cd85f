"""Who is given which credential, and that nobody else sees one."""

from __future__ import annotations

from typing import Any

import pytest

from lakeseal.errors import InvalidArgument
from lakeseal.service.access import Caller, Grant
from lakeseal.service.credentials import Credentials
from lakeseal.service.settings import ServiceSettings

SECRET = "s3cr3t"


def entry(prefix: str, operation: str, key: str) -> dict[str, Any]:
    return {"prefix": prefix, "operation": operation, "config": {"s3.access-key-id": key, "s3.secret": SECRET}}


CONFIGURED = (
    entry("s3://lake", "READ", "all"),
    entry("s3://lake/team", "READ", "team"),
    entry("s3://lake/team", "READ_WRITE", "team writes"),
)


def given(table: str, operation: str, *grants: str) -> str | None:
    caller = Caller(principal="x", token_id="x", grants=tuple(map(Grant.from_text, grants)))
    found = Credentials(CONFIGURED).of(table, operation, caller)
    return found[0].config["s3.access-key-id"] if found else None


@pytest.mark.parametrize(
    ("table", "operation", "grants", "key"),
    [
        ("s3://lake/team/t", "READ", ["reader"], "team"),
        ("s3://lake/team/t", "READ", ["reader:s3://lake/team"], "team"),
        ("s3://lake/team/t", "READ", ["reader:s3://lake/team/t"], None),
        ("s3://lake/other/t", "READ", ["reader"], "all"),
        ("s3://lake/other/t", "READ", ["reader:s3://lake/other"], None),
        ("s3://lake/team/t", "READ_WRITE", ["reader"], None),
        ("s3://lake/team/t", "READ_WRITE", ["writer:s3://lake/team"], "team writes"),
        ("s3://lake/team/t", "READ_WRITE", ["reader", "writer:s3://lake/team/t"], None),
        ("s3://lake/other/t", "READ_WRITE", ["admin"], None),
        ("s3://lake/teams/t", "READ_WRITE", ["admin"], None),
        ("s3://elsewhere/t", "READ", ["admin"], None),
    ],
)
def test_a_credential_is_for_whom_its_whole_prefix_is(
    table: str, operation: str, grants: list[str], key: str | None
) -> None:
    assert given(table, operation, *grants) == key


def test_what_is_no_credential_is_refused_without_its_secret() -> None:
    for wrong in ({**CONFIGURED[0], "operation": "FLY"}, {**CONFIGURED[0], "x": SECRET}, {"config": {"a": SECRET}}):
        with pytest.raises(InvalidArgument) as raised:
            Credentials((wrong,))
        assert SECRET not in str(raised.value)
    with pytest.raises(InvalidArgument, match="prefix"):
        Credentials((entry("", "READ", "x"),))
    with pytest.raises(InvalidArgument, match="operation"):
        given("s3://lake/t", "FLY", "admin")
    assert SECRET not in repr(ServiceSettings(ledger="sqlite://", credentials=CONFIGURED))
