"""System calls by name and number, grouped by what a candidate may do with them.

For the machines whose filters can be written. Numbers are from the kernel's
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# For each name the number on x86_64 and on aarch64; None where the machine lacks the call.
CallTable = Mapping[str, tuple[int | None, int | None]]

# The most frequent come first.
HARMLESS: CallTable = MappingProxyType({
    "futex": (202, 98), "clock_gettime": (228, 113), "munmap": (11, 215), "madvise": (28, 233),
    "mprotect": (10, 226), "brk": (12, 214), "sched_yield": (24, 124), "write": (1, 64),
    "read": (0, 63), "close": (3, 57), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "clock_getres": (229, 114), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62),
    "fstat": (5, 80), "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "getdents64": (217, 61),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe2": (293, 59), "poll": (7, None),
    "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "eventfd2": (290, 19), "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83),
    "statfs": (137, 43), "fstatfs": (138, 44), "fadvise64": (221, 223), "mremap": (25, 216),
    "msync": (26, 227), "mincore": (27, 232), "mlock": (149, 228), "munlock": (150, 229),
    "membarrier": (324, 283), "get_mempolicy": (239, 236), "set_mempolicy": (238, 237),
    "mbind": (237, 235), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "rseq": (334, 293), "set_tid_address": (218, 96), "gettid": (186, 178), "getpid": (39, 172),
    "getppid": (110, 173), "exit": (60, 93), "exit_group": (231, 94), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigtimedwait": (128, 137),
    "rt_sigpending": (127, 136), "sigaltstack": (131, 132), "restart_syscall": (219, 128),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "getcpu": (309, 168), "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
    "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None), "pause": (34, None),
    "getrandom": (318, 278), "uname": (63, 160), "sysinfo": (99, 179), "getrlimit": (97, 163),
    "getrusage": (98, 165), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150),
    "getgroups": (115, 158), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "arch_prctl": (158, None), "wait4": (61, 260), "waitid": (247, 95), "umask": (95, 166),
    "pkey_alloc": (330, 289), "pkey_free": (331, 290), "pkey_mprotect": (329, 288),
})  # fmt: skip

# Allowed with some arguments only; the filter says which.
MAPPING: CallTable = MappingProxyType({"mmap": (9, 222)})
CLONING: CallTable = MappingProxyType({"clone": (56, 220)})
SIGNALLING: CallTable = MappingProxyType({
    "tgkill": (234, 131), "kill": (62, 129), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
})  # fmt: skip
CONTROLLING: CallTable = MappingProxyType({
    "ioctl": (16, 29), "fcntl": (72, 25), "prctl": (157, 167), "prlimit64": (302, 261),
    "sendmsg": (46, 211),
})  # fmt: skip
OPENING: CallTable = MappingProxyType({"openat": (257, 56), "open": (2, None)})

# Refused to kernels. Allowed to libraries, as far as the fence around files lets them.
CHANGING: CallTable = MappingProxyType({
    "mkdir": (83, None), "mkdirat": (258, 34), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "rmdir": (84, None),
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "utimensat": (280, 88), "creat": (85, None), "fallocate": (285, 47),
})  # fmt: skip

# Which a compiler starts its passes with. They are offences of kernels.
PASSES: CallTable = MappingProxyType({
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221),
})  # fmt: skip

# What no tensor kernel ever does: an attempt ends the trial, by name.
OFFENCES: CallTable = MappingProxyType({
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206),
    "sendmmsg": (307, 269), "recvfrom": (45, 207), "recvmsg": (47, 212), "recvmmsg": (299, 243),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "kcmp": (312, 272), "tkill": (200, 130), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "shmat": (30, 196), "mq_open": (240, 180), "msgget": (68, 186),
    "semget": (64, 190), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149),
    "setgroups": (116, 159), "capset": (126, 91), "setsid": (112, 157), "setpgid": (109, 154),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "ioperm": (173, None), "iopl": (172, None), "quotactl": (179, 60),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An architecture whose system calls can be filtered."""

    audit: int  # AUDIT_ARCH_* of linux/audit.h
    column: int  # of the tables above
    # The first number of a second table that must not be used (x32); None: there is none.
    second_table: int | None


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "x86_64": Machine(audit=0xC000003E, column=0, second_table=0x40000000),
        "aarch64": Machine(audit=0xC00000B7, column=1, second_table=None),
    }
)


def numbers(table: CallTable, machine: str) -> dict[str, int]:
    """Name to number on `machine`, one of MACHINES. Calls that it lacks are left out."""
    column = MACHINES[machine].column
    return {name: number for name, row in table.items() if (number := row[column]) is not None}


def call_names(machine: str) -> dict[int, str]:
    """Number to name of every call above."""
    tables = (HARMLESS, MAPPING, CLONING, SIGNALLING, CONTROLLING, OPENING, CHANGING, OFFENCES)
    return {number: name for table in tables for name, number in numbers(table, machine).items()}
