"""Settings that a session is lent while something of ours runs, and that it gives back.

A setting that the user has made stays as it is, and so do those that go with it. Settings belong to the session, and so
does what runs in its threads at a time: the first one makes the change, the last one takes it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession


class LentSettings:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._running: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()

    @contextmanager
    def lent(self, spark: SparkSession) -> Iterator[None]:
        if not self._begin(spark):
            yield
            return
        try:
            yield
        finally:
            self._end(spark)

    def _begin(self, spark: SparkSession) -> bool:
        with self._lock:
            running = self._running.get(spark, 0)
            if not running:
                if any(spark.conf.get(name, None) is not None for name in self._settings):
                    return False
                for name, value in self._settings.items():
                    spark.conf.set(name, value)
            self._running[spark] = running + 1
            return True

    def _end(self, spark: SparkSession) -> None:
        with self._lock:
            running = self._running[spark] = self._running[spark] - 1
            if not running:
                for name, value in self._settings.items():
                    # What the user has set meanwhile counts.
                    if spark.conf.get(name, None) == value:
                        spark.conf.unset(name)
