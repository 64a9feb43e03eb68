//! The language model on the tiny graphs of `tests/fixtures/speechlm/tiny`: against the makers' own code, rows against runs
//! alone, whatever joins and leaves.

use super::super::contract::{Coding, Filter, Sampling};
use super::super::sampling::{Sampler, Scratch};
use super::super::testing::{contract, files, runtime};
use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The graphs of one set of weights, and how a contract for each differs from the first.
const MASKED: &str = "language_model.onnx";
const IN_PLACE: &str = "language_model_gqa.onnx";
const WRONG_MASK: &str = "language_model_mask.onnx";
const HALF: &str = "language_model_fp16.onnx";

fn load(file: &str, n_slots: usize) -> LanguageModel {
    let contract = Arc::new(contract(file));
    let mut lm =
        LanguageModel::load(&files(&contract), &contract, &runtime(), &|_, _| n_slots).expect("the fixture fits");
    lm.warm().expect("warm");
    lm
}

/// A prompt's embeddings, of its own content.
fn prompt(lm: &LanguageModel, length: usize, seed: u64) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..length * lm.hidden()).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn greedy(logits: &[f32]) -> i64 {
    let most = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    most.expect("there are logits").0 as i64
}

/// The greedy tokens of a prompt that runs alone.
fn alone(lm: &mut LanguageModel, embeds: &[f32], n: usize) -> (Vec<i64>, Vec<f32>) {
    let mut given = StepOutputs::default();
    let id = lm.prefill(embeds, &mut given).expect("it runs");
    let mut tokens = vec![greedy(&given.logits)];
    while tokens.len() < n {
        lm.decode(&[(id, Feed::Token(tokens[tokens.len() - 1]))], &mut given).expect("it runs");
        tokens.push(greedy(&given.logits));
    }
    lm.end(id);
    (tokens, given.logits)
}

#[derive(serde::Deserialize)]
struct Golden {
    input_ids: Vec<i64>,
    audio_features: Vec<Vec<f32>>,
    repetition_penalty: f32,
    first_logits: Vec<f32>,
    greedy_tokens: Vec<i64>,
}

