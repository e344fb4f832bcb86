"""Datasets and loaders on the host."""

import numpy as np
import pytest

from maxcode.converter.support.loader import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    collate,
    random_split,
)


class Squares(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"n": np.float32(index), "pair": (index, index**2), "name": f"item {index}"}


def test_batches_have_torchs_structure():
    batch = next(iter(DataLoader(Squares(10), batch_size=4)))
    assert batch["n"].dtype == np.float32
    assert batch["pair"][1].tolist() == [0, 1, 4, 9]
    assert batch["name"] == ["item 0", "item 1", "item 2", "item 3"]


@pytest.mark.parametrize(("last_batch", "sizes"), [("keep", [4, 4, 2]), ("drop", [4, 4]), ("pad", [4, 4, 4])])
def test_a_last_batch_is_kept_dropped_or_filled(last_batch, sizes):
    loader = DataLoader(Squares(10), batch_size=4, last_batch=last_batch)
    batches = list(loader)
    assert [len(b["n"]) for b in batches] == sizes
    assert len(loader) == len(sizes)
    if last_batch == "pad":
        assert batches[-1]["n"].tolist() == [8, 9, 8, 9]


def test_a_last_batch_can_be_refused():
    with pytest.raises(ValueError, match="a last batch of 2 items, expected 4"):
        list(DataLoader(Squares(10), batch_size=4, last_batch="raise"))
    assert len(list(DataLoader(Squares(8), batch_size=4, last_batch="raise"))) == 2


def test_drop_last_is_torchs():
    assert len(list(DataLoader(Squares(10), batch_size=4, drop_last=True))) == 2


def test_shuffling_takes_another_order_each_time_and_loses_nothing():
    loader = DataLoader(Squares(50), batch_size=50, shuffle=True)
    first, second = [next(iter(loader))["n"].tolist() for _ in range(2)]
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))


def test_parts_of_a_dataset_share_no_item():
    parts = random_split(TensorDataset(np.arange(11)), [0.5, 0.3, 0.2])
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(int(p[i][0]) for p in parts for i in range(len(p))) == list(range(11))
    joined = ConcatDataset(parts)
    assert len(joined) == 11
    assert joined[-1] == parts[-1][1]


def test_datasets_that_are_only_gone_through():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert list(DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]


def test_lists_become_lists_of_stacks():
    assert [part.shape for part in collate([[np.zeros(3), 1.0], [np.ones(3), 2.0]])] == [(2, 3), (2,)]
