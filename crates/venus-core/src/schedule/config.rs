//! How the scheduler is set up.

use super::policy::{Policy, PriorityConfig};
use serde::{Deserialize, Serialize};

/// Settings of a [`Scheduler`](super::Scheduler).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Who gets a slot, and for how long.
    pub policy: Policy,
    /// B: complete groups the trainer takes at once.
    pub groups_per_batch: usize,
    /// K: trajectories of a group.
    pub group_size: usize,
    /// Groups that may be started and not yet consumed, in batches. 1.0 is strictly on-policy: nothing of the
    /// next batch starts before the version made from the last one is published.
    pub async_factor: f64,
    /// Weight versions that may have drawn one trajectory; a trajectory that would need one more begins again.
    pub version_span_limit: u32,
    /// Times a failed trajectory is begun again before its group is given up. Becoming stale does not count.
    pub max_restarts: u32,
    /// How the policies that look ahead judge what is left.
    pub priority: PriorityConfig,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            groups_per_batch: 8,
            group_size: 8,
            async_factor: 1.5,
            version_span_limit: 2,
            max_restarts: 2,
            priority: PriorityConfig::default(),
        }
    }
}

impl SchedulerConfig {
    /// Groups that may be started and not yet consumed: B times the async factor, rounded down.
    #[must_use]
    pub fn window(&self) -> usize {
        // 100 groups x 1.15 is 114.99999999999999 in binary; what was meant is 115.
        (self.groups_per_batch as f64 * self.async_factor + 1e-9).floor() as usize
    }

    /// Refuses settings under which no batch could ever be made.
    ///
    /// # Errors
    /// [`ConfigError`] names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.groups_per_batch == 0 {
            return Err(ConfigError::Zero { key: "groups_per_batch" });
        }
        if self.group_size == 0 {
            return Err(ConfigError::Zero { key: "group_size" });
        }
        if self.version_span_limit == 0 {
            return Err(ConfigError::Zero { key: "version_span_limit" });
        }
        if !self.async_factor.is_finite() || self.async_factor < 1.0 {
            return Err(ConfigError::AsyncFactor { value: self.async_factor });
        }
        let hysteresis = self.priority.hysteresis;
        if !hysteresis.is_finite() || hysteresis < 1.0 {
            return Err(ConfigError::Hysteresis { value: hysteresis });
        }
        Ok(())
    }
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A count that must not be zero.
    #[error("{key} is 0: set it to 1 or more")]
    Zero {
        /// The setting.
        key: &'static str,
    },
    /// A window smaller than one batch would never fill one.
    #[error("async_factor is {value}: set it to 1.0 (strictly on-policy) or more")]
    AsyncFactor {
        /// Its value.
        value: f64,
    },
    /// A critical group would cease to be while it is still needed.
    #[error("priority.hysteresis is {value}: set it to 1.0 (none) or more")]
    Hysteresis {
        /// Its value.
        value: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_rounded_down_but_not_by_binary_fractions() {
        let window = |groups_per_batch, async_factor| {
            SchedulerConfig { groups_per_batch, async_factor, ..Default::default() }.window()
        };
        assert_eq!([window(32, 1.0), window(32, 1.5), window(3, 1.5), window(100, 1.15)], [32, 48, 4, 115]);
    }

    #[test]
    fn settings_that_could_never_fill_a_batch_are_refused_by_name() {
        let refused = |config: SchedulerConfig| config.validate().unwrap_err().to_string();
        let default = SchedulerConfig::default;
        assert!(refused(SchedulerConfig { groups_per_batch: 0, ..default() }).contains("groups_per_batch is 0"));
        assert!(refused(SchedulerConfig { group_size: 0, ..default() }).contains("group_size is 0"));
        assert!(refused(SchedulerConfig { version_span_limit: 0, ..default() }).contains("version_span_limit is 0"));
        assert!(refused(SchedulerConfig { async_factor: 0.5, ..default() }).contains("async_factor is 0.5"));
        assert!(refused(SchedulerConfig { async_factor: f64::NAN, ..default() }).contains("async_factor is NaN"));
        let priority = PriorityConfig { hysteresis: 0.9, ..PriorityConfig::default() };
        assert!(refused(SchedulerConfig { priority, ..default() }).contains("priority.hysteresis is 0.9"));
    }

    #[test]
    fn policies_are_named_alike_in_files_and_on_the_command_line() {
        for policy in Policy::ALL {
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{policy}\""));
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("fastest".parse::<Policy>().unwrap_err().to_string().contains("`action-level`"));
    }
}
