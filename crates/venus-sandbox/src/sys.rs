//! Kernel calls that the libraries used here do not wrap.

use std::ffi::{CStr, CString, c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) fn cstring(path: impl AsRef<Path>) -> io::Result<CString> {
    CString::new(path.as_ref().as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a zero byte"))
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new process in its own namespaces.
pub(crate) enum Forked {
    Child,
    Parent(i32),
}

/// Forks into new namespaces (`CLONE_NEW*` in `flags`) and, where given, into a cgroup v2 directory.
/// Only for single-threaded processes: the child goes on with a copy of the caller's memory.
pub(crate) fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    // SAFETY: all-zero is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is a fork; `args` outlives the call and names valid memory.
    let cloned = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) });
    let pid = match cloned {
        // Container engines refuse the newer call, because a filter cannot look into its arguments.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && cgroup.is_none() => {
            // SAFETY: as above; a null stack is the caller's own.
            check(unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0) })?
        }
        other => other?,
    };
    if pid == 0 {
        return Ok(Forked::Child);
    }
    Ok(Forked::Parent(pid as i32))
}

/// Runs `body` in a forked child and gives its exit code; only for single-threaded processes.
pub(crate) fn in_child(body: impl FnOnce() -> i32) -> io::Result<i32> {
    match clone3(0, None)? {
        Forked::Child => exit_now(body()),
        Forked::Parent(pid) => wait(pid),
    }
}

/// Ends the process without running destructors or exit handlers of the memory it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Waits for one child: its exit code, or 128 + signal.
pub(crate) fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) })
}

/// Reaps one ended child if there is one: pid and wait status.
pub(crate) fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (pid > 0).then_some((pid, status))
}

/// Whether this process has any child, ended or not.
pub(crate) fn has_children() -> bool {
    // SAFETY: the structure is valid for the call; WNOWAIT leaves the child to `reap`.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) == 0
    }
}

pub(crate) fn kill(pid: i32, signal: c_int) -> io::Result<()> {
    // SAFETY: `kill` has no memory preconditions.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

pub(crate) fn prctl(operation: c_int, argument: c_ulong) -> io::Result<()> {
    // SAFETY: the operations used take integers only.
    check(unsafe { libc::prctl(operation, argument, 0, 0, 0) }.into()).map(drop)
}

/// A descriptor that becomes readable when a child ends. Blocks `SIGCHLD` for the process.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before use and outlives the calls; the new descriptor is owned by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        let fd = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Empties a `child_signals` descriptor.
pub(crate) fn drain(fd: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    while matches!(rustix::io::read(fd, &mut buffer), Ok(n) if n > 0) {}
}

/// Closes all descriptors but `keep`, which is sorted, and points the standard ones to `/dev/null`.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let null = cstring("/dev/null")?;
    let mut first = 3;
    for &fd in keep.iter().chain(&[RawFd::MAX]) {
        if fd > first {
            // SAFETY: the caller is a fresh child; whatever owned these descriptors does not run in it.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd.saturating_add(1);
    }
    // SAFETY: a valid C string; the new descriptor is copied over the standard ones and closed.
    unsafe {
        let fd = check(libc::open(null.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC).into())? as RawFd;
        for standard in 0..3 {
            check(libc::dup2(fd, standard).into())?;
        }
        libc::close(fd);
    }
    Ok(())
}

pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: `unshare` has no memory preconditions.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

pub(crate) fn mount(
    source: &str,
    target: impl AsRef<Path>,
    kind: &str,
    flags: c_ulong,
    options: &str,
) -> io::Result<()> {
    let (source, target, kind, options) = (cstring(source)?, cstring(target)?, cstring(kind)?, cstring(options)?);
    // SAFETY: four valid C strings.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(result.into()).map(drop)
}

/// Makes what is mounted at `source` appear at `target` too.
pub(crate) fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>, recursive: bool) -> io::Result<()> {
    let flags = libc::MS_BIND | if recursive { libc::MS_REC } else { 0 };
    mount(&source.as_ref().to_string_lossy(), target, "", flags, "")
}

/// Makes the working directory the root and lets go of the old one.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: valid C strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: as above; the old root lies on top of the new one.
    check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }.into())?;
    std::env::set_current_dir("/")
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
/// Read-only, no setuid programs, no device nodes.
pub(crate) const MOUNT_ATTR_SEALED: u64 = 0x1 | 0x2 | 0x4;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Attaches a copy of the mount below `source` at `target`, with attributes and, where given, ids mapped by a user namespace.
pub(crate) fn attach(source: &Path, target: &Path, set: u64, userns: Option<BorrowedFd<'_>>) -> io::Result<()> {
    const OPEN_TREE_CLONE: c_ulong = 1;
    const MOVE_MOUNT_F_EMPTY_PATH: c_ulong = 4;
    let (source, target) = (cstring(source)?, cstring(target)?);
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as c_ulong;
    // SAFETY: a valid C string; the new descriptor is owned by nobody else.
    let tree = unsafe {
        let fd = check(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags))?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    let mut attributes = MountAttr { set, clear: 0, propagation: 0, userns: 0 };
    if let Some(userns) = userns {
        attributes.set |= MOUNT_ATTR_IDMAP;
        attributes.userns = userns.as_raw_fd() as u64;
    }
    let (size, empty) = (size_of::<MountAttr>(), libc::AT_EMPTY_PATH);
    // SAFETY: `attributes` is laid out as the kernel's `mount_attr` and outlives the call.
    check(unsafe {
        libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), empty, &raw const attributes, size)
    })?;
    // SAFETY: valid C strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })?;
    Ok(())
}