#[test]
fn greedy_tokens_and_logits_are_those_of_the_makers_own_code() {
    let golden = std::fs::read(super::super::testing::fixture("golden.json")).expect("the fixture");
    let golden: Golden = serde_json::from_slice(&golden).expect("JSON");
    for file in [MASKED, IN_PLACE, HALF] {
        let mut lm = load(file, 4);
        let mut embeds = golden.audio_features.concat();
        embeds.extend(lm.embed_text(&golden.input_ids).expect("embedded"));
        let mut given = StepOutputs::default();
        let id = lm.prefill(&embeds, &mut given).expect("it runs");
        let tolerance = if file == HALF { 2e-2 } else { 1e-4 };
        for (ours, theirs) in given.logits.iter().zip(&golden.first_logits) {
            assert!((ours - theirs).abs() < tolerance * theirs.abs().max(1.0), "{file}: {ours} {theirs}");
        }
        let sampling = Sampling {
            order: vec![Filter::Repetition],
            temperature: 0.0,
            repetition_penalty: golden.repetition_penalty,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(sampling, given.logits.len(), contract(file).tokens.start, 0);
        let mut scratch = Scratch::default();
        let mut tokens = Vec::new();
        while tokens.len() < golden.greedy_tokens.len() {
            let token = sampler.next(&given.logits, None, &mut scratch).expect("a token");
            tokens.push(token);
            lm.decode(&[(id, Feed::Token(token))], &mut given).expect("it runs");
        }
        // Half precision may choose otherwise where two logits are nearly equal.
        let n = if file == HALF { 10 } else { tokens.len() };
        assert_eq!(tokens[..n], golden.greedy_tokens[..n], "{file}");
    }
}

#[test]
fn the_self_test_tells_a_mask_that_is_wrong_for_ragged_rows() {
    for (file, is_right) in [(MASKED, true), (IN_PLACE, true), (HALF, true), (WRONG_MASK, false)] {
        let (worst, tolerance) = load(file, 4).self_test().expect("it runs");
        assert_eq!(worst <= tolerance, is_right, "{file}: {worst} of {tolerance}");
    }
}

#[test]
fn a_model_that_is_demoted_runs_each_row_as_it_does_alone() {
    for file in [WRONG_MASK, IN_PLACE] {
        let mut lm = load(file, 4);
        lm.demote();
        let prompts: Vec<_> = (0..3).map(|i| prompt(&lm, 4 + 3 * i, i as u64)).collect();
        let expected: Vec<_> = prompts.iter().map(|prompt| alone(&mut lm, prompt, 6).0).collect();
        assert_eq!(together(&mut lm, &prompts, 6), expected, "{file}");
    }
}

#[test]
fn a_sequence_that_runs_alone_in_place_reads_and_writes_its_own_row_only() {
    let mut lm = load(IN_PLACE, 4);
    let mut given = StepOutputs::default();
    let mut ids = Vec::new();
    for seed in 0..3 {
        let embeds = prompt(&lm, 5, seed);
        ids.push(lm.prefill(&embeds, &mut given).expect("it runs"));
    }
    let third = [(ids[2], Feed::Token(1))];
    assert_eq!(lm.rows_in_place(&third), 0..4);
    lm.demote();
    assert_eq!(lm.rows_in_place(&third), 2..3);
}

/// The greedy tokens of prompts that run together from the start.
fn together(lm: &mut LanguageModel, prompts: &[Vec<f32>], n: usize) -> Vec<Vec<i64>> {
    let vocabulary = lm.ports.vocabulary;
    let mut given = StepOutputs::default();
    let mut ids = Vec::new();
    let mut tokens = Vec::new();
    for prompt in prompts {
        ids.push(lm.prefill(prompt, &mut given).expect("it runs"));
        tokens.push(vec![greedy(&given.logits)]);
    }
    for _ in 1..n {
        let rows: Vec<_> =
            ids.iter().zip(&tokens).map(|(id, tokens)| (*id, Feed::Token(tokens[tokens.len() - 1]))).collect();
        lm.decode(&rows, &mut given).expect("it runs");
        for (row, tokens) in tokens.iter_mut().enumerate() {
            tokens.push(greedy(&given.logits[row * vocabulary..(row + 1) * vocabulary]));
        }
    }
    ids.into_iter().for_each(|id| lm.end(id));
    tokens
}

#[test]
fn a_pinned_bucket_gives_the_same_numbers_in_any_company() {
    let mut lm = load(IN_PLACE, 8);
    lm.pin();
    let mine = prompt(&lm, 9, 1);
    let (_, expected) = alone(&mut lm, &mine, 12);
    let others: Vec<_> = (0..5).map(|i| prompt(&lm, 3 + 4 * i, 100 + i as u64)).collect();
    let mut given = StepOutputs::default();
    let company: Vec<_> = others.iter().map(|other| lm.prefill(other, &mut given).expect("it runs")).collect();
    let id = lm.prefill(&mine, &mut given).expect("it runs");
    let mut token = greedy(&given.logits);
    for step in 1..12 {
        let mut rows = vec![(id, Feed::Token(token))];
        rows.extend(company.iter().take(step % 6).map(|other| (*other, Feed::Token(step as i64))));
        lm.decode(&rows, &mut given).expect("it runs");
        token = greedy(&given.logits[..lm.ports.vocabulary]);
    }
    assert_eq!(given.logits[..lm.ports.vocabulary], expected[..], "bit for bit");
}

#[test]
fn a_batch_gives_rows_up_at_once_where_a_sequence_ends_for_lack_of_memory() {
    let n_rows = |lm: &LanguageModel| match &lm.caches {
        Caches::Growing(cache) => cache.rows().len(),
        Caches::Steady(_) => panic!("it grows"),
    };
    let step = |lm: &mut LanguageModel, ids: &[SequenceId]| {
        let rows: Vec<_> = ids.iter().map(|id| (*id, Feed::Token(1))).collect();
        lm.decode(&rows, &mut StepOutputs::default()).expect("it runs");
    };
    for (lacks_memory, expected) in [(false, 4), (true, 2)] {
        let mut lm = load(MASKED, 4);
        let mut ids = Vec::new();
        for seed in 0..3 {
            let embeds = prompt(&lm, 5, seed);
            ids.push(lm.prefill(&embeds, &mut StepOutputs::default()).expect("it runs"));
        }
        step(&mut lm, &ids);
        assert_eq!(n_rows(&lm), 4);
        let newest = ids.remove(2);
        if lacks_memory {
            lm.end_for_memory(newest);
        } else {
            lm.end(newest);
        }
        step(&mut lm, &ids);
        assert_eq!(n_rows(&lm), expected);
    }
}

/// What happens between two steps.
#[derive(Clone, Debug)]
enum Act {
    Join {
        length: usize,
        seed: u64,
    },
    Leave(usize),
    /// One sits out a few steps.
    Pause(usize, usize),
    Step,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => (1..14_usize, 0..6_u64).prop_map(|(length, seed)| Act::Join { length, seed }),
        1 => (0..6_usize).prop_map(Act::Leave),
        1 => (0..6_usize, 1..4_usize).prop_map(|(which, steps)| Act::Pause(which, steps)),
        5 => Just(Act::Step),
    ];
    prop::collection::vec(act, 1..40)
}

