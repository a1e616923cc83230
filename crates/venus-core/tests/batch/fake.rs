//! A model whose KV says what it was made from: each position holds a digest of all tokens before it and of the weight
//! version that computed each. So a page in a block table that holds anything but the right prefix is found at once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use venus_core::batch::{Batch, BatchOptions, Counters, Drawn, EndReason, Ended, Submission, Work};
use venus_core::ids::{AttemptId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::Class;
use venus_core::residency::{FlushPolicy, ResidencyPolicy, Tier};
use venus_core::units::{Pages, Tokens};

pub fn options(pages: u32, page_size: u32) -> BatchOptions {
    BatchOptions {
        pages: Pages(pages),
        page_size,
        max_running: 8,
        prefill_budget: Tokens(1000),
        max_context: Tokens(1000),
        flush: FlushPolicy::Keep,
        residency: ResidencyPolicy::Lru,
        version: Version(0),
    }
}

/// What a turn is known to contain.
struct Shadow {
    tokens: Vec<TokenId>,
    context: usize,
    trajectory: TrajectoryId,
    /// What its positions must hold.
    digests: Vec<u64>,
}

pub struct Engine {
    pub batch: Batch,
    pub version: Version,
    pub ended: BTreeMap<AttemptId, Ended>,
    /// Positions computed, in all iterations.
    pub computed: usize,
    page_size: usize,
    residency: ResidencyPolicy,
    /// Tokens no turn may have.
    longest: usize,
    kv: Vec<u64>,
    shadows: BTreeMap<AttemptId, Shadow>,
    /// Class of every trajectory seen.
    classes: BTreeMap<TrajectoryId, Class>,
}

fn digest(before: u64, token: TokenId, version: Version) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, token, version).hash(&mut hasher);
    hasher.finish()
}

impl Engine {
    pub fn new(options: BatchOptions) -> Self {
        Self {
            version: options.version,
            page_size: options.page_size as usize,
            residency: options.residency,
            longest: (options.max_context.0 as usize).min((options.pages.0 * options.page_size) as usize),
            kv: vec![0; (options.pages.0 * options.page_size) as usize],
            batch: Batch::new(options),
            ended: BTreeMap::new(),
            computed: 0,
            shadows: BTreeMap::new(),
            classes: BTreeMap::new(),
        }
    }

    /// A turn of the trajectory of the same number.
    pub fn submit(&mut self, attempt: u64, class: Class, context: &[TokenId], max_tokens: u32) {
        self.submit_turn(attempt, attempt, class, context, max_tokens);
    }

    pub fn submit_turn(&mut self, trajectory: u64, attempt: u64, class: Class, context: &[TokenId], max_tokens: u32) {
        let (attempt, trajectory) = (AttemptId(attempt), TrajectoryId(trajectory));
        let shadow = Shadow { tokens: context.to_vec(), context: context.len(), trajectory, digests: Vec::new() };
        self.shadows.insert(attempt, shadow);
        // One that is rejected says nothing of its trajectory's class.
        if !context.is_empty() && max_tokens > 0 && context.len() < self.longest {
            self.classes.insert(trajectory, class);
        }
        self.batch.submit(Submission { attempt, trajectory, class, context: context.to_vec(), max_tokens });
    }

    pub fn set_class(&mut self, trajectory: u64, class: Class) {
        self.classes.insert(TrajectoryId(trajectory), class);
        self.batch.set_class(TrajectoryId(trajectory), class);
    }

    pub fn activate(&mut self, version: u64) {
        self.version = Version(version);
        self.batch.activate(self.version);
    }

    /// Plans, "computes", commits. `draw` says what each turn draws at a length. Returns the work done.
    pub fn step(&mut self, mut draw: impl FnMut(AttemptId, usize) -> Drawn) -> Vec<Work> {
        // All that was queued takes effect first, so that what the plan itself does can be told.
        let mut ended = Vec::new();
        self.batch.drain(&mut ended);
        self.collect(ended);
        let (counters, high) = (self.batch.counters(), self.high_references());
        let mut ended = Vec::new();
        self.batch.plan(&mut ended);
        self.batch.check().expect("the invariants hold");
        self.collect(ended);
        let work = self.batch.work().to_vec();
        assert_eq!(work.is_empty(), self.batch.is_idle() || self.batch.is_stalled());
        self.assert_reason_to_stall();
        self.assert_bounded(&work, counters, &high);
        self.compute(&work);
        let drawn: Vec<_> = work.iter().filter(|w| w.draws).map(|w| draw(w.attempt, w.end)).collect();
        for (work, drawn) in work.iter().filter(|w| w.draws).zip(&drawn) {
            if let Drawn::Token(token) | Drawn::Stop(token) = drawn {
                self.shadows.get_mut(&work.attempt).expect("only live turns are worked on").tokens.push(*token);
            }
        }
        let mut ended = Vec::new();
        self.batch.commit(&drawn, &mut ended);
        self.batch.check().expect("the invariants hold");
        self.collect(ended);
        work
    }

