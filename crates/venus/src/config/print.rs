//! `--print-config`: the resolved values as TOML, each with its origin.

use super::{Resolved, get, keys, section};
use std::fmt::Write;
use toml::Value;

/// One section a heading, nested keys dotted (`loss.old`), a comment for each key that is not set.
pub(super) fn print(resolved: &Resolved) -> String {
    let table = section::table(&resolved.config);
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut current = String::new();
    for key in keys(&section::every_key()) {
        let (head, name) = key.split_once('.').unwrap_or(("", &key));
        if head != current {
            let gap = if lines.is_empty() { "" } else { "\n" };
            lines.push((format!("{gap}[{head}]"), String::new()));
            head.clone_into(&mut current);
        }
        match get(&table, &key) {
            Some(value) => lines.push((format!("{name} = {}", inline(value)), resolved.origin(&key).to_string())),
            None => lines.push((format!("# {name}"), "not set".to_owned())),
        }
    }
    let width = lines.iter().filter(|(_, origin)| !origin.is_empty()).map(|(text, _)| text.chars().count()).max();
    let width = width.unwrap_or(0);
    lines.iter().fold(String::new(), |mut out, (text, origin)| {
        let _ = match origin.as_str() {
            "" => writeln!(out, "{text}"),
            origin => writeln!(out, "{text:<width$}  # {origin}"),
        };
        out
    })
}

/// A value on one line. Numbers are as short as they can be: what was an `f32` is not padded to an `f64`, and very
/// small and very large ones are written as people write them (`3e-5`).
pub(super) fn inline(value: &Value) -> String {
    let Value::Float(number) = value else { return value.to_string() };
    let (number, narrow) = (*number, *number as f32);
    let exponent = number != 0.0 && number.is_finite() && !(1e-3..1e6).contains(&number.abs());
    match (f64::from(narrow) == number, exponent) {
        (true, true) => format!("{narrow:e}"),
        (true, false) => format!("{narrow:?}"),
        (false, true) => format!("{number:e}"),
        (false, false) => format!("{number:?}"),
    }
}
