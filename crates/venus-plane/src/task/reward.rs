//! What a grader says.
//!
//! A grader leaves `reward.txt` (one number) or `reward.json` in [`VERIFIER_LOGS`](super::VERIFIER_LOGS). `reward.json` is
//! either an object with a number under `reward`, or a flat object of named numbers, whose mean is the reward. Where both
//! files are there, `reward.txt` counts. As in Harbor any finite number is a reward. Whatever else is there, or nothing,
//! is a grader that failed: an error, never a reward of 0 or -1 (rllm#811).

use std::collections::BTreeMap;

/// Why there is no reward. The trajectory has none and must not be trained on as if it had failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraderError {
    /// Neither file is there.
    #[error(
        "the grader left neither reward.txt nor reward.json in /logs/verifier: run tests/test.sh by hand and see where it stops"
    )]
    Missing,
    /// A file has nothing in it.
    #[error("the grader left an empty {file}: it must write a number")]
    Empty {
        /// Which one.
        file: &'static str,
    },
    /// A file holds something else.
    #[error("the grader's {file} holds {held}: it must be {expected}")]
    NotANumber {
        /// Which one.
        file: &'static str,
        /// The start of what it holds.
        held: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The number is NaN or infinite.
    #[error("the grader's {file} holds a number that is not finite")]
    NotFinite {
        /// Which one.
        file: &'static str,
    },
}

/// The reward in the files a grader left; `None` for a file that is not there.
///
/// # Errors
/// Anything but a finite number.
pub fn parse(txt: Option<&[u8]>, json: Option<&[u8]>) -> Result<f64, GraderError> {
    match (txt, json) {
        (Some(txt), _) => parse_txt(txt),
        (None, Some(json)) => parse_json(json),
        (None, None) => Err(GraderError::Missing),
    }
}

fn parse_txt(bytes: &[u8]) -> Result<f64, GraderError> {
    let file = "reward.txt";
    let text = String::from_utf8_lossy(bytes);
    if text.trim().is_empty() {
        return Err(GraderError::Empty { file });
    }
    let number = text.trim().parse().map_err(|_| not_a_number(file, &text, "one number"))?;
    finite(file, number)
}

fn parse_json(bytes: &[u8]) -> Result<f64, GraderError> {
    let (file, expected) = ("reward.json", "{\"reward\": NUMBER} or a flat object of numbers");
    let text = String::from_utf8_lossy(bytes);
    if text.trim().is_empty() {
        return Err(GraderError::Empty { file });
    }
    let wrong = || not_a_number(file, &text, expected);
    let object: BTreeMap<String, serde_json::Value> = serde_json::from_slice(bytes).map_err(|_| wrong())?;
    if let Some(reward) = object.get("reward") {
        return finite(file, reward.as_f64().ok_or_else(wrong)?);
    }
    let numbers: Option<Vec<f64>> = object.values().map(serde_json::Value::as_f64).collect();
    match numbers {
        Some(numbers) if !numbers.is_empty() => finite(file, numbers.iter().sum::<f64>() / numbers.len() as f64),
        _ => Err(wrong()),
    }
}

fn finite(file: &'static str, number: f64) -> Result<f64, GraderError> {
    if number.is_finite() { Ok(number) } else { Err(GraderError::NotFinite { file }) }
}

fn not_a_number(file: &'static str, text: &str, expected: &'static str) -> GraderError {
    GraderError::NotANumber { file, held: format!("{:?}", text.trim().chars().take(60).collect::<String>()), expected }
}

#[cfg(test)]
mod tests {
    use super::{GraderError, parse};

    #[test]
    fn a_number_or_a_flat_object_is_a_reward() {
        assert_eq!(parse(Some(b" 0.5\n"), None), Ok(0.5));
        assert_eq!(parse(Some(b"1"), Some(b"{\"reward\": 0}")), Ok(1.0));
        assert_eq!(parse(None, Some(b"{\"reward\": 0.25, \"speed\": 9}")), Ok(0.25));
        assert_eq!(parse(None, Some(b"{\"a\": 1, \"b\": 0}")), Ok(0.5));
    }

    /// rllm#811: a grader that died was read as a reward of -1 and trained on.
    #[test]
    fn a_grader_that_failed_is_an_error_and_never_a_reward() {
        assert_eq!(parse(None, None), Err(GraderError::Missing));
        assert_eq!(parse(Some(b"\n"), None), Err(GraderError::Empty { file: "reward.txt" }));
        for txt in ["nan", "inf", "-inf", "1e999"] {
            assert_eq!(parse(Some(txt.as_bytes()), None), Err(GraderError::NotFinite { file: "reward.txt" }), "{txt}");
        }
        for txt in ["1 1", "passed", "0,5", "\u{0}"] {
            assert!(matches!(parse(Some(txt.as_bytes()), None), Err(GraderError::NotANumber { .. })), "{txt:?}");
        }
        for json in ["[1]", "{}", "{\"reward\": \"1\"}", "{\"a\": {\"b\": 1}}", "{\"reward\": 1", "{\"a\": null}"] {
            assert!(matches!(parse(None, Some(json.as_bytes())), Err(GraderError::NotANumber { .. })), "{json}");
        }
    }
}
