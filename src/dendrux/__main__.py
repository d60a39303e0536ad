"""`python -m dendrux` is the command `dendrux`."""

from __future__ import annotations

import sys

from dendrux.cli import main

if __name__ == "__main__":
    sys.exit(main())
