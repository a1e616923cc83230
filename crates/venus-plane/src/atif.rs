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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{End, FinishedTrajectory, Turn};
    use venus_core::ids::{GroupId, TrajectoryId, Version};
    use venus_core::message::engine::VersionSpan;
    use venus_core::message::trainer::TrainTrajectory;

    fn exported() -> Exported {
        let turn = |drawn: std::ops::Range<usize>, message: &str, output: Option<&str>| Turn {
            drawn,
            message: message.to_owned(),
            command: output.map(|_| message.to_owned()),
            output: output.map(str::to_owned),
            ..Turn::default()
        };
        let train = TrainTrajectory {
            trajectory: TrajectoryId(9),
            tokens: (10..18).collect(),
            mask: vec![0, 0, 1, 1, 0, 0, 1, 1],
            logprobs: vec![0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -1.0, -2.0],
            spans: vec![VersionSpan { version: Version(2), start: 2, end: 8 }],
            reward: 1.0,
        };
        let trajectory = FinishedTrajectory {
            train,
            prompt_tokens: 2,
            end: End::Done,
            restart: 1,
            turns: vec![turn(2..4, "ls", Some("a b")), turn(6..8, "done", None)],
            create: 0.1,
            grading: 0.2,
            total: 2.0,
        };
        Exported {
            group: GroupId(1),
            task: "count-7".to_owned(),
            family: "count".to_owned(),
            instruction: "Count the files.".to_owned(),
            trained_into: Some(Version(3)),
            trajectory,
        }
    }

    #[test]
    fn an_atif_document_has_messages_calls_results_and_the_tokens_of_each_step() {
        let context = Context { session: "run-1", model: "tiny", temperature: 1.0, instruction: "Count the files." };
        let document = document(&exported(), &context);
        assert_eq!(document["schema_version"], "ATIF-v1.8");
        let steps = document["steps"].as_array().unwrap();
        let source = |step: &Value| (step["step_id"].as_u64().unwrap(), step["source"].as_str().unwrap().to_owned());
        let sources: Vec<_> = steps.iter().map(source).collect();
        assert_eq!(sources, [(1, "user".to_owned()), (2, "agent".to_owned()), (3, "agent".to_owned())]);
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
