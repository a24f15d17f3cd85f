"""ingest: Kafka to a committed version of a table, beside tasks that only consume; and a run that finds nothing new.

A broker process (librdkafka's own mock, on loopback) holds a topic of many partitions. What is timed on our side is one
`Pipeline.run` on Spark: ask for the offsets, read all of them in tasks (value as it is, key, partition, offset and
timestamp of each message), write Parquet with statistics, commit rows and watermarks, and put the commit into the log.
On the other side the same Spark runs the same number of tasks over the same offsets, which only take the messages from
confluent-kafka by its fastest call, with the same settings of the client, and count them and the bytes of their values.
Both have run once before on a small topic (workers started, code loaded). Messages of 100 bytes and of 1 KB.

`no news`: a run over the same pipeline when all is published, Spark being up.

`200 datasets`: one small file each, to directories; tasks publish them, beside the same run whose driver does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import Subject, Timer, cpu_of_children, scratch

if TYPE_CHECKING:
    from harness import Report
    from pyspark.sql import SparkSession

MEGABYTES = int(os.environ.get("LAKESEAL_BENCH_KAFKA_MB", "200"))
# The mock keeps about 5 MB of a partition.
PARTITION_MEGABYTES = 4
BROKER = """
import sys
from lakeseal.testing.kafka import KafkaBroker
with KafkaBroker() as broker:
    for topic, size, count, partitions in (("small", 100, 1000, 4), ("large", *map(int, sys.argv[1:]))):
        broker.create_topic(topic, partitions)
        for partition in range(partitions):
            share = count // partitions
            values = (b"%0*d" % (size, n) for n in range(partition * share, (partition + 1) * share))
            broker.produce(topic, values, partition=partition, key=b"key")
    print(broker.address, flush=True)
    sys.stdin.read()
