from __future__ import annotations

import pytest

from lakeseal.errors import BrokenSequence, InvalidArgument, UnknownStep
from lakeseal.steps import CommitSequence, CommitStep, StepContext, register, step
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.sequence import Leftover, SequenceRecord
from lakeseal.steps.watermarks import WatermarkChange
from support.published_rows import Say


class Ringing(CommitStep, frozen=True, kw_only=True, tag="test-ringing"):
    times: int

    def verify(self, context: StepContext) -> bool:
        return True

    def execute(self, context: StepContext) -> None: ...


def test_steps_come_back_from_their_records() -> None:
    steps = [
        FsRenameCommitStep(source="file:///a", target="s3://b/c", files=(Rename("é 😀", "%2F", 3, "ab"),)),
        HighWatermarkCommitStep(
            pipeline="p", dataset="d", changes=(WatermarkChange(partition="0", expected=None, value={"a": [1]}),)
        ),
        Say(directory="/d", word="w"),
    ]

    assert [step.decode(step.encode(one)) for one in steps] == steps


def test_a_users_kind_must_be_registered_before_it_is_recorded_or_read() -> None:
    with pytest.raises(InvalidArgument, match="is not registered"):
        step.encode(Ringing(times=3))
    with pytest.raises(UnknownStep, match="test-ringing"):
        step.decode(b'{"kind":"test-ringing","times":3}')

    register(Ringing)

    assert step.decode(step.encode(Ringing(times=3))) == Ringing(times=3)


@pytest.mark.field_bug("S6")
def test_s6_a_record_never_names_what_is_imported_or_run() -> None:
    for kind in ("os.system", "lakeseal.steps.fs_rename", "builtins", "__main__:x", "../fs-rename"):
        with pytest.raises(UnknownStep):
            step.decode(f'{{"kind":"{kind}","command":"true"}}'.encode())


def test_a_kind_belongs_to_one_class() -> None:
    class Impostor(CommitStep, frozen=True, kw_only=True, tag="fs-rename"):
        pass

    with pytest.raises(InvalidArgument, match="FsRenameCommitStep"):
        register(Impostor)


@pytest.mark.parametrize(
    "record", [b"", b"{", b"[]", b"{}", b'{"kind":1}', b'{"kind":"fs-rename"}', b'{"kind":"fs-rename","files":[[1]]}']
)
def test_a_malformed_step_is_a_broken_record(record: bytes) -> None:
    with pytest.raises(BrokenSequence):
        step.decode(record)


def test_w1_a_record_is_whole_or_broken() -> None:
    sequence = (
        CommitSequence.builder("s", "d").add(Say(directory="/d", word="a"), Say(directory="/d", word="b")).build()
    )
    record = sequence.record()
    assert record.count == 2
    assert record.sequence("s", "d").steps == sequence.steps

    for place in range(0, len(record.payload), 7):
        cut = SequenceRecord(payload=record.payload[:place], count=2, checksum=record.checksum)
        with pytest.raises(BrokenSequence):
            cut.sequence("s", "d")
    for payload, count in ((record.payload, 1), (record.payload + b" ", 2)):
        with pytest.raises(BrokenSequence):
            SequenceRecord(payload=payload, count=count, checksum=record.checksum).sequence("s", "d")
    for store, dataset in (("s", "e"), ("t", "d")):
        with pytest.raises(BrokenSequence, match="something else"):
            record.sequence(store, dataset)


def test_two_sequences_of_the_same_steps_are_two() -> None:
    """Bugs 38 and 39: what is new must never pass for what was done before."""
    one, other = (CommitSequence.builder("s", "d").add(Say(directory="/d", word="a")).build() for _ in range(2))

    assert one.record().checksum != other.record().checksum


def test_a_sequence_has_steps_and_removes_no_root() -> None:
    with pytest.raises(InvalidArgument, match="no steps"):
        CommitSequence.builder("s", "d").build()
    for prefix in ("", "/", "a"):
        with pytest.raises(InvalidArgument):
            Leftover(uri="file:///x", prefix=prefix)
