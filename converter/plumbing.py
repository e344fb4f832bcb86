"""What framework plumbing means for a converted model, as data.

Model code of `transformers` leans on its framework: decorators, caches, mask factories, keyword plumbing. The tables
say what becomes of each piece, keyed on the last part of its qualified name, since the framework moves its modules
about often.
"""

import sys

FRAMEWORKS = ("transformers.", "diffusers.")  # how names of their code begin
# Of a framework whose layers stand beside its plumbing: what is model code, and what among that is plumbing.
LAYER_MODULES = {"diffusers.": ("diffusers.models.", "diffusers.utils.torch_utils.")}
PLUMBING_MODULES = (
    "diffusers.models.modeling_utils.", "diffusers.models.modeling_outputs.", "diffusers.models.attention_dispatch.",
    "diffusers.models.cache_utils.", "diffusers.models._modeling_parallel.", "diffusers.models.auto_model.",
    "diffusers.models.model_loading_utils.", "diffusers.models.lora.",
)  # fmt: skip
KEPT_PACKAGES = frozenset(sys.stdlib_module_names) | {"numpy", "einops"}  # imports of these stay as they are

# Decorators that change how a function is called or documented, not what it computes.
DROPPED_DECORATORS = frozenset({
    "add_start_docstrings", "add_start_docstrings_to_model_forward", "add_code_sample_docstrings",
    "replace_return_docstrings",
    "accepts_precomputed_kwargs",  # renames keywords that no signature has
    "auto_docstring", "can_return_tuple", "check_model_inputs", "merge_with_config_defaults",
    "deprecate_kwarg", "force_accelerate_hooks", "use_experts_implementation", "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub", "use_kernel_func_from_hub_with_fallback", "use_kernelized_func", "strict",
    "torch.no_grad", "torch.inference_mode", "torch.compile", "torch.jit.script", "torch.jit.ignore",
    "torch.jit.unused",
    "torch.compiler.disable", "torch._dynamo.disable", "torch.compiler.allow_in_graph", "typing.override", "override",
    "final", "typing.final", "torch.jit.export", "torch.fx.wrap", "maybe_autocast",
    "custom_fwd", "custom_bwd", "once_differentiable", "torch.jit.script_if_tracing", "requires",
    "compile_compatible_method_lru_cache",  # a function of its arguments gives the same tables again
    "register_to_config", "apply_lora_scale", "apply_forward_hook", "maybe_allow_in_graph", "lru_cache_unless_export",
    "autocast", "torch.autocast", "beartype", "jaxtyped", "typechecked", "typecheck", "runtime_checkable",
})  # fmt: skip

KEPT_DECORATORS = frozenset({
    "staticmethod", "classmethod", "property", "dataclass", "dataclasses.dataclass", "functools.lru_cache",
    "functools.cache",
    "abstractmethod", "abc.abstractmethod", "functools.cached_property", "cached_property",
    "wraps", "functools.wraps", "contextmanager", "contextlib.contextmanager", "lru_cache", "cache",
})  # fmt: skip

# Framework names that the support library provides: last part of the name -> (support module, name).
SUPPORT = {
    "ACT2FN": ("activations", "ACT2FN"),
    "ACT2CLS": ("activations", "ACT2FN"),
    "Cache": ("cache", "Cache"),
    "DynamicCache": ("cache", "Cache"),
    "StaticCache": ("cache", "Cache"),
    "EncoderDecoderCache": ("cache", "EncoderDecoderCache"),
    "ROPE_INIT_FUNCTIONS": ("rope", "ROPE_INIT_FUNCTIONS"),
    "PreTrainedModel": ("layers", "PreTrainedModel"),
    "PreTrainedAudioTokenizerBase": ("layers", "PreTrainedModel"),
    "GradientCheckpointingLayer": ("layers", "Module"),
    "slice_logits_to_keep": ("heads", "slice_logits_to_keep"),
    "KVSharingDict": ("shared", "SharedStates"),
    "BackboneMixin": ("backbones", "BackboneMixin"),
}

