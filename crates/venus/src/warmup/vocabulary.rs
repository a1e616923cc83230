//! The warm-start model's tokenizer: every word of the generated tasks is one token, with the blank before it.
//!
//! A small policy fails at copying long before it fails at deciding. So a name is the same token in an instruction,
//! in a command and in output, and its neighbour in the text is its neighbour in the tokens: a blank belongs to the word,
//! digit or other character after it, and the first word of a text or line gets one too. Everything else falls back to
//! bytes, so any text can be encoded and decoded exactly. The file is an ordinary Hugging Face `tokenizer.json`
//! (byte-level BPE without merges and with `ignore_merges`, as Llama 3 uses it for whole words).

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Opens a message.
pub const MESSAGE_START: &str = "<|im_start|>";
/// Closes a message; a turn stops here.
pub const MESSAGE_END: &str = "<|im_end|>";
/// Fills nothing: reserved, as most tokenizers do.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// How text is cut before it is looked up.
const PIECES: &str = r" ?[A-Za-z]+| ?[0-9]| ?\n| ?[^\sA-Za-z0-9]|\s";

/// A line break that something follows: the next line gets its blank.
const INNER_BREAK: &str = r"\n(?=[^\n])";

/// A `tokenizer.json` whose vocabulary is the special tokens, all 256 bytes, the chat roles and `words`.
pub fn tokenizer_json(words: &[&str]) -> Value {
    let specials = [END_OF_TEXT, MESSAGE_START, MESSAGE_END];
    let added = specials.iter().enumerate().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"Regex": INNER_BREAK}, "content": "\n "},
            {"type": "Prepend", "prepend": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            {"type": "Replace", "pattern": {"String": "\n "}, "content": "\n"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                  "vocab": vocabulary(&specials, words), "merges": []}
    })
}

fn vocabulary(specials: &[&str], words: &[&str]) -> BTreeMap<String, usize> {
    let blank = byte_symbol(b' ');
    let bytes = (0..=255u8).map(|byte| byte_symbol(byte).to_string());
    let spaced = (0..128u8).filter(|&byte| byte == b'\n' || byte.is_ascii_graphic());
    let spaced = spaced.map(|byte| format!("{blank}{}", byte_symbol(byte)));
    let roles = ["user", "assistant", "tool"];
    let words = roles.iter().chain(words).filter(|word| word.len() > 1).map(|word| format!("{blank}{word}"));
    let mut vocabulary = BTreeMap::new();
    for token in specials.iter().map(|special| (*special).to_owned()).chain(bytes).chain(spaced).chain(words) {
        let id = vocabulary.len();
        vocabulary.entry(token).or_insert(id);
    }
    vocabulary
}

/// The printable character that stands for a byte in a byte-level vocabulary (GPT-2's table).
fn byte_symbol(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use venus_lm::Tokenizer;

    fn tokenizer(words: &[&str]) -> Tokenizer {
        Tokenizer::from_bytes(tokenizer_json(words).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_word_is_the_same_token_wherever_it_stands_by_itself() {
        let tokenizer = tokenizer(&["maple", "grep", "river"]);
        let maple = tokenizer.encode("maple").unwrap();
        assert_eq!(maple.len(), 1);
        for text in ["grep -h maple *", "maple river", "river\nmaple river", "no maple: gone", "<|im_start|>maple"] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(ids.iter().filter(|&&id| id == maple[0]).count(), 1, "{text}: {ids:?}");
        }
        assert_eq!(tokenizer.encode("grep -h maple *").unwrap().len(), 5);
    }

    #[test]
    fn any_text_survives_encoding_and_decoding() {
        let tokenizer = tokenizer(&["maple"]);
        for text in [
            "sed -i 's/a1/b 22/' x.sh\n",
            "naïve – 日本語 🦀",
            "\u{0}\t\r\n  spaces  ",
            "maples Maple",
            "a\n\n b\n",
            "\n",
            "",
        ] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}
