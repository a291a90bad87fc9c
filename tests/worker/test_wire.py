"""Messages: what is sent arrives with its descriptors, and what is no message never crashes the reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.worker.wire import HEADER, MAGIC, MAX_BYTES, Channel, Closed, WireError, close_all

pytestmark = pytest.mark.tiny


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_messages_arrive_in_order_with_their_descriptors(ends: tuple[Channel, Channel]) -> None:
    sender, receiver = ends
    read, write = os.pipe()
    sender.send({"a": [1, 2.5, None, "ü"], "nan": float("inf")})
    sender.send({"b": 2}, [read, write])
    close_all([read, write])
    assert receiver.receive() == ({"a": [1, 2.5, None, "ü"], "nan": float("inf")}, [])
    message, fds = receiver.receive()
    assert message == {"b": 2}
    os.write(fds[1], b"through")
    assert os.read(fds[0], 7) == b"through"
    close_all(fds)


def test_threads_that_send_at_once_cut_into_no_message(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    sent = {letter * 1_000_000 for letter in "abcdefgh"}
    with ThreadPoolExecutor(len(sent)) as pool:
        sending = [pool.submit(ours.send, {"text": text}) for text in sent]
        received = {theirs.receive()[0]["text"] for _ in sent}
        assert all(job.result() is None for job in sending)
    assert received == sent


def test_more_descriptors_than_one_call_carries_arrive(ends: tuple[Channel, Channel]) -> None:
    sender, receiver = ends
    null = os.open(os.devnull, os.O_RDONLY)
    sender.send({"many": True}, [null] * 450)
    os.close(null)
    message, fds = receiver.receive()
    assert (message, len(set(fds))) == ({"many": True}, 450)
    close_all(fds)


@pytest.mark.parametrize(
    "data",
    [
        b"hello, world",
        HEADER.pack(MAGIC, 5, 0) + b"{oops",
        HEADER.pack(MAGIC, 4, 0) + b"[12]",
        HEADER.pack(MAGIC, MAX_BYTES + 1, 0),
        HEADER.pack(MAGIC, 2, 3) + b"{}",
        HEADER.pack(MAGIC, 100, 0) + b"{}",
        b"KW",
    ],
)
def test_what_is_no_message_is_a_wire_error(ends: tuple[Channel, Channel], data: bytes) -> None:
    sender, receiver = ends
    sender.socket.sendall(data)
    sender.close()
    with pytest.raises(WireError):
        receiver.receive()


def test_closing_between_messages_is_no_error(ends: tuple[Channel, Channel]) -> None:
    sender, receiver = ends
    sender.send({"last": 1})
    sender.close()
    assert receiver.receive()[0] == {"last": 1}
    with pytest.raises(Closed):
        receiver.receive()


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_end_in_a_message_or_a_known_error(data: bytes) -> None:
    ours, theirs = Channel.pair()
    theirs.sendall(data)
    theirs.close()
    with pytest.raises((WireError, Closed)):
        while True:
            ours.receive()
    ours.close()
