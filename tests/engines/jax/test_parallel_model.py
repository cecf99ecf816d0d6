"""A parallel model is used like its template, whose weights it has, and leaves nothing behind."""

import copy
import gc
import weakref

import jax
import keras
import numpy as np
import pytest
from equality import assert_same_numbers, assert_same_training, random_rows
from keras import layers, ops

import multigpu
from multigpu import multi_gpu_model
from multigpu.engines.jax.placement import layout_of
from multigpu.plan.plan import Plan
from multigpu.r import main_thread_generator

X, Y = random_rows(10, 5), random_rows(10, 3)


def build():
    return keras.Sequential([keras.Input((5,)), layers.Dense(64, "tanh"), layers.Dense(64), layers.Dense(3)])


def compiled(model, **more):
    model.compile(keras.optimizers.SGD(0.1), "mse", **more)
    return model


def sgd():
    return {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse"}


def divided(model):
    return [variable.path for variable in model.variables if not variable.value.sharding.is_fully_replicated]


class OwnStep(keras.Model):
    """A model with a step of its own, in the form that JAX wants, and a `fit()` of its own."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(64, "tanh"), layers.Dense(3)
        self.fits = 0

    def call(self, x, training=False):
        return self.head(self.hidden(x))

    def fit(self, *args, **kwargs):
        self.fits += 1
        return super().fit(*args, **kwargs)

    def train_step(self, state, data):
        trainable, non_trainable, slots, metrics = state
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)

        def loss_of(trainable):
            outputs, new = self.stateless_call(trainable, non_trainable, x, training=True)
            return ops.logsumexp(ops.square(outputs - y)), new

        (loss, non_trainable), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        trainable, slots = self.optimizer.stateless_apply(slots, gradients, trainable)
        return {"loss": loss}, (trainable, non_trainable, slots, metrics)


def own_step():
    model = OwnStep()
    model(X)
    return model


def nested():
    inputs = keras.Input((5,))
    return keras.Model(inputs, layers.Dense(3)(build()(layers.Dense(5)(inputs))))


@pytest.mark.parametrize("kind", [own_step, nested])
def test_any_kind_of_template(kind):
    template = assert_same_training(kind, X, Y, compile=sgd, gpus=8, batch_size=4)
    assert getattr(template, "fits", 1) == 1


def test_a_template_that_was_compiled_and_trained_before_trains_on():
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = build()
        model.compile("adam", "mse")
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        used = multigpu.multi_gpu_model(model, 4) if parallel else model
        used.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)  # and on its own again
        return {str(number): v.numpy() for number, v in enumerate([*model.variables, *model.optimizer.variables])}

    assert_same_numbers(train(parallel=True), train(parallel=False), rtol=1e-4, atol=1e-5)


def test_steps_on_batches_of_ones_own():
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = compiled(build(), metrics=["mae"])
        used = multigpu.multi_gpu_model(model, 8) if parallel else model
        seen = [used.train_on_batch(X[:n], Y[:n]) for n in (3, 8)]
        seen += [used.test_on_batch(X[:5], Y[:5], sample_weight=np.arange(5.0)), used.predict_on_batch(X[:3])]
        return {str(number): np.asarray(each) for number, each in enumerate([*seen, *model.get_weights()])}

    assert_same_numbers(train(parallel=True), train(parallel=False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 6, 8])
def test_calls(rows):
    model = build()
    expected = np.asarray(model(X[:rows]))
    parallel = multigpu.multi_gpu_model(model, 8)
    np.testing.assert_allclose(parallel(X[:rows]), expected, rtol=1e-5, atol=1e-6)
    assert rows != 8 or len(parallel(X[:rows]).sharding.device_set) == 8


@pytest.mark.parametrize("rows", [6, 8])
def test_a_loop_of_ones_own(rows):
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = build()
        used = multigpu.multi_gpu_model(model, 8) if parallel else model

        @jax.jit
        def step(weights, state, x, y):
            def loss_of(weights):
                outputs, new = used.stateless_call(weights, state, x, training=True)
                return ops.mean(ops.square(outputs - y)), new

            (loss, state_), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], state_, loss

        weights = [v.value for v in used.trainable_variables]
        state = [v.value for v in used.non_trainable_variables]
        for _ in range(3):
            weights, state, loss = step(weights, state, X[:rows], Y[:rows])
        return {str(number): np.asarray(each) for number, each in enumerate([loss, *weights])}

    assert_same_numbers(train(parallel=True), train(parallel=False), rtol=1e-4, atol=1e-5)


class Watch(keras.callbacks.Callback):
    """Notes the template's weights after each batch, as the template and as the model of the callback have them."""

    def __init__(self, template):
        super().__init__()
        self.template, self.seen = template, []

    def on_train_batch_end(self, batch, logs=None):
        self.model.jax_state_sync()
        self.seen.append(self.template.layers[0].kernel.numpy())
        np.testing.assert_array_equal(self.model.get_weights()[0], self.seen[-1])


def test_the_template_has_the_trained_weights_in_every_callback_and_after():
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = compiled(build())
        watch = Watch(model)
        used = multigpu.multi_gpu_model(model, 8) if parallel else model
        used.fit(X, Y, batch_size=4, callbacks=[watch], verbose=0, shuffle=False)
        return {str(number): each for number, each in enumerate([*watch.seen, model.get_weights()[0]])}

    seen = train(parallel=True)
    assert_same_numbers(seen, train(parallel=False), rtol=1e-4, atol=1e-5)
    assert len(seen) == 4
    assert not np.array_equal(seen["0"], seen["1"])


class StopsAfterOne(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


def test_callbacks_stop_the_training_and_learning_rates_are_followed():
    parallel = compiled(multigpu.multi_gpu_model(build(), 4))
    assert len(parallel.fit(X, Y, epochs=3, verbose=0, callbacks=[StopsAfterOne()]).epoch) == 1
    assert parallel.stop_training
    rates = parallel.fit(
        X, Y, epochs=2, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 0.5**epoch)]
    ).history["learning_rate"]
    assert rates == [1.0, 0.5]


