"""The private names of Keras that this package uses: here and in the engines' packages."""

from multigpu.private_api.required import Required

KERAS = Required(
    library="Keras",
    package="keras",
    lowest="3.15.1",
    newest="3.15.1",
    attributes={
        "keras:Function": ("_run_through_graph", "_get_operation_for_node"),
        "keras:Layer": ("_flatten_layers", "_obj_type", "_set_mask_metadata"),
        "keras:Model": ("_get_metrics_result_or_logs",),
        "keras:layers.BatchNormalization": ("_moments",),
        "keras.src.api_export": ("get_symbol_from_name",),
        "keras.src.export.saved_model": ("ExportArchive",),
        "keras.src.legacy.saving.saving_options": ("keras_option_scope",),
        "keras.src.legacy.saving.saving_utils": ("model_from_config",),
        "keras.src.losses.loss": ("apply_mask",),
        "keras.src.ops": ("core", "image", "linalg", "math", "nn", "numpy"),
        "keras.src.random.seed_generator": ("GLOBAL_SEED_GENERATOR",),
        "keras.src.saving.keras_saveable": ("KerasSaveable",),
        "keras.src.saving.object_registration": ("get_registered_object", "global_state"),
        "keras.src.saving.object_registration:global_state": ("get_global_attribute", "set_global_attribute"),
        "keras.src.saving.serialization_lib": ("SafeModeScope", "_retrieve_class_or_fn"),
        "keras.src.wrappers.sklearn_wrapper": ("clone_model",),
        "keras.src.trainers.data_adapters": ("ArrayDataAdapter", "get_data_adapter"),
        "keras.src.trainers.data_adapters.data_adapter": ("DataAdapter",),
    },
    names_in_code={
        "keras:Layer": ("_layers",),
        "keras:Model": ("_compile_config", "_initial_epoch"),
        "keras:Operation": ("_inbound_nodes",),
        "keras:Sequential": ("_layers",),
        "keras:Variable": ("_value",),
        "keras:random.SeedGenerator": ("seed_generator_state",),
        "keras.src.activations.activations:sigmoid": ("_keras_logits",),
        "keras.src.activations.activations:softmax": ("_keras_logits",),
        "keras.src.backend.common.masking:set_keras_mask": ("_keras_mask",),
        "keras.src.random.seed_generator:global_seed_generator": ("GLOBAL_SEED_GENERATOR",),
        "keras.src.saving.object_registration:get_registered_object": ("custom_objects_scope_dict",),
        "keras.src.saving.serialization_lib:SerializableDict": ("config",),
    },
)
