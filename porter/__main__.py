"""`python -m porter` is the command `porter`."""

from porter.cli.app import main

main()
