"""`python -m antiphon`."""

from antiphon import main

main()
