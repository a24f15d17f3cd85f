"""How many examples a property test looks at: few in `make test`, many in `make stress`.

In `make test` they are the same every time, so that more of them would only repeat what is known; what is new is found
with HYPOTHESIS_PROFILE=explore, where a test has its long form.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def examples(short: int, long: int, **options: Any) -> settings:
    """`@examples(40, 400)` above `@given`; further settings as hypothesis has them."""
    return settings(max_examples=short if PROFILE == "ci" else long, **options)
