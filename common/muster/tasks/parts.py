"""What becomes of the entries of a model's state in a run, and the vector of those that travel.

| role | entries | server and devices exchange it | it changes |
|---|---|---|---|
| trained | parameters with `requires_grad` | yes | by local training |
| counted | buffers that a forward pass in training mode changes | yes | by forward passes |
| frozen | other parameters | no: both build it | never |
| constant | other buffers | no: both build it | never |
| local | none, unless `muster.tasks.roles` names some | no: each device has its own | as its kind |

The vector has the trained entries and then the counted ones, each in the module's order, as
float32. Counted integers are rounded to the nearest integer when they are loaded, and parameters of
half precision to the nearest value.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from muster.common.errors import ConfigError
from muster.common.masks import Layout, UnitLayer
from muster.common.tensors import Schema, TensorSpec, Vector
from muster.tasks.inputs import kind_of, outputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from muster.tasks.inputs import Tensors

_COUNTED = "counted_buffers"
"""The attribute of a module that has the names of its counted buffers."""

_LOCAL = "muster_local_parameters", "muster_local_buffers"
"""The attributes of a module that have the names of its local entries."""

_INITIAL = "muster_initial_local"
"""The attribute of a module that has the values that its local entries begin with, as bytes."""


def declare_counted(module: nn.Module, inputs: Callable[[], Tensors]) -> None:
    """Find out which buffers a forward pass in training mode changes, and leave their names in the
    module's attribute `counted_buffers`, unless it has that already.

    Args:
        inputs: makes the inputs of some examples, at least two, because batch normalisation takes
            no fewer. The module keeps its state and its mode, and torch's generator its state.

    Raises:
        ConfigError: the module fails with these inputs, or declares something else.
    """
    import torch

    buffers = [name for name, _ in _persistent(module)]
    if hasattr(module, _COUNTED):
        _require_declared(module, buffers)
    if hasattr(module, _COUNTED) or not buffers:
        return
    was_training = module.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        changed = _changed(module, inputs())
    module.train(was_training)
    module.counted_buffers = tuple(changed)  # type: ignore[assignment]


def _require_declared(module: nn.Module, buffers: Sequence[str]) -> None:
    """Check what a module of the user's own declares."""
    declared = counted_names(module)
    if not isinstance(declared, list | tuple) or not set(declared) <= set(buffers):
        raise ConfigError(
            f"task.model: `{_COUNTED}` of the model's module is {declared!r}, expected names of "
            f"its buffers: {', '.join(buffers) or 'it has none'}"
        )


