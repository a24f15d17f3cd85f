"""Spans, as OpenTelemetry's own SDK gets them; and none of it where nobody listens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import traces
from lakeseal.testing.service import service_inside

trace = pytest.importorskip("opentelemetry.trace", reason="needs pip install 'lakeseal[otel]'")
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs pip install 'lakeseal[otel]'")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter.get_finished_spans
    provider.shutdown()


def test_a_command_is_a_span_with_what_it_did(ended: Any, tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "orders")
    table.write(pa.table({"id": [1, 2]}))
    table.delete("id = 2")
    with pytest.raises(lakeseal.LakesealError):
        table.update({"nothing": "1"})
    write, delete, update = ended()
    assert [one.name for one in (write, delete, update)] == ["lakeseal write", "lakeseal delete", "lakeseal update"]
    assert delete.attributes["lakeseal.version"] == 1
    assert delete.attributes["lakeseal.numDeletedRows"] == 1
    assert delete.attributes["lakeseal.table"] == table.uri
    assert not update.status.is_ok
    assert update.attributes["error.type"] == "invalid-expression"
    assert update.events == ()


def test_a_service_goes_on_with_the_trace_of_its_caller(ended: Any, tmp_path: Path) -> None:
    with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", insecure=True) as (url, _):
        table = lakeseal.Table(tmp_path / "orders", owner=url)
        table.write(pa.table({"id": [1]}))
        table.write(pa.table({"id": [2]}))
    spans = ended()
    _, write = (one for one in spans if one.name == "lakeseal write")
    asked = {one.context.span_id for one in spans if one.name.startswith("lakeseal ask")}
    served = [one for one in spans if one.name.startswith("lakeseal serve") and one.parent is not None]
    assert all(one.parent.span_id in asked for one in served)
    ratified = [one for one in served if one.name == "lakeseal serve ratify"]
    assert [one.context.trace_id for one in ratified] == [write.context.trace_id]
    assert ratified[0].attributes["http.response.status_code"] == 200


def test_where_nobody_listens_nothing_is_imported_or_noted(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa, lakeseal\n"
        "lakeseal.Table('t').write(pa.table({'id': [1]}))\n"
        "assert not [one for one in sys.modules if one.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_a_place_for_spans_without_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(lakeseal.LakesealError, match=r"lakeseal\[otel\]"):
        traces.export()
    monkeypatch.setenv("LAKESEAL_TRACES", "0")
    traces.export()
