"""`multi_gpu_model()`: replicate a model over several devices."""

import keras

from multigpu.base.arguments import check_model
from multigpu.engines import joined_cluster, part_devices, place_weights, synchronize_workers, visible_devices
from multigpu.model.overrides import with_own_code
from multigpu.model.parallel_model import MultiWorkerModel, ParallelModel
from multigpu.model.template_checks import check_template
from multigpu.plan.groups import Gpus, has_groups
from multigpu.plan.plan import make_plan


def multi_gpu_model(
    model: keras.Model, gpus: Gpus = None, cpu_merge: bool = True, cpu_relocation: bool = False
) -> ParallelModel:
    """Replicate a model over several GPUs. Use the result like the model: it gives the same numbers.

    Every batch is split into one slice per GPU, sizes differing by at most one row. Each GPU runs the template on its
    slice, forward and backward, and the outputs are merged into one batch, on which loss and metrics are taken once.
    So losses, metrics, gradients, updated weights and predictions are those of one device with the same batch, for
    batches of any size, to float tolerance; Dropout and noise are the very same. One layer is an exception:
    BatchNormalization takes its statistics per slice unless `synchronize_batch_norm()` was called.

    The template owns the weights, before, during and after. There is nothing to copy back: save, inspect or train the
    template at any time. `compile()` on the parallel model compiles the template too, with the same optimizer object.

    Args:
        model: the template: a built Keras 3 model on the TensorFlow backend (Sequential, functional, subclassed or
            nested), compiled or not. Its inputs have shape `(batch, ...)` with an open batch axis, and so do its
            outputs.
        gpus: the GPUs to use. A whole number of 2 or more takes the first ones; a list of 2 or more takes these, given
            as ids that count from 0 or as device names (`[0, 2]`, `["GPU:0", "GPU:1"]`, `["CPU:0", "CPU:1"]`);
            None takes all there are; 0 and an empty list are refused. For a template whose parts are placed by
            `on_device()`, a list of groups, one for each replica, with a device for each part
            (`[["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]]`); slices of a group that is listed several times follow each
            other through its devices; see `docs/model-parallel.md`. Where TF_CONFIG names several workers, or
            `join_cluster()` has found them, these are the devices of this one, and one is enough; all train together,
            see `docs/multi-worker.md`.
        cpu_merge: whether outputs are merged, and loss and metrics taken, on the CPU rather than on the first GPU.
        cpu_relocation: whether the template's weights are moved to CPU memory, in place and with their values.

    Returns:
        A `keras.Model`. Its `template` is the given model; its `plan` tells which devices are at work.

    Raises:
        TooFewGPUsError: fewer than two devices, or more than there are; a ValueError, for a script that also runs where
            there is one GPU: `try: ... except multigpu.TooFewGPUsError: parallel = model`.
        ValueError: devices named twice or not understood, groups that do not suit the template's parts, the scope of a
            `tf.distribute` strategy, or a model that cannot be split: not of Keras 3, unbuilt, parallel already,
            stateful, or without an open batch axis; or TF_CONFIG is not understood, or read too late, or workers
            differ. The message says what was expected, what was received, and what to do.

    Example:
        >>> import keras, multigpu, numpy
        >>> multigpu.simulate_gpus(2)  # on a machine with two GPUs, leave this out
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> parallel = multigpu.multi_gpu_model(model, gpus=2)
        >>> parallel.compile(optimizer="sgd", loss="mse")
        >>> history = parallel.fit(numpy.ones((7, 4)), numpy.ones((7, 1)), verbose=0)
        >>> model.save("model.keras")  # the template's plain file

    The method is synchronous data parallelism as `keras.utils.multi_gpu_model` had it, see A. Krizhevsky, "One weird
    trick for parallelizing convolutional neural networks" (2014), https://arxiv.org/abs/1404.5997.
    """
    cluster = joined_cluster()
    visible = visible_devices(one_is_enough=cluster is not None)
    check_model("model", model)
    parts = part_devices(model) if has_groups(gpus) else ()
    plan = make_plan(gpus, cpu_merge, cpu_relocation, visible, cluster, parts=parts)
    check_template(model, groups=bool(plan.groups))
    place_weights(model, plan)
    if cluster is None:
        return with_own_code(ParallelModel, model)(model, plan)
    synchronize_workers(model, plan)
    return with_own_code(MultiWorkerModel, model)(model, plan)
