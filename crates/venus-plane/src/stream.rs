//! The endless stream of tasks that a run trains on.

use crate::agent::mix;
use crate::task::{Source, Task};
use std::collections::BTreeMap;
use std::sync::Arc;
use venus_core::ids::{GroupId, TrajectoryId};

/// Tasks in a shuffled order, every task once before any comes again.
///
/// The n-th group always gets the same task: a pure function of the tasks, the seed and n. A resumed run therefore needs no
/// position, only the ids of the groups it has seen.
#[derive(Debug)]
pub struct TaskStream {
    tasks: Vec<Arc<Task>>,
    seed: u64,
    /// The order of one pass, the last one asked for.
    pass: u64,
    order: Vec<usize>,
}

impl TaskStream {
    /// A stream of these tasks; `None` if there are none.
    #[must_use]
    pub fn new(tasks: Vec<Arc<Task>>, seed: u64) -> Option<Self> {
        if tasks.is_empty() {
            return None;
        }
        let mut stream = Self { tasks, seed, pass: 0, order: Vec::new() };
        stream.order = stream.shuffled(0);
        Some(stream)
    }

    /// The task of a group.
    pub fn task(&mut self, group: GroupId) -> &Arc<Task> {
        let length = self.tasks.len() as u64;
        let (pass, place) = (group.0 / length, (group.0 % length) as usize);
        if pass != self.pass {
            (self.pass, self.order) = (pass, self.shuffled(pass));
        }
        &self.tasks[self.order[place]]
    }

    /// Fisher-Yates, seeded by the run and the pass.
    fn shuffled(&self, pass: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        let mut state = mix(self.seed ^ mix(pass));
        for last in (1..order.len()).rev() {
            state = mix(state);
            order.swap(last, (state % (last as u64 + 1)) as usize);
        }
        order
    }
}

/// The ids of a group's trajectories.
#[must_use]
pub fn members(group: GroupId, group_size: usize) -> Vec<TrajectoryId> {
    let size = group_size as u64;
    (0..size).map(|k| TrajectoryId(group.0 * size + k)).collect()
}

/// The name under which a task is counted: its family's, or `harbor`.
#[must_use]
pub fn family(task: &Task) -> &'static str {
    match &task.source {
        Source::Family { family, .. } => family.name(),
        Source::Harbor { .. } => "harbor",
    }
}

/// Tasks by name, for groups that were opened by an earlier part of the run.
#[must_use]
pub fn by_name(tasks: &[Arc<Task>]) -> BTreeMap<&str, &Arc<Task>> {
    tasks.iter().map(|task| (task.name.as_str(), task)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Environment, Split, Verifier};
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn tasks(count: usize) -> Vec<Arc<Task>> {
        let task = |n| Task {
            name: format!("task-{n}"),
            source: Source::Harbor { dir: "tasks".into() },
            split: Split::Train,
            instruction: String::new(),
            environment: Environment::default(),
            tests: Vec::new(),
            verifier: Verifier { timeout: Duration::ZERO, env: BTreeMap::new() },
            limits: Default::default(),
            agent_timeout: Duration::ZERO,
            oracle: None,
            notices: Vec::new(),
        };
        (0..count).map(|n| Arc::new(task(n))).collect()
    }

    fn names(stream: &mut TaskStream, groups: std::ops::Range<u64>) -> Vec<String> {
        groups.map(|group| stream.task(GroupId(group)).name.clone()).collect()
    }

    #[test]
    fn every_task_comes_once_before_any_comes_again_and_passes_differ() {
        let mut stream = TaskStream::new(tasks(20), 3).unwrap();
        let (first, second) = (names(&mut stream, 0..20), names(&mut stream, 20..40));
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 20);
        assert_eq!(second.iter().collect::<BTreeSet<_>>().len(), 20);
        assert_ne!(first, second);
    }

    // OpenRLHF#1322: a position that is carried over can be wrong; a function of the group cannot.
    #[test]
    fn a_group_has_the_same_task_in_whatever_order_groups_are_asked_for() {
        let mut stream = TaskStream::new(tasks(7), 3).unwrap();
        let forward = names(&mut stream, 0..30);
        let backward: Vec<_> = (0..30).rev().map(|g| stream.task(GroupId(g)).name.clone()).collect();
        assert_eq!(forward, backward.into_iter().rev().collect::<Vec<_>>());
    }
}