def test_a_parallel_model_answers_as_its_template():
    model = compiled(build())
    parallel = multigpu.multi_gpu_model(model, 4)
    assert isinstance(parallel, keras.Sequential)
    assert parallel.layers == model.layers
    assert parallel.optimizer is model.optimizer
    assert parallel.count_params() == model.count_params()
    assert parallel.get_config() == model.get_config()
    assert "4 replicas on CPU:0, CPU:1, CPU:2, CPU:3" in repr(parallel)


def test_a_copy_is_parallel_as_well():
    parallel = compiled(multigpu.multi_gpu_model(build(), 4))
    copied = copy.deepcopy(parallel)
    copied.fit(X, Y, verbose=0)
    assert not np.array_equal(copied.get_weights()[0], parallel.get_weights()[0])


def test_compile_anew_between_two_fits():
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = build()
        used = multigpu.multi_gpu_model(model, 8) if parallel else model
        for optimizer in ("sgd", "adam"):
            (model if optimizer == "adam" else used).compile(optimizer, "mse")
            used.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        return {str(number): each for number, each in enumerate(model.get_weights())}

    assert_same_numbers(train(parallel=True), train(parallel=False), rtol=1e-4, atol=1e-4)


def test_two_parallel_models_of_one_template_and_a_plain_one():
    def train(gpus):
        keras.utils.set_random_seed(1)
        model, other = compiled(build()), compiled(build())
        used = [multigpu.multi_gpu_model(model, each) if each else model for each in gpus]
        for each in used:
            each.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
            other.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        return {str(number): each for number, each in enumerate([*model.get_weights(), *other.get_weights()])}

    assert_same_numbers(train([2, [3, 5, 7]]), train([None, None]), rtol=1e-4, atol=1e-5)


def test_freezing_after_a_fit():
    def train(parallel):
        keras.utils.set_random_seed(1)
        model = build()
        used = multigpu.multi_gpu_model(model, 8) if parallel else model
        for trainable in (True, False):
            model.layers[0].trainable = trainable
            compiled(used).fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        return {str(number): each for number, each in enumerate(model.get_weights())}

    assert_same_numbers(train(parallel=True), train(parallel=False), rtol=1e-4, atol=1e-5)


def test_bring_home_and_back():
    model = compiled(build())
    parallel = multigpu.multi_gpu_model(model, 8)
    parallel.fit(X, Y, verbose=0)
    assert len(divided(model)) == 1
    assert "; weights spread over the devices>" in repr(parallel)
    before = parallel.predict(X, verbose=0)
    assert "; weights spread over the devices>" in repr(parallel)
    assert multigpu.bring_home(parallel) is parallel
    assert "; weights on CPU:0>" in repr(parallel)
    assert {len(v.value.sharding.device_set) for v in [*model.variables, *model.optimizer.variables]} == {1}
    np.testing.assert_allclose(model.predict(X, verbose=0), before, rtol=1e-5, atol=1e-6)
    model.fit(X, Y, verbose=0)
    assert divided(model) == []
    parallel.fit(X, Y, verbose=0)
    assert len(divided(model)) == 1


