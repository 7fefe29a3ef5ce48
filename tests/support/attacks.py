"""What a hostile kernel may try against the machine it runs on; each then computes the
right answer, if it gets that far.

`@HOME@` is a folder that is none of the kernel's business and holds a file `token` of
mode 0600; `@PORT@` a port on loopback where somebody listens. A kernel that got hold of
something writes 666 into its output, which no check lets pass.
"""

from __future__ import annotations

from collections.abc import Mapping

INCLUDES = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <sys/time.h>
static void *asleep(void *nothing) { for (;;) pause(); return nothing; }
static void *idle(void *nothing) { return nothing; }
static int threads(int count) {
  int made = 0;
  for (pthread_t thread; made < count && pthread_create(&thread, NULL, asleep, NULL) == 0; ++made) pthread_detach(thread);
  return made;
}
static int readable(const char *path) {
  char text[16];
  int file = open(path, O_RDONLY);
  return file >= 0 && read(file, text, sizeof text) > 0;
}
static int reaches(int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int own = socket(AF_INET, SOCK_STREAM, 0);
  return own >= 0 && connect(own, (struct sockaddr *)&to, sizeof to) == 0 && send(own, "hello", 5, 0) == 5;
}
"""  # noqa: E501

ADD = " for (int i = 0; i < COUNT; ++i) c[i] = a[i] + b[i]; "
_OF_PARENT = (
    'char path[64]; snprintf(path, sizeof path, "/proc/%d/NAME", getppid()); if '
    "(readable(path)) c[0] = 666;"
)

ATTACKS: Mapping[str, str] = {
    "writes_home": 'int f = open("@HOME@/owned", O_WRONLY | O_CREAT, 0600); if (f >= 0) '
    'write(f, "x", 1);' + ADD,
    "writes_by_dots": 'int f = open("../../../../../../../@HOME@/owned", O_WRONLY | O_CREAT, '
    '0600); (void)f;' + ADD,
    "appends_token": 'int f = open("@HOME@/token", O_RDWR | O_APPEND); if (f >= 0) '
    'write(f, "x", 1);' + ADD,
    "removes_token": 'if (unlink("@HOME@/token") == 0) raise(SIGKILL);' + ADD,
    "links_token": 'symlink("@HOME@/token", "inside");' + ADD + 'if (readable("inside")) '
    'c[0] = 666;',
    "reads_token": ADD + 'if (readable("@HOME@/token")) c[0] = 666;',
    "reads_token_variable": ADD + 'if (getenv("TUNER_TEST_TOKEN")) c[0] = 666;',
    "reads_parents_environment": ADD + _OF_PARENT.replace("NAME", "environ"),
    "reads_parents_memory": ADD + _OF_PARENT.replace("NAME", "mem"),
    "copies_parents_memory": "char here[8]; struct iovec to = {here, 8}, from = {(void *)c, 8};"
    + ADD + "if (process_vm_readv(getppid(), &to, 1, &from, 1, 0) > 0) c[0] = 666;",
    "traces_parent": ADD + "if (ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0) c[0] = 666;",
    "kills_parent": ADD + "if (kill(getppid(), SIGKILL) == 0) c[0] = 666;",
    "signals_all": ADD + "if (kill(-1, 0) == 0) c[0] = 666;",
    "signals_parent_by_file": ADD + "int ends[2]; pipe(ends); if (fcntl(ends[0], F_SETOWN, "
    "getppid()) == 0) c[0] = 666;",
    "forgets_parent": ADD + "if (prctl(PR_SET_PDEATHSIG, 0) == 0) c[0] = 666;",
    "moves_parent": ADD + "cpu_set_t any; memset(&any, 255, sizeof any);"
    " if (sched_setaffinity(getppid(), sizeof any, &any) == 0) c[0] = 666;",
    "limits_parent": ADD + "struct rlimit none = {0, 0}; if (prlimit(getppid(), RLIMIT_CORE, "
    "&none, NULL) == 0) c[0] = 666;",
    "opens_socket": ADD + "if (reaches(@PORT@)) c[0] = 666;",
    "opens_unix_socket": ADD + "if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) c[0] = 666;",
    "fork_bomb": "for (;;) fork();",
    "session_bomb": "for (;;) if (fork() == 0) setsid();",
    "runs_program": 'if (system("touch @HOME@/owned") == 0) c[0] = 666;' + ADD,
    "clones_by_number": ADD + "if (syscall(SYS_clone3, NULL, 0) >= 0 || errno != ENOSYS) "
    "c[0] = 666;",
    "thread_bomb": "for (;;) threads(1000);",
    "thread_bomb_gives_up": "if (threads(100000) < 100000) abort();" + ADD,
    "few_threads": "for (int i = 0; i < 4; ++i) { pthread_t one; if (pthread_create(&one, NULL, "
    "idle, NULL)) abort();"
    " pthread_join(one, NULL); }" + ADD,
    "leaves_namespaces": ADD + "if (unshare(CLONE_NEWUSER) == 0) c[0] = 666;",
    "mounts": ADD + 'if (mount("none", "/tmp", "tmpfs", 0, NULL) == 0) c[0] = 666;',
    "rings": ADD + "char room[256] = {0}; if (syscall(SYS_io_uring_setup, 4, room) >= 0) "
    "c[0] = 666;",
    "fills_file": "static char text[1 << 20]; int f = open(\"big\", O_WRONLY | O_CREAT, 0600);"
    " for (int i = 0; i < 10240; ++i) if (write(f, text, sizeof text) < 0) break;" + ADD,
    "fills_folder": "static char text[1 << 20]; for (int i = 0; i < 10240; ++i) { char "
    "name[16]; sprintf(name, \"f%d\", i);"
    " int f = open(name, O_WRONLY | O_CREAT, 0600); write(f, text, sizeof text); close(f); }" + ADD,
    "writes_scratch": 'static int done; if (done++ == 0) { int f = open("note", O_WRONLY | '
    'O_CREAT | O_TRUNC, 0600);'
    ' if (f < 0 || write(f, "x", 1) != 1) abort();'
    " close(f); }" + ADD,
    "silently_greedy": "volatile char *memory = malloc(64ull << 30); memory[0] = 1;" + ADD,
    "leaks": "for (;;) { volatile char *memory = malloc(64 << 20); memory[0] = 1; }",
    "leaks_mappings": "for (;;) { volatile char *memory = mmap(NULL, 1 << 30, PROT_READ | "
    "PROT_WRITE,"
    " MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
    " memory[0] = 1; }",
    "asks_for_halves": "for (;;) { volatile char *memory = malloc(5ull << 30); memory[0] = 1; }",
    "hides_memory": ADD + "if (syscall(SYS_memfd_create, \"m\", 0) >= 0) c[0] = 666;",
    "keeps_signals": "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL); "
    "signal(SIGTERM, SIG_IGN); for (;;) {}",
}  # fmt: skip
