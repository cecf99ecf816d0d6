"""Untrusted files end in a named error, quickly and with little memory, and run no code."""

import json
import os
import resource
import sys
import time

import h5py
import keras
import numpy as np
import pytest
from equality import adam_net
from keras2_files import OLD

from multigpu import load_model_hdf5, load_model_weights_hdf5, save_model_hdf5, save_model_weights_hdf5
from multigpu.saving import load_weights, untrusted_hdf5
from multigpu.saving.file_errors import UntrustedFileError
from multigpu.saving.untrusted_hdf5 import opened


def whole_model(path):
    """A good file, to spoil."""
    model = adam_net()
    save_model_hdf5(model, path)
    return model


def spoiled(path, spoil):
    """A file in which one thing was changed."""
    whole_model(path)
    with h5py.File(path, "r+") as file:
        spoil(file)
    return path


def kernel(file):
    return file["model_weights/dense"], "sequential/dense/kernel"


def swap(file, make):
    """Puts another thing in the place of a kernel."""
    group, name = kernel(file)
    del group[name]
    make(group, name)


def external_link(file):
    swap(file, lambda group, name: group.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/")))


def soft_link(file):
    swap(file, lambda group, name: group.__setitem__(name, h5py.SoftLink("/model_weights")))


def external_values(file):
    swap(file, lambda group, name: group.create_dataset(name, (5, 8), "f4", external=[("/etc/passwd", 0, 160)]))


def virtual(file):
    def make(group, name):
        layout = h5py.VirtualLayout((5, 8), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", (5, 8))
        group.create_virtual_dataset(name, layout)

    swap(file, make)


def shape_bomb(file):
    swap(file, lambda group, name: group.create_dataset(name, (1 << 20, 1 << 20), "f4", chunks=(64, 64)))


def compressed_bomb(file):
    def make(group, name):
        array = group.create_dataset(name, (1 << 13, 1 << 13), "f4", chunks=(1 << 9, 1 << 9), compression="gzip")
        array[:512, :512] = 0

    swap(file, make)


def chunk_bomb(file):
    swap(
        file,
        lambda group, name: group.create_dataset(name, (5, 8), "f4", chunks=(1 << 14, 1 << 14), maxshape=(None, None)),
    )


def objects(file):
    swap(file, lambda group, name: group.create_dataset(name, (5, 8), h5py.vlen_dtype(np.float32)))


def texts(file):
    swap(file, lambda group, name: group.create_dataset(name, data="text"))


def references(file):
    swap(file, lambda group, name: group.create_dataset(name, (5, 8), h5py.ref_dtype))


def compound(file):
    swap(file, lambda group, name: group.create_dataset(name, (5, 8), [("a", "f4"), ("b", "f4")]))


def a_type(file):
    swap(file, lambda group, name: group.__setitem__(name, np.dtype("f4")))


def circle(file):
    file["model_weights/dense/again"] = file["model_weights"]


def deep(file):
    file.create_group("/".join(["deep"] * 200))


def attribute_bomb(file):
    file.attrs["layer_names"] = h5py.Empty("f4")


def reference_attribute(file):
    file.attrs["where"] = file["model_weights"].ref


HOSTILE = {
    external_link: "is a link (ExternalLink) to another place or file",
    soft_link: "is a link (SoftLink) to another place or file",
    external_values: "are in another file: '/etc/passwd'",
    virtual: "is made of other datasets (a virtual dataset)",
    shape_bomb: "it would expand to 4,398,0",
    compressed_bomb: "it would expand to 268,",
    chunk_bomb: "it would expand to 1,073,741,824 bytes",
    objects: "is of type object, not an array of numbers",
    texts: "is of type object, not an array of numbers",
    references: "is of type object, not an array of numbers",
    compound: "not an array of numbers",
    a_type: "is a Datatype, not an array",
    circle: "is there twice, under two names",
    deep: "groups nested more than 64 deep",
    attribute_bomb: "neither text nor numbers",
    reference_attribute: "the attribute 'where' is of type object, neither text nor numbers",
}


@pytest.mark.parametrize(("spoil", "words"), HOSTILE.items(), ids=[spoil.__name__ for spoil in HOSTILE])
def test_a_hostile_file_is_refused_by_both_readers_and_nothing_changes(forked, spoil, words, tmp_path):
    path = spoiled(tmp_path / "m.h5", spoil)
    assert path.stat().st_size < 2 << 20
    model = adam_net()
    before = model.get_weights()
    for read in (load_model_hdf5, lambda path: load_model_weights_hdf5(model, path)):
        with pytest.raises(UntrustedFileError) as raised:
            read(path)
        assert words in str(raised.value)
        assert str(path) in str(raised.value)
        assert isinstance(raised.value, OSError)  # as h5py would raise
        assert isinstance(raised.value, ValueError)  # as bad arguments do
    for actual, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(actual, value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "which is empty"),
        (b"not HDF5 at all", "which begins with b'not HDF5'. It is of another kind, or damaged"),
        (b"\x89HDF\r\n\x1a\n", "which is damaged: OSError"),
        (b"PK\x03\x04 and more", "which is a zip archive. Read a `.keras` file with `keras.models.load_model()`"),
    ],
)
def test_what_is_no_hdf5_file_is_refused_in_words(forked, content, words, tmp_path):
    (tmp_path / "m.h5").write_bytes(content)
    with pytest.raises(UntrustedFileError) as raised:
        load_model_hdf5(tmp_path / "m.h5")
    assert words in str(raised.value)


