"""Every weight has one owner, where it is stored and updated, and where its optimizer slots are."""

import keras
import numpy as np
import pytest
from cases import soak
from equality import ONE_CALL, assert_same, assert_same_numbers, mean_squared, on_one_device, random_rows
from hypothesis import given
from hypothesis import strategies as st

from multigpu import bring_home, multi_gpu_model
from multigpu.engines.tensorflow.weights.owners import balance
from multigpu.engines.tensorflow.weights.place_locate import locate, num_bytes, slots_of

DEVICES = ["CPU:1", "CPU:2", "CPU:3"]
X, Y = random_rows(20, 6), random_rows(20, 2, seed=1)


def wide_net():
    layers = [keras.layers.Dense(8, activation="tanh") for _ in range(4)]
    return keras.Sequential([keras.Input((6,)), *layers, keras.layers.BatchNormalization(), keras.layers.Dense(2)])


def lines_of_summary(model):
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(f"{line}\n"))
    return "".join(lines)


def total(variables, device):
    return sum(num_bytes(variable) for variable in variables if locate(variable) == device)


@given(st.lists(st.integers(1, 10**6), max_size=60), st.integers(1, 8))
def test_the_most_loaded_owner_has_at_most_the_mean_and_one_more(sizes, num_devices):
    devices = [f"CPU:{i}" for i in range(num_devices)]
    owners = balance(sizes, dict.fromkeys(devices, 0), devices)
    loads = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == device) for device in devices]
    assert max(loads) <= sum(sizes) / num_devices + max(sizes, default=0)


@pytest.mark.quick
def test_weights_and_statistics_are_spread_over_the_target_devices():
    template = wide_net()
    multi_gpu_model(template, gpus=DEVICES)
    loads = [total(template.weights, device) for device in DEVICES]
    assert sum(loads) == sum(map(num_bytes, template.weights))
    assert max(loads) <= 1.25 * sum(loads) / len(loads)


def test_small_state_is_together_where_the_fewest_weights_are():
    template = wide_net()
    multi_gpu_model(template, gpus=DEVICES)
    (owner,) = {locate(variable) for variable in template.non_trainable_variables}
    assert total(template.trainable_weights, owner) == min(total(template.trainable_weights, d) for d in DEVICES)


def test_large_frozen_weights_are_spread_too():
    layers = [keras.layers.Dense(600) for _ in range(3)]
    for layer in layers:
        layer.trainable = False
    template = keras.Sequential([keras.Input((600,)), *layers, keras.layers.Dense(2)])
    multi_gpu_model(template, gpus=DEVICES)
    assert {locate(layer.kernel) for layer in layers} == set(DEVICES)


def test_counters_and_seeds_stay_with_the_cpu():
    template = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
    multi_gpu_model(template, gpus=DEVICES)
    assert locate(template.layers[0].seed_generator.state) == "CPU:0"


def test_xception_is_balanced_as_far_as_its_largest_weight_allows():
    template = keras.applications.Xception(weights=None, input_shape=(71, 71, 3))
    multi_gpu_model(template, gpus=8)
    loads = [total(template.trainable_weights, f"CPU:{i}") for i in range(8)]
    mean, largest = sum(loads) / len(loads), max(map(num_bytes, template.trainable_weights))
    assert max(loads) <= max(1.02 * mean, largest)


@pytest.mark.parametrize(
    "arguments",
    [
        {"use_ema": True},
        {"gradient_accumulation_steps": 2},
        soak({"clipnorm": 0.1}),
        soak({"global_clipnorm": 0.1}),
        soak({"weight_decay": 0.1}),
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_averages_and_accumulators_are_beside_their_weights(arguments):
    template = wide_net()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile(optimizer=keras.optimizers.Adam(**arguments), loss="mse")
    parallel.fit(X, Y, batch_size=10, verbose=0)
    pairs = slots_of(parallel.optimizer, template.trainable_weights)
    assert len(pairs) == len(parallel.optimizer.variables) - 2  # all but iteration and learning rate
    assert all(locate(slot) == locate(weight) for slot, weight in pairs)


def test_loss_scaling_has_its_inner_slots_beside_the_weights():
    template = wide_net()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), loss="mse")
    parallel.fit(X, Y, batch_size=10, verbose=0)
    pairs = slots_of(parallel.optimizer, template.trainable_weights)
    assert len(pairs) == 2 * len(template.trainable_weights)
    assert all(locate(slot) == locate(weight) for slot, weight in pairs)