"""


def main(report: Report) -> None:
    for size in (100, 1000):
        # What a message takes in the broker beside its value.
        count = MEGABYTES * 10**6 // (size + 20)
        partitions = -(-MEGABYTES // PARTITION_MEGABYTES)
        arguments = {"size": size, "count": count // partitions * partitions, "partitions": partitions}
        case = f"{arguments['count']:,} messages of {size} B"
        measured = report.compare(
            case,
            [
                Subject(name="lakeseal", function=ingest, arguments=arguments),
                Subject(name="only consume", function=consume, arguments=arguments),
            ],
            targets={"only consume": 0.6},
            warm_up=False,
        )
        for one in measured:
            report.fact(case, **{f"{one.subject}: messages_a_second": arguments["count"] / one.median_seconds})
    report.compare("no news", [Subject(name="lakeseal", function=no_news)], warm_up=False)
    report.compare(
        "200 datasets",
        [
            Subject(name="tasks publish", function=many, arguments={"least": 64}),
            Subject(name="the driver publishes", function=many, arguments={"least": 1000}),
        ],
        warm_up=False,
    )


def ingest(timer: Timer, size: int, count: int, partitions: int) -> dict[str, int]:
    from lakeseal import Table

    with _spark() as spark, _broker(size, count, partitions) as address, scratch() as folder:
        _pipeline(folder, address, "small").run(spark)
        pipeline = _pipeline(folder, address, "large")
        with timer, cpu_of_children(timer):
            pipeline.run(spark)
        table = Table(folder / "large", owner=pipeline.config.ledger)
        lengths = sum(map(len, table.to_arrow(columns=["value"])["value"].to_pylist()))
        return {"messages": table.to_arrow(columns=["offset"]).num_rows, "bytes": lengths}


def consume(timer: Timer, size: int, count: int, partitions: int) -> dict[str, int]:
    with _spark() as spark, _broker(size, count, partitions) as address:
        _consumed(spark, address, "small")
        with timer, cpu_of_children(timer):
            messages, length = _consumed(spark, address, "large")
        return {"messages": messages, "bytes": length}


def no_news(timer: Timer) -> dict[str, str]:
    with _spark() as spark, _broker(100, 4000, 4) as address, scratch() as folder:
        pipeline = _pipeline(folder, address, "large")
        pipeline.run(spark)
        with timer:
            result = pipeline.run(spark)
        return {"state": result.state}


def many(timer: Timer, least: int) -> dict[str, int]:
    from lakeseal.ingest import Dataset, DirectoryTarget, FilesSource, Pipeline, delegation

    delegation.FROM = least
    with _spark() as spark, scratch() as folder:
        datasets = []
        for n in range(200):
            (folder / f"in/{n}").mkdir(parents=True)
            source = FilesSource(path=str(folder / f"in/{n}"), format="json", schema="id long")
            target = DirectoryTarget(path=str(folder / f"out/{n}"))
            datasets.append(Dataset(name=f"d{n}", source=source, target=target))
        pipeline = Pipeline(name="many", ledger=f"sqlite:///{folder}/ledger.db", datasets=datasets)
        for run in range(2):
            for n in range(200):
                (folder / f"in/{n}/{run}.json").write_text("".join(f'{{"id": {i}}}\n' for i in range(100)))
            if not run:
                pipeline.run(spark)
        with timer, cpu_of_children(timer):
            return {"rows": pipeline.run(spark).rows}


def _pipeline(folder: Path, address: str, topic: str) -> Any:
    from lakeseal.ingest import Dataset, KafkaSource, Pipeline, TableTarget

    source = KafkaSource(brokers=address, topic=topic, value="bytes")
    dataset = Dataset(name=topic, source=source, target=TableTarget(uri=str(folder / topic)))
    return Pipeline(name=f"bench {topic}", ledger=f"sqlite:///{folder}/ledger.db", datasets=[dataset])


def _consumed(spark: SparkSession, address: str, topic: str) -> tuple[int, int]:
    """By the very tasks that an ingest would have."""
    import msgspec
    import pyarrow as pa

    from lakeseal.ingest import KafkaSource, orders

    source = KafkaSource(brokers=address, topic=topic, value="bytes")
    units = source.plan({}).units
    limits = {"task_bytes": 128 * 2**20, "parallel": 8}
    tasks = orders.tasks(orders.orders(0, units, "full", **limits), **limits)
    told = [
        (n, msgspec.json.encode([unit.payload for order in given for unit in order.units]).decode())
        for n, given in enumerate(tasks)
    ]
    settings = source._configuration

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        for batch in batches:
            for text in batch["ranges"].to_pylist():
                consumer = Consumer(settings)
                messages = length = 0
                for one in msgspec.json.decode(text):
                    consumer.assign([TopicPartition(topic, one["number"], one["start"])])
                    place = one["start"]
                    while place < one["end"]:
                        got = consumer.consume(max(1, min(20_000, one["end"] - place)), 0.2)
                        values = [message for message in got if message.error() is None]
                        if values:
                            place = values[-1].offset() + 1
                            messages += len(values)
                            length += sum(map(len, values))
                consumer.close()
                yield pa.RecordBatch.from_pydict({"messages": [messages], "bytes": [length]})

    frame = spark.createDataFrame(told, "task int, ranges string")
    parted = frame.repartitionById(len(told), "task") if len(told) > 1 else frame.coalesce(1)
    rows = parted.mapInArrow(take, "messages long, bytes long").collect()
    return sum(row.messages for row in rows), sum(row.bytes for row in rows)


@contextlib.contextmanager
def _broker(size: int, count: int, partitions: int) -> Iterator[str]:
    command = [sys.executable, "-c", BROKER, str(size), str(count), str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        yield broker.stdout.readline().strip()
        broker.stdin.close()


@contextlib.contextmanager
def _spark() -> Iterator[SparkSession]:
    from lakeseal.spark.local_session import local_session

    spark = local_session("bench ingest")
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
