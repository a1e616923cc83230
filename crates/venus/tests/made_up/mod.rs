//! A made-up run, written through the record as the coordinator writes it.

use std::path::Path;
use venus::run::{Conditions, RunDir, Summary};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::message::trainer::{StepMetrics, TrainTrajectory};
use venus_plane::agent::{End, FinishedTrajectory, Turn};
use venus_plane::record::{Entry, Identity, Record};
use venus_plane::report::{Ending, EvalReport, Percentiles, RunSummary, StepReport, TimeSplit};

/// Text that must stay text, wherever it is printed.
pub const EVIL: &str = "</pre><script>alert(1)</script><img src=\"http://example.com/x.png\">";

const FAMILIES: [&str; 4] = ["lookup", "collect", "chain", "repair"];

/// A number in 0..1 that depends on `a` and `b` alone.
fn noise(a: u64, b: u64) -> f64 {
    let mixed = (a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_mul(0x2545_F491_4F6C_DD1D);
    (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

/// How good the made-up agent is after `step` of `steps`.
fn skill(step: u64, steps: u64) -> f64 {
    let x = step as f64 / steps as f64;
    0.25 + 0.6 / (1.0 + (-(x - 0.45) * 9.0).exp())
}

/// A run of `steps` steps with two groups of four each, a measurement every fifth part, no summary.
pub fn run(parent: &Path, steps: u64) -> RunDir {
    let dir = RunDir::create(&parent.join("run").display().to_string(), parent).unwrap();
    std::fs::write(dir.config(), format!("[run]\nsteps = {steps}  # default\n")).unwrap();
    let identity = Identity { config: "made up".to_owned(), seed: 7 };
    let (mut record, _) = Record::open(dir.path(), &identity, &[]).unwrap();
    let mut add = |entry: Entry| record.append(&entry).unwrap();
    add(Entry::Evaluated(evaluation(0, steps)));
    for step in 1..=steps {
        let groups: Vec<GroupId> = [2 * step - 2, 2 * step - 1].map(GroupId).to_vec();
        for &group in &groups {
            let members: Vec<TrajectoryId> = (4 * group.0..4 * group.0 + 4).map(TrajectoryId).collect();
            let family = FAMILIES[group.0 as usize % 4].to_owned();
            let task = format!("{family}-train-7-{}", group.0);
            let instruction = format!("Solve {task}.");
            add(Entry::GroupOpened { group, task, family, instruction, members: members.clone() });
            for id in members {
                add(Entry::TrajectoryFinished(Box::new(trajectory(id, step, steps))));
            }
            add(Entry::GroupComplete { group });
        }
        let (batch, version, path) = (BatchId(step), Version(step), "checkpoint".into());
        add(Entry::BatchDelivered { batch, groups: groups.clone() });
        add(Entry::StepCommitted { batch, groups, version, dir: path });
        add(Entry::StepReported(Box::new(report(step, steps))));
        if step == steps || step % (steps / 5).max(1) == 0 {
            add(Entry::Evaluated(evaluation(step, steps)));
        }
    }
    record.sync().unwrap();
    dir
}

fn trajectory(id: TrajectoryId, step: u64, steps: u64) -> FinishedTrajectory {
    let solved = noise(id.0, 1) < skill(step, steps);
    let turn = |command: &str, output: &str| Turn {
        drawn: 4..6,
        message: command.to_owned(),
        command: Some(command.to_owned()),
        output: Some(output.to_owned()),
        ..Turn::default()
    };
    let mut turns =
        vec![turn("ls", "a.txt\nb.txt"), turn("grep -c amber a.txt > answer", "[ok]"), turn("cat a.txt", EVIL)];
    turns.extend((0..(noise(id.0, 2) * 4.0) as u64).map(|_| turn("cat answer", "17")));
    turns.push(Turn { drawn: 4..6, message: "done".to_owned(), ..Turn::default() });
    let reward = if solved { 1.0 } else { 0.0 };
    let train = TrainTrajectory {
        trajectory: id,
        tokens: vec![1; 8],
        mask: vec![0, 0, 0, 0, 1, 1, 0, 0],
        logprobs: vec![0.0; 8],
        spans: Vec::new(),
        reward,
    };
    let end = if solved { End::Done } else { End::TurnLimit };
    FinishedTrajectory { train, prompt_tokens: 4, end, restart: 0, turns, create: 0.01, grading: 0.05, total: 2.0 }
}

fn report(step: u64, steps: u64) -> StepReport {
    let (good, wobble) = (skill(step, steps), |what| noise(step, what));
    let reward_mean = (good + 0.2 * (wobble(3) - 0.5)).clamp(0.0, 1.0);
    let metrics = StepMetrics {
        grad_norm: 0.4 + 0.3 * wobble(4),
        entropy: 0.9 * (1.0 - 0.8 * step as f64 / steps as f64),
        kl: 0.002 + 0.001 * wobble(5),
        clip_fraction: 0.02 * wobble(6),
        logprob_gap_max: 2e-5 + 1e-5 * wobble(7),
        zero_variance_groups: (wobble(8) * 3.0) as u32,
        ..StepMetrics::default()
    };
    let generation = 10.0 + 3.0 * wobble(9);
    let time = TimeSplit {
        create: 0.1,
        queued: 4.0,
        generation,
        tool: 2.0,
        grading: 0.5,
        training: 1.1,
        ..TimeSplit::default()
    };
    let p50 = 40 + (20.0 * good) as u64;
    StepReport {
        step,
        metrics,
        reward_mean,
        success: reward_mean,
        trajectories: 8,
        turns_mean: 4.5,
        length: Percentiles { p50, p90: p50 + 30, p99: p50 + 60 + (wobble(10) * 30.0) as u64, max: p50 + 90 },
        staleness_mean: 0.5 + 0.1 * wobble(11),
        staleness_max: 1 + u64::from(wobble(12) > 0.8),
        generated_tokens: 3000,
        tokens_per_second: 4200.0 + 600.0 * wobble(13),
        kv_hit_rate: 0.8 + 0.05 * wobble(14),
        time,
        seconds: 3.0,
        elapsed: 3.0 * step as f64,
        ..StepReport::default()
    }
}

fn evaluation(step: u64, steps: u64) -> EvalReport {
    let success = skill(step, steps);
    let kinds = FAMILIES.iter().enumerate();
    let mut by_kind: std::collections::BTreeMap<String, f64> =
        kinds.map(|(i, name)| ((*name).to_owned(), (success + 0.06 * i as f64 - 0.1).clamp(0.0, 1.0))).collect();
    by_kind.insert(EVIL.to_owned(), success);
    EvalReport { version: Version(step), tasks: 200, success, by_kind, seconds: 6.0, ..EvalReport::default() }
}

/// What such a run comes to.
pub fn summary(steps: u64) -> Summary {
    let run = RunSummary {
        ending: Ending::Finished,
        steps,
        dir: None,
        rl_seconds: 3.0 * steps as f64,
        heldout_success_first: Some(skill(0, steps)),
        heldout_success_last: Some(skill(steps, steps)),
        groups_trained: 2 * steps,
        groups_lost: 0,
        groups_doubled: 0,
        groups_dropped: 0,
        logprob_gap_max: 3e-5,
        tokens_generated: 3000 * steps,
    };
    let conditions = Conditions {
        seed: 7,
        level: "user namespaces".to_owned(),
        missing: vec!["landlock: the kernel has none".to_owned()],
        command: ["venus", "train", "--seed", "7"].map(str::to_owned).to_vec(),
        machine: "Some CPU, 2 cores".to_owned(),
        ..Conditions::default()
    };
    Summary::new(run, &[report(1, steps)], conditions)
}
