"""Short forms of `make trust`'s bad files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A process of its own, since it forks.
_DAMAGED = """
import sys
sys.path[:0] = ["trust", "tests"]
from bad_files import GROUNDS, mutants
for ground in GROUNDS:
    found = mutants(ground, 0, int(sys.argv[1]))
    assert not found["violations"], found["violations"][0]
    print(sum(found["outcomes"].values()))
"""
_GROWN = """
import sys
sys.path[:0] = ["trust", "tests"]
import bad_files
bad_files.BOMBS = {name: bomb for name, bomb in bad_files.BOMBS.items() if name in sys.argv[1:]}
for name, wrong in bad_files.grown():
    assert not wrong, f"{name}: {wrong}"
    print(1)
"""


def _sum(script: str, *arguments: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return sum(map(int, ran.stdout.split()))


def test_damaged_files_of_every_kind_are_right_or_a_typed_error() -> None:
    assert _sum(_DAMAGED, "40") == 8 * 40


def test_a_checkpoint_of_long_paths_takes_no_more_memory_than_it_may() -> None:
    assert _sum(_GROWN, "a checkpoint of long paths", "a vector that tells 3 rows of 2^33") == 2
