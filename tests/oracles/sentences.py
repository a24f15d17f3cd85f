"""Random histories of SQL in every spelling, on a table `{a}` that is changed, a table `{b}` that rows come from, and
`{c}`, which comes and goes. `{a.path}` is a path without quotes, and `{v3}` the version that `{a}` had after the third
step.

What statements say is as in `statements`, with more kinds of columns, literals, sources and queries; how they say it is
in `spelling`. All columns keep their names and types but `z`, which may come by schema evolution.
"""

from __future__ import annotations

import random

from msgspec import Struct

from oracles.literals import KINDS, LITERALS
from oracles.spelling import Speller
from oracles.statements import Texts

_BARE = ("id", "k", "v", "x", "d", "ts", "e", "n", "ok", "bin", "order", "Mixed")
_NUMBERED = "(SELECT *, row_number() OVER (PARTITION BY id ORDER BY k, v, x, e, d, ts, n, bin) AS rn FROM {b})"
TEXTS = (
    "x", "it's", "A", "", "z", 'say "no"', "semi;colon", "-- no comment", "/* none */", "back\\slash", "é/=%", "😀",
    "line\nbreak", "a\tb", "NULL", "WHEN MATCHED THEN DELETE", "{t} {0} {{}}", "100%", "${nothing}", "`tick`",
    "$x :y ?", "x  y ", " WHERE 1 = 1; ",
)  # fmt: skip


class Sentence(Struct, frozen=True, kw_only=True):
    kind: str
    text: str
    meant: str | None = None
    """Another text for the same, for who refuses subqueries in the condition of a DELETE or an UPDATE."""
    plain: str = ""
    """The text before it was spelled."""
    dynamic: bool = False
    """Whether it overwrites the partitions that it has rows for."""

    @property
    def is_query(self) -> bool:
        return self.kind == "query"


