//! Demonstrations: the scripted agent of the generated tasks, played in real sandboxes.

use crate::embedded::EmbeddedNode;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use venus_core::ids::SandboxId;
use venus_core::message::sandbox::{CreateSandbox, Exec};
use venus_plane::agent::{AgentOptions, Protocol, Step, observation};
use venus_plane::grading::grade;
use venus_plane::sandbox::{Sandbox, SandboxClient};
use venus_plane::task::family::{Demonstrator, Family, mixed};
use venus_plane::task::{Split, Task};
use venus_trainer::Demonstration;

/// A run of the scripted agent, in text.
#[derive(Clone, Debug)]
pub struct Played {
    /// The task's instruction.
    pub instruction: String,
    /// Each turn with what the agent was told of its result: nothing for the last one, `done`.
    pub turns: Vec<(String, String)>,
    /// The grader's verdict.
    pub reward: f32,
}

impl Played {
    /// Its tokens, exactly as the agent loop makes them; the commands carry the loss.
    ///
    /// # Errors
    /// A text cannot be encoded.
    pub fn encode(&self, protocol: &Protocol) -> Result<Demonstration> {
        let turns: Vec<(&str, &str)> = self.turns.iter().map(|(text, output)| (&**text, &**output)).collect();
        let (tokens, mask) = protocol.demonstration(&self.instruction, &turns)?;
        Ok(Demonstration { tokens, mask })
    }
}

/// How to play.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Families, taken in turn.
    pub families: Vec<Family>,
    /// How many demonstrations.
    pub count: u64,
    /// Skill of the scripted agent.
    pub skill: f64,
    /// Seed of tasks and slips.
    pub seed: u64,
    /// Limits of the agent, as in training.
    pub agent: AgentOptions,
    /// Demonstrations at once.
    pub parallel: usize,
}

/// Plays all demonstrations. `progress` is told how many are done.
pub async fn play(node: EmbeddedNode, plan: Plan, mut progress: impl FnMut(u64)) -> Result<Vec<Played>> {
    let plan = Arc::new(plan);
    let permits = Arc::new(Semaphore::new(plan.parallel));
    let mut running = JoinSet::new();
    for index in 0..plan.count {
        let (node, plan, permits) = (node.clone(), plan.clone(), permits.clone());
        running.spawn(async move {
            let _permit = permits.acquire_owned().await?;
            play_one(&node, &plan, index).await.map(|played| (index, played))
        });
    }
    let mut done = Vec::new();
    while let Some(played) = running.join_next().await {
        done.push(played.context("a demonstration was interrupted")??);
        progress(done.len() as u64);
    }
    done.sort_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, played)| played).collect())
}

async fn play_one(node: &EmbeddedNode, plan: &Plan, index: u64) -> Result<Played> {
    let task = mixed(&plan.families, Split::Train, plan.seed, index);
    let mut agent =
        Demonstrator::new(&task, plan.skill, plan.seed).context("only generated tasks have demonstrations")?;
    let request = CreateSandbox {
        sandbox: SandboxId(index),
        template: task.name.clone(),
        limits: task.limits.clone(),
        deadline_ms: 600_000,
    };
    let sandbox = node.create(request, &task).await?;
    let mut turns = Vec::new();
    let mut last: Option<String> = None;
    while turns.len() < plan.agent.max_turns as usize {
        let text = agent.next(last.as_deref());
        let Step::Run(command) = Protocol::step(&text) else {
            turns.push((text, String::new()));
            break;
        };
        let output = run(&sandbox, &task, &plan.agent, &command).await?;
        turns.push((text, output.clone()));
        last = Some(output);
    }
    let reward = grade(&sandbox, &task, Duration::from_secs(10)).await?;
    sandbox.kill().await?;
    Ok(Played { instruction: task.instruction, turns, reward })
}

async fn run<S: Sandbox>(sandbox: &S, task: &Task, options: &AgentOptions, command: &str) -> Result<String> {
    let exec = Exec {
        argv: vec![options.shell.clone(), "-c".to_owned(), command.to_owned()],
        env: task.environment.env.clone(),
        cwd: Some(task.environment.workdir.clone()),
        stdin: Vec::new(),
        timeout_ms: (options.tool_timeout * 1000.0) as u64,
        max_output: options.max_output_chars * 4,
    };
    let kept = exec.max_output;
    let result = sandbox.exec(exec).await?;
    Ok(observation(&result, kept, options.max_output_chars as usize))
}
