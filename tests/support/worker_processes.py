"""Workers for tests: processes on this machine that train one model together, and what each of them gives back."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forked_python import python

from multigpu.cli.launch import local_configs

TESTS = Path(__file__).parents[1]
PYTHON = TESTS.parent / "python"
FOLDERS = (PYTHON, TESTS / "support", TESTS / "support" / "imports", TESTS / "engines/tensorflow/multi_worker")
PATH = os.pathsep.join(map(str, FOLDERS))  # of what workers import


class Started:
    """Workers that run `function(*arguments)` of a module, each with `devices` simulated devices.

    They are forked from a process that has imported Keras, or started `anew`.
    """

    def __init__(
        self,
        module: str,
        function: str,
        *arguments: Any,
        processes: int = 2,
        devices: int = 1,
        anew: bool = False,
        **environ: str,
    ):
        self._folder = tempfile.TemporaryDirectory()
        self._processes: list[subprocess.Popen] = []
        self._printed: dict[int, str] = {}
        for number, config in enumerate(local_configs(processes)):
            call = json.dumps([module, function, list(arguments), devices, f"{self._folder.name}/{number}"])
            environment = {**os.environ, "TF_CONFIG": config, "PYTHONPATH": PATH, **environ}
            environment.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
            command = [*([sys.executable] if anew else python()), "-W", "error", __file__, call]
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )

    def results(self, seconds: float = 300) -> list[Any]:
        """What every worker's function returned."""
        for number, code in enumerate(self.exit_codes(seconds)):
            assert code == 0, f"worker {number} ended with {code}:\n{self.printed(number)}"
        files = [Path(f"{self._folder.name}/{number}") for number in range(len(self._processes))]
        return [pickle.loads(file.read_bytes()) for file in files]

    def exit_codes(self, seconds: float = 300) -> list[int]:
        """Waits for all workers, which must end within so many seconds."""
        ends = time.monotonic() + seconds
        for number, process in enumerate(self._processes):
            try:
                self._printed[number], _ = process.communicate(timeout=max(1.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"worker {number} hangs:\n{process.communicate()[0]}") from None
        return [process.returncode for process in self._processes]

    def exit_code(self, number: int, seconds: float = 120) -> int:
        """Waits for one worker, which must end within so many seconds."""
        self._printed[number] = self._processes[number].communicate(timeout=seconds)[0]
        return self._processes[number].returncode

    def kill(self, number: int) -> None:
        """Ends a worker, wherever it is."""
        self._processes[number].kill()
        self._processes[number].communicate()

    def printed(self, number: int) -> str:
        """What a worker that has ended wrote to stdout and stderr."""
        return self._printed[number]

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self._folder.cleanup()


def results(module: str, function: str, *arguments: Any, **options: Any) -> list[Any]:
    """What `function(*arguments)` of a module returns on every worker."""
    with Started(module, function, *arguments, **options) as started:
        return started.results()


def _work(module: str, function: str, arguments: Sequence[Any], devices: int, path: str) -> None:
    import importlib
    import warnings

    import multigpu

    warnings.filterwarnings("ignore", "Expected statistics of the global batch")  # as `pyproject.toml` has it
    if devices > 1:
        multigpu.simulate_gpus(devices)
    call: Callable[..., Any] = getattr(importlib.import_module(module), function)
    Path(path).write_bytes(pickle.dumps(call(*arguments)))


if __name__ == "__main__":
    _work(*json.loads(sys.argv[1]))
