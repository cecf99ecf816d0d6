"""The cases of the comparison with PyTorch's DistributedDataParallel, as its tutorial writes a training.

It runs as one process per device, on `gloo`, and prints how far the weights of a case are off those of one process.
"""

import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bench.exactness.peer_cases import BATCH, CASES, CLIP, DEVICES, EPOCHS, RATE, Case, data, moved, weights


def build(case: Case) -> nn.Sequential:
    """The model of `peer_cases`, in PyTorch."""
    between = [nn.BatchNorm1d(8, eps=1e-3)] if case.normalizes else []
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), *between, nn.Linear(8, 1))
    kernels = weights()
    for layer, (kernel, bias) in zip(
        (model[0], model[-1]), ((kernels[0], kernels[1]), (kernels[2], kernels[3])), strict=True
    ):
        layer.weight.data, layer.bias.data = torch.tensor(kernel.T.copy()), torch.tensor(bias)
    return model


def train(case: Case, model: nn.Module, rank: int | None) -> None:
    """The loop; with a rank, that of one of several processes."""
    dataset = TensorDataset(*map(torch.tensor, data(case)))
    sampler = None if rank is None else DistributedSampler(dataset, DEVICES, rank, shuffle=False)
    loader = DataLoader(dataset, BATCH if rank is None else BATCH // DEVICES, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            squares = (model(x) - y) ** 2
            steps = (x != 0).any(-1) if case.masks else torch.ones(len(x), dtype=torch.bool)
            squares[steps].mean().backward()
            for parameter in model.parameters() if case.clips else ():
                nn.utils.clip_grad_norm_(parameter, CLIP)  # each weight by itself, as `clipnorm` of Keras
            optimizer.step()


def trained(case: Case, rank: int | None = None) -> list:
    """Weights of the dense layers, in the order and shape of Keras."""
    plain = build(case)
    if rank is None:
        train(case, plain, None)
    else:
        several = nn.SyncBatchNorm.convert_sync_batchnorm(plain) if case.normalizes else plain
        train(case, DistributedDataParallel(several), rank)
    linear = [layer for layer in plain if isinstance(layer, nn.Linear)]
    return [w.detach().numpy().T for layer in linear for w in (layer.weight, layer.bias)]


def main(rank: int, name: str) -> None:
    """One of the processes; the first one prints how far the case is off, or what PyTorch says of it."""
    torch.distributed.init_process_group("gloo", rank=rank, world_size=DEVICES)
    try:
        found = moved(weights(), trained(CASES[name]), trained(CASES[name], rank))
    except (RuntimeError, ValueError) as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1")
    main(int(sys.argv[1]), sys.argv[2])
