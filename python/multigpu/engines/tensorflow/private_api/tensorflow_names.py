"""The private names of TensorFlow that this package uses."""

from multigpu.private_api.required import Required

# functions that draw random numbers
BY_COUNTER = (  # they receive a key and the counter of their first number
    "stateless_random_uniform_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_normal_v2",
    "stateless_truncated_normal_v2",
)
OTHERS = ("stateless_random_gamma_v3",)
BY_SEED = (
    "stateless_multinomial",
    "stateless_random_binomial",
    "stateless_random_poisson",
    "stateless_parameterized_truncated_normal",
)

TENSORFLOW = Required(
    library="TensorFlow",
    package="tensorflow",
    lowest="2.21.0",
    newest="2.21.0",
    attributes={
        "keras:Layer": (  # by TensorFlow, of which each layer is an object that it tracks
            "_default_save_signature",
            "_deferred_dependencies",
            "_lookup_dependency",
            "_maybe_initialize_trackable",
            "_track_trackable",
            "_trackable_children",
        ),
        "tensorflow:data.Dataset": ("_functions", "_inputs"),
        "tensorflow.python.client.device_lib": ("list_local_devices",),
        "tensorflow.python.data.experimental.ops.distribute": ("_AutoShardDataset",),
        "tensorflow.python.data.ops.structured_function:StructuredFunctionWrapper": ("function",),
        "tensorflow.python.eager.context": ("FunctionCallOptions", "context"),
        "tensorflow.python.eager.context:Context": (
            "abort_collective_ops",
            "check_collective_ops_peer_health",
            "config",
            "configure_collective_ops",
            "enable_collective_ops",
            "function_call_options",
        ),
        "tensorflow.python.eager.context:FunctionCallOptions": ("config_proto_serialized", "executor_type"),
        "tensorflow.python.eager.record": ("could_possibly_record", "should_record_backprop"),
        "tensorflow.python.pywrap_tfe": (
            "TFE_Py_TapeSetIsStopped",
            "TFE_Py_TapeSetRestartOnThread",
            "TFE_Py_TapeSetStopOnThread",
        ),
        "tensorflow:Graph": ("_get_function",),
        "tensorflow.python.framework.tensor_util": ("constant_value_as_shape",),
        "tensorflow.python.ops.control_flow_util": ("GraphOrParentsInXlaContext",),
        "tensorflow.python.ops.gen_random_ops": (
            "random_standard_normal",
            "random_uniform",
            "random_uniform_int",
            "truncated_normal",
        ),
        "tensorflow.python.ops.gen_stateless_random_ops": BY_SEED,
        "tensorflow.python.ops.gen_stateless_random_ops_v2": (*BY_COUNTER, *OTHERS),
        "tensorflow.python.saved_model.save": ("save",),
        "tensorflow:__internal__.autograph": ("control_status_ctx",),
        "tensorflow.python.eager.polymorphic_function.autograph_util": ("py_func_from_autograph",),
        "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function": ("_clone",),
        "tensorflow.python.eager.polymorphic_function.concrete_function:ConcreteFunction": (
            "captured_inputs",
            "set_external_captures",
        ),
        "tensorflow.python.framework.auto_control_deps:AutomaticControlDependencies": ("run_independently",),
        "tensorflow.python.framework.func_graph:FuncGraph": ("deferred_external_captures", "external_captures"),
        "tensorflow.python.framework.ops": ("gradient_registry",),
        "tensorflow.python.framework.ops:gradient_registry": ("_registry",),
        "tensorflow.python.ops.cond_v2": ("cond_v2", "indexed_case"),
        "tensorflow.python.ops.custom_gradient": ("_eager_mode_decorator", "_graph_mode_decorator"),
        "tensorflow.python.ops.parallel_for.pfor": ("_pfor_converter_registry", "wrap"),
        "tensorflow.python.ops.while_v2": ("while_loop",),
    },
    names_in_code={
        "tensorflow.python.client.session:BaseSession": ("_config",),
        "tensorflow.python.eager.context:Context": ("_collective_ops_server_def", "_context_handle", "_initialized"),
        "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function": ("_autograph", "_jit_compile"),
        "tensorflow.python.framework.func_graph:FuncGraph": ("experimental_acd_manager", "outer_graph"),
        "tensorflow.python.framework.ops:get_gradient_function": ("_gradient_op_type",),
        "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable": ("_handle",),
    },
)
