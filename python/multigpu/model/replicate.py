"""`multi_gpu_model()`: replicate a model over several devices."""

import keras

from multigpu.engines import joined_cluster, part_devices, place_weights, synchronize_workers, visible_devices
from multigpu.model.overrides import with_own_code
from multigpu.model.parallel_model import MultiWorkerModel, ParallelModel
from multigpu.model.template_checks import check_template
from multigpu.plan.groups import Gpus, has_groups
from multigpu.plan.plan import make_plan
from multigpu.saving.template_facade import check_model


def multi_gpu_model(
    model: keras.Model, gpus: Gpus = None, cpu_merge: bool = True, cpu_relocation: bool = False
) -> ParallelModel:
    """Replicate a model over several GPUs. Use the result like the model: it gives the same numbers.

    Every batch is split into one slice per GPU. The sizes of slices differ by at most one row. Each GPU runs the
    template on its slice, forward and backward. The outputs are merged into one batch, on which loss and metrics are
    computed once. So losses, metrics, gradients, updated weights and predictions equal those of one device with the
    same batch, for batches of any size, to float tolerance. Dropout and noise are identical. One layer is an
    exception: on TensorFlow, BatchNormalization uses the statistics of each slice unless you call
    `synchronize_batch_norm()`.

    The template owns the weights before, during and after training. You do not copy anything back: save, inspect or
    train the template at any time. `compile()` on the parallel model compiles the template too, with the same optimizer
    object.

    Args:
        model: the template: a built Keras 3 model on TensorFlow or JAX (Sequential, functional, subclassed or nested),
            compiled or not. Its inputs and outputs have shape `(batch, ...)`, for any number of rows.
        gpus: the GPUs to use. A whole number of 2 or more takes the first ones. A list of 2 or more takes these, given
            as ids that count from 0 or as device names (`[0, 2]`, `["GPU:0", "GPU:1"]`, `["CPU:0", "CPU:1"]`); None
            takes all that exist. 0 and an empty list raise an error. If `on_device()` places parts of the template,
            pass a list of groups, one for each replica, with a device for each part (`[["GPU:0", "GPU:1"], ["GPU:2",
            "GPU:3"]]`). A group that is listed several times processes several slices, one behind the other (see
            `docs/model-parallel.md`). If TF_CONFIG names several workers, or `join_cluster()` has found them, `gpus`
            are the devices of this worker, and one is enough. All workers train together (see `docs/multi-worker.md`).
        cpu_merge: whether outputs are merged, and loss and metrics computed, on the CPU rather than on the first GPU.
        cpu_relocation: whether the template's weights are moved to CPU memory, in place and with their values.

    Returns:
        A `keras.Model`. Its `template` is the given model. Its `plan` lists the devices that it runs on.

    Raises:
        TooFewGPUsError: `gpus` means fewer than two devices, or more than exist. It is a ValueError. A script that also
            runs with one GPU can catch it: `try: ... except multigpu.TooFewGPUsError: parallel = model`.
        ValueError: devices are named twice or not understood; groups do not match the template's parts; the call is in
            the scope of a `tf.distribute` strategy; the model is not of Keras 3, not built, or parallel already; on
            TensorFlow, the model is stateful or has a fixed batch size; TF_CONFIG is not understood, or is read too
            late; or workers differ. The message gives what was expected, what was received, and what to do.

    Example:
        >>> import keras, multigpu, numpy
        >>> multigpu.simulate_gpus(2)  # on a machine with two GPUs, leave this out
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> parallel = multigpu.multi_gpu_model(model, gpus=2)
        >>> parallel.compile(optimizer="sgd", loss="mse")
        >>> history = parallel.fit(numpy.ones((7, 4)), numpy.ones((7, 1)), verbose=0)
        >>> model.save("model.keras")  # the template's plain file

    The method is synchronous data parallelism, as in `keras.utils.multi_gpu_model`: A. Krizhevsky, "One weird trick for
    parallelizing convolutional neural networks" (2014), https://arxiv.org/abs/1404.5997.
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
