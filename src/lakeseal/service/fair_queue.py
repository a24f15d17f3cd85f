"""Who lost a version of a table goes first at the next one.

Of many writers on one table each version has one winner. If all of the others asked again at once, most of it would be
in vain, and whoever is a little slower would lose again and again. So commits to one table are decided on one after the
other, in the order in which they came; and whoever lost keeps its turn for a moment, in which it can read what came
before it and ask for the next version. Then the next one in the line is decided on.

None of this decides anything: a turn that is not used in time is passed on, whoever has waited for `longest_s` goes on
without one, and other workers have lines of their own. It is for the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque

KEEPS_S = 0.2
"""How long a turn is kept for whoever lost. A large commit on a store that is far away takes longer, and may lose."""
LONGEST_S = 10.0


class FairQueue:
    def __init__(self, *, keeps_s: float = KEEPS_S, longest_s: float = LONGEST_S) -> None:
        """With `keeps_s` of 0 nobody keeps a turn."""
        self._keeps_s = keeps_s
        self._longest_s = longest_s
        self._lines: dict[str, _Line] = {}

    async def enter(self, table: str, txn_id: str) -> None:
        """Returns when it is the transaction's turn at the table."""
        line = self._lines.get(table)
        if line is None:
            self._lines[table] = _Line(txn_id)
        elif line.holder == txn_id:
            line.stop_timer()
        else:
            turn = asyncio.get_running_loop().create_future()
            line.waiting.append((txn_id, turn))
            # A turn that comes at the very end of the wait is passed on by `leave`, as any other.
            await asyncio.wait([turn], timeout=self._longest_s)
            turn.cancel()

    def leave(self, table: str, txn_id: str, *, lost: bool) -> bool:
        """Whether it keeps its turn, since it `lost`."""
        line = self._lines.get(table)
        if line is None or line.holder != txn_id:
            return False
        line.stop_timer()
        if lost and self._keeps_s > 0:
            loop = asyncio.get_running_loop()
            line.timer = loop.call_later(self._keeps_s, self._pass_on, table, line)
            return True
        self._pass_on(table, line)
        return False

    def _pass_on(self, table: str, line: _Line) -> None:
        line.stop_timer()
        while line.waiting:
            txn_id, turn = line.waiting.popleft()
            if not turn.done():
                line.holder = txn_id
                turn.set_result(None)
                return
        del self._lines[table]


class _Line:
    __slots__ = ("holder", "timer", "waiting")

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.timer: asyncio.TimerHandle | None = None
        """Runs while the holder is not here."""
        self.waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
