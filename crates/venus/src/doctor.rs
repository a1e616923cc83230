//! `venus doctor`: what this machine offers, what is missing, and what that costs.

use crate::cli::say;
use crate::machine::{Machine, disk_available, gib};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use venus_sandbox::{Check, EnvNode, Level, MissingLimit, NodeOptions, Probe};

/// Memory that the default run needs at least, bytes.
const LEAST_MEMORY: u64 = 1 << 30;
/// Disk that the default run needs at least, bytes.
const LEAST_DISK: u64 = 256 << 20;

/// `venus doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Where runs would be written
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Whether training can run here.
    pub can_train: bool,
    /// The isolation that sandboxes would get, or why they can't have any.
    pub isolation: Isolation,
    /// What was tried of the host, for sandboxes.
    pub sandbox: Vec<Check>,
    /// What was looked at of the machine, for engine and trainer.
    pub machine: Vec<Check>,
}

/// The isolation of sandboxes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Sandboxes can be made.
    Available {
        /// At this level.
        level: Level,
        /// Why this one.
        reason: String,
        /// What it lacks here.
        missing: Vec<MissingLimit>,
    },
    /// They can't.
    Unavailable {
        /// Why, and what to do.
        reason: String,
    },
}

/// Checks this machine; exit code 0 if training can run on it, 1 if not.
///
/// # Errors
/// The probe can't be started, or standard output is closed.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = examine(args)?;
    say(&if args.json { serde_json::to_string_pretty(&findings)? + "\n" } else { findings.text() })?;
    Ok(if findings.can_train { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(args: &DoctorArgs) -> anyhow::Result<Findings> {
    let sandbox = Probe::run()?.checks;
    let isolation = isolation()?;
    let machine = machine(&Machine::here(), disk_available(&args.out));
    let can_train = matches!(isolation, Isolation::Available { .. }) && machine.iter().all(|check| check.available);
    Ok(Findings { can_train, isolation, sandbox, machine })
}

/// Starts a node as a run would, which is the only sure way to know.
fn isolation() -> std::io::Result<Isolation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = runtime.block_on(async { EnvNode::start(NodeOptions::default()) });
    Ok(match started {
        Ok(node) => Isolation::Available {
            level: node.level(),
            reason: node.level_reason().to_owned(),
            missing: node.missing_limits().to_vec(),
        },
        Err(error) => Isolation::Unavailable { reason: error.to_string() },
    })
}

fn machine(here: &Machine, disk: Option<u64>) -> Vec<Check> {
    let check = |name: &str, available, detail, costs: &str| Check {
        name: name.to_owned(),
        available,
        detail,
        costs_what: costs.to_owned(),
    };
    let memory = here.memory_available;
    let vectors = if here.simd { "the kernels' vector instructions" } else { "portable code instead" };
    vec![
        check("processor", true, format!("{here}; {vectors}"), ""),
        check(
            "memory",
            memory == 0 || memory >= LEAST_MEMORY,
            gib(memory),
            "training runs out of memory: 1 GiB is needed",
        ),
        check(
            "disk",
            disk.is_none_or(|bytes| bytes >= LEAST_DISK),
            disk.map_or_else(|| "unknown".to_owned(), gib),
            "a run cannot save: 256 MiB are needed; choose another place with --out DIR",
        ),
    ]
}

impl Findings {
    /// For a person: a table, what each missing thing costs, and the verdict.
    fn text(&self) -> String {
        let mut out = "Sandboxes\n".to_owned();
        table(&mut out, &self.sandbox);
        out.push_str("\nMachine\n");
        table(&mut out, &self.machine);
        match &self.isolation {
            Isolation::Available { level, reason, missing } => {
                let _ = writeln!(out, "\nSandboxes run at level {level}: {reason}.");
                for MissingLimit { name, detail } in missing {
                    let _ = writeln!(out, "  without {name}: {detail}");
                }
            }
            Isolation::Unavailable { reason } => drop(writeln!(out, "\nSandboxes cannot run: {reason}.")),
        }
        out.push_str(if self.can_train {
            "Training can run here: `venus train`\n"
        } else {
            "Training cannot run here: see what says no above\n"
        });
        out
    }
}

fn table(out: &mut String, checks: &[Check]) {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        let answer = if check.available { "yes" } else { "no " };
        let _ = writeln!(out, "  {answer}  {:<width$}  {}", check.name, check.detail);
        if !check.available && !check.costs_what.is_empty() {
            let _ = writeln!(out, "       {:<width$}  -> {}", "", check.costs_what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Machine {
        Machine {
            cpu: "Some CPU".to_owned(),
            cores: 2,
            simd: true,
            memory_available: 4 << 30,
            kernel: "6.1.0".to_owned(),
        }
    }

    #[test]
    fn what_is_missing_is_said_with_its_cost() {
        let machine = machine(&here(), Some(1 << 20));
        let isolation =
            Isolation::Available { level: Level::Root, reason: "running as root".to_owned(), missing: vec![] };
        let findings = Findings { can_train: false, isolation, sandbox: vec![], machine };
        insta::assert_snapshot!(findings.text(), @r"
        Sandboxes

        Machine
          yes  processor  Some CPU, 2 cores, 4.0 GiB of memory available, Linux 6.1.0; the kernels' vector instructions
          yes  memory     4.0 GiB
          no   disk       0.0 GiB
                          -> a run cannot save: 256 MiB are needed; choose another place with --out DIR

        Sandboxes run at level root: running as root.
        Training cannot run here: see what says no above
        ");
    }
}
