"""A Kafka broker for tests: librdkafka's own mock cluster, on loopback, as long as its `with` block.

    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.produce("orders", [b'{"id": 1}', b'{"id": 2}'])
        Consumer({"bootstrap.servers": broker.address, …})

It speaks Kafka's protocol over real sockets. It keeps about 5 MB of each partition and forgets the oldest beyond that;
it does not give topics ids, delete them, or write transaction markers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PRODUCER = 0
_TEXT_BYTES = 512


def _library() -> Any:
    import confluent_kafka  # an extra

    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.parent.glob("confluent_kafka.libs/librdkafka-*")) + sorted(
        package.glob(".dylibs/librdkafka*")
    )
    library = ctypes.CDLL(str(found[0]))
    for name, result, arguments in (
        ("rd_kafka_conf_new", ctypes.c_void_p, []),
        ("rd_kafka_conf_set", ctypes.c_int, [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]),
        ("rd_kafka_new", ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("rd_kafka_mock_cluster_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
        ("rd_kafka_mock_topic_create", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]),
        (
            "rd_kafka_mock_partition_delete_records",
            ctypes.c_int,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64],
        ),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class KafkaBroker:
    def __init__(self) -> None:
        self._library = library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = library.rd_kafka_conf_new()
        library.rd_kafka_conf_set(conf, b"log_level", b"0", text, _TEXT_BYTES)
        self._client = library.rd_kafka_new(_PRODUCER, conf, text, _TEXT_BYTES)
        if not self._client:
            raise RuntimeError(f"librdkafka gives no client: {text.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        self.address: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer: Any = None

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        code = self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)
        if code:
            raise RuntimeError(f"the broker does not make the topic {topic!r}: error {code}")

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        """Returns when the broker has them all."""
        from confluent_kafka import Producer  # an extra

        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 5})
        for value in values:
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, headers=headers)
                except BufferError:
                    self._producer.poll(0.1)
                    continue
                break
        if left := self._producer.flush(60):
            raise RuntimeError(f"{left} messages were not taken")

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does."""
        code = self._library.rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), partition, offset)
        if code:
            raise RuntimeError(f"the broker does not delete records of {topic!r}: error {code}")

    def pause(self) -> None:
        """Take no connections, and drop those that there are."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def resume(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def close(self) -> None:
        self._producer = None
        if self._client:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
