"""For pytest: which tests came by which lines of some files, how long each took, and a run of some of them only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

_SOURCE = "/src/lakeseal/"


class Came(NamedTuple):
    """What came of one test."""

    test: str
    seconds: float
    lines: dict[str, list[int]]
    """Below `src/lakeseal/`. Of processes that a test starts nothing is known."""


class Watch:
    """Notes for each test which lines of `files` it came by, in any thread of this process."""

    def __init__(self, files: Collection[str]) -> None:
        self._files = frozenset(files)
        self._lines: set[tuple[str, int]] = set()
        self.came: list[Came] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines.clear()
        began = time.monotonic()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            lines: dict[str, list[int]] = {}
            for file, line in list(self._lines):
                lines.setdefault(file, []).append(line)
            self.came.append(Came(item.nodeid, time.monotonic() - began, lines))

    def _enter(self, frame: Any, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        at = name.rfind(_SOURCE)
        if at < 0 or name[at + len(_SOURCE) :] not in self._files:
            return None
        file, lines = name[at + len(_SOURCE) :], self._lines

        def note(frame: Any, event: str, _: object) -> Any:
            lines.add((file, frame.f_lineno))
            return note

        return note(frame, event, None)


class Only:
    """Runs these tests only, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places), key=lambda item: self._places[item.nodeid]
        )
