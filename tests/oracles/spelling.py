"""One statement in many spellings: keywords in any case, blanks, comments and line breaks between words, texts with
every kind of quotes and escapes, tables by their paths in the letters that Spark allows.

Nothing of this changes what a statement says, but where a session reads quotes and backslashes otherwise.
"""

from __future__ import annotations

import random
import re

PARTS = re.compile(
    r"""
      (?P<text> '(?: [^'\\] | \\. | '' )*' | "(?: [^"\\] | \\. | "" )*" | `(?: [^`] | `` )*` )
    | (?P<comment> --[^\n\r]*\r?\n? | /\* (?: (?! /\* | \*/ ) . | /\* (?: (?! \*/ ) . )* \*/ )* \*/ )
    | (?P<table> \{[abc]\} )
    | (?P<blank> [ \n\r\t]+ )
    | (?P<word> \w+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLANKS = ("\n", "\t", "   ", " /* ; ' */ ", ' -- it\'s "x" ; `\n', "/**/ ", "\r\n", " /* /* WHEN */ WHERE */ ")


class Speller:
    def __init__(self, chance: random.Random, session: str) -> None:
        self._chance = chance
        self._session = session

    def spelled(self, text: str) -> str:
        chance = self._chance
        odd = chance.choice((0.0, 0.0, 0.08, 0.3))
        found = []
        for part in PARTS.finditer(text):
            piece = part.group()
            match part.lastgroup:
                case "table":
                    found.append(self.table(piece, odd))
                case "blank" if chance.random() < odd:
                    found.append(chance.choice(_BLANKS))
                case "word" if piece.isupper() and len(piece) > 1 and chance.random() < odd:
                    found.append(chance.choice((piece.lower(), piece.title(), piece.swapcase())))
                case _:
                    found.append(piece)
        end = chance.choice(("", "", "", ";", " ;", "\n", "\n-- end", " /* end; */ ; ;")) if odd else ""
        return "".join(found) + end

    def table(self, piece: str, odd: float = 0) -> str:
        path = f"{piece[:-1]}.path}}"
        if self._chance.random() >= odd:
            return f"delta.`{path}`"
        ways = [f"DELTA.`{path}`", f"delta . `{path}`", f"`delta`.`{path}`", f"delta./* . */`{path}`"]
        if self._session == "double-quotes":
            ways.append(f'delta."{path}"')
        return self._chance.choice(ways)

    def text(self, value: str) -> str:
        """A text as a literal."""
        doubled = "'" + value.replace("'", "''") + "'"
        if self._session == "escaped-literals":
            return doubled
        plain = value.replace("\\", "\\\\")
        ways = ["'" + plain.replace("'", "''") + "'", "'" + plain.replace("'", "\\'") + "'", self._by_escapes(value)]
        if self._session != "double-quotes":
            ways += ['"' + plain.replace('"', '\\"') + '"', '"' + plain.replace('"', '""') + '"']
        if "'" not in value:
            ways += [f"r'{value}'", f"R'{value}'"]
        if len(value) > 1:
            middle = self._chance.randint(1, len(value) - 1)
            ways.append(f"{self._by_escapes(value[:middle])} {self._by_escapes(value[middle:])}")
        return self._chance.choice(ways)

    def _by_escapes(self, value: str) -> str:
        named = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'", '"': '\\"'}
        found = []
        for one in value:
            roll = self._chance.random()
            if one in named:
                found.append(named[one])
            elif roll < 0.15:
                found.append(f"\\U{ord(one):08X}" if ord(one) > 0xFFFF or roll < 0.05 else f"\\u{ord(one):04x}")
            elif roll < 0.2 and ord(one) < 128:
                found.append(f"\\{ord(one):03o}")
            else:
                found.append(one)
        return "'" + "".join(found) + "'"
