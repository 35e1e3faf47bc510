"""`python -m rigd.cli` is `rigd`."""

import sys

from rigd.cli.main import main

sys.exit(main())
