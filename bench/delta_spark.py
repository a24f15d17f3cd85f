"""Delta Spark as a subject: code that runs in its own environment and is timed from here.

    def by_delta_spark(timer, uri):
        with DeltaSpark() as peer:
            peer.run("spark.sql(...)", uri=warm_copy)       # not timed: a JVM is slow at whatever it does first
            peer.run("spark.sql(...)", timer, uri=uri)      # timed
            return {"rows": peer.run("result = ...")}

The session has as many cores as this machine, and starts before anything is timed. CPU time and peak memory are those
of the whole of Delta Spark, Python and JVM.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import textwrap
from contextlib import nullcontext
from typing import IO, Any

import psutil
from harness import HERE, Timer, peak_mb

ROOT = HERE.parent


class DeltaSpark:
    """`memory` is the JVM's, as Spark writes it."""

    def __init__(self, memory: str = "6g") -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  ours to close
        self._process = subprocess.Popen(
            [str(ROOT / ".venv-peers" / "bin" / "python"), str(ROOT / "scripts" / "delta_spark.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "DELTA_SPARK_MASTER": f"local[{os.cpu_count()}]", "DELTA_SPARK_MEMORY": memory},
        )

    def __enter__(self) -> DeltaSpark:
        self.run("result = spark.version")  # it is there when it answers
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=120)
        self._log.close()

    def run(self, code: str, timer: Timer | None = None, **arguments: Any) -> Any:
        """What the code leaves in `result`; its names are `spark` and the arguments, which must be JSON."""
        asked = json.dumps({"code": textwrap.dedent(code), "args": arguments}) + "\n"
        before = self._cpu_seconds() if timer is not None else 0.0
        with timer if timer is not None else nullcontext():
            answer = self._ask(asked)
        if timer is not None:
            timer.cpu_seconds += self._cpu_seconds() - before
            timer.peak_mb = max(timer.peak_mb, sum(peak_mb(process.pid) for process in self._all()))
        if "error" in answer:
            raise SystemExit(f"Delta Spark failed: {answer['error']}")
        return answer["result"]

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise SystemExit(f"Delta Spark died:\n{self._log.read()[-4000:]}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _all(self) -> list[psutil.Process]:
        process = psutil.Process(self._process.pid)
        return [process, *process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in self._all()))
