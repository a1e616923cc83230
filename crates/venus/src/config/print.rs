//! `--print-config`: the resolved values as TOML, each with its origin.

use super::{Resolved, layer, section};
use toml::Value;

pub(super) fn print(resolved: &Resolved) -> String {
    let table = section::table(&resolved.config);
    let mut lines: Vec<(String, Option<String>)> = Vec::new();
    let mut current = String::new();
    layer::walk(&table, &mut |key, value| {
        let (head, name) = key.rsplit_once('.').unwrap_or(("", key));
        if head != current {
            if !lines.is_empty() {
                lines.push((String::new(), None));
            }
            lines.push((format!("[{head}]"), None));
            head.clone_into(&mut current);
        }
        lines.push((format!("{name} = {}", inline(value)), Some(resolved.origin(key).to_string())));
    });
    let width =
        lines.iter().filter(|(_, origin)| origin.is_some()).map(|(text, _)| text.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (text, origin) in lines {
        match origin {
            Some(origin) => out.push_str(&format!("{text:<width$}  # {origin}\n")),
            None => out.push_str(&format!("{text}\n")),
        }
    }
    out
}

/// A value on one line; very small and very large floats in the form people write (`3e-5`).
fn inline(value: &Value) -> String {
    match value {
        Value::Float(number) if *number != 0.0 && !(1e-3..1e6).contains(&number.abs()) => format!("{number:e}"),
        other => other.to_string(),
    }
}
