"""Run the command line as `python -m traingen`."""

import sys

from traingen.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
