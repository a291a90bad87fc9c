/* Where a program's process was when a signal ended it, as one line of JSON in the journal.
 *
 * Why: the program is C++ inside a Python process; Python's own fault handler sees no C++ frame. The rule: only what is
 * async-signal-safe here (backtrace(3) after a first call); addresses are turned into lines by whoever reads them.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAMES 64
#define API __attribute__((visibility("default")))

/* Not 0 while a kernel runs: what happens then is the emulated device's fault. */
API volatile int kw_in_kernel = 0;

static int journal = -1;
static char own_stack[128 << 10];

static char *number(char *to, uint64_t value) {
  char digits[24];
  int n = 0;
  do digits[n++] = (char)('0' + value % 10); while (value /= 10);
  while (n) *to++ = digits[--n];
  return to;
}

static char *word(char *to, const char *text) {
  size_t n = strlen(text);
  memcpy(to, text, n);
  return to + n;
}

static uint64_t interrupted_at(void *context) {
#if defined(__x86_64__)
  return (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uint64_t)((ucontext_t *)context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

/* {"stack": [...], "signal": n, "in_kernel": 0|1}, innermost first, every entry as a return address is: one past. */
static void tell(int signal_number, void *context) {
  void *frames[FRAMES];
  char text[FRAMES * 24 + 128], *at = text;
  int n = backtrace(frames, FRAMES), first = 0;
  uint64_t pc = interrupted_at(context);
  for (int i = 0; i < n; i++)
    if ((uint64_t)frames[i] == pc) first = i + 1;
  at = word(at, "{\"signal\": ");
  at = number(at, (uint64_t)signal_number);
  at = word(at, ", \"in_kernel\": ");
  at = number(at, (uint64_t)kw_in_kernel);
  at = word(at, ", \"stack\": [");
  at = number(at, pc + 1);
  for (int i = first; i < n; i++) {
    at = word(at, ", ");
    at = number(at, (uint64_t)frames[i]);
  }
  at = word(at, "]}\n");
  if (write(journal, text, (size_t)(at - text)) < 0) return;
}

static void on_crash(int signal_number, siginfo_t *info, void *context) {
  (void)info;
  tell(signal_number, context);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void on_question(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  tell(0, context);
}

/* Tells of crashes, and of `question` without ending, on descriptor `fd`. */
API void kw_watch_crashes(int fd, int question) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
  void *warm[2];
  backtrace(warm, 2);  /* loads libgcc now, not in a handler */
  journal = fd;
  stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
  sigaltstack(&stack, 0);
  struct sigaction action = {0};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (unsigned i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &action, 0);
  action.sa_sigaction = on_question;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(question, &action, 0);
}
