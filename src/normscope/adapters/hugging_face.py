"""Hugging Face models from a configuration or a folder on this machine. Nothing is ever downloaded.

All that imports transformers is here and in `hugging_face_inputs`, and imports it late.
"""

import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..doctor.lint.patient import Loading
from ..errors import UserError, in_one_line, installation, user_errors
from ..limits import memory
from ..limits.memory import bounded_building, largest, refuse_endless
from ..limits.reading import read_json, shown

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_BEST_FIRST = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
)
"""Heads that have a loss. Encoders that can also be run as decoders, such as BERT, are masked
language models first.
"""
_PRE_WHERE_TRUE = (
    "do_layer_norm_before",  # OPT
    "do_stable_layer_norm",  # wav2vec 2.0, HuBERT, WavLM
    "normalize_before",  # BART's and M2M-100's relatives; XLM
    "pre_norm",  # FlauBERT
    "prenorm",
    "norm_first",
)
_SMALLER = "make it smaller, such as --set num_hidden_layers=4"
_POST_WHERE_TRUE = ("apply_residual_connection_post_layernorm",)  # BLOOM, Megatron-LM


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    model: nn.Module
    loading: Loading | None = None


def from_name(name: str, changes: Mapping[str, Any]) -> Built:
    """Returns a model with initial weights, by a model type (gpt2), a configuration's class or a
    model's class.

    changes: by dotted key of the configuration. Raises UserError.
    """
    transformers = load_transformers()
    model_class = None
    if name in transformers.CONFIG_MAPPING:
        config_class = transformers.CONFIG_MAPPING[name]
    else:
        found: Any = getattr(transformers, name, None) if name.isidentifier() else None
        if _is_class(found, transformers.PreTrainedModel) and found.config_class is not None:
            model_class, config_class = found, found.config_class
        elif _is_class(found, transformers.PretrainedConfig) and found.model_type:
            config_class = found
        else:
            # Of names alone: the mapping itself would import the modules of all of them.
            auto: Any = importlib.import_module("transformers.models.auto.configuration_auto")
            near = _near(name, [*auto.CONFIG_MAPPING_NAMES, *auto.CONFIG_MAPPING_NAMES.values()])
            raise UserError(
                f"{name!r} is no file, no folder, and neither a model type, a configuration nor a "
                f"model of transformers {transformers.__version__}{near}; NormScope downloads "
                "nothing: fetch a model of the hub first (hf download NAME --local-dir FOLDER) and "
                "give the folder; a model of your own is given as package.module:function or "
                "file.py:function"
            )
    return Built(model=build(model_class, _config(config_class, {}, changes, name)))


def from_config_file(file: Path, changes: Mapping[str, Any]) -> Built:
    """Returns a model with initial weights, of the architecture that a config.json names. Raises
    UserError.
    """
    config = _read_config(file, changes)
    return Built(model=build(_architecture(config), config))


def from_folder(folder: Path, changes: Mapping[str, Any], *, bare: bool = False) -> Built:
    """Returns the model of a checkpoint folder with its weights; with initial ones where there is a
    config.json alone.

    bare: the stack without the head that the folder names, for another one. Raises UserError, also
    where weights are damaged, of another shape, or would run code when they are read.
    """
    if not any((folder / name).is_file() for name in _WEIGHTS):
        others = sorted(
            file.name
            for file in folder.iterdir()
            if file.suffix in (".safetensors", ".bin", ".pt", ".pth")
        )
        if others:
            raise UserError(
                f"{folder} holds {others[0]}; weights are read from one of {', '.join(_WEIGHTS)}"
            )
        return from_config_file(folder / "config.json", changes)
    if changes:
        key = next(iter(changes))
        raise UserError(
            f"--set {key}: {folder} is a checkpoint, whose configuration is fixed; give its "
            "config.json"
        )
    config = _read_config(folder / "config.json", {})
    model_class = _bare(config) if bare else _architecture(config)
    model_class = model_class or classes_of(config)[0]
    _refuse_too_large(model_class, config)
    with user_errors(
        Exception, said=lambda error: f"cannot load the checkpoint {folder}: {in_one_line(error)}"
    ):
        model, info = model_class.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            output_loading_info=True,
            weights_only=True,
        )
    loading = Loading(
        missing=tuple(sorted(info["missing_keys"])),
        unexpected=tuple(sorted(info["unexpected_keys"])),
    )
    return Built(model=model, loading=loading)


