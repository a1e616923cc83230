//! One pass is any other: chunks, pages, batches, threads and training give the same logits.

use std::sync::Arc;
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment, TrainWorkspace, logits};

fn models() -> Vec<Arc<Model>> {
    let odd = Config {
        hidden_size: 40,
        intermediate_size: 56,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 10,
        tie_word_embeddings: false,
        qk_norm: true,
        ..Config::tiny(77)
    };
    [Config::tiny(150), odd].into_iter().map(|config| Arc::new(Model::random(config, 1))).collect()
}

fn text(model: &Model, length: usize, salt: u32) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 31 + i * 7 + salt) % model.config.vocab_size as u32).collect()
}

/// All logits in one pass over contiguous pages.
fn one_shot(model: &Arc<Model>, tokens: &[u32], page_size: usize) -> Vec<f32> {
    let pages: Vec<u32> = (0..tokens.len().div_ceil(page_size) as u32).collect();
    let mut kv = Kv::new(&model.config, pages.len(), page_size);
    let segment = Segment { tokens, start: 0, pages: &pages, logits: LogitRows::All };
    Inference::new(model.clone(), 1).forward(&mut kv, &[segment]).to_vec()
}

#[test]
fn a_chunked_prompt_gives_the_bits_of_a_whole_one() {
    for model in models() {
        let tokens = text(&model, 75, 3);
        let whole = one_shot(&model, &tokens, 16);
        for chunk in [1, 7, 16, 40] {
            let pages = [4, 0, 3, 1, 2];
            let mut kv = Kv::new(&model.config, 5, 16);
            let mut inference = Inference::new(model.clone(), 1);
            let mut got = Vec::new();
            for (index, tokens) in tokens.chunks(chunk).enumerate() {
                let segment = Segment { tokens, start: index * chunk, pages: &pages, logits: LogitRows::All };
                got.extend_from_slice(inference.forward(&mut kv, &[segment]));
            }
            assert!(got == whole, "chunks of {chunk} differ");
        }
    }
}

#[test]
fn scattered_pages_of_any_size_give_the_bits_of_contiguous_ones() {
    for model in models() {
        let tokens = text(&model, 50, 9);
        let contiguous = one_shot(&model, &tokens, 64);
        for page_size in [1, 3, 16, 24, 32] {
            let needed = tokens.len().div_ceil(page_size) as u32;
            let pages: Vec<u32> = (0..needed).map(|i| (needed - 1 - i) * 2 + 1).collect();
            let mut kv = Kv::new(&model.config, 2 * needed as usize, page_size);
            let segment = Segment { tokens: &tokens, start: 0, pages: &pages, logits: LogitRows::All };
            let mut inference = Inference::new(model.clone(), 1);
            assert!(inference.forward(&mut kv, &[segment]) == contiguous, "pages of {page_size} differ");
        }
    }
}

#[test]
fn logits_do_not_depend_on_the_batch_or_the_threads() {
    for model in models() {
        let vocab = model.config.vocab_size;
        let texts: Vec<Vec<u32>> = [33, 5, 60, 1, 18].iter().map(|&n| text(&model, n, n as u32)).collect();
        let alone: Vec<Vec<f32>> = texts.iter().map(|tokens| one_shot(&model, tokens, 16)).collect();
        for threads in [1, 2] {
            let tables: Vec<Vec<u32>> = (0..5).map(|i| (0..4).map(|page| page * 5 + i).collect()).collect();
            let mut kv = Kv::new(&model.config, 20, 16);
            let mut inference = Inference::new(model.clone(), threads);
            // A first pass fills the prompts; a second decodes one token of each.
            let pass = |end: usize| move |tokens: &Vec<u32>| tokens.len() - end.min(tokens.len());
            for (from, to) in [(usize::MAX, 1), (1, 0)] {
                let (from, to) = (pass(from), pass(to));
                let parts: Vec<usize> = (0..5).filter(|&i| from(&texts[i]) < to(&texts[i])).collect();
                let segments: Vec<Segment> = parts
                    .iter()
                    .map(|&i| Segment {
                        tokens: &texts[i][from(&texts[i])..to(&texts[i])],
                        start: from(&texts[i]),
                        pages: &tables[i],
                        logits: LogitRows::Last,
                    })
                    .collect();
                let got = inference.forward(&mut kv, &segments);
                for (row, &i) in parts.iter().enumerate() {
                    let last = to(&texts[i]) - 1;
                    assert!(
                        got[row * vocab..][..vocab] == alone[i][last * vocab..][..vocab],
                        "text {i}, {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn training_computes_the_bits_that_generation_sampled_from() {
    for model in models() {
        let vocab = model.config.vocab_size;
        let texts: Vec<Vec<u32>> = [70, 1, 20].iter().map(|&n| text(&model, n, n as u32)).collect();
        let sequences: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let rows: [&[u32]; 3] = [&[0, 5, 64, 69], &[], &[19]];
        let mut seen = 0;
        logits(&model, &mut TrainWorkspace::new(), &sequences, &rows, &mut |i, got| {
            assert_eq!(i, seen);
            seen += 1;
            let all = one_shot(&model, &texts[i], 16);
            let expected: Vec<f32> =
                rows[i].iter().flat_map(|&row| all[row as usize * vocab..][..vocab].to_vec()).collect();
            assert!(got == expected, "sequence {i}");
        });
        assert_eq!(seen, 3);
    }
}

#[test]
fn a_copied_page_serves_another_sequence() {
    let model = &models()[0];
    let tokens = text(model, 20, 0);
    let whole = one_shot(model, &tokens, 16);
    let mut kv = Kv::new(&model.config, 4, 16);
    let mut inference = Inference::new(model.clone(), 1);
    inference.forward(&mut kv, &[Segment { tokens: &tokens[..16], start: 0, pages: &[0], logits: LogitRows::None }]);
    kv.copy_page(0, 3);
    let rest = Segment { tokens: &tokens[16..], start: 16, pages: &[3, 1], logits: LogitRows::All };
    let got = inference.forward(&mut kv, &[rest]);
    assert!(got == &whole[16 * model.config.vocab_size..]);
}

#[test]
fn no_wanted_row_gives_no_logits() {
    let model = &models()[0];
    let mut kv = Kv::new(&model.config, 1, 16);
    let segment = Segment { tokens: &[1, 2], start: 0, pages: &[0], logits: LogitRows::None };
    assert!(Inference::new(model.clone(), 1).forward(&mut kv, &[segment]).is_empty());
    assert!(Inference::new(model.clone(), 1).forward(&mut kv, &[]).is_empty());
}
