"""`python -m autolrs.cli`, for where the script is not on the path."""

from autolrs.cli import main

main()
