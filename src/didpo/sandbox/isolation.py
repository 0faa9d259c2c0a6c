"""All contact with the kernel's isolation: namespaces, pivot_root, landlock, capabilities, seccomp, limits.

Raw system calls through ctypes, because a helper program per case would cost more than the case. Sources: the manual
pages namespaces(7), user_namespaces(7), pivot_root(2), mount_setattr(2), landlock(7), seccomp(2), capabilities(7),
prctl(2), getrlimit(2), and the kernel's headers landlock.h, seccomp.h, bpf_common.h, audit.h and the system call tables
of x86_64 and aarch64. Order as root: namespaces, mounts, then a spare uid; everything is given up before any program.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import platform
import resource
import select
import signal
import struct
import sys
from collections.abc import Iterable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

STACK_BYTES = 512 << 20  # goes with the raised recursion limit
TMPFS_BYTES, TMPFS_INODES = 256 << 20, 32768
FIRST_SPARE_UID = 200_000
DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
WARM = """
    bisect collections copy datetime functools heapq itertools json math operator random re string typing
"""
ETC = ("ld.so.cache", "alternatives", "localtime", "mime.types")


def check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def syscall(number: int, what: str, *args: Any) -> int:
    return check(libc.syscall(ctypes.c_long(number), *args), what)


# ------------------------------------------------------------------ system call numbers: name -> (x86_64, aarch64)

_BOTH = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_open": 434, "clone3": 435,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "pidfd_send_signal": 424, "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
_TABLE: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "ptrace": (101, 117), "syslog": (103, 116), "personality": (135, 92), "mknod": (133, None),
    "mknodat": (259, 33), "pivot_root": (155, 41), "adjtimex": (159, 171), "chroot": (161, 51), "acct": (163, 89),
    "settimeofday": (164, 170), "mount": (165, 40), "umount2": (166, 39), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None),
    "ioperm": (173, None), "init_module": (175, 105), "delete_module": (176, 106), "quotactl": (179, 60),
    "lookup_dcookie": (212, 18), "clock_settime": (227, 112), "kexec_load": (246, 104), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "migrate_pages": (256, 238), "unshare": (272, 97),
    "move_pages": (279, 239), "perf_event_open": (298, 241), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "clock_adjtime": (305, 266), "setns": (308, 268), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "finit_module": (313, 273), "kexec_file_load": (320, 294),
    "bpf": (321, 280), "userfaultfd": (323, 282), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "setpriority": (141, 140), "ioprio_set": (251, 30), "clone": (56, 220), "fork": (57, None),
    "vfork": (58, None), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "execve": (59, 221), "execveat": (322, 281), "memfd_create": (319, 279),
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "capset": (126, 91), "fcntl": (72, 25),
    **{name: (number, number) for name, number in _BOTH.items()},
}  # fmt: skip
_ARCH = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# Denied to everything inside, from the zygote on.
DENIED = """
    socket ptrace syslog personality mknod mknodat pivot_root adjtimex chroot acct settimeofday mount umount2 swapon
    swapoff reboot sethostname setdomainname iopl ioperm init_module delete_module quotactl lookup_dcookie
    clock_settime kexec_load add_key request_key keyctl migrate_pages unshare move_pages perf_event_open
    name_to_handle_at open_by_handle_at clock_adjtime setns process_vm_readv process_vm_writev kcmp finit_module
    kexec_file_load bpf userfaultfd shmget msgget semget mq_open setpriority ioprio_set io_uring_setup
    io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_getfd
    process_madvise mount_setattr quotactl_fd memfd_secret pidfd_send_signal
