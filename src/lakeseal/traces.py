"""Spans for OpenTelemetry: of commands, of pipelines' runs, of what a service is asked, on both sides.

Nothing is imported and nothing noted unless the process has a tracer provider (the application's own, or the one that
`export` sets up where OTEL_EXPORTER_OTLP_ENDPOINT says whereto), and LAKESEAL_TRACES is not 0. Spans say which table,
which version, how many rows; never what is in them, and no secrets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from lakeseal.errors import LakesealError, Unsupported

Kind = Literal["internal", "client", "server"]
Say = Callable[[Mapping[str, Any]], None]
"""Adds attributes to the span; None is left out. `name` is another name for it."""

TURNED_OFF = "LAKESEAL_TRACES"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SENT = "traceparent"


def _nothing(_: Mapping[str, Any]) -> None: ...


@contextmanager
def span(
    name: str, attributes: Mapping[str, Any] | None = None, *, kind: Kind = "internal", parent: str | None = None
) -> Iterator[Say]:
    """Around what is done. `parent` is a `traceparent` of another process. An error is noted by its kind."""
    trace = _trace()
    if trace is None:
        yield _nothing
        return
    made = trace.get_tracer("lakeseal").start_as_current_span(
        name,
        context=None if parent is None else _propagator().extract({_SENT: parent}),
        kind=trace.SpanKind[kind.upper()],
        record_exception=False,  # texts may name what is nobody else's
        set_status_on_exception=False,
    )
    with made as current:

        def say(more: Mapping[str, Any]) -> None:
            for key, value in more.items():
                if key == "name":
                    current.update_name(value)
                elif value is not None:
                    current.set_attribute(key, value)

        say(attributes or {})
        try:
            yield say
        except Exception as error:
            told = error.kind if isinstance(error, LakesealError) else type(error).__name__
            current.set_attribute("error.type", told)
            current.set_status(trace.StatusCode.ERROR, told)
            raise


def sent() -> dict[str, str]:
    """The headers by which another process knows the span that this one is in."""
    carried: dict[str, str] = {}
    if _trace() is not None:
        _propagator().inject(carried)
    return carried


def parent_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """What a caller has sent, of ASGI's headers."""
    if _trace() is None:
        return None
    return next((value.decode("latin-1") for name, value in headers if name == _SENT.encode()), None)


def export() -> None:
    """Sends spans of this process to where the environment says, if it says so and nobody has seen to it."""
    if not any(os.environ.get(name) for name in _ENDPOINTS) or os.environ.get(TURNED_OFF) == "0":
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The environment says where spans go, and the package {error.name} is not installed",
            hint=f"pip install 'lakeseal[otel]', or set {TURNED_OFF}=0",
        ) from error
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "lakeseal"}
        provider = TracerProvider(resource=Resource.create(named))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)


def _trace() -> Any:
    """OpenTelemetry's API, if somebody listens: whoever set a provider has imported it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or os.environ.get(TURNED_OFF) == "0":
        return None
    return None if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) else trace


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # an extra

    return TraceContextTextMapPropagator()