def test_a_trained_template_goes_on_as_on_one_device_with_its_slots_moved_along():
    def continued(gpus):
        keras.utils.set_random_seed(0)
        template = wide_net_without_statistics()
        template.compile(**mean_squared())
        template.fit(X, Y, batch_size=8, verbose=0, shuffle=False)
        model = multi_gpu_model(template, gpus=gpus) if gpus else on_one_device(template)
        history = model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, epochs=2)
        if gpus:
            pairs = slots_of(template.optimizer, template.trainable_weights)
            assert pairs
            assert all(locate(slot) == locate(weight) for slot, weight in pairs)
        return history.history, template.get_weights()

    for one, several in zip(
        *(np.concatenate([np.ravel(x) for x in keras.tree.flatten(continued(n))]) for n in (None, DEVICES)), strict=True
    ):
        assert several == pytest.approx(one, rel=1e-4, abs=1e-5)


def wide_net_without_statistics():
    return keras.Sequential(
        [keras.Input((6,)), *(keras.layers.Dense(8, activation="tanh") for _ in range(2)), keras.layers.Dense(2)]
    )


def test_models_that_share_moved_layers_still_work():
    template = wide_net_without_statistics()
    head = keras.Sequential(template.layers[:2])
    head.build((None, 6))
    before = head.predict(X, verbose=0)  # traced with the weights where they were
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.predict(X, verbose=0)
    np.testing.assert_allclose(head.predict(X, verbose=0), before, **ONE_CALL)
    multi_gpu_model(head, gpus=["CPU:4", "CPU:5"])  # moves weights of the parallel model
    np.testing.assert_allclose(parallel.predict(X, verbose=0), template.predict(X, verbose=0), **ONE_CALL)


PREPARED = {
    "compiled": lambda model: None,
    "with an optimizer that is built": lambda model: model.optimizer.build(model.trainable_variables),
    "trained": lambda model: model.fit(X, Y, batch_size=8, verbose=0, shuffle=False),
}


@pytest.mark.parametrize(
    ("prepare", "gpus"),
    [
        *[("with an optimizer that is built", 3), ("trained", 8), soak("compiled", 3), soak("compiled", 8)],
        *[soak("with an optimizer that is built", 8), soak("trained", 3)],
    ],
)
def test_a_template_that_was_compiled_before_the_move_trains_as_on_one_device(prepare, gpus):
    def build():
        template = wide_net_without_statistics()
        template.compile(keras.optimizers.Adam(0.01), "mse")
        PREPARED[prepare](template)
        return template

    (one, template), numbers = zip(*(further(build, n) for n in (None, gpus)), strict=True)
    assert_same_numbers(numbers[1], numbers[0], rtol=1e-4, atol=1e-5)
    pairs = slots_of(template.optimizer, template.trainable_weights)
    assert len(pairs) == 2 * len(one.trainable_weights)
    assert all(locate(slot) == locate(weight) for slot, weight in pairs)


