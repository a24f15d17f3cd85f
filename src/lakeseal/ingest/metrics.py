"""`RunMetrics`: what the last run came to, as a file that Prometheus' collectors of text files read."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from lakeseal.ingest.runs import DatasetResult, RunResult

GAUGES: tuple[tuple[str, str, Callable[[DatasetResult], float]], ...] = (
    ("rows", "Rows that the last run published.", lambda one: one.rows),
    ("rows_read", "Rows and records that it read.", lambda one: one.rows_read),
    ("bytes", "Bytes that it read.", lambda one: one.bytes),
    ("bad_records", "Records that were no rows.", lambda one: one.bad_records),
    ("error_rows", "Rows and records that went to the error table.", lambda one: one.to_error_table),
    ("seconds", "How long it took.", lambda one: one.seconds),
    ("failed", "1 if it was not published.", lambda one: float(one.error is not None)),
)
ENDED = ("lakeseal_ingest_ended_timestamp_seconds", "When the last run ended.")


class RunMetrics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str
    """Such as /var/lib/node_exporter/ingest.prom; it always is a whole one."""

    def write(self, result: RunResult) -> str | None:
        """A note, if it can't be written."""
        path = Path(self.file)
        if path.exists() and not path.is_file():
            # A device or a pipe would not be written to, but replaced: root's /dev/null for everybody.
            return f"Metrics could not be written to {self.file}: it is no file"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text_of(result))
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except OSError as error:
            return f"Metrics could not be written to {self.file}: {error}"
        return None


def text_of(result: RunResult) -> str:
    """In Prometheus' text format."""
    lines = []
    for name, meaning, of in GAUGES:
        full = f"lakeseal_ingest_{name}"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge"]
        for one in result.datasets:
            labels = f'pipeline="{_label(result.pipeline)}",dataset="{_label(one.name)}"'
            lines.append(f"{full}{{{labels}}} {of(one):g}")
    ended, meaning = ENDED
    lines += [f"# HELP {ended} {meaning}", f"# TYPE {ended} gauge"]
    moment = (result.ended_ms or result.started_ms) / 1000
    lines.append(f'{ended}{{pipeline="{_label(result.pipeline)}",state="{result.state}"}} {moment:.3f}')
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return re.sub(r'[\\"\n]', lambda found: {"\n": "\\n"}.get(found[0], f"\\{found[0]}"), text)