def test_folders_devices_and_missing_files_are_refused_in_words(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(UntrustedFileError, match="which is not a regular file"):
            load_model_hdf5(path)
    for read in (load_model_hdf5, lambda path: load_model_weights_hdf5(adam_net(), path)):
        with pytest.raises(FileNotFoundError, match="Received one that does not exist"):
            read(tmp_path / "missing.h5")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(forked, part, tmp_path):
    whole_model(tmp_path / "m.h5")
    content = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "m.h5").write_bytes(content[: int(part * len(content))])
    with pytest.raises(UntrustedFileError, match="truncated file"):
        load_model_hdf5(tmp_path / "m.h5")


def test_a_file_that_needs_other_filters_is_refused(forked, tmp_path):
    def filtered(file):
        def make(group, name):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((5, 8))
            properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL)  # Blosc, which would be loaded from a plugin
            space, kind = h5py.h5s.create_simple((5, 8)), h5py.h5t.NATIVE_FLOAT
            made = h5py.h5d.create(group.require_group("sequential/dense").id, b"kernel", kind, space, properties)
            h5py.Dataset(made)[...] = np.ones((5, 8))

        swap(file, make)

    with pytest.raises(UntrustedFileError, match=r"needs the HDF5 filters \[32001\]\. Ask its author for a plain file"):
        load_model_hdf5(spoiled(tmp_path / "m.h5", filtered))


def test_an_archive_that_unfolds_to_many_times_its_size_is_refused(tmp_path, monkeypatch):
    model = adam_net()
    model.save(tmp_path / "m.keras")
    monkeypatch.setattr(load_weights, "MAX_UNFOLDING", 0)
    monkeypatch.setattr(load_weights, "SPARE_BYTES", 0)
    with pytest.raises(UntrustedFileError, match="a zip archive that expands to many times its size"):
        load_model_weights_hdf5(model, tmp_path / "m.keras")
    monkeypatch.setattr(load_weights, "MAX_UNFOLDING", 1)  # which is what one unfolds to that is not compressed
    load_model_weights_hdf5(model, tmp_path / "m.keras")


def test_weights_that_cannot_be_found_are_told(tmp_path):
    model = adam_net()
    model.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(
        UntrustedFileError,
        match=r"Expected an HDF5 file with names of layers, for `by_name=True`\. Received: .* in the format of "
        r"Keras 3, which has no names of layers\. Leave out `by_name=True`",
    ):
        load_model_weights_hdf5(model, tmp_path / "m.weights.h5", by_name=True)
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file["other"] = np.ones(3)
    with pytest.raises(UntrustedFileError, match="in which no weights are listed"):
        load_model_weights_hdf5(model, tmp_path / "empty.h5")
    save_model_weights_hdf5(model, tmp_path / "listed.h5")
    with h5py.File(tmp_path / "listed.h5", "r+") as file:
        del file[file.attrs["layer_names"][0]]
    with pytest.raises(ValueError, match="Expected the layers that the file lists to be in it"):
        load_model_weights_hdf5(model, tmp_path / "listed.h5")


def test_a_python_that_does_not_start_is_told(tmp_path, monkeypatch):
    whole_model(tmp_path / "m.h5")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="Expected Python to start a process of its own, to read the file in"):
        load_model_hdf5(tmp_path / "m.h5")


def test_weights_alone_are_no_model(forked, tmp_path):
    with pytest.raises(
        UntrustedFileError, match=r"which contains no model. Read weights with `load_model_weights_hdf5\("
    ):
        load_model_hdf5(OLD / "seq-parallel-weights.h5")


# Code in files --------------------------------------------------------------------------------------------------------


def with_config(path, change):
    """A good file with another configuration."""

    def spoil(file):
        config = json.loads(file.attrs["model_config"])
        change(config["config"])
        file.attrs["model_config"] = json.dumps(config)

    return spoiled(path, spoil)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
