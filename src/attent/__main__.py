"""`python -m attent` is the command `attent`."""

from __future__ import annotations

from attent.cli import main

if __name__ == "__main__":
    main()
