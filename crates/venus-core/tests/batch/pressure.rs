//! What the policies keep, where live trajectories need three times the pages there are.
//!
//! `cargo test -p venus-core --test batch pressure -- --nocapture` prints the table.

use std::collections::BTreeMap;
use venus_core::batch::{Batch, BatchOptions, Counters, Drawn, Ended, Submission};
use venus_core::ids::{AttemptId, TrajectoryId, Version};
use venus_core::message::engine::Class;
use venus_core::residency::{FlushPolicy, ResidencyPolicy};
use venus_core::units::{Pages, Tokens};

const LIVE: u64 = 24;
const TOTAL: u64 = 72;
const TURNS: usize = 20;
const DRAWN: u32 = 12;
const TOOL: usize = 8;
const PROMPT: usize = 64;
const PAGE: usize = 16;

/// Trajectories in tool calls and in the engine. The clock counts computed tokens, and a pass over the weights as eight: a
/// mean context takes as long as 33 decoded tokens (20,000 tokens at 10,000 a second, a pass of 60 ms).
struct Rollout {
    batch: Batch,
    now: u64,
    /// By the time it returns: a trajectory, its context, turns done.
    tools: BTreeMap<(u64, u64), (Vec<u32>, usize)>,
    /// In the engine.
    turns: BTreeMap<u64, (Vec<u32>, usize)>,
    started: u64,
    class: fn(u64) -> Class,
    /// Counted for the high class alone.
    high: Counters,
}

impl Rollout {
    /// Four members of a group share a prompt.
    fn start(&mut self) {
        let id = self.started;
        self.started += 1;
        let prompt = (0..PROMPT as u64).map(|i| (id / 4 * 1000 + i) as u32).collect();
        self.tools.insert((self.now, id), (prompt, 0));
    }

    fn submit_returned(&mut self) {
        while let Some(entry) = self.tools.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let id = entry.key().1;
            let (context, turn) = entry.remove();
            let attempt = AttemptId(id * 100 + turn as u64);
            let (trajectory, class) = (TrajectoryId(id), (self.class)(id));
            self.batch.submit(Submission { attempt, trajectory, class, context: context.clone(), max_tokens: DRAWN });
            self.turns.insert(id, (context, turn));
        }
    }

    fn end(&mut self, ended: Ended) {
        let id = ended.trajectory.0;
        let (mut context, turn) = self.turns.remove(&id).expect("it was submitted");
        if (self.class)(id) == Class::High {
            self.high.context += Tokens(context.len() as u64);
            self.high.cached += ended.cached;
            self.high.recomputed += ended.recomputed;
        }
        if turn + 1 == TURNS {
            self.batch.release(ended.trajectory);
            if self.started < TOTAL {
                self.start();
            }
            return;
        }
        context.extend(ended.tokens);
        context.extend((0..TOOL as u64).map(|i| (id * 100_000 + turn as u64 * 100 + i) as u32));
        // Most tools are quick, some are not.
        let (passes, slow) = (3 + (id * 7 + turn as u64 * 13) % 11, (id + turn as u64).is_multiple_of(9));
        let delay = 8 * (passes + if slow { 60 } else { 0 });
        self.tools.insert((self.now + delay, id), (context, turn + 1));
    }

    fn iterate(&mut self) {
        self.submit_returned();
        let mut ended = Vec::new();
        self.batch.plan(&mut ended);
        self.now += 8 + self.batch.work().iter().map(|w| (w.end - w.start) as u64).sum::<u64>();
        let drawn: Vec<_> = self.batch.work().iter().filter(|w| w.draws).map(|w| Drawn::Token(w.end as u32)).collect();
        self.batch.commit(&drawn, &mut ended);
        ended.into_iter().for_each(|ended| self.end(ended));
    }
}

/// Runs all trajectories; returns the counters, those of the high class, and the time it took.
fn run(residency: ResidencyPolicy, pages: u32, class: fn(u64) -> Class) -> (Counters, Counters, u64) {
    let options = BatchOptions {
        pages: Pages(pages),
        page_size: PAGE as u32,
        max_running: 8,
        prefill_budget: Tokens(128),
        max_context: Tokens(1000),
        flush: FlushPolicy::Keep,
        residency,
        version: Version(0),
    };
    let (tools, turns) = (BTreeMap::new(), BTreeMap::new());
    let mut rollout =
        Rollout { batch: Batch::new(options), now: 0, tools, turns, started: 0, class, high: Counters::default() };
    (0..LIVE).for_each(|_| rollout.start());
    while !(rollout.tools.is_empty() && rollout.turns.is_empty()) {
        rollout.iterate();
        assert!(rollout.now < 10_000_000, "it ends");
    }
    rollout.batch.drain(&mut Vec::new());
    rollout.batch.check().expect("the invariants hold");
    assert_eq!(rollout.batch.residency().references(), 0, "every trajectory was released");
    (rollout.batch.counters(), rollout.high, rollout.now)
}

/// Pages that hold a third of what the live trajectories have on average.
fn third() -> u32 {
    let mean = PROMPT + TURNS * (DRAWN as usize + TOOL) / 2;
    (LIVE as usize * mean / PAGE / 3) as u32
}

/// By policy: the net hit rate of the high class, and the time all took. Prints them and more.
fn table(name: &str, class: fn(u64) -> Class) -> BTreeMap<&'static str, (f64, u64)> {
    use ResidencyPolicy::{Lru, SessionReferenced, Tiered};
    let cases = [
        ("ample", Lru, 10_000),
        ("lru", Lru, third()),
        ("session", SessionReferenced, third()),
        ("tiered", Tiered { demotion: false }, third()),
        ("demotion", Tiered { demotion: true }, third()),
    ];
    let mut rates = BTreeMap::new();
    println!("{name}, {} pages", third());
    println!("policy     hit rate  of high    time  recomputed  retracted  preempted  demoted");
    for (policy, residency, pages) in cases {
        let (all, high, time) = run(residency, pages, class);
        let Counters { recomputed, retractions, preemptions, demotions, .. } = all;
        let (rate, high_rate, recomputed) = (all.hit_rate(), high.hit_rate(), recomputed.0);
        print!("{policy:9} {rate:9.3} {high_rate:8.3} {time:7}");
        println!(" {recomputed:11} {retractions:10} {preemptions:10} {demotions:8}");
        rates.insert(policy, (high_rate, time));
    }
    rates
}

#[test]
fn under_pressure_demotion_keeps_nearly_all_that_ample_pages_would() {
    let rates = table("all high", |_| Class::High);
    let rate = |policy| rates[policy].0;
    assert!(rate("lru") < 0.85, "there is pressure");
    assert!(rate("demotion") > 0.95 * rate("ample"));
    assert!(rate("demotion") > rate("tiered") && rate("demotion") > rate("session"));
    assert!(rates["demotion"].1 * 2 < rates["lru"].1, "and it takes less than half the time");
}

#[test]
fn under_pressure_tiers_keep_what_the_high_class_comes_back_for() {
    let rates = table("one in four high", |id| if id / 4 % 4 == 0 { Class::High } else { Class::Low });
    assert!(rates["lru"].0 < 0.85 && rates["session"].0 < 0.85, "there is pressure");
    assert!(rates["demotion"].0 > 0.95 * rates["ample"].0);
}
