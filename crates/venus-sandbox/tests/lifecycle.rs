//! Nothing outlives its owner: not after churn, not after a crash of any of the processes involved.

#![expect(clippy::unwrap_used, reason = "a step that fails must fail the test")]

#[expect(dead_code, reason = "each test program uses a part")]
mod fixture;

use fixture::{Fixture, bash, launcher, output, request, run};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use venus_sandbox::{
    CreateSandbox, EnvNode, Exec, ExecStatus, Level, Limits, NodeOptions, Probe, SandboxErrorKind, Template,
};

const LEVELS: [Level; 3] = [Level::Root, Level::UserNs, Level::Confined];
/// Tells a copy of this test program to hold a node.
const HOLD: &str = "VENUS_TEST_HOLD";

/// The directory of the only node in a state directory, and its launcher's pid, which is in the name.
fn instance(state: &Path) -> (PathBuf, i32) {
    let path = fs::read_dir(state).unwrap().next().unwrap().unwrap().path();
    let pid = path.file_name().unwrap().to_str().unwrap().split('-').nth(1).map(str::parse);
    let pid = pid.unwrap_or_else(|| panic!("{}", path.display())).unwrap_or_else(|_| panic!("{}", path.display()));
    (path, pid)
}

fn parents() -> BTreeMap<i32, i32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_str().unwrap().parse() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let mut fields = stat.rsplit(") ").next().unwrap().split(' ');
        let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
        if state != "Z" {
            parents.insert(pid, parent.parse().unwrap());
        }
    }
    parents
}

/// Processes below `ancestor`.
fn below(ancestor: i32) -> usize {
    let parents = parents();
    let is_below = |mut pid: i32| {
        while let Some(&parent) = parents.get(&pid) {
            if parent == ancestor {
                return true;
            }
            pid = parent;
        }
        false
    };
    parents.keys().filter(|pid| is_below(**pid)).count()
}

/// Whether any process on the host has this argument.
fn runs(argument: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
    })
}

fn cgroups(instance: &Path) -> Vec<PathBuf> {
    fs::read_to_string(instance.join("cgroups")).unwrap().lines().map(PathBuf::from).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(15), "not within 15 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Everything that could leak, by name.
fn audit(instance: &Path, launcher: i32) -> BTreeMap<String, usize> {
    let count = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
    let groups =
        cgroups(instance).into_iter().flat_map(|tree| fs::read_dir(tree).unwrap().flatten().collect::<Vec<_>>());
    BTreeMap::from([
        ("processes".to_owned(), below(launcher)),
        ("mounts".to_owned(), fs::read_to_string(format!("/proc/{launcher}/mountinfo")).unwrap().lines().count()),
        ("own mounts".to_owned(), fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()),
        ("cgroups".to_owned(), groups.filter(|entry| entry.file_type().unwrap().is_dir()).count()),
        ("files".to_owned(), count(instance)),
        ("launcher's descriptors".to_owned(), count(Path::new(&format!("/proc/{launcher}/fd")))),
    ])
}

/// e2b-dev/infra#2029: hundreds of devices and tens of gigabytes held for a few live sandboxes.
#[tokio::test(flavor = "multi_thread")]
async fn churn_leaves_nothing_behind() {
    for level in LEVELS {
        let Some(f) = Fixture::start(level) else { continue };
        let (path, launcher) = instance(&f.dir.path().join("state"));
        run(&f.sandbox(0).await, "true").await;
        wait_until("the first sandbox is gone", || f.node.stats().live == 0);
        let before = audit(&path, launcher);
        for round in 0..10 {
            let burst = (0..5).map(|id| f.sandbox(1 + round * 5 + id));
            let sandboxes: Vec<_> = futures(burst).await;
            for (number, sandbox) in sandboxes.iter().enumerate() {
                run(sandbox, "setsid sleep 600 >/dev/null 2>&1 & echo x > file").await;
                if number % 2 == 0 {
                    sandbox.kill().await;
                }
            }
        }
        wait_until("all are gone", || f.node.stats().live == 0);
        assert_eq!(audit(&path, launcher), before, "level {level}");
        assert_eq!(f.node.stats().created, 51);
        f.node.shutdown().await;
        assert!(!path.exists(), "level {level}");
    }
}

/// Drives futures at the same time.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (future, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if all.iter().all(|(_, done)| done.is_some()) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().map(|(_, done)| done.unwrap()).collect()
}

/// In a copy of this program only: a node with sandboxes, to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn hold() {
    let Some(held) = std::env::var_os(HOLD) else { return };
    let held = held.into_string().unwrap();
    let (level, state) = held.split_once(' ').unwrap();
    let level = LEVELS.into_iter().find(|known| known.to_string() == level).unwrap();
    let node = Fixture::node(level, Path::new(state)).unwrap();
    node.register_template(Template::host("host")).unwrap();
    let marker = format!("6{}", std::process::id());
    let mut sandboxes = Vec::new();
    for id in 0..3 {
        let sandbox = node.create(request(id)).await.unwrap();
        let script = format!(
            "sleep {marker} >/dev/null 2>&1 & (setsid setsid -f sleep {marker} >/dev/null 2>&1 &); echo x > file"
        );
        output(&sandbox, &script).await;
        sandboxes.push(sandbox);
    }
    println!("\nholding {marker}");
    let _ = sandboxes[0].exec(bash("sleep 600")).await;
    std::process::exit(3);
}