class Sentences:
    """The texts of one history."""

    def __init__(self, chance: random.Random, session: str) -> None:
        self.chance = chance
        self._session = session
        self._texts = Texts(chance, session)
        self._speller = Speller(chance, session)
        self._made: list[int] = [0, 2]
        """Which steps may be travelled to."""
        self._fed_from: int | None = None
        self._partitioned: tuple[str, ...] = ()
        self._extras = False

    # Tables

    def creation(self) -> list[str]:
        chance = self.chance
        columns = [f"{_name(name)} {kind}" for name, kind in KINDS.items()]
        properties = {"delta.enableDeletionVectors": str(chance.random() < 0.4).lower()}
        if chance.random() < 0.4:
            properties["delta.enableChangeDataFeed"] = "true"
            self._fed_from = 0
        if chance.random() < 0.2:
            properties["delta.columnMapping.mode"] = "name"
        if chance.random() < 0.15:
            properties["delta.enableRowTracking"] = "true"
        if chance.random() < 0.25:
            self._extras = True
            columns += ["g DATE GENERATED ALWAYS AS (CAST(n AS DATE))", "f STRING DEFAULT 'it''s; {0}' COMMENT ';'"]
            properties["delta.feature.allowColumnDefaults"] = "supported"
        if chance.random() < 0.1:
            properties["delta.enableTypeWidening"] = "true"
        self._partitioned = chance.choice(((), (), (), ("k",), ("d",), ("ok", "k"), ("Mixed",), ("order",)))
        by = ""
        if self._partitioned:
            by = f"PARTITIONED BY ({', '.join(map(_name, self._partitioned))})"
        elif chance.random() < 0.2:
            by = f"CLUSTER BY ({', '.join(chance.sample(('id', 'k', '`order`'), 2))})"
        given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        other = chance.sample(list(KINDS), len(KINDS))
        found = [
            f"CREATE TABLE {{a}} ({', '.join(columns)}) USING delta {by} TBLPROPERTIES ({given})",
            f"CREATE TABLE {{b}} ({', '.join(f'{_name(name)} {KINDS[name]}' for name in other)}) USING delta "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
            f"INSERT INTO {{a}} {self._listed(tuple(KINDS))} {self._values(tuple(KINDS), 4)}",
            f"INSERT INTO {{b}} {self._listed(tuple(KINDS))} {self._values(tuple(KINDS), 5)}",
        ]
        if chance.random() < 0.2:
            found.append("ALTER TABLE {a} ADD CONSTRAINT small CHECK (v < 1000 OR k <> 'it''s;' -- no; end\n)")
        return found

    def next(self, number: int) -> Sentence:
        makers = (
            (6, self._insert),
            (4, self._update),
            (3, self._delete),
            (6, self._merge),
            (5, self._query),
            (0.6, self._created),
            (0.7, self._restore),
            (0.2, lambda: Sentence(kind="truncate", text="TRUNCATE TABLE {a}")),
            (0.4, lambda: Sentence(kind="upkeep", text="OPTIMIZE {a}")),
            (0.4, lambda: Sentence(kind="upkeep", text="REORG TABLE {a} APPLY (PURGE)")),
        )
        (maker,) = self.chance.choices([one for _, one in makers], [weight for weight, _ in makers])
        made = maker()
        if not made.is_query:
            self._made.append(number)
        respelled = self._speller.spelled(made.text)
        return Sentence(kind=made.kind, text=respelled, meant=made.meant, plain=made.text, dynamic=made.dynamic)

    # Literals

    def literal(self, name: str) -> str:
        chance = self.chance
        if chance.random() < 0.12:
            return chance.choice(("NULL", "null", f"CAST(NULL AS {KINDS[name]})"))
        if name in ("k", "Mixed"):
            return self._speller.text(chance.choice(TEXTS))
        if name == "id":
            return str(chance.randint(0, 6))
        return chance.choice(LITERALS[KINDS[name]])

    def _values(self, names: tuple[str, ...], most: int, *, defaults: float = 0) -> str:
        """Rows that have the same types in each column."""
        rows = []
        for _ in range(self.chance.randint(1, most)):
            cells = [self.literal(name) for name in names]
            cells = [
                f"CAST({cell} AS {KINDS[name]})" if "<" in KINDS[name] else cell
                for name, cell in zip(names, cells, strict=True)
            ]
            if self.chance.random() < defaults:
                cells[self.chance.randrange(len(cells))] = self.chance.choice(("DEFAULT", "default"))
            rows.append(f"({', '.join(cells)})")
        return "VALUES " + ", ".join(rows)

    def _listed(self, names: tuple[str, ...]) -> str:
        return f"({', '.join(self._in_any_case(name) for name in names)})"

    def _in_any_case(self, name: str) -> str:
        roll = self.chance.random()
        if self._session == "case-sensitive" or roll < 0.7:
            return _name(name)
        return f"`{name.upper()}`" if roll < 0.85 else _name(name.swapcase())

    # Conditions and values

    def condition(self, sides: list[str]) -> str:
        chance = self.chance
        if chance.random() < 0.5:
            return self._texts.condition(sides)
        one, other = (chance.choice(sides) for _ in range(2))
        text = self._speller.text(chance.choice(TEXTS))
        found = [
            f"{one}k = {text}",
            f"{one}Mixed IN ({text}, {self._speller.text(chance.choice(TEXTS))})",
            f"{one}k LIKE '%s' ESCAPE '!'",
            f"{one}k RLIKE '^[a-z].*'",
            f"{one}k IS DISTINCT FROM {other}Mixed",
            f"{one}`order` BETWEEN -1 AND {other}id",
            f"{one}ok",
            f"NOT {one}ok",
            f"{one}ok IS NOT TRUE",
            f"{one}e > {chance.choice(('1.5', '.5', '1e0', '1', '1.50BD'))}",
            f"{one}e <=> {other}e",
            f"{one}bin = {chance.choice(LITERALS['BINARY'])}",
            f"{one}n > TIMESTAMP_NTZ'2024-03-10 02:00:00'",
            f"{one}n < {other}n + INTERVAL '1 02:00:00' DAY TO SECOND",
            f"{one}d - INTERVAL '1' MONTH < {other}d",
            f"{one}d + INTERVAL 2 DAYS >= DATE'2024-03-10'",
            f"extract(DAY FROM {one}d) = 10",
            f"{one}ts - INTERVAL 3 HOURS < {one}ts",
            f"year({one}n) = 2024 AND month({other}d) <> 3",
            f"{one}deep.p.q > 0",
            f"{one}deep.u[0] = 1",
            f"size({one}deep.u) >= 1 AND {one}deep.p.r IS NOT NULL",
            f"array_contains({one}l.a, 1)",
            f"trim(BOTH 'x' FROM {one}k) = ''",
            f"substring({one}k FROM 1 FOR 1) = 'x'",
            f"CASE {one}id WHEN 1 THEN true WHEN 2 THEN {one}ok ELSE false END",
            f"{one}id % 2 = 1",
            f"({one}id, {one}k) IN ((1, 'x'), (2, 'it''s'))",
            f"{one}id::STRING = '1'",
            f"{one}id & 1 = 1",
            f"/* when */ {one}id > 1 -- ; '\n",
            f"coalesce({one}s.b, {other}k, 'x') < 'm'",
            f"nullif({one}k, 'x') IS NULL",
            f"filter({one}l, y -> y.b = {other}k) IS NOT NULL",
            f"map_contains_key({one}m, 'x')",
            "true",
            "1 = 2",
        ]
        made = chance.choice(found)
        return f"({made}) {chance.choice(('AND', 'OR'))} ({chance.choice(found)})" if chance.random() < 0.3 else made

    def _asked_of_queries(self) -> str:
        """A condition on `{a}` with a subquery."""
        inner = self.condition([""])
        return self.chance.choice(
            (
                f"id IN (SELECT id FROM {{b}} WHERE {inner})",
                "id NOT IN (SELECT q.id FROM {b} AS q WHERE q.id IS NOT NULL)",
                f"v > (SELECT min(v) FROM {{b}} WHERE {inner})",
                "k IN (SELECT k FROM {b} UNION ALL SELECT Mixed FROM {b})",
                "id = (SELECT max(id) FROM {b})",
                "EXISTS (SELECT 1 FROM {b} WHERE v > 100) OR id > 2",
                "id IN (WITH w AS (SELECT id FROM {b}) SELECT w.id FROM w)",
                f"NOT ({inner}) AND id IN (TABLE {{b}} |> SELECT id)",
            )
        )

    def _assignments(self, own: str, sides: list[str], *, nested: bool = True) -> dict[str, str]:
        chance = self.chance
        found = self._texts.values(own, chance.choice(sides), see=sides, nested=nested)
        one = chance.choice(sides)
        more = {
            "e": [f"{one}e + 1.005", f"{one}id", ".5", "1e0", "7"],
            "n": [f"{one}n + INTERVAL 1 DAY", f"{one}d", "TIMESTAMP_NTZ'2024-11-03 01:30:00'", f"{one}ts"],
            "ok": [f"{one}id > 2", f"NOT {one}ok", "NULL", f"{one}k = 'x'"],
            "bin": [f"CAST({one}k AS BINARY)", "X''", f"{one}bin"],
            "order": [f"{one}id", f"{one}v + 1L", f"length({one}k)", "CASE WHEN true THEN 1 END"],
            "Mixed": [
                f"{one}k || {one}Mixed",
                self._speller.text(chance.choice(TEXTS)),
                f"{one}d",
                f"{one}e",
                f"{one}ok",
            ],
            "k": [self._speller.text(chance.choice(TEXTS)), f"{one}Mixed", f"concat_ws(';', {one}k, {one}Mixed)"],
            "deep": [
                f"named_struct('u', array({one}id), 'p', named_struct('r', {one}d, 'q', {one}v))",
                f"{one}deep",
                "NULL",
            ],
        }
        if nested:
            more |= {
                "deep.p.q": [f"{one}v", f"{one}deep.p.q + 1"],
                "deep.p.r": [f"{one}d", "NULL"],
                "deep.u": [f"array({one}v, 1)", f"transform({one}deep.u, (y, i) -> y + i)"],
                "deep.p": [f"named_struct('r', {one}d, 'q', 1)", "NULL"],
            }
        for name in chance.sample(sorted(more), chance.choice((0, 1, 1, 2, 3))):
            found[own + (name if "." in name else _name(name))] = chance.choice(more[name])
        names = {name.removeprefix(own).strip("`") for name in found}
        for name in list(found):
            plain = name.removeprefix(own).strip("`")
            if any(other.startswith(plain + ".") for other in names):
                del found[name]  # one of its fields is set
        return found

    # Statements

    def _insert(self) -> Sentence:
        chance = self.chance
        names = tuple(KINDS)
        roll = chance.random()
        into = chance.choice(("INSERT INTO", "INSERT INTO TABLE", "INSERT INTO"))
        overwrite = chance.choice(("INSERT OVERWRITE", "INSERT OVERWRITE TABLE"))
        if roll < 0.25:
            some = tuple(chance.sample(names, chance.randint(3, len(names))))
            cells = self._values(some, 3, defaults=0.15)
            return Sentence(kind="insert", text=f"{into} {{a}} {self._listed(some)} {cells}")
        if roll < 0.45:
            some = tuple(chance.sample(names, chance.randint(2, len(names))))
            how = into if chance.random() < 0.8 else overwrite
            query = self._rows(some)
            return Sentence(kind="insert", text=f"{how} {{a}} BY NAME {query}", dynamic=how is overwrite)
        if roll < 0.6:
            some = tuple(chance.sample(names, chance.randint(2, len(names))))
            return Sentence(kind="insert", text=f"{into} {{a}} {self._listed(some)} {self._rows(some)}")
        if roll < 0.7:
            ctes = f"WITH w AS (SELECT * FROM {{b}} WHERE {self.condition([''])}), `w 2` AS (SELECT * FROM w)"
            some = tuple(chance.sample(names, chance.randint(2, len(names))))
            shown = ", ".join(map(_name, some))
            return Sentence(kind="insert", text=f"{ctes} {into} {{a}} {self._listed(some)} SELECT {shown} FROM `w 2`")
        if roll < 0.82:
            where = self.condition([""])
            some = names
            shown = ", ".join(map(_name, some))
            query = f"SELECT {shown} FROM {{b}} WHERE {where}"
            if self._extras:
                shown += ", CAST(n AS DATE) AS g, k AS f"
                query = f"SELECT {shown} FROM {{b}} WHERE {where}"
            return Sentence(kind="replace", text=f"INSERT INTO {{a}} REPLACE WHERE {where} {query}")
        if roll < 0.9 and self._partitioned:
            return self._partition_insert(into, overwrite)
        some = tuple(chance.sample(names, chance.randint(2, len(names))))
        if chance.random() < 0.5:
            return Sentence(
                kind="insert", text=f"{overwrite} {{a}} {self._listed(some)} {self._rows(some)}", dynamic=True
            )
        evolved = f"SELECT {', '.join(map(_name, some))}, id AS z FROM {{b}}"
        form = chance.choice(("BY NAME ", ""))
        if not form:
            columns = ", ".join([*map(_name, names), *(("CAST(n AS DATE)", "k") if self._extras else ())])
            evolved = f"SELECT {columns} FROM {{b}}"
        return Sentence(kind="insert", text=f"INSERT WITH SCHEMA EVOLUTION INTO {{a}} {form}{evolved}")

    def _partition_insert(self, into: str, overwrite: str) -> Sentence:
        chance = self.chance
        name = self._partitioned[0]
        rest = tuple(one for one in KINDS if one != name)
        value = self.literal(name)
        shown = ", ".join(map(_name, rest)) + (", CAST(n AS DATE) AS g, k AS f" if self._extras else "")
        how = chance.choice((into, overwrite))
        if len(self._partitioned) > 1:
            other = self._partitioned[1]
            by = f"({_name(name)} = {value}, {_name(other)})"
        else:
            by = f"({_name(name)} = {value})"
        text = f"{how} {{a}} PARTITION {by} SELECT {shown} FROM {{b}} WHERE {self.condition([''])}"
        return Sentence(kind="partition", text=text, dynamic=how is overwrite)

    def _rows(self, names: tuple[str, ...]) -> str:
        """A query with these columns."""
        chance = self.chance
        shown = ", ".join(map(_name, names))
        qualified = ", ".join(f"q.{_name(name)}" for name in names)
        where = self.condition([""])
        travelled = self._travelled()
        return chance.choice(
            (
                f"SELECT {shown} FROM {{b}}",
                f"SELECT {shown} FROM {{b}} WHERE {where}",
                f"SELECT {qualified} FROM {{b}} q",
                f"SELECT {shown} FROM {travelled} WHERE {where}",
                f"FROM {{b}} SELECT {shown}",
                f"FROM {{b}} |> WHERE {where} |> SELECT {shown}",
                f"(SELECT {shown} FROM {{b}} LIMIT 0) UNION ALL SELECT {shown} FROM {travelled}",
                f"WITH q AS (TABLE {{b}}) SELECT {qualified} FROM q WHERE q.id > 1",
                f"SELECT {qualified} FROM {{b}} AS q LEFT ANTI JOIN {{a}} AS t ON q.id = t.id",
                f"SELECT {qualified} FROM {{b}} AS q WHERE EXISTS (SELECT * FROM {{a}} AS t WHERE t.id = q.id)",
                f"SELECT {shown} FROM {_NUMBERED} WHERE rn = 1",
                f"SELECT /*+ COALESCE(1) */ {shown} FROM {{b}} /* from */",
            )
        )

    def _travelled(self) -> str:
        """`{a}` as it was."""
        step = self.chance.choice(self._made)
        return self.chance.choice(
            (
                "{a}",
                f"{{a}} VERSION AS OF {{v{step}}}",
                f"{{a}} FOR VERSION AS OF {{v{step}}}",
                f"{{a}} FOR SYSTEM_VERSION AS OF {{v{step}}}",
                f"delta.`{{a.path}}@v{{v{step}}}`",
            )
        )

    def _update(self) -> Sentence:
        chance = self.chance
        alias = chance.choice(("", "", " t", " AS t", " AS `t`"))
        own = "t." if alias else ""
        side = [chance.choice((own, ""))]
        values = self._assignments(chance.choice((own, "")), side)
        said = ", ".join(f"{name} = {value}" for name, value in values.items())
        if not alias and chance.random() < 0.2:
            where = self._asked_of_queries()
            if "." not in "".join(values):
                return Sentence(
                    kind="update", text=f"UPDATE {{a}} SET {said} WHERE {where}", meant=self._meant(values, where)
                )
        where = f" WHERE {self.condition(side)}" if chance.random() < 0.9 else ""
        return Sentence(kind="update", text=f"UPDATE {{a}}{alias} SET {said}{where}")

    def _meant(self, values: dict[str, str], where: str) -> str:
        """The update as an overwrite, which every engine lets have subqueries."""
        given = {name.strip("`"): value for name, value in values.items()}
        columns = [
            f"CASE WHEN {where} THEN {given[name]} ELSE {_name(name)} END AS {_name(name)}"
            if name in given
            else _name(name)
            for name in KINDS
        ]
        if self._extras:
            columns.append("f")
        return f"INSERT OVERWRITE {{a}} BY NAME SELECT {', '.join(columns)} FROM {{a}}"

    def _delete(self) -> Sentence:
        chance = self.chance
        if chance.random() < 0.25:
            where = self._asked_of_queries()
            rest = ", ".join([*map(_name, KINDS), *(["f"] if self._extras else [])])
            meant = f"INSERT OVERWRITE {{a}} BY NAME SELECT {rest} FROM {{a}} WHERE NOT coalesce(({where}), false)"
            return Sentence(kind="delete", text=f"DELETE FROM {{a}} WHERE {where}", meant=meant)
        alias = chance.choice(("", "", " t", " AS t", " as `T t`"))
        own = {"": "", " as `T t`": "`T t`."}.get(alias, "t.")
        where = f" WHERE {self.condition([chance.choice((own, ''))])}" if chance.random() < 0.97 else ""
        return Sentence(kind="delete", text=f"DELETE FROM {{a}}{alias}{where}")

    def _merge(self) -> Sentence:
        chance = self.chance
        evolves = "WITH SCHEMA EVOLUTION " if chance.random() < 0.15 else ""
        names = tuple(KINDS)
        shown = ", ".join(map(_name, names))
        once = f"(SELECT {shown} FROM {_NUMBERED} WHERE rn = 1 AND id IS NOT NULL)"
        ctes, source = chance.choice(
            (
                ("", once),
                ("", once),
                ("", f"({self._values(names, 2)}) AS q{self._listed(names)}"),
                ("", f"(SELECT * FROM {self._values(names, 2)} AS y{self._listed(names)})"),
                (f"WITH w AS {once} ", "w"),
                (f"WITH w AS {once}, w2 AS (SELECT * FROM w WHERE {self.condition([''])}) ", "(SELECT * FROM w2)"),
                ("", "{b}"),
                ("", f"({self._rows(names)})"),
                ("", "{b} VERSION AS OF 1"),
            )
        )
        if " AS q(" not in source:
            source += chance.choice((" q", " AS q"))
        on = chance.choice(
            ("t.id = q.id", "q.id = t.id", "t.id <=> q.id AND t.id > 0", self._texts.on(), "t.id == q.id")
        )
        clauses = []
        kinds = {"MATCHED": ["t.", "q."], "NOT MATCHED": ["q."], "NOT MATCHED BY SOURCE": ["t."]}
        for kind, sides in kinds.items():
            if chance.random() < 0.4:
                continue
            for last in chance.choice(((True,), (True,), (False, True))):
                condition = "" if last and chance.random() < 0.6 else f" AND {self.condition(sides)}"
                said = "NOT MATCHED BY TARGET" if kind == "NOT MATCHED" and chance.random() < 0.2 else kind
                clauses.append(f"WHEN {said}{condition} THEN {self._action(kind, sides)}")
        if not clauses:
            clauses = ["WHEN MATCHED THEN DELETE"]
        alias = chance.choice((" t", " AS t"))
        text = f"{ctes}MERGE {evolves}INTO {{a}}{alias} USING {source} ON {on} {' '.join(clauses)}"
        return Sentence(kind="merge", text=text)

    def _action(self, kind: str, sides: list[str]) -> str:
        chance = self.chance
        if kind == "NOT MATCHED":
            if chance.random() < 0.4 and not self._extras:
                return "INSERT *"
            values = {"id": "q.id"} | self._assignments("", ["q."], nested=False)
            return f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        if chance.random() < 0.25:
            return "DELETE"
        if kind == "MATCHED" and chance.random() < 0.35 and not self._extras:
            return "UPDATE SET *"
        values = self._assignments(chance.choice(("t.", "")), sides)
        return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in values.items())

    def _query(self) -> Sentence:
        chance = self.chance
        where, other = self.condition([""]), self.condition(["t.", "q."])
        never = f"NOT ({where})"
        one, two = self._travelled(), self._travelled()
        shown = ", ".join(chance.sample([_name(name) for name in _BARE], 4))
        feed = []
        if self._fed_from is not None:
            changes = "table_changes_by_path('{a.path}', {v2})"
            feed = [
                f"SELECT {shown}, _change_type, count(*) AS c FROM {changes} GROUP BY ALL",
                'SELECT t.id, t._change_type FROM table_changes_by_path("{a.path}", {v0}, {v2}) t'
                if self._session != "double-quotes"
                else f"SELECT id FROM {one}",
                f"SELECT * EXCEPT (_commit_timestamp, _commit_version) FROM {changes} WHERE {where}",
            ]
        found = [
            *feed,
            f"SELECT * FROM {one} WHERE {where}",
            f"SELECT {shown} FROM {one} AS t WHERE {self.condition(['t.', ''])}",
            f"SELECT t.id, q.id AS qid, t.k FROM {one} t JOIN {two} AS q ON {other}",
            f"SELECT t.id, q.k FROM {one} AS t, {two} AS q WHERE t.id = q.id AND ({other})",
            f"SELECT count(*) AS c, sum(v) AS s, max(d) AS d, min(`order`) AS o FROM {one} WHERE {where}",
            f"SELECT k, count(DISTINCT id) AS c FROM {one} GROUP BY k HAVING count(*) > 0 ORDER BY ALL",
            f"SELECT id AS i, i + 1 AS j, j * 2 AS i2 FROM {one} WHERE {where}",
            f"WITH w AS (SELECT * FROM {one}), w2 AS (SELECT id, k FROM w WHERE {where}) SELECT * FROM w2 UNION ALL "
            f"SELECT id, Mixed FROM {two}",
            f"SELECT id FROM {one} EXCEPT SELECT id FROM {{b}}",
            f"SELECT id, k FROM {one} INTERSECT ALL SELECT id, k FROM {{b}}",
            f"SELECT t.id, y.a, y.b FROM {one} t LATERAL VIEW OUTER explode(t.l) z AS y",
            f"SELECT id, y.pos, y.col FROM {one}, LATERAL posexplode(deep.u) AS y",
            f"FROM {one} |> WHERE {where} |> AGGREGATE count(*) AS c GROUP BY id |> ORDER BY id, c",
            f"SELECT id, (SELECT max(q.v) FROM {{b}} q WHERE q.id = t.id) AS best FROM {one} t",
            f"SELECT * EXCEPT (l, m) FROM {one} t WHERE EXISTS (SELECT 1 FROM {two} q WHERE q.id = t.id AND {other})",
            f"SELECT id, rank() OVER w AS r FROM {one} WINDOW w AS (PARTITION BY ok ORDER BY id, v)",
            f"SELECT (SELECT count(*) FROM {one} WHERE {where}) AS p, (SELECT count(*) FROM {one} WHERE {never}) AS q",
            f"SELECT * FROM (SELECT id, ok, v FROM {one}) PIVOT (sum(v) FOR ok IN (true AS yes, false AS no))",
            f"SELECT id, name, val FROM (SELECT id, v, `order` FROM {one}) UNPIVOT (val FOR name IN (v, `order`))",
            f"SELECT extract(YEAR FROM d) AS y, trim(LEADING 'x' FROM k) AS t, d IS DISTINCT FROM n AS o FROM {one}",
            f"SELECT k, t.id, q.id AS qid FROM {one} AS t FULL OUTER JOIN {{b}} AS q USING (k)",
            f"SELECT id FROM {one} TABLESAMPLE (100 PERCENT) WHERE {where}",
            f"(TABLE {one})" if "VERSION" not in one else f"(SELECT id FROM {one})",
            f'SELECT `t`.`k` AS `a;b`, "it\'s; --" AS two FROM {one} `t`'
            if self._session != "double-quotes"
            else f"SELECT `t`.`k` AS `a;b` FROM {one} `t`",
            f"SELECT id FROM {one} WHERE id IN (SELECT id FROM {two} WHERE {where}) AND k NOT IN (SELECT k FROM {{b}})",
            "WITH RECURSIVE r(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM r WHERE i < 3) "
            f"SELECT i, id FROM r JOIN {one} ON i = id",
        ]
        return Sentence(kind="query", text=chance.choice(found))

    def _created(self) -> Sentence:
        some = self.chance.sample(list(KINDS), self.chance.randint(2, 6))
        by = next((f"PARTITIONED BY ({_name(name)})" for name in some[1:] if name in ("k", "d", "ok")), "")
        how = self.chance.choice(("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS", "CREATE TABLE"))
        given = "TBLPROPERTIES ('my.note' = 'it''s; AS SELECT') COMMENT 'USING; AS'"
        text = f"{how} {{c}} USING delta {by} {given} AS {self._rows(tuple(some))}"
        return Sentence(kind="create", text=text)

    def _restore(self) -> Sentence:
        step = self.chance.choice(self._made)
        return Sentence(kind="restore", text=f"RESTORE TABLE {{a}} TO VERSION AS OF {{v{step}}}")


def _name(name: str) -> str:
    return f"`{name}`" if name in ("order", "Order") else name
