//! `venus warmup`: makes the model that reinforcement learning starts from.
//!
//! A scripted agent that slips on purpose plays generated tasks in real sandboxes; a small model learns to imitate it.
//! The model ends up about as good as the script, with the right choices among its likely ones: what is left to do is
//! what reinforcement learning is for.

mod demonstrations;
mod initial;
mod vocabulary;

use crate::config::Config;
use crate::embedded::ModelTokenizer;
use crate::failure::Failure;
use crate::progress::Counter;
use crate::train;
use clap::Args;
use demonstrations::{Plan, Played};
use serde::Serialize;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use venus_plane::agent::Protocol;
use venus_plane::task::family::{DEFAULT_SKILL, Family, vocabulary as family_words};
use venus_trainer::{Demonstration, Sft, SftEvaluation, SftOptions};

/// One demonstration in this many is kept to measure imitation on.
const KEPT_BACK: usize = 50;

/// `venus warmup`.
#[derive(Clone, Debug, Args)]
pub struct WarmupArgs {
    /// Directory for the model
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Demonstrations to play
    #[arg(long, value_name = "N", default_value_t = 24_000)]
    pub demonstrations: u64,
    /// Passes over them
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub epochs: u32,
    /// Skill of the scripted agent, 0 to 1; at 1 it never slips
    #[arg(long, value_name = "X", default_value_t = DEFAULT_SKILL)]
    pub skill: f64,
    /// Learning rate
    #[arg(long, value_name = "X", default_value_t = 2e-3)]
    pub learning_rate: f64,
}

/// What a warm start was made of and came to; `warmup.json` beside the model.
#[derive(Clone, Debug, Serialize)]
struct Made {
    seed: u64,
    demonstrations: u64,
    skill: f64,
    demonstrated_success: f64,
    tokens: usize,
    epochs: u32,
    learning_rate: f64,
    parameters: usize,
    imitation: SftEvaluation,
}

/// Makes the warm-start model.
///
/// # Errors
/// Whatever keeps it from being made, with what to do next.
pub fn run(args: &WarmupArgs) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.out)
        .map_err(|e| Failure::failed(format!("cannot make {}: {e}", args.out.display()), "choose another --out"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let played = runtime.block_on(play(args))?;
    let tokenizer = write_tokenizer(&args.out)?;
    let protocol = Protocol::new(tokenizer.clone())?;
    let encoded = played.iter().map(|played| played.encode(&protocol));
    let encoded = encoded.collect::<anyhow::Result<Vec<_>>>()?;
    let made = imitate(args, &encoded, tokenizer.vocab_size())?;
    let success = played.iter().filter(|played| played.reward >= 1.0).count() as f64 / played.len() as f64;
    finish(args, Made { demonstrated_success: success, ..made })
}

async fn play(args: &WarmupArgs) -> anyhow::Result<Vec<Played>> {
    let config = Config::default();
    let node = train::start_node(&config)?;
    let plan = Plan {
        families: Family::ALL.to_vec(),
        count: args.demonstrations,
        skill: args.skill,
        seed: args.seed,
        agent: config.coordinator_options().agent,
        parallel: 16,
    };
    let mut count = Counter::new("demonstrations");
    let played = demonstrations::play(node.clone(), plan, |done| count.tell(done, args.demonstrations, "")).await;
    node.shutdown().await;
    played
}

fn write_tokenizer(out: &Path) -> anyhow::Result<Arc<ModelTokenizer>> {
    let text = vocabulary::tokenizer_json(&family_words()).to_string();
    fs::write(out.join("tokenizer.json"), text)?;
    Ok(Arc::new(ModelTokenizer::load(out)?))
}

/// Trains a fresh model on the demonstrations and saves it.
fn imitate(args: &WarmupArgs, demonstrations: &[Demonstration], vocab_size: usize) -> anyhow::Result<Made> {
    let mut options = SftOptions { epochs: args.epochs, seed: args.seed, batch_tokens: 1024, ..SftOptions::default() };
    options.optimizer.learning_rate = args.learning_rate;
    let model = initial::model(venus_lm::Config::tiny(vocab_size), args.seed);
    let mut sft = Sft::new(options, model)?;
    let (kept, learnt) = demonstrations.split_at(demonstrations.len().div_ceil(KEPT_BACK));
    let mut count = Counter::new("updates");
    sft.train(learnt, &mut |p| {
        let state = format!("loss {:.3}, {:.0} tokens/s", p.loss, p.tokens_per_second);
        count.tell(p.update, p.updates, &state);
        ControlFlow::Continue(())
    })?;
    let imitation = sft.evaluate(kept)?;
    let model = sft.into_model();
    model.save(&args.out)?;
    Ok(Made {
        seed: args.seed,
        demonstrations: args.demonstrations,
        skill: args.skill,
        demonstrated_success: 0.0,
        tokens: demonstrations.iter().map(|demonstration| demonstration.tokens.len()).sum(),
        epochs: args.epochs,
        learning_rate: args.learning_rate,
        parameters: model.params().len(),
        imitation,
    })
}

fn finish(args: &WarmupArgs, made: Made) -> anyhow::Result<ExitCode> {
    fs::write(args.out.join("warmup.json"), serde_json::to_string_pretty(&made)? + "\n")?;
    let SftEvaluation { loss, accuracy, .. } = made.imitation;
    println!(
        "warm start of {} parameters in {}\n  demonstrations  {} of {} tokens, {:.1}% successful\n  imitation       loss {loss:.4}, {:.1}% of tokens are the likeliest\n  next            venus train --model {}",
        made.parameters,
        args.out.display(),
        made.demonstrations,
        made.tokens,
        made.demonstrated_success * 100.0,
        accuracy * 100.0,
        args.out.display(),
    );
    Ok(ExitCode::SUCCESS)
}
