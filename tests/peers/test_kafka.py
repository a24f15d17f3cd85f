"""A Kafka source beside a real broker: transactions, topics that are made again, retention."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakeseal.errors import SourceChanged, SourceNotFound, SourceUnavailable
from lakeseal.ingest import Dataset, KafkaSource, Pipeline, TableTarget
from lakeseal.table import Table
from support.real_kafka import RealKafka, is_there, real_kafka

pytestmark = pytest.mark.peers


class Kafka:
    def __init__(self, running: RealKafka) -> None:
        self.running, self.address = running, running.address
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})

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
    if not is_there():
        pytest.skip("there is no Kafka broker here: make peers fetches one from Maven Central")
    with real_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield Kafka(running)


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


def test_a_broker_that_wants_tls_and_a_password_is_read_by_who_has_both(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("secured")
    kafka.produce("secured", 0, 5)
    monkeypatch.setenv("KAFKA_PASSWORD", kafka.running.password)
    yaml = tmp_path / "secured.yaml"
    yaml.write_text(f"""
name: secured
ledger: sqlite:///{tmp_path}/ledger.db
datasets:
  - name: secured
    source:
      type: kafka
      brokers: {kafka.running.secured}
      topic: secured
      schema: id long
      timeout_seconds: 15
      options:
        security.protocol: SASL_SSL
        sasl.mechanism: PLAIN
        sasl.username: reader
        sasl.password: "${{KAFKA_PASSWORD}}"
        ssl.ca.location: {kafka.running.certificate}
    target: {{type: table, uri: {tmp_path}/t}}
""")
    pipeline = Pipeline.from_yaml(yaml)
    assert pipeline.run().rows == 5
    source = pipeline.config.datasets[0].source
    assert isinstance(source, KafkaSource)
    for wrong, reason in (({"sasl.password": "guessed"}, "password"), ({"ssl.ca.location": ""}, "certificate")):
        options = {**source.options, **wrong}
        refused = kafka.source("secured", options={name: one for name, one in options.items() if one})
        refused = msgspec.structs.replace(refused, brokers=kafka.running.secured, timeout_seconds=5)
        with pytest.raises(SourceUnavailable, match=f"let nobody in: .*{reason}") as caught:
            refused.plan({})
        assert "guessed" not in str(caught.value)
        assert kafka.running.password not in str(caught.value)
