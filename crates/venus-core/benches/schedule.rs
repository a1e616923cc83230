//! Does a decision stay cheap with 100,000 live trajectories?
//!
//! `cargo bench -p venus-core --bench schedule`. `step` is the mean over the three events of a turn (ended, tool
//! ended, queued again, each with the dispatch that follows) and should grow like log n. `version` is one new
//! version that takes every live trajectory to its boundary: the one step that is linear, in what it touches.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::collections::VecDeque;
use std::hint::black_box;
use venus_core::ids::{AttemptId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::schedule::{Action, Event, Policy, Scheduler, SchedulerConfig};
use venus_core::units::{Instant, Tokens};

const GROUP_SIZE: u64 = 8;
const SLOTS: u32 = 64;
/// A prime that divides none of the sizes below.
const SCATTER: u64 = 7919;

/// A scheduler whose slots are all taken, with about a third of the live trajectories queued.
struct Cluster {
    scheduler: Scheduler,
    running: VecDeque<(TrajectoryId, AttemptId)>,
    actions: Vec<Action>,
}

impl Cluster {
    fn new(trajectories: u64) -> Self {
        let groups = trajectories / GROUP_SIZE;
        let config = SchedulerConfig {
            policy: Policy::ActionLevel,
            groups_per_batch: groups as usize,
            group_size: GROUP_SIZE as usize,
            async_factor: 1.0,
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config).expect("valid settings");
        let mut cluster = Self { scheduler, running: VecDeque::new(), actions: Vec::new() };
        for worker in 0..(trajectories * 2 / 3 / u64::from(SLOTS)) as u32 {
            cluster.tell(Event::WorkerJoined { worker: WorkerId(worker), slots: SLOTS });
        }
        for group in 0..groups {
            let members = (group * GROUP_SIZE..(group + 1) * GROUP_SIZE).map(TrajectoryId).collect();
            cluster.tell(Event::GroupOffered { group: GroupId(group), members });
        }
        // Sandboxes come up in no order, so that neighbours in the queue are not neighbours in memory.
        let live = groups * GROUP_SIZE;
        for trajectory in (0..live).map(|n| TrajectoryId(n * SCATTER % live)) {
            cluster.tell(Event::SandboxReady { trajectory });
            cluster.tell(queued(trajectory));
        }
        cluster
    }

    fn tell(&mut self, event: Event) {
        self.actions.clear();
        self.scheduler.on(Instant(0), event, &mut self.actions);
        for action in &self.actions {
            if let &Action::Dispatch { trajectory, attempt, .. } = action {
                self.running.push_back((trajectory, attempt));
            }
        }
    }

    /// The turn sent first ends, another takes its slot, and its trajectory comes back from its tool.
    fn turn(&mut self) {
        let (trajectory, attempt) = self.running.pop_front().expect("the slots are full");
        let versions = Some((Version(0), Version(0)));
        self.tell(Event::TurnEnded { trajectory, attempt, generated: Tokens(90), versions });
        self.tell(Event::ToolEnded { trajectory });
        self.tell(queued(trajectory));
    }
}

fn queued(trajectory: TrajectoryId) -> Event {
    Event::TurnQueued { trajectory, context: Tokens(1000) }
}

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule/step");
    group.throughput(Throughput::Elements(3));
    for trajectories in [1_000, 10_000, 100_000] {
        let mut cluster = Cluster::new(trajectories);
        group.bench_function(BenchmarkId::from_parameter(trajectories), |b| b.iter(|| cluster.turn()));
        cluster.scheduler.check().expect("the invariants hold");
    }
}

fn version(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule/version");
    group.sample_size(10);
    let trajectories = 100_000;
    group.throughput(Throughput::Elements(trajectories));
    group.bench_function(BenchmarkId::from_parameter(trajectories), |b| {
        b.iter_batched_ref(
            || Cluster::new(trajectories),
            |cluster| {
                cluster.tell(Event::VersionPublished { version: Version(1) });
                black_box(cluster.actions.len())
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, step, version);
criterion_main!(benches);
