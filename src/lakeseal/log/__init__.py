"""Reading a log: segment, replay, snapshot; and its upkeep."""
