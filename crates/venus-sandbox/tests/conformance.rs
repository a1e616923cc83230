//! What every sandbox promises, at every level this host has.

#![expect(clippy::unwrap_used, reason = "a step that fails must fail the test")]

mod fixture;

use fixture::{Fixture, bash, count_sleeping, is_sleeping, long_time, output, request, run};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};
use venus_core::ids::SandboxId;
use venus_core::message::sandbox::{CreateSandbox, Exec, ExecStatus, SandboxErrorKind};
use venus_sandbox::{Base, Level, Template};

macro_rules! conformance {
    ($($name:ident)*) => {
        conformance!(@level root, Level::Root, $($name)*);
        conformance!(@level userns, Level::UserNs, $($name)*);
        conformance!(@level confined, Level::Confined, $($name)*);
    };
    (@level $module:ident, $level:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                if let Some(fixture) = Fixture::start($level) {
                    super::$name(fixture).await;
                }
            })*
        }
    };
}

conformance! {
    exit_codes_and_signals_are_told_apart
    output_keeps_the_order_of_both_streams
    a_missing_program_or_directory_is_the_callers_mistake
    stdin_environment_and_directory_arrive
    a_timeout_kills_the_tree_and_keeps_the_output_so_far
    a_timeout_reaches_what_detached_itself
    a_background_process_holds_up_nothing_and_lives_on
    kill_processes_leaves_the_sandbox_usable
    large_output_is_shortened_in_the_middle
    commands_run_at_the_same_time
    files_go_in_and_out
    links_do_not_lead_out_of_the_sandbox
    special_files_are_refused_without_waiting
    a_fork_bomb_meets_the_process_limit
    memory_is_limited_and_an_oom_kill_is_named
    a_file_cannot_outgrow_its_limit
    there_is_no_network
    the_host_is_not_visible_and_not_writable
    siblings_do_not_see_each_other
    privileged_calls_are_refused
    the_init_cannot_be_touched_from_inside
    layers_are_merged_and_stay_unchanged
    a_directory_can_be_the_base
    a_deadline_ends_the_sandbox
    a_repeated_create_is_recognised
    a_dropped_exec_kills_its_command
    kill_is_idempotent_and_later_calls_say_gone
}

async fn exit_codes_and_signals_are_told_apart(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    assert_eq!(run(&sandbox, "exit 7").await.status, ExecStatus::Exited { code: 7 });
    assert_eq!(run(&sandbox, "kill -TERM $$").await.status, ExecStatus::Signaled { signal: 15 });
    // Not an OOM kill, although it is the same signal.
    assert_eq!(run(&sandbox, "kill -KILL $$").await.status, ExecStatus::Signaled { signal: 9 });
    assert_eq!(run(&sandbox, "bash -c 'kill -KILL $$'; exit $?").await.status, ExecStatus::Exited { code: 137 });
}

async fn output_keeps_the_order_of_both_streams(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    assert_eq!(output(&sandbox, "echo a; echo b >&2; echo c").await, "a\nb\nc");
}

async fn a_missing_program_or_directory_is_the_callers_mistake(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    for (argv, cwd) in [(vec!["no-such-program"], None), (vec!["true"], Some("/no/such/dir")), (vec![], None)] {
        let exec = Exec {
            argv: argv.iter().map(|text: &&str| (*text).to_owned()).collect(),
            cwd: cwd.map(str::to_owned),
            timeout_ms: 5000,
            ..Exec::default()
        };
        let error = sandbox.exec(exec).await.unwrap_err();
        assert_eq!(error.kind, SandboxErrorKind::Invalid, "{argv:?}: {error}");
    }
    let error = f.node.create(CreateSandbox { template: "no".to_owned(), ..request(9) }).await.err().unwrap();
    assert_eq!(error.kind, SandboxErrorKind::Invalid);
}

async fn stdin_environment_and_directory_arrive(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let exec = Exec {
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        cwd: Some("/tmp".to_owned()),
        stdin: b"from stdin".to_vec(),
        ..bash("cat; echo; echo $GREETING; basename $PWD; test $HOME != /root || test -w $HOME && echo home")
    };
    let result = sandbox.exec(exec).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&result.output), "from stdin\nhello\ntmp\nhome\n");
    assert_eq!(output(&sandbox, "cat; basename $PWD; : > x && echo made").await, "work\nmade");
    // Above what fits a datagram or a pipe.
    let big = vec![b'x'; 3 << 20];
    let result = sandbox.exec(Exec { stdin: big, ..bash("wc -c") }).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&result.output).trim(), (3 << 20).to_string());
    let long = format!(": {}; echo end", "y".repeat(100_000));
    assert_eq!(output(&sandbox, &long).await, "end");
}

