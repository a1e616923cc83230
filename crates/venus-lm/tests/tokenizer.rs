//! Tokens are the record: what is encoded decodes to the same text, special tokens included.

use venus_lm::Tokenizer;

/// Byte-level BPE over all 256 bytes, one merge and two special tokens.
fn tokenizer_json() -> String {
    // GPT-2's printable stand-ins for bytes.
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let hidden: Vec<u32> = (0..256).filter(|byte| !printable(*byte)).collect();
    let stand_in = |byte: u32| {
        let code = hidden.iter().position(|hidden| *hidden == byte).map_or(byte, |place| 256 + place as u32);
        char::from_u32(code).into_iter().collect::<String>()
    };
    let mut vocab: serde_json::Map<String, serde_json::Value> =
        (0..256).map(|byte| (stand_in(byte), byte.into())).collect();
    vocab.insert("he".into(), 256.into());
    let added = ["<|im_start|>", "<|im_end|>"].iter().enumerate().map(|(i, content)| {
        serde_json::json!({"id": 257 + i, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true})
    });
    let bytes =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    serde_json::json!({
        "version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "normalizer": null, "pre_tokenizer": bytes,
        "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocab, "merges": [["h", "e"]]},
    })
    .to_string()
}

#[test]
fn any_text_survives_encoding_and_special_tokens_are_single_ids() {
    let tokenizer = Tokenizer::from_bytes(tokenizer_json().as_bytes()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 259);
    let (start, end) = (tokenizer.token_id("<|im_start|>").unwrap(), tokenizer.token_id("<|im_end|>").unwrap());
    for text in ["", "hello", "<|im_start|>user\nls -la 'a b' | wc\t\0<|im_end|>\n", "naïve 日本 🦀\r\n  x"] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        assert_eq!(ids.iter().filter(|id| **id == start).count(), text.matches("<|im_start|>").count());
    }
    assert_eq!(tokenizer.encode("<|im_end|>he").unwrap(), [end, 256]);
    assert_eq!(tokenizer.token_id("<|absent|>"), None);
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused() {
    assert!(Tokenizer::from_bytes(b"{}").is_err());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    assert!(Tokenizer::load(dir.path()).is_ok());
    assert!(Tokenizer::load(dir.path().join("absent.json")).err().unwrap().to_string().contains("absent.json"));
}
