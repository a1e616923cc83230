//! Decoding speed of a tiny random model at batch 32, and what the engine costs beside the model:
//! `cargo run --release -p venus-engine --example throughput -- [batch] [threads]`

use std::time::Instant;
use venus_core::ids::{AttemptId, GroupId, TrajectoryId};
use venus_core::message::engine::{Class, Sampling, TurnRequest};
use venus_engine::{Engine, EngineOptions};
use venus_lm::{Config, Model};

/// Groups of eight share a prompt of 128 tokens; each turn draws 128 more.
fn request(attempt: u64) -> TurnRequest {
    let group = attempt / 8;
    let context = (0..128).map(|i| ((group * 131 + i * 7) % 512) as u32).collect();
    TurnRequest {
        attempt: AttemptId(attempt),
        trajectory: TrajectoryId(attempt),
        group: GroupId(group),
        class: Class::Low,
        context,
        sampling: Sampling { max_tokens: 128, temperature: 1.0, top_p: 1.0, top_k: 0, seed: attempt, stop: Vec::new() },
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let batch: u64 = args.next().map_or(Ok(32), |arg| arg.parse())?;
    let threads: usize = args.next().map_or(Ok(1), |arg| arg.parse())?;
    let model = Model::random(Config::tiny(512), 1);
    let parameters = model.params().len();
    let options = EngineOptions { max_running: batch as u32, threads, ..EngineOptions::default() };
    let mut engine = Engine::new(options, model)?;
    let turns = batch * 8;
    (0..turns).for_each(|attempt| engine.submit(request(attempt)));
    let start = Instant::now();
    while engine.has_work() {
        engine.step();
    }
    let (wall, timing, stats) = (start.elapsed().as_secs_f64(), engine.timing(), engine.stats());
    let share = |part: std::time::Duration| 100.0 * part.as_secs_f64() / timing.busy.as_secs_f64();
    let (forward, sampling) = (share(timing.forward), share(timing.sampling));
    println!("{parameters} parameters, {turns} turns of 128 + 128 tokens, {batch} at once, {threads} thread(s)");
    println!("{:.0} generated tokens/s, {} iterations", stats.generated_tokens.0 as f64 / wall, stats.iterations);
    println!("{} of {} context tokens found cached", stats.cached_tokens.0, stats.context_tokens.0);
    println!("forward {forward:.1} %, sampling {sampling:.1} %, batch and pages {:.1} %", 100.0 - forward - sampling);
    Ok(())
}
