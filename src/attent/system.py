"""The operating system, asked here alone: what differs elsewhere reads these names, and tests replace them."""

from __future__ import annotations

import os
import sys

IS_LINUX = sys.platform == "linux"
# On Windows, folders cannot be opened, open or mapped files can be neither replaced nor removed, a file's `st_ctime`
# differs between its path and its descriptor (since Python 3.12), and a reader that goes away is an EINVAL.
IS_WINDOWS = os.name == "nt"
