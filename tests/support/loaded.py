"""Imported by processes that fork: what every child would load by itself is loaded here, once.

When Arrow makes its first array it looks for pandas, which takes as long as everything else together.
"""

import pyarrow as pa

pa.array([0])
