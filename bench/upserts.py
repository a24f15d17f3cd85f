"""upserts: 5M messages of a real Kafka into a table of 20M rows, beside Delta Spark's `foreachBatch` and MERGE.

LAKESEAL_BENCH_UPSERTS says how many messages; the table has four times as many rows. Of the messages, three in four
are of keys of their own, four fifths of these in the table and spread over all of it; one in five is of a key that
another message has, too, with a larger sequence; and one in twenty comes late: with a smaller sequence than the table
or another message has of its key. The topic has eight partitions, by key, and is filled once for all subjects.

What is timed is one run that finds all of it, in a session that has done the same with a small table and topic before:
ours is `Pipeline.run` on Spark with `mode: upsert`, theirs a stream with `trigger(availableNow=True)`, whose
`foreachBatch` takes the last row of each key and merges it where its sequence is larger. Both have all cores and 6 GB
for the JVM.

Afterwards every row of the table is compared with a dictionary that was given all messages, for both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from change import copied
from delta_spark import DeltaSpark
from harness import Subject, Timer, cpu_of_children, data_folder, delta_spark_is_wanted, scratch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from harness import Report

MESSAGES = int(os.environ.get("LAKESEAL_BENCH_UPSERTS", 5_000_000))
SMALL = 20_000
FILES = 20
PARTITIONS = 8
SCHEMA = "id long, n long, amount double, name string"


def main(report: Report) -> None:
    from support.real_kafka import is_there, real_kafka

    if not is_there():
        report.say("upserts: there is no Kafka here: make peers fetches it from Maven Central")
        return
    table, small = (str(data_folder(f"upserts-{4 * count}", build, rows=4 * count)) for count in (MESSAGES, SMALL))
    with scratch() as place, real_kafka(place) as kafka:
        for count in {SMALL, MESSAGES}:
            produce(kafka.address, count)
        arguments = {"table": table, "small": small, "address": kafka.address}
        subjects = [Subject(name="lakeseal", function=by_lakeseal, arguments=arguments)]
        if delta_spark_is_wanted():
            subjects.append(Subject(name="Delta Spark", function=by_delta_spark, arguments=arguments))
        case = f"{MESSAGES:,} upserts into {4 * MESSAGES:,} rows"
        report.compare(case, subjects, targets={"Delta Spark": 1.5}, warm_up=False)


def rows_of(ids: np.ndarray, sequences: np.ndarray) -> pa.Table:
    """What a row says follows from its key and its sequence."""
    import pyarrow as pa
    import pyarrow.compute as pc

    scattered = (ids * 2_654_435_761 + sequences * 40_503) % 2**32
    names = pc.binary_join_element_wise("customer", pa.array(scattered % 100_000).cast(pa.string()), " ")
    return pa.table({"id": ids, "n": sequences, "amount": (scattered % 10_000) / 100, "name": names})


def build(folder: Path, rows: int) -> None:
    import numpy as np

    import lakeseal

    table = lakeseal.Table(folder)
    for number in range(FILES):
        ids = np.arange(rows * number // FILES, rows * (number + 1) // FILES)
        table.write(rows_of(ids, np.full(len(ids), 10)))
    table.checkpoint()


def messages(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and sequences, in the order in which they are sent; the table has the keys below 4 × count."""
    import numpy as np

    chance = np.random.default_rng(count)
    own = count * 3 // 4
    known = own * 4 // 5
    single = np.concatenate([chance.choice(4 * count, known, replace=False), 4 * count + np.arange(own - known)])
    repeats, late = count // 5, count - own - count // 5
    again = chance.choice(single, repeats)
    behind = np.concatenate([chance.choice(single[:known], late // 2), chance.choice(single, late - late // 2)])
    ids = np.concatenate([single, again, behind])
    sequences = np.concatenate(
        [np.full(own, 20), 21 + np.arange(repeats), np.full(late // 2, 5), np.full(late - late // 2, 15)]
    )
    order = chance.permutation(count)
    return ids[order], sequences[order]


def produce(address: str, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(f"t{count}", PARTITIONS, 1)])[f"t{count}"].result(30)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    ids, sequences = messages(count)
    for start in range(0, count, 100_000):
        some = rows_of(ids[start : start + 100_000], sequences[start : start + 100_000])
        for row in zip(*(column.to_pylist() for column in some.columns), strict=True):
            value = b'{"id": %d, "n": %d, "amount": %.2f, "name": "%s"}' % (*row[:3], row[3].encode())
            producer.produce(f"t{count}", value, partition=row[0] % PARTITIONS)
        producer.flush()


def by_lakeseal(timer: Timer, table: str, small: str, address: str) -> dict[str, Any]:
    from lakeseal.commit.post_commit import flush
    from lakeseal.spark.local_session import local_session

    spark = local_session("upserts", cores=os.cpu_count() or 1, settings={"spark.driver.memory": "6g"})
    spark.sparkContext.setLogLevel("ERROR")
    with copied(small) as warm, copied(table) as copy, scratch() as place:
        _pipeline(place, "warm", warm, address, SMALL).run(spark)
        pipeline = _pipeline(place, "upserts", copy, address, MESSAGES)
        with timer, cpu_of_children(timer):
            pipeline.run(spark)
        flush()
        spark.stop()
        return facts(copy)


def _pipeline(place: Path, name: str, table: str, address: str, count: int) -> Any:
    from lakeseal.ingest import Dataset, KafkaSource, Pipeline, TableTarget

    source = KafkaSource(brokers=address, topic=f"t{count}", schema=SCHEMA)
    target = TableTarget(uri=table, mode="upsert", keys=("id",), sequence_by="n", owner="none")
    dataset = Dataset(name=name, source=source, target=target)
    return Pipeline(name=name, ledger=f"sqlite:///{place}/{name}.db", datasets=[dataset])


_STREAM = """
    from delta.tables import DeltaTable
    from pyspark.sql import functions as f

    def upsert(batch, _):
        last = batch.groupBy("id").agg(f.max_by(f.struct("*"), "n").alias("last")).select("last.*")
        merge = DeltaTable.forPath(batch.sparkSession, uri).alias("t").merge(last.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll("s.n > t.n").whenNotMatchedInsertAll().execute()

    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").load()
    rows = stream.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select("row.*")
    query = rows.writeStream.foreachBatch(upsert).option("checkpointLocation", f"{uri}-{topic}")
    query.trigger(availableNow=True).start().awaitTermination()
"""


def by_delta_spark(timer: Timer, table: str, small: str, address: str) -> dict[str, Any]:
    with copied(small) as warm, copied(table) as copy, DeltaSpark() as peer:
        peer.run(_STREAM, uri=warm, address=address, topic=f"t{SMALL}", schema=SCHEMA)
        peer.run(_STREAM, timer, uri=copy, address=address, topic=f"t{MESSAGES}", schema=SCHEMA)
        return facts(copy)


def facts(uri: str) -> dict[str, Any]:
    """How many rows there are, and whether they are those of the dictionary."""
    import numpy as np

    import lakeseal

    ids, sequences = messages(MESSAGES)
    expected = np.zeros(int(ids.max()) + 1, np.int64)
    expected[: 4 * MESSAGES] = 10
    np.maximum.at(expected, ids, sequences)
    seen, is_equal = np.zeros(len(expected), np.int64), True
    for batch in lakeseal.Table(uri).to_batches():
        keys = batch["id"].to_numpy()
        np.add.at(seen, keys, 1)
        right = rows_of(keys, expected[keys])
        is_equal &= all(batch[name].equals(right[name].combine_chunks()) for name in right.column_names)
    return {"rows": int(seen.sum()), "equal to a dictionary": bool(is_equal and (seen == 1).all())}
