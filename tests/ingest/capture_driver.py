"""Runs of a pipeline, one after the other, that are killed at one of their effects:
`python capture_driver.py <YAML> <seconds> [<at> <before|inside|after>]`. With 0 seconds it is one run."""

from __future__ import annotations

import faulthandler
import sys
import time

from crash_driver import struck

from lakeseal.ingest import Pipeline
from support.crashes import Effects, When

if __name__ == "__main__":
    faulthandler.enable()
    file, seconds, *death = sys.argv[1:]
    if death:
        struck(Effects(at=int(death[0]), when=When[death[1]]))
    until = time.monotonic() + float(seconds)
    Pipeline.from_yaml(file).run()
    while time.monotonic() < until:
        Pipeline.from_yaml(file).run()
