"""The Makefile is what it says of itself: make takes the last of two rules of one name without more than a warning."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_target_of_the_makefile_has_one_rule_and_every_target_of_the_help_has_a_rule() -> None:
    rules = Counter(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert [name for name, times in rules.items() if times > 1] == []
    told = set(re.findall(r'@echo "make ([a-z-]+)', MAKEFILE))
    phony = {name for names in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE) for name in names.split()}
    assert told <= set(rules), "the help names a command that is none"
    assert phony == set(rules), "every rule is a command, not a file"


def test_the_tests_of_a_room_need_java_only_where_some_of_them_do() -> None:
    storage, spark = would_run("storage"), would_run("spark")
    assert "scripts/setup.py --no-java" in storage
    assert "spark_classes.py" not in storage
    assert 'if [ -n "" ]; then . ./.venv/lakeseal-env.sh' in storage, "what sets Java up is left out"
    assert storage.count("tests/storage") == 1, "one part has all of them"
    assert "scripts/setup.py --no-java" not in spark
    assert "spark_classes.py" in spark


def would_run(room: str) -> str:
    """What `make test` of a room runs. These tests may be run by another `make test`, with a room of its own."""
    inherited = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ROOM", "ARGS", "ONLY"}
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    told = subprocess.run(
        ["make", "-n", "test", f"ROOM={room}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return told.stdout
