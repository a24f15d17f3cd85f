"""Variables in a text of SQL: `${name}`, for which a session puts its settings before it reads a word of it.

Spark does so with every text, statements and expressions alike, unless `spark.sql.variable.substitute` is off. Whoever
reads a text beside Spark must read the same one, so it is put into words once, where it comes in; what Spark leaves as
it is, stays. What a text says then must be said for good: Spark substitutes in it once more when it gets it.
"""

from __future__ import annotations

import re

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession

from lakeseal.errors import InvalidExpression, UnsupportedExpression

# As Spark's `ConfigReader` has it.
_VARIABLE = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}", re.ASCII)
_OF_SESSION = (None, "spark", "sparkconf", "hivevar", "hiveconf")
_OF_DRIVER = ("env", "system")


def has_variables(text: str) -> bool:
    """Whether sessions may read different texts in it."""
    return _VARIABLE.search(text) is not None


def substituted(spark: SparkSession, text: str) -> str:
    """The text as this session reads it."""
    if not has_variables(text) or str(spark.conf.get("spark.sql.variable.substitute", "true")).lower() != "true":
        return text
    found = _replaced(spark, text, ())
    if _replaced(spark, found, ()) != found:
        raise UnsupportedExpression(
            f"With the values of its variables put in, {text[:200]!r} has variables again, which Spark does not read",
            hint="Write the values into the text",
        )
    return found


def _replaced(spark: SparkSession, text: str, within: tuple[str, ...]) -> str:
    """`within`: the variables in whose values this text was found."""

    def value(found: re.Match[str]) -> str:
        prefix, name = found.groups()
        named = name if prefix is None else f"{prefix}:{name}"
        if named in within:
            raise InvalidExpression(f"The value of ${{{named}}} has itself in it", hint="Set it to something else")
        if prefix in _OF_SESSION:
            return _replaced(spark, _setting(spark, named, name), (*within, named))
        return _of_driver(spark, named) if prefix in _OF_DRIVER else found[0]

    return _VARIABLE.sub(value, text)


def _setting(spark: SparkSession, named: str, name: str) -> str:
    """Only what was set; nothing where Spark would go by a default."""
    try:
        return str(spark.conf.get(name, ""))
    except IllegalArgumentException as error:
        raise InvalidExpression(
            f"Spark has no value for ${{{named}}}: {str(error).strip().partition(chr(10))[0]}",
            hint="Set it in the session",
        ) from error


def _of_driver(spark: SparkSession, named: str) -> str:
    """What the driver's process has, which Spark says only inside of a text; where that text would end early, as at a
    quote, the two kinds of quotes say different things, or nothing."""
    said = set()
    for quote in "'\"":
        try:
            said.add(spark.sql(f"SELECT r{quote}${{{named}}}{quote}").collect()[0][0])
        except PySparkException:
            said.add(None)
    value = said.pop()
    if said or value is None or "'" in value or '"' in value:
        raise UnsupportedExpression(
            f"What ${{{named}}} is cannot be told from outside of Spark's driver",
            hint="Set a variable of the session to its value, spark.conf.set(…), or write the value into the text",
        )
    return str(value)