def _changed(module: nn.Module, x: Tensors) -> list[str]:
    """The buffers that a forward pass with moved parameters changes; all get their values back."""
    import torch

    before = {name: buffer.clone() for name, buffer in _persistent(module)}
    start = trained_vector(module)
    for parameter in trained(module):  # for buffers that follow from the parameters
        parameter.add_(torch.randn_like(parameter), alpha=0.1)
    try:
        outputs_of(module.train(), x)
    except Exception as error:
        raise ConfigError(
            f"task.model: the model fails with inputs of {kind_of(x)}: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    _copy(trained(module), start)
    after = dict(_persistent(module))
    changed = [name for name, old in before.items() if not _same(old, after[name])]
    for name in changed:
        after[name].copy_(before[name])
    return changed


def _same(one: Tensor, other: Tensor) -> bool:
    import torch

    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _persistent(module: nn.Module, *, once: bool = True) -> Iterator[tuple[str, Tensor]]:
    """The buffers that a state dict has, each once, or under each of its names."""
    seen = set()
    for prefix, part in module.named_modules(remove_duplicate=once):
        for name, buffer in part._buffers.items():
            if buffer is None or name in part._non_persistent_buffers_set:
                continue
            if once and id(buffer) in seen:
                continue
            seen.add(id(buffer))
            yield f"{prefix}.{name}" if prefix else name, buffer


def entries(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All entries that a state dict has, under each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from _persistent(module, once=False)


def declare_roles(module: nn.Module, roles: Mapping[str, str]) -> None:
    """Give entries of a module that was just built other roles than their own.

    A buffer that is frozen although forward passes change it leaves its part of the module in
    evaluation mode, so that its value is what the part computes with.

    Args:
        roles: trained, counted, frozen or local, by the first name of an entry.

    Raises:
        ConfigError: some of the buffers that a part changes together are frozen.
    """
    parameters, buffers = dict(module.named_parameters()), dict(_persistent(module))
    for name in roles.keys() & parameters.keys():
        parameters[name].requires_grad_(roles[name] != "frozen")
    changing = counted_names(module)
    _keep_evaluating(module, [name for name in changing if roles.get(name) == "frozen"])
    own = dict.fromkeys(changing, "counted")
    counted = tuple(name for name in buffers if {**own, **roles}.get(name) == "counted")
    module.counted_buffers = counted  # type: ignore[assignment]
    for attribute, named in zip(_LOCAL, ([*parameters], [*buffers]), strict=True):
        setattr(module, attribute, tuple(name for name in named if roles.get(name) == "local"))
    setattr(module, _INITIAL, local_bytes(module))


def _keep_evaluating(module: nn.Module, buffers: Sequence[str]) -> None:
    """Leave the parts that own these buffers in evaluation mode."""
    for name in buffers:
        owner = name.rpartition(".")[0]
        part = module.get_submodule(owner)
        beside = [n for n in counted_names(module) if n.rpartition(".")[0] == owner]
        if others := [other for other in beside if other not in buffers]:
            raise ConfigError(
                f"task.parts.frozen: {name!r} is frozen, but not {', '.join(others)} of the same "
                f"part of the model, which change with it; expected one role for all of them"
            )
        part.eval()
        part.train = partial(_train_children, part)  # type: ignore[method-assign]


def _train_children(part: nn.Module, mode: bool = True) -> nn.Module:
    for child in part.children():
        child.train(mode)
    return part


def keeps_local(module: nn.Module) -> bool:
    """Whether a module has local entries, which few have."""
    parameters, buffers = _LOCAL
    return bool(module.__dict__.get(parameters) or module.__dict__.get(buffers))


def local_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The local parameters, which train on the device and stay there."""
    names = module.__dict__.get(_LOCAL[0], ())  # a module itself looks for longer
    return [module.get_parameter(name) for name in names]


def _local(module: nn.Module) -> list[Tensor]:
    """All local entries, in the order of `local_bytes`."""
    names = module.__dict__.get(_LOCAL[1], ())
    return [*local_parameters(module), *map(module.get_buffer, names)]


def local_bytes(module: nn.Module) -> bytes:
    """The values of the local entries, each in its own type; empty if there are none."""
    return b"".join(_bytes(entry) for entry in _local(module))


def load_local(module: nn.Module, values: bytes) -> None:
    """Copy what `local_bytes` returned into the local entries; if it is empty, the values that they
    begin with."""
    import torch

    start, values = 0, values or module.__dict__.get(_INITIAL, b"")
    with torch.no_grad():
        for entry in _local(module):
            if not (size := entry.numel() * entry.element_size()):
                continue
            flat = torch.frombuffer(bytearray(values[start : start + size]), dtype=torch.uint8)
            entry.copy_(flat.view(entry.dtype).view(entry.shape))
            start += size


def local_vector(module: nn.Module) -> Vector:
    """Return a copy of the local parameters."""
    return _flat([parameter.detach() for parameter in local_parameters(module)])


def load_local_parameters(module: nn.Module, values: Vector) -> None:
    """Copy a vector into the local parameters alone."""
    _copy(local_parameters(module), values)


def moving(module: nn.Module) -> list[nn.Parameter]:
    """All parameters that local training moves: the trained ones, then the local ones."""
    return [*trained(module), *local_parameters(module)]


def moving_vector(module: nn.Module) -> Vector:
    """Return a copy of them."""
    return _flat([parameter.detach() for parameter in moving(module)])


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The trained parameters, in the order of the vector."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not (local := set(map(id, local_parameters(module)))):
        return parameters
    return [parameter for parameter in parameters if id(parameter) not in local]


def counted(module: nn.Module) -> list[Tensor]:
    """The counted buffers, in the order of the vector."""
    return [module.get_buffer(name) for name in counted_names(module)]


def counted_names(module: nn.Module) -> Sequence[str]:
    """Their names."""
    return getattr(module, _COUNTED, ())


def travelling(module: nn.Module) -> list[Tensor]:
    """The entries of the vector, as tensors."""
    return [*trained(module), *counted(module)]


def schema(module: nn.Module) -> Schema:
    """Return the names and shapes of the entries that travel, in the order of the vector, and the
    checksum of the frozen parameters.

    Raises:
        ConfigError: a trained or local parameter is of another type than float32, float16 and
            bfloat16, or has no shape yet.
    """
    import torch

    named = dict(module.named_parameters())
    if lazy := [name for name, tensor in named.items() if torch.nn.parameter.is_lazy(tensor)]:
        raise ConfigError(
            f"the model's parameters must have shapes: {', '.join(lazy)} have none yet; call the "
            f"module with an example where you make it, or take modules that are not lazy"
        )
    moved = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    travels = set(map(id, trained(module)))
    kinds = torch.float32, torch.float16, torch.bfloat16
    if other := [name for name, tensor in moved.items() if tensor.dtype not in kinds]:
        raise ConfigError(
            f"the model's parameters must be float32, float16 or bfloat16: {', '.join(other)} are "
            f"not; convert them, or freeze them with requires_grad_(False)"
        )
    specs = [TensorSpec(n, tuple(t.shape)) for n, t in moved.items() if id(t) in travels]
    buffers = zip(counted_names(module), counted(module), strict=True)
    specs += [TensorSpec(name, tuple(buffer.shape), counted=True) for name, buffer in buffers]
    return Schema(tuple(specs), frozen_checksum(module))


def frozen_checksum(module: nn.Module) -> str:
    """XXH3-128 of the names and values of the frozen parameters; empty if there are none."""
    frozen = [(n, p) for n, p in module.named_parameters() if not p.requires_grad]
    if not frozen:
        return ""
    digest = xxhash.xxh3_128()
    for name, tensor in frozen:
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    import torch

    values = tensor.detach().cpu().contiguous().reshape(-1)
    return values.view(torch.uint8).numpy().tobytes()


def layout_of(module: nn.Module) -> Layout:
    """Return the tensors that travel, and the layers of hidden units. A module declares the layers
    in the attribute `unit_layers`, a sequence of `UnitLayer`.

    Raises:
        ConfigError: see `schema` and `Layout`; or the declaration is something else.
    """
    declared: object = getattr(module, "unit_layers", ())
    if not isinstance(declared, list | tuple) or not all(
        isinstance(d, UnitLayer) for d in declared
    ):
        raise ConfigError(
            f"task.model: `unit_layers` of the model's module is {declared!r}, expected a list of "
            f"muster.common.masks.UnitLayer"
        )
    return Layout(schema(module), declared)


def vector_of(module: nn.Module) -> Vector:
    """Return a copy of the entries that travel."""
    return np.concatenate([trained_vector(module), counted_vector(module)])


def trained_vector(module: nn.Module) -> Vector:
    """Return a copy of the trained parameters."""
    return _flat([parameter.detach() for parameter in trained(module)])


def parameters_vector(module: nn.Module) -> Vector:
    """Return a copy of all parameters, whatever becomes of them, in the module's order."""
    return _flat([parameter.detach() for parameter in module.parameters()])


def counted_vector(module: nn.Module) -> Vector:
    """Return a copy of the counted buffers; integers as float32, exact up to 2²⁴."""
    return _flat(counted(module))


def _flat(tensors: Sequence[Tensor]) -> Vector:
    flat = [tensor.cpu().float().numpy().ravel() for tensor in tensors]
    return np.concatenate(flat) if flat else np.empty(0, np.float32)


def load_vector(module: nn.Module, vector: Vector) -> int:
    """Copy a vector into the entries that travel; return how many of them are trained."""
    _copy(parameters := trained(module), vector)
    moved = sum(parameter.numel() for parameter in parameters)
    load_counted(module, vector[moved:])
    return moved


def load_counted(module: nn.Module, values: Vector) -> None:
    """Copy the counted entries of a vector into their buffers."""
    _copy(counted(module), values)


def _copy(tensors: Sequence[Tensor], vector: Vector) -> None:
    import torch

    start = 0
    with torch.no_grad():
        for tensor in tensors:
            # Copied first, because torch warns about arrays that it may not write to.
            values = torch.from_numpy(vector[start : start + tensor.numel()].copy())
            whole = not tensor.is_floating_point()
            tensor.copy_((values.round() if whole else values).view(tensor.shape))
            start += tensor.numel()
