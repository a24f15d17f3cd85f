"""Each paragraph of the design of DelayedCommitProtocol, by its heading."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.jobs import task_logging
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext, TaskFile, WrittenFile
from lakeseal.protocol.actions import AddCDCFile, AddFile
from lakeseal.protocol.partitions import partition_directory


def task(split: int = 0, attempt: int = 0) -> TaskContext:
    return TaskContext(job_id="delta", split=split, attempt=attempt, task_attempt_id=10 * split + attempt)


def written(file: TaskFile, size: int) -> WrittenFile:
    return WrittenFile(key=file.key, size=size, modified_ms=1_700_000_000_000, num_records=1, stats='{"numRecords":1}')


UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def protocol(**kwargs: Any) -> DelayedCommitProtocol:
    made = DelayedCommitProtocol(path="file:///t", **kwargs)
    made.setup_task(task())
    return made


def new_file(directory: str | None, ext: str = "-c000.snappy.parquet", **kwargs: Any) -> TaskFile:
    return protocol(**kwargs).new_task_file(task(7), directory, ext)


class TestCreatingInstance:
    def test_job_id_is_delta(self) -> None:
        assert protocol().job_id == "delta"

    def test_data_path_is_where_files_go(self) -> None:
        made = DelayedCommitProtocol(path="s3://bucket/table/")
        made.setup_task(task())
        file = made.new_task_file(task(), "a=1", ".parquet")
        assert file.path == f"s3://bucket/table/{file.key}"

    def test_length_of_random_prefix_is_undefined_unless_asked_for(self) -> None:
        assert protocol().random_prefix_length is None
        assert protocol(random_prefix_length=4).random_prefix_length == 4

    def test_a_random_prefix_of_no_length_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="randomPrefixLength"):
            protocol(random_prefix_length=0)


class TestNewTaskTempFile:
    def test_partition_values_are_parsed_from_the_directory(self) -> None:
        made = protocol()
        made.new_task_file(task(), "ts=2024-01-01 10%3A00%3A00/p=a%2Fb/q=__HIVE_DEFAULT_PARTITION__", ".parquet")
        assert made.added_files[0][0] == {"ts": "2024-01-01 10:00:00", "p": "a/b", "q": None}

    def test_without_a_directory_there_are_no_partition_values_and_only_a_name(self) -> None:
        made = protocol()
        file = made.new_task_file(task(), None, ".parquet")
        assert made.added_files == [({}, file.key)]
        assert "/" not in file.key

    def test_directory_exactly_is_cdc_false_gives_the_file_name_alone(self) -> None:
        assert re.fullmatch(rf"part-00007-{UUID}-c000\.snappy\.parquet", new_file("__is_cdc=false").key)

    def test_directory_with_prefix_is_cdc_true_goes_to_change_data(self) -> None:
        assert re.fullmatch(rf"_change_data/a/b/c/cdc-00007-{UUID}\.p", new_file("__is_cdc=true/a/b/c", ".p").key)

    def test_directory_exactly_is_cdc_true_goes_to_change_data(self) -> None:
        assert re.fullmatch(rf"_change_data/cdc-00007-{UUID}\.p", new_file("__is_cdc=true", ".p").key)

    def test_directory_with_prefix_is_cdc_false_loses_the_prefix(self) -> None:
        assert re.fullmatch(rf"a=1/b=2/part-00007-{UUID}\.p", new_file("__is_cdc=false/a=1/b=2", ".p").key)

    def test_other_directories_are_the_parent_of_the_file(self) -> None:
        assert re.fullmatch(rf"a=1/b=2/part-00007-{UUID}\.p", new_file("a=1/b=2", ".p").key)

    @pytest.mark.parametrize("directory", ["__is_cdc=truest/a=1", "__is_cdc=falsehood", "a=1/__is_cdc=true"])
    def test_a_directory_that_only_resembles_is_cdc_is_left_as_it_is(self, directory: str) -> None:
        assert new_file(directory).key.startswith(directory + "/")

    def test_only_the_first_is_cdc_true_is_replaced(self) -> None:
        assert new_file("__is_cdc=true/x=__is_cdc=true").key.startswith("_change_data/x=__is_cdc=true/cdc-")

    def test_a_random_prefix_replaces_the_partition_directory(self) -> None:
        made = protocol(random_prefix_length=3)
        file = made.new_task_file(task(7), "a=1", ".p")
        assert re.fullmatch(rf"[0-9A-Za-z]{{3}}/part-00007-{UUID}\.p", file.key)
        assert made.added_files == [({"a": "1"}, file.key)]
        assert re.fullmatch(rf"[0-9A-Za-z]{{3}}/part-00007-{UUID}\.p", new_file(None, ".p", random_prefix_length=3).key)

    def test_change_files_stay_in_change_data_under_a_random_prefix(self) -> None:
        key = new_file("__is_cdc=true/a=1", ".p", random_prefix_length=2).key
        assert re.fullmatch(rf"_change_data/[0-9A-Za-z]{{2}}/cdc-00007-{UUID}\.p", key)

    def test_values_and_path_are_added_to_added_files(self) -> None:
        made = protocol()
        files = [made.new_task_file(task(), f"p={n}", ".p") for n in range(3)]
        assert made.added_files == [({"p": str(n)}, file.key) for n, file in enumerate(files)]

    @pytest.mark.parametrize("value", ["x" * 256, "é" * 128, "/" * 100])
    def test_a_directory_too_long_for_stores_is_replaced_and_its_values_are_kept(self, value: str) -> None:
        made = protocol()
        directory = partition_directory("p", value)
        first, second = (made.new_task_file(task(), directory, ".p") for _ in range(2))
        parent = first.key.rpartition("/")[0]
        assert re.fullmatch("[0-9a-f]{32}", parent)
        assert second.key.startswith(parent + "/")
        assert [values for values, _ in made.added_files] == [{"p": value}] * 2

    def test_many_directories_that_are_too_long_together_are_replaced(self) -> None:
        key = new_file("/".join(f"p{n}={'x' * 100}" for n in range(10))).key
        assert len(key) < 120

    def test_change_files_of_a_long_directory_stay_in_change_data(self) -> None:
        assert re.match("_change_data/[0-9a-f]{32}/cdc-", new_file(f"__is_cdc=true/p={'x' * 256}").key)


class TestFileName:
    def test_format_is_prefix_split_uuid_ext(self) -> None:
        assert re.fullmatch(rf"part-00007-{UUID}-c000\.snappy\.parquet", new_file(None).key)

    def test_prefix_is_cdc_for_is_cdc_true_and_part_otherwise(self) -> None:
        assert "/cdc-" in new_file("__is_cdc=true/p=1").key
        assert "/part-" in new_file("__is_cdc=false/p=1").key
        assert new_file(None).key.startswith("part-")

    @pytest.mark.parametrize(("split", "text"), [(0, "00000"), (42, "00042"), (99999, "99999"), (123456, "123456")])
    def test_split_is_the_task_number_in_five_digits_or_more(self, split: int, text: str) -> None:
        assert protocol().new_task_file(task(split), None, "").key.startswith(f"part-{text}-")


class TestAddedFilesOnExecutors:
    def test_set_up_task_empties_the_registry(self) -> None:
        made = protocol()
        made.new_task_file(task(), None, ".p")
        made.setup_task(task(1))
        assert made.added_files == []


class TestCommittingTask:
    def commit(self, directory: str | None) -> dict[str, Any]:
        made = protocol()
        file = made.new_task_file(task(), directory, ".p")
        (entry,) = made.commit_task(task(), [written(file, 5)]).entries
        return entry

    def test_a_file_of_the_table_becomes_an_add_file(self) -> None:
        action = AddFile.from_json(self.commit("p=1")["add"])
        assert (action.partition_values, action.size, action.data_change) == ({"p": "1"}, 5, True)
        assert (action.stats, action.modification_time) == ('{"numRecords":1}', 1_700_000_000_000)

    def test_a_file_of_is_cdc_true_becomes_an_add_cdc_file(self) -> None:
        action = AddCDCFile.from_json(self.commit("__is_cdc=true/p=1")["cdc"])
        assert (action.size, action.data_change) == (5, False)
        assert action.path.startswith("_change_data/p=1/cdc-")

    @pytest.mark.parametrize("flag", ["true", "false"])
    def test_is_cdc_is_removed_from_the_values_of_the_action(self, flag: str) -> None:
        (action,) = self.commit(f"__is_cdc={flag}/p=1").values()
        assert action["partitionValues"] == {"p": "1"}

    def test_the_path_of_an_action_is_a_uri_over_the_escaped_directory(self) -> None:
        path = self.commit("ts=2024-01-01 10%3A00%3A00")["add"]["path"]
        assert path.startswith("ts=2024-01-01%2010%253A00%253A00/part-")

    def test_without_files_the_message_is_empty(self) -> None:
        message = protocol().commit_task(task(), [])
        assert message == TaskCommitMessage(protocol="delayed", task=task())


class TestCommittingJob:
    def test_messages_are_split_into_added_statuses_and_change_files(self) -> None:
        made = protocol()
        files = [made.new_task_file(task(), d, ".p") for d in ("__is_cdc=false/p=1", "__is_cdc=true/p=1")]
        message = made.commit_task(task(), [written(f, 1) for f in files])
        driver = DelayedCommitProtocol(path="file:///t")
        driver.setup_job()
        actions = driver.commit_job([TaskCommitMessage.from_json(message.to_json())])
        assert [type(a) for a in actions] == [AddFile, AddCDCFile]
        assert [*driver.added_statuses, *driver.change_files] == actions

    @pytest.mark.parametrize("entry", [{}, {"remove": {}}, {"add": {"path": 1}}, {"add": None}, {"cdc": []}])
    def test_a_malformed_action_in_a_message_is_refused(self, entry: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            protocol().commit_job([TaskCommitMessage(protocol="delayed", task=task(), entries=(entry,))])


class TestNoOps:
    def test_set_up_job_abort_task_and_abort_job_do_nothing(self, tmp_path: Path) -> None:
        made = DelayedCommitProtocol(path=str(tmp_path))
        made.setup_job()
        made.setup_task(task())
        file = made.new_task_file(task(), None, ".p")
        (tmp_path / file.key).write_bytes(b"x")
        made.abort_task(task())
        made.abort_job()
        assert [p.name for p in tmp_path.iterdir()] == [file.key]
        assert made.added_files == [({}, file.key)]


class TestNewTempFileAbsolutePath:
    def test_an_absolute_path_is_not_supported(self) -> None:
        made = protocol()
        with pytest.raises(Unsupported) as caught:
            made.new_task_file_abs_path(task(), "/elsewhere", ".p")
        assert caught.value.message == f"{made!r} does not support adding files with an absolute path"


class TestLogging:
    def test_debug_shows_every_step_of_job_and_task(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG, logger="lakeseal.write.DelayedCommitProtocol"):
            made = protocol()
            made.setup_job()
            file = made.new_task_file(task(), "p=1", ".p")
            made.commit_job([made.commit_task(task(), [written(file, 1)])])
            made.abort_task(task())
            made.abort_job()
        assert {r.name for r in caplog.records} == {"lakeseal.write.DelayedCommitProtocol"}
        said = " | ".join(r.getMessage() for r in caplog.records)
        for part in ("job set up", "task 0 set up", file.key, "commits 1 files", "job committed", "aborted"):
            assert part in said

    def test_without_debug_nothing_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        protocol().new_task_file(task(), None, ".p")
        assert caplog.records == []

    def test_a_task_in_another_process_logs_at_the_level_of_the_driver(self) -> None:
        script = (
            "from lakeseal.jobs import task_logging\n"
            "from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol\n"
            "from lakeseal.jobs.file_commit_protocol import TaskContext\n"
            "import sys; task_logging.configure_task(int(sys.argv[1]))\n"
            "DelayedCommitProtocol(path='t').setup_task(TaskContext(job_id='delta', split=5))\n"
        )
        logger = logging.getLogger(task_logging.LOGGER)
        before = logger.level
        outputs = []
        for level in (logging.DEBUG, logging.WARNING):
            logger.setLevel(level)
            done = subprocess.run(
                [sys.executable, "-c", script, str(task_logging.driver_level())],
                capture_output=True,
                text=True,
                check=True,
            )
            outputs.append(done.stderr)
        logger.setLevel(before)
        assert (
            "DEBUG lakeseal.write.DelayedCommitProtocol: DelayedCommitProtocol(delta, t): task 5 set up" in outputs[0]
        )
        assert outputs[1] == ""