async fn a_timeout_kills_the_tree_and_keeps_the_output_so_far(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let begin = Instant::now();
    let long = long_time();
    let script = format!("echo early; sleep {long} & bash -c 'sleep {long} & wait' & wait");
    let result = sandbox.exec(Exec { timeout_ms: 300, ..bash(&script) }).await.unwrap();
    assert_eq!((result.status, &result.output[..]), (ExecStatus::TimedOut, &b"early\n"[..]));
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(output(&sandbox, &count_sleeping(&long)).await, "0");
}

async fn a_timeout_reaches_what_detached_itself(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    // Started by an earlier command: not the tree of the one that times out.
    let (earlier, long) = (long_time(), long_time());
    run(&sandbox, &format!("setsid sleep {earlier} >/dev/null 2>&1 &")).await;
    let script = format!(
        "(setsid bash -c 'trap \"\" TERM HUP; sleep {long}' &) ; (setsid setsid -f sleep {long}); sleep {long}"
    );
    let result = sandbox.exec(Exec { timeout_ms: 500, ..bash(&script) }).await.unwrap();
    assert_eq!(result.status, ExecStatus::TimedOut);
    assert_eq!(output(&sandbox, &count_sleeping(&long)).await, "0");
    assert_eq!(output(&sandbox, &is_sleeping(&earlier)).await, "yes");
}

async fn a_background_process_holds_up_nothing_and_lives_on(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let begin = Instant::now();
    // It keeps the output pipe and goes on writing to it, more than a pipe holds.
    let script = "(sleep 0.3; head -c 1000000 /dev/zero; touch done) & echo started";
    assert_eq!(output(&sandbox, script).await, "started");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(output(&sandbox, "for i in $(seq 100); do test -e done && break; sleep 0.1; done; ls").await, "done");
    assert!(output(&sandbox, "echo first; yes & sleep 0.1").await.starts_with("first\ny"));
}

async fn kill_processes_leaves_the_sandbox_usable(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let long = long_time();
    run(&sandbox, &format!("for i in 1 2 3; do setsid sleep {long} >/dev/null 2>&1 & done")).await;
    let stubborn = format!("(setsid bash -c 'trap \"\" TERM; while :; do sleep {long}; done' >/dev/null 2>&1 &)");
    run(&sandbox, &stubborn).await;
    sandbox.kill_processes().await.unwrap();
    assert_eq!(output(&sandbox, &count_sleeping(&long)).await, "0");
}

async fn large_output_is_shortened_in_the_middle(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let exec = Exec { max_output: 1000, ..bash("echo first; yes | head -c 20000000; echo last") };
    let result = sandbox.exec(exec).await.unwrap();
    assert_eq!(result.status, ExecStatus::Exited { code: 0 });
    assert_eq!((result.output.len(), result.omitted), (1000, 20_000_000 + 11 - 1000));
    assert!(result.output.starts_with(b"first\ny\n") && result.output.ends_with(b"y\nlast\n"));
}

async fn commands_run_at_the_same_time(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let waiting = bash("for i in $(seq 100); do test -e go && break; sleep 0.1; done; test -e go && echo went");
    let (waited, _) = tokio::join!(sandbox.exec(waiting), sandbox.exec(bash("touch go")));
    assert_eq!(waited.unwrap().output, b"went\n");
}

