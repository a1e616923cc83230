//! Trajectories as ATIF v1.8, the Agent Trajectory Interchange Format of Harbor, for people and their viewers.
//!
//! Its step metrics carry token ids and logprobs; what it has no field for (loss mask, version spans, temperature, attempt) is in `extra`.

use crate::export::{Line, TurnLine};
use serde_json::{Value, json};

/// The version written.
pub const SCHEMA_VERSION: &str = "ATIF-v1.8";

/// What the trajectories of a run have in common.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Names the run.
    pub session: &'a str,
    /// Name of the model.
    pub model: &'a str,
    /// Temperature at which tokens were drawn.
    pub temperature: f32,
}

/// One trajectory as an ATIF document.
#[must_use]
pub fn document(line: &Line, context: &Context) -> Value {
    let mut steps = vec![json!({ "step_id": 1, "source": "user", "message": line.instruction })];
    steps.extend(line.turns.iter().enumerate().map(|(index, turn)| step(line, turn, index, context)));
    json!({
        "schema_version": SCHEMA_VERSION,
        "session_id": context.session,
        "trajectory_id": line.trajectory.to_string(),
        "agent": { "name": "venus", "version": env!("CARGO_PKG_VERSION"), "model_name": context.model },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": line.turns.iter().map(|turn| turn.drawn.start).sum::<usize>(),
            "total_completion_tokens": line.turns.iter().map(|turn| turn.tokens).sum::<usize>(),
            "total_cached_tokens": line.turns.iter().map(|turn| turn.cached_tokens).sum::<u64>(),
            "total_steps": line.turns.len() + 1,
            "extra": { "reward": line.reward, "end": line.end.as_str(), "seconds": line.total_seconds },
        },
        "extra": {
            "task": line.task,
            "group": line.group.to_string(),
            "step": line.step,
            "attempt": line.restart,
            "temperature": context.temperature,
            "token_ids": line.tokens,
            "loss_mask": line.mask,
            "version_spans": line.spans,
        },
    })
}

/// A turn: message, tool call, what came back. Its prompt is every token before its own.
fn step(line: &Line, turn: &TurnLine, index: usize, context: &Context) -> Value {
    let mut step = json!({
        "step_id": index + 2,
        "source": "agent",
        "model_name": context.model,
        "message": turn.message,
        "metrics": {
            "prompt_tokens": turn.drawn.start,
            "completion_tokens": turn.tokens,
            "cached_tokens": turn.cached_tokens,
            "prompt_token_ids": line.tokens[..turn.drawn.start],
            "completion_token_ids": line.tokens[turn.drawn.clone()],
            "logprobs": line.logprobs[turn.drawn.clone()],
        },
        "extra": {
            "generation_seconds": turn.generation_seconds,
            "queued_seconds": turn.queued_seconds,
            "tool_seconds": turn.seconds,
        },
    });
    if let Some(output) = &turn.output {
        let call = format!("call-{}", index + 1);
        let arguments = json!({ "command": turn.command });
        step["tool_calls"] = json!([{ "tool_call_id": call, "function_name": "bash", "arguments": arguments }]);
        step["observation"] = json!({ "results": [{ "source_call_id": call, "content": output }] });
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::End;
    use venus_core::ids::{GroupId, TrajectoryId, Version};
    use venus_core::message::engine::VersionSpan;

    fn line() -> Line {
        let turn = |drawn: std::ops::Range<usize>, message: &str, output: Option<&str>| TurnLine {
            message: message.to_owned(),
            command: message.to_owned(),
            output: output.map(str::to_owned),
            tokens: drawn.len(),
            drawn,
            cached_tokens: 2,
            seconds: output.map(|_| 0.5),
            queued_seconds: 0.0,
            generation_seconds: 1.0,
        };
        Line {
            step: Some(Version(3)),
            group: GroupId(1),
            trajectory: TrajectoryId(9),
            restart: 1,
            task: "count-7".to_owned(),
            family: "count".to_owned(),
            instruction: "Count the files.".to_owned(),
            reward: 1.0,
            end: End::Done,
            turns: vec![turn(2..4, "ls", Some("a b")), turn(6..8, "done", None)],
            prompt_tokens: 2,
            tokens: (10..18).collect(),
            mask: vec![0, 0, 1, 1, 0, 0, 1, 1],
            logprobs: vec![0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -1.0, -2.0],
            spans: vec![VersionSpan { version: Version(2), start: 2, end: 8 }],
            create_seconds: 0.1,
            grading_seconds: 0.2,
            total_seconds: 2.0,
        }
    }

    #[test]
    fn an_atif_document_has_messages_calls_results_and_the_tokens_of_each_step() {
        let context = Context { session: "run-1", model: "tiny", temperature: 1.0 };
        let document = document(&line(), &context);
        assert_eq!(document["schema_version"], "ATIF-v1.8");
        let steps = document["steps"].as_array().unwrap();
        let sources: Vec<_> =
            steps.iter().map(|s| (s["step_id"].as_u64().unwrap(), s["source"].as_str().unwrap())).collect();
        assert_eq!(sources, [(1, "user"), (2, "agent"), (3, "agent")]);
        assert_eq!(steps[1]["tool_calls"][0]["arguments"]["command"], "ls");
        assert_eq!(steps[1]["observation"]["results"][0], json!({ "source_call_id": "call-1", "content": "a b" }));
        assert_eq!(steps[1]["metrics"]["prompt_token_ids"], json!([10, 11]));
        assert_eq!(steps[2]["metrics"]["completion_token_ids"], json!([16, 17]));
        assert_eq!(steps[2]["metrics"]["logprobs"], json!([-1.0, -2.0]));
        assert!(steps[2].get("tool_calls").is_none(), "`done` calls nothing");
        assert_eq!(document["extra"]["loss_mask"], json!([0, 0, 1, 1, 0, 0, 1, 1]));
        assert_eq!(document["extra"]["version_spans"], json!([{ "version": 2, "start": 2, "end": 8 }]));
        assert_eq!(document["final_metrics"]["total_completion_tokens"], 4);
    }
}
