"""Runs that are killed, at every one of their effects and at random moments: each row is there once in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).parent / "crash_driver.py"
MESSAGES = 20


def killed(place: Path, broker: Any, topic: str, *, every: int, randomly: int) -> int:
    broker.create_topic(topic)
    broker.produce(topic, [b'{"id": %d}' % n for n in range(MESSAGES)])
    command = [sys.executable, str(DRIVER), str(place), broker.address, topic, str(every), str(randomly), str(MESSAGES)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_a_run_killed_at_its_writes_and_at_random_publishes_every_row_once_in_the_end(
    tmp_path: Path, broker: Any
) -> None:
    # Those at writes are sure to hit. With a worker and a driver of Spark (test_spark.py) that makes ten.
    assert killed(tmp_path, broker, "killed", every=20, randomly=1) >= 8


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_a_run_killed_at_each_of_its_writes_publishes_every_row_once_in_the_end(tmp_path: Path, broker: Any) -> None:
    assert killed(tmp_path, broker, "killed-often", every=1, randomly=100) >= 240
