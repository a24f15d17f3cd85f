"""`python -m lakeseal` is the command line."""

import sys

from lakeseal.cli import main

sys.exit(main())