async fn files_go_in_and_out(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    sandbox.write("/new/dir/file.bin", &binary, 0o640).await.unwrap();
    assert_eq!(sandbox.read("/new/dir/file.bin", 1 << 20).await.unwrap(), binary);
    let error = sandbox.read("/new/dir/file.bin", 299_999).await.unwrap_err();
    assert_eq!(error.kind, SandboxErrorKind::Invalid);
    sandbox.write("script.sh", b"#!/bin/sh\necho ran\n", 0o755).await.unwrap();
    assert_eq!(
        output(&sandbox, "./script.sh; stat -c %a script.sh $VENUS_ROOT/new/dir/file.bin").await,
        "ran\n755\n640"
    );
    sandbox.write("script.sh", b"short", 0o600).await.unwrap();
    assert_eq!(sandbox.read("script.sh", 100).await.unwrap(), b"short");
    sandbox.remove("/new").await.unwrap();
    sandbox.remove("/new").await.unwrap();
    assert_eq!(sandbox.read("/new/dir/file.bin", 100).await.unwrap_err().kind, SandboxErrorKind::Invalid);
    // A grader's script, named by its absolute path, at every level.
    sandbox.write("/tests/test.sh", b"echo 1 > $VENUS_ROOT/logs/reward.txt", 0o755).await.unwrap();
    sandbox.write("/logs/reward.txt", b"9", 0o644).await.unwrap();
    let exec = Exec { argv: vec!["bash".to_owned(), "/tests/test.sh".to_owned()], ..bash("") };
    assert_eq!(sandbox.exec(exec).await.unwrap().status, ExecStatus::Exited { code: 0 });
    assert_eq!(sandbox.read("/logs/reward.txt", 100).await.unwrap(), b"1\n");
}

async fn links_do_not_lead_out_of_the_sandbox(f: Fixture) {
    let secret = f.dir.path().join("secret");
    std::fs::write(&secret, "host secret").unwrap();
    let sandbox = f.sandbox(1).await;
    let script = format!(
        "ln -s {0} absolute; ln -s ../../../../../../../../../..{0} relative; ln -s /proc/self/root{0} magic; \
         ln -s {1} dir; ln -s /proc/1/root root",
        secret.display(),
        f.dir.path().display()
    );
    run(&sandbox, &script).await;
    for path in ["absolute", "relative", "magic", "dir/secret", &format!("root{}", secret.display())] {
        assert!(sandbox.read(path, 100).await.is_err(), "{path}");
        // Written inside or refused, never through.
        let _ = sandbox.write(path, b"changed", 0o644).await;
        let _ = sandbox.remove(&format!("{path}/")).await;
    }
    let up = format!("../../../../../../../../../../..{}", secret.display());
    let _ = sandbox.write(&up, b"changed", 0o644).await;
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "host secret");
    // A tree with a link in it is removed without following the link.
    run(&sandbox, &format!("mkdir -p tree/sub; ln -s {} tree/sub/out", f.dir.path().display())).await;
    sandbox.remove("tree").await.unwrap();
    assert!(secret.exists());
}

async fn special_files_are_refused_without_waiting(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    run(&sandbox, "mkfifo pipe; mkdir dir").await;
    for path in ["pipe", "dir", "/dev/zero"] {
        assert_eq!(sandbox.read(path, 10).await.unwrap_err().kind, SandboxErrorKind::Invalid, "{path}");
        assert_eq!(sandbox.write(path, b"x", 0o644).await.unwrap_err().kind, SandboxErrorKind::Invalid, "{path}");
        if f.level == Level::Confined {
            break;
        }
    }
}

async fn a_fork_bomb_meets_the_process_limit(f: Fixture) {
    if !f.limits("pids limit") && !f.limits("own user") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: this host limits no processes at level {}", f.level);
        return;
    }
    let sandbox = f.sandbox(1).await;
    let bomb = bash("bomb() { bomb | bomb & }; bomb; sleep 50");
    let result = sandbox.exec(Exec { timeout_ms: 1500, ..bomb }).await.unwrap();
    assert_eq!(result.status, ExecStatus::TimedOut);
    sandbox.kill_processes().await.unwrap();
    assert_eq!(output(&sandbox, "echo alive").await, "alive");
}

async fn memory_is_limited_and_an_oom_kill_is_named(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let result = run(&sandbox, "head -c 600000000 /dev/zero | tail | wc -c; exit ${PIPESTATUS[1]}").await;
    if f.limits("memory limit") {
        assert_eq!(result.status, ExecStatus::OutOfMemory);
    } else {
        assert_ne!(result.status, ExecStatus::Exited { code: 0 });
    }
    // The init survives (vm0#34175), and a later kill by hand is not mistaken for another one.
    assert_eq!(output(&sandbox, "echo alive").await, "alive");
    assert_eq!(run(&sandbox, "kill -KILL $$").await.status, ExecStatus::Signaled { signal: 9 });
}

async fn a_file_cannot_outgrow_its_limit(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    run(&sandbox, "head -c 100000000 /dev/zero > big").await;
    assert_eq!(output(&sandbox, "stat -c %s big").await, (64 << 20).to_string());
}