@pytest.mark.parametrize("globally", [False, True])
def test_code_is_run_only_if_the_caller_says_so_in_so_many_words(forked, globally, tmp_path):
    """Also where someone has switched off Keras' guard for the whole process."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(2)])
    save_model_hdf5(model, tmp_path / "m.h5")
    if globally:
        keras.config.enable_unsafe_deserialization()
    try:
        with pytest.raises(ValueError, match="one with a Lambda layer, whose code would be run"):
            load_model_hdf5(tmp_path / "m.h5")
        again = load_model_hdf5(tmp_path / "m.h5", safe_mode=False)
    finally:
        keras.src.backend.common.global_state.set_global_attribute("safe_mode_saving", None)
    x = np.ones((3, 5), "float32")
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.quick
@pytest.mark.parametrize(
    "layer",
    [
        {"class_name": "Lambda", "config": {"name": "x", "function": ["4wAA", None, None], "function_type": "lambda"}},
        {"class_name": "Dense", "config": {"units": 3, "activation": {"class_name": "__lambda__", "config": {}}}},
        {"class_name": "TFSMLayer", "config": {"filepath": "/tmp/x"}, "module": "keras.layers"},
        {"class_name": "function", "config": "system", "module": "os", "registered_name": "system"},
        {"class_name": "load_model", "config": {"filepath": "/tmp/x"}, "module": "keras.models"},
        {"class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}, "module": "keras.layers"},
        {"class_name": "Popen", "config": {"args": "touch /tmp/x"}, "module": "subprocess", "registered_name": "Popen"},
    ],
    ids=lambda layer: layer["class_name"],
)
def test_layers_that_would_run_code_or_read_other_files_are_not_built(forked, layer, tmp_path):
    path = with_config(tmp_path / "m.h5", lambda config: config["layers"].append(layer))
    with pytest.raises(ValueError, match=r"Expected a model (without code in its file|that can be built)"):
        load_model_hdf5(path)


@pytest.mark.parametrize("units", [10**6, 10**12])
def test_a_configuration_may_not_ask_for_more_weights_than_the_file_has(forked, units, tmp_path):
    path = with_config(tmp_path / "m.h5", lambda config: config["layers"][1]["config"].update(units=units))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"it needs more than the .* numbers that the file has as weights"):
        load_model_hdf5(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KB


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '"x"', '{"class_name": 7}', "[" * 100_000, '{"config": ' * 50_000]
)
def test_a_configuration_that_makes_no_sense_is_refused(forked, text, tmp_path):
    path = spoiled(tmp_path / "m.h5", lambda file: file.attrs.__setitem__("model_config", text))
    with pytest.raises(ValueError, match="Expected"):
        load_model_hdf5(path)


# The process that reads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("while True: pass", "which is damaged: reading it takes too long"),
        ("os.kill(os.getpid(), 11)", "which is damaged: the HDF5 library crashes on it (11)"),
        ("bytearray(1 << 40)", "which is damaged: MemoryError"),
        ("print('{}', flush=True); raise OSError('prints')", "which is damaged: OSError: prints"),
        ("[bytearray(b'x') * (1 << 26) for _ in range(20)]", "which is damaged: MemoryError"),
    ],
)
def test_whatever_the_library_does_to_its_process_is_an_error_here(deed, words, tmp_path, monkeypatch):
    """The process that reads finds another library in the place of h5py, which does what damaged files make it do."""
    whole_model(tmp_path / "m.h5")
    (tmp_path / "h5py.py").write_text(f"import os\ndef File(*args):\n    {deed}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    began = time.monotonic()
    with pytest.raises(UntrustedFileError) as raised:
        load_model_weights_hdf5(adam_net(), tmp_path / "m.h5")
    assert words in str(raised.value)
    assert time.monotonic() - began < 60  # of a busy machine; in processor time it is less than two seconds


def test_a_python_that_cannot_be_started_is_named(tmp_path, monkeypatch):
    whole_model(tmp_path / "m.h5")
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    with pytest.raises((RuntimeError, OSError), match="Expected"):
        load_model_hdf5(tmp_path / "m.h5")


def test_the_copy_holds_what_the_file_does_and_is_gone_afterwards(tmp_path):
    whole_model(tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5") as file, opened(tmp_path / "m.h5") as copy:
        place = copy.filename
        names = []
        file.visit(names.append)
        copied = []
        copy.visit(copied.append)
        assert copied == names
        for name in ["/", *names]:
            assert dict(copy[name].attrs).keys() == dict(file[name].attrs).keys()
            if isinstance(file[name], h5py.Dataset):
                np.testing.assert_array_equal(copy[name], file[name])
                assert copy[name].dtype == file[name].dtype
    assert not os.path.exists(os.path.dirname(place))
    assert untrusted_hdf5.MAX_UNFOLDING == 10


def test_time_is_granted_for_each_object(tmp_path):
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for number in range(500):
            file[str(number)] = number
    with opened(tmp_path / "many.h5") as copy:
        assert len(copy) == 500
