//! A scripted agent with deliberate faults.

use super::Task;
use super::draw::{Draw, hash};
use crate::task::Source;

/// The skill at which the weights of all slips are the probabilities written beside them in the families.
pub const DEFAULT_SKILL: f64 = 0.5;

/// Plays one task: a command in, what it printed out, until it says `done`.
///
/// It knows how tasks of the family are built but acts on what it has seen alone, so a policy that sees the same can learn
/// to do the same. Below skill 1 it slips: at a point of decision it does something plausible and wrong (stops early,
/// answers with a name on the way, takes `tail` for `head`, writes under the wrong name, gives up after a failed command).
/// Every slip is a choice among commands it also uses rightly, and at [`DEFAULT_SKILL`] the right one keeps at least half
/// of the probability: what is wrong with a policy that imitates it can be unlearnt by moving probability alone.
pub struct Demonstrator {
    script: Box<dyn Script>,
    whim: Whim,
}

impl Demonstrator {
    /// An agent for `task` with a skill of 0 to 1. At 1 it never slips and solves every generated task.
    ///
    /// `None` if the task was not generated.
    #[must_use]
    pub fn new(task: &Task, skill: f64, seed: u64) -> Option<Self> {
        let Source::Family { family, seed: set, index } = task.source else { return None };
        let script = family.draft(task.split, set, index).script;
        let draw = Draw::new(&[seed, hash(&[task.name.as_str()])]);
        Some(Self { script, whim: Whim { draw, scale: (1.0 - skill.clamp(0.0, 1.0)) / (1.0 - DEFAULT_SKILL) } })
    }

    /// The next command, or `done`. `last_output` is what the agent was shown of the last command's output.
    pub fn next(&mut self, last_output: Option<&str>) -> String {
        self.script.next(last_output.unwrap_or_default(), &mut self.whim)
    }
}

/// How a family's tasks are done.
pub(super) trait Script: Send {
    /// The next command after seeing `seen`, which is empty before the first.
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String;
}

/// The faults of a demonstrator.
pub(super) struct Whim {
    draw: Draw,
    scale: f64,
}

impl Whim {
    /// Whether to slip here; `weight` is the probability at [`DEFAULT_SKILL`].
    pub(super) fn slips(&mut self, weight: f64) -> bool {
        self.draw.chance(weight * self.scale)
    }

    /// A matter of taste, right either way.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        self.draw.pick(items)
    }
}

/// The command that ends a trajectory.
pub(super) const DONE: &str = "done";

/// True if what was shown tells of a failed command.
pub(super) fn failed(seen: &str) -> bool {
    seen.lines().last().is_some_and(|line| line.starts_with("[exit "))
}

/// The name to write the result under: `right`, or on a slip another name that other tasks use.
pub(super) fn report_name(right: &'static str, whim: &mut Whim, weight: f64) -> &'static str {
    if !whim.slips(weight) {
        return right;
    }
    whim.pick(&super::REPORTS.map(|name| if name == right { super::REPORTS[0] } else { name }))
}
