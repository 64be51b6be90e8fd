"""Run the command `attent` as `python -m attent`."""

from __future__ import annotations

from attent.cli import main

if __name__ == "__main__":
    main()
