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
    return _swept(place, broker.address, topic, str(every), str(randomly), str(MESSAGES))


def _swept(place: Path, *arguments: str) -> int:
    """What children say is kept, with the place in the code where one of them broke: a fault of memory leaves no other
    trace."""
    said = place / "stderr.txt"
    command = [sys.executable, "-X", "faulthandler", str(DRIVER), str(place), *arguments]
    with said.open("w") as errors:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    assert ended.returncode == 0, f"{ended.returncode}, {said}:\n{said.read_text(errors='replace')[-20_000:]}"
    return int(ended.stdout)


def test_a_run_killed_at_its_writes_and_at_random_publishes_every_row_once_in_the_end(
    tmp_path: Path, broker: Any
) -> None:
    # Those at writes are sure to hit. With a worker and a driver of Spark (test_spark.py) that makes ten.
    assert killed(tmp_path, broker, "killed", every=20, randomly=1) >= 8


def test_a_run_of_changes_killed_at_its_writes_and_at_random_is_a_dictionary_in_the_end(tmp_path: Path) -> None:
    assert _swept(tmp_path, "", "", "25", "1", "0", "changes") >= 6


def test_a_graph_killed_at_its_writes_and_at_random_is_its_function_in_the_end(tmp_path: Path) -> None:
    # Three at writes; the one at random may come when all is done.
    assert _swept(tmp_path, "", "", "30", "1", "0", "graph") >= 3


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_a_graph_killed_at_each_of_its_writes_is_its_function_in_the_end(tmp_path: Path) -> None:
    assert _swept(tmp_path, "", "", "1", "50", "0", "graph") >= 100


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_a_run_of_changes_killed_at_each_of_its_writes_is_a_dictionary_in_the_end(tmp_path: Path) -> None:
    assert _swept(tmp_path, "", "", "1", "50", "0", "changes") >= 150


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_a_run_killed_at_each_of_its_writes_publishes_every_row_once_in_the_end(tmp_path: Path, broker: Any) -> None:
    assert killed(tmp_path, broker, "killed-often", every=1, randomly=100) >= 240
