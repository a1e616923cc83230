//! Starting a command.

use super::Refusal;
use super::files::Files;
use crate::level::Level;
use crate::sys;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use venus_core::message::sandbox::SandboxErrorKind;

const STACK: usize = 64 << 10;

pub(crate) struct Starter {
    level: Level,
    root: PathBuf,
    stack: Vec<u8>,
}

/// Everything the child needs, laid out before it exists: it shares our memory and may only make system calls.
struct Launch {
    programs: Vec<CString>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: RawFd,
    stdin: RawFd,
    output: RawFd,
    /// The error that kept the program from starting, or 0.
    error: AtomicI32,
}

impl Starter {
    pub(crate) fn new(level: Level, root: PathBuf) -> Self {
        Self { level, root, stack: vec![0; STACK] }
    }

    /// Starts a command with its output on `fds[0]` and input from `fds[1]` or nothing; its first process.
    pub(crate) fn start(
        &mut self,
        files: &Files,
        mut argv: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<&str>,
        fds: Vec<OwnedFd>,
        stdin: bool,
    ) -> Result<i32, Refusal> {
        let invalid = |message: String| (SandboxErrorKind::Invalid, message);
        let internal = |error: std::io::Error| (SandboxErrorKind::Internal, format!("cannot start a command: {error}"));
        if argv.is_empty() {
            return Err(invalid("argv is empty: name a program".to_owned()));
        }
        if self.level == Level::Confined {
            self.translate(files, &mut argv);
        }
        let null = File::open("/dev/null").map_err(internal)?;
        let cwd = files.directory(cwd.unwrap_or(""))?;
        let programs = strings(candidates(&argv[0], env.get("PATH")))?;
        let arguments = strings(argv.clone())?;
        let variables = strings(env.into_iter().map(|(name, value)| format!("{name}={value}")))?;
        let launch = Launch {
            programs,
            argv: pointers(&arguments),
            env: pointers(&variables),
            cwd: cwd.as_raw_fd(),
            stdin: if stdin { fds[1].as_raw_fd() } else { null.as_raw_fd() },
            output: fds[0].as_raw_fd(),
            error: AtomicI32::new(0),
        };
        // SAFETY: `become_command` only makes system calls on `launch`, which outlives the call, and ends in exec or exit.
        let pid = unsafe {
            sys::spawn_sharing_memory(&mut self.stack, become_command, (&raw const launch).cast_mut().cast::<c_void>())
        };
        let pid = pid.map_err(|error| {
            (SandboxErrorKind::Busy, format!("cannot start a process ({error}): the sandbox is at its process limit"))
        })?;
        match launch.error.load(Ordering::Acquire) {
            0 => Ok(pid),
            error => {
                let error = std::io::Error::from_raw_os_error(error);
                Err(invalid(format!("cannot run {}: {error}", argv[0])))
            }
        }
    }

    /// Without a root of its own, an argument that names something in the sandbox's tree is made to name it from outside.
    fn translate(&self, files: &Files, argv: &mut [String]) {
        for argument in argv.iter_mut().filter(|argument| argument.len() > 1 && argument.starts_with('/')) {
            if files.exists(argument) {
                argument.insert_str(0, &self.root.to_string_lossy());
            }
        }
    }
}

fn candidates(program: &str, path: Option<&String>) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = path.map_or("/usr/bin:/bin", String::as_str);
    path.split(':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| format!("{directory}/{program}"))
        .collect()
}

fn strings(texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>, Refusal> {
    let string = |text| {
        let message = "an argument or a variable contains a zero byte".to_owned();
        CString::new(text).map_err(|_| (SandboxErrorKind::Invalid, message))
    };
    texts.into_iter().map(string).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

extern "C" fn become_command(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Launch` and sleeps until this process has exec'ed or ended.
    let launch = unsafe { &*argument.cast::<Launch>() };
    let error = launch.run();
    launch.error.store(error, Ordering::Release);
    sys::exit_now(127)
}

impl Launch {
    /// Returns only if the program cannot be started.
    fn run(&self) -> i32 {
        // SAFETY: plain system calls; the signal set is initialised before use.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::setsid();
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
            // What detaches from this command stays below it (see `tree`).
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            if libc::fchdir(self.cwd) < 0
                || libc::dup2(self.stdin, 0) < 0
                || libc::dup2(self.output, 1) < 0
                || libc::dup2(self.output, 2) < 0
            {
                return *libc::__errno_location();
            }
        }
        let mut error = libc::ENOENT;
        for program in &self.programs {
            match sys::exec(program, &self.argv, &self.env) {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => error = libc::EACCES,
                other => return other,
            }
        }
        error
    }
}
