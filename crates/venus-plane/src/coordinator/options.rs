//! How a run is set up.

use crate::agent::AgentOptions;
use serde::{Deserialize, Serialize};
use venus_core::schedule::SchedulerConfig;

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorOptions {
    /// Version at which the run is done: steps in all, those of earlier parts of the run included.
    pub steps: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Who starts, who gets a slot, what is too stale.
    pub scheduler: SchedulerConfig,
    /// What an agent may do.
    pub agent: AgentOptions,
    /// How tokens are drawn in training.
    pub sampling: SamplingOptions,
    /// How held-out tasks are measured.
    pub evaluation: EvaluationOptions,
    /// The trainer is given this long for one batch, seconds.
    pub train_timeout: f64,
    /// The engines are given this long to load new weights, seconds; one that takes longer counts as lost.
    pub load_timeout: f64,
    /// The run ends with an error once this many groups in a row were given up because their trajectories failed.
    pub give_up_after: u32,
    /// Check the scheduler's invariants after every event; always on in debug builds.
    pub check: bool,
    /// Seconds between two [`Progress`](crate::report::Progress) events.
    pub progress_every: f64,
}

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingOptions {
    /// Softmax temperature, more than 0: a greedy trajectory teaches nothing.
    pub temperature: f32,
    /// Nucleus; 1 keeps all tokens.
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: u32,
}

/// How held-out tasks are measured: each of the first `tasks` is tried once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationOptions {
    /// Held-out tasks; 0 measures nothing.
    pub tasks: usize,
    /// Steps between two evaluations; 0 measures only before the first step and after the last.
    pub every: u64,
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Tasks at once; 0 takes twice the slots of all engines, so that they are busy while tools run.
    pub concurrency: usize,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            steps: 30,
            seed: 0,
            scheduler: SchedulerConfig::default(),
            agent: AgentOptions::default(),
            sampling: SamplingOptions::default(),
            evaluation: EvaluationOptions::default(),
            train_timeout: 3600.0,
            load_timeout: 300.0,
            give_up_after: 16,
            check: false,
            progress_every: 0.5,
        }
    }
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl Default for EvaluationOptions {
    fn default() -> Self {
        Self { tasks: 200, every: 5, temperature: 1.0, concurrency: 0 }
    }
}

impl CoordinatorOptions {
    /// Says which value cannot work, if one cannot.
    ///
    /// # Errors
    /// The option, what is wrong and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        self.scheduler.validate().map_err(|e| format!("scheduler.{e}"))?;
        self.agent.validate()?;
        let SamplingOptions { temperature, top_p, .. } = self.sampling;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(format!("sampling.temperature is {temperature}: it must be more than 0"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(format!("sampling.top_p is {top_p}: it must be more than 0 and at most 1"));
        }
        if !(self.evaluation.temperature >= 0.0 && self.evaluation.temperature.is_finite()) {
            return Err(format!("evaluation.temperature is {}: it must be 0 or more", self.evaluation.temperature));
        }
        let times = [
            ("train_timeout", self.train_timeout),
            ("load_timeout", self.load_timeout),
            ("progress_every", self.progress_every),
        ];
        for (name, seconds) in times {
            if !(seconds > 0.0 && seconds <= 1e6) {
                return Err(format!("{name} is {seconds}: give seconds, more than 0 and at most 1e6"));
            }
        }
        if self.give_up_after == 0 {
            return Err("give_up_after is 0: allow at least one failed group".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_with_defaults_and_unknown_keys_are_refused() {
        let options: CoordinatorOptions = toml::from_str("steps = 3\n[agent]\nmax_turns = 5\n").unwrap();
        assert_eq!((options.steps, options.agent.max_turns), (3, 5));
        assert_eq!(options.evaluation, EvaluationOptions::default());
        let error = toml::from_str::<CoordinatorOptions>("[agent]\nmax_turn = 5\n").unwrap_err().to_string();
        assert!(error.contains("max_turn") && error.contains("max_turns"), "{error}");
    }

    #[test]
    fn a_value_that_cannot_work_is_named_with_what_is_allowed() {
        let refused = |toml: &str| toml::from_str::<CoordinatorOptions>(toml).unwrap().validate().unwrap_err();
        assert_eq!(CoordinatorOptions::default().validate(), Ok(()));
        assert!(refused("[sampling]\ntemperature = 0.0").contains("sampling.temperature is 0"));
        assert!(refused("[agent]\nmax_turn_tokens = 9000").contains("less than agent.max_context"));
        assert!(refused("[agent]\ntool_timeout = -1.0").contains("agent.tool_timeout is -1"));
        assert!(refused("[scheduler]\ngroup_size = 0").contains("scheduler.group_size is 0"));
    }
}
