"""What of the lakeFS store needs no server; all else is in tests/peers/test_lakefs.py."""

from __future__ import annotations

import socket

import pytest

from lakeseal import Repository
from lakeseal.branches import lakefs
from lakeseal.branches.lakefs.jobs import branch_name
from lakeseal.branches.lakefs.options import Options
from lakeseal.branches.lakefs.repository import change_tables
from lakeseal.branches.values import Change, ChangeKind, Entry, changes_of
from lakeseal.errors import InvalidArgument, InvalidUri, StorageUnavailable

KEYS = {
    "lakefs_endpoint": "http://127.0.0.1:1",
    "lakefs_access_key_id": "an-id",
    "lakefs_secret_access_key": "a-secret",
}


@pytest.fixture(autouse=True)
def without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "LOCAL_PATH"):
        monkeypatch.delenv(f"LAKESEAL_LAKEFS_{name}", raising=False)
    for name in ("SERVER_ENDPOINT_URL", "CREDENTIALS_ACCESS_KEY_ID", "CREDENTIALS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"LAKECTL_{name}", raising=False)


def test_options_come_before_our_variables_and_those_before_lakectls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://lakectl")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "lakectl-id")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "lakectl-secret")
    monkeypatch.setenv("LAKESEAL_LAKEFS_ACCESS_KEY_ID", "our-id")

    found = Options.of({"lakefs_endpoint": "http://given", "aws_region": "here"})

    assert (found.endpoint, found.access_key_id, found.secret_access_key) == (
        "http://given",
        "our-id",
        "lakectl-secret",
    )
    assert found.storage == {"aws_region": "here"}
    assert not found.unguarded


def test_what_is_missing_is_named_with_the_variable_to_set() -> None:
    for name in KEYS:
        with pytest.raises(InvalidArgument, match=name.upper()):
            Repository.open("lakefs://repo", storage_options={key: KEYS[key] for key in KEYS if key != name})


def test_an_option_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="lakefs_endpiont"):
        Options.of({**KEYS, "lakefs_endpiont": "x"})


def test_secrets_are_not_shown() -> None:
    found = Options.of({**KEYS, "lakefs_endpoint": "https://somebody:another-secret@lake.example:8000/api"})

    assert repr(found) == "Options(endpoint='https://lake.example:8000')"


@pytest.mark.parametrize("uri", ["lakefs://", "lakefs://repo/main", "s3://bucket"])
def test_uris_that_name_no_repository_are_refused(uri: str) -> None:
    with pytest.raises(InvalidUri):
        lakefs.open(uri, storage_options=KEYS)


def test_a_server_that_is_not_there_is_told_without_secrets() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        options = {**KEYS, "lakefs_endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}"}
        with pytest.raises(StorageUnavailable, match="did not answer") as caught:
            Repository.open("lakefs://repo", storage_options=options)
    assert "a-secret" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_a_jobs_branch_can_be_worked_out_and_is_a_name_that_lakefs_allows() -> None:
    name = branch_name("out/päth", "job 1/é")

    assert name == branch_name("out/päth/", "job 1/é")
    assert name.startswith("lakeseal-job-out-p-th-")
    assert name.replace("-", "").isalnum()
    assert len({branch_name(path, job) for path in ("", "a", "a/b", "a-b") for job in ("1", "2")}) == 8


def test_changes_become_tables_and_are_read_back() -> None:
    def entry(path: str, size: int) -> Entry:
        return Entry(path=path, address=f"data/{path}", size=size, checksum=f"c{size}", metadata={"rows": "1"})

    changes = [
        Change(path="a", kind=ChangeKind.ADDED, after=entry("a", 1)),
        Change(path="b", kind=ChangeKind.CHANGED, before=entry("b", 1), after=entry("b", 2)),
        Change(path="c", kind=ChangeKind.REMOVED, before=entry("c", 1)),
    ]

    assert [back for table in change_tables(iter(changes)) for back in changes_of(table)] == changes
    assert [*change_tables(iter(()))] == []
