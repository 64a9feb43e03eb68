"""`python -m antiphon_export`."""

import sys

from .cli import main

sys.exit(main())
