//! The command line: verbs first, their flags, and what each hands to the part that does the work.

use crate::config::{Resolved, Sources};
use crate::failure::{self, Failure};
use crate::{convert, doctor, export, predict, report, run, tasks, train, warmup};
use clap::{Args, Parser, Subcommand};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Level;

/// Venus trains language-model agents by reinforcement learning, with real tools in real sandboxes.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "`venus train` needs nothing else: model, tasks and sandboxes are built in.")]
struct Cli {
    /// Say more on standard error; twice says much more
    #[arg(short, long, global = true, display_order = 100, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Train an agent on multi-turn shell tasks
    Train(TrainArgs),
    /// Make the warm-start model: supervised training on generated demonstrations
    Warmup(warmup::WarmupArgs),
    /// Show the tasks that can be trained on
    #[command(subcommand)]
    Tasks(tasks::TasksVerb),
    /// Check what this machine offers and what is missing
    Doctor(doctor::DoctorArgs),
    /// Turn a model from another format into a model directory
    #[command(subcommand)]
    Convert(convert::ConvertVerb),
    /// Write a run's trajectories in a format other tools read
    #[command(subcommand)]
    Export(export::ExportVerb),
    /// Write the HTML report of a run
    Report(report::ReportArgs),
    /// Measure how well the length of trajectories is predicted
    #[command(subcommand)]
    Predict(predict::PredictVerb),
}

/// `venus train`. Flags that set a configuration key say so; every other key is set by `--set`, file or environment.
#[derive(Clone, Debug, Default, Args)]
pub struct TrainArgs {
    /// Trainer steps (run.steps)
    #[arg(long, value_name = "N")]
    pub steps: Option<String>,
    /// Seed of everything that is drawn (run.seed)
    #[arg(long, value_name = "N")]
    pub seed: Option<String>,
    /// Directory of the run (run.out)
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<String>,
    /// Go on with the run in DIR
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Directory of Harbor tasks to train on instead of the generated ones (data.source)
    #[arg(long, value_name = "DIR")]
    pub tasks: Option<String>,
    /// Model directory to start from (run.model)
    #[arg(long, value_name = "DIR")]
    pub model: Option<String>,
    /// Groups in flight as a multiple of the batch; 1 trains and rolls out in turns (rollout.async_factor)
    #[arg(long, value_name = "F")]
    pub async_factor: Option<String>,
    /// Who is served first: trajectory-level, action-level, priority, group-fcfs, longest-first, group-probe (rollout.policy)
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any configuration key; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print every configuration value and where it came from, then stop
    #[arg(long)]
    pub print_config: bool,
    /// One JSON object a step on standard output instead of the table
    #[arg(long)]
    pub json: bool,
}

impl TrainArgs {
    /// The flags that set configuration: name as written, key, value.
    fn settings(&self) -> Vec<(String, String, String)> {
        let named = [
            ("--steps", "run.steps", &self.steps),
            ("--seed", "run.seed", &self.seed),
            ("--out", "run.out", &self.out),
            ("--tasks", "data.source", &self.tasks),
            ("--model", "run.model", &self.model),
            ("--async-factor", "rollout.async_factor", &self.async_factor),
            ("--policy", "rollout.policy", &self.policy),
        ];
        let named = named.into_iter().filter_map(|(flag, key, value)| {
            value.as_ref().map(|value| (flag.to_owned(), key.to_owned(), value.clone()))
        });
        let free = self.set.iter().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or(("", pair));
            ("--set".to_owned(), key.trim().to_owned(), value.trim().to_owned())
        });
        let resumed = self.resume.iter().map(|dir| {
            let dir = dir.display().to_string();
            ("--resume".to_owned(), "run.out".to_owned(), dir)
        });
        free.chain(named).chain(resumed).collect()
    }

    /// The configuration these flags, the file, the environment and a resumed run add up to.
    ///
    /// # Errors
    /// See [`Resolved::load`]; also a directory to resume that holds no run.
    pub fn resolve(&self, env: Vec<(String, String)>) -> Result<Resolved, Failure> {
        let resumed = self.resume.as_deref().map(run::RunDir::open).transpose()?.map(|dir| dir.config());
        let sources =
            Sources { resumed: resumed.as_deref(), file: self.config.as_deref(), env, flags: self.settings() };
        Resolved::load(&sources)
    }
}

/// Runs the command line of this process and says how it ended: 0 done, 1 failed, 2 wrong input, 130 interrupted.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    match dispatch(cli.verb) {
        Ok(code) => code,
        Err(error) => failure::tell(&error),
    }
}

fn dispatch(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Train(args) => {
            let resolved = args.resolve(environment())?;
            if args.print_config {
                say(&resolved.print())?;
                return Ok(ExitCode::SUCCESS);
            }
            train::run(resolved, &args)
        }
        Verb::Warmup(args) => warmup::run(&args),
        Verb::Tasks(verb) => tasks::run(&verb),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Convert(verb) => convert::run(&verb),
        Verb::Export(verb) => export::run(&verb),
        Verb::Report(args) => report::run(&args),
        Verb::Predict(verb) => predict::run(&verb),
    }
}

/// The environment's variables; bytes that are no text are replaced, so that they are refused by name and not by a panic.
fn environment() -> Vec<(String, String)> {
    let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Writes `text` to standard output.
///
/// # Errors
/// Standard output is closed or full. [`failure::tell`] is silent about a reader that has seen enough (`| head`).
pub fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Warnings always, more when asked; standard output stays for results.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let colour = wanted && std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(colour);
    // A second subscriber in one process (a test calling `main` twice) is no reason to stop.
    drop(log.try_init());
}
