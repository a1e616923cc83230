//! Time from asking for a sandbox to the first output of a shell in it, beside bubblewrap and runc, in one run.
//!
//! `cargo run --release -p venus-sandbox --example launch -- [ROUNDS] [LEVEL]`
//!
//! Every contender gets the same: new user (except runc), pid, mount, network, ipc and uts namespaces, the host's `/usr` under a root of
//! its own, and `sh -c 'echo ready'`. One at a time, then 32 at once; the contenders take turns so that a busy machine is
//! unfair to none. `venus` includes cgroup limits, a writable overlay, seccomp and landlock, and stays usable afterwards; its
//! removal is not part of the time, as it is not waited for by anybody.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use venus_core::ids::SandboxId;
use venus_core::units::Bytes;
use venus_sandbox::{CreateSandbox, EnvNode, Exec, Level, Limits, NodeOptions, Template, launcher};

const AT_ONCE: usize = 32;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    launcher::run_if_requested();
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(50), |text| text.parse())?;
    let level = match arguments.next().as_deref() {
        None => None,
        Some("root") => Some(Level::Root),
        Some("userns") => Some(Level::UserNs),
        Some("confined") => Some(Level::Confined),
        Some(other) => return Err(format!("unknown level {other}: root, userns or confined").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // In a task, as agent loops are.
    runtime.block_on(async { tokio::spawn(compare(rounds, level)).await? })
}

#[derive(Default)]
struct Times {
    alone: Vec<Duration>,
    at_once: Vec<Duration>,
}

async fn compare(rounds: usize, level: Option<Level>) -> Result<(), Failure> {
    let node = Arc::new(EnvNode::start(NodeOptions { level, ..NodeOptions::default() })?);
    node.register_template(Template::host("host"))?;
    println!("venus at level {} ({})", node.level(), node.level_reason());
    let bundle = tempfile::tempdir()?;
    let others: Vec<(&str, Contender)> = [("bwrap", bwrap()), ("runc", runc(bundle.path()))]
        .into_iter()
        .filter_map(|(name, found)| {
            found.map_err(|why| println!("{name}: skipped, {why}")).ok().map(|found| (name, found))
        })
        .collect();
    let (mut ours, mut exec, mut theirs) = (Times::default(), Vec::new(), Vec::new());
    theirs.resize_with(others.len(), Times::default);
    let mut next = 0..;
    for round in 0..rounds {
        for turn in turns(round, others.len()) {
            if let Some(other) = turn {
                theirs[other].alone.push(others[other].1.launch(&format!("{round}"))?);
            } else {
                let number = next.next().unwrap_or_default();
                ours.alone.push(venus(&node, number, &mut exec).await?);
            }
        }
    }
    for round in 0..rounds.div_ceil(10) {
        for turn in turns(round, others.len()) {
            if let Some(other) = turn {
                theirs[other].at_once.extend(others[other].1.burst(round)?);
            } else {
                ours.at_once.extend(venus_burst(&node, &mut next).await?);
            }
        }
    }
    report(&ours, &exec, &others.iter().map(|(name, _)| *name).zip(theirs).collect::<Vec<_>>());
    if let Some(node) = Arc::into_inner(node) {
        node.shutdown().await;
    }
    Ok(())
}

/// Who goes in which order: `None` is venus, the others by number. Another one begins each round, since removing a sandbox
/// keeps the kernel busy for a while after its owner has gone on.
fn turns(round: usize, others: usize) -> impl Iterator<Item = Option<usize>> {
    (0..=others).map(move |turn| ((round + turn) % (others + 1)).checked_sub(1))
}

fn request(number: u64) -> CreateSandbox {
    CreateSandbox {
        sandbox: SandboxId(number),
        template: "host".to_owned(),
        limits: Limits { memory: Some(Bytes(256 << 20)), pids: Some(128), ..Limits::default() },
        deadline_ms: 60_000,
    }
}

fn echo() -> Exec {
    Exec {
        argv: ["/bin/sh", "-c", "echo ready"].map(str::to_owned).to_vec(),
        timeout_ms: 10_000,
        max_output: 1024,
        ..Exec::default()
    }
}

async fn venus(node: &EnvNode, number: u64, exec: &mut Vec<Duration>) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let sandbox = node.create(request(number)).await?;
    let result = sandbox.exec(echo()).await?;
    let taken = begin.elapsed();
    assert_eq!(result.output, b"ready\n");
    let begin = Instant::now();
    sandbox.exec(Exec { argv: ["/bin/sh", "-c", "true"].map(str::to_owned).to_vec(), ..echo() }).await?;
    exec.push(begin.elapsed());
    sandbox.kill().await;
    Ok(taken)
}

