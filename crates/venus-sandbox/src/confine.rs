//! What a sandbox's init gives up for itself and all it starts: privileges, system calls, paths, resources.

use crate::level::Level;
use crate::sys;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use venus_core::message::sandbox::Limits;

/// chown, dac_override, fowner, fsetid, kill, setgid, setuid: what unpacking archives and dropping to another user need.
/// They hold over the sandbox's own ids only, and are kept only where those are a range of their own.
const ROOT_CAPABILITIES: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;

/// System calls that fail with EPERM whatever their arguments: they change mounts, namespaces, the kernel, the clock or
/// other processes, or are large attack surface that no build or test needs (Docker's default list, plus io_uring,
/// userfaultfd and keyrings).
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_kexec_file_load, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// The compiled filters of a level, to be loaded in order.
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Fails on an architecture the compiler does not know.
    pub(crate) fn new(level: Level) -> io::Result<Self> {
        let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
            REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
        refused.insert(libc::SYS_clone, namespace_clones()?);
        refused.insert(libc::SYS_socket, sockets(level)?);
        refused.insert(libc::SYS_ioctl, terminal_injections()?);
        if level == Level::Confined {
            // Without a pid namespace of its own a sandbox could see the host's processes through these.
            refused.insert(libc::SYS_ptrace, Vec::new());
            refused.insert(libc::SYS_process_vm_readv, Vec::new());
        }
        // Its flags lie in memory, out of a filter's sight; libraries fall back to `clone` on ENOSYS.
        let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let mut programs = vec![compile(refused, libc::EPERM)?, compile(absent, libc::ENOSYS)?];
        programs.extend(foreign_numbers());
        Ok(Self(programs))
    }

    /// Loads them into this process, for a trial.
    pub(crate) fn load_here(&self) -> io::Result<()> {
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
        self.load()
    }

    fn load(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
    }
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

fn rule(conditions: Vec<Condition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn condition(argument: u8, op: Op, value: u64) -> io::Result<Condition> {
    Condition::new(argument, Width::Qword, op, value).map_err(io::Error::other)
}

fn namespace_clones() -> io::Result<Vec<SeccompRule>> {
    [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWCGROUP,
    ]
    .into_iter()
    .map(|flag| rule(vec![condition(0, Op::MaskedEq(flag as u64), flag as u64)?]))
    .collect()
}

/// Families a sandbox may open. Without a network namespace of its own: none, since even a unix socket may lead to a
/// service of the host (`socketpair` stays).
fn sockets(level: Level) -> io::Result<Vec<SeccompRule>> {
    if level == Level::Confined {
        return Ok(Vec::new());
    }
    let allowed = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let conditions: io::Result<Vec<Condition>> = allowed
        .into_iter()
        .map(|family| Condition::new(0, Width::Dword, Op::Ne, family as u64).map_err(io::Error::other))
        .collect();
    Ok(vec![rule(conditions?)?])
}

fn terminal_injections() -> io::Result<Vec<SeccompRule>> {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541C;
    [TIOCSTI, TIOCLINUX]
        .into_iter()
        .map(|request| {
            let equal = Condition::new(1, Width::Dword, Op::Eq, request).map_err(io::Error::other)?;
            rule(vec![equal])
        })
        .collect()
}

/// x86-64 kernels may answer to a second set of numbers (x32) that the filters above do not know.
fn foreign_numbers() -> Option<BpfProgram> {
    const X32: u32 = 0x4000_0000;
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| seccompiler::sock_filter { code, jt, jf, k };
    cfg!(target_arch = "x86_64").then(|| {
        vec![
            step(LOAD_NUMBER, 0, 0, 0),
            step(JUMP_IF_AT_LEAST, 0, 1, X32),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    })
}

/// Per-process limits. `memory` is set only where no cgroup limits the whole sandbox.
pub(crate) fn set_rlimits(limits: &Limits, memory: bool, pids: bool) -> io::Result<()> {
    sys::set_rlimit(libc::RLIMIT_CORE, 0)?;
    sys::set_rlimit(libc::RLIMIT_NOFILE, 4096)?;
    sys::set_rlimit(libc::RLIMIT_MEMLOCK, 64 << 10)?;
    if let Some(size) = limits.file_size {
        sys::set_rlimit(libc::RLIMIT_FSIZE, size.0)?;
    }
    if let Some(bytes) = limits.memory.filter(|_| memory) {
        sys::set_rlimit(libc::RLIMIT_DATA, bytes.0)?;
    }
    if let Some(count) = limits.pids.filter(|_| pids) {
        sys::set_rlimit(libc::RLIMIT_NPROC, count.into())?;
    }
    Ok(())
}

/// Gives up, for good, everything but the sandbox itself. `root` is its root directory as this process sees it.
pub(crate) fn lock_down(level: Level, root: &Path, filters: &Filters) -> io::Result<()> {
    let keep = if level == Level::Root { ROOT_CAPABILITIES } else { 0 };
    sys::bound_capabilities(keep);
    sys::keep_capabilities(keep)?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    restrict_paths(level, root)?;
    filters.load()
}

/// Host paths a confined sandbox may read and run.
const READABLE: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/proc",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/ssl/certs",
    "/etc/mime.types",
    "/sys/devices/system/cpu",
];
/// Host devices it may use.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

fn restrict_paths(level: Level, root: &Path) -> io::Result<()> {
    if sys::landlock_abi() == 0 {
        return Ok(()); // Reported as missing by the probe.
    }
    let abi = ABI::V6;
    let restrict = || -> Result<(), Box<dyn std::error::Error>> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?;
        rules = rules.add_rule(PathBeneath::new(PathFd::new(root)?, AccessFs::from_all(abi)))?;
        if level == Level::Confined {
            for path in READABLE {
                if let Ok(fd) = PathFd::new(path) {
                    rules = rules.add_rule(PathBeneath::new(fd, AccessFs::from_read(abi)))?;
                }
            }
            for path in DEVICES {
                if let Ok(fd) = PathFd::new(path) {
                    rules = rules.add_rule(PathBeneath::new(fd, AccessFs::from_file(abi)))?;
                }
            }
        }
        rules.restrict_self()?;
        Ok(())
    };
    restrict().map_err(|error| io::Error::other(format!("landlock: {error}")))
}