    /// Runs until nothing is left; every turn draws tokens 100, 101, ... until it is full.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            if self.batch.is_idle() {
                return self.assert_empty();
            }
            self.step(|_, length| Drawn::Token(100 + length as u32));
        }
        panic!("not idle after 10,000 iterations: livelock");
    }

    /// Trajectories whose references count as high, and how much of what they refer to is there.
    fn high_references(&self) -> Vec<(TrajectoryId, Pages)> {
        let pages = self.batch.residency();
        let high = self.classes.keys().filter(|&&id| pages.refers_as_high(id) == Some(true));
        high.map(|&id| (id, pages.referred(id).expect("it refers").pages)).collect()
    }

    /// Something is done while something is to do; only low turns may have to wait for what others will come back for.
    fn assert_reason_to_stall(&self) {
        let waits_low = |shadow: &Shadow| self.classes[&shadow.trajectory] == Class::Low;
        let tiered = matches!(self.residency, ResidencyPolicy::Tiered { .. });
        assert!(!self.batch.is_stalled() || (tiered && self.shadows.values().all(waits_low)), "it stands still");
    }

    /// Promise 4: an iteration of low turns takes nothing a high trajectory will come back for.
    fn assert_bounded(&self, work: &[Work], before: Counters, high: &[(TrajectoryId, Pages)]) {
        let after = self.batch.counters();
        if self.residency == ResidencyPolicy::Lru || self.residency == ResidencyPolicy::SessionReferenced {
            let retracted = after.retractions > before.retractions;
            assert!(!(retracted && work.iter().any(|w| w.admitted)), "no one is admitted while others are retracted");
            return;
        }
        let low = |w: &Work| self.classes[&self.shadows[&w.attempt].trajectory] == Class::Low;
        if !work.iter().all(low) || (after.preemptions, after.demotions) != (before.preemptions, before.demotions) {
            return;
        }
        for &(id, pages) in high {
            let referred = self.batch.residency().referred(id).expect("it has not ended").pages;
            assert!(referred >= pages, "{id} lost pages to low turns");
        }
    }

    /// Promise 3: once everything ended, nothing is locked. Once every trajectory is released, nothing is referred to.
    pub fn assert_empty(&self) {
        let pages = self.batch.residency();
        assert_eq!(pages.locked(), Pages(0));
        assert_eq!(pages.free() + pages.cached(), pages.capacity());
        assert!(self.shadows.is_empty(), "every turn is answered");
    }

    /// Ends everything there is.
    pub fn end(&mut self) {
        for attempt in self.shadows.keys() {
            self.batch.abort(*attempt);
        }
        for id in std::mem::take(&mut self.classes).into_keys() {
            self.batch.release(id);
        }
        let mut ended = Vec::new();
        self.batch.drain(&mut ended);
        self.collect(ended);
        self.assert_empty();
        self.batch.check().expect("the invariants hold");
        let pages = self.batch.residency();
        assert_eq!(pages.references(), 0, "no reference outlives its trajectory");
        assert_eq!(Pages(pages.tiers()[Tier::Unused]), pages.cached());
        assert!(self.batch.is_idle() && self.batch.paused() == 0);
    }

    pub fn reason(&self, attempt: u64) -> Option<&EndReason> {
        self.ended.get(&AttemptId(attempt)).map(|ended| &ended.reason)
    }

    fn compute(&mut self, work: &[Work]) {
        for item in work {
            let shadow = self.shadows.get_mut(&item.attempt).expect("only live turns are worked on");
            assert_eq!(self.batch.tokens(item), &shadow.tokens[item.start..item.end]);
            if item.admitted {
                // What was found in the cache must be as if computed under the weights that run now.
                shadow.digests.clear();
                extend(&mut shadow.digests, &shadow.tokens[..item.start], self.version);
            }
            assert_eq!(shadow.digests.len(), item.start, "no position is left out or computed again");
            self.assert_held(item, item.start);
        }
        for item in work {
            let shadow = self.shadows.get_mut(&item.attempt).expect("only live turns are worked on");
            extend(&mut shadow.digests, &shadow.tokens[item.start..item.end], self.version);
            for position in item.start..item.end {
                self.kv[slot(self.batch.block_table(item), self.page_size, position)] = shadow.digests[position];
            }
            self.computed += item.end - item.start;
        }
        for item in work {
            self.assert_held(item, item.end);
        }
    }

    fn assert_held(&self, work: &Work, positions: usize) {
        let (table, digests) = (self.batch.block_table(work), &self.shadows[&work.attempt].digests);
        for (position, expected) in digests.iter().enumerate().take(positions) {
            let held = self.kv[slot(table, self.page_size, position)];
            assert_eq!(held, *expected, "position {position} of {} holds another prefix", work.attempt);
        }
    }

    fn collect(&mut self, ended: Vec<Ended>) {
        for end in ended {
            let shadow = self.shadows.remove(&end.attempt).expect("a turn ends once");
            assert_eq!(end.tokens, shadow.tokens[shadow.context..], "what was drawn is returned");
            self.ended.insert(end.attempt, end);
        }
    }
}

fn extend(digests: &mut Vec<u64>, tokens: &[TokenId], version: Version) {
    for token in tokens {
        digests.push(digest(digests.last().copied().unwrap_or(0), *token, version));
    }
}

fn slot(table: &[u32], page_size: usize, position: usize) -> usize {
    table[position / page_size] as usize * page_size + position % page_size
}