def is_model(model: nn.Module) -> bool:
    """Tells whether it is a model of transformers, which is not imported to find out."""
    loaded = sys.modules.get("transformers")
    return loaded is not None and isinstance(model, loaded.PreTrainedModel)


def wanted_placement(config: Any) -> str | None:
    """Returns the placement that a configuration's flags give: "pre-ln", "post-ln", or None where
    it has no such flag.
    """
    flags = vars(config)
    for name in (*_PRE_WHERE_TRUE, *_POST_WHERE_TRUE):
        if isinstance(flags.get(name), bool):
            return "pre-ln" if flags[name] is (name in _PRE_WHERE_TRUE) else "post-ln"
    return None


def classes_for(head: str) -> set[str]:
    """Names of the model classes with a head, such as CAUSAL_LM."""
    from transformers.models.auto import modeling_auto

    names = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").values()
    return {name for entry in names for name in ([entry] if isinstance(entry, str) else entry)}


def load_transformers() -> Any:
    """Returns the library, silent and offline. Raises UserError where it is not installed."""
    # Read once, when huggingface_hub is imported: from here on it does not look for anything on the
    # network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        transformers: Any = importlib.import_module("transformers")
    except ModuleNotFoundError:
        raise UserError(
            f"this needs Hugging Face transformers: {installation('huggingface')}"
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _read_config(file: Path, changes: Mapping[str, Any]) -> Any:
    transformers = load_transformers()
    try:
        table = read_json(file, infinite=True)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    if not isinstance(table, dict) or not isinstance(table.get("model_type"), str):
        raise UserError(
            f'{file} is no configuration of a Hugging Face model: it has no "model_type", such as '
            '"gpt2"'
        )
    named = table.get("architectures") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise UserError(
            f"{file}: architectures is {shown(named)}; it must be a list of names of classes, or "
            "null"
        )
    kind = table["model_type"]
    known = list(transformers.CONFIG_MAPPING.keys())
    if kind not in known:
        hint = ""
        if "auto_map" in table:
            hint = "; it brings its own code, which is not run: give a function that builds it"
        raise UserError(
            f"{file}: transformers {transformers.__version__} has no model type "
            f"{kind!r}{_near(kind, known)}{hint}"
        )
    return _config(transformers.CONFIG_MAPPING[kind], table, changes, str(file))


def _config(
    config_class: Any, table: dict[str, Any], changes: Mapping[str, Any], source: str
) -> Any:
    for key, value in changes.items():
        _change(config_class, table, key, key.split("."), value)
    refuse_endless(table, source)
    _leave_to_torch(table)
    with user_errors(Exception, said=lambda error: f"{source}: {in_one_line(error)}"):
        return config_class.from_dict(table)


_ATTENTION = re.compile("_?(attn|experts)_implementation(_internal|_autoset)?|use_kernels")


def _leave_to_torch(table: Any) -> None:
    """Drop what says by which code a model is computed: transformers loads such code from the hub
    by its name.
    """
    if isinstance(table, dict):
        for key in [key for key in table if _ATTENTION.fullmatch(key)]:
            del table[key]
    for part in (
        table.values() if isinstance(table, dict) else table if isinstance(table, list) else ()
    ):
        _leave_to_torch(part)


def _change(
    config_class: Any, table: dict[str, Any], key: str, path: list[str], value: Any
) -> None:
    """Set one key. Raises UserError for one that the class does not know; it would be kept and have
    no effect.
    """
    aliases = getattr(config_class, "attribute_map", {})
    first = aliases.get(path[0], path[0])
    known = {field.name for field in fields(config_class)} | table.keys() | aliases.keys()
    if first not in known:
        raise UserError(
            f"--set {key}: {config_class.__name__} has no {path[0]!r}{_near(path[0], known)}"
        )
    if len(path) == 1:
        table[first] = value
        return
    inner = getattr(config_class, "sub_configs", {}).get(first)
    if inner is None:
        raise UserError(
            f"--set {key}: {first} of {config_class.__name__} is a value, not a configuration"
        )
    _change(inner, table.setdefault(first, {}), key, path[1:], value)


def _architecture(config: Any) -> Any:
    """Returns the class that the configuration names, where transformers has it."""
    transformers = load_transformers()
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if _is_class(found, transformers.PreTrainedModel):
            return found
    return None


def _bare(config: Any) -> Any:
    """Returns the class of the family's stack, if it has one by itself."""
    mapping = load_transformers().models.auto.modeling_auto.MODEL_MAPPING
    return mapping.get(type(config), None)


def classes_of(config: Any) -> list[Any]:
    """Returns the classes of models that a configuration builds, the best first. Raises UserError
    where there is none.
    """
    transformers = load_transformers()
    modeling_auto = transformers.models.auto.modeling_auto
    heads = [
        head
        for head in _BEST_FIRST
        if head != "MASKED_LM" or not getattr(config, "is_decoder", False)
    ]
    mappings = [getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING") for head in heads]
    found = [
        entry[0] if isinstance(entry, tuple) else entry
        for mapping in [*mappings, modeling_auto.MODEL_MAPPING]
        if type(config) in mapping
        for entry in [mapping[type(config)]]
    ]
    if known := list(dict.fromkeys(found)) or _parts(config):
        return known
    raise UserError(
        f"transformers {transformers.__version__} has no model for {type(config).__name__} by "
        "itself; name the model's class, or give a function that builds it"
    )


def _parts(config: Any) -> list[Any]:
    """Returns the models that stand beside a configuration and in no list, as the towers of larger
    ones do.
    """
    transformers = load_transformers()
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    module = importlib.import_module(name) if importlib.util.find_spec(name) else None
    found = [
        one
        for one in vars(module).values()
        if _is_class(one, transformers.PreTrainedModel)
        and one.__module__ == name
        and one.config_class is type(config)
        and not one.__name__.endswith("PreTrainedModel")
    ]
    # The whole tower is called a model, and its parts longer names.
    return sorted(found, key=lambda one: (not one.__name__.endswith("Model"), len(one.__name__)))


def build(model_class: Any, config: Any) -> nn.Module:
    """Returns the model with initial weights, of that class, or of the family's first one with a
    loss. Raises UserError.
    """
    chosen = model_class or classes_of(config)[0]
    if torch.get_default_device().type != "meta":
        _refuse_too_large(chosen, config)
    try:
        with bounded_building(f"{chosen.__name__} of this configuration", _SMALLER):
            model: nn.Module = chosen._from_config(config)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{chosen.__name__} cannot be built from this configuration: {in_one_line(error)}"
        ) from error
    return model


def _refuse_too_large(model_class: Any, config: Any) -> None:
    """Raise UserError where the model would not fit into this machine's memory, or would take
    minutes to build.
    """
    from transformers.initialization import no_init_weights

    available = memory.available_bytes()
    what = f"{model_class.__name__} of this configuration"
    advice = f"{_SMALLER}; its largest numbers are {largest(config.to_dict())}"
    bounded = bounded_building(what, advice, most_seconds=memory.MOST_SECONDS)
    try:
        # Drawing weights that are not there would take most of the time.
        with torch.device("meta"), no_init_weights(), bounded:
            model = model_class._from_config(config)
        model.tie_weights()
    except UserError:
        raise
    except Exception:
        # Some cannot be built without memory. Whatever else is wrong shows when it is built.
        return
    parameters = sum(weight.numel() for weight in model.parameters())
    needed = memory.COPIES * sum(
        weight.numel() * weight.element_size() for weight in model.parameters()
    )
    if available is not None and needed > available:
        raise UserError(
            f"{what} has {parameters / 1e9:.3g} billion parameters and would "
            f"need {needed / 1e9:.0f} GB, of which {available / 1e9:.0f} are free; {advice}"
        )


def _is_class(found: Any, base: type) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
