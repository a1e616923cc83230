//! `venus train`: the parts put together in one process.

mod parts;
mod tasks;

use crate::cli::TrainArgs;
use crate::config::Resolved;
use crate::failure::Failure;
use crate::model;
use crate::progress::Console;
use crate::run::{self, Conditions, RunDir, Summary};
use parts::Assembly;
pub use parts::start_node;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use tasks::TaskSet;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use venus_plane::coordinator;
use venus_plane::report::{Ending, RunEvent, RunSummary};
use venus_plane::stop::{StopHandle, Urgency, stop};
use venus_sandbox::{Level, MissingLimit};

/// Runs training as configured.
///
/// # Errors
/// Whatever keeps the run from ending well, with what to do next.
pub fn run(resolved: Resolved, args: &TrainArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let tasks = TaskSet::load(&resolved.config)?;
    model::check(&resolved.config.run.model)?;
    let dir = match &args.resume {
        Some(path) => RunDir::open(path)?,
        None => RunDir::create(&resolved.config.run.out, Path::new("."))?,
    };
    let fresh = args.resume.is_none();
    if fresh {
        dir.write_whole(&dir.config(), resolved.print().as_bytes())?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(train(&resolved, tasks, &dir, fresh, args.json))?;
    let summary = outcome.summary(resolved.config.run.seed, &dir, started)?;
    let report = run::finish(&dir, &summary)?;
    outcome.console.end(&summary, &report);
    if outcome.run.ending == Ending::Finished {
        return Ok(ExitCode::SUCCESS);
    }
    let path = dir.path().display();
    Err(Failure::interrupted("ended by Ctrl-C", format!("`venus train --resume {path}` goes on")).into())
}

/// A run that ended in order.
struct Outcome {
    run: RunSummary,
    level: Level,
    missing: Vec<MissingLimit>,
    console: Console,
}

impl Outcome {
    fn summary(&self, seed: u64, dir: &RunDir, started: Instant) -> Result<Summary, Failure> {
        let records = run::Records::read(dir)?;
        let conditions = Conditions::here(seed, self.level, &self.missing, started.elapsed().as_secs_f64());
        Ok(Summary::new(self.run.clone(), &records.steps, conditions))
    }
}

async fn train(resolved: &Resolved, tasks: TaskSet, dir: &RunDir, fresh: bool, json: bool) -> anyhow::Result<Outcome> {
    let config = &resolved.config;
    let (handle, signal) = stop();
    let (events, happened) = unbounded_channel();
    let assembly = Assembly::new(config, tasks, dir, events, signal).inspect_err(|_| {
        if fresh {
            dir.abandon();
        }
    })?;
    if !fresh {
        // Not before the record was opened: a resume that is refused leaves the run's settings alone.
        dir.write_whole(&dir.config(), resolved.print().as_bytes())?;
    }
    let console = Console::new(json);
    console.start(&assembly.banner(config, dir));
    let Assembly { parts, node, .. } = assembly;
    let (level, missing) = (node.node().level(), node.node().missing_limits().to_vec());
    tokio::spawn(on_interrupt(handle));
    let shown = tokio::spawn(show(console, happened));
    let ended = coordinator::run(parts).await;
    let console = shown.await?;
    // The coordinator has freed every sandbox; this waits until the node has removed what was theirs.
    node.shutdown().await;
    let run = ended.map_err(|error| resumable(&error, dir))?;
    Ok(Outcome { run, level, missing, console })
}

/// Shows what happens until the coordinator has nothing more to say.
async fn show(mut console: Console, mut events: UnboundedReceiver<RunEvent>) -> Console {
    while let Some(event) = events.recv().await {
        console.event(&event);
    }
    console
}

/// The first Ctrl-C lets the step in progress finish, the second ends the run at once.
async fn on_interrupt(handle: StopHandle) {
    while tokio::signal::ctrl_c().await.is_ok() {
        match handle.stop() {
            Urgency::Now => eprintln!("stopping now"),
            _ => eprintln!("finishing this step, then stopping; Ctrl-C again stops at once"),
        }
    }
}

fn resumable(error: &coordinator::RunError, dir: &RunDir) -> Failure {
    let path = dir.path().display();
    Failure::failed(
        error,
        format!("what was complete is recorded: `venus train --resume {path}` goes on once that is mended"),
    )
}
