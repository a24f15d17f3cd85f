"""Several processes, and processes that die."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from contracts.branch_contract import content
from lakeseal.branches import embedded

HERE = Path(__file__).parent


def crash_everywhere(url: str, folder: Path, every: int) -> int:
    command = [sys.executable, "-W", "error", str(HERE / "crash_driver.py"), url, str(folder), str(every)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_whoever_dies_at_any_write_leaves_the_old_or_the_new_and_others_go_on(tmp_path: Path) -> None:
    assert crash_everywhere("sqlite", tmp_path, 8) > 10


def test_the_same_with_heads_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    assert crash_everywhere(postgres_url, tmp_path, 20) > 3


@pytest.mark.stress
def test_whoever_dies_at_each_single_write_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    assert crash_everywhere("sqlite", tmp_path, 1) > 70


@pytest.mark.parametrize(
    ("ledger", "processes", "rounds"),
    [("sqlite", 2, 2), ("postgresql", 2, 2), pytest.param("sqlite", 4, 50, marks=pytest.mark.stress)],
)
def test_of_overwriters_in_many_processes_one_is_left_and_each_acknowledged_one_is_in_the_log(
    ledger: str, processes: int, rounds: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db" if ledger == "sqlite" else str(request.getfixturevalue("postgres_url"))
    repo = embedded.create(tmp_path / "repo", ledger=url)
    command = [sys.executable, "-W", "error", str(HERE / "overwriter.py"), url, str(tmp_path / "repo")]
    writers = [
        subprocess.Popen(
            [*command, str(n), str(rounds), str(16 // processes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    try:
        acknowledged: set[str] = set()
        for _ in range(rounds):
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write("go\n")
                writer.stdin.flush()
            for writer in writers:
                assert writer.stdout is not None
                acknowledged |= set(writer.stdout.readline().split())
            left = content(repo, "main", "out")
            assert len({path.split("/")[1].split(".")[0] for path in left}) == 1, "G3"
            assert len(left) == 3, "G2"
    finally:
        for writer in writers:
            writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0] * processes
    assert len(acknowledged) == 16 * rounds
    assert {commit.job for commit in repo.log("main") if commit.job} == acknowledged
    repo.close()


def test_repositories_are_opened_by_what_they_were_made_with(tmp_path: Path) -> None:
    made = embedded.create(tmp_path / uuid.uuid4().hex)
    made.put("main", "a", b"1")
    code = (
        "import sys; from lakeseal.branches import embedded; repo = embedded.open(sys.argv[1]); "
        "print(repo.read('main', 'a').decode()); repo.close()"
    )
    ended = subprocess.run([sys.executable, "-c", code, made.uri], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "1\n", ended.stderr
    made.close()
