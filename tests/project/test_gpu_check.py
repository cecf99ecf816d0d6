"""`make gpu-check` and the tests on GPUs say plainly that there is no GPU, and run nothing on something else."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_python import python
from tensorflow.tsl.profiler.protobuf import xplane_pb2

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture
def part_of(pytestconfig, monkeypatch):
    """Imports a script of the check by its name."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the scripts add
    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    monkeypatch.syspath_prepend(pytestconfig.rootpath / "tests" / "gpu")
    return importlib.import_module


def run(pytestconfig, *arguments, **environment) -> subprocess.CompletedProcess:
    """Runs Python in the repository, where there is no GPU."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    env = {**NO_GPU, **paths, **environment}
    command = [*python(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=pytestconfig.rootpath, env=env)


def test_without_a_gpu_the_check_says_so_and_runs_nothing(pytestconfig):
    done = run(pytestconfig, "tests/gpu/gpu_check.py")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("No GPU: TensorFlow sees none on this machine, so nothing was run")
    assert len(done.stdout.splitlines()) == 1


def test_tests_asked_for_gpus_do_not_run_on_a_cpu(pytestconfig):
    path = "tests/exactness/test_exact_batches.py"
    done = run(pytestconfig, "-m", "pytest", "-p", "no:cacheprovider", path, MULTIGPU_DEVICES="gpu")
    assert done.returncode != 0
    assert "Expected a GPU, since MULTIGPU_DEVICES=gpu." in done.stdout + done.stderr
    assert "passed" not in done.stdout


def test_the_tests_that_the_check_runs_are_there(pytestconfig, part_of):
    exactness = part_of("exactness")
    assert [path for path in exactness.FILES if not (pytestconfig.rootpath / "tests" / path).exists()] == []
    chosen = {f"tests/{name}" for tests in exactness.TESTS.values() for name in tests}
    found = run(pytestconfig, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", *sorted(chosen)).stdout
    assert chosen == {line for line in found.splitlines() if "::" in line}


def test_a_part_runs_on_cpu_devices(pytestconfig, part_of):
    done = run(pytestconfig, "tests/gpu/gpu_check.py", "--simulate", "--only", "kernels")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.startswith("SIMULATED on CPU devices")
    rows = {line.split(" | ")[0].strip("| ") for line in done.stdout.splitlines() if line.endswith("| yes |")}
    assert rows == part_of("first_kernels").KERNELS.keys()
    assert done.stdout.splitlines()[-1] == "kernels: done"


SCRIPTS = {
    "sleeps": "import subprocess, sys, time; print('begun', flush=True); "
    "child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); time.sleep(600)",
    "fails": "raise SystemExit(3)",
    "ends": "import os; print('cache of', os.environ['CUDA_CACHE_MAXSIZE'], 'bytes')",
}


def test_a_part_that_fails_or_takes_too_long_is_told_and_the_others_run(part_of, monkeypatch, tmp_path, capfd):
    check = part_of("gpu_check")
    for name, code in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(code)
    parts = {name: check.Part(name, f"{tmp_path}/{name}.py", 30 if name == "ends" else 2, 1) for name in SCRIPTS}
    monkeypatch.setattr(check, "PARTS", parts)
    monkeypatch.setattr(check, "ALL_SECONDS", 1200)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--simulate", "--only", *SCRIPTS])
    assert check.main() == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-3:] == ["sleeps: CUT OFF after its 2 s", "fails: FAILED, with status 3", "ends: done"]
    assert "cache of 4294967296 bytes" in lines
    status = Path(f"/proc/{lines[lines.index('begun') + 1]}/status")  # of the process that the part had started
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_all_parts_together_have_twenty_minutes(part_of):
    assert part_of("gpu_check").ALL_SECONDS <= 20 * 60


def test_copies_are_read_from_a_profile(part_of, tmp_path):
    """Written as TensorFlow does for a GPU that CUPTI tells of, with what has to be left out."""
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/device:GPU:0")
    names = ["MemcpyD2H", "MemcpyP2P", "gemm", "MemcpyH2D", "Memset"]
    for number, name in enumerate(names):
        plane.event_metadata[number].name = name
    plane.stat_metadata[7].name = "memcpy_details"
    for line, sizes in {"Stream #14(Compute,MemcpyD2H)": [4, 4096, None, 1024, None], "Steps": [4]}.items():
        of_line = plane.lines.add(name=line)
        for number, size in enumerate(sizes):
            event = of_line.events.add(metadata_id=number, duration_ps=2_000_000_000)
            if size:
                event.stats.add(metadata_id=7, str_value=f"kind_src:device kind_dst:pinned size:{size} dest:0 async:1")
    space.planes.add(name="/host:CPU")
    (tmp_path / "host.xplane.pb").write_bytes(space.SerializeToString())
    found = part_of("copies").copies_in(tmp_path)
    assert found.times == {("tiny", "D2H"): 1, ("large", "D2D"): 1, ("tiny", "H2D"): 1}
    assert found.bytes == {("tiny", "D2H"): 4, ("large", "D2D"): 4096, ("tiny", "H2D"): 1024}
    assert found.kernels == {"number": 1, "ms": 2.0}


def test_a_copy_of_unknown_size_is_no_copy_of_nothing(part_of, tmp_path):
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/device:GPU:0")
    plane.event_metadata[1].name = "MemcpyD2H"
    plane.lines.add(name="Stream #1").events.add(metadata_id=1)
    (tmp_path / "host.xplane.pb").write_bytes(space.SerializeToString())
    with pytest.raises(ValueError, match="Expected the size of each copy"):
        part_of("copies").copies_in(tmp_path)
