"""`python -m forerun`: the command `forerun`."""

import sys

from forerun._cli import main

sys.exit(main())
