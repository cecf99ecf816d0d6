"""What null GPUs did in the order in which they were told: how much each sent, and how much of it too late to hide."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LEARNING = ("cublas", "cudnn", "gemm")  # in names of kernels that only forward and backward passes have


class Sent(NamedTuple):
    """Bytes that each GPU sent to others in one piece of work, and those after its last kernel of a backward pass."""

    bytes: Counter
    late: Counter

    @property
    def most_to_mean(self) -> float:
        """What the most loaded GPU sends ÷ the mean."""
        return max(self.bytes.values()) * len(self.bytes) / self.bytes.total()

    @property
    def late_share(self) -> float:
        """Of the GPU with the largest share: what it sends after its last backward kernel ÷ all that it sends."""
        return max(self.late[gpu] / size for gpu, size in self.bytes.items())


def last_piece(trace: Path) -> list[str]:
    """The lines between the last two places where the counts were set to zero."""
    return trace.read_text().split("RESET\n")[-2].splitlines()


def sent_in(lines: Iterable[str]) -> Sent:
    """Reads `kernel GPU NAME 0` and `copy FROM>TO BYTES`, of one step."""
    sent, late = Counter(), Counter()
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "kernel":
            gpu, _, name = rest.partition(" ")
            if any(word in name for word in LEARNING):
                late.pop(gpu, None)
        elif kind == "copy" and ">" in rest:
            ends, size = rest.split()
            sender, receiver = ends.split(">")
            if "H" not in ends and sender != receiver:
                sent[sender] += int(size)
                late[sender] += int(size)
    return Sent(sent, late)


def inputs_late(lines: Iterable[str], steps: int) -> float:
    """Of the largest copies from the host, the inputs, the share that came after the last kernel of the step before.

    Left out are those of the first step, which has none before it.
    """
    copies: dict[tuple[str, int], list[int]] = {}  # how many kernels ran before each
    kernels: Counter = Counter()
    for line in lines:
        kind, _, rest = line.partition(" ")
        gpu = rest.partition(" ")[0]
        if kind == "kernel" and any(word in rest for word in LEARNING):
            kernels[gpu] += 1
        elif kind == "copy" and gpu.startswith("H>"):
            ends, size = rest.split()
            copies.setdefault((ends.removeprefix("H>"), int(size)), []).append(kernels[ends.removeprefix("H>")])
    late = []
    for gpu in {gpu for gpu, _ in copies}:
        run_before = copies[max(key for key in copies if key[0] == gpu)]
        late += [run >= step * kernels[gpu] // steps for step, run in enumerate(run_before[1:], 1)]
    return sum(late) / len(late)
