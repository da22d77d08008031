"""forerun: reads slow storage at the device's speed.

`forerun.vectors` shows what readahead policies decide; the command `forerun`, also
`python -m forerun`, is the whole lab.
"""

from forerun import vectors
from forerun._cache import ForerunCache, memory_held, memory_limit
from forerun._forerun import version
from forerun._report import Report
from forerun.errors import FetchError, ForerunError, OptionError

__all__ = [
    "FetchError",
    "ForerunCache",
    "ForerunError",
    "OptionError",
    "Report",
    "__version__",
    "memory_held",
    "memory_limit",
    "vectors",
    "version",
]

__version__: str = version()
