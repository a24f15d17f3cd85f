"""`kafka`: the messages of a topic, each offset once.

The driver asks for the ends of all partitions once; a unit is a range of offsets of one partition. A task assigns the
partition at its first offset (so nothing is consumed before that), and stops at the last one, or where the partition
ends: offsets that hold no message (transaction markers, aborted or compacted messages) are passed over, not waited for.
Only committed messages are read. No consumer group is used and nothing is committed to Kafka: the watermarks are ours.

A watermark is `{"generation", "offset", "topic_id"}`: the first offset that is not published yet, of a topic that is
the same one as long as its generation is. Kafka gives a topic that is deleted and made again a new id; where brokers
tell no ids, an offset beyond the topic's end says the same. What a partition reads next, `next_range` decides from
values alone.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lakeseal.errors import (
    InvalidArgument,
    SourceChanged,
    SourceNotFound,
    SourceTimeout,
    SourceUnavailable,
    Unsupported,
)
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.sources.debezium import DebeziumReader
from lakeseal.ingest.sources.kafka_values import MetaColumn, ValueReader, value_reader
from lakeseal.ingest.sources.source import Chunk, Plan, Source, Watermark, WorkUnit, at_least_one, register_source
from lakeseal.protocol.schema import StructType

Policy = Literal["fail", "earliest", "latest", "skip"]
Start = Literal["earliest", "latest"]

_CHUNK = 20_000
_OURS = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "isolation.level",
        "allow.auto.create.topics",
    }
)
"""librdkafka's options that `KafkaSource._configuration` sets, whatever the user says."""
# A message is known only by its number until it is read; this stands for its size.
_MESSAGE_BYTES = 500
_POLL_SECONDS = 0.2


