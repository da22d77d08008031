"""forerun: reads slow storage at the device's speed.

`forerun.vectors` shows what readahead policies decide; the command `forerun`, also
`python -m forerun`, is the whole lab.
"""

from forerun import vectors
from forerun._forerun import version
from forerun.errors import FetchError, ForerunError, OptionError

__all__ = [
    "FetchError",
    "ForerunError",
    "OptionError",
    "__version__",
    "vectors",
    "version",
]

__version__: str = version()
