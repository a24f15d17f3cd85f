from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import BrokenCommit
from lakeseal.log import replay as module
from lakeseal.log.files import ADDS, add_actions, adds_from_actions, append, keys, remove_actions, unknown_text
from lakeseal.log.live_files import LiveFiles
from lakeseal.log.replay import LogCommit, TableState, replay
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)
from models.histories import Commits, histories
from models.reference import described, replayed, without_removes
from support.examples import examples


def add(path: str, **more: Any) -> AddFile:
    known = {"partition_values": {}, "size": 1, "modification_time": 2, "data_change": True}
    return AddFile(path=path, **{**known, **more})


def remove(path: str, **more: Any) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, **more)


def vector(offset: int | None = None, **more: Any) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="abc", offset=offset, size_in_bytes=4, cardinality=1, **more
    )


def log(*commits: list[Action], start: int = 0) -> list[LogCommit]:
    return [
        LogCommit(version=version, file=f"{version}.json", data=codec.encode(actions))
        for version, actions in enumerate(commits, start)
    ]


def paths(state: TableState) -> list[str]:
    found: list[str] = state.files["path"].to_pylist()
    return found


class TestFiles:
    def test_adds_stand_in_the_order_of_the_log(self) -> None:
        assert paths(replay(None, log([add("b"), add("a")], [add("c")]))) == ["b", "a", "c"]

    def test_a_removed_file_is_gone(self) -> None:
        assert paths(replay(None, log([add("a"), add("b")], [remove("a")]))) == ["b"]

    def test_field_bug_24_a_file_that_was_removed_and_added_again_is_there(self) -> None:
        state = replay(None, log([add("a", size=1)], [remove("a")], [add("a", size=3)]), with_removes=True)
        assert state.files["size"].to_pylist() == [3]
        assert state.removes.num_rows == 0

    def test_field_bug_24_also_when_the_first_add_is_in_the_base(self) -> None:
        base = replay(None, log([add("a", size=1)]), with_removes=True)
        state = replay(base, log([remove("a")], [add("a", size=3)], start=1), with_removes=True)
        assert state.files["size"].to_pylist() == [3]
        assert replay(base, log([remove("a")], start=1)).files.num_rows == 0

    def test_the_last_add_of_a_file_counts(self) -> None:
        assert replay(None, log([add("a", size=1)], [add("a", size=2)])).files["size"].to_pylist() == [2]

    def test_a_deletion_vector_makes_another_file_of_the_same_path(self) -> None:
        state = replay(None, log([add("a")], [remove("a"), add("a", deletion_vector=vector(1))]), with_removes=True)
        assert state.files["deletionVector"][0].as_py()["offset"] == 1
        assert state.removes.num_rows == 1
        again = replay(
            state, log([remove("a", deletion_vector=vector(1)), add("a", deletion_vector=vector(2))], start=2)
        )
        assert [v["offset"] for v in again.files["deletionVector"].to_pylist()] == [2]

    def test_a_remove_with_another_deletion_vector_takes_nothing_away(self) -> None:
        state = replay(
            None, log([add("a", deletion_vector=vector(1))], [remove("a"), remove("a", deletion_vector=vector())])
        )
        assert state.files.num_rows == 1

    def test_an_absolute_path_in_another_spelling_is_the_same_file(self) -> None:
        state = replay(None, log([add("s3://bucket/a%20b"), add("c")], [remove("s3a://bucket/a%20b")]))
        assert paths(state) == ["c"]

    def test_tombstones_are_kept_only_if_they_are_asked_for(self) -> None:
        commits = log([add("a"), remove("x")], [remove("a")])
        assert replay(None, commits).removes is None
        assert [r.path for r in remove_actions(replay(None, commits, with_removes=True).removes)] == ["x", "a"]

    def test_a_big_commit_is_put_into_columns_by_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_FLUSH_ROWS", 7)
        monkeypatch.setattr(module, "_CHUNK_BYTES", 300)
        names = [f"f{n}" for n in range(100)]
        commits = log([add(name) for name in names], [remove(name) for name in names[::2]], [add("f0")])
        assert paths(replay(None, commits)) == [*names[1::2], "f0"]