/// Starts a copy of this program that holds a node; with the argument of its sandboxes' processes.
fn holder(level: Level, state: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold", "--nocapture"])
        .env(HOLD, format!("{level} {}", state.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let marker = lines.find_map(|line| line.unwrap().strip_prefix("holding ").map(str::to_owned)).unwrap();
    (child, marker)
}

#[test]
fn a_killed_node_leaves_nothing() {
    for level in LEVELS {
        let dir = tempfile::tempdir().unwrap();
        fixture::open_to_all(dir.path());
        let (mut node, marker) = holder(level, dir.path());
        let (path, launcher) = instance(dir.path());
        let groups = cgroups(&path);
        assert!(runs(&marker), "level {level}");
        node.kill().unwrap();
        node.wait().unwrap();
        wait_until("the launcher has cleaned up", || !path.exists());
        wait_until("the launcher has ended", || !parents().contains_key(&launcher));
        assert!(!runs(&marker), "level {level}");
        assert!(groups.iter().all(|group| !group.exists()), "level {level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_node_and_a_killed_launcher_leave_is_swept() {
    for level in LEVELS {
        let dir = tempfile::tempdir().unwrap();
        fixture::open_to_all(dir.path());
        let (mut node, marker) = holder(level, dir.path());
        let (path, launcher) = instance(dir.path());
        let groups = cgroups(&path);
        signal(launcher, libc::SIGSTOP);
        node.kill().unwrap();
        node.wait().unwrap();
        signal(launcher, libc::SIGKILL);
        wait_until("the launcher has ended", || !parents().contains_key(&launcher));
        if level != Level::Confined {
            wait_until("all processes have ended with their launcher", || !runs(&marker));
        }
        assert!(path.exists());
        let next = Fixture::node(level, dir.path()).unwrap();
        assert!(!path.exists(), "level {level}");
        wait_until("all processes have ended", || !runs(&marker));
        assert!(groups.iter().all(|group| !group.exists()), "level {level}");
        // A living node's directory is left alone.
        let (alive, _) = instance(dir.path());
        let other = Fixture::node(level, dir.path()).unwrap();
        assert!(alive.exists());
        other.shutdown().await;
        next.shutdown().await;
    }
}

fn signal(pid: i32, signal: i32) {
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::from_named_raw(signal).unwrap(),
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_launcher_is_reported_and_takes_its_sandboxes_along() {
    for level in LEVELS {
        let Some(f) = Fixture::start(level) else { continue };
        let (path, launcher) = instance(&f.dir.path().join("state"));
        let groups = cgroups(&path);
        let sandbox = f.sandbox(1).await;
        let marker = format!("7{}", std::process::id());
        let script = format!("sleep {marker}");
        let (result, ()) = tokio::join!(sandbox.exec(bash(&script)), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            signal(launcher, libc::SIGKILL);
        });
        assert_eq!(result.unwrap_err().kind, SandboxErrorKind::Gone, "level {level}");
        assert_eq!(f.node.create(request(2)).await.err().unwrap().kind, SandboxErrorKind::Gone, "level {level}");
        sandbox.kill().await;
        f.node.shutdown().await;
        wait_until("the command has ended", || !runs(&marker));
        assert!(!path.exists() && groups.iter().all(|group| !group.exists()), "level {level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_node_ends_its_sandboxes() {
    for level in LEVELS {
        let Some(f) = Fixture::start(level) else { continue };
        let (path, _) = instance(&f.dir.path().join("state"));
        let sandbox = f.sandbox(1).await;
        drop(f.node);
        assert_eq!(sandbox.exec(bash("sleep 50")).await.unwrap_err().kind, SandboxErrorKind::Gone, "level {level}");
        tokio::task::spawn_blocking(move || wait_until("the node's directory is gone", || !path.exists()))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_at_once_all_work() {
    for level in LEVELS {
        let Some(f) = Fixture::start(level) else { continue };
        let outputs = futures((0..32).map(|id| {
            let f = &f;
            async move { output(&f.sandbox(id).await, "echo $((6 * 7))").await }
        }));
        assert!(outputs.await.iter().all(|text| text == "42"), "level {level}");
    }
}

/// Each mount of the launcher is copied for each sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn many_templates_do_not_pile_up_mounts() {
    for level in [Level::Root, Level::UserNs] {
        let Some(f) = Fixture::start(level) else { continue };
        let (_, launcher) = instance(&f.dir.path().join("state"));
        let mounts = || fs::read_to_string(format!("/proc/{launcher}/mountinfo")).unwrap().lines().count();
        let before = mounts();
        let create = async |number: u64, id: u64| {
            let wanted = CreateSandbox { template: format!("t{number}"), ..request(id) };
            let sandbox = f.node.create(wanted).await.unwrap();
            assert_eq!(output(&sandbox, "cat number").await, number.to_string(), "level {level}");
            sandbox
        };
        for number in 0..60 {
            let layer = f.dir.path().join(format!("layer{number}"));
            fs::create_dir_all(layer.join("work")).unwrap();
            fs::write(layer.join("work/number"), number.to_string()).unwrap();
            let template = Template { layers: vec![layer], ..Template::host(&format!("t{number}")) };
            f.node.register_template(template).unwrap();
        }
        let held = create(0, 1000).await;
        for number in 0..60 {
            create(number, number).await;
        }
        // Let go of by the launcher, not by the sandbox that uses it.
        assert_eq!(output(&held, "cat number").await, "0");
        create(0, 1001).await;
        assert!(mounts() <= before + 40, "level {level}: {} mounts", mounts());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_says_busy() {
    let dir = tempfile::tempdir().unwrap();
    let options = NodeOptions {
        launcher: launcher().to_owned(),
        state_dir: dir.path().to_owned(),
        max_sandboxes: 1,
        ..NodeOptions::default()
    };
    let node = EnvNode::start(options).unwrap();
    node.register_template(Template::host("host")).unwrap();
    let first = node.create(request(1)).await.unwrap();
    assert_eq!(node.create(request(2)).await.err().unwrap().kind, SandboxErrorKind::Busy);
    first.kill().await;
    assert!(node.create(request(2)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_that_others_can_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let error = Fixture::node(Level::Confined, dir.path()).err().unwrap();
    assert!(error.message.contains("another user could change it"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_launcher_is_named() {
    for program in ["/bin/true", "/no/such/program"] {
        let error = EnvNode::start(NodeOptions { launcher: program.into(), ..NodeOptions::default() }).err().unwrap();
        assert!(error.message.contains("launcher"), "{error}");
    }
}

/// A container engine refuses namespaces, mounts and `clone3`; so does a sandbox of our own.
#[tokio::test(flavor = "multi_thread")]
async fn inside_a_plain_container_the_confined_level_is_chosen_and_keeps_its_promises() {
    let Some(f) = Fixture::start(Level::Root) else { return };
    let Some(conformance) = conformance() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the conformance tests are not built");
        return;
    };
    let layer = f.dir.path().join("layer");
    for (from, to) in [(&*conformance, Path::new("/conformance")), (launcher(), launcher())] {
        let to = layer.join(to.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    let template = Template { name: "tests".to_owned(), layers: vec![layer], ..Template::host("") };
    f.node.register_template(template).unwrap();
    let wanted = CreateSandbox { template: "tests".to_owned(), limits: Limits::default(), ..request(1) };
    let container = f.node.create(wanted).await.unwrap();
    let probe = format!("VENUS_SANDBOX_LAUNCHER=probe {}", launcher().display());
    let probe: Probe = serde_json::from_str(&output(&container, &probe).await).unwrap();
    let available = |name: &str| probe.checks.iter().any(|check| check.name == name && check.available);
    assert!(!available("root") && !available("userns") && available("seccomp"), "{probe:?}");
    let script = "/conformance confined::files confined::a_timeout confined::kill confined::the_host confined::links";
    let tests = Exec { max_output: 1 << 20, timeout_ms: 60_000, ..bash(script) };
    let result = container.exec(tests).await.unwrap();
    let text = String::from_utf8_lossy(&result.output);
    assert_eq!(result.status, ExecStatus::Exited { code: 0 }, "{text}");
    assert!(text.contains(" 7 passed"), "{text}");
}

/// The program of the conformance tests, built beside this one.
fn conformance() -> Option<PathBuf> {
    let here = std::env::current_exe().unwrap();
    let built = fs::read_dir(here.parent().unwrap()).unwrap().flatten().map(|entry| entry.path()).filter(|path| {
        path.extension().is_none() && path.file_name().unwrap().to_string_lossy().starts_with("conformance-")
    });
    // An older build may lie there too.
    built.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
}

/// The levels that need no privilege, as a user that has none.
#[test]
fn an_unprivileged_user_gets_the_same_promises() {
    const NOBODY: u32 = 65534;
    let Some(conformance) = conformance() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the conformance tests are not built");
        return;
    };
    for module in ["userns::", "confined::"] {
        let tests = Command::new(&conformance).args([module, "--test-threads=2"]).uid(NOBODY).gid(NOBODY).output();
        let Ok(tests) = tests else {
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: not root, or the build directory cannot be read by everybody");
            return;
        };
        assert!(tests.status.success(), "{module}\n{}", String::from_utf8_lossy(&tests.stdout));
    }
}
