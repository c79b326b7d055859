"""What is measured outside of a model's sub-layers: the gains of norms, embeddings and output matrices."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGain:
    """The trained vector that a norm's output is multiplied with."""

    name: str
    total: float
    """Mean of what the output is multiplied with."""
    own: float
    """Mean of the parameter's entries, which are 1 less where the forward pass adds 1."""
    own_size: float
    """Their root mean square."""
    negative: float
    """The share of them below 0."""
    constant: bool
    """Whether they are all alike, as at the start of any training."""
    adds_one: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An embedding that was looked up, or what is added to its rows."""

    name: str
    """"" of what is computed, as sinusoids are."""
    size: float
    """Root mean square of its entries."""
    width: int
    factor: float
    """What its rows are multiplied with before anything else is done with them."""
    rows_size: float
    """Root mean square of the rows that were looked up, times the factor."""
    by_place: bool
    """Whether rows are looked up one after another, as those of positions are."""
    joined_at: int
    """Number of the sum in the recorded pass in which its rows meet those of others; -1 where they meet none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMatrix:
    """The matrix that makes an output of the model."""

    name: str
    size: float
    """Root mean square of its entries."""
    inputs: int
    outputs: int
    reads_size: float
    """Root mean square of what it is multiplied with."""
