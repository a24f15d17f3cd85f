from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from lakeseal.commit import post_commit
from lakeseal.commit.post_commit import Background

AT_EXIT = """
import time
from lakeseal.commit.post_commit import Background
Background().submit(("t", "hook"), lambda: (time.sleep(0.2), print("done", flush=True)))
"""
AFTER_FORK = """
import os, sys
from lakeseal.commit.post_commit import Background
background = Background()
background.submit(("t", "parent"), lambda: None)
child = os.fork()
ran = []
background.submit(("t", "own"), lambda: ran.append(1))
ok = background.flush(timeout=10) and ran == [1]
if child == 0:
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not ok)
"""


def test_work_after_a_pause_is_done_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_commit, "_IDLE_S", 0.001)
    background = Background()
    done: list[int] = []
    for number in range(20):
        background.submit(("t", "hook"), lambda number=number: done.append(number))
        assert background.flush(timeout=10)
        threading.Event().wait(0.002)
    assert done == list(range(20))


def test_work_of_different_tables_and_hooks_is_all_done() -> None:
    background = Background()
    done: list[tuple[str, str]] = []
    keys = [(table, hook) for table in "abc" for hook in "xyz"]
    for key in keys:
        background.submit(key, lambda key=key: done.append(key))
    assert background.flush(timeout=10)
    assert sorted(done) == keys


def test_the_end_of_the_interpreter_waits_for_work() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "done"


def test_a_forked_process_has_work_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", AFTER_FORK], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
