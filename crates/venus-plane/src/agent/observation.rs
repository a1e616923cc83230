//! What the agent is told of a command's result.

use std::borrow::Cow;
use venus_core::message::sandbox::{ExecResult, ExecStatus};

/// The tool message of a result, at most about `max_chars` characters of output and one or two lines about it:
///
/// - the output without its trailing newlines, shortened by [`shorten`];
/// - when the command did not exit with 0, a last line that says so: `[exit 2]`, `[signal 9]`, `[timed out]`, `[out of memory]`;
/// - `[ok]` when there is nothing else to say.
///
/// A command that the sandbox refuses to start gives `[not run: ...]` instead.
///
/// Bytes that are no UTF-8 become U+FFFD, one for each broken sequence. `max_kept` is the request's `max_output`: it tells where the sandbox
/// left out bytes, each of which counts as a character.
#[must_use]
pub fn observation(result: &ExecResult, max_kept: u32, max_chars: usize) -> String {
    let text = if result.omitted == 0 {
        let text = String::from_utf8_lossy(&result.output);
        shorten(text.trim_end_matches('\n'), max_chars).into_owned()
    } else {
        let middle = (max_kept as usize / 2).min(result.output.len());
        let (head, tail) = result.output.split_at(middle);
        let tail = String::from_utf8_lossy(tail);
        shorten_parts(&String::from_utf8_lossy(head), tail.trim_end_matches('\n'), result.omitted, max_chars)
    };
    let status = match result.status {
        ExecStatus::Exited { code: 0 } => None,
        ExecStatus::Exited { code } => Some(format!("[exit {code}]")),
        ExecStatus::Signaled { signal } => Some(format!("[signal {signal}]")),
        ExecStatus::TimedOut => Some("[timed out]".to_owned()),
        ExecStatus::OutOfMemory => Some("[out of memory]".to_owned()),
    };
    match (text.is_empty(), status) {
        (true, None) => "[ok]".to_owned(),
        (true, Some(status)) => status,
        (false, None) => text,
        (false, Some(status)) => format!("{text}\n{status}"),
    }
}

/// `text` if it has at most `max_chars` characters; else its first and last `max_chars / 2`, and between them a line of
/// its own, `[... N characters left out ...]`.
#[must_use]
pub fn shorten(text: &str, max_chars: usize) -> Cow<'_, str> {
    // Bytes bound characters, so that the usual short text is not counted.
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return Cow::Borrowed(text);
    }
    let half = max_chars / 2;
    let head = &text[..byte_of_char(text, half)];
    Cow::Owned(shorten_parts(head, &text[head.len()..], 0, max_chars))
}

fn shorten_parts(head: &str, tail: &str, omitted: u64, max_chars: usize) -> String {
    let half = max_chars / 2;
    let kept_head = &head[..byte_of_char(head, half)];
    let tail_chars = tail.chars().count();
    let kept_tail = &tail[byte_of_char(tail, tail_chars.saturating_sub(half))..];
    let left_out = omitted + head[kept_head.len()..].chars().count() as u64 + tail_chars.saturating_sub(half) as u64;
    let line_end = if kept_head.is_empty() || kept_head.ends_with('\n') { "" } else { "\n" };
    format!("{kept_head}{line_end}[... {left_out} characters left out ...]\n{kept_tail}")
}

/// Byte at which the `n`-th character starts; the end if there are fewer.
fn byte_of_char(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(output: &[u8], status: ExecStatus) -> ExecResult {
        ExecResult { status, output: output.to_vec(), omitted: 0, nanos: 0 }
    }

    #[test]
    fn success_is_the_output_and_failure_adds_a_line() {
        let ok = ExecStatus::Exited { code: 0 };
        assert_eq!(observation(&result(b"a\nb\n\n", ok), 100, 100), "a\nb");
        assert_eq!(observation(&result(b"", ok), 100, 100), "[ok]");
        assert_eq!(observation(&result(b"\n", ok), 100, 100), "[ok]");
        assert_eq!(observation(&result(b"no\n", ExecStatus::Exited { code: 2 }), 100, 100), "no\n[exit 2]");
        assert_eq!(observation(&result(b"", ExecStatus::TimedOut), 100, 100), "[timed out]");
        assert_eq!(observation(&result(b"a\xffb", ok), 100, 100), "a\u{fffd}b");
    }

    #[test]
    fn a_long_output_keeps_both_ends_and_says_how_much_is_missing() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghijk", 10), "abcde\n[... 1 characters left out ...]\nghijk");
        assert_eq!(shorten("ab\ndefghijk", 6), "ab\n[... 5 characters left out ...]\nijk");
        assert_eq!(shorten("äöüäöüäöü", 4), "äö\n[... 5 characters left out ...]\nöü");
    }

    #[test]
    fn what_the_sandbox_left_out_is_counted_too() {
        let cut = ExecResult { omitted: 1000, ..result("ääxxyyéé".as_bytes(), ExecStatus::Exited { code: 0 }) };
        // The sandbox kept 12 bytes: 6 from the start (ääxx), 6 from the end (yyéé).
        assert_eq!(observation(&cut, 12, 4), "ää\n[... 1004 characters left out ...]\néé");
        assert_eq!(observation(&cut, 12, 100), "ääxx\n[... 1000 characters left out ...]\nyyéé");
    }
}
