"""What happens inside a task, on the task's own stderr.

Python's logging levels are set per process, and tasks run in processes that a user never sees. So a job takes the
level of the driver's logger along: set `logging.getLogger("lakeseal.write.DelayedCommitProtocol")` (or a parent such
as `lakeseal`) to DEBUG on the driver, and tasks log at that level too. On a Spark cluster a task's stderr is the
executor's, in the web UI under Executors → stderr.
"""

from __future__ import annotations

import logging
import sys

LOGGER = "lakeseal.write.DelayedCommitProtocol"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def driver_level() -> int:
    """The level to send along with a job."""
    return logging.getLogger(LOGGER).getEffectiveLevel()


def configure_task(level: int) -> None:
    """Log at `level` in this process; to stderr, unless the process has its own idea of where logs go."""
    logger = logging.getLogger(LOGGER)
    if logger.getEffectiveLevel() == level:
        return
    logger.setLevel(level)
    if level < logging.WARNING and not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
