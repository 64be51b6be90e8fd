"""The operating system, asked here alone: what differs elsewhere reads these names, and tests replace them."""

import os
import sys
from typing import Any

IS_LINUX = sys.platform == "linux"
# On Windows, folders cannot be opened, open or mapped files can be neither replaced nor removed, a file's `st_ctime`
# differs between its path and its descriptor (since Python 3.12), and a reader that goes away is an EINVAL.
IS_WINDOWS = os.name == "nt"
# ENABLE_PROCESSED_OUTPUT, ENABLE_WRAP_AT_EOL_OUTPUT and ENABLE_VIRTUAL_TERMINAL_PROCESSING of Windows' <wincon.h>.
CONSOLE_MODE = 7


def interpret_escapes() -> None:
    """Make Windows' console interpret escape sequences, as others do without being asked."""
    if IS_WINDOWS:
        import ctypes

        kernel: Any = ctypes.windll.kernel32
        for handle in (-11, -12):
            # it fails, without an exception, for files and pipes
            kernel.SetConsoleMode(kernel.GetStdHandle(handle), CONSOLE_MODE)
