from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("crash_driver.py")


def deaths(directory: Path, every: int) -> int:
    ended = subprocess.run(
        [sys.executable, str(DRIVER), str(directory), str(every)], capture_output=True, text=True, timeout=580
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return int(ended.stdout)


def test_a_job_that_is_killed_shows_all_of_its_files_or_none(tmp_path: Path) -> None:
    assert deaths(tmp_path, every=3) >= 6


@pytest.mark.stress
def test_a_job_that_is_killed_at_any_step_shows_all_of_its_files_or_none(tmp_path: Path) -> None:
    assert deaths(tmp_path, every=1) >= 15
