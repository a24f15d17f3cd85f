from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import msgspec
import pytest

from lakeseal import ledger
from lakeseal.errors import AlreadyExists, BrokenSequence, Fenced, NotFound, Refused, StorageUnavailable
from lakeseal.ledger.schema import sequences
from lakeseal.steps import CommitSequence, CommitStep, SequenceState, StepContext, StepSettings, Turn, register
from lakeseal.steps.abort import abort
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import (
    Recovery,
    RecoveryOutcome,
    RecoveryPolicy,
    RecoveryRequest,
    recover,
    recover_share,
    retry,
    shares,
)
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore
from support.published_rows import STORE, URN, Place, Say, World, saying

ONCE = RecoveryPolicy(tries=3, first_pause_s=0)


def test_bug_35_a_sequence_is_executed_and_not_thrown_away(world: World) -> None:
    sequence = world.stage(0, 30)
    sequence.commit(world.steps, world.context())

    world.check(30)
    assert [file for file in world.all_files() if file.startswith("task-output/")] == []
    assert not world.steps.exists(STORE, URN)


def test_bug_35_a_failed_step_leaves_watermark_task_output_and_record(world: World) -> None:
    sequence = world.stage(0, 30)
    world.files.delete(["task-output/run-1/urn:events/2.txt"])

    with pytest.raises(Exception, match="Neither"):
        sequence.commit(world.steps, world.context())

    assert world.watermark() == 0
    assert world.steps.exists(STORE, URN)
    assert "task-output/run-1/urn:events/1.txt" in world.all_files()


def test_a_sequence_that_was_only_recorded_is_done_by_recovery(world: World) -> None:
    world.steps.put(world.stage(0, 30))

    result = world.recover()

    assert result.clear == [URN]
    assert (result.datasets[0].outcome, result.datasets[0].executed) == (RecoveryOutcome.FINISHED, 3)
    world.check(30)
    assert world.recover().datasets == ()


def test_datasets_without_a_sequence_are_clear(world: World) -> None:
    result = world.recover(datasets=["a", "b"])

    assert result.clear == ["a", "b"]
    assert {one.outcome for one in result.datasets} == {RecoveryOutcome.NOTHING}


def test_w7_a_dataset_that_keeps_failing_is_set_aside_with_its_reason(world: World, tmp_path: Path) -> None:
    (tmp_path / "mouth").mkdir()
    (tmp_path / "mouth" / "broken").touch()
    world.steps.put(saying(tmp_path / "mouth", "hello"))
    pauses: list[float] = []

    result = recover(
        world.steps, STORE, world.context(), policy=RecoveryPolicy(tries=4, first_pause_s=1), sleep=pauses.append
    )

    assert result.clear == []
    assert result.not_clear == {URN: "RuntimeError: cannot say hello"}
    assert pauses == [1, 2, 4]
    status = world.steps.status(STORE, URN)
    assert status is not None
    assert (status.state, status.tries, status.reason) == (SequenceState.SET_ASIDE, 4, "RuntimeError: cannot say hello")
    again = world.recover()
    assert again.not_clear == {URN: "RuntimeError: cannot say hello"}, "it is not tried again by itself"

    (tmp_path / "mouth" / "broken").unlink()
    assert retry(world.steps, STORE, URN, epoch=0)
    assert world.recover().clear == [URN]
    assert (tmp_path / "mouth" / "said").read_text() == "hello\n"


