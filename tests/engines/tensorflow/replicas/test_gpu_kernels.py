"""What replicas run on CPU devices, GPUs could run as well, without the host's help: TensorFlow lists GPUs' kernels.

The CPU that merges is apart from the devices of the replicas, so that host and GPU are told apart.
"""

import re
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
from cases import some
from executed_graphs import executed
from gpu_kernels import ancestors, edges, gpu_kernel, joins_buckets, nodes_of, shown, waits_for_host
from keras import layers

from multigpu import multi_gpu_model
from multigpu.base.replaced import replaced
from multigpu.engines.tensorflow.weights import embedding_tables

DEVICES = ["CPU:1", "CPU:2", "CPU:3"]
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(11, 8, 8, 3)).astype("float32")
WORDS = RANDOM.integers(1, 50, size=(11, 6))
NUMBERS = RANDOM.normal(size=(11, 6)).astype("float32")


def conv_net(synchronized: bool = False) -> keras.Model:
    x = inputs = keras.Input((8, 8, 3))
    for _ in range(2):
        x = layers.Conv2D(4, 3, use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization(synchronized=synchronized)(x))
    x = layers.Dropout(0.3)(layers.Flatten()(layers.MaxPooling2D()(x)))
    return keras.Model(inputs, layers.Dense(3, dtype="float32")(x))


def reader() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Embedding(50, 4, mask_zero=True)(inputs)
    return keras.Model(inputs, layers.Dense(3)(layers.LSTM(5, use_cudnn=False)(x)))


def bag_of_words() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.Embedding(50, 4)(inputs))))


def attentive() -> keras.Model:
    inputs = keras.Input((6,))
    x = layers.Dense(8)(layers.Reshape((6, 1))(inputs))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def penalized() -> keras.Model:
    dense = layers.Dense(8, activation="gelu", kernel_regularizer="l2", activity_regularizer="l2")
    return keras.Sequential([keras.Input((6,)), dense, layers.GaussianNoise(0.1), layers.Dense(3)])


class Training(NamedTuple):
    """A model, its input, and how it is compiled."""

    build: Any
    x: np.ndarray
    optimizer: Any = "adam"
    policy: str = "float32"


TRAININGS = {
    "images": Training(conv_net, IMAGES),
    "synchronized": Training(lambda: conv_net(synchronized=True), IMAGES, "sgd"),
    "mixed precision": Training(conv_net, IMAGES, policy="mixed_float16"),
    "words": Training(reader, WORDS, "rmsprop"),
    "a large table": Training(bag_of_words, WORDS),
    "attention": Training(attentive, NUMBERS, "adamw"),
    "penalties": Training(penalized, NUMBERS, "adafactor"),
    "clipped": Training(penalized, NUMBERS, lambda: keras.optimizers.Nadam(global_clipnorm=0.5)),
}


MOST = [name for name in TRAININGS if name not in ("images", "penalties", "words")]  # whose ops others have, too
ONLY_ON_CPUS = ["_UnaryOpsComposition"]  # TensorFlow makes it of several ops, which GPUs have, where it is on a CPU


class Ran(NamedTuple):
    """What ran on the devices of replicas."""

    nodes: list[list[Any]]  # of each graph and device
    of_keras: list[str]  # names of layers and of the optimizer, in whose scopes their own ops are
    template: str

    def is_ours(self, node: Any) -> bool:
        """Whether neither a layer made it, nor the gradient of one, nor the optimizer, nor a model of its inputs."""
        scopes = node.name.split("/")[:-1]
        casts_inputs = re.search(rf"PartitionedCall(_\d+)?/{self.template}(_\d+)*/Cast$", node.name)
        return not (casts_inputs or any(scope.startswith(tuple(self.of_keras)) for scope in scopes))


@pytest.fixture(params=some(TRAININGS, MOST), scope="module")
def ran(request: pytest.FixtureRequest) -> Ran:
    """Two steps, with rows for each replica, and for two of them."""
    training = TRAININGS[request.param]
    limit = 1 if request.param == "a large table" else embedding_tables.BUCKET_BYTES
    keras.config.set_dtype_policy(training.policy)
    try:
        with replaced(embedding_tables, "BUCKET_BYTES", limit):
            parallel = multi_gpu_model(training.build(), gpus=DEVICES)
        optimizer = training.optimizer() if callable(training.optimizer) else training.optimizer
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        parallel.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
        y = np.arange(len(training.x)) % 3
        run = executed(lambda: parallel.fit(training.x, y, batch_size=9, verbose=0))
    finally:
        keras.config.set_dtype_policy("float32")
    nodes = [nodes_of(graph, [device]) for graph in run.parts for device in DEVICES]
    return Ran(nodes, [*(layer.name for layer in parallel.layers), parallel.optimizer.name], parallel.template.name)


def test_gpus_have_kernels_for_what_replicas_run(ran):
    assert sum(map(len, ran.nodes)) > 100
    missing = {shown(node) for nodes in ran.nodes for node in nodes if gpu_kernel(node) is None}
    assert not {what for what in missing if not what.startswith(tuple(ONLY_ON_CPUS))}


def test_the_host_waits_for_nothing_of_ours(ran):
    waits = [edge for nodes in ran.nodes for edge in edges(nodes) if waits_for_host(edge)]
    ours = [edge for edge in waits if ran.is_ours(edge.source)]
    assert not {f"{shown(edge.source)} → {edge.argument} of {shown(edge.target)}" for edge in ours}


def test_no_op_holds_a_gradient_back_until_another_one_is_there(ran):
    assert not {name for nodes in ran.nodes for name in joins_buckets(nodes, DEVICES)}


def test_layers_wait_for_their_own_weights_and_gradients_for_those_of_later_layers_alone():
    width = 600  # 1.4 MB of weights for each layer: a bucket
    stack = [layers.Dense(width, name=f"layer_{number}") for number in range(4)]
    template = keras.Sequential([keras.Input((width,)), *stack])
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile("sgd", "mse")
    x = np.ones((9, width), "float32")
    run = executed(lambda: parallel.fit(x, x, batch_size=9, verbose=0))
    nodes = max((nodes_of(graph, [DEVICES[1]]) for graph in run.parts), key=len)
    before = {node.name: ancestors(node, nodes) for node in nodes}
    received = [len([n for n in before[forward] if n.op in ("_Recv", "_HostRecv")]) for forward in _forward(nodes)]
    assert len(received) == 4
    assert received == sorted(received)
    assert received[0] <= 2 < received[-1]  # the first one for its rows and its own weights, if another device has them
    gradients = [
        _layers_of(before[node.name]) for node in nodes if node.op == "_Send" and _layers_of(before[node.name])
    ]
    assert {3} in gradients
    assert {2, 3} in gradients


def _forward(nodes: list[Any]) -> list[str]:
    """The product of each layer, in the order of the layers."""
    found = {
        match[1]: node.name
        for node in nodes
        if "MatMul" in node.op and "gradients/" not in node.name and (match := re.search(r"/layer_(\d)", node.name))
    }
    return [found[number] for number in sorted(found)]


def _layers_of(nodes: list[Any]) -> set[int]:
    """Of which layers there are gradients among these."""
    named = (re.search(r"gradients/.*/layer_(\d).*/MatMul", node.name) for node in nodes if "MatMul" in node.op)
    return {int(match[1]) for match in named if match}
