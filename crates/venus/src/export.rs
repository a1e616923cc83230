//! `venus export`.

use crate::cli::say;
use crate::config::{Resolved, Sources};
use crate::failure::Failure;
use crate::run::{Records, RunDir};
use clap::Subcommand;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use venus_plane::atif::{Context, document};

/// `venus export`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExportVerb {
    /// Agent Trajectory Interchange Format v1.8: one JSON file a trajectory, below RUN_DIR/atif
    Atif {
        /// Directory of the run
        run_dir: PathBuf,
        /// Directory to write instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Exports.
///
/// # Errors
/// The run cannot be read, or the directory cannot be written.
pub fn run(verb: &ExportVerb) -> anyhow::Result<ExitCode> {
    let ExportVerb::Atif { run_dir, out } = verb;
    let dir = RunDir::open(run_dir)?;
    let out = out.clone().unwrap_or_else(|| dir.path().join("atif"));
    let count = atif(&dir, &out)?;
    say(&format!("{count} trajectories: {}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn atif(dir: &RunDir, out: &Path) -> Result<usize, Failure> {
    let config = dir.config();
    let sources = Sources { resumed: config.exists().then_some(config.as_path()), ..Sources::default() };
    let config = Resolved::load(&sources)?.config;
    let records = Records::read(dir)?;
    let session = dir.path().file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned());
    fs::create_dir_all(out).map_err(|error| cannot_write(out, &error))?;
    for exported in &records.trajectories {
        let context = Context {
            session: &session,
            model: &config.run.model,
            temperature: config.rollout.temperature as f32,
            instruction: &records.task(&exported.task).instruction,
        };
        let path = out.join(format!("{}.json", exported.trajectory.train.trajectory));
        let text = format!("{:#}\n", document(exported, &context));
        dir.write_whole(&path, text.as_bytes())?;
    }
    Ok(records.trajectories.len())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot make {}: {error}", path.display()), "choose another directory with --out DIR")
}