def test_tries_are_counted_over_runs(world: World, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    sequence = saying(tmp_path, "hello")
    world.steps.put(sequence)
    world.steps.note(STORE, URN, checksum=sequence.record().checksum, epoch=0, tries=2, reason="earlier")

    result = world.recover()

    assert result.datasets[0].outcome is RecoveryOutcome.SET_ASIDE
    assert result.datasets[0].tries == 3


def test_a_store_that_is_away_for_a_moment_sets_nothing_aside(world: World) -> None:
    world.steps.put(world.stage(0, 30))
    faulty = FaultyStore(world.files, [Fault("move", times=2, error=StorageUnavailable)])
    context = StepContext(
        ledger=world.ledger, owners={}, open_store=lambda uri: faulty if uri == faulty.uri else open_store(uri)
    )

    result = recover(world.steps, STORE, context, policy=ONCE, sleep=lambda _: None)

    assert result.clear == [URN]
    world.check(30)


def test_w7_of_40_datasets_with_3_broken_37_are_done_and_a_retry_does_the_rest(world: World) -> None:
    names = [f"urn:{number:03}" for number in range(40)]
    broken = {names[0], names[7], names[39]}
    for name in names:
        world.steps.put(world.stage(0, 3, files=2, dataset=name))
    for name in broken:
        key = f"task-output/run-1/{name}/1.txt"
        world.files.put(key + ".away", world.files.get(key))
        world.files.delete([key])

    epoch = world.take_turn()
    result = world.recover(datasets=names, epoch=epoch)

    assert set(result.clear) == set(names) - broken
    assert set(result.not_clear) == broken
    assert all("Neither" in reason for reason in result.not_clear.values())
    assert {status.dataset for status in world.steps.statuses(STORE)} == broken
    for name in names:
        assert world.watermark(name) == (0 if name in broken else 3)
    for name in broken:
        key = f"task-output/run-1/{name}/1.txt"
        world.files.put(key, world.files.get(key + ".away"))
        assert retry(world.steps, STORE, name, epoch=epoch)

    assert world.recover(datasets=names, epoch=world.take_turn()).not_clear == {}
    for name in names:
        world.check(3, name)


def test_w5_a_dataset_with_an_open_sequence_takes_no_other(world: World) -> None:
    world.steps.put(world.stage(0, 30))

    with pytest.raises(AlreadyExists):
        world.stage(30, 30, run="run-2").commit(world.steps, world.context())

    world.recover()
    world.check(30)


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"\xff\xfe", b"[" * 5000])
def test_bug_37_a_broken_record_in_files_sets_its_dataset_aside_and_the_others_run_on(
    tmp_path: Path, damage: bytes
) -> None:
    place = Place(root=str(tmp_path), ledger=f"sqlite:///{tmp_path}/ledger.db", files=True)
    with ledger.open(place.ledger) as opened:
        world = World(place, ledger=opened)
        for name in ("a", "b", "c"):
            world.steps.put(world.stage(0, 6, dataset=name))
        root = open_store(f"{tmp_path}/steps")
        broken = [meta.key for meta in root.list(recursive=True) if b'"dataset":"b"' in root.get(meta.key)]
        root.put(broken[0], damage)

        epoch = world.take_turn()
        result = world.recover(epoch=epoch)

        assert result.clear == ["a", "c"]
        assert "broken" in result.not_clear["b"]
        world.check(6, "a")
        world.check(6, "c")
        assert world.published("b") == []
        with pytest.raises(BrokenSequence):
            world.steps.get_commit_sequence(STORE, "b")
        with pytest.raises(BrokenSequence):
            abort(world.steps, STORE, "b", world.context(), epoch=epoch)
        abort(world.steps, STORE, "b", world.context(), epoch=epoch, drop_broken=True)
        world.stage(0, 6, dataset="b", run="run-2", epoch=epoch).commit(world.steps, world.context(epoch))
        world.check(6, "b")


@pytest.mark.parametrize("damage", [b"", None, b"{}", b"cut", "one byte"])
def test_bug_37_a_broken_record_in_the_ledger_sets_its_dataset_aside_and_the_others_run_on(
    tmp_path: Path, damage: bytes | str | None
) -> None:
    place = Place(root=str(tmp_path), ledger=f"sqlite:///{tmp_path}/ledger.db")
    with ledger.open(place.ledger) as opened:
        world = World(place, ledger=opened)
        for name in ("a", "b"):
            world.steps.put(world.stage(0, 6, dataset=name))
        payload = world.stage(0, 6, dataset="b").record().payload
        new = payload[:-9] + b"X" + payload[-8:] if damage == "one byte" else damage
        opened.write(lambda tx: tx.update(sequences, {"store": STORE, "dataset": "b"}, {"payload": new}))

        result = world.recover()

        assert result.clear == ["a"]
        assert "b" in result.not_clear
        assert world.published("b") == []
        abort(world.steps, STORE, "b", world.context(), epoch=0, drop_broken=True)
        assert not world.steps.exists(STORE, "b")


def test_a_record_that_was_moved_to_another_dataset_is_not_run(world: World) -> None:
    """W1: a record is of the dataset whose name it carries, or it is broken."""
    if not isinstance(world.steps, LedgerStepStore):
        root = open_store(f"{world.place.root}/steps")
        world.steps.put(world.stage(0, 6, dataset="a"))
        (entry,) = [meta.key for meta in root.list(recursive=True) if meta.key.endswith(".entry")]
        world.steps.claim(STORE, ["b"], 1)
        (other,) = [meta.key for meta in root.list(recursive=True) if meta.key.endswith(".entry") and meta.key != entry]
        root.put(other, root.get(entry))
    else:
        world.steps.put(world.stage(0, 6, dataset="a"))
        world.steps.put(world.stage(0, 6, dataset="b"))
        row = world.ledger.read(lambda tx: tx.get(sequences, store=STORE, dataset="a"))
        assert row is not None
        stolen = {"payload": row.payload, "checksum": row.checksum}
        world.ledger.write(lambda tx: tx.update(sequences, {"store": STORE, "dataset": "b"}, stolen))

    with pytest.raises(BrokenSequence):
        world.steps.get_commit_sequence(STORE, "b")


