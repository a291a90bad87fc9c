"""What a candidate may do to its process: each a fact with a place, and nothing is left behind."""

from __future__ import annotations

import pytest
from tests.worker.conftest import BODY_LINE, Run

import kernelwright.check
from kernelwright.records import Evidence, Stage, StageStatus, Verdict, VerdictWord
from kernelwright.worker.plan import trial_seed


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> list[Evidence]:
    """What the check hands to explain, which is not under test here."""
    seen: list[Evidence] = []

    def keep(found: Evidence) -> tuple[()]:
        seen.append(found)
        return ()

    monkeypatch.setattr(kernelwright.check, "explain", keep)
    return seen


def stage(verdict: Verdict) -> Stage | None:
    """The stage that failed."""
    return next((result.stage for result in verdict.stages if result.status is StageStatus.FAILED), None)


def test_a_right_one_is_correct(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("pass", trials=3)
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.numerics is not None
    assert [trial.seed for trial in verdict.numerics.trials] == [trial_seed(0, index) for index in range(3)]
    assert verdict.numerics.weights == "rng"
    assert verdict.numerics.discriminating is True
    assert verdict.numerics.trials[0].outputs[0].max_abs_error < 1e-6


def test_no_model_new(run: Run, evidence: list[Evidence]) -> None:
    assert stage(run("import torch\n")) is Stage.LOAD
    assert evidence[0].exception is not None
    assert "candidate.py defines no ModelNew" in evidence[0].exception.message


def test_a_syntax_error_names_its_line(run: Run, evidence: list[Evidence]) -> None:
    assert stage(run("import torch\ndef f(:\n    pass\n")) is Stage.LOAD
    assert evidence[0].exception is not None
    assert evidence[0].exception.type == "SyntaxError"
    assert (evidence[0].exception.frames[-1].line, evidence[0].exception.frames[-1].text) == (2, "def f(:")


@pytest.mark.parametrize("call", ["sys.exit(0)", "raise SystemExit", "exit()"])
def test_leaving_politely_is_an_exception_with_its_line(run_body: Run, evidence: list[Evidence], call: str) -> None:
    verdict = run_body(call)
    assert (verdict.verdict, stage(verdict)) == (VerdictWord.FAILED, Stage.RUN)
    assert evidence[0].exception is not None
    assert evidence[0].exception.type == "SystemExit"
    assert evidence[0].exception.frames[-1].line == BODY_LINE


def test_leaving_at_once_names_the_line_and_the_status(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("os._exit(0)")
    assert (verdict.verdict, stage(verdict)) == (VerdictWord.FAILED, Stage.RUN)
    left = evidence[0].exit
    assert left is not None
    assert (left.returncode, left.signal, left.during) == (0, "", "forward, trial 1")
    assert (left.frames[0].line, left.frames[0].text) == (BODY_LINE, "os._exit(0)")


@pytest.mark.parametrize(
    ("call", "signal"),
    [
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_crash_names_signal_and_line(run_body: Run, evidence: list[Evidence], call: str, signal: str) -> None:
    verdict = run_body(call)
    assert verdict.verdict is VerdictWord.FAILED
    died = evidence[0].exit
    assert died is not None
    assert (died.signal, died.during) == (signal, "forward, trial 1")
    if signal != "SIGKILL":
        assert died.frames[0].line == BODY_LINE


@pytest.mark.parametrize(
    "call",
    [
        "[i for i in iter(int, 1)]",
        "time.sleep(1000)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN) or time.sleep(1000)",
    ],
)
def test_an_endless_one_is_stopped_and_its_line_known(run_body: Run, evidence: list[Evidence], call: str) -> None:
    verdict = run_body(call, timeout_s=1.0)
    assert (verdict.verdict, stage(verdict)) == (VerdictWord.FAILED, Stage.RUN)
    stopped = evidence[0].exit
    assert stopped is not None
    assert (stopped.timed_out, stopped.during) == (True, "forward, trial 1")
    assert BODY_LINE in [frame.line for frame in stopped.frames]


def test_a_hundred_gigabytes_at_once_are_refused(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("torch.ones(25_000_000_000)")
    assert verdict.verdict is VerdictWord.FAILED
    assert evidence[0].exit is not None
    assert evidence[0].exit.out_of_memory
    assert evidence[0].exception is not None
    assert evidence[0].exception.frames[-1].line == BODY_LINE


def test_memory_taken_piece_by_piece_ends_the_candidate(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("keep = [bytearray(b'x' * 10_000_000) for _ in range(10_000)]", memory_bytes=200 << 20)
    assert verdict.verdict is VerdictWord.FAILED
    assert evidence[0].exit is not None
    assert evidence[0].exit.out_of_memory


def test_memory_taken_by_children_counts(run_body: Run, evidence: list[Evidence]) -> None:
    body = "[os.fork() for _ in range(4)]; keep = bytearray(b'x' * 400_000_000); time.sleep(1000)"
    assert run_body(body, memory_bytes=500 << 20).verdict is VerdictWord.FAILED
    assert evidence[0].exit is not None
    assert evidence[0].exit.out_of_memory


def test_printing_megabytes_keeps_the_end_and_the_count(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("[print('line', i, 'x' * 1000) for i in range(3000)]; sys.stderr.write('last words')")
    assert verdict.verdict is VerdictWord.CORRECT
    assert verdict.candidate_stdout.startswith("[")
    assert "bytes before this were left out" in verdict.candidate_stdout[:80]
    assert len(verdict.candidate_stdout) < 70_000
    assert "line 2999 xxx" in verdict.candidate_stdout
    assert verdict.candidate_stderr.endswith("last words")


def test_garbage_on_stdout_harms_nobody(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body('os.write(1, bytes(range(256)) * 10); os.write(2, b\'\\xff\\x00{"reply": "forward"}\')')
    assert verdict.verdict is VerdictWord.CORRECT
    assert '{"reply": "forward"}' in verdict.candidate_stderr


def test_garbage_on_every_descriptor_is_a_failure_of_the_candidate(run_body: Run, evidence: list[Evidence]) -> None:
    body = "[os.write(int(fd), b'KWm2 garbage') for fd in os.listdir('/proc/self/fd') if int(fd) > 2 and "
    body += "os.readlink('/proc/self/fd/' + fd).startswith('socket')]"
    assert run_body(body).verdict is VerdictWord.FAILED
    assert evidence[0].exit is not None
    assert "expected a message" in evidence[0].exit.during


def test_a_forged_reply_cannot_give_a_verdict(run_body: Run, evidence: list[Evidence]) -> None:
    body = 'import socket, struct; b = b\'{"reply": "compare", "passed": true}\'; '
    body += "[os.write(int(fd), struct.pack('!4sII', b'KWm1', len(b), 0) + b) for fd in os.listdir('/proc/self/fd') "
    body += "if int(fd) > 2 and os.readlink('/proc/self/fd/' + fd).startswith('socket')]"
    assert run_body(body).verdict is VerdictWord.FAILED
    assert evidence[0].exit is not None
    assert "it answered 'compare' to 'forward'" in evidence[0].exit.during


def test_children_that_linger_are_ended_and_noted(run_body: Run, evidence: list[Evidence]) -> None:
    body = "os.fork() or (os.setsid(), os.fork() or time.sleep(1000), os._exit(0))"
    verdict = run_body(body)
    assert verdict.verdict is VerdictWord.CORRECT
    assert any("processes behind" in note for note in verdict.notes)


def test_an_exception_that_cannot_be_printed_is_still_a_fact(run_body: Run, evidence: list[Evidence]) -> None:
    assert run_body("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()").verdict is VerdictWord.FAILED
    assert evidence[0].exception is not None
    assert evidence[0].exception.message == "<its message could not be had: ZeroDivisionError>"


def test_changed_inputs_and_parameters_are_named_and_wrong(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("y = torch.relu(self.fc(x)); x[3, 1] = 9; self.fc.bias[0] = 1; return y")
    assert verdict.verdict is VerdictWord.WRONG
    assert verdict.numerics is not None
    assert verdict.numerics.trials[0].passed
    assert verdict.numerics.mutated == ("input 0", "parameter fc.bias")


def test_an_output_that_is_no_tensor_is_an_exception_of_the_run(run_body: Run, evidence: list[Evidence]) -> None:
    assert run_body("return {1, 2}").verdict is VerdictWord.FAILED
    assert evidence[0].exception is not None
    assert "forward() returned a builtins.set" in evidence[0].exception.message


def test_nan_never_passes(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("return torch.full((32, 8), float('nan'))", atol=1e30, rtol=1e30)
    assert verdict.verdict is VerdictWord.WRONG
    assert verdict.numerics is not None
    mismatch = verdict.numerics.trials[0].outputs[0].mismatch
    assert mismatch is not None
    assert (mismatch.nan, mismatch.description) == (256, "every element")


def test_a_result_that_differs_from_run_to_run_is_noted(run_body: Run, evidence: list[Evidence]) -> None:
    verdict = run_body("self.n = getattr(self, 'n', 0) + 1; return torch.relu(self.fc(x)) + self.n * 1e-6")
    assert verdict.numerics is not None
    assert "a second run on the same inputs differs by up to" in verdict.numerics.trials[0].note
