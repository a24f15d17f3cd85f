"""A run that is killed at one of its effects: `python capture_driver.py <YAML> <at> <before|inside|after>`."""

from __future__ import annotations

import faulthandler
import sys

from crash_driver import struck

from lakeseal.ingest import Pipeline
from support.crashes import Effects, When

if __name__ == "__main__":
    faulthandler.enable()
    struck(Effects(at=int(sys.argv[2]), when=When[sys.argv[3]]))
    Pipeline.from_yaml(sys.argv[1]).run()