class TestOtherActions:
    def test_the_last_of_each_counts(self) -> None:
        first, second = (Protocol(min_reader_version=1, min_writer_version=n) for n in (2, 3))
        one, two = Metadata(id="1"), Metadata(id="2")
        state = replay(
            None,
            log(
                [first, one, SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1)],
                [second, two, SetTransaction(app_id="a", version=2)],
            ),
        )
        assert (state.protocol, state.metadata, state.version) == (second, two, 1)
        assert {app: txn.version for app, txn in state.txns.items()} == {"a": 2, "b": 1}

    def test_removed_domains_are_gone_but_known_to_those_who_ask(self) -> None:
        set_, gone = (DomainMetadata(domain="d", configuration="", removed=flag) for flag in (False, True))
        commits = log([set_], [gone])
        assert replay(None, commits[:1]).domains == {"d": set_}
        assert replay(None, commits).domains == {}
        assert replay(None, commits).removed_domains == {}
        assert replay(None, commits, with_removes=True).removed_domains == {"d": gone}

    def test_commit_info_is_that_of_the_last_commit_or_none(self) -> None:
        info = CommitInfo(operation="WRITE")
        assert replay(None, log([info])).commit_info == info
        assert replay(None, log([info], [add("a")])).commit_info is None

    def test_change_files_and_unknown_actions_change_nothing(self) -> None:
        change = AddCDCFile(path="c", partition_values={}, size=1, data_change=False)
        unknown = UnknownAction(name="fromTheFuture", value={"a": 1})
        state = replay(None, log([change, unknown, add("a")]), with_removes=True)
        assert paths(state) == ["a"]
        assert state.unknown_actions == (unknown,)


class TestUnknownFields:
    def test_they_are_kept_and_come_back(self) -> None:
        actions: list[Action] = [
            add("a", unknown={"x": {"y": [1, None]}}),
            add("b", deletion_vector=vector(1, unknown={"maxRowIndex": 3}), unknown={"z": 1}),
            add("c"),
        ]
        assert list(add_actions(replay(None, log(actions)).files)) == actions

    def test_they_are_kept_across_the_flushes_of_a_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_FLUSH_ROWS", 3)
        monkeypatch.setattr(module, "_CHUNK_BYTES", 200)
        actions: list[Action] = [add(f"f{n}", unknown={"n": n} if n % 4 == 0 else {}) for n in range(40)]
        assert list(add_actions(replay(None, log(actions)).files)) == actions

    def test_a_removes_come_back_too(self) -> None:
        actions: list[Action] = [remove("a", unknown={"x": 1}), remove("b", deletion_vector=vector(7), size=3)]
        assert list(remove_actions(replay(None, log(actions), with_removes=True).removes)) == actions


class TestBrokenCommits:
    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (b'{"add":{"path":"a"', 1),
            (b'{"commitInfo":{}}\n{"add":{"path":"a","partitionValues":{}}}\n', 2),
            (b'{"commitInfo":{}}\n\n{"txn":{"appId":1,"version":1}}\n', 3),
            (b'{"commitInfo":{}}\n{"add":null}\n', 2),
            (b'{"txn":{"appId":"a","version":1},"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n', 1),
            (b"\xff\xfe\n", 1),
            (b'{"add":{"path":"\xff","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n', 1),
            (b'{"add":{"path":"\\ud800","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n', 1),
            (
                b'{"add":{"path":"a","partitionValues":{},"size":9223372036854775808,"modificationTime":1,"dataChange":true}}',
                1,
            ),
            (
                b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,'
                b'"deletionVector":{"storageType":"u","pathOrInlineDv":"x","offset":2147483648,"sizeInBytes":1,'
                b'"cardinality":1}}}\n',
                1,
            ),
            (b'{"metaData":{"id":"m","configuration":[]}}\n', 1),
            (b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}", 1),
        ],
    )
    def test_the_error_names_version_file_and_line(self, data: bytes, line: int) -> None:
        with pytest.raises(BrokenCommit, match=f"Line {line} ") as caught:
            replay(None, [LogCommit(version=3, file="3.json", data=data)])
        assert (caught.value.version, caught.value.file) == (3, "3.json")

    def test_blank_lines_and_explicit_nulls_are_forgiven(self) -> None:
        line = (
            b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,'
            b'"deletionVector":null,"tags":null},"remove":null}'
        )
        state = replay(
            None, [LogCommit(version=0, file="", data=b"\n\r\n" + line + b"\r\n \n" + line.replace(b'"a"', b'"b"'))]
        )
        assert list(add_actions(state.files)) == [add("a"), add("b")]


