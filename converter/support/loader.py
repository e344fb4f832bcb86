"""Datasets and their batches on the host, with torch's names: numpy arrays, as a jitted step takes them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

LAST_BATCHES = ("keep", "drop", "pad", "raise")


class Dataset:
    """Base of datasets: items by number, and how many there are."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __add__(self, other: "Dataset") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base of datasets that are only gone through."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class TensorDataset(Dataset):
    """Arrays of one length, indexed together."""

    def __init__(self, *tensors: Any):
        if len({len(t) for t in tensors}) > 1:
            raise ValueError(f"TensorDataset: lengths {[len(t) for t in tensors]}, expected one")
        self.tensors = tuple(np.asarray(t) for t in tensors)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """Some items of a dataset, by number."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets one after the other."""

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)

    def __getitem__(self, index: int) -> Any:
        index = index + len(self) if index < 0 else index
        for dataset in self.datasets:
            if index < len(dataset):
                return dataset[index]
            index -= len(dataset)
        raise IndexError(f"ConcatDataset: no item {index} behind its last")

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


def random_split(dataset: Any, lengths: Sequence[float], seed: int = 0) -> list[Subset]:
    """Parts of a dataset, chosen by chance; `lengths` are counts, or shares that sum to 1."""
    counts = [int(n) for n in lengths]
    if abs(sum(lengths) - 1) < 1e-9:
        counts = [int(np.floor(len(dataset) * share)) for share in lengths]
        for number in range(len(dataset) - sum(counts)):
            counts[number % len(counts)] += 1
    if sum(counts) != len(dataset):
        raise ValueError(f"random_split: lengths {list(lengths)} for {len(dataset)} items")
    order = np.random.default_rng(seed).permutation(len(dataset)).tolist()
    starts = np.cumsum([0, *counts])
    return [Subset(dataset, order[a:b]) for a, b in pairwise(starts)]


class SequentialSampler:
    """Numbers in order."""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler:
    """Numbers in an order drawn anew for each pass, with or without replacement."""

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, seed: int = 0):
        self.data_source, self.replacement = data_source, replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples
        self.random = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.replacement:
            return iter(self.random.integers(0, count, self.num_samples).tolist())
        return iter(self.random.permutation(count)[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class DataLoader:
    """Batches of a dataset.

    Args:
      seed: of the order in which items are drawn.
      last_batch: what becomes of a smaller last batch: "keep" it (compiled once more for its size), "drop" it, "pad" it
        with its own first items, or "raise".
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
        batch_sampler: Any = None, collate_fn: Callable[[list[Any]], Any] | None = None, drop_last: bool = False, *,
        seed: int = 0, last_batch: str = "keep",
    ):  # fmt: skip
        if last_batch not in LAST_BATCHES:
            raise ValueError(f"DataLoader: last_batch {last_batch!r}, expected one of {LAST_BATCHES}")
        self.dataset, self.batch_size, self.batch_sampler = dataset, batch_size, batch_sampler
        self.collate_fn = collate if collate_fn is None else collate_fn
        self.drop_last, self.last_batch = drop_last, "drop" if drop_last else last_batch
        in_order = isinstance(dataset, IterableDataset)
        self.sampler = sampler
        if sampler is None and not in_order:
            self.sampler = RandomSampler(dataset, seed=seed) if shuffle else SequentialSampler(dataset)

    def __iter__(self) -> Iterator[Any]:
        if self.batch_sampler is not None:
            for numbers in self.batch_sampler:
                yield self.collate_fn([self.dataset[i] for i in numbers])
            return
        items = iter(self.dataset) if self.sampler is None else (self.dataset[i] for i in self.sampler)
        if self.batch_size is None:
            yield from items
            return
        while batch := list(islice(items, self.batch_size)):
            if (whole := self._whole(batch)) is not None:
                yield self.collate_fn(whole)

    def _whole(self, batch: list[Any]) -> list[Any] | None:
        missing = int(self.batch_size or 0) - len(batch)
        if not missing or self.last_batch == "keep":
            return batch
        if self.last_batch == "raise":
            raise ValueError(f"DataLoader: a last batch of {len(batch)} items, expected {self.batch_size}")
        return None if self.last_batch == "drop" else [batch[i % len(batch)] for i in range(len(batch) + missing)]

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count = len(self.dataset) if self.sampler is None else len(self.sampler)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.last_batch == "drop" else -(-count // self.batch_size)


def collate(batch: list[Any]) -> Any:
    """One structure of stacked arrays from a list of structures, as torch's default_collate; texts stay lists."""
    first = batch[0]
    if isinstance(first, dict):
        return type(first)({key: collate([item[key] for item in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(collate, map(list, zip(*batch, strict=True))))
    if isinstance(first, tuple | list):
        return [collate(list(items)) for items in zip(*batch, strict=True)]
    if isinstance(first, str | bytes):
        return batch
    return np.stack([np.asarray(item) for item in batch])