def test_nothing_is_set_beyond_a_verb():
    model = compiled(build())
    parallel = multigpu.multi_gpu_model(model, 4)
    parallel.fit(X, Y, verbose=0)
    assert not {"make_train_function", "make_test_function", "make_predict_function"} & vars(model).keys()
    assert (model.train_function, model.test_function, model.predict_function) == (None, None, None)
    assert jax.config.jax_default_device is None
    assert keras.distribution.distribution() is None


@pytest.mark.parametrize("gpus", [["CPU:0", "CPU:1"], 4])
def test_weights_that_are_given_after_a_fit_leave_nothing_of_the_old_ones(gpus):
    model = compiled(build())
    parallel = multigpu.multi_gpu_model(model, gpus)
    parallel.fit(X, Y, verbose=0)
    old = [weakref.ref(variable.value) for variable in model.trainable_variables]
    parallel.set_weights([np.ones(variable.shape) for variable in model.weights])
    gc.collect()
    assert [ref() for ref in old] == [None] * len(old)


def test_gpus_and_cpus_together_are_refused():
    with pytest.raises(ValueError, match=r"devices of one kind.*on JAX.*Received: CPU and GPU, in GPU:0, CPU:0\. List"):
        layout_of(Plan(("GPU:0", "CPU:0"), "CPU:0"))


def test_an_error_in_a_step_leaves_the_template_as_it_was():
    model = compiled(build())
    parallel = multigpu.multi_gpu_model(model, 4)
    with pytest.raises(TypeError, match="incompatible shapes"):
        parallel.fit(X, random_rows(10, 4), verbose=0)
    assert "make_train_function" not in vars(model)
    parallel.fit(X, Y, verbose=0)


