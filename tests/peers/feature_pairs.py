"""Runs in Delta Spark: tables with features switched on at random, and what Delta Spark finds in them.

`made(spark, seed, place)` makes a table at `place/table` and beside it, as plain Parquet, its rows at some versions, a
change feed from the first version that has one, and the ids of its rows. It gives the story, and what it looked at.
"""

import random

KINDS = {
    "BIGINT": ["1", "-9223372036854775808", "42"],
    "INT": ["1", "-2147483648", "77"],
    "SMALLINT": ["1S", "-32768S"],
    "TINYINT": ["1Y", "-128Y"],
    "DOUBLE": ["0.1D", "double('NaN')", "double('-Infinity')", "-0.0D"],
    "FLOAT": ["float('0.5')", "float('NaN')"],
    "DECIMAL(9,2)": ["1.25", "-9999999.99"],
    "DECIMAL(38,18)": ["12345678901234567890.123456789012345678", "-0.5"],
    "STRING": ["'a'", "'é/=% :'", "''", "'it''s'", "repeat('x', 40)"],
    "BINARY": ["X'00FF'", "X''", "X'616263'"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["DATE'2024-02-29'", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-04'"],
    "TIMESTAMP": [
        "TIMESTAMP'2024-03-10 02:30:00.123456Z'",
        "TIMESTAMP'1883-11-18 12:00:00Z'",
        "TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    ],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2024-03-10 02:30:00.123456'", "TIMESTAMP_NTZ'1900-01-01 00:00:00'"],
    "STRUCT<a: INT, b: STRING>": ["named_struct('a', 1, 'b', 'x')", "named_struct('a', null, 'b', null)"],
    "STRUCT<a: STRUCT<c: DATE, d: ARRAY<INT>>, b: BIGINT>": [
        "named_struct('a', named_struct('c', DATE'2024-01-01', 'd', array(1, null)), 'b', 3L)",
        "named_struct('a', null, 'b', 1L)",
    ],
    "ARRAY<INT>": ["array(1, null, 3)", "array()"],
    "ARRAY<STRUCT<a: INT, b: STRING>>": ["array(named_struct('a', 1, 'b', 'x'), null)", "array()"],
    "MAP<STRING, INT>": ["map('k', 1, 'l', null)", "map()"],
    "MAP<INT, STRUCT<a: INT>>": ["map(1, named_struct('a', 5))"],
    "VARIANT": [
        'parse_json(\'{"a": 1, "b": [1, "x", null]}\')',
        "parse_json('null')",
        "parse_json('12.5')",
        'parse_json(\'{"a": "text"}\')',
    ],
    "CHAR(5)": ["'q'", "'abcde'"],
    "VARCHAR(5)": ["'q'", "'abcde'"],
}
ATOMIC = [
    "BIGINT",
    "INT",
    "SMALLINT",
    "TINYINT",
    "DECIMAL(9,2)",
    "STRING",
    "BINARY",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "DOUBLE",
    "FLOAT",
    "DECIMAL(38,18)",
]
WIDER = {
    "TINYINT": ["SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(10,0)"],
    "SMALLINT": ["INT", "BIGINT", "DOUBLE", "DECIMAL(12,1)"],
    "INT": ["BIGINT", "DOUBLE", "DECIMAL(14,3)"],
    "BIGINT": ["DECIMAL(20,0)", "DECIMAL(22,2)"],
    "FLOAT": ["DOUBLE"],
    "DECIMAL(9,2)": ["DECIMAL(20,2)", "DECIMAL(20,5)"],
    "DATE": ["TIMESTAMP_NTZ"],
}
SETTINGS = {
    "spark.sql.parquet.writeLegacyFormat": ["false", "false", "true"],
    "spark.sql.parquet.outputTimestampType": ["TIMESTAMP_MICROS", "INT96", "TIMESTAMP_MILLIS"],
    "spark.sql.parquet.compression.codec": ["snappy", "zstd", "gzip", "lz4", "uncompressed"],
    "spark.databricks.delta.checkpoint.partSize": ["1000", "2"],
    "spark.databricks.delta.checkpointV2.topLevelFileFormat": ["json", "parquet"],
    "spark.sql.session.timeZone": ["UTC", "UTC", "America/New_York"],
    "spark.databricks.delta.stats.collect": ["true", "true", "false"],
}

SMALL = {
    "spark.sql.variant.writeShredding.enabled": "false",
    # Compiling a query takes far longer than running it over a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


class Case:
    def __init__(self, spark, seed, place):
        self.spark, self.chance, self.place = spark, random.Random(seed), place
        self.uri = f"{place}/table"
        self.t = f"delta.`{self.uri}`"
        self.story, self.failed = [], []
        self.next = 0

    def sql(self, text):
        self.story.append(text)
        return self.spark.sql(text)

    def attempt(self, text):
        """What may be refused, as some pairs of features are."""
        try:
            self.sql(text)
        except Exception as error:
            self.story.pop()
            self.failed.append((text, str(error)[:200]))

    def create(self):
        chance = self.chance
        for name, values in SETTINGS.items():
            self.spark.conf.set(name, chance.choice(values))
        self.mapping = chance.choice(["none", "name", "id", "name"])
        self.columns = {"id": "BIGINT"}
        names = ["a", "Bee", "größe", "select", "n1", "n2", "n3"] + (
            ["x.y", "sp ace", "q`t", "c,d;e"] if self.mapping != "none" else []
        )
        chance.shuffle(names)
        self.names = names
        for _ in range(chance.randint(2, 6)):
            self.columns[names.pop()] = chance.choice(sorted(KINDS))
        self.partitions = []
        layout = chance.choice(["", "", "partition", "cluster"])
        loose = [c for c, k in self.columns.items() if k in ATOMIC and c != "id"]
        if layout == "partition" and loose:
            self.partitions = chance.sample(loose, k=min(len(loose), chance.randint(1, 2)))
        properties = {
            "delta.enableDeletionVectors": ["true", "true", "false"],
            "delta.enableTypeWidening": ["true", "false"],
            "delta.enableRowTracking": ["true", "false"],
            "delta.enableChangeDataFeed": ["true", "false"],
            "delta.enableInCommitTimestamps": ["true", "false"],
            "delta.checkpointPolicy": ["v2", "classic"],
            "delta.checkpointInterval": ["1", "2", "3", "10"],
            "delta.checkpoint.writeStatsAsJson": ["true", "false"],
            "delta.checkpoint.writeStatsAsStruct": ["true", "false"],
            "delta.dataSkippingNumIndexedCols": ["0", "2", "32"],
            "delta.randomizeFilePrefixes": ["true", "false", "false"],
            "delta.enableVariantShredding": ["false"],
            "delta.feature.vacuumProtocolCheck": ["supported", None],
            "delta.feature.domainMetadata": ["supported", None],
            "delta.parquet.compression.codec": [None],
        }
        self.properties = {k: v for k, vs in properties.items() if (v := chance.choice(vs)) is not None}
        if layout == "cluster":
            self.properties["delta.dataSkippingNumIndexedCols"] = "32"
        if self.mapping != "none":
            self.properties["delta.columnMapping.mode"] = self.mapping
        extra = []
        if chance.random() < 0.25:
            extra.append("g BIGINT GENERATED ALWAYS AS (id * 2)")
        if chance.random() < 0.25:
            extra.append("ident BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY 3)")
        if chance.random() < 0.3:
            extra.append("dflt STRING DEFAULT 'dé'")
            self.properties["delta.feature.allowColumnDefaults"] = "supported"
        columns = [
            f"{q(n)} {k}" + (" NOT NULL" if n == "id" and chance.random() < 0.3 else "")
            for n, k in self.columns.items()
        ] + extra
        text = f"CREATE TABLE {self.t} ({', '.join(columns)}) USING delta"
        if self.partitions:
            text += f" PARTITIONED BY ({', '.join(map(q, self.partitions))})"
        elif layout == "cluster" and loose:
            by = [c for c in loose if self.columns[c] not in ("BINARY", "BOOLEAN")][:2] or ["id"]
            text += f" CLUSTER BY ({', '.join(map(q, by))})"
        text += " TBLPROPERTIES (" + ", ".join(f"'{k}' = '{v}'" for k, v in self.properties.items()) + ")"
        self.sql(text)

    def value(self, kind):
        return (
            "null"
            if self.chance.random() < 0.2
            else self.chance.choice(KINDS[kind])
            if kind in KINDS
            else f"CAST(1 AS {kind})"
        )

    def insert(self):
        rows = []
        for _ in range(self.chance.randint(1, 5)):
            rows.append(
                [str(self.next), *(f"CAST({self.value(k)} AS {k})" for n, k in self.columns.items() if n != "id")]
            )
            self.next += 1
        names = ", ".join(map(q, self.columns))
        self.attempt(f"INSERT INTO {self.t} ({names}) " + " UNION ALL ".join("SELECT " + ", ".join(r) for r in rows))

    def some(self):
        chance = self.chance
        if self.next == 0:
            return "true"
        return chance.choice(
            [
                f"id % 3 = {chance.randint(0, 2)}",
                f"id = {chance.randrange(self.next)}",
                f"id > {chance.randrange(self.next)}",
            ]
        )

    def delete(self):
        self.attempt(f"DELETE FROM {self.t} WHERE {self.some()}")

    def update(self):
        loose = [n for n in self.columns if n != "id"]
        if loose:
            name = self.chance.choice(loose)
            kind = self.columns[name]
            self.attempt(f"UPDATE {self.t} SET {q(name)} = CAST({self.value(kind)} AS {kind}) WHERE {self.some()}")

    def merge(self):
        loose = [n for n in self.columns if n != "id"]
        name = self.chance.choice(loose) if loose else None
        sets = (
            f"UPDATE SET {q(name)} = CAST({self.value(self.columns[name])} AS {self.columns[name]})"
            if name
            else "DELETE"
        )
        first, self.next = self.next, self.next + 2
        names = ", ".join(map(q, self.columns))
        values = ", ".join("s.id" if n == "id" else f"CAST({self.value(k)} AS {k})" for n, k in self.columns.items())
        self.attempt(
            f"MERGE INTO {self.t} t USING (SELECT id FROM range({max(0, first - 3)}, {first + 2})) s ON t.id = s.id "
            f"WHEN MATCHED AND s.id % 2 = 0 THEN {sets} WHEN MATCHED THEN DELETE "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )

    def optimize(self):
        self.attempt(
            self.chance.choice([f"OPTIMIZE {self.t}", f"REORG TABLE {self.t} APPLY (PURGE)", f"OPTIMIZE {self.t} FULL"])
        )

    def add_column(self):
        if not self.names:
            return
        name, kind = self.names.pop(), self.chance.choice(sorted(KINDS))
        before = len(self.failed)
        self.attempt(
            f"ALTER TABLE {self.t} ADD COLUMN ({q(name)} {kind} {self.chance.choice(['', 'FIRST', 'AFTER id'])})"
        )
        if len(self.failed) == before:
            self.columns[name] = kind

    def add_nested(self):
        for n, k in self.columns.items():
            if k.startswith("STRUCT<a: INT"):
                self.attempt(f"ALTER TABLE {self.t} ADD COLUMN ({q(n)}.more DATE)")
                self.columns[n] = k[:-1] + ", more: DATE>"
                KINDS.setdefault(self.columns[n], ["named_struct('a', 1, 'b', 'x', 'more', DATE'2020-01-01')"])
                return

    def rename(self):
        loose = [n for n in self.columns if n != "id"]
        if loose and self.names:
            old, new = self.chance.choice(loose), self.names.pop()
            before = len(self.failed)
            self.attempt(f"ALTER TABLE {self.t} RENAME COLUMN {q(old)} TO {q(new)}")
            if len(self.failed) == before:
                self.columns = {new if n == old else n: k for n, k in self.columns.items()}

    def drop(self):
        loose = [n for n in self.columns if n != "id"]
        if loose:
            name = self.chance.choice(loose)
            before = len(self.failed)
            self.attempt(f"ALTER TABLE {self.t} DROP COLUMN {q(name)}")
            if len(self.failed) == before:
                del self.columns[name]
                if self.chance.random() < 0.5:
                    self.names.append(name)  # its name may be given to another one

    def widen(self):
        wide = [n for n, k in self.columns.items() if k in WIDER]
        if wide:
            name = self.chance.choice(wide)
            kind = self.chance.choice(WIDER[self.columns[name]])
            before = len(self.failed)
            self.attempt(f"ALTER TABLE {self.t} ALTER COLUMN {q(name)} TYPE {kind}")
            if len(self.failed) == before:
                self.columns[name] = kind

    def widen_nested(self):
        for n, k in self.columns.items():
            for path, old, new in (
                ("element", "ARRAY<INT>", "ARRAY<BIGINT>"),
                ("value", "MAP<STRING, INT>", "MAP<STRING, BIGINT>"),
                ("a", "STRUCT<a: INT, b: STRING>", "STRUCT<a: BIGINT, b: STRING>"),
            ):
                if k == old:
                    before = len(self.failed)
                    self.attempt(f"ALTER TABLE {self.t} ALTER COLUMN {q(n)}.{path} TYPE BIGINT")
                    if len(self.failed) == before:
                        self.columns[n] = new
                        KINDS.setdefault(new, KINDS[old])
                    return

    def toggle(self):
        name, value = self.chance.choice(
            [
                ("delta.enableChangeDataFeed", "true"),
                ("delta.enableDeletionVectors", "true"),
                ("delta.enableTypeWidening", "true"),
                ("delta.columnMapping.mode", "name"),
                ("delta.enableInCommitTimestamps", "true"),
                ("delta.checkpointPolicy", "v2"),
                ("delta.enableRowTracking", "true"),
                ("delta.enableDeletionVectors", "false"),
                ("delta.dataSkippingNumIndexedCols", "1"),
                ("delta.appendOnly", "false"),
                ("comment", "é"),
            ]
        )
        self.attempt(f"ALTER TABLE {self.t} SET TBLPROPERTIES ('{name}' = '{value}')")

    def restore(self):
        # What the names and types were is asked for anew.
        versions = self.latest()
        self.attempt(f"RESTORE TABLE {self.t} TO VERSION AS OF {self.chance.randint(max(0, versions - 2), versions)}")
        self.columns = {
            f.name: f.dataType.simpleString().upper()
            for f in self.spark.read.format("delta").load(self.uri).schema.fields
            if f.name not in ("g", "ident", "dflt")
        }
        for n, k in list(self.columns.items()):
            match = [kind for kind in KINDS if kind.replace(": ", ":").replace(", ", ",").upper() == k]
            self.columns[n] = match[0] if match else k

    def overwrite(self):
        if self.chance.random() < 0.5:
            self.attempt(f"INSERT OVERWRITE {self.t} SELECT * FROM {self.t} WHERE {self.some()}")
        else:
            df = self.spark.read.format("delta").load(self.uri).where(self.some())
            self.story.append("overwrite")
            df.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.uri)

    def check(self):
        self.attempt(f"ALTER TABLE {self.t} ADD CONSTRAINT c{self.next} CHECK (id >= 0)")

    def checkpoint(self):
        self.story.append("checkpoint")
        jvm = self.spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.uri)
        log.checkpoint()

    def latest(self):
        return self.spark.sql(f"DESCRIBE HISTORY {self.t} LIMIT 1").collect()[0]["version"]

    def look(self):
        """What it holds at each version, and its feed, as plain Parquet."""
        spark = self.spark
        for name, values in SETTINGS.items():
            spark.conf.set(name, values[0])
        spark.conf.set("spark.sql.parquet.writeLegacyFormat", "false")
        latest = self.latest()
        versions = sorted({latest, *self.chance.sample(range(latest + 1), k=min(2, latest + 1))})
        for version in versions:
            df = spark.read.format("delta").option("versionAsOf", version).load(self.uri)
            save(df, f"{self.place}/v{version}")
        tracked = spark.sql(f"SHOW TBLPROPERTIES {self.t} ('delta.enableRowTracking')").collect()[0]["value"] == "true"
        if tracked:
            ids = (
                spark.read.format("delta")
                .load(self.uri)
                .selectExpr("id", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_commit_version")
            )
            save(ids, f"{self.place}/ids")
        feeds = []
        for first in range(latest + 1):
            try:
                feed = (
                    spark.read.format("delta")
                    .option("readChangeFeed", "true")
                    .option("startingVersion", first)
                    .option("endingVersion", latest)
                    .load(self.uri)
                )
                save(feed.drop("_commit_timestamp"), f"{self.place}/feed{first}")
                feeds.append(first)
                break
            except Exception as error:
                self.failed.append((f"feed {first}", str(error)[:200]))
        return versions, feeds, tracked

    def make(self):
        chance = self.chance
        self.create()
        self.insert()
        steps = [
            self.insert,
            self.insert,
            self.delete,
            self.delete,
            self.update,
            self.merge,
            self.optimize,
            self.add_column,
            self.add_nested,
            self.rename,
            self.drop,
            self.widen,
            self.widen,
            self.widen_nested,
            self.toggle,
            self.restore,
            self.overwrite,
            self.check,
            self.checkpoint,
        ]
        for _ in range(chance.randint(4, 9)):
            chance.choice(steps)()
        versions, feeds, tracked = self.look()
        return {"story": self.story, "versions": versions, "feeds": feeds, "tracked": tracked, "failed": self.failed}


def q(name):
    return "`" + name.replace("`", "``") + "`"


def save(df, place):
    """Variants as the two binaries that they are; other writers would call them a struct."""
    df.coalesce(1).write.mode("overwrite").option("compression", "none").parquet(place)


def made(spark, seed, place):
    spark = spark.newSession()  # with settings of its own
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    case = Case(spark, seed, place)
    try:
        return case.make()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:1500], "story": case.story}