def further(build, gpus):
    """A compiled template, and its numbers after training it on one device or several, without compiling anew."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    template = build()
    model = multi_gpu_model(template, gpus=gpus) if gpus else on_one_device(template)
    history = model.fit(X, Y, batch_size=8, verbose=0, shuffle=False, epochs=2).history
    kept = [*template.variables, *template.optimizer.variables]
    numbers = {f"{position} {variable.name}": variable.numpy() for position, variable in enumerate(kept)}
    return template, {**numbers, "loss": np.array(history["loss"])}


def test_owners_stay_the_same_through_compile_and_training():
    template = wide_net()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    before = [locate(variable) for variable in template.variables]
    assert set(before) == set(DEVICES)
    for model in (parallel, template, parallel):
        model.compile("adam", "mse")
        parallel.fit(X, Y, batch_size=10, verbose=0) if model is parallel else None
        assert [locate(variable) for variable in template.variables] == before


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_freezing_after_the_move_trains_as_on_one_device(gpus):
    def compiled(model):
        model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.1), "mse")
        return model

    def phases(gpus):
        """Trained whole, with a layer frozen, with it thawed and another frozen."""
        keras.utils.set_random_seed(0)
        template = wide_net_without_statistics()
        model = multi_gpu_model(template, gpus=gpus) if gpus else on_one_device(template)
        seen = []
        for frozen in (None, 1, 2):
            for number, layer in enumerate(template.layers):
                layer.trainable = number != frozen
            history = compiled(model).fit(X, Y, batch_size=8, verbose=0, shuffle=False).history
            seen.append([history, template.get_weights(), [slot.numpy() for slot in template.optimizer.variables]])
        return template, seen

    _, one = phases(None)
    template, several = phases(gpus)
    assert_same(several, one)
    first, second, third = (weights for _, weights, _ in several)
    np.testing.assert_array_equal(second[2], first[2])  # the kernel of layer 1
    np.testing.assert_array_equal(third[4], second[4])  # the kernel of layer 2
    pairs = slots_of(template.optimizer, template.trainable_weights)
    assert all(locate(slot) == locate(weight) for slot, weight in pairs)


@pytest.mark.parametrize("ask", [lambda parallel: parallel, soak(lambda parallel: parallel.template)])
def test_bring_home_puts_everything_on_one_device(ask):
    template = wide_net()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile(optimizer="adam", loss="mse")
    parallel.fit(X, Y, batch_size=10, verbose=0)
    weights, slots = template.get_weights(), [slot.numpy() for slot in template.optimizer.variables]
    assert "; weights spread over the devices>" in repr(parallel)
    assert bring_home(ask(parallel)) is ask(parallel)
    assert "; weights on CPU:0>" in repr(parallel)
    assert "; weights on CPU:0\n" in lines_of_summary(parallel)
    assert "; weights spread over the devices>" in repr(multi_gpu_model(template, gpus=DEVICES))
    bring_home(template)
    assert {locate(v) for v in [*template.variables, *template.optimizer.variables]} == {"CPU:0"}
    for now, before in zip(template.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, before)
    for now, before in zip(template.optimizer.variables, slots, strict=True):
        np.testing.assert_array_equal(now.numpy(), before)
    template.fit(X, Y, batch_size=10, verbose=0)


def test_bring_home_takes_a_device_by_name_and_refuses_one_that_is_missing():
    template = wide_net()
    bring_home(template, "CPU:2")
    assert {locate(variable) for variable in template.variables} == {"CPU:2"}
    with pytest.raises(ValueError, match=r"Expected `device` to be one of .* Received: device='GPU:8'"):
        bring_home(template, "GPU:8")


class CountingSGD(keras.optimizers.SGD):
    """Makes a variable of its own, as some optimizers of users do."""

    def build(self, variables):
        """Makes it beside the slots."""
        super().build(variables)
        self.counted = keras.Variable(0.0, name="counted")


@pytest.mark.parametrize("optimizer", [soak(keras.optimizers.Adam), CountingSGD])
def test_variables_of_an_optimizer_have_the_paths_of_one_device(optimizer):
    paths = []
    for parallel in (False, True):
        keras.utils.clear_session()
        template = wide_net()
        model = multi_gpu_model(template, gpus=DEVICES) if parallel else template
        model.compile(optimizer=optimizer(), loss="mse")
        model.fit(X, Y, batch_size=10, verbose=0)
        made = getattr(model.optimizer, "counted", model.optimizer.iterations)
        paths.append([variable.path for variable in [*model.optimizer.variables, made]])
    assert paths[0] == paths[1]