/// Runs a schedule and compares each sequence's tokens with those it has alone; unused rows and columns are NaN
/// throughout.
fn keeps_its_tokens(lm: &mut LanguageModel, acts: &[Act]) -> Result<(), TestCaseError> {
    struct One {
        id: SequenceId,
        embeds: Vec<f32>,
        tokens: Vec<i64>,
        pause: usize,
    }
    let vocabulary = lm.ports.vocabulary;
    let mut running = Vec::<One>::new();
    let mut ended = Vec::new();
    let mut given = StepOutputs::default();
    for act in acts {
        match act {
            Act::Join { length, seed } if running.len() < lm.n_slots => {
                let embeds = prompt(lm, *length, *seed);
                let id = lm.prefill(&embeds, &mut given).expect("it runs");
                running.push(One { id, embeds, tokens: vec![greedy(&given.logits)], pause: 0 });
            }
            Act::Leave(which) if *which < running.len() => {
                let one = running.remove(*which);
                lm.end(one.id);
                ended.push(one);
            }
            Act::Pause(which, steps) if *which < running.len() => running[*which].pause = *steps,
            _ => {}
        }
        lm.poison();
        let mut stepping: Vec<&mut One> = running.iter_mut().filter(|one| one.pause == 0).collect();
        if !stepping.is_empty() {
            let rows: Vec<_> =
                stepping.iter().map(|one| (one.id, Feed::Token(one.tokens[one.tokens.len() - 1]))).collect();
            lm.decode(&rows, &mut given).expect("it runs");
            for (row, one) in stepping.iter_mut().enumerate() {
                one.tokens.push(greedy(&given.logits[row * vocabulary..(row + 1) * vocabulary]));
            }
        }
        running.iter_mut().for_each(|one| one.pause = one.pause.saturating_sub(1));
    }
    running.iter().for_each(|one| lm.end(one.id));
    for one in running.iter().chain(&ended) {
        let (expected, _) = alone(lm, &one.embeds, one.tokens.len());
        prop_assert_eq!(&one.tokens, &expected);
    }
    Ok(())
}

/// Many schedules on one model: loading it for each would be most of the work.
fn for_many_schedules(file: &str, n: u32) {
    let lm = std::cell::RefCell::new(load(file, 6));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: n,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner.run(&acts(), |acts| keeps_its_tokens(&mut lm.borrow_mut(), &acts)).expect("nobody's tokens change");
}

