//! Trajectories as ATIF v1.8, the Agent Trajectory Interchange Format of Harbor, for people and their viewers.
//!
//! Its step metrics carry token ids and logprobs; what it has no field for (loss mask, version spans, temperature, attempt) is in `extra`.

use crate::export::Exported;
use serde_json::{Value, json};

/// The version written.
pub const SCHEMA_VERSION: &str = "ATIF-v1.8";

/// What the steps of a run have in common.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Names the run.
    pub session: &'a str,
    /// Name of the model.
    pub model: &'a str,
    /// Temperature at which tokens were drawn.
    pub temperature: f32,
    /// The task's instruction.
    pub instruction: &'a str,
}

/// One trajectory as an ATIF document.
#[must_use]
pub fn document(exported: &Exported, context: &Context) -> Value {
    let trajectory = &exported.trajectory;
    let mut steps = vec![json!({ "step_id": 1, "source": "user", "message": context.instruction })];
    for index in 0..trajectory.turns.len() {
        steps.push(step(exported, context, index));
    }
    json!({
        "schema_version": SCHEMA_VERSION,
        "session_id": context.session,
        "trajectory_id": trajectory.train.trajectory.to_string(),
        "agent": { "name": "venus", "version": env!("CARGO_PKG_VERSION"), "model_name": context.model },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": trajectory.turns.iter().map(|turn| turn.drawn.start).sum::<usize>(),
            "total_completion_tokens": trajectory.drawn(),
            "total_steps": trajectory.turns.len() + 1,
            "extra": { "reward": trajectory.train.reward, "end": trajectory.end.as_str(), "seconds": trajectory.total },
        },
        "extra": {
            "task": exported.task,
            "group": exported.group.to_string(),
            "trained_into": exported.trained_into,
            "attempt": trajectory.restart,
            "temperature": context.temperature,
            "token_ids": trajectory.train.tokens,
            "loss_mask": trajectory.train.mask,
            "version_spans": trajectory.train.spans,
        },
    })
}

/// A turn: message, tool call, what came back. Its prompt are all tokens before its own.
fn step(exported: &Exported, context: &Context, index: usize) -> Value {
    let trajectory = &exported.trajectory;
    let turn = &trajectory.turns[index];
    let (start, end) = (turn.drawn.start, turn.drawn.end);
    let mut step = json!({
        "step_id": index + 2,
        "source": "agent",
        "model_name": context.model,
        "message": turn.message,
        "metrics": {
            "prompt_tokens": start,
            "completion_tokens": end - start,
            "cached_tokens": turn.cached.0,
            "prompt_token_ids": trajectory.train.tokens[..start],
            "completion_token_ids": trajectory.train.tokens[start..end],
            "logprobs": trajectory.train.logprobs[start..end],
        },
        "extra": { "generation_seconds": turn.generation, "queued_seconds": turn.queued, "tool_seconds": turn.tool },
    });
    if let (Some(command), Some(output)) = (&turn.command, &turn.output) {
        let call = format!("call-{}", index + 1);
        step["tool_calls"] =
            json!([{ "tool_call_id": call, "function_name": "bash", "arguments": { "command": command } }]);
        step["observation"] = json!({ "results": [{ "source_call_id": call, "content": output }] });
    }
    step
}
