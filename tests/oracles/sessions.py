"""What a session says, as an input: sets of settings by name, and a session that has one of them for a moment.

The whole run may be in one of them: `LAKESEAL_TEST_SESSION=new-york make test`. `LAKESEAL_TEST_MASTER` is `local[2]`,
`connect` or `cluster` (see the fixture `spark`).
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SESSIONS: dict[str, dict[str, str]] = {
    "default": {},
    "new-york": {"spark.sql.session.timeZone": "America/New_York"},
    "ansi-off": {"spark.sql.ansi.enabled": "false"},
    "case-sensitive": {"spark.sql.caseSensitive": "true"},
    "aqe-off": {"spark.sql.adaptive.enabled": "false"},
    "legacy-store": {"spark.sql.storeAssignmentPolicy": "LEGACY", "spark.sql.ansi.enabled": "false"},
    "strict-store": {"spark.sql.storeAssignmentPolicy": "STRICT"},
    # Spark follows it in ANSI mode only.
    "double-quotes": {"spark.sql.ansi.doubleQuotedIdentifiers": "true", "spark.sql.ansi.enabled": "true"},
    "escaped-literals": {"spark.sql.parser.escapedStringLiterals": "true"},
}


# Compiling a query takes Spark far longer than running it over a few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def with_settings(spark: Any, settings: Mapping[str, str]) -> Iterator[Any]:
    """The session with these settings, and as it was again afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        _set(spark, settings)
        yield spark
    finally:
        _set(spark, before)


def _set(spark: Any, settings: Mapping[str, str | None]) -> None:
    with warnings.catch_warnings():
        # Connect says of some settings that they will go away; without it only the JVM's log has that.
        warnings.filterwarnings("ignore", "The SQL config", UserWarning)
        for name, value in settings.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def some_session(chance: random.Random, *names: str) -> tuple[str, dict[str, str]]:
    """One of the named sets, or of all, by chance; the default half of the time."""
    name = "default" if chance.random() < 0.5 else chance.choice(names or tuple(SESSIONS))
    return name, SESSIONS[name]


def without_connect() -> dict[str, str]:
    """The environment for a process with a Spark of its own. Where this one is over Connect, PySpark has left words
    in it by which every child would look for a server, too."""
    marks = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_REMOTE_INIT_CONF")
    return {name: value for name, value in os.environ.items() if not name.startswith(marks)}
