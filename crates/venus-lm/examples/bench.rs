//! Speed of generation and training per second of processor time: `cargo run --release -p venus-lm --example bench -- tiny`
//!
//! `tiny` is [`Config::tiny`] with 600 tokens; otherwise the argument is a model's directory. One thread; processor time, so
//! that other work on the machine distorts it less; the best of several rounds. `reference/torch_bench.py` measures the same
//! on PyTorch.

use std::hint::black_box;
use std::sync::Arc;
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment, TrainWorkspace, gradient};

const PAGE: usize = 16;
const CONTEXT: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = match std::env::args().nth(1).as_deref() {
        Some("tiny") => Model::random(Config::tiny(600), 1),
        Some(dir) => Model::load(dir.as_ref())?,
        None => return Err("usage: bench DIR|tiny".into()),
    };
    let model = Arc::new(model);
    let rounds = if model.params().len() < 20_000_000 { 5 } else { 2 };
    println!("{} parameters, one thread, tokens per second of processor time", model.params().len());
    let mut inference = Inference::new(model.clone(), 1);
    println!("prefill of 512: {:.0}", prefill(&mut inference, 512, rounds)?);
    for batch in [1, 8, 32] {
        println!("decode, batch {batch}, context {CONTEXT}: {:.0}", decode(&mut inference, batch, rounds)?);
    }
    drop(inference);
    let (sequences, length) = if model.params().len() < 20_000_000 { (8, 256) } else { (1, 256) };
    let speed = train(&model, sequences, length, rounds)?;
    println!("forward and backward, {sequences} x {length}: {speed:.0} ({:.0} ms per 1000)", 1e6 / speed);
    Ok(())
}

/// Seconds this thread has run on a processor.
fn processor_seconds() -> std::io::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    Ok(nanoseconds / 1e9)
}

/// The best round's units per processor second. A round repeats the work for a while, since the system accounts in ticks.
fn best(rounds: usize, units: usize, mut work: impl FnMut()) -> std::io::Result<f64> {
    const ROUND_SECONDS: f64 = 0.15;
    work();
    let mut best: f64 = 0.0;
    for _ in 0..rounds {
        let (start, mut repeats, mut seconds) = (processor_seconds()?, 0, 0.0);
        while seconds < ROUND_SECONDS {
            work();
            repeats += 1;
            seconds = processor_seconds()? - start;
        }
        best = best.max((units * repeats) as f64 / seconds);
    }
    Ok(best)
}

fn text(vocab: usize, length: usize, salt: usize) -> Vec<u32> {
    (0..length).map(|i| ((i * i * 31 + i * 7 + salt) % vocab) as u32).collect()
}

fn prefill(inference: &mut Inference, length: usize, rounds: usize) -> std::io::Result<f64> {
    let tokens = text(inference.config().vocab_size, length, 0);
    let pages: Vec<u32> = (0..length.div_ceil(PAGE) as u32).collect();
    let mut kv = Kv::new(inference.config(), pages.len(), PAGE);
    best(rounds, length, || {
        let segment = Segment { tokens: &tokens, start: 0, pages: &pages, logits: LogitRows::Last };
        black_box(inference.forward(&mut kv, &[segment]));
    })
}

fn decode(inference: &mut Inference, batch: usize, rounds: usize) -> std::io::Result<f64> {
    let per_sequence = (CONTEXT + 16).div_ceil(PAGE);
    let mut kv = Kv::new(inference.config(), batch * per_sequence, PAGE);
    let tables: Vec<Vec<u32>> =
        (0..batch).map(|i| (0..per_sequence).map(|page| (page * batch + i) as u32).collect()).collect();
    let prompt = text(inference.config().vocab_size, CONTEXT, 1);
    for pages in &tables {
        inference.forward(&mut kv, &[Segment { tokens: &prompt, start: 0, pages, logits: LogitRows::None }]);
    }
    const STEPS: usize = 16;
    best(rounds, batch * STEPS, || {
        for (step, token) in prompt.chunks(1).take(STEPS).enumerate() {
            let segment = |pages| Segment { tokens: token, start: CONTEXT + step, pages, logits: LogitRows::Last };
            let segments: Vec<Segment> = tables.iter().map(|pages| segment(pages)).collect();
            black_box(inference.forward(&mut kv, &segments));
        }
    })
}

fn train(model: &Model, sequences: usize, length: usize, rounds: usize) -> std::io::Result<f64> {
    let vocab = model.config.vocab_size;
    let texts: Vec<Vec<u32>> = (0..sequences).map(|i| text(vocab, length, i)).collect();
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let rows: Vec<u32> = (0..length as u32 - 1).collect();
    let rows = vec![&rows[..]; sequences];
    let (mut workspace, mut grads) = (TrainWorkspace::new(), vec![0.0; model.params().len()]);
    best(rounds, sequences * length, || {
        // The trainer's loss is its own; here only something cheap that keeps every derivative alive.
        let loss = &mut |_: usize, logits: &mut [f32]| logits.iter_mut().for_each(|z| *z = *z * 1e-3 + 1e-3);
        gradient(model, &mut workspace, &texts, &rows, loss, &mut grads);
    })
}
