"""What can be told of a module without running it."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from muster.tasks.blocks import Block, Reader


def is_plain(module: nn.Module) -> bool:
    """Whether calling a module does what its class says, and nothing else: it has no hooks, its
    parameters are plain ones without hooks, and no instance has a `forward` of its own."""
    return _are_plain(module.modules())


def _are_plain(parts: Iterable[nn.Module]) -> bool:
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    for part in parts:
        own = part.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or "forward" in own
        ):
            return False
        for parameter in own["_parameters"].values():
            if parameter is not None and (
                type(parameter) is not nn.Parameter
                or parameter._backward_hooks
                or parameter._post_accumulate_grad_hooks
            ):
                return False
    return True


def normalises_batches(module: nn.Module) -> bool:
    """Whether the module has batch normalisation, which needs more than one value of each channel
    in training mode, and so usually more than one example."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def linear_layers(module: nn.Module) -> list[nn.Module] | None:
    """The parts of a plain sequence of layers after its `Flatten`, which trains the weight and bias
    of its linear layers and nothing else; None if the module is something else.

    A subclass, a parametrization or a tied weight makes it something else. This is asked before
    every training, so it walks through the parts itself: `modules` takes longer than a small step.
    """
    if type(module) is not nn.Sequential:
        return None
    first, *parts = module.__dict__["_modules"].values() or (None,)
    if type(first) is not nn.Flatten or (first.start_dim, first.end_dim) != (1, -1):
        return None
    trained = []
    for part in (module, first, *parts):
        own = part.__dict__
        if type(part) is nn.Linear and own["_parameters"].keys() == _OF_LINEAR:
            trained += [each for each in own["_parameters"].values() if each is not None]
        elif own["_parameters"]:
            return None
        if own["_modules"] and part is not module:
            return None
    alone = len(set(map(id, trained))) == len(trained)
    if not alone or not all(parameter.requires_grad for parameter in trained):
        return None
    return parts if _are_plain((module, first, *parts)) else None


_OF_LINEAR = {"weight", "bias"}

_ONE_BY_ONE = frozenset(
    {
        *(nn.Sequential, nn.Identity, nn.Flatten, nn.Unflatten, nn.Linear, nn.Embedding, nn.LSTM),
        *(nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
        *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Dropout, nn.GroupNorm, Block, Reader),
    }
)
"""Modules that compute the outputs of an example from that example alone, in evaluation mode."""

_SAME = 1e-4
"""The largest difference of outputs that may come from rounding, as a share of the largest output:
matrix products of different sizes add in different orders."""


def takes_examples_one_by_one(module: nn.Module) -> bool | None:
    """Whether the outputs of an example depend on that example alone, in evaluation mode; None if
    the module must be tried (`agree`)."""
    parts = [*module.modules()]
    norms = (part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm))
    if any(norm.running_mean is None for norm in norms):
        return False
    known = all(type(part) in _ONE_BY_ONE and _keeps_examples(part) for part in parts)
    return True if known and is_plain(module) else None


def _keeps_examples(part: nn.Module) -> bool:
    """Whether the first dimension of what a known module returns has the examples."""
    if isinstance(part, nn.Flatten):
        return part.start_dim > 0
    return not isinstance(part, nn.LSTM) or part.batch_first


def agree(alone: Tensor, together: Tensor) -> bool:
    """Whether the outputs of examples are the same, up to rounding, when a module gets them alone
    and together with others."""
    finite = together.nan_to_num(0.0, 0.0, 0.0)
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return alone.shape == together.shape and alone.allclose(
        together, rtol=0.0, atol=_SAME * largest, equal_nan=True
    )
