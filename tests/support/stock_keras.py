"""A process that never heard of this package: stock Keras alone, on one device."""

import json
import subprocess
from pathlib import Path
from typing import Any

from forked_python import python

PRELUDE = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.modules["multigpu"] = None  # an import of it fails
import json, logging, warnings
import keras, numpy as np
logging.getLogger("absl").setLevel(logging.ERROR)
"""
FINALE = """
assert sys.modules["multigpu"] is None and not any(name.startswith("multigpu.") for name in sys.modules)
print("\\n" + json.dumps(answer))
"""


def run_without_package(script: str, folder: Path) -> Any:
    """Runs a script in a folder; what it leaves in `answer` comes back."""
    return run_python(PRELUDE + script + FINALE, folder)


def run_python(script: str, folder: Path) -> Any:
    """Runs a script in a process of its own; the last line that it prints is JSON."""
    done = subprocess.run(
        [*python(), "-c", script], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])