/// Becomes a user and group with no other groups, in all of real, effective and saved.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no memory preconditions; an empty group list is valid with a null pointer.
    unsafe {
        // Fails where a user namespace forbids it; then there are no other groups to give up.
        let _ = libc::setgroups(0, std::ptr::null());
        check(libc::setresgid(gid, gid, gid).into())?;
        check(libc::setresuid(uid, uid, uid).into())?;
    }
    Ok(())
}

/// Sets a soft and hard resource limit.
pub(crate) fn set_rlimit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    // SAFETY: the structures are valid for the calls.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        check(libc::getrlimit(resource, &raw mut now).into())?;
        let value = value.min(now.rlim_max);
        check(libc::setrlimit(resource, &libc::rlimit { rlim_cur: value, rlim_max: value }).into()).map(drop)
    }
}

/// Takes all capabilities but those in `keep` (a bit mask) out of what any program could gain. Needs the right to do so;
/// without it there is nothing to gain either, once no_new_privs is set.
pub(crate) fn bound_capabilities(keep: u64) {
    for capability in (0..64).filter(|capability| keep & (1 << capability) == 0) {
        let _ = prctl(libc::PR_CAPBSET_DROP, capability);
    }
}

/// Gives up all capabilities but those in `keep` (a bit mask).
pub(crate) fn keep_capabilities(keep: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    // SAFETY: ambient clearing takes integers only.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let header: [u32; 2] = [VERSION_3, 0];
    let mut sets: [u32; 6] = [0; 6];
    // SAFETY: the arrays are laid out as `cap_user_header_t` and two `cap_user_data_t`.
    unsafe {
        check(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()))?;
        for (word, bits) in [(0, keep as u32), (1, (keep >> 32) as u32)] {
            sets[word * 3] &= bits;
            sets[word * 3 + 1] &= bits;
            sets[word * 3 + 2] = 0;
        }
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr())).map(drop)
    }
}

/// Brings up the loopback interface of the current network namespace.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: `request` is zeroed, named and used as `SIOCxIFFLAGS` expects; the socket is closed by its owner.
    unsafe {
        let fd = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let socket = OwnedFd::from_raw_fd(fd as RawFd);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into()).map(drop)
    }
}

pub(crate) fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length of a live string.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// Makes a device node.
pub(crate) fn make_device(path: &Path, major: u32, minor: u32) -> io::Result<()> {
    let path = cstring(path)?;
    // SAFETY: a valid C string.
    check(unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(major, minor)) }.into())?;
    // SAFETY: as above; the umask may have taken bits away.
    check(unsafe { libc::chmod(path.as_ptr(), 0o666) }.into()).map(drop)
}

/// Runs `entry(argument)` in a child that shares memory with the caller, which sleeps until the child has exec'ed or exited.
/// No page tables are copied, so this costs the same whatever the caller's size.
///
/// # Safety
/// `entry` may only make system calls on memory prepared before, and must end in exec or `_exit`.
pub(crate) unsafe fn spawn_sharing_memory(
    stack: &mut [u8],
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> io::Result<i32> {
    // The stack grows down on every architecture we build for; it must start 16-byte aligned.
    let top = (stack.as_mut_ptr_range().end as usize & !15) as *mut c_void;
    // SAFETY: the caller answers for `entry`; the stack outlives the child's use of it because of CLONE_VFORK.
    let pid = unsafe { libc::clone(entry, top, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument) };
    check(pid.into()).map(|pid| pid as i32)
}

/// Landlock's version here, 0 if there is none.
pub(crate) fn landlock_abi() -> u32 {
    // SAFETY: with this flag the kernel reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<c_void>(), 0, 1_u32) };
    u32::try_from(version).unwrap_or(0)
}

/// The user that runs this process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// The group that runs this process.
pub(crate) fn effective_gid() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::getegid() }
}

/// `execve`, for after a fork: returns only on failure, with the error number.
pub(crate) fn exec(program: &CStr, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> i32 {
    // SAFETY: both arrays end with a null pointer and point to live C strings.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// This process's id in its pid namespace.
pub(crate) fn own_pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// Names this process for `ps` and `top`.
pub(crate) fn set_name(name: &CStr) {
    // SAFETY: a valid C string, of which the kernel copies the first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Sets how little this process insists on the processor; raising that needs a privilege, and without it stays as it is.
pub(crate) fn set_nice(nice: c_int) {
    // SAFETY: no preconditions.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Sets the mode bits that new files never get.
pub(crate) fn set_umask(mask: libc::mode_t) {
    // SAFETY: no preconditions.
    unsafe { libc::umask(mask) };
}