/// Schedules for each kind of cache, with the 1000 of the acceptance test behind a variable, for they take a while.
fn n_schedules() -> u32 {
    std::env::var("ANTIPHON_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

#[test]
fn a_sequence_that_joins_leaves_or_pauses_changes_no_other_tokens_in_a_cache_that_grows() {
    for_many_schedules(MASKED, n_schedules());
}

#[test]
fn a_sequence_that_joins_leaves_or_pauses_changes_no_other_tokens_in_a_cache_in_place() {
    for_many_schedules(IN_PLACE, n_schedules());
}

#[test]
fn rows_are_moved_on_a_device_as_by_the_host() {
    let contract = Arc::new(contract(MASKED));
    let runtime = runtime();
    let lm = || LanguageModel::load(&files(&contract), &contract, &runtime, &|_, _| 4).expect("loaded");
    let mut by_host = lm();
    let mut by_graph = lm();
    by_graph.caches = Caches::Growing(Cache::new(
        Alignment::Last,
        Mover::on_device(&by_host.decode, &runtime, &Kind::F32).expect("the graph loads"),
    ));
    let prompts: Vec<_> = (0..5).map(|i| prompt(&by_host, 2 + 3 * i, i as u64)).collect();
    for n in [1, 3, 5] {
        assert_eq!(together(&mut by_host, &prompts[..n], 8), together(&mut by_graph, &prompts[..n], 8));
    }
}

#[test]
fn a_graph_that_does_not_fit_is_refused_with_file_port_what_is_there_and_what_should_be() {
    let refused = |change: &dyn Fn(&mut Contract)| {
        let mut contract = contract(MASKED);
        change(&mut contract);
        let contract = Arc::new(contract);
        let error = LanguageModel::load(&files(&contract), &contract, &runtime(), &|_, _| 2).err().expect("refused");
        error.to_string()
    };
    let text = refused(&|contract| contract.decode.mask = Some("mask".into()));
    assert!(text.contains("language_model.onnx takes") && text.contains("and no mask: i64[?, ?]"), "{text}");
    let text = refused(&|contract| contract.decode.heads = 3);
    assert!(
        text.contains(
            "takes past_key_values.0.key: f32[?, 2, ?, 8], not past_key_values.0.key: f32 or f16[?, 3, ?, 8]"
        ),
        "{text}"
    );
    let text = refused(&|contract| contract.decode.layers = 1);
    assert!(
        text.contains("also takes past_key_values.1.key: f32[?, 2, ?, 8], which the contract does not name"),
        "{text}"
    );
    let text = refused(&|contract| contract.tokens.vocabulary = 6563);
    assert!(text.contains("logits: f32[?, ?, 99], not logits: f32 or f16[?, ?, 6563]"), "{text}");
    let text = refused(&|contract| {
        let Coding::Token { embed, .. } = &mut contract.coding else { panic!("it has one codebook") };
        embed.ids = "ids".into();
    });
    assert!(text.contains("embed_tokens.onnx takes input_ids: i64[?, ?], and no ids: i64[?, ?]"), "{text}");
}

#[test]
fn a_cache_in_place_refuses_what_it_cannot_hold() {
    let mut lm = load(IN_PLACE, 2);
    let capacity = contract(IN_PLACE).slot_tokens();
    let mut given = StepOutputs::default();
    let long = prompt(&lm, capacity, 1);
    assert!(matches!(lm.prefill(&long, &mut given), Err(OnnxError::Inputs { .. })));
    let id = lm.prefill(&prompt(&lm, capacity - 2, 1), &mut given).expect("it fits");
    assert!(!lm.is_full(id));
    lm.decode(&[(id, Feed::Token(1))], &mut given).expect("the last column");
    assert!(lm.is_full(id));
    lm.prefill(&prompt(&lm, 3, 2), &mut given).expect("a second row");
    assert!(matches!(lm.prefill(&prompt(&lm, 3, 3), &mut given), Err(OnnxError::Inputs { .. })), "no third");
    lm.end(id);
    assert!(lm.prefill(&prompt(&lm, 3, 3), &mut given).is_ok());
}
