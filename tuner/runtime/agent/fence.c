/* What a candidate's process does to itself before it loads generated code.
 *
 * Privileges go first, then every file of the system, then all system calls but those of a kernel. The library is in memory
 * without a path by then, and needs no file. A kernel of the system that has a mechanism must grant it. */
#define _GNU_SOURCE
#include "fence.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol.h"

enum { CHANNEL = 3, OPEN_FILES = 32, NOBODY = 65534 };

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#else
#error "system calls of this architecture are not listed"
#endif

/* Of Linux' include/uapi/linux/landlock.h, which headers before 5.13 lack. */
enum { CREATE_RULESET = 444, RESTRICT_SELF = 446, ASK_VERSION = 1 };
struct ruleset {
  uint64_t files, network, scopes;
};

/* What kernels, the threads of their pool and the loader of libraries call. */
static const int ALLOWED[] = {
    SYS_futex, SYS_clock_gettime, SYS_read, SYS_write, SYS_close, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
    SYS_brk, SYS_sched_yield, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_getres, SYS_gettimeofday, SYS_lseek, SYS_pread64,
    SYS_fstat, SYS_statx, SYS_readlinkat, SYS_getcwd, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getrandom, SYS_getrusage, SYS_uname, SYS_sysinfo,
    SYS_sched_getaffinity, SYS_getcpu, SYS_set_robust_list, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
    SYS_exit, SYS_exit_group, SYS_restart_syscall, SYS_membarrier,
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_newfstatat
    SYS_newfstatat,
#endif
#ifdef SYS_stat
    SYS_stat, SYS_access, SYS_readlink, SYS_time, SYS_arch_prctl,
#endif
#ifdef SYS_riscv_flush_icache
    SYS_riscv_flush_icache,
#endif
};

/* Refused with an error that libraries live with. */
static const int FUTILE[] = {SYS_ioctl, SYS_fcntl, SYS_prctl, SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setscheduler,
                             SYS_mlock, SYS_setpriority};

enum { MOST_STEPS = 256 };
static struct sock_filter steps[MOST_STEPS];
static unsigned short count;

static void step(uint16_t code, uint32_t operand, uint8_t if_true, uint8_t if_false) {
  if (count == MOST_STEPS) abort();
  steps[count++] = (struct sock_filter){code, if_true, if_false, operand};
}

static void answer(uint32_t action) { step(BPF_RET | BPF_K, action, 0, 0); }
static void look_at(uint32_t offset) { step(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0); }

static void rule(int call, uint32_t action) {
  step(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1);
  answer(action);
}

static void write_filter(void) {
  const uint32_t argument = offsetof(struct seccomp_data, args), flags = argument + 2 * sizeof(uint64_t);
  const uint32_t changes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  count = 0;
  look_at(offsetof(struct seccomp_data, arch));
  step(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  answer(SECCOMP_RET_KILL_PROCESS);
  look_at(offsetof(struct seccomp_data, nr));
  for (size_t i = 0; i < sizeof ALLOWED / sizeof ALLOWED[0]; ++i) rule(ALLOWED[i], SECCOMP_RET_ALLOW);
  for (size_t i = 0; i < sizeof FUTILE / sizeof FUTILE[0]; ++i) rule(FUTILE[i], SECCOMP_RET_ERRNO | EPERM);
  rule(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS); /* its flags are in memory: the C library falls back to clone */
  step(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
  look_at(argument); /* threads, no processes */
  step(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
  answer(SECCOMP_RET_ALLOW);
  answer(SECCOMP_RET_KILL_PROCESS);
  step(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4);
  look_at(argument); /* itself: abort and faults end it by their own signal */
  step(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1);
  answer(SECCOMP_RET_ALLOW);
  answer(SECCOMP_RET_KILL_PROCESS);
  step(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4);
  look_at(flags); /* reading only */
  step(BPF_JMP | BPF_JSET | BPF_K, changes, 1, 0);
  answer(SECCOMP_RET_ALLOW);
  answer(SECCOMP_RET_ERRNO | EACCES);
  answer(SECCOMP_RET_KILL_PROCESS);
}

/* 1 where calls are filtered from here on, 0 where the kernel cannot, -1 where it refuses. */
static int fence_calls(void) {
  write_filter();
  struct sock_fprog program = {count, steps};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return 1;
  return errno == EINVAL || errno == ENOSYS ? 0 : -1;
}

/* The same of files: none can be opened by a path, nor any port where the kernel knows of them. */
static int fence_files(void) {
  long version = syscall(CREATE_RULESET, NULL, (size_t)0, ASK_VERSION);
  if (version < 1) return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -1;
  /* Rights that each version knows: 13 of the first, then to refer, to truncate, devices. */
  static const int RIGHTS[] = {13, 14, 15, 15, 16};
  int rights = RIGHTS[version < 5 ? version - 1 : 4];
  struct ruleset rules = {(UINT64_C(1) << rights) - 1, version >= 4 ? 3 : 0, version >= 6 ? 3 : 0};
  size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  long ruleset = syscall(CREATE_RULESET, &rules, size, 0);
  if (ruleset < 0 || syscall(RESTRICT_SELF, (int)ruleset, 0) != 0) return -1;
  close((int)ruleset);
  return 1;
}

static int drop_privileges(void) {
  if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0))
    return -1;
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, none) != 0) return -1;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* once more: a change of user resets it */
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 1 : -1;
}

static int limit(int which, uint64_t most) {
  struct rlimit now;
  if (getrlimit(which, &now) != 0) return -1;
  if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most) most = now.rlim_max;
  return setrlimit(which, &(struct rlimit){most, most});
}

static uint64_t mapped_bytes(void) {
  unsigned long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  if (statm == NULL) return 0;
  if (fscanf(statm, "%lu", &pages) != 1) pages = 0;
  fclose(statm);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

int leave_descriptors(int channel) {
  int nowhere = open("/dev/null", O_RDWR);
  if (nowhere < 0 || dup2(nowhere, 0) < 0 || dup2(nowhere, 1) < 0 || dup2(nowhere, 2) < 0) return -1;
  if (channel != CHANNEL && dup2(channel, CHANNEL) < 0) return -1;
  long most = sysconf(_SC_OPEN_MAX);
  for (int other = CHANNEL + 1; other < (most > 0 && most < 4096 ? most : 4096); ++other) close(other);
  return CHANNEL;
}

int fence(uint64_t memory_bytes, uint32_t cpu_s) {
  uint64_t mapped = mapped_bytes();
  if (limit(RLIMIT_CORE, 0) != 0 || limit(RLIMIT_FSIZE, 0) != 0 || limit(RLIMIT_NOFILE, OPEN_FILES) != 0 ||
      limit(RLIMIT_CPU, cpu_s) != 0 || (mapped != 0 && limit(RLIMIT_AS, mapped + memory_bytes) != 0))
    return -1;
  int privileges = drop_privileges();
  if (privileges < 0) return -1;
  int files = fence_files();
  if (files < 0) return -1;
  int calls = fence_calls();
  if (calls < 0) return -1;
  return (privileges ? FENCE_PRIVILEGES : 0) | (files ? FENCE_FILES : 0) | (calls ? FENCE_CALLS : 0);
}
