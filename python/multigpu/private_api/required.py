"""What this room takes from Keras and TensorFlow, looked for when a file of it is first imported.

A version that lacks some of it would fail in the middle of a step, or of a save. Nothing here makes a variable or
starts a device, so that `simulate_gpus()` may follow.
"""

import importlib
import inspect
import pkgutil
from types import FunctionType
from typing import Any

from multigpu.version import __version__

TESTED = {"keras": ("3.15.1", "3.15.1"), "tensorflow": ("2.21.0", "2.21.0")}  # the ends of `make test-versions`

OF_KERAS, OF_TENSORFLOW = "keras.src.", "tensorflow.python."

# modules, classes and objects, and what they have
ATTRIBUTES = {
    "keras:Function": ("_run_through_graph", "_get_operation_for_node"),
    "keras:Layer": (
        "_default_save_signature",
        "_deferred_dependencies",
        "_flatten_layers",
        "_lookup_dependency",
        "_maybe_initialize_trackable",
        "_obj_type",
        "_set_mask_metadata",
        "_track_trackable",
        "_trackable_children",
    ),
    "keras:Model": ("_get_metrics_result_or_logs",),
    "keras:layers.BatchNormalization": ("_moments",),
    OF_KERAS + "api_export": ("get_symbol_from_name",),
    OF_KERAS + "export.saved_model": ("ExportArchive",),
    OF_KERAS + "legacy.saving.saving_options": ("keras_option_scope",),
    OF_KERAS + "legacy.saving.saving_utils": ("model_from_config",),
    OF_KERAS + "losses.loss": ("apply_mask",),
    OF_KERAS + "ops": ("core", "image", "linalg", "math", "nn", "numpy"),
    OF_KERAS + "saving.keras_saveable": ("KerasSaveable",),
    OF_KERAS + "saving.object_registration": ("get_registered_object", "global_state"),
    OF_KERAS + "saving.object_registration:global_state": ("get_global_attribute",),
    OF_KERAS + "saving.serialization_lib": ("SafeModeScope", "_retrieve_class_or_fn"),
    OF_KERAS + "wrappers.sklearn_wrapper": ("clone_model",),
    OF_KERAS + "trainers.data_adapters": ("ArrayDataAdapter", "get_data_adapter"),
    OF_KERAS + "trainers.data_adapters.data_adapter": ("DataAdapter",),
    "tensorflow:data.Dataset": ("_functions", "_inputs"),
    OF_TENSORFLOW + "client.device_lib": ("list_local_devices",),
    OF_TENSORFLOW + "data.experimental.ops.distribute": ("_AutoShardDataset",),
    OF_TENSORFLOW + "data.ops.structured_function:StructuredFunctionWrapper": ("function",),
    OF_TENSORFLOW + "eager.context": ("context",),
    OF_TENSORFLOW + "eager.context:Context": (
        "abort_collective_ops",
        "check_collective_ops_peer_health",
        "config",
        "configure_collective_ops",
        "enable_collective_ops",
    ),
    "tensorflow:Graph": ("_get_function",),
    OF_TENSORFLOW + "framework.tensor_util": ("constant_value_as_shape",),
    OF_TENSORFLOW + "ops.control_flow_util": ("GraphOrParentsInXlaContext",),
    OF_TENSORFLOW + "ops.gen_stateless_random_ops": (
        "stateless_multinomial",
        "stateless_parameterized_truncated_normal",
        "stateless_random_binomial",
        "stateless_random_poisson",
    ),
    OF_TENSORFLOW + "ops.gen_stateless_random_ops_v2": (
        "stateless_random_gamma_v3",
        "stateless_random_normal_v2",
        "stateless_random_uniform_full_int_v2",
        "stateless_random_uniform_int_v2",
        "stateless_random_uniform_v2",
        "stateless_truncated_normal_v2",
    ),
    OF_TENSORFLOW + "saved_model.save": ("save",),
    "tensorflow:__internal__.autograph": ("control_status_ctx",),
    OF_TENSORFLOW + "eager.polymorphic_function.autograph_util": ("py_func_from_autograph",),
    OF_TENSORFLOW + "eager.polymorphic_function.polymorphic_function:Function": ("_clone",),
    OF_TENSORFLOW + "framework.ops": ("gradient_registry",),
    OF_TENSORFLOW + "framework.ops:gradient_registry": ("_registry",),
    OF_TENSORFLOW + "ops.cond_v2": ("cond_v2", "indexed_case"),
    OF_TENSORFLOW + "ops.custom_gradient": ("_eager_mode_decorator", "_graph_mode_decorator"),
    OF_TENSORFLOW + "ops.while_v2": ("while_loop",),
}

