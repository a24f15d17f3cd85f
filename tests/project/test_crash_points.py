"""Short forms of `make trust`'s crash points and power cuts, and that its list of writers is one of the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "trust"))

from writers import writers  # noqa: E402

# A process of its own, since it forks.
_STRUCK = """
import sys
sys.path[:0] = ["trust", "tests"]
from crash_points import CASES, strike
for case in CASES:
    if case.name in sys.argv[2:]:
        struck = strike(case, None, every=int(sys.argv[1]))
        assert not struck.violations, struck.violations[0]
        others = struck.counts.pop("of another kind NONE", 0)
        assert others <= 2, f"{others} effects are not those of an undisturbed run"
        print(sum(struck.counts.values()))
"""
_CUT = """
import sys
sys.path[:0] = ["trust", "tests"]
from power_cuts import CASES, cut
for case in CASES:
    if case.name in sys.argv[2:]:
        found = cut(case, every=int(sys.argv[1]))
        assert not found.violations, found.violations[0]
        print(found.states)
"""


def _sum(script: str, every: int, *names: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", script, str(every), *names], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return sum(map(int, ran.stdout.split()))


def test_whoever_comes_after_a_process_that_was_struck_finds_all_or_nothing_and_goes_on() -> None:
    assert _sum(_STRUCK, 12, "append", "publish on sqlite", "recovery on sqlite") >= 15


def test_a_step_that_makes_its_ledger_is_struck_to_its_end() -> None:
    """Whoever had looked before the undisturbed run had made the ledger, and what came behind that was never struck."""
    assert _sum(_STRUCK, 11, "take-over on sqlite") >= 8


def test_what_was_acknowledged_is_there_after_a_power_cut() -> None:
    assert _sum(_CUT, 4, "append", "managed commit on sqlite") >= 10


def test_task_output_that_was_published_does_not_come_back_after_a_power_cut() -> None:
    """Files had been moved out of a directory that was then removed, and neither was durable when their record went."""
    assert _sum(_CUT, 1, "recovery on sqlite") >= 30


def test_writers_are_found_where_they_are_and_not_elsewhere() -> None:
    names = {writer.name for writer in writers()}
    assert "storage/local/files.py: NewFile.publish" in names
    assert "commit/filesystem_owner.py: FilesystemOwner.commit" in names
    assert "owner/rows.py: insert_commit" in names
    assert "storage/object/store.py: ObjectStore.put_if_absent" in names
    assert not [name for name in names if name.startswith(("expr/", "protocol/", "display", "errors"))]
