//! The configuration as the options of the parts. Every key ends up in exactly one place here.

use super::section::{Config, Level};
use venus_core::ids::{Version, WorkerId};
use venus_core::message::sandbox::Limits;
use venus_core::schedule::SchedulerConfig;
use venus_core::units::{Bytes, Tokens};
use venus_engine::{EngineOptions, KvSize};
use venus_plane::agent::AgentOptions;
use venus_plane::coordinator::{CoordinatorOptions, EvaluationOptions, SamplingOptions};
use venus_sandbox::NodeOptions;
use venus_trainer::{TrainerError, TrainerOptions};

impl Config {
    /// The coordinator's options.
    #[must_use]
    pub fn coordinator_options(&self) -> CoordinatorOptions {
        let (run, rollout) = (&self.run, &self.rollout);
        CoordinatorOptions {
            steps: run.steps,
            seed: run.seed,
            scheduler: SchedulerConfig {
                policy: rollout.policy,
                groups_per_batch: rollout.groups_per_batch as usize,
                group_size: rollout.group_size as usize,
                async_factor: rollout.async_factor,
                version_span_limit: rollout.version_span_limit,
                ..SchedulerConfig::default()
            },
            agent: AgentOptions {
                max_turns: rollout.max_turns,
                max_context: rollout.max_context,
                max_turn_tokens: rollout.max_turn_tokens,
                max_output_chars: rollout.max_output,
                tool_timeout: rollout.tool_timeout,
                sandbox_lifetime: self.sandbox.deadline,
                ..AgentOptions::default()
            },
            sampling: SamplingOptions {
                temperature: rollout.temperature as f32,
                top_p: rollout.top_p as f32,
                top_k: rollout.top_k,
            },
            evaluation: EvaluationOptions {
                tasks: run.eval_tasks as usize,
                every: run.eval_every,
                ..EvaluationOptions::default()
            },
            ..CoordinatorOptions::default()
        }
    }

    /// The options of one of the engines, whose first weights are `version`. `cores`: those of the machine, shared
    /// between the engines unless `engine.threads` says otherwise.
    #[must_use]
    pub fn engine_options(&self, worker: WorkerId, version: Version, cores: usize) -> EngineOptions {
        let engine = &self.engine;
        let shared = (cores / engine.workers.max(1) as usize).max(1);
        EngineOptions {
            worker,
            version,
            kv: KvSize::Bytes(Bytes(u64::from(engine.kv_mib) << 20)),
            page_size: engine.page_size,
            max_running: engine.max_running,
            prefill_budget: Tokens(engine.prefill_budget.into()),
            max_context: Some(Tokens(self.rollout.max_context.into())),
            threads: if engine.threads == 0 { shared } else { engine.threads as usize },
            ..EngineOptions::default()
        }
    }

    /// The trainer's options, complete: the order of trajectories follows the run's seed as well, and the trainer is
    /// told if sampling is filtered.
    ///
    /// # Errors
    /// Options that cannot work, by the trainer's own check.
    pub fn trainer_options(&self) -> Result<TrainerOptions, TrainerError> {
        let mut options = self.trainer.clone();
        options.seed = options.seed.wrapping_add(self.run.seed);
        options.loss.filtered_sampling |= self.rollout.top_p < 1.0 || self.rollout.top_k > 0;
        options.validate().map(|()| options)
    }

    /// The env node's options.
    #[must_use]
    pub fn node_options(&self) -> NodeOptions {
        let defaults = NodeOptions::default();
        let level = match self.sandbox.level {
            Level::Auto => None,
            Level::Root => Some(venus_sandbox::Level::Root),
            Level::Userns => Some(venus_sandbox::Level::UserNs),
            Level::Confined => Some(venus_sandbox::Level::Confined),
        };
        let max_sandboxes = match self.sandbox.max_live {
            0 => defaults.max_sandboxes,
            most => most as usize,
        };
        NodeOptions { level, max_sandboxes, ..defaults }
    }

    /// What a sandbox may use where its task says nothing.
    #[must_use]
    pub fn sandbox_limits(&self) -> Limits {
        let sandbox = &self.sandbox;
        Limits {
            memory: Some(Bytes(u64::from(sandbox.memory_mib) << 20)),
            pids: Some(sandbox.pids),
            cpu_millis: (sandbox.cpu_millis > 0).then_some(sandbox.cpu_millis),
            file_size: Some(Bytes(u64::from(sandbox.file_mib) << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_ranges_let_through_the_parts_accept() {
        let config = Config::default();
        config.coordinator_options().validate().unwrap();
        config.trainer_options().unwrap();
    }

    #[test]
    fn cores_are_shared_between_engines_unless_threads_are_named() {
        let mut config = Config::default();
        let threads = |config: &Config| config.engine_options(WorkerId(0), Version(0), 6).threads;
        config.engine.workers = 2;
        assert_eq!(threads(&config), 3);
        config.engine.workers = 64;
        assert_eq!(threads(&config), 1);
        config.engine.threads = 5;
        assert_eq!(threads(&config), 5);
    }

    #[test]
    fn filtered_sampling_is_told_to_the_trainer() {
        let mut config = Config::default();
        assert!(!config.trainer_options().unwrap().loss.filtered_sampling);
        config.rollout.top_k = 20;
        assert!(config.trainer_options().unwrap().loss.filtered_sampling);
    }
}
