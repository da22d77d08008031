"""No test learns from another: what is seen of hosts is not kept, unless a test says where."""

import os

os.environ["FORERUN_LEARN"] = "off"