@register_source
class KafkaSource(Source, frozen=True, kw_only=True, tag="kafka", dict=True):
    brokers: str
    """`host:port`, several with commas."""
    topic: str
    value: Literal["json", "avro", "protobuf", "string", "bytes"] = "json"
    """bytes: as they are, for whatever a transform decodes."""
    schema: str | None = None
    """Of JSON and Protobuf values, as Spark writes it."""
    avro_schema: dict[str, Any] | None = None
    """Of Avro values."""
    schema_registry: str | None = None
    """Where the writers' schemas are, if values name one by its number; those of Protobuf do."""
    registry_auth: str | None = None
    """`user:password`, or a token."""
    envelope: Literal["debezium"] | None = None
    """Values are changes of rows, as Debezium writes them, in JSON or Avro; `schema` is that of the rows."""
    include: tuple[MetaColumn, ...] | None = None
    """Columns beside the value's: key, headers, timestamp, offset, partition, topic. Without a word, JSON and Avro
    have none, and strings and bytes have key, partition, offset and timestamp."""
    prefix: str = ""
    """Before the names of these columns."""
    start: Start = "earliest"
    """Where a topic begins that has no watermarks."""
    on_lost_offsets: Policy = "fail"
    """Where offsets were deleted before they were read, or the topic was made again: fail, go on from the earliest or
    the latest offset, or skip the partition."""
    max_messages: int | None = None
    """Of one partition in one run."""
    span: tuple[int, int] | None = None
    """Only offsets from the first on and before the second, of each partition."""
    timeout_seconds: float = 30.0
    """How long brokers may be silent."""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    """Of librdkafka, such as security.protocol."""

    def __post_init__(self) -> None:
        at_least_one("max_messages", self.max_messages)
        _ = self._reader
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        what = f"of values of the kind {self.value}"
        unused = {
            "json": ["avro_schema"],
            "avro": [] if self.envelope is not None else ["schema"],
            "protobuf": ["avro_schema"],
        }
        refuse_idle(self, unused.get(self.value, ["schema", "avro_schema", "schema_registry", "registry_auth"]), what)
        if self.envelope is not None:
            refuse_idle(self, ["prefix"], "of an envelope, which has no columns of the message beside it")
            if self.value == "json":
                refuse_idle(self, ["schema_registry"], "of an envelope in JSON", "Leave it out, or say value: avro")
        elif isinstance(self._reader, ValueReader) and not self._reader.has_meta:
            refuse_idle(self, ["prefix"], "without columns of the message", "Add include: [key], or leave it out")
        if self.schema_registry is None:
            refuse_idle(self, ["registry_auth"], "without a schema_registry", "Add schema_registry, or leave it out")
        if self.span is not None and self.start == "latest":
            raise InvalidArgument("start: latest says nothing of a span, which has a start", hint="Leave it out")
        for name in sorted(_OURS & self.options.keys()):
            raise InvalidArgument(
                f"The option {name} of librdkafka says nothing here: a run decides it", hint="Leave it out of options"
            )

    @property
    def has_records(self) -> bool:
        return self.value != "bytes"

    def place(self) -> str:
        return f"kafka://{self.brokers}/{self.topic}"

    def describe(self) -> str:
        return f"kafka topic {self.topic}"

    @cached_property
    def _reader(self) -> ValueReader | DebeziumReader:
        if self.envelope is not None:
            if self.value not in ("json", "avro") or self.include or self.avro_schema is not None:
                raise InvalidArgument(
                    "An envelope is JSON or Avro, with a schema and nothing beside it",
                    hint="Leave include and avro_schema out",
                )
            return DebeziumReader(self.value, self.schema, self.schema_registry, self.registry_auth)
        return value_reader(
            self.value,
            schema=self.schema,
            avro_schema=self.avro_schema,
            schema_registry=self.schema_registry,
            registry_auth=self.registry_auth,
            include=self.include,
            prefix=self.prefix,
        )

    def row_schema(self) -> StructType:
        return self._reader.schema

    def within(self, first: str, last: str) -> KafkaSource:
        if not (first.isdecimal() and last.isdecimal()):
            raise InvalidArgument(f"{first} and {last} are no offsets", hint="Give those of each partition: 0 and 100")
        return msgspec.structs.replace(self, span=(int(first), int(last)), start="earliest", max_messages=None)

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        units: list[WorkUnit] = []
        notes: list[str] = []
        has_more = False
        for state in map(self._spanned, self._partitions()):
            found = next_range(
                state,
                watermarks.get(state.name),
                start=self.start,
                on_lost=self.on_lost_offsets,
                is_new_topic=not watermarks,
                limit=self.max_messages,
            )
            if isinstance(found, str):
                notes.append(found)
            elif found is not None:
                notes += [found.note] if found.note else []
                has_more |= found.end < state.latest
                units.append(
                    WorkUnit(
                        partition=state.name,
                        low=watermarks.get(state.name),
                        high=found.high,
                        size=max(1, (found.end - found.start) * _MESSAGE_BYTES),
                        payload={"number": state.number, "start": found.start, "end": found.end},
                    )
                )
        return Plan(units=tuple(units), notes=tuple(notes), has_more=has_more)

    def _spanned(self, state: PartitionState) -> PartitionState:
        if self.span is None:
            return state
        latest = min(state.latest, max(self.span[1], state.earliest))
        return msgspec.structs.replace(state, earliest=min(latest, max(state.earliest, self.span[0])), latest=latest)

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        start, end = unit.payload["start"], unit.payload["end"]
        if start >= end:
            return
        kafka = _kafka()
        consumer, number = self._consumer, unit.payload["number"]
        consumer.assign([kafka.TopicPartition(self.topic, number, start)])
        try:
            for messages, after in bounded(self._events(consumer, number, start, end), start, end):
                chunk = self._reader.read(messages)
                size = sum(map(len, messages))
                yield msgspec.structs.replace(chunk, bytes=size, high={**unit.high, "offset": after})
        finally:
            consumer.unassign()

    def close(self) -> None:
        if "_consumer" in self.__dict__:
            self.__dict__.pop("_consumer").close()

    def _events(self, consumer: Any, number: int, start: int, end: int) -> Iterator[tuple[list[Any], int | None]]:
        """Messages, and the partition's end where it was reached."""
        eof = _kafka().KafkaError._PARTITION_EOF
        place, quiet_since = start, time.monotonic()
        while True:
            got = consumer.consume(max(1, min(_CHUNK, end - place)), _POLL_SECONDS)
            messages = [message for message in got if message.error() is None]
            ended = None
            for error in (m for m in got if m.error() is not None):
                if error.error().code() == eof:
                    ended = error.offset()
                else:
                    self._raise(error.error(), number)
            if messages:
                place = messages[-1].offset() + 1
            if messages or ended is not None:
                quiet_since = time.monotonic()
                yield messages, ended
            elif time.monotonic() - quiet_since > self.timeout_seconds:
                raise SourceTimeout(
                    f"{self.topic}:{number} gave nothing at offset {place} for {self.timeout_seconds:g} s"
                )
            if ended is not None and ended < end:
                self._still_there(number, end)

    def _still_there(self, number: int, end: int) -> None:
        state = next(state for state in self._partitions() if state.number == number)
        if state.latest < end:
            raise SourceChanged(
                f"{state.name} ended at {end} and now ends at {state.latest}: it was made again or truncated meanwhile"
            )

    @cached_property
    def _consumer(self) -> Any:
        return _kafka().Consumer({**self._configuration, "error_cb": self._errors.append})

    @cached_property
    def _errors(self) -> list[Any]:
        """Of connections: what is asked of the brokers only says that none of them answers."""
        return []

    def _refusal(self) -> str | None:
        """Why brokers let nobody in, if that is it."""
        codes = _kafka().KafkaError
        self._consumer.poll(0)  # which is when the client tells of its errors
        known = (codes._AUTHENTICATION, codes._SSL, codes.SASL_AUTHENTICATION_FAILED)
        return next((str(error.str()) for error in reversed(self._errors) if error.code() in known), None)

    @property
    def _configuration(self) -> dict[str, Any]:
        return {
            "log_level": 2,
            # Bounded reads never wait for more to come.
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 50,
            "queued.min.messages": 200_000,
            "check.crcs": True,
            **self.options,
            "bootstrap.servers": self.brokers,
            # Needed by the library and used by nobody: offsets are neither committed nor asked for.
            "group.id": "lakeseal-ingest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }

    def _partitions(self) -> list[PartitionState]:
        kafka = _kafka()
        tools: Any = importlib.import_module("confluent_kafka.admin")
        admin = tools.AdminClient({"log_level": 2, **self.options, "bootstrap.servers": self.brokers})
        with _typed(self):
            # Asked by the consumer: to be asked by an admin client makes a broker create the topic.
            told = self._consumer.list_topics(self.topic, timeout=self.timeout_seconds)
            topic = told.topics[self.topic]
            if topic.error is not None:
                self._raise(topic.error, None)
            numbers = sorted(topic.partitions)
            committed = kafka.IsolationLevel.READ_COMMITTED

            def offsets(spec: Any) -> dict[int, int]:
                asked = {kafka.TopicPartition(self.topic, n): spec for n in numbers}
                futures = admin.list_offsets(asked, isolation_level=committed, request_timeout=self.timeout_seconds)
                return {tp.partition: future.result().offset for tp, future in futures.items()}

            earliest, latest = offsets(tools.OffsetSpec.earliest()), offsets(tools.OffsetSpec.latest())
            topic_id = self._topic_id(admin, told)
        return [
            PartitionState(topic=self.topic, number=n, earliest=earliest[n], latest=latest[n], topic_id=topic_id)
            for n in numbers
        ]

    def _topic_id(self, admin: Any, told: Any) -> str | None:
        if told.controller_id not in told.brokers:
            return None  # brokers that name no controller tell no ids either
        kafka = _kafka()
        try:
            asked = admin.describe_topics(kafka.TopicCollection([self.topic]), request_timeout=self.timeout_seconds)
            found = asked[self.topic].result().topic_id
        except kafka.KafkaException as error:
            if error.args[0].code() in (kafka.KafkaError._UNSUPPORTED_FEATURE, kafka.KafkaError.UNSUPPORTED_VERSION):
                return None
            raise
        return None if found is None else str(found)

    def _raise(self, error: Any, number: int | None) -> None:
        codes = _kafka().KafkaError
        where = self.topic if number is None else f"{self.topic}:{number}"
        code = error.code()
        if code in (
            codes.UNKNOWN_TOPIC_OR_PART,
            codes._UNKNOWN_TOPIC,
            codes._UNKNOWN_PARTITION,
            codes.UNKNOWN_TOPIC_ID,
        ):
            raise SourceNotFound(f"The topic {where} is not there")
        if code in (codes.OFFSET_OUT_OF_RANGE, codes._AUTO_OFFSET_RESET):
            raise SourceChanged(
                f"Offsets of {where} were deleted while they were being read: {error.str()}",
                hint="Run it again: on_lost_offsets says what happens then. Keep messages longer, or run more often",
            )
        if code in (codes.TOPIC_AUTHORIZATION_FAILED, codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED):
            raise SourceUnavailable(f"{where} may not be read: {error.str()}", hint="Check the source's options")
        if not error.retriable() and code not in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT):
            raise SourceUnavailable(f"{where} cannot be read: {error.str()}")


