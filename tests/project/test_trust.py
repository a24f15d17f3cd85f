"""What `make trust` rests on is there: its list of mutants is one of the product as it is."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "trust"))

from mutants import Mutant, mutants  # noqa: E402

MUTANTS = tuple(mutants())
CONFLICTS = tuple(one.name for one in MUTANTS if one.file == "commit/conflicts.py")

# A process of its own, since it forks.
_NOTICED = """
import sys
sys.path[:0] = ["trust", "tests"]
from mutants import copied, mutants, notices
mutant = next(one for one in mutants() if one.name == sys.argv[1])
with copied() as source:
    print(notices(source, mutant, []) or "nobody")
    print(notices(source, mutant._replace(after=mutant.before), []) or "nobody")
"""


def test_there_are_at_least_sixty_mutants_with_names_of_their_own() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_is_a_change_of_the_product_that_named_tests_can_notice(mutant: Mutant) -> None:
    text = (ROOT / "src" / "lakeseal" / mutant.file).read_text()
    assert text.count(mutant.before) == 1
    compile(text.replace(mutant.before, mutant.after), mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / "tests" / test).is_file(), test


def test_a_row_of_the_conflict_table_that_is_taken_away_is_noticed_and_nothing_is_where_nothing_is_changed() -> None:
    """Another row every day; `make trust` takes away all that is listed."""
    name = CONFLICTS[dt.date.today().toordinal() % len(CONFLICTS)]
    ran = subprocess.run([sys.executable, "-c", _NOTICED, name], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    noticed, unchanged = ran.stdout.splitlines()
    assert noticed.startswith("tests/"), f"{name}: {noticed}"
    assert unchanged == "nobody"