async fn there_is_no_network(f: Fixture) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sandbox = f.sandbox(1).await;
    let script = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo connected; true");
    assert_eq!(output(&sandbox, &script).await, "");
    if f.level != Level::Confined {
        assert_eq!(output(&sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo");
    }
}

async fn the_host_is_not_visible_and_not_writable(f: Fixture) {
    let secret = f.dir.path().join("secret");
    std::fs::write(&secret, "host secret").unwrap();
    let sandbox = f.sandbox(1).await;
    let unreadable = format!(
        "cat {0} /etc/shadow 2>/dev/null; find /root {1} -mindepth 1 2>/dev/null; true",
        secret.display(),
        env!("CARGO_MANIFEST_DIR")
    );
    assert_eq!(output(&sandbox, &unreadable).await, "");
    let name = format!("venus-test-{}-{}", std::process::id(), f.level);
    let script = format!(
        "touch /{name} /usr/{name} /etc/{name} /tmp/{name} {}/{name} 2>/dev/null; true",
        f.dir.path().display()
    );
    output(&sandbox, &script).await;
    for directory in ["/", "/usr", "/etc", "/tmp", &f.dir.path().display().to_string()] {
        assert!(!std::path::Path::new(directory).join(&name).exists(), "{directory}");
    }
    assert_eq!(output(&sandbox, "kill -0 $(pgrep -x systemd; echo 2) 2>/dev/null && echo signalled; true").await, "");
}

async fn siblings_do_not_see_each_other(f: Fixture) {
    let (a, b) = (f.sandbox(1).await, f.sandbox(2).await);
    let long = long_time();
    output(&a, &format!("echo mine > $VENUS_ROOT/tmp/a; echo mine > w; sleep {long} >/dev/null 2>&1 &")).await;
    let found = output(&b, &format!("ls $VENUS_ROOT/tmp; ls; pkill -f '^sleep {long}' 2>/dev/null; true")).await;
    assert_eq!(found, "");
    if f.level == Level::Confined {
        let root = output(&a, "echo $VENUS_ROOT").await;
        assert_eq!(output(&b, &format!("cat {root}/tmp/a 2>/dev/null; true")).await, "");
    }
    assert_eq!(output(&a, &is_sleeping(&long)).await, "yes");
}

async fn privileged_calls_are_refused(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    for command in [
        "mount -t tmpfs none /tmp",
        "mount --bind /tmp /mnt",
        "umount /proc",
        "unshare -U true",
        "unshare -m true",
        "chroot / true",
        "mknod x c 1 3",
        "hostname other",
        "nsenter -t 1 -n true",
        "dmesg",
        "date -s 2001-01-01",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo h > /proc/sysrq-trigger",
    ] {
        let result = run(&sandbox, command).await;
        let text = String::from_utf8_lossy(&result.output).into_owned();
        assert!(
            !matches!(result.status, ExecStatus::Exited { code: 0 | 127 }),
            "{command}: {:?} {text}",
            result.status
        );
    }
    let status = output(&sandbox, "cat /proc/self/status").await;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
    // At most the seven that hold over the sandbox's own ids.
    let set = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
    let bounding = if f.limits("own user") { set("CapBnd:") } else { 0 };
    let capabilities = bounding | set("CapEff:") | set("CapPrm:") | set("CapAmb:");
    assert_eq!(capabilities & !if f.level == Level::Root { 0xfb } else { 0 }, 0, "{capabilities:x}");
}

async fn the_init_cannot_be_touched_from_inside(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let init = if f.level == Level::Confined { "$PPID" } else { "1" };
    let script = format!(
        "ls /proc/{init}/root/ 2>/dev/null; readlink /proc/{init}/fd/0 /proc/{init}/fd/3; cat /proc/{init}/environ /proc/{init}/mem 2>/dev/null; true"
    );
    assert_eq!(output(&sandbox, &script).await, "");
    if f.level != Level::Confined {
        run(&sandbox, "kill -KILL 1; kill -STOP 1").await;
        assert_eq!(output(&sandbox, "echo alive").await, "alive");
    }
}

async fn layers_are_merged_and_stay_unchanged(f: Fixture) {
    let (low, high) = (f.dir.path().join("low"), f.dir.path().join("high"));
    for (path, text) in [
        (low.join("app/both"), "low"),
        (low.join("app/low"), "low"),
        (high.join("app/both"), "high"),
        (high.join("usr/local/share/venus"), "in usr"),
    ] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let template = Template {
        name: "layered".to_owned(),
        layers: vec![low.clone(), high],
        workdir: "/app".to_owned(),
        env: BTreeMap::from([("FROM".to_owned(), "template".to_owned())]),
        ..Template::default()
    };
    f.node.register_template(template).unwrap();
    for id in [1, 2] {
        let sandbox = f.node.create(CreateSandbox { template: "layered".to_owned(), ..request(id) }).await.unwrap();
        let script = "cat both low $VENUS_ROOT/usr/local/share/venus; echo $FROM; echo changed > low; rm both; mkdir both; ls -d both";
        assert_eq!(output(&sandbox, script).await, "highlowin usrtemplate\nboth");
    }
    assert_eq!(std::fs::read_to_string(low.join("app/low")).unwrap(), "low");
}

async fn a_directory_can_be_the_base(f: Fixture) {
    let base = f.dir.path().join("base");
    let libraries = std::process::Command::new("ldd").arg("/bin/bash").output().unwrap().stdout;
    let libraries = String::from_utf8(libraries).unwrap();
    for path in libraries.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/bash"]) {
        let target = base.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(path, target).unwrap();
    }
    let template = Template {
        name: "based".to_owned(),
        base: Base::Directory(base.clone()),
        workdir: "/made".to_owned(),
        ..Template::default()
    };
    f.node.register_template(template).unwrap();
    let created = f.node.create(CreateSandbox { template: "based".to_owned(), ..request(1) }).await;
    if f.level == Level::Confined {
        assert_eq!(created.err().unwrap().kind, SandboxErrorKind::Invalid);
        return;
    }
    let sandbox = created.unwrap();
    let script =
        "echo x > /made/file; echo x > /bin/new; echo $PWD; echo /*; test -r /proc/self/status && echo x > /dev/null";
    assert_eq!(output(&sandbox, script).await.lines().next(), Some("/made"));
    assert!(!output(&sandbox, "echo /*").await.contains("usr"));
    assert!(!base.join("bin/new").exists() && !base.join("made").exists());
}