# The same for frameworks whose layers are converted from their own source.
LAYER_SUPPORT = {"ModelMixin": ("layers", "Module"), "LegacyModelMixin": ("layers", "Module")}

# Packages of torch that a support module stands for, class by class under the same names.
TORCH_PACKAGES = {"torch.distributions.": "distributions"}

# Packages of stateless layers that a support module stands for, class by class under the same names.
LAYER_PACKAGES = {"einops.layers.torch": "rearranging"}

# Modules of the framework whose functions have namesakes in a support module, where that has them.
NAMESAKES = {
    "transformers.": {"activations": "activations", "masking_utils": "masks", "loss_utils": "losses"},
    "diffusers.": {"attention_dispatch": "dispatch"},
}
# Modules of the framework whose functions are part of the models that call them, where nothing stands for them.
FUNCTION_MODULES = frozenset({
    "vision_utils", "image_processing_utils", "image_utils", "pytorch_utils", "utils.generic", "modeling_utils",
    "audio_utils", "image_transforms",
})  # fmt: skip
RECORDS = ("ModelOutput", "BaseOutput")  # classes that every output record derives from
RECORDS_MODULES = ("modeling_outputs", "utils.generic")

DROPPED_BASES = frozenset({
    "GenerationMixin", "PushToHubMixin", "EmbeddingAccessMixin", "ABC", "ModuleUtilsMixin",
    "ConfigMixin", "LegacyConfigMixin", "PeftAdapterMixin", "FromOriginalModelMixin", "CacheMixin", "AttentionMixin",
})  # fmt: skip
LOADERS = "diffusers.loaders."  # base classes from there read files

TIED_KEYS = "_tied_weights_keys"  # class attribute: parameter -> the one it shares, when the configuration ties

# Comments on code that a conversion leaves out, wherever they stand.
DROPPED_COMMENTS = ("gradient checkpointing", "gradient_checkpointing")

# Calls whose effect is none of the model's: logging, checks of the environment, initialisation of random weights.
DROPPED_CALLS = frozenset({
    "post_init", "init_weights", "warn", "warning", "warn_if_padding_and_no_attention_mask", "warning_once", "info",
    "debug", "_init_weights", "apply", "reset_parameters", "flatten_parameters",
    "mark_static_address", "_check", "torch_compilable_check", "check_support_param_buffer_assignment",
    "set_printoptions", "requires_grad_", "manual_seed", "print", "requires_backends", "deprecate",
    "_register_load_state_dict_pre_hook", "register_load_state_dict_pre_hook", "register_load_state_dict_post_hook",
})  # fmt: skip
DROPPED_CALL_ROOTS = ("logger", "warnings", "init", "nn.init", "torch.nn.init", "torch._check", "torch._dynamo")

# Questions about the environment and their answers in a converted model.
CONSTANT_CALLS = {
    "is_tracing": False, "is_torchdynamo_compiling": False, "is_torchdynamo_exporting": False,
    "is_torch_fx_proxy": False, "is_compiling": False, "is_exporting": False, "is_scripting": False,
    "is_grad_enabled": False,
    "is_flash_attention_requested": False, "is_deepspeed_zero3_enabled": False,
    "is_fsdp_managed_module": False, "is_autocast_enabled": False, "is_jit_tracing": False,
    "is_cuda_stream_capturing": False,
    "is_torch_available": True, "is_torch_greater_or_equal": True, "is_hooked": False, "is_quantized": False,
    "lazy_load_kernel": None, "resolve_internal_import": None,
}  # fmt: skip
TENSOR_QUESTIONS = ("is_torch_tensor",)  # `isinstance` of torch's tensors under another name
OPTIONAL_PACKAGE = ("is_", "_available")  # how questions after an optional package's kernels are named; none is there

# Classes whose instances a converted model never meets: other frameworks' masks, wrappers and stand-ins of tensors.
NEVER_INSTANCES = frozenset({"BlockMask", "DTensor", "FakeTensor", "NestedTensor", "Proxy"})

# Entries of a table of attention classes by backend: the one that a converted model has, and those it never chooses.
CHOSEN_BACKEND, OTHER_BACKENDS = "eager", ("flash_attention_", "flex_attention", "paged|")

