"""Run the command `attent` as `python -m attent`."""

from attent.cli import main

if __name__ == "__main__":
    main()
