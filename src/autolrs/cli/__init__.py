"""The command line, one file per command; `app.py` puts them together.

Exit codes: 0 all well, 1 the thing failed (one line on stderr says why), 2 wrong usage.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `autolrs` script."""
    try:
        from autolrs.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        print(f"autolrs: the command line needs {error.name}: pip install 'autolrs[cli]'", file=sys.stderr)
        sys.exit(1)
    app()