def test_an_unknown_kind_of_step_sets_its_dataset_aside_until_it_is_known(world: World, tmp_path: Path) -> None:
    sequence = saying(tmp_path, "hello")
    record = sequence.record()
    payload = record.payload.replace(b"test-say", b"os.system")
    changed = msgspec.structs.replace(record, payload=payload, checksum=_sha(payload))

    class Forged(CommitSequence, frozen=True, kw_only=True):
        def record(self):  # type: ignore[no-untyped-def]
            return changed

    world.steps.put(Forged(**msgspec.structs.asdict(sequence)))

    result = world.recover()

    assert "There is no kind of step 'os.system'" in result.not_clear[URN]


def _sha(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def test_two_recoveries_at_once_do_everything_once(world: World) -> None:
    names = [f"urn:{number}" for number in range(10)]
    for name in names:
        world.steps.put(world.stage(0, 6, dataset=name))
    results: list[Recovery] = []
    start = threading.Barrier(3)

    def work() -> None:
        start.wait()
        results.append(world.recover(datasets=names))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result.not_clear for result in results] == [{}, {}, {}]
    for name in names:
        world.check(6, name)


def test_a_recovery_that_lost_its_turn_stops(world: World) -> None:
    world.steps.put(world.stage(0, 30))
    world.steps.claim(STORE, [URN], 6)

    with pytest.raises(Fenced):
        world.recover(epoch=5)

    assert world.published() == []


def test_aborting_takes_back_what_was_published_so_that_the_watermark_still_tells_it(world: World) -> None:
    """W3, also for the way out: rows that are extracted again must not be visible twice."""
    sequence = world.stage(0, 30)
    world.steps.put(sequence)
    sequence.steps[0].execute(world.context())
    assert world.published() != []

    abort(world.steps, STORE, URN, world.context(), epoch=0)

    world.check(0)
    assert world.all_files() == []
    world.stage(0, 30, run="run-2").commit(world.steps, world.context())
    world.check(30)


def test_a_sequence_whose_watermark_has_moved_is_finished_and_not_aborted(world: World) -> None:
    sequence = world.stage(0, 30)
    world.steps.put(sequence)
    sequence.replay(world.context())

    with pytest.raises(Refused, match="can't be taken back"):
        abort(world.steps, STORE, URN, world.context(), epoch=0)

    world.recover()
    world.check(30)


def test_aborting_nothing_says_so(world: World) -> None:
    with pytest.raises(NotFound):
        abort(world.steps, STORE, "absent", world.context(), epoch=0)


@pytest.mark.parametrize("files", [False, True])
def test_tasks_recover_shares_of_the_datasets_by_json(tmp_path: Path, files: bool) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    place = Place(root=str(tmp_path), ledger=url)
    names = [f"urn:{number} é" for number in range(7)]
    settings = StepSettings(
        ledger=url, steps=str(tmp_path / "recorded") if files else None, turn=Turn(name="clicks", epoch=1)
    )
    with ledger.open(url) as opened:
        world = World(place, ledger=opened)
        steps = FileStepStore(open_store(tmp_path / "recorded/sequences")) if files else LedgerStepStore(opened)
        for name in names:
            steps.put(saying(tmp_path / name, "hello", dataset=name))
        assert world.ledger is opened

    parts = shares(names, 3)
    answers = [
        recover_share(settings, RecoveryRequest(store=STORE, datasets=part, policy=ONCE).to_json()) for part in parts
    ]

    assert [len(part) for part in parts] == [3, 2, 2]
    recovered = [Recovery.from_json(answer) for answer in answers]
    assert sorted(name for one in recovered for name in one.clear) == names
    assert all((tmp_path / name / "said").read_text() == "hello\n" for name in names)


def test_shares_are_even_and_none_is_empty() -> None:
    assert shares(["b", "a", "a"], 5) == [("a",), ("b",)]
    assert shares([], 3) == []
    assert sorted(sum(shares(map(str, range(100)), 7), ())) == sorted(map(str, range(100)))


def test_settings_show_no_secret() -> None:
    settings = StepSettings(ledger="postgresql://u:geheim@h/d", storage_options={"secret": "geheim"})

    assert "geheim" not in repr(settings)
    assert StepSettings.from_json(settings.to_json()) == settings


def test_a_users_step_that_raises_anything_is_a_reason_and_not_a_crash(world: World, tmp_path: Path) -> None:
    class Odd(Say, frozen=True, kw_only=True, tag="test-odd"):
        def execute(self, context: StepContext) -> None:
            raise KeyError("oops")

    register(Odd)
    step: CommitStep = Odd(directory=str(tmp_path / "x"), word="w")
    world.steps.put(CommitSequence.builder(STORE, URN).add(step).build())

    assert world.recover().not_clear == {URN: "KeyError: 'oops'"}