# classes and functions, and the names that their code has: of what they keep on an object, which is not made to ask it
NAMES_IN_CODE = {
    "keras:Layer": ("_layers",),
    "keras:Model": ("_compile_config", "_initial_epoch"),
    "keras:Operation": ("_inbound_nodes",),
    "keras:Sequential": ("_layers",),
    "keras:Variable": ("_value",),
    "keras:random.SeedGenerator": ("seed_generator_state",),
    OF_KERAS + "activations.activations:sigmoid": ("_keras_logits",),
    OF_KERAS + "activations.activations:softmax": ("_keras_logits",),
    OF_KERAS + "backend.common.masking:set_keras_mask": ("_keras_mask",),
    OF_KERAS + "saving.object_registration:get_registered_object": ("custom_objects_scope_dict",),
    OF_KERAS + "saving.serialization_lib:SerializableDict": ("config",),
    OF_TENSORFLOW + "client.session:BaseSession": ("_config",),
    OF_TENSORFLOW + "eager.context:Context": ("_collective_ops_server_def", "_context_handle", "_initialized"),
    OF_TENSORFLOW + "eager.polymorphic_function.polymorphic_function:Function": ("_autograph", "_jit_compile"),
    OF_TENSORFLOW + "framework.ops:get_gradient_function": ("_gradient_op_type",),
    OF_TENSORFLOW + "ops.resource_variable_ops:BaseResourceVariable": ("_handle",),
}


def check() -> None:
    """Refuses versions of Keras and TensorFlow that lack what is required.

    Raises:
        ImportError: something is missing. All of it is named.
    """
    lacking = missing()
    if not lacking:
        return
    tested = [f"{name} {lowest}" + f" to {newest}" * (newest != lowest) for name, (lowest, newest) in TESTED.items()]
    found = [f"{name} {importlib.import_module(name).__version__}" for name in TESTED]
    install = " ".join(f"'{name}=={newest}'" for name, (_, newest) in TESTED.items())
    raise ImportError(
        f"Expected a Keras and a TensorFlow with the private names that multigpu {__version__} uses. It was tested "
        f"with {' and '.join(tested)}. Received: {' and '.join(found)}, which lack {', '.join(map(repr, lacking))}. "
        f"Run `pip install {install}`, start again, and report this error."
    )


def missing() -> list[str]:
    """What is required and is not there."""
    lacking = []
    for owner, names in ATTRIBUTES.items():
        found = _found(owner)
        lacking += [_dotted(owner, name) for name in names if not hasattr(found, name)]
    for owner, names in NAMES_IN_CODE.items():
        known = _names_in(_found(owner))
        lacking += [_dotted(owner, name) for name in names if name not in known]
    return lacking


def _dotted(owner: str, name: str) -> str:
    return f"{owner.replace(':', '.')}.{name}"


def _found(owner: str) -> Any:
    """A module, class or object by its path; None, which has nothing that is required, if it is not there."""
    try:
        return pkgutil.resolve_name(owner)
    except (ImportError, AttributeError):
        return None


def _names_in(owner: Any) -> set[str]:
    """Names and texts in the code of a function, or of all methods of a class."""
    kinds = owner.__mro__ if isinstance(owner, type) else ()
    functions = [owner, *(member for kind in kinds for member in vars(kind).values())]
    codes = [inspect.unwrap(each).__code__ for each in functions if isinstance(each, FunctionType)]
    return {name for code in codes for name in (*code.co_names, *code.co_consts) if isinstance(name, str)}