async fn a_deadline_ends_the_sandbox(f: Fixture) {
    let sandbox = f.node.create(CreateSandbox { deadline_ms: 400, ..request(1) }).await.unwrap();
    let error = sandbox.exec(bash("sleep 50")).await.unwrap_err();
    assert_eq!(error.kind, SandboxErrorKind::Gone);
    assert!(error.message.contains("deadline"), "{error}");
    sandbox.kill().await;
    assert_eq!(f.node.stats().live, 0);
}

async fn a_repeated_create_is_recognised(f: Fixture) {
    let first = f.sandbox(1).await;
    output(&first, "echo here > mark").await;
    let second = f.sandbox(1).await;
    assert_eq!(f.node.stats().live, 1);
    drop(first);
    assert_eq!(output(&second, "cat mark").await, "here");
    let other = CreateSandbox { deadline_ms: 1, ..request(1) };
    assert_eq!(f.node.create(other).await.err().unwrap().kind, SandboxErrorKind::Invalid);
    second.kill().await;
    // The id is free again.
    assert_eq!(f.sandbox(1).await.id(), SandboxId(1));
}

async fn a_dropped_exec_kills_its_command(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let long = long_time();
    let running = sandbox.exec(bash(&format!("sleep {long}; true")));
    assert!(tokio::time::timeout(Duration::from_millis(300), running).await.is_err());
    assert_eq!(output(&sandbox, &format!("sleep 0.2; {}", count_sleeping(&long))).await, "0");
}

async fn kill_is_idempotent_and_later_calls_say_gone(f: Fixture) {
    let sandbox = f.sandbox(1).await;
    let (result, ()) = tokio::join!(sandbox.exec(bash("sleep 50")), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        sandbox.kill().await;
    });
    assert_eq!(result.unwrap_err().kind, SandboxErrorKind::Gone);
    sandbox.kill().await;
    assert_eq!(sandbox.read("x", 1).await.unwrap_err().kind, SandboxErrorKind::Gone);
    assert_eq!(sandbox.exec(bash("true")).await.unwrap_err().kind, SandboxErrorKind::Gone);
}
