//! Output of a command in bounded memory, whatever it prints.

use std::collections::VecDeque;

/// Keeps the first and the last part of a stream.
pub(crate) struct Shortened {
    head: Vec<u8>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_room: usize,
    omitted: u64,
}

impl Shortened {
    /// Keeps at most `max` bytes: the first `max / 2` and as many of the last as are left.
    pub(crate) fn new(max: usize) -> Self {
        let head_room = max / 2;
        Self { head: Vec::new(), head_room, tail: VecDeque::new(), tail_room: max - head_room, omitted: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_room - self.head.len()));
        self.head.extend_from_slice(head);
        let skipped = rest.len().saturating_sub(self.tail_room);
        let rest = &rest[skipped..];
        let pushed_out = (self.tail.len() + rest.len()).saturating_sub(self.tail_room);
        self.tail.drain(..pushed_out);
        self.tail.extend(rest);
        self.omitted += (skipped + pushed_out) as u64;
    }

    /// What was kept, and how many bytes are missing between its halves.
    pub(crate) fn finish(self) -> (Vec<u8>, u64) {
        let mut output = self.head;
        output.extend(self.tail);
        (output, self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_part_are_kept_however_the_stream_is_cut() {
        let stream: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for max in [0, 1, 7, 64, 999, 1000, 2000] {
            for piece in [1, 3, 64, 1000] {
                let mut kept = Shortened::new(max);
                stream.chunks(piece).for_each(|bytes| kept.push(bytes));
                let (output, omitted) = kept.finish();
                let whole = stream.len().min(max);
                assert_eq!((output.len(), omitted as usize), (whole, stream.len() - whole));
                let head = whole.min(max / 2);
                assert_eq!(output[..head], stream[..head]);
                assert_eq!(output[head..], stream[stream.len() - (whole - head)..]);
            }
        }
    }
}
