"""The books of a service's ledger: who may use them, and what is answered to nonsense. What they promise is tested
in tests/steps, over every implementation."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakeseal.errors import NotAllowed, RequestTooLarge, WatermarkMoved
from lakeseal.service.book_calls import BOOK_CALLS
from lakeseal.service.call import ServiceCall
from lakeseal.service.client import HttpOwner
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.watermarks import WatermarkChange
from support.examples import examples

P, S = {"pipeline": "p"}, {"store": "s", "dataset": "d"}
RECORD = {"payload": "", "count": 0, "checksum": ""}
LEASE = {"lease": "ingest p", "holder": "me", "seconds": 1}
# A request that is well formed, for each call.
ASKED: dict[str, dict[str, Any]] = {
    "read_watermarks": P,
    "advance_watermarks": {**P, "dataset": "d", "changes": [{"partition": "0", "expected": None, "value": 1}]},
    "reset_watermarks": {**P, "dataset": "d", "values": {"0": 1}},
    "acquire_lease": LEASE,
    "look_at_lease": {"lease": LEASE["lease"]},
    "renew_lease": {**LEASE, "epoch": 1},
    "release_lease": {**LEASE, "epoch": 1},
    "begin_run": {**P, "run_id": "r", "epoch": 1},
    "end_run": {"run": {**P, "run_id": "r", "state": "published", "started_ms": 0}},
    "list_runs": P,
    "list_stores": {},
    "store_exists": {"store": "s"},
    "create_store": {"store": "s"},
    "remove_store": {"store": "none"},
    "list_sequences": S,
    "get_sequence": S,
    "claim_datasets": {"store": "s", "datasets": ["d"], "epoch": 1},
    "put_sequence": {**S, "record": RECORD},
    "note_sequence": {**S, "checksum": "c", "epoch": 1},
    "remove_sequence": {**S, "checksum": "c", "epoch": 1},
    "list_task_states": {**S, "run": "r"},
    "count_tasks": {**S, "run": "r"},
    "report_task": {**S, "run": "r", "state": {"task": 0, "tasks": 1}},
    "remove_task_states": {"store": "s"},
}


def test_each_call_needs_its_role_for_all_tables(closed_service, data) -> None:
    by_name = {call.name: call for call in BOOK_CALLS}
    assert by_name.keys() == ASKED.keys()
    reader, writer, elsewhere = (closed_service.token(grant) for grant in ("reader", "writer", f"admin:{data}"))
    for name, asked in ASKED.items():
        path = name.replace("_", "-")
        assert closed_service.post(path, asked).status_code == 401
        assert closed_service.post(path, asked, token=elsewhere).status_code == 403
        assert closed_service.post(path, asked, token=reader).status_code == (403 if by_name[name].decides else 200)
        answer = closed_service.post(path, asked, token=writer)
        # An empty record is well formed and not whole.
        assert answer.status_code == {"put_sequence": 422}.get(name, 200), (name, answer.text)


def test_the_description_has_the_books(open_service) -> None:
    described = open_service.get("/openapi.json").json()
    for call in BOOK_CALLS:
        schema = described["paths"][call.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["$ref"].rpartition("/")[2] in described["components"]["schemas"]


numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.just(10**400))
values = st.one_of(
    st.none(), numbers, st.text(max_size=5), st.just("\x00"), st.just([]), st.just({}), st.just({"epoch": 10**30})
)
FIELDS = sorted({field for asked in ASKED.values() for field in asked} | {"turn", "reason", "tries", "limit", "detail"})


@examples(20, 200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(BOOK_CALLS), st.dictionaries(st.sampled_from(FIELDS), values, max_size=3))
def test_nonsense_is_refused_and_harms_nothing(
    open_service, call: type[ServiceCall[Any]], wrong: dict[str, Any]
) -> None:
    answer: httpx.Response = open_service.post(call.path.removeprefix("/v1/"), {**ASKED[call.name], **wrong})
    assert answer.status_code in (200, 400, 403, 404, 409, 422), answer.text
    if answer.status_code != 200:
        assert json.loads(answer.content)["error"]["kind"] not in ("lakeseal", "unknown-outcome")


@pytest.mark.parametrize("name", ["publisher", "ingest", ""])
def test_only_leases_of_pipelines_are_given(open_service, name: str) -> None:
    answer = open_service.post("acquire-lease", {**LEASE, "lease": name})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "invalid-argument")


def test_what_a_pipeline_records_may_be_larger_than_other_requests(closed_service, data) -> None:
    """The service takes 20,000 bytes of a commit, and 4,000,000 of this."""
    owner = HttpOwner(closed_service.url, token=closed_service.token("writer"))
    books = owner.books()
    renames = [Rename(f"task-output/{n}", f"job-output/{n}", n, "0" * 32) for n in range(2000)]
    step = FsRenameCommitStep(source=f"file://{data}/s", target=f"file://{data}/t", files=tuple(renames))
    sequence = CommitSequence.builder("large", "d").add(step).build()
    books.sequences.put(sequence)
    books.sequences.put(sequence)
    assert books.sequences.get_commit_sequence("large", "d") == replace(sequence, checksum=sequence.record().checksum)
    changes = [WatermarkChange(partition=str(n), expected=None, value=n) for n in range(1000)]
    books.watermarks.advance("large", "d", changes)
    assert len(books.watermarks.read("large", "d")) == 1000
    with pytest.raises(WatermarkMoved):
        books.watermarks.advance("large", "d", [replace(change, value=-1) for change in changes])
    # More than is sent without asking first, and more than is ever taken.
    books.watermarks.reset("large", "d", {"0": "x" * 2_000_000})
    assert len(books.watermarks.read("large", "d")["0"]) == 2_000_000
    with pytest.raises(RequestTooLarge):
        books.watermarks.reset("large", "d", {"0": "x" * 5_000_000})
    owner.close()


def test_a_sequence_that_reaches_out_of_the_roots_is_not_recorded(closed_service, data) -> None:
    (data / "link").symlink_to(data.parent)
    inside, file = f"file://{data}/a", Rename("s", "t", 1, "0" * 64)
    escapes = {
        "a target": CommitSequence.builder("escapes", "target").add(
            FsRenameCommitStep(source=inside, target=f"file://{data.parent}/b", files=(file,))
        ),
        "a source": CommitSequence.builder("escapes", "source").add(
            FsRenameCommitStep(source=f"file://{data}0/a", target=inside, files=(file,))
        ),
        "a link": CommitSequence.builder("escapes", "link").add(
            FsRenameCommitStep(source=inside, target=f"file://{data}/link/b", files=(file,))
        ),
        "another store": CommitSequence.builder("escapes", "store").add(
            FsRenameCommitStep(source=inside, target="s3://bucket/b", files=(file,))
        ),
        "what is removed at the end": CommitSequence.builder("escapes", "remove")
        .add(FsRenameCommitStep(source=inside, target=inside, files=(file,)))
        .then_remove(str(data.parent), "precious/"),
    }
    owner = HttpOwner(closed_service.url, token=closed_service.token("writer"))
    steps = owner.books().sequences
    try:
        for what, builder in escapes.items():
            sequence = builder.build()
            with pytest.raises(NotAllowed):
                steps.put(sequence)
            assert not steps.exists(sequence.store, sequence.dataset), what
        fine = CommitSequence.builder("escapes", "none").add(
            FsRenameCommitStep(source=inside, target=f"file://{data}/b", files=(file,))
        )
        steps.put(fine.build())
        assert steps.exists("escapes", "none")
    finally:
        owner.close()
        (data / "link").unlink()
