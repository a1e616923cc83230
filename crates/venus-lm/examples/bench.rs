//! Speed of generation and training: `cargo run --release -p venus-lm --example bench -- tiny [THREADS]`
//!
//! `tiny` is [`Config::tiny`] with 600 tokens; otherwise the argument is a model's directory. The best of several rounds. One
//! thread is measured by processor time, so that other work on the machine distorts it less; more threads by the clock on the
//! wall, and without training, which `gradient` does on one. `reference/compare.py` sets the same beside llama.cpp and PyTorch.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment, TrainWorkspace, gradient};

const PAGE: usize = 16;
const CONTEXT: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = match std::env::args().nth(1).as_deref() {
        Some("tiny") => Model::random(Config::tiny(600), 1),
        Some(dir) => Model::load(dir.as_ref())?,
        None => return Err("usage: bench DIR|tiny [THREADS]".into()),
    };
    let threads = std::env::args().nth(2).map_or(Ok(1), |threads| threads.parse())?;
    let model = Arc::new(model);
    let small = model.params().len() < 20_000_000;
    let meter = Meter { rounds: if small { 5 } else { 2 }, threads };
    let clock = if threads == 1 { "processor time" } else { "wall clock" };
    println!("{} parameters, {threads} thread(s), tokens per second of {clock}", model.params().len());
    let mut inference = Inference::new(model.clone(), threads);
    println!("prefill of 512: {:.1}", prefill(&mut inference, 512, &meter)?);
    for &batch in if small { &[1, 8, 32][..] } else { &[1, 8] } {
        let speed = decode(&mut inference, batch, &meter)?;
        println!("decode, batch {batch}, context {CONTEXT}: {speed:.1}");
    }
    drop(inference);
    if threads == 1 {
        let (sequences, length) = if small { (8, 256) } else { (1, 256) };
        let speed = train(&model, sequences, length, &meter)?;
        println!("forward and backward, {sequences} x {length}: {speed:.1} ({:.0} ms per 1000)", 1e6 / speed);
    }
    Ok(())
}

struct Meter {
    rounds: usize,
    threads: usize,
}

impl Meter {
    /// The best round's units per second. A round repeats the work for a while, since the system accounts in ticks.
    fn best(&self, units: usize, mut work: impl FnMut()) -> std::io::Result<f64> {
        const ROUND_SECONDS: f64 = 0.15;
        work();
        let mut best: f64 = 0.0;
        for _ in 0..self.rounds {
            let (wall, start) = (Instant::now(), processor_seconds()?);
            let (mut repeats, mut seconds) = (0, 0.0);
            while seconds < ROUND_SECONDS {
                work();
                repeats += 1;
                seconds = if self.threads == 1 { processor_seconds()? - start } else { wall.elapsed().as_secs_f64() };
            }
            best = best.max((units * repeats) as f64 / seconds);
        }
        Ok(best)
    }
}

/// Seconds this thread has run on a processor.
fn processor_seconds() -> std::io::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    Ok(nanoseconds / 1e9)
}

fn text(vocab: usize, length: usize, salt: usize) -> Vec<u32> {
    (0..length).map(|i| ((i * i * 31 + i * 7 + salt) % vocab) as u32).collect()
}

fn prefill(inference: &mut Inference, length: usize, meter: &Meter) -> std::io::Result<f64> {
    let tokens = text(inference.config().vocab_size, length, 0);
    let pages: Vec<u32> = (0..length.div_ceil(PAGE) as u32).collect();
    let mut kv = Kv::new(inference.config(), pages.len(), PAGE);
    meter.best(length, || {
        let segment = Segment { tokens: &tokens, start: 0, pages: &pages, logits: LogitRows::Last };
        black_box(inference.forward(&mut kv, &[segment]));
    })
}

fn decode(inference: &mut Inference, batch: usize, meter: &Meter) -> std::io::Result<f64> {
    let per_sequence = (CONTEXT + 16).div_ceil(PAGE);
    let mut kv = Kv::new(inference.config(), batch * per_sequence, PAGE);
    let tables: Vec<Vec<u32>> =
        (0..batch).map(|i| (0..per_sequence).map(|page| (page * batch + i) as u32).collect()).collect();
    let prompt = text(inference.config().vocab_size, CONTEXT, 1);
    for pages in &tables {
        inference.forward(&mut kv, &[Segment { tokens: &prompt, start: 0, pages, logits: LogitRows::None }]);
    }
    const STEPS: usize = 16;
    meter.best(batch * STEPS, || {
        for (step, token) in prompt.chunks(1).take(STEPS).enumerate() {
            let segment = |pages| Segment { tokens: token, start: CONTEXT + step, pages, logits: LogitRows::Last };
            let segments: Vec<Segment> = tables.iter().map(|pages| segment(pages)).collect();
            black_box(inference.forward(&mut kv, &segments));
        }
    })
}

fn train(model: &Model, sequences: usize, length: usize, meter: &Meter) -> std::io::Result<f64> {
    let vocab = model.config.vocab_size;
    let texts: Vec<Vec<u32>> = (0..sequences).map(|i| text(vocab, length, i)).collect();
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let rows: Vec<u32> = (0..length as u32 - 1).collect();
    let rows = vec![&rows[..]; sequences];
    let (mut workspace, mut grads) = (TrainWorkspace::new(), vec![0.0; model.params().len()]);
    meter.best(sequences * length, || {
        // The trainer's loss is its own; here only something cheap that keeps every derivative alive.
        let loss = &mut |_: usize, logits: &mut [f32]| logits.iter_mut().for_each(|z| *z = *z * 1e-3 + 1e-3);
        gradient(model, &mut workspace, &texts, &rows, loss, &mut grads);
    })
}
