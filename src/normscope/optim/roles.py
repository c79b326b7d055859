"""What each parameter of a model is for, by which optimisers tell parameters apart."""

from typing import Literal, get_args

from torch import nn

Role = Literal["embedding", "matrix", "norm", "gate", "bias", "head"]
ROLES: tuple[Role, ...] = get_args(Role)
_HEADS = ("lm_head", "head", "classifier", "score", "output_projection", "qa_outputs", "cls")
"""Modules that turn last hidden states into logits, by the names that public models give them."""


def roles(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter, by its name in `model.named_parameters()`.

    A module says it of its own parameters where it has an attribute `role`. Without one: embedding of tables of rows;
    norm of gains and shifts; bias of what a matrix's output is shifted by; head of a matrix in a module that is called
    as heads are; matrix of any other with two dimensions and more; and gate of every other number or vector. A
    parameter that two modules share, such as a tied table, has the role that it has in the first.
    """
    owners = dict(model.named_modules())
    found: dict[str, Role] = {}
    for name, parameter in model.named_parameters():
        owner, _, own = name.rpartition(".")
        found[name] = _role(owners[owner], owner, own, parameter.ndim)
    return found


def _role(module: nn.Module, path: str, name: str, dimensions: int) -> Role:
    declared = getattr(module, "role", None)
    if isinstance(module, nn.Embedding) or declared == "embedding":
        return "embedding"
    # Models of other libraries have norms of their own, and call them so.
    if "norm" in type(module).__name__.lower() or declared == "norm":
        return "norm"
    if name.endswith("bias"):
        return "gate" if declared == "gate" else "bias"
    if declared is not None:
        of: Role = declared
        return of
    if dimensions < 2:
        return "gate"
    return "head" if path.rpartition(".")[2] in _HEADS else "matrix"
