"""A Kafka source beside a real broker: transactions, topics that are made again, retention."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakeseal.cli.java import find_java
from lakeseal.errors import SourceChanged, SourceNotFound
from lakeseal.ingest import Dataset, KafkaSource, Pipeline, TableTarget
from lakeseal.table import Table

pytestmark = pytest.mark.peers

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={place}/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Kafka:
    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 2})

    def create(self, topic: str, partitions: int = 1) -> None:
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(30)

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result(30)

    def produce(self, topic: str, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for n in range(first, first + count):
            producer.produce(topic, b'{"id": %d}' % n)
        assert producer.flush(30) == 0

    def source(self, topic: str, **options: Any) -> KafkaSource:
        return KafkaSource(brokers=self.address, topic=topic, schema="id long", **options)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    listed = ROOT / ".venv-peers" / "kafka-jars.txt"
    java = find_java()
    if not listed.exists() or java is None:
        pytest.skip("there is no Kafka broker here: make peers fetches one from Maven Central")
    place = tmp_path_factory.mktemp("kafka")
    port, controller = free_port(), free_port()
    settings = place / "server.properties"
    settings.write_text(SETTINGS.format(port=port, controller=controller, place=place))
    # What Kafka shares with Spark is not fetched again.
    jars = [*listed.read_text().split(), str(Path(pyspark.__file__).parent / "jars" / "*")]
    command = [str(java.home / "bin" / "java"), "-Xmx512m", "-cp", os.pathsep.join(jars)]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run(format, check=True, capture_output=True, timeout=60)
    with (place / "broker.log").open("wb") as log:
        broker = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        running = Kafka(f"127.0.0.1:{port}")
        deadline = time.monotonic() + 60
        while True:
            assert broker.poll() is None, (place / "broker.log").read_text()[-4000:]
            try:
                running.admin.list_topics(timeout=2)
                break
            except Exception:
                assert time.monotonic() < deadline, "the broker does not answer"
        yield running
    finally:
        broker.kill()
        broker.wait()


def read(source: KafkaSource, marks: dict[str, Any] | None = None) -> tuple[list[int], dict[str, Any]]:
    units = source.plan(marks or {}).units
    found = [row["id"] for unit in units for chunk in source.read(unit) for row in chunk.rows.to_pylist()]
    source.close()
    return found, {unit.partition: unit.high for unit in units}


def test_markers_aborted_and_open_transactions_are_neither_waited_for_nor_read(kafka: Kafka) -> None:
    kafka.create("transactions")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "peer"})
    producer.init_transactions(30)
    source = kafka.source("transactions", timeout_seconds=10)
    for first, is_kept in ((0, True), (5, False), (10, True)):
        producer.begin_transaction()
        for n in range(first, first + 5):
            producer.produce("transactions", b'{"id": %d}' % n)
        producer.flush(30)
        if first == 10:
            ids, marks = read(source)
            assert ids == [0, 1, 2, 3, 4]
        (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
    ids, after = read(source, marks)
    assert ids == [10, 11, 12, 13, 14]
    assert after["transactions:0"]["offset"] == 18  # 15 messages and 3 markers
    assert source.plan(after).units == ()


def test_a_topic_made_again_is_known_by_its_id_even_if_it_is_longer_now(kafka: Kafka) -> None:
    kafka.create("again")
    kafka.produce("again", 0, 3)
    ids, marks = read(kafka.source("again"))
    assert ids == [0, 1, 2]
    assert marks["again:0"]["topic_id"]
    kafka.delete("again")
    time.sleep(1)
    with pytest.raises(SourceNotFound):
        kafka.source("again").plan(marks)
    assert "again" not in kafka.admin.list_topics(timeout=10).topics, "asking must not make the topic"
    kafka.create("again")
    kafka.produce("again", 100, 10)
    with pytest.raises(SourceChanged, match="deleted and made again"):
        kafka.source("again").plan(marks)
    ids, marks = read(kafka.source("again", on_lost_offsets="earliest"), marks)
    assert ids == list(range(100, 110))
    assert marks["again:0"]["generation"] == 1


def test_deleted_offsets_are_told(kafka: Kafka) -> None:
    kafka.create("aged")
    kafka.produce("aged", 0, 10)
    for future in kafka.admin.delete_records([TopicPartition("aged", 0, 4)]).values():
        future.result(30)
    with pytest.raises(SourceChanged, match="2 to 3"):
        kafka.source("aged").plan({"aged:0": {"generation": 0, "offset": 2}})


def test_a_pipeline_publishes_each_message_once(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("pipeline", 3)
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    dataset = Dataset(name="k", source=kafka.source("pipeline"), target=TableTarget(uri=str(tmp_path / "t")))
    pipeline = Pipeline(name="peer", ledger=ledger, datasets=[dataset])
    for first in (0, 1000):
        kafka.produce("pipeline", first, 1000)
        assert pipeline.run().rows == 1000
    assert pipeline.run().state == "nothing_new"
    ids = Table(tmp_path / "t", owner=ledger).to_arrow(columns=["id"])["id"].to_pylist()
    assert Counter(ids) == Counter(range(2000))
