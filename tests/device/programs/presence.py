"""What a candidate asks of ``torch.cuda`` from Python: each line is a question and its answer, or how it fails."""

import torch

from kernelwright.device.specs import spec
from kernelwright.emulate import device

device.install(spec("h200"))
x = torch.randn(8, 8, device="cuda")


def timed() -> bool:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    x @ x
    end.record(torch.cuda.current_stream())
    end.synchronize()
    torch.cuda.current_stream().wait_event(end)
    return 0 <= start.elapsed_time(end) < 60_000 and end.query()


def untimed() -> str:
    start, end = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    end.record()
    try:
        return str(start.elapsed_time(end))
    except ValueError as error:
        return str(error)


def unrecorded() -> str:
    try:
        return str(torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event(enable_timing=True)))
    except ValueError as error:
        return str(error)


def side_stream() -> tuple[bool, bool, bool]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        inside = torch.cuda.current_stream() == side
        y = x * 2
        y.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    side.synchronize()
    return inside, torch.cuda.current_stream() == torch.cuda.default_stream(), bool(torch.equal(y, x * 2))


def reproducible() -> bool:
    torch.cuda.manual_seed_all(3)
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    return torch.equal(first, torch.rand(4, device="cuda"))


def tf32() -> bool:
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.backends.cuda.matmul.allow_tf32


QUESTIONS = {
    "available": lambda: torch.cuda.is_available(),
    "devices": lambda: (torch.cuda.device_count(), torch.cuda.current_device()),
    "name": lambda: torch.cuda.get_device_name(),
    "capability": lambda: torch.cuda.get_device_capability(0),
    "multiprocessors": lambda: torch.cuda.get_device_properties(0).multi_processor_count,
    "shared opt-in": lambda: torch.cuda.get_device_properties("cuda").shared_memory_per_block_optin,
    "default stream": lambda: (torch.cuda.current_stream().cuda_stream, torch.cuda.default_stream().cuda_stream),
    "timed": timed,
    "untimed": untimed,
    "unrecorded": unrecorded,
    "side stream": side_stream,
    "record_event": lambda: torch.cuda.current_stream().record_event().query(),
    "tensor": lambda: (x.is_cuda, x.device == torch.device("cuda:0"), x.cuda() is x, x.cpu().is_cuda, x.get_device()),
    "to": lambda: str(torch.ones(2).to("cuda", non_blocking=True).device),
    "module": lambda: str(torch.nn.Linear(2, 2).cuda().weight.device),
    "context": lambda: (torch.cuda.device(0).__enter__(), torch.cuda.set_device(0))[1],
    "memory": lambda: (torch.cuda.memory_allocated() >= x.nbytes, torch.cuda.max_memory_allocated() >= x.nbytes),
    "cache": lambda: (torch.cuda.empty_cache(), torch.cuda.synchronize(), torch.cuda.reset_peak_memory_stats()),
    "free": lambda: torch.cuda.mem_get_info()[0] <= torch.cuda.mem_get_info()[1],
    "seeds": reproducible,
    "tf32": tf32,
    "autocast": lambda: torch.autocast("cuda", enabled=False).__enter__() is not None,
    "capturing": lambda: torch.cuda.is_current_stream_capturing(),
    "version": lambda: torch.version.cuda is not None,
}

for question, ask in QUESTIONS.items():
    try:
        print(f"{question}: {ask()}")
    except Exception as error:
        print(f"{question}: {type(error).__name__}: {error}")