@pytest.mark.parametrize("cpu_relocation", [False, True])
@pytest.mark.parametrize("verb", ["evaluate", "predict"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_in_data_is_raised_as_it_is_and_the_template_keeps_its_weights(cpu_relocation, verb, error):
    template = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    parallel = multigpu.multi_gpu_model(template, 3, cpu_relocation=cpu_relocation)
    parallel.compile("sgd", "mse")
    x, y = random_rows(6, 4), random_rows(6, 2)
    before = template.get_weights()

    def batches():
        for _ in range(3):  # Keras requests some before the first step
            yield (x, y) if verb == "evaluate" else (x,)
        raise error("no file")

    with pytest.raises(error, match="no file"):
        getattr(parallel, verb)(batches(), steps=9, verbose=0)
    for actual, expected in zip(template.get_weights(), before, strict=True):
        np.testing.assert_array_equal(actual, expected)
    parallel.fit(x, y, verbose=0)


@pytest.mark.parametrize("cpu_relocation", [False, True])
@pytest.mark.parametrize(
    ("method", "with_y"),
    [("fit", True), ("evaluate", True), ("predict", False), ("train_on_batch", True), ("predict_on_batch", False)],
)
def test_a_trained_model_keeps_its_weights_where_the_first_step_fails(cpu_relocation, method, with_y):
    """Keras on JAX loses them, on one device."""
    template = keras.Sequential([keras.Input((4,)), layers.Dense(2), layers.BatchNormalization()])
    parallel = multigpu.multi_gpu_model(template, 3, cpu_relocation=cpu_relocation)
    parallel.compile("adam", "mse")
    x, y = random_rows(6, 4), random_rows(6, 2)
    parallel.fit(x, y, verbose=0)
    before = [variable.numpy() for variable in (*template.variables, *template.optimizer.variables)]
    with pytest.raises(ValueError, match="incompatible with the layer"):
        getattr(parallel, method)(x[:, :3], *[y][:with_y])
    for actual, expected in zip((*template.variables, *template.optimizer.variables), before, strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected)
    parallel.fit(x, y, verbose=0)


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_weights_that_are_set_after_a_step_that_failed_stay(method):
    template = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    parallel = multigpu.multi_gpu_model(template, 3)
    parallel.compile(keras.optimizers.SGD(0.0), "mse")
    x, y = random_rows(6, 4), random_rows(6, 2)

    def batches():
        for _ in range(3):
            yield (x, y) if method == "evaluate" else (x,)
        raise OSError("no file")

    class Looks(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            assert self.model is template  # Keras gives variables the state of its loops then

    with pytest.raises(OSError, match="no file"):
        getattr(parallel, method)(batches(), steps=9, verbose=0)
    template.set_weights([np.full_like(each, 7) for each in template.get_weights()])
    parallel.fit(x, y, verbose=0, callbacks=[Looks()])
    assert all((each == 7).all() for each in template.get_weights())


def test_as_many_traces_as_on_one_device():
    def traces(parallel):
        seen = []

        class Counting(keras.Sequential):
            def train_step(self, *args):
                seen.append(1)
                return super().train_step(*args)

        model = compiled(Counting([keras.Input(X.shape[1:]), *build().layers]))
        used = multigpu.multi_gpu_model(model, 8) if parallel else model
        used.fit(X, Y, batch_size=4, epochs=3, verbose=0)
        return len(seen)

    assert traces(parallel=True) == traces(parallel=False) == 2


def test_a_callback_to_the_host_runs_in_compiled_steps_and_may_be_refused_elsewhere():
    def sorted_on_host(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return x + jax.pure_callback(lambda v: np.sort(v, axis=-1), shape, jax.lax.stop_gradient(x))

    def build():
        on_host = layers.Lambda(sorted_on_host, output_shape=lambda shape: shape)
        return keras.Sequential([keras.Input((7,)), layers.Dense(4), on_host, layers.Dense(3)])

    x, y = random_rows(8, 7), random_rows(8, 3)
    template = assert_same_training(build, x, y, gpus=2, batch_size=3, compile=sgd, only_fit=True)
    parallel = multigpu.multi_gpu_model(template, 2)
    expected = template.predict(x, verbose=0)
    np.testing.assert_allclose(parallel.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
    parallel.compile(**sgd(), run_eagerly=True)
    for call in (parallel, parallel.predict_on_batch):
        told = ""
        try:  # JAX 0.6 runs it
            np.testing.assert_allclose(call(x), expected, rtol=1e-5, atol=1e-6)
        except ValueError as error:
            told = str(error)
        assert "callback to the host" in told or not told


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_function_without_more_batches_ends_the_training_where_keras_would_repeat_the_first_two():
    batches = iter([(random_rows(7, 5), random_rows(7, 3))] * 4)
    model = compiled(multi_gpu_model(build(), 3))
    history = main_thread_generator.call("fit", model, lambda: next(batches, None), epochs=3, verbose=0).history
    assert len(history["loss"]) == 1


@pytest.mark.parametrize("steps", [None, 4])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_validation_is_refused_where_keras_would_repeat_the_first_two_batches_of_a_function(steps):
    batch = random_rows(7, 5), random_rows(7, 3)
    batches, model = iter([batch] * 3), compiled(multi_gpu_model(build(), 3))
    more = {"validation_data": lambda: next(batches, None), "validation_steps": steps, "verbose": 0}
    with pytest.raises(ValueError, match=r"a generator that has no more.* Set `validation_steps`"):
        main_thread_generator.call("fit", model, lambda: batch, steps_per_epoch=1, epochs=2, **more)
    batches = iter([batch] * 3)
    history = main_thread_generator.call("fit", model, lambda: batch, steps_per_epoch=1, epochs=1, **more).history
    assert len(history["val_loss"]) == 1


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_function_gives_the_batch_of_each_step_also_of_a_single_one(steps):
    """As `fit()` in R calls it. Keras asks for two batches before the first step."""
    batches = [(random_rows(7, 5, seed=seed), random_rows(7, 3, seed=seed)) for seed in range(3 * steps + 1)]
    one, other = compiled(build()), compiled(multi_gpu_model(build(), 3))
    other.set_weights(one.get_weights())
    source, validation = iter(batches), iter(batches * 2)
    more = {"validation_data": lambda: next(validation), "validation_steps": 1, "epochs": 3, "verbose": 0}
    main_thread_generator.call("fit", other, lambda: next(source), steps_per_epoch=steps, **more)
    for x, y in batches[:-1]:
        one.train_on_batch(x, y)
    for mine, expected in zip(other.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


# What users set, hold or interrupt ----------------------------------------------------------------------------------


class CountsSteps(keras.Model):
    """A model that makes its training function itself."""

    def __init__(self):
        super().__init__()
        self.head, self.steps, self.scale = layers.Dense(3), [], 1.0

    def call(self, x):
        return self.scale * self.head(x)

    def make_train_function(self, force=False):
        super().make_train_function(force)
        of_keras = self.train_function
        self.train_function = lambda *given: (self.steps.append(1), of_keras(*given))[1]


@pytest.mark.parametrize("gpus", [None, 3])
def test_a_training_function_of_ones_own_is_used(gpus):
    template = CountsSteps()
    template(X)
    model = compiled(multi_gpu_model(template, gpus) if gpus else template)
    model.fit(X, Y, batch_size=4, verbose=0)
    assert len(template.steps) == 3
    of_class, calls = model.train_function, []
    model.train_function = lambda *given: (calls.append(1), of_class(*given))[1]
    model.predict(X, verbose=0)
    assert calls == []
    before = model.evaluate(X, Y, verbose=0)
    template.scale, model.test_function = 3.0, None  # Keras' way to trace it again
    assert model.evaluate(X, Y, verbose=0) != pytest.approx(before, rel=0.1)


@pytest.mark.filterwarnings("ignore:Layer 'reads'.*was passed an input with a mask:UserWarning")
def test_masks_of_inputs_come_along():
    class Reads(keras.Model):
        def __init__(self):
            super().__init__()
            self.sequence = layers.LSTM(4)

        def call(self, x):
            return self.sequence(x)

    x = layers.Embedding(10, 6, mask_zero=True)(np.array([[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 0]]))
    template = Reads()
    expected = template(x)
    parallel = multi_gpu_model(template, 3)
    np.testing.assert_allclose(parallel(x), expected, atol=1e-6)
    weights = [v.value for v in template.trainable_variables], [v.value for v in template.non_trainable_variables]
    loop = jax.jit(lambda *weights: parallel.stateless_call(*weights, x)[0])
    np.testing.assert_allclose(loop(*weights), expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")  # Keras' answer to an unknown length
@pytest.mark.parametrize("relocated", [False, True])
def test_training_goes_on_after_data_that_failed_within_an_execution(relocated):
    def batches(failing):
        for number in range(6):
            if failing and number == 3:
                raise KeyError("no such file")
            yield X, Y

    template = build()
    parallel = compiled(multi_gpu_model(template, 3, cpu_relocation=relocated), steps_per_execution=2)
    with pytest.raises(KeyError):
        parallel.fit(batches(failing=True), shuffle=False, verbose=0)
    twin = build()
    twin.set_weights(template.get_weights())
    for model in (parallel, compiled(twin, steps_per_execution=2)):
        model.fit(batches(failing=False), shuffle=False, verbose=0)
    for weight, expected in zip(template.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("verb", ["call", "predict", "fit"])
def test_a_weight_that_a_users_step_has_deleted_is_an_error(verb):
    template = build()
    parallel = compiled(multi_gpu_model(template, 3))
    use = {"call": lambda: parallel(X), "predict": lambda: parallel.predict(X, verbose=0)}
    use["fit"] = lambda: parallel.fit(X, Y, verbose=0)
    use[verb]()
    for variable in template.trainable_variables:
        variable.value.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        use[verb]()


def test_relocated_weights_and_metrics_are_used_in_callbacks():
    seen = {}
    for relocated in (None, False, True):
        keras.utils.set_random_seed(4)
        template = build()
        model = template if relocated is None else multi_gpu_model(template, 3, cpu_relocation=relocated)
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=[keras.metrics.R2Score()])

        found = seen.setdefault(relocated, [])

        def look(epoch, logs, template=template, found=found):
            kernel = template.layers[0].kernel
            kernel.assign_add(0.1 * ops.ones(kernel.shape))
            found += [jax.jit(template)(X).sum(), ops.matmul(X, kernel).sum(), kernel[0].sum(), logs["r2_score"]]

        model.fit(X, Y, epochs=2, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=look)])
        seen[relocated] += [*template.get_weights(), *model.evaluate(X, Y, verbose=0)]
    for found in (seen[False], seen[True]):
        for value, expected in zip(found, seen[None], strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_models_on_several_devices_share_layers():
    shared = layers.Dense(8, "tanh")  # too small to be divided
    first, second = (keras.Sequential([keras.Input((5,)), shared, layers.Dense(3)]) for _ in range(2))
    compiled(multi_gpu_model(first, 3)).fit(X, Y, verbose=0)
    compiled(multi_gpu_model(second, [0, 1])).fit(X, Y, verbose=0)
    expected = np.tanh(X @ shared.kernel + shared.bias) @ first.layers[1].kernel + first.layers[1].bias
    np.testing.assert_allclose(first.predict(X, verbose=0), expected, rtol=1e-5, atol=1e-6)
