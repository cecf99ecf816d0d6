"""The example that `make demo` runs keeps its promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pages
DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_trains_on_four_devices_and_saves_a_plain_file():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Parallel: 4 replicas on CPU:0, CPU:1, CPU:2, CPU:3" in done.stdout
    assert "Epoch 20/20" in done.stdout  # the usual progress bar
    accuracies = [float(number) for number in re.findall(r"([\d.]+)%$", done.stdout, flags=re.MULTILINE)]
    assert len(accuracies) == 3
    assert len(set(accuracies)) == 1
    assert accuracies[0] >= 97
