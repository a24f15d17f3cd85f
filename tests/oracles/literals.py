"""Columns of a table for random texts of SQL, and literals of their types in every form that Spark has."""

from __future__ import annotations

PAIR = "STRUCT<a: INT, b: STRING>"
DEEP = "STRUCT<p: STRUCT<q: INT, r: DATE>, u: ARRAY<INT>>"
KINDS = {
    "id": "INT",
    "k": "STRING",
    "v": "INT",
    "x": "DOUBLE",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "s": PAIR,
    "l": f"ARRAY<{PAIR}>",
    "m": f"MAP<STRING, {PAIR}>",
    "e": "DECIMAL(10, 2)",
    "n": "TIMESTAMP_NTZ",
    "ok": "BOOLEAN",
    "bin": "BINARY",
    "deep": DEEP,
    "order": "BIGINT",
    "Mixed": "STRING",
}
LITERALS = {
    "INT": ("1", "-1", "0", "2", "3", "40", "1 + 1", "CAST('7' AS INT)", "2S", "1Y", "int('4')", "5L", "-(2)", "+3",
            "1.0D::INT"),
    "BIGINT": ("1", "-1L", "3L", "2", "9223372036854775807", "0l", "CAST(2.9 AS BIGINT)", "40S"),
    "DOUBLE": ("1.5", "1.5D", "1e0", "double('NaN')", "-0.0D", "CAST('-Infinity' AS DOUBLE)", "1.5F", "2", ".5", "-2."),
    "DECIMAL(10, 2)": ("1.25", "-1.005", "99999999.99", "12BD", ".5", "5.", "1e0BD", "3", "0.00"),
    "DATE": (
        "DATE'2024-03-10'", "date '2024-3-9'", "CAST('2024-02-29' AS DATE)", "make_date(2024, 3, 10)",
        "to_date('2024-11-03')",
        "DATE'2024-03-09' + INTERVAL 1 DAY", "DATE'2024-03-31' - INTERVAL '1' MONTH", "date_add(DATE'2024-03-09', 1)",
        "DATE'0001-01-01'", "DATE\"2024-03-10\"", "TIMESTAMP'2024-03-10 12:00:00'",
    ),
    "TIMESTAMP": (
        "TIMESTAMP'2024-03-10 02:30:00'", "timestamp '2024-03-10 03:00:00.123456'", "TIMESTAMP'2024-11-03 01:30:00'",
        "TIMESTAMP'2024-03-10 02:30:00 America/New_York'", "TIMESTAMP_LTZ'2024-03-10T06:30:00Z'",
        "TIMESTAMP'2024-03-09 02:30:00' + INTERVAL 1 DAY",
        "TIMESTAMP'2024-03-10 00:00:00' + INTERVAL '1 02:03:04' DAY TO SECOND",
        "TIMESTAMP'2024-03-10 12:00:00' - INTERVAL '1-2' YEAR TO MONTH", "timestamp_micros(1710052200000001)",
        "to_timestamp('2024-03-10 03:00:00')", "DATE'2024-03-10'", "TIMESTAMP'2024-03-10 02:30:00+05:30'",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2024-03-10 02:30:00'", "timestamp_ntz '2024-03-10 03:00:00.5'", "DATE'2024-03-10'",
        "TIMESTAMP_NTZ'2024-11-03 01:30:00' + INTERVAL 1 HOUR", "CAST('2024-03-10 00:00:00' AS TIMESTAMP_NTZ)",
    ),
    "BOOLEAN": ("true", "FALSE", "NOT true", "1 = 1", "NULL IS NULL", "CAST('yes' AS BOOLEAN)"),
    "BINARY": ("X'00ff'", "x'6162'", "CAST('é' AS BINARY)", "unhex('DEAD')", "encode('a', 'UTF-8')", "X''"),
    PAIR: (
        "named_struct('a', 1, 'b', 'x')", "struct(2, 'it''s')", "named_struct('a', NULL, 'b', ';')",
        "struct(1 AS a, 'q' AS b)",
    ),
    f"ARRAY<{PAIR}>": (
        "array(struct(1 AS a, 'x' AS b), NULL)", "array(named_struct('a', 1, 'b', 'x'))",
        f"CAST(array() AS ARRAY<{PAIR}>)",
    ),
    f"MAP<STRING, {PAIR}>": (
        "map('x', named_struct('a', 1, 'b', 'x'))", "map('it''s', NULL, 'x', struct(3 AS a, 'c' AS b))",
        f"CAST(map() AS MAP<STRING, {PAIR}>)",
    ),
    DEEP: (
        "named_struct('p', named_struct('q', 1, 'r', DATE'2024-03-10'), 'u', array(1, 2))",
        "struct(struct(2 AS q, NULL AS r) AS p, array() AS u)",
        "named_struct('p', NULL, 'u', array(1))",
    ),
}  # fmt: skip
