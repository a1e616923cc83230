//! What is said before a run starts: what is about to happen, with which parts, and what this host lacks.

use crate::config::Config;
use crate::report::markup::Format;
use std::path::Path;
use venus_sandbox::MissingLimit;

/// What is said before a run starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Banner {
    /// What is about to happen, in one sentence.
    pub headline: String,
    /// Name and description of each part.
    pub parts: Vec<(&'static str, String)>,
    /// What the isolation lacks on this host, and what is done instead.
    pub missing: Vec<String>,
}

/// What a banner says beside the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Parameters of the model.
    pub parameters: usize,
    /// Isolation of the sandboxes, and why this one.
    pub isolation: (&'a str, &'a str),
    /// What it lacks on this host.
    pub missing: &'a [MissingLimit],
    /// Directory of the run.
    pub out: &'a Path,
}

impl Banner {
    /// Of a training run.
    #[must_use]
    pub fn new(config: &Config, start: &Start<'_>) -> Self {
        let (run, rollout, engine) = (&config.run, &config.rollout, &config.engine);
        let (groups, size) = (rollout.groups_per_batch, rollout.group_size);
        let headline = format!(
            "Training for {} steps, each on {groups} groups of {size} trajectories; seed {}.",
            run.steps, run.seed
        );
        let (level, reason) = start.isolation;
        let parts = vec![
            ("model", format!("{}, {} parameters", run.model, Format::Plain.show(start.parameters as f64))),
            ("tasks", tasks(config)),
            (
                "engine",
                format!("{} x {} MiB of KV, {} turns at once", engine.workers, engine.kv_mib, engine.max_running),
            ),
            ("rollout", rollout_mode(config)),
            ("sandboxes", format!("level {level}: {reason}")),
            ("output", format!("{} (report.html, summary.json)", start.out.display())),
        ];
        let missing = start.missing.iter().map(|limit| format!("{}: {}", limit.name, limit.detail)).collect();
        Self { headline, parts, missing }
    }

    pub(super) fn text(&self) -> String {
        let width = self.parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut out = format!("{}\n", self.headline);
        for (name, what) in &self.parts {
            out.push_str(&format!("  {name:<width$}  {what}\n"));
        }
        for missing in &self.missing {
            out.push_str(&format!("  {:<width$}  without {missing}\n", ""));
        }
        out.push('\n');
        out
    }
}

fn tasks(config: &Config) -> String {
    let from = match (config.data.source.as_str(), config.data.families.as_slice()) {
        ("generated", []) => "generated, all families".to_owned(),
        ("generated", families) => format!("generated: {}", families.join(", ")),
        (dir, _) => dir.to_owned(),
    };
    match (config.run.eval_tasks, config.run.eval_every) {
        (0, _) => format!("{from}; not measured"),
        (count, 0) => format!("{from}; measured on {count} held-out ones before and after"),
        (count, every) => format!("{from}; measured on {count} held-out ones every {every} steps"),
    }
}

fn rollout_mode(config: &Config) -> String {
    let rollout = &config.rollout;
    let overlap =
        if rollout.async_factor > 1.0 { "goes on while the trainer works" } else { "takes turns with the trainer" };
    let (policy, factor, span) = (rollout.policy, rollout.async_factor, rollout.version_span_limit);
    format!("{policy} slots; async factor {factor}: {overlap}; a trajectory spans at most {span} weight versions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banner_names_the_parts_and_what_is_missing() {
        let missing = [MissingLimit { name: "landlock".to_owned(), detail: "the kernel has none".to_owned() }];
        let (isolation, out) = (("userns", "not as root"), Path::new("runs/0001"));
        let start = Start { parameters: 1_250_000, isolation, missing: &missing, out };
        insta::assert_snapshot!(Banner::new(&Config::default(), &start).text(), @r"
        Training for 150 steps, each on 8 groups of 8 trajectories; seed 1.
          model      built-in, 1.25M parameters
          tasks      generated, all families; measured on 200 held-out ones every 25 steps
          engine     1 x 256 MiB of KV, 64 turns at once
          rollout    action-level slots; async factor 1: takes turns with the trainer; a trajectory spans at most 2 weight versions
          sandboxes  level userns: not as root
          output     runs/0001 (report.html, summary.json)
                     without landlock: the kernel has none
        ");
    }
}