# Attributes with one value in a converted model.
CONSTANT_ATTRIBUTES = {
    "_attn_implementation": "eager",
    "gradient_checkpointing": False,
    "fused_projections": False,
    "_experts_implementation": "eager",
    "is_cuda": False,
    "is_meta": False,
    "is_quantized": False,
    "is_nested": False,
}

# Keywords of attention calls that backends read although the source's own function may take them from the module
# instead.
ATTENTION_KEYWORDS = frozenset({"s_aux", "softcap", "position_bias"})

# Forward arguments that only steer the framework's own bookkeeping, with the value that a converted model has for them.
CONSTANT_ARGUMENTS = {
    "output_attentions": False,
    "output_hidden_states": False,
    "output_router_logits": False,
    "return_dict": True,
}
RECORD_SWITCH = "return_dict"  # of these, the one that asks for a tuple where it is False
# Arguments of functions that the support library stands for: names that other releases have, and what it does without.
RENAMED_ARGUMENTS = {"past_key_values": "cache", "past_key_value": "cache", "input_embeds": "inputs_embeds"}
UNNEEDED_ARGUMENTS = {
    "backend": "attention runs on the native backend, whichever the source names",
    "parallel_config": "attention is divided over devices by sharding, not by the source's own means",
    "cache_position": "`cache_position` says where the cache stands; masks read it from the cache",
}
KEYWORDS_ARGUMENT = (
    "kwargs"  # a plain parameter of that name takes a caller's keywords, for values worked out beforehand
)
MERGING = "merge_with_config_defaults"  # decorator that fills these arguments in from the configuration
MERGED_ARGUMENTS = ("vision_feature_layer", "vision_feature_select_strategy", "vision_aspect_ratio")
CACHE_SWITCH = "use_cache"
CACHE_ARGUMENTS = ("cache", "past_key_values", "cache_params", "past_key_value")

# Attributes that tell the framework's loader about a checkpoint; no model reads them.
BOOKKEEPING = frozenset({"_keys_to_ignore_on_load_unexpected", "_keys_to_ignore_on_load_missing", "_no_split_modules"})

# Functions of the framework that are Python's own, outside tracing.
PYTHON_CALLS = {"torch_int": "int", "torch_float": "float"}

# Functions that adapt a value to the device and give it back as it is on others.
IDENTITY_CALLS = frozenset({"maybe_adjust_dtype_for_device"})
# Questions about the installed releases, answered as the run found.
VERSION_QUESTIONS = frozenset({"is_torch_version", "is_transformers_version"})

# Call as `f(function, sizes…, *tensors)` -> position of the first tensor: the plain call computes the same.
PLAIN_CALLS = {"apply_chunking_to_forward": 3}

# Builds a model's backbone by its configuration; calls a backbone with the keywords that its kind takes.
BACKBONE_LOADER, BACKBONE_CALL = "load_backbone", "forward_with_filtered_kwargs"

# Context managers that only steer the runtime.
DROPPED_CONTEXTS = frozenset({
    "no_grad", "autocast", "maybe_autocast", "set_grad_enabled", "inference_mode", "device", "enable_grad",
    "record_function",
    "nullcontext", "sdpa_kernel",
})  # fmt: skip


# Those of them within which nothing has a gradient.
NO_GRADIENT = frozenset({"no_grad", "inference_mode"})


def supported(qualified: str) -> tuple[str, str] | None:
    """(support module, name) of what the support library provides for a framework's name."""
    is_layers = f"{qualified.split('.')[0]}." in LAYER_MODULES
    return (LAYER_SUPPORT if is_layers else SUPPORT).get(last(qualified))


def namesake(qualified: str) -> str | None:
    """The support module that stands for the framework module of a qualified name."""
    parts = qualified.split(".")
    return NAMESAKES.get(f"{parts[0]}.", {}).get(parts[-2]) if len(parts) > 1 else None


def last(name: str) -> str:
    """Last part of a dotted name."""
    return name.rsplit(".", 1)[-1]
