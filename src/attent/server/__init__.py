"""The translation server: LibreTranslate's interface, with sentences of different requests computed in shared batches.

It is independent of the explorer.
"""

from attent.requirements import check_extra

check_extra("serve")