"""
# Allowed only where the first argument, a process, is 0: the caller itself.
OWN_ONLY = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
# Denied besides to a program that may start no process.
NO_PROCESS = "fork vfork execve execveat tkill rt_sigqueueinfo rt_tgsigqueueinfo memfd_create pidfd_open"


def number(name: str) -> int | None:
    return _TABLE[name][_ARCH[platform.machine()][0]]


def _call(name: str) -> int:
    value = number(name)
    assert value is not None
    return value


# ------------------------------------------------------------------ seccomp

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = _ERRNO | 1, _ERRNO | 38
_PID = 0x7FFFA5A5  # stands for a pid that is not known yet
_NEW_NAMESPACES, _CLONE_THREAD = 0x7E020080, 0x10000


def _op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("HBBI", code, jt, jf, k)


def _argument_rule(name: str, test: bytes, if_true: int, if_false: int) -> bytes:
    """For call `name`: look at the low half of its first argument. `test` jumps 0 or 1 ahead."""
    nr = number(name)
    if nr is None:
        return b""
    return _op(_JEQ, nr, 0, 4) + _op(_LD, 16) + test + _op(_RET, if_true) + _op(_RET, if_false)


def build_filter(strict_pid: int | None) -> bytes:
    """The filter of the zygote, or (given its pid) that of a program that may start no process."""
    arch = _ARCH[platform.machine()][1]
    code = _op(_LD, 4) + _op(_JEQ, arch, 1, 0) + _op(_RET, _KILL) + _op(_LD, 0)
    if platform.machine() == "x86_64":  # the x32 numbers name the same calls once more
        code += _op(_JGE, 0x40000000, 0, 1) + _op(_RET, _KILL)
    code += _op(_JEQ, _call("clone3"), 0, 1) + _op(_RET, _ENOSYS)  # its flags cannot be seen; glibc then uses clone
    if strict_pid is None:
        for name in DENIED.split():
            if (nr := number(name)) is not None:
                code += _op(_JEQ, nr, 0, 1) + _op(_RET, _EPERM)
        for name in OWN_ONLY.split():
            code += _argument_rule(name, _op(_JEQ, 0, 0, 1), _ALLOW, _EPERM)
        code += _argument_rule("clone", _op(_JSET, _NEW_NAMESPACES, 0, 1), _EPERM, _ALLOW)
    else:
        for name in NO_PROCESS.split():
            if (nr := number(name)) is not None:
                code += _op(_JEQ, nr, 0, 1) + _op(_RET, _EPERM)
        code += _argument_rule("clone", _op(_JSET, _CLONE_THREAD, 0, 1), _ALLOW, _EPERM)
        for name in ("kill", "tgkill"):
            code += _argument_rule(name, _op(_JEQ, strict_pid, 0, 1), _ALLOW, _EPERM)
    return code + _op(_RET, _ALLOW)


def install_filter(code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer)))
    check(libc.prctl(22, 2, program, 0, 0), "seccomp")  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


# ------------------------------------------------------------------ landlock

_READ, _WRITE_FILE, _FS_ALL = 0b1101, 0x2 | 0x4000 | 0x8000, 0x1FFF
_SPECIAL_FILES = 0x40 | 0x800  # making device nodes


def landlock_abi() -> int:
    """0 where the kernel has none."""
    result = libc.syscall(ctypes.c_long(_call("landlock_create_ruleset")), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(result))


def restrict_files(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """Landlock: only these trees, no TCP, no signals or abstract sockets across the border, as far as the ABI goes."""
    abi = landlock_abi()
    if abi < 1:
        raise OSError(38, "landlock is not available")
    handled = _FS_ALL | (0x2000 if abi >= 2 else 0) | (0x4000 if abi >= 3 else 0) | (0x8000 if abi >= 5 else 0)
    ruleset = _ruleset(abi, handled, 3, 3)
    for paths, rights in ((readable, _READ), (writable, handled & ~_SPECIAL_FILES), (devices, 0x4 | _WRITE_FILE)):
        for path in paths:
            if not os.path.exists(path):
                continue
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights & handled
            if not os.path.isdir(path):
                allowed &= 0x1 | 0x4 | _WRITE_FILE
            rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, fd))
            args = (ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
            syscall(_call("landlock_add_rule"), f"landlock rule for {path}", *args)
            os.close(fd)
    _restrict(ruleset)


def restrict_signals() -> None:
    """A further landlock layer for a program that may start processes: it cannot signal the zygote (ABI 6)."""
    abi = landlock_abi()
    if abi >= 6:
        _restrict(_ruleset(abi, 0, 0, 3))


def _ruleset(abi: int, files: int, net: int, scoped: int) -> int:
    fields = [files] + ([net] if abi >= 4 else []) + ([scoped] if abi >= 6 else [])
    attr = ctypes.create_string_buffer(struct.pack(f"{len(fields)}Q", *fields))
    size = ctypes.c_size_t(8 * len(fields))
    return syscall(_call("landlock_create_ruleset"), "landlock", attr, size, ctypes.c_uint(0))


def _restrict(ruleset: int) -> None:
    syscall(_call("landlock_restrict_self"), "landlock", ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


# ------------------------------------------------------------------ namespaces and mounts

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 4096, 16384, 1 << 18


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None)
    check(result, f"mount {target}")


def _read_only(target: str, recursive: bool, keep_devices: bool = False) -> None:
    attributes = 1 | 2 | (0 if keep_devices else 4)  # MOUNT_ATTR_RDONLY, NOSUID, NODEV
    attr = ctypes.create_string_buffer(struct.pack("4Q", attributes, 0, 0, 0))
    args = (ctypes.c_int(-100), target.encode(), ctypes.c_uint(0x8000 if recursive else 0), attr, ctypes.c_size_t(32))
    syscall(_call("mount_setattr"), f"read-only {target}", *args)


def unshare_all() -> None:
    """New namespaces. Root does without a user namespace where it may; anyone else gets one with only their own uid."""
    flags = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | _NEWCGROUP
    if os.geteuid() == 0 and libc.unshare(ctypes.c_int(flags)) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    check(libc.unshare(ctypes.c_int(flags | _NEWUSER)), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def build_root(readable: list[str], home: str, uid: int) -> None:
    """Make a small read-only root of binds with a private disk at `home`, and move into it."""
    mount("none", "/", "", _REC | _PRIVATE)
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in _mountable(readable)}
    links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
    new = "/tmp"  # exists everywhere; what it holds stays reachable through the descriptors just opened
    mount("tmpfs", new, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path, target in links.items():
        os.symlink(target, new + path)
    for path, fd in sources.items():
        _bind(f"/proc/self/fd/{fd}", new + path, os.path.isdir(f"/proc/self/fd/{fd}"), path.startswith("/dev/"))
        os.close(fd)
    for name, number_ in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        os.symlink(f"/proc/self/fd/{number_}", f"{new}/dev/{name}")
    os.symlink("/proc/self/fd", f"{new}/dev/fd")
    os.mkdir(new + home)
    options = f"size={TMPFS_BYTES},nr_inodes={TMPFS_INODES},mode=700"
    mount("tmpfs", new + home, "tmpfs", _NOSUID | _NODEV, options)
    os.chown(new + home, uid, -1)
    os.mkdir(f"{new}/proc")
    mount("proc", f"{new}/proc", "proc", _NOSUID | _NODEV | 8, "subset=pid,hidepid=invisible")
    os.chdir(new)
    syscall(_call("pivot_root"), "pivot_root", b".", b".")
    check(libc.umount2(b".", ctypes.c_int(2)), "umount the old root")  # MNT_DETACH
    os.chdir("/")
    _read_only("/", recursive=False)


def _mountable(readable: list[str]) -> list[str]:
    """Folders and files to bind; none that lies below another."""
    wanted = [p for p in readable if os.path.exists(p) and not os.path.islink(p)]
    wanted += [f"/dev/{name}" for name in DEVICES]
    return [p for p in wanted if not any(p != q and p.startswith(q + "/") for q in wanted)]


def _bind(source: str, target: str, folder: bool, device: bool) -> None:
    if folder:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, "", _BIND | _REC)
    _read_only(target, recursive=True, keep_devices=device)


# ------------------------------------------------------------------ giving up privileges


def drop_bounding() -> None:
    """No program started later can gain a capability."""
    libc.prctl(47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, CLEAR_ALL
    for capability in range(64):
        if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP: fails past the last one, or without CAP_SETPCAP
            break


def drop_capabilities() -> None:
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    syscall(_call("capset"), "capset", header, ctypes.create_string_buffer(24))


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def readable_by(uid: int, paths: Iterable[str]) -> bool:
    """Whether that user could open all of these, tried in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            for path in paths:
                os.listdir(path)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ------------------------------------------------------------------ entering


