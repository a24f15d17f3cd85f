"""The Makefile is what it says of itself: make takes the last of two rules of one name without more than a warning."""

import re
from collections import Counter
from pathlib import Path

MAKEFILE = (Path(__file__).resolve().parents[2] / "Makefile").read_text(encoding="utf-8")


def test_every_target_of_the_makefile_has_one_rule_and_every_target_of_the_help_has_a_rule() -> None:
    rules = Counter(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert [name for name, times in rules.items() if times > 1] == []
    told = set(re.findall(r'@echo "make ([a-z-]+)', MAKEFILE))
    phony = {name for names in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE) for name in names.split()}
    assert told <= set(rules), "the help names a command that is none"
    assert phony == set(rules), "every rule is a command, not a file"
