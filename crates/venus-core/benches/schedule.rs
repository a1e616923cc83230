//! Does a decision stay cheap with 100,000 live trajectories?
//!
//! `cargo bench -p venus-core --bench schedule`. `step` is the mean over the events of a turn (ended, tool ended,
//! queued again; under the priority policy a prediction as well; each with the decisions that follow) and should grow
//! like log n. `version` is one new version that takes every live trajectory to its boundary: the one step that is
//! linear, in what it touches. Percentiles over single events are printed before `step`.

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
    stopping: Vec<(TrajectoryId, AttemptId)>,
    predictions: u64,
    /// Nanoseconds of each event, while they are wanted.
    times: Option<Vec<u64>>,
    actions: Vec<Action>,
}

impl Cluster {
    /// All groups are in flight; under the priority policy two of three are critical.
    fn new(policy: Policy, trajectories: u64) -> Self {
        let groups = trajectories / GROUP_SIZE;
        let batch = if policy == Policy::Priority { groups * 2 / 3 } else { groups };
        let config = SchedulerConfig {
            policy,
            groups_per_batch: batch as usize,
            group_size: GROUP_SIZE as usize,
            async_factor: (groups + 1) as f64 / batch as f64,
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config).expect("valid settings");
        let mut cluster = Self {
            scheduler,
            running: VecDeque::new(),
            stopping: Vec::new(),
            predictions: 0,
            times: None,
            actions: Vec::new(),
        };
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
            cluster.predict(trajectory);
            cluster.tell(queued(trajectory));
        }
        cluster
    }

    fn tell(&mut self, event: Event) {
        self.actions.clear();
        let begin = std::time::Instant::now();
        self.scheduler.on(Instant(0), event, &mut self.actions);
        if let Some(times) = &mut self.times {
            times.push(begin.elapsed().as_nanos() as u64);
        }
        for action in &self.actions {
            match *action {
                Action::Dispatch { trajectory, attempt, .. } => self.running.push_back((trajectory, attempt)),
                Action::Preempt { trajectory, attempt, .. } => self.stopping.push((trajectory, attempt)),
                _ => {}
            }
        }
    }

    /// Another number each time, so that every prediction moves its group.
    fn predict(&mut self, trajectory: TrajectoryId) {
        if self.scheduler.config().policy != Policy::Priority {
            return;
        }
        self.predictions += 1;
        let remaining = Tokens((trajectory.0 * SCATTER + self.predictions * 31) % 20_000);
        self.tell(Event::Prediction { trajectory, remaining, spread: Tokens(0) });
    }

    /// Prints how long single events take.
    fn percentiles(&mut self) {
        self.times = Some(Vec::new());
        (0..20_000).for_each(|_| self.turn());
        let mut times = self.times.take().expect("they are wanted");
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
        let stages = self.scheduler.stats().stages;
        let live = stages.queued + stages.running + stages.acting + stages.ready;
        let policy = self.scheduler.config().policy;
        let (p50, p99, worst) = (at(0.5), at(0.99), at(1.0));
        let preemptions = self.scheduler.stats().totals.preemptions;
        println!(
            "{policy}, {live} live: p50 {p50:.2} us, p99 {p99:.2} us, max {worst:.1} us, {preemptions} preemptions"
        );
    }

    /// Turns that were told to stop do, and are queued again.
    fn stop(&mut self) {
        while let Some((trajectory, attempt)) = self.stopping.pop() {
            let versions = Some((Version(0), Version(0)));
            self.tell(Event::TurnEnded { trajectory, attempt, generated: Tokens(9), versions });
            self.tell(queued(trajectory));
        }
    }

    /// The turn sent first ends, another takes its slot, and its trajectory comes back from its tool.
    fn turn(&mut self) {
        let (trajectory, attempt) = self.running.pop_front().expect("the slots are full");
        let versions = Some((Version(0), Version(0)));
        // One that was stopped meanwhile is told of a past turn: a late event, as in life.
        self.tell(Event::TurnEnded { trajectory, attempt, generated: Tokens(90), versions });
        self.predict(trajectory);
        self.tell(Event::ToolEnded { trajectory });
        self.tell(queued(trajectory));
        self.stop();
    }
}

fn queued(trajectory: TrajectoryId) -> Event {
    Event::TurnQueued { trajectory, context: Tokens(1000) }
}

fn step(c: &mut Criterion) {
    for policy in [Policy::ActionLevel, Policy::Priority] {
        let mut group = c.benchmark_group(format!("schedule/step/{policy}"));
        group.throughput(Throughput::Elements(if policy == Policy::Priority { 4 } else { 3 }));
        for trajectories in [1_000, 10_000, 100_000] {
            let mut cluster = Cluster::new(policy, trajectories);
            cluster.percentiles();
            group.bench_function(BenchmarkId::from_parameter(trajectories), |b| b.iter(|| cluster.turn()));
            cluster.scheduler.check().expect("the invariants hold");
        }
    }
}

fn version(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule/version");
    group.sample_size(10);
    let trajectories = 100_000;
    group.throughput(Throughput::Elements(trajectories));
    group.bench_function(BenchmarkId::from_parameter(trajectories), |b| {
        b.iter_batched_ref(
            || Cluster::new(Policy::ActionLevel, trajectories),
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