class State:
    """What the zygote remembers about its own confinement."""

    level = "process"
    home = ""
    enforces_processes = False  # RLIMIT_NPROC does not bind root
    strict_filter = b""  # ready but for the pid
    page = resource.getpagesize()
    children_fd = -1
    statm_fd = -1


def raise_stack() -> None:
    """A larger stack takes a new program image to become usable: execute this interpreter again, once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {})


def enter(settings: dict[str, Any], control: int) -> dict[str, Any]:
    """Lock this process down to the level asked for, and return facts about it. Raises OSError where that fails.

    Where namespaces are made, the caller waits outside as the parent of the process that goes on.
    """
    State.level = settings["level"]
    close_others([control])
    root = os.geteuid() == 0
    spare = FIRST_SPARE_UID + os.getpid() if root else os.geteuid()
    prefix, packages = settings["prefix"], settings["site"]
    readable = [*SYSTEM, *(f"/etc/{name}" for name in ETC), *prefix, *packages]
    sys.path += packages
    for name in WARM.split():
        importlib.import_module(name)
    environment = {
        "PATH": ":".join([*(f"{p}/bin" for p in prefix), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ":".join(packages),
    }  # fmt: skip
    if State.level == "namespaced":
        unshare_all()
        _go_on_as_child()
        # an interpreter or its packages may lie below /tmp: that is then a folder to read, and the disk is elsewhere
        State.home = "/private" if any(p.startswith("/tmp/") for p in readable) else "/tmp"
        build_root(readable, State.home, spare)
        libc.sethostname(b"sandbox", ctypes.c_size_t(7))
        readable = ["/"]
    else:
        State.home = settings["home"]
        libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: daemons come back to this process
    State.statm_fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    children = f"/proc/self/task/{os.getpid()}/children"
    State.children_fd = os.open(children, os.O_RDONLY | os.O_CLOEXEC) if os.path.exists(children) else -1
    if State.level != "process":
        switch = root and (State.level == "namespaced" or settings["shell"] or readable_by(spare, prefix + packages))
        scoped = State.level == "namespaced" or landlock_abi() >= 6  # signals cannot leave the sandbox
        State.enforces_processes = switch or (not root and scoped)
        if State.level == "filtered" and switch:
            os.chown(State.home, spare, -1)
        _lock(readable, switch, spare)
    os.environ.clear()
    os.environ.update(environment | {"HOME": State.home, "TMPDIR": State.home})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(20_000)
    sys.set_int_max_str_digits(0)
    processes = State.enforces_processes or State.level == "process"
    return {"home": State.home, "uid": os.geteuid(), "landlock": landlock_abi(), "processes": processes}


def _go_on_as_child() -> None:
    """The child is process 1 of the new namespace; the parent stays outside and ends with it."""
    pid = os.fork()
    if pid:
        os.closerange(0, 4096)
        os.waitpid(pid, 0)
        os._exit(0)
    check(libc.prctl(1, signal.SIGKILL, 0, 0, 0), "prctl")  # PR_SET_PDEATHSIG


def _lock(readable: list[str], switch: bool, spare: int) -> None:
    check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    restrict_files([*readable, "/proc"] if State.level == "namespaced" else readable, [State.home], _devices())
    drop_bounding()
    if switch:
        become(spare)
    drop_capabilities()
    if State.level == "namespaced":
        check(libc.prctl(1, signal.SIGKILL, 0, 0, 0), "prctl")  # a change of uid clears it
    check(libc.prctl(4, 0, 0, 0, 0), "not dumpable")
    install_filter(build_filter(None))
    State.strict_filter = build_filter(_PID)


def _devices() -> list[str]:
    return [f"/dev/{name}" for name in DEVICES]


# ------------------------------------------------------------------ children


def close_others(keep: Iterable[int]) -> None:
    """Close every descriptor from 3 on that is not in `keep`."""
    low = 3
    for fd in sorted({fd for fd in keep if fd >= 3}):
        os.closerange(low, fd)
        low = fd + 1
    libc.syscall(ctypes.c_long(436), ctypes.c_uint(low), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0))  # close_range


def own_bytes() -> int:
    """Address space that this process takes before it runs a program."""
    return int(os.pread(State.statm_fd, 64, 0).split()[0]) * State.page


def confine_child(limits: dict[str, Any], memory: int) -> None:
    """In the forked child, before any of the program: limits on top of the zygote's own size, and no new processes
    unless the limits allow some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # ends with the zygote
    for kind, value in (
        (resource.RLIMIT_AS, memory + (limits["memory_mb"] << 20)),
        (resource.RLIMIT_FSIZE, max(limits["file_bytes"], limits["output_bytes"])),
        (resource.RLIMIT_NOFILE, 256),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    if State.level == "process":
        return
    if limits["processes"] and State.enforces_processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 2,) * 2)
        if State.level == "filtered":
            restrict_signals()
    else:
        install_filter(State.strict_filter.replace(struct.pack("I", _PID), struct.pack("I", os.getpid())))