@examples(25, 200)
@given(histories(), st.data())
def test_f5_replaying_on_top_of_any_version_equals_replaying_from_the_start(
    commits: Commits, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(commits)))
    with_removes = data.draw(st.booleans())
    base = replay(None, log(*commits[:cut]), with_removes=with_removes)
    state = replay(base, log(*commits[cut:], start=cut), with_removes=with_removes)
    expected = replayed(commits)
    assert described(state) == (expected if with_removes else without_removes(expected))


@examples(25, 200)
@given(histories(), st.data())
def test_f5_versions_that_are_worked_out_late_or_early_are_the_same(commits: Commits, data: st.DataObject) -> None:
    """Live files wait for somebody to ask; asking in between, or for an older version, changes nothing."""
    states = [TableState(version=-1)]
    for version, actions in enumerate(commits):
        states.append(replay(states[-1], log(actions, start=version)))
        asked = data.draw(st.none() | st.integers(0, version))
        if asked is not None:
            assert described(states[asked + 1]) == without_removes(replayed(commits[: asked + 1]))
    for version, state in enumerate(states[1:]):
        assert described(state) == without_removes(replayed(commits[: version + 1]))


class TestLiveFiles:
    def test_a_thousand_appends_leave_few_chunks(self) -> None:
        state = TableState(version=-1)
        for version in range(1000):
            state = replay(state, log([add(f"f{version}")], start=version))
            if version % 10 == 0:
                assert state.files.num_rows == version + 1
        assert paths(state) == [f"f{version}" for version in range(1000)]
        assert state.files["path"].num_chunks < 15

    def test_chunks_that_nothing_changed_are_shared(self) -> None:
        def first_chunk(state: TableState) -> int:
            return int(state.files["path"].chunk(0).buffers()[2].address)

        base = TableState(
            version=0,
            live_files=LiveFiles(
                append(
                    adds_from_actions([add(f"a{n}") for n in range(50)]),
                    adds_from_actions([add(f"b{n}") for n in range(10)]),
                    ADDS,
                )
            ),
        )
        after = replay(base, log([remove("b3"), add("c")], start=1))
        assert after.files.num_rows == 60
        assert first_chunk(after) == first_chunk(base)


def test_keys_are_canonical_paths_with_the_id_of_the_deletion_vector() -> None:
    files = adds_from_actions(
        [add("a%20b"), add("file:///x/a%20b"), add("a", deletion_vector=vector()), add("a", deletion_vector=vector(0))]
    )
    assert keys(files).to_pylist() == ["a%20b", "file:///x/a b", "a\0uabc", "a\0uabc@0"]


def test_what_columns_have_no_place_for_is_text() -> None:
    assert unknown_text(add("a")) is None
    assert unknown_text(add("a", deletion_vector=vector())) is None
    text = unknown_text(add("a", unknown={"x": 1}, deletion_vector=vector(unknown={"y": 2})))
    assert text is not None
    assert msgspec.json.decode(text) == {"x": 1, "deletionVector": {"y": 2}}


class TestCompacted:
    """One action per key in any order; where a writer left more, the first is the newest."""

    def compacted(self, *actions: Action) -> LogCommit:
        return LogCommit(version=5, file="0.5.compacted.json", data=codec.encode(actions))

    def test_the_first_action_of_a_key_wins(self) -> None:
        first = SetTransaction(app_id="a", version=2)
        actions = [remove("x"), add("y"), first, add("x"), remove("y"), SetTransaction(app_id="a", version=1)]
        state = replay(None, [self.compacted(*actions)])
        assert paths(state) == ["y"]
        assert state.txns == {"a": first}

    def test_a_broken_line_is_counted_from_the_top(self) -> None:
        good = self.compacted(add("x"), add("y"))
        broken = msgspec.structs.replace(good, data=good.data + b'{"add":1}\n' + good.data)
        with pytest.raises(BrokenCommit, match="Line 3"):
            replay(None, [broken])