def bounded(events: Iterable[tuple[list[Any], int | None]], start: int, end: int) -> Iterator[tuple[list[Any], int]]:
    """Messages from `start` up to and without `end`, each list with the offset behind it. Ends when no message of the
    range can come any more: a message at or behind the last one was there, or the partition's end was."""
    place = start
    for messages, ended in events:
        if messages:
            if messages[0].offset() < place:
                raise SourceChanged(f"Offset {messages[0].offset()} was given again after {place - 1}")
            last = messages[-1].offset()
            wanted = messages if last < end else [m for m in messages if m.offset() < end]
            place = min(last + 1, end)
            if wanted:
                yield wanted, place
        if place >= end or (ended is not None and ended >= end):
            return
    raise SourceUnavailable(f"The messages ended at offset {place}, before {end}")


class _typed:  # noqa: N801  reads as what it does
    """Kafka's exceptions as ours."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, _kafka().KafkaException):
            told = error.args[0]
            self._source._raise(told, None)
            if refusal := self._source._refusal():
                raise SourceUnavailable(
                    f"The brokers {self._source.brokers} let nobody in: {refusal}",
                    hint="Check the source's options: security.protocol, sasl.*, ssl.*",
                ) from error
            raise SourceUnavailable(f"The brokers {self._source.brokers} do not answer: {told.str()}") from error


def _kafka() -> Any:
    try:
        import confluent_kafka  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported(
            "Kafka's client is not installed", hint="pip install 'lakeseal[kafka]', on executors too"
        ) from error
    return confluent_kafka


class PartitionState(Struct, frozen=True, kw_only=True):
    """A partition as its broker tells it: offsets from `earliest` on, up to and without `latest`."""

    topic: str
    number: int
    earliest: int
    latest: int
    topic_id: str | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.number}"


class OffsetRange(Struct, frozen=True, kw_only=True):
    start: int
    end: int
    high: dict[str, Any]
    note: str | None = None


def next_range(
    state: PartitionState,
    mark: Mapping[str, Any] | None,
    *,
    start: Start,
    on_lost: Policy,
    is_new_topic: bool,
    limit: int | None = None,
) -> OffsetRange | str | None:
    """What to read; None if there is nothing new, a note alone where the policy is to leave the partition alone.
    `is_new_topic` says that no partition of the topic has a watermark."""
    if mark is None:
        # A partition that was added to a known topic is read from its beginning: it has nothing old.
        first = state.earliest if start == "earliest" or not is_new_topic else state.latest
        return _range(state, first, state.latest, 0, None, limit)
    trouble = _trouble(state, mark)
    if trouble is None:
        if mark["offset"] == state.latest:
            return None
        return _range(state, mark["offset"], state.latest, mark["generation"], mark.get("topic_id"), limit)
    note = f"{state.name}: {trouble}"
    match on_lost:
        case "fail":
            raise SourceChanged(
                note,
                hint="Say on_lost_offsets: earliest, latest or skip, or set the watermark by lakeseal ingest reset",
            )
        case "skip":
            return f"{note}; the partition is skipped and its watermark stays"
        case "earliest":
            done = f"{note}; going on from its earliest offset {state.earliest}"
            return _range(state, state.earliest, state.latest, mark["generation"] + 1, None, limit, done)
        case "latest":
            done = f"{note}; going on from its end, {state.latest}"
            return _range(state, state.latest, state.latest, mark["generation"] + 1, None, limit, done)


def _trouble(state: PartitionState, mark: Mapping[str, Any]) -> str | None:
    offset, known_id = mark["offset"], mark.get("topic_id")
    if known_id is not None and state.topic_id is not None and known_id != state.topic_id:
        return f"the topic was deleted and made again (its id was {known_id} and is {state.topic_id})"
    if offset > state.latest:
        return f"offset {offset} is published and the topic ends at {state.latest}: it was made again or truncated"
    if offset < state.earliest:
        return f"the offsets {offset} to {state.earliest - 1} were deleted before they were read"
    return None


def _range(
    state: PartitionState,
    first: int,
    latest: int,
    generation: int,
    known_id: str | None,
    limit: int | None,
    note: str | None = None,
) -> OffsetRange:
    end = latest if limit is None else min(latest, first + limit)
    topic_id = state.topic_id or known_id
    high: dict[str, Any] = {"generation": generation, "offset": end}
    if topic_id is not None:
        high["topic_id"] = topic_id
    return OffsetRange(start=first, end=end, high=high, note=note)
