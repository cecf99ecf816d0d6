"""`python -m multigpu`."""

import sys

from multigpu.commands.command_line import main

sys.exit(main())
