"""What the engine on JAX costs: CPU seconds of a step ÷ one device, beside `keras.distribution.DataParallel`.

Run it with a JAX environment: `PYTHONPATH=python .venv/jax/bin/python bench/speed/jax_engine.py`. Each way has a
process of its own. The devices are parts of one CPU: wall time says nothing, what is computed in vain does.
"""

import json
import os
import subprocess
import sys
import time

STEPS = 4
COUNTS = (2, 4, 8)


def build(kind):
    import keras
    from keras import layers

    if kind == "mlp":
        hidden = [layers.Dense(1024, "relu") for _ in range(4)]
        return keras.Sequential([keras.Input((1024,)), *hidden, layers.Dense(8)])
    if kind == "xception":
        return keras.applications.Xception(input_shape=(71, 71, 3), weights=None, classes=8)
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(32, 3, activation="relu")(inputs)
    x = layers.BatchNormalization()(layers.Conv2D(64, 3, strides=2, activation="relu")(x))
    x = layers.Conv2D(128, 3, strides=2, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(8)(layers.GlobalAveragePooling2D()(x)))


def measure(kind, way, count, rows):
    """CPU seconds of a step, of the first one too, and bytes of weights and slots per device."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    import numpy as np

    import multigpu

    multigpu.simulate_gpus(max(count, 1))
    import jax

    if way == "DataParallel":
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=[f"cpu:{n}" for n in range(count)]))
    model = build(kind)
    used = multigpu.multi_gpu_model(model, count) if way == "multigpu" else model
    used.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(rows, *model.input_shape[1:])).astype("float32")
    y = np.zeros((rows, 8), "float32")
    begin = time.process_time()
    used.train_on_batch(x, y)
    first = time.process_time() - begin
    used.fit(x, y, batch_size=rows, epochs=2, verbose=0)
    begin = time.process_time()
    used.fit(x, y, batch_size=rows, epochs=STEPS, verbose=0)
    seconds = (time.process_time() - begin) / STEPS
    device = jax.devices()[0]
    shards = [s for v in [*model.variables, *model.optimizer.variables] for s in v.value.addressable_shards]
    held = sum(shard.data.nbytes for shard in shards if shard.device == device)
    return {"seconds": seconds, "first": first, "held": held}


def run(*case):
    done = subprocess.run([sys.executable, __file__, *map(str, case)], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr[-300:]}


def main():
    for kind, rows in (("mlp", 256), ("conv", 128)):
        one = run(kind, "plain", 1, rows)
        step, first, held = one["seconds"], one["first"], one["held"] / 1e6
        print(f"{kind}: one device {step:.3f} s a step, first {first:.1f} s, {held:.1f} MB", flush=True)
        for count in COUNTS:
            for way, many in (("multigpu", rows), ("DataParallel", rows), ("multigpu", rows - 3)):
                many_seconds = run(kind, way, count, many)
                if "error" in many_seconds:
                    print(f"{kind} {way} N={count} rows={many}: {many_seconds['error']}")
                    continue
                ratio, first = many_seconds["seconds"] / one["seconds"], many_seconds["first"] / one["first"]
                held = many_seconds["held"] / 1e6
                print(f"{kind} {way} N={count} rows={many}: {ratio:.2f}, first {first:.2f}, {held:.1f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kind, way, count, rows = sys.argv[1:]
        print(json.dumps(measure(kind, way, int(count), int(rows))))
    else:
        main()