def kill_all(pids: list[int]) -> None:
    """Kill these and everything else that a program started. Alone in a namespace, that is everything but process 1;
    elsewhere orphans come back to this process and are killed until none is left."""
    if State.level == "namespaced":
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    for pid in {*pids, *_children()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    return [] if State.children_fd < 0 else [int(p) for p in os.pread(State.children_fd, 1 << 16, 0).split()]


def reap_all() -> float:
    """Collect everything that has been killed; the CPU seconds it used."""
    cpu = 0.0
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu
        if pid == 0:  # alive: an orphan that has come to this process since
            kill_all([])
            select.select([], [], [], 0.001)
            continue
        cpu += usage.ru_utime + usage.ru_stime


def used_disk() -> int:
    """Bytes in the private folder."""
    if State.level == "namespaced":
        info = os.statvfs(State.home)
        return (info.f_blocks - info.f_bfree) * info.f_frsize
    total = 0
    for folder, _, names in os.walk(State.home):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def used_memory() -> int:
    """Resident bytes of all processes inside but the zygote. 0 where they cannot be listed."""
    if State.level != "namespaced":
        return 0
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            with contextlib.suppress(OSError), open(f"/proc/{name}/statm", "rb") as file:
                total += int(file.read().split()[1]) * State.page
    return total


def preload(name: str) -> None:
    """Import an installed library, so that its children have it."""
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
