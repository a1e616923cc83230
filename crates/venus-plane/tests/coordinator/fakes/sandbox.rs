use super::Dice;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use venus_core::message::sandbox::{CreateSandbox, Exec, ExecResult, ExecStatus, SandboxError, SandboxErrorKind};
use venus_plane::sandbox::{Sandbox, SandboxClient};
use venus_plane::task::Task;

/// How sandboxes misbehave. Chances are in percent of the calls.
#[derive(Clone, Debug, Default)]
pub struct SandboxPlan {
    pub create_fails: u64,
    pub create_busy: u64,
    pub exec_fails: u64,
    pub grader_leaves_nothing: u64,
    pub grader_hangs: u64,
    /// No call is ever answered.
    pub silent: bool,
}

#[derive(Default)]
struct State {
    dice: u64,
    plan: SandboxPlan,
    commands: Vec<String>,
}

/// A node that keeps sandboxes in memory and counts what is alive.
#[derive(Clone, Default)]
pub struct Nodes {
    state: Arc<Mutex<State>>,
    /// Sandboxes alive.
    pub alive: Arc<AtomicUsize>,
    /// Commands and graders running.
    pub running: Arc<AtomicUsize>,
}

impl Nodes {
    pub fn plan(&self, plan: SandboxPlan, seed: u64) {
        (self.state().plan, self.state().dice) = (plan, seed);
    }

    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }

    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn hit(&self, chance: impl Fn(&SandboxPlan) -> u64) -> bool {
        let mut state = self.state();
        let mut dice = Dice(state.dice);
        let hit = dice.chance(chance(&state.plan));
        state.dice = dice.0;
        hit
    }

    fn delay(&self) -> Duration {
        let mut state = self.state();
        let mut dice = Dice(state.dice);
        let delay = Duration::from_millis(1 + dice.roll(40));
        state.dice = dice.0;
        delay
    }
}

/// Counts one while it lives.
struct Count(Arc<AtomicUsize>);

impl Count {
    fn of(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub struct Fake {
    node: Nodes,
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    broken: AtomicBool,
    _alive: Count,
}

fn error(kind: SandboxErrorKind, message: &str) -> SandboxError {
    SandboxError { kind, message: message.to_owned() }
}

impl SandboxClient for Nodes {
    type Sandbox = Fake;

    async fn create(&self, _: CreateSandbox, _: &Task) -> Result<Fake, SandboxError> {
        if self.state().plan.silent {
            std::future::pending::<()>().await;
        }
        sleep(self.delay()).await;
        if self.hit(|plan| plan.create_busy) {
            return Err(error(SandboxErrorKind::Busy, "the node is full"));
        }
        if self.hit(|plan| plan.create_fails) {
            return Err(error(SandboxErrorKind::Internal, "no space left for an overlay"));
        }
        Ok(Fake {
            node: self.clone(),
            files: Mutex::default(),
            broken: AtomicBool::new(false),
            _alive: Count::of(&self.alive),
        })
    }
}

impl Fake {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.files.lock().unwrap()
    }

    /// `echo TEXT`, `cheat`, `hang`, `refused`, `panic`, `break` (the sandbox is gone from then on), the grader's preparation and the grader.
    async fn command(&self, exec: &Exec) -> (ExecStatus, String) {
        let ok = ExecStatus::Exited { code: 0 };
        let command = exec.argv.last().cloned().unwrap_or_default();
        if command.ends_with("/tests/test.sh") {
            return self.grader().await;
        }
        if command.starts_with("mkdir -p") {
            return (ok, String::new());
        }
        self.node.state().commands.push(command.clone());
        match command.split_once(' ') {
            Some(("echo", text)) => (ok, format!("{text}\n")),
            _ if command == "panic" => panic!("a bug in a client"),
            _ if command == "break" => {
                self.broken.store(true, Ordering::SeqCst);
                (ok, String::new())
            }
            _ if command == "hang" => {
                std::future::pending::<()>().await;
                (ok, String::new())
            }
            _ if command == "cheat" => {
                self.files().insert("/logs/verifier/reward.txt".to_owned(), b"1".to_vec());
                (ok, String::new())
            }
            _ => (ExecStatus::Exited { code: 127 }, format!("{command}: not found\n")),
        }
    }

    async fn grader(&self) -> (ExecStatus, String) {
        assert!(self.files().contains_key("/tests/test.sh"), "the grader's files are placed");
        if self.node.hit(|plan| plan.grader_hangs) {
            std::future::pending::<()>().await;
        }
        if self.node.hit(|plan| plan.grader_leaves_nothing) {
            return (ExecStatus::Exited { code: 1 }, "fatal: not a git repository\n".to_owned());
        }
        let reward = if self.node.hit(|_| 50) { "1\n" } else { "0\n" };
        self.files().insert("/logs/verifier/reward.txt".to_owned(), reward.as_bytes().to_vec());
        (ExecStatus::Exited { code: 0 }, String::new())
    }
}

impl Sandbox for Fake {
    async fn exec(&self, exec: Exec) -> Result<ExecResult, SandboxError> {
        let _running = Count::of(&self.node.running);
        sleep(self.node.delay()).await;
        if self.broken.load(Ordering::SeqCst) || self.node.hit(|plan| plan.exec_fails) {
            return Err(error(SandboxErrorKind::Gone, "the sandbox is gone"));
        }
        if exec.argv.last().is_some_and(|command| command == "refused") {
            return Err(error(SandboxErrorKind::Invalid, "no such directory"));
        }
        let limit = Duration::from_millis(exec.timeout_ms);
        let (status, output) =
            timeout(limit, self.command(&exec)).await.unwrap_or((ExecStatus::TimedOut, String::new()));
        Ok(ExecResult { status, output: output.into_bytes(), omitted: 0, nanos: 0 })
    }

    async fn write(&self, path: &str, bytes: &[u8], _: u32) -> Result<(), SandboxError> {
        self.files().insert(path.to_owned(), bytes.to_vec());
        Ok(())
    }

    async fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, SandboxError> {
        let missing = || error(SandboxErrorKind::Invalid, "no such file");
        self.files().get(path).cloned().ok_or_else(missing)
    }

    async fn kill_processes(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn remove(&self, path: &str) -> Result<(), SandboxError> {
        self.files().retain(|file, _| !file.starts_with(path));
        Ok(())
    }

    async fn kill(self) -> Result<(), SandboxError> {
        Ok(())
    }
}
