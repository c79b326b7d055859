"""Batches of sequences: every sequence once an epoch, in an order of the seed and the epoch."""

from hypothesis import given, strategies as st

from normscope.data.batches import EpochBatches


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**31), st.integers(0, 5))
def test_every_sequence_once_an_epoch(sequences: int, batch: int, seed: int, epoch: int) -> None:
    batches = EpochBatches(sequences=sequences, batch_sequences=batch, seed=seed)
    drawn = [batches.micro_batch(epoch * len(batches) + place) for place in range(len(batches))]
    assert {drawn_epoch for drawn_epoch, _ in drawn} == {epoch}
    sizes = [len(indices) for _, indices in drawn]
    assert sizes[:-1] == [batch] * (len(batches) - 1)
    assert 1 <= sizes[-1] <= batch
    assert sorted(i for _, indices in drawn for i in indices.tolist()) == list(range(sequences))


def test_epochs_and_seeds_differ_and_repeat_whatever_was_asked_before() -> None:
    made = EpochBatches(sequences=50, batch_sequences=7, seed=3)
    forwards = [made.micro_batch(i)[1].tolist() for i in range(40)]
    again = EpochBatches(sequences=50, batch_sequences=7, seed=3)
    assert [again.micro_batch(i)[1].tolist() for i in reversed(range(40))] == forwards[::-1]
    epochs = [[i for batch in forwards[8 * e : 8 * e + 8] for i in batch] for e in range(5)]
    other = [
        i
        for n in range(8)
        for i in EpochBatches(sequences=50, batch_sequences=7, seed=4).micro_batch(n)[1]
    ]
    assert len({*map(tuple, epochs), tuple(other), tuple(range(50))}) == 7


def test_validation_goes_through_all_in_order() -> None:
    made = EpochBatches(sequences=10, batch_sequences=4, seed=3)
    assert [indices.tolist() for indices in made.in_order()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [
        i.tolist() for i in EpochBatches(sequences=4, batch_sequences=4, seed=3).in_order()
    ] == [[0, 1, 2, 3]]