async fn venus_burst(node: &Arc<EnvNode>, numbers: &mut impl Iterator<Item = u64>) -> Result<Vec<Duration>, Failure> {
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in numbers.take(AT_ONCE) {
        let node = Arc::clone(node);
        tasks.spawn(async move {
            let sandbox = node.create(request(number)).await?;
            let result = sandbox.exec(echo()).await?;
            assert_eq!(result.output, b"ready\n");
            Ok::<_, Failure>((sandbox, begin.elapsed()))
        });
    }
    let finished: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
    for (sandbox, _) in &finished {
        sandbox.kill().await;
    }
    Ok(finished.into_iter().map(|(_, time)| time).collect())
}

/// A program that runs one command in a sandbox.
enum Contender {
    Bwrap,
    /// With its bundle.
    Runc(PathBuf),
}

impl Contender {
    fn command(&self, name: &str) -> Command {
        match self {
            Self::Bwrap => {
                let mut command = Command::new("bwrap");
                command.args(BWRAP);
                command
            }
            Self::Runc(bundle) => {
                let mut command = Command::new("runc");
                let name = format!("venus-bench-{}-{name}", std::process::id());
                command.args(["run", "--bundle"]).arg(bundle).arg(name);
                command
            }
        }
    }

    /// Time to the first byte of output.
    fn launch(&self, name: &str) -> io::Result<Duration> {
        let begin = Instant::now();
        let mut child = self.command(name).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut text = [0; 6];
        let read = output.read_exact(&mut text);
        let taken = begin.elapsed();
        child.wait()?;
        read.map(|()| taken)
    }

    fn burst(&self, round: usize) -> io::Result<Vec<Duration>> {
        let begin = Instant::now();
        let mut children = Vec::new();
        for number in 0..AT_ONCE {
            let name = format!("{round}-{number}");
            children.push(self.command(&name).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
        }
        let mut readers = Vec::new();
        for child in &mut children {
            let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            readers.push(std::thread::spawn(move || output.read_exact(&mut [0; 6]).map(|()| begin.elapsed())));
        }
        let times = readers.into_iter().map(|reader| reader.join().map_err(|_| io::Error::other("reader"))?).collect();
        for child in &mut children {
            child.wait()?;
        }
        times
    }
}

fn installed(program: &str, probe: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(probe).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("it does not work here: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("it cannot be run ({error}); `apt-get install bubblewrap runc`")),
    }
}

const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "/bin/sh",
    "-c",
    "echo ready",
];

fn bwrap() -> Result<Contender, String> {
    installed("bwrap", BWRAP)?;
    Ok(Contender::Bwrap)
}

fn runc(bundle: &Path) -> Result<Contender, String> {
    installed("runc", &["--version"])?;
    prepare_bundle(bundle).map_err(|error| format!("no bundle can be made: {error}"))?;
    let contender = Contender::Runc(bundle.to_owned());
    contender.launch("probe").map_err(|error| format!("it does not work here: {error}"))?;
    Ok(contender)
}

fn prepare_bundle(bundle: &Path) -> io::Result<()> {
    let root = bundle.join("rootfs");
    for name in ["usr", "proc", "dev", "tmp", "sys"] {
        fs::create_dir_all(root.join(name))?;
    }
    for name in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    let config = serde_json::json!({
        "ociVersion": "1.0.2",
        "process": { "terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/", "noNewPrivileges": true,
                     "args": ["/bin/sh", "-c", "echo ready"], "env": ["PATH=/usr/bin:/bin"] },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] },
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" }
        ],
        "linux": {
            "resources": { "memory": { "limit": 256 << 20 }, "pids": { "limit": 128 } },
            "namespaces": [{ "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }]
        }
    });
    fs::write(bundle.join("config.json"), config.to_string())
}

fn report(ours: &Times, exec: &[Duration], others: &[(&str, Times)]) {
    println!("{:22} {:>9} {:>9} {:>9}   ratio of medians to venus", "ms", "min", "median", "p99");
    let line = |name: &str, times: &[Duration], base: &[Duration]| {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let sorted = sorted(times);
        let (min, median, p99) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() * 99 / 100]);
        let ratio = ms(median) / ms(self::sorted(base)[base.len() / 2]);
        println!("{name:22} {:9.2} {:9.2} {:9.2}   {ratio:.1}", ms(min), ms(median), ms(p99));
    };
    line("venus, one", &ours.alone, &ours.alone);
    for (name, times) in others {
        line(&format!("{name}, one"), &times.alone, &ours.alone);
    }
    line("venus, 32 at once", &ours.at_once, &ours.at_once);
    for (name, times) in others {
        line(&format!("{name}, 32 at once"), &times.at_once, &ours.at_once);
    }
    line("venus, exec of true", exec, &ours.alone);
}

fn sorted(times: &[Duration]) -> Vec<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times
}
