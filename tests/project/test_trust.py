"""What `make trust` rests on is there: its list of mutants is one of the product as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "trust"))

from mutants import Mutant, mutants  # noqa: E402

MUTANTS = tuple(mutants())


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
