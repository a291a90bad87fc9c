"""Tensors in memory files."""

from __future__ import annotations

import mmap
import os

import pytest
import torch

from kernelwright.worker import memory


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(4, 6),
        torch.arange(24.0).reshape(4, 6).t(),
        torch.arange(24).reshape(4, 6)[1:, ::2],
        torch.tensor(3.5),
        torch.zeros(0, 7),
        torch.tensor([True, False]),
        torch.tensor([1.5, -2.0]).bfloat16(),
        torch.tensor([1 + 2j]),
        torch.ones(3).expand(5, 3),
    ],
)
def test_a_tensor_crosses_with_values_dtype_and_strides(tensor: torch.Tensor) -> None:
    fd, spec = memory.share(tensor)
    mapped = memory.attach(fd, memory.read_spec({**spec.__dict__}))
    assert torch.equal(mapped.tensor, tensor)
    assert mapped.tensor.dtype == tensor.dtype
    assert mapped.tensor.stride() == tensor.stride()
    mapped.close()


def test_a_moved_tensor_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOVE_BYTES", 1 << 20)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1 << 20)
    tensor = torch.rand(3_000_001)
    expected = tensor.clone()
    assert memory.sole_owner(tensor)
    fd, spec = memory.share(tensor, consume=True)
    mapped = memory.attach(fd, spec)
    assert torch.equal(mapped.tensor, expected)
    assert float(tensor[10_000:2_990_000].abs().sum()) == 0
    mapped.close()


def test_a_view_of_it_makes_a_tensor_not_solely_owned() -> None:
    tensor = torch.rand(10)
    other = tensor.view(5, 2)
    assert not memory.sole_owner(tensor)
    del other
    assert memory.sole_owner(tensor)


def test_writes_are_private_and_known() -> None:
    fd, spec = memory.share(torch.zeros(5_000_000))
    writer, reader = memory.attach(os.dup(fd), spec), memory.attach(fd, spec)
    assert float(writer.tensor.sum()) == 0
    assert not writer.changed()
    writer.tensor[1_234_567] = 0
    assert not writer.changed(), "the same value is no change"
    writer.tensor[1_234_567] = 1
    assert writer.changed()
    assert not reader.changed()
    assert float(reader.tensor.sum()) == 0
    writer.close()
    reader.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": [10], "strides": [1], "dtype": "float32", "bytes": 40},
        {"shape": [2], "strides": [-1], "dtype": "float32", "bytes": 8},
        {"shape": [2], "strides": [1, 1], "dtype": "float32", "bytes": 8},
        {"shape": [2], "strides": [1], "dtype": "open", "bytes": 8},
        {"shape": ["x"], "strides": [1], "dtype": "float32", "bytes": 8},
        {},
    ],
)
def test_a_description_that_does_not_fit_is_refused(fields: dict[str, object]) -> None:
    fd, _ = memory.share(torch.zeros(2))
    with pytest.raises(memory.TensorError):
        memory.attach(fd, memory.read_spec(fields))
    os.close(fd)


def test_a_sealed_file_cannot_shrink_under_its_reader() -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    memory.seal(fd)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


def test_whoever_gets_the_descriptor_cannot_write_to_it() -> None:
    fd, spec = memory.share(torch.ones(1000))
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, spec.bytes, mmap.MAP_SHARED, mmap.PROT_WRITE)
    mapped = memory.attach(fd, spec)
    mapped.tensor.zero_()
    assert mapped.changed()
    mapped.close()
