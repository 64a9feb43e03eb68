//! Draws the next token from the logits of one sequence.
//!
//! Pure: the same logits, history and seed give the same token. The order of the filters is the family's, since the makers of
//! models differ in it (Chatterbox Turbo penalizes repetition last, what Hugging Face's `generate` does first). One
//! [`Sampler`] belongs to one sequence; the engine's loop calls it once a step. It never looks at other rows.

use super::contract::{Filter, Redraw, Sampling};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Why no token can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// A logit is not a number.
    #[error(
        "the model's logits are not numbers (NaN): its file may be damaged, or of a precision that the device computes wrongly"
    )]
    NotANumber,
    /// The filters left no token.
    #[error("the model's logits exclude every token")]
    NothingLeft,
}

/// The state of one sequence: what it has spoken, and its randomness.
pub struct Sampler {
    sampling: Sampling,
    rng: StdRng,
    /// By id: how many of the tokens that the penalty looks at are of it.
    n_spoken: Vec<u16>,
    /// The latest tokens, the newest last: as many as the larger of the rules' windows.
    latest: VecDeque<i64>,
}

/// A token that may be drawn.
#[derive(Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
}

/// Buffers that samplers of one thread share.
#[derive(Default)]
pub struct Scratch {
    candidates: Vec<Candidate>,
    keys: Vec<u64>,
    weights: Vec<f32>,
}

impl Sampler {
    /// For a sequence that begins with `start`, where an id begins it.
    pub fn new(sampling: Sampling, vocabulary: usize, start: Option<i64>, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let mut sampler = Self { sampling, rng, n_spoken: vec![0; vocabulary], latest: VecDeque::new() };
        start.into_iter().for_each(|start| sampler.note(start));
        sampler
    }

    /// A random number in [0, 1) of the sequence's own: for what is drawn inside a graph.
    pub fn uniform(&mut self) -> f32 {
        // The largest float below 1: rounding may give 1 itself.
        const BELOW_ONE: f32 = 0.999_999_94;
        (self.rng.random::<f64>() as f32).min(BELOW_ONE)
    }

    /// The next token, which is not one of `excluded`. Up to 100 us for 6,563 logits. `logits` is not changed.
    ///
    /// # Errors
    /// [`SamplingError`]: the sequence cannot go on.
    pub fn next(
        &mut self,
        logits: &[f32],
        excluded: Option<RangeInclusive<i64>>,
        scratch: &mut Scratch,
    ) -> Result<i64, SamplingError> {
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(SamplingError::NotANumber);
        }
        fill(&mut scratch.candidates, logits, excluded.as_ref());
        let sampling = &self.sampling;
        let is_greedy = sampling.temperature == 0.0;
        for filter in &sampling.order {
            match filter {
                Filter::Repetition => penalize(&mut scratch.candidates, &self.n_spoken, sampling.repetition_penalty),
                // The most likely token passes all of these.
                _ if is_greedy => {}
                Filter::Temperature => heat(&mut scratch.candidates, sampling.temperature),
                Filter::TopK => keep_top_k(scratch, sampling.top_k),
                Filter::TopP => keep_top_p(scratch, sampling.top_p),
                Filter::MinP => keep_min_p(&mut scratch.candidates, sampling.min_p),
            }
        }
        let token = if is_greedy { most_likely(&scratch.candidates).copied() } else { self.draw(scratch) };
        let mut token = token.filter(Candidate::is_possible).ok_or(SamplingError::NothingLeft)?;
        if let Some(rule) = self.sampling.redraw.filter(|rule| !is_greedy && self.is_often(token.id, rule)) {
            fill(&mut scratch.candidates, logits, excluded.as_ref());
            if rule.excludes {
                scratch.candidates[token.id as usize].logit = f32::NEG_INFINITY;
            }
            heat(&mut scratch.candidates, rule.temperature);
            keep_top_k(scratch, rule.top_k);
            keep_top_p(scratch, rule.top_p);
            // The first draw stays where nothing else is left.
            token = self.draw(scratch).filter(Candidate::is_possible).unwrap_or(token);
        }
        let token = i64::from(token.id);
        self.note(token);
        Ok(token)
    }

    /// Whether a token was drawn so often of late that it is drawn again.
    fn is_often(&self, token: u32, rule: &Redraw) -> bool {
        let latest = self.latest.iter().rev().take(rule.window);
        let n = latest.filter(|spoken| **spoken == i64::from(token)).count();
        n as f32 >= rule.window as f32 * rule.share
    }

    /// Draws by probability. The candidates are in the order of their ids throughout, so that two logits that are nearly equal
    /// do not change the draw by changing places.
    fn draw(&mut self, scratch: &mut Scratch) -> Option<Candidate> {
        let Scratch { candidates, weights, .. } = scratch;
        let most = most_likely(candidates)?.logit;
        weights.clear();
        weights.extend(candidates.iter().map(|candidate| (candidate.logit - most).exp()));
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut left = self.rng.random::<f64>() * total;
        for (candidate, weight) in candidates.iter().zip(weights.iter()) {
            left -= f64::from(*weight);
            if left < 0.0 {
                return Some(*candidate);
            }
        }
        candidates.iter().rfind(|candidate| candidate.is_possible()).copied()
    }

    fn note(&mut self, token: i64) {
        if let Some(n_spoken) = self.n_spoken.get_mut(token as usize) {
            *n_spoken = n_spoken.saturating_add(1);
        }
        let window = self.sampling.repetition_window;
        let most = window.unwrap_or(0).max(self.sampling.redraw.map_or(0, |rule| rule.window));
        if most == 0 {
            return;
        }
        self.latest.push_back(token);
        if let Some(window) = window.filter(|window| self.latest.len() > *window) {
            let left = self.latest[self.latest.len() - window - 1];
            if let Some(n_spoken) = self.n_spoken.get_mut(left as usize) {
                *n_spoken -= 1;
            }
        }
        if self.latest.len() > most {
            self.latest.pop_front();
        }
    }
}

/// A candidate for each logit, those of `excluded` without a chance.
fn fill(candidates: &mut Vec<Candidate>, logits: &[f32], excluded: Option<&RangeInclusive<i64>>) {
    candidates.clear();
    candidates.extend(logits.iter().enumerate().map(|(id, logit)| Candidate { id: id as u32, logit: *logit }));
    for id in excluded.into_iter().flat_map(Clone::clone) {
        if let Some(candidate) = usize::try_from(id).ok().and_then(|id| candidates.get_mut(id)) {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

impl Candidate {
    fn is_possible(&self) -> bool {
        self.logit > f32::NEG_INFINITY
    }

    /// Orders by logit, and by id where logits are equal: the lower id is the greater key. An integer, which sorts several
    /// times faster than a pair.
    fn key(&self) -> u64 {
        let bits = self.logit.to_bits();
        let ordered = if self.logit.is_sign_negative() { !bits } else { bits | 0x8000_0000 };
        u64::from(ordered) << 32 | u64::from(!self.id)
    }
}

/// The logit in a key.
fn logit(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered & 0x8000_0000 == 0 { !ordered } else { ordered & 0x7FFF_FFFF })
}

/// The keys of all candidates, in place of what `into` held.
fn keys<'a>(candidates: &[Candidate], into: &'a mut Vec<u64>) -> &'a mut [u64] {
    into.clear();
    into.extend(candidates.iter().map(Candidate::key));
    into
}

fn most_likely(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().max_by_key(|candidate| candidate.key())
}

/// Divides the logits by a temperature.
fn heat(candidates: &mut [Candidate], temperature: f32) {
    let scale = temperature.recip();
    candidates.iter_mut().for_each(|candidate| candidate.logit *= scale);
}

/// Keeps the `k` most likely; none: all.
fn keep_top_k(scratch: &mut Scratch, k: Option<usize>) {
    let candidates = &mut scratch.candidates;
    if let Some(k) = k.filter(|k| *k < candidates.len()) {
        let keys = keys(candidates, &mut scratch.keys);
        let (_, least, _) = keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        let least = *least;
        candidates.retain(|candidate| candidate.key() >= least);
    }
}

/// Keeps the most likely that hold that share of the probability; 1: all.
fn keep_top_p(scratch: &mut Scratch, share: f32) {
    if share < 1.0 {
        let keys = keys(&scratch.candidates, &mut scratch.keys);
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let least = nucleus(keys, share, &mut scratch.weights);
        scratch.candidates.retain(|candidate| candidate.key() >= least);
    }
}

/// Keeps those with that share of the most likely one's probability; 0: all.
fn keep_min_p(candidates: &mut Vec<Candidate>, share: f32) {
    if share > 0.0 {
        let most = most_likely(candidates).map_or(f32::NEG_INFINITY, |candidate| candidate.logit);
        let least = most + share.ln();
        candidates.retain(|candidate| candidate.logit >= least);
    }
}

/// Penalizes what was spoken.
fn penalize(candidates: &mut [Candidate], n_spoken: &[u16], penalty: f32) {
    let penalized = |logit: f32| if logit < 0.0 { logit * penalty } else { logit / penalty };
    for candidate in candidates.iter_mut() {
        if n_spoken.get(candidate.id as usize).is_some_and(|n| *n > 0) {
            candidate.logit = penalized(candidate.logit);
        }
    }
}

/// The least of the sorted keys that together hold `share` of the probability; of at least one.
fn nucleus(sorted: &[u64], share: f32, weights: &mut Vec<f32>) -> u64 {
    let Some(first) = sorted.first() else { return 0 };
    let most = logit(*first);
    weights.clear();
    weights.extend(sorted.iter().map(|key| (logit(*key) - most).exp()));
    let total: f32 = weights.iter().sum();
    let mut held = 0.0;
    for (key, weight) in sorted.iter().zip(weights.iter()) {
        held += weight / total;
        if held >= share {
            return *key;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sampling(order: &[Filter]) -> Sampling {
        let order = order.to_vec();
        Sampling { order, temperature: 0.8, ..Sampling::default() }
    }

    fn draws(sampling: &Sampling, logits: &[f32], seed: u64, n: usize) -> Vec<i64> {
        let mut scratch = Scratch::default();
        let mut sampler = Sampler::new(sampling.clone(), logits.len(), Some(0), seed);
        (0..n).map(|_| sampler.next(logits, None, &mut scratch).expect("a token")).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens_and_another_one_others() {
        let logits: Vec<f32> = (0..200).map(|i| ((i * 37) % 101) as f32 / 30.0).collect();
        let all = sampling(&[Filter::Temperature, Filter::TopK, Filter::TopP, Filter::Repetition]);
        let all = Sampling { top_k: Some(50), top_p: 0.9, repetition_penalty: 1.2, ..all };
        assert_eq!(draws(&all, &logits, 7, 60), draws(&all, &logits, 7, 60));
        assert_ne!(draws(&all, &logits, 7, 60), draws(&all, &logits, 8, 60));
    }

    #[test]
    fn tokens_come_as_often_as_their_probability() {
        let plain = Sampling { temperature: 1.0, ..sampling(&[Filter::Temperature]) };
        let logits = [0.0, 2.0_f32.ln(), f32::NEG_INFINITY, 5.0_f32.ln()];
        let drawn = draws(&plain, &logits, 1, 8_000);
        let share = |id| drawn.iter().filter(|drawn| **drawn == id).count() as f32 / 1_000.0;
        for (id, expected) in [(0, 1.0), (1, 2.0), (2, 0.0), (3, 5.0)] {
            assert!((share(id) - expected).abs() < 0.25, "{id}: {} instead of {expected}", share(id));
        }
    }

    #[test]
    fn each_filter_leaves_what_it_should() {
        let logits = [3.0, 2.0, 1.0, 0.0, -1.0];
        let seen = |sampling: Sampling| {
            let mut ids = draws(&sampling, &logits, 3, 600);
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let hot = |order: &[Filter]| Sampling { temperature: 1.0, ..sampling(order) };
        assert_eq!(seen(hot(&[Filter::Temperature])), [0, 1, 2, 3, 4]);
        assert_eq!(seen(Sampling { top_k: Some(2), ..hot(&[Filter::TopK]) }), [0, 1]);
        // The shares are 0.64, 0.23, 0.09, 0.03, 0.01.
        assert_eq!(seen(Sampling { top_p: 0.6, ..hot(&[Filter::TopP]) }), [0]);
        assert_eq!(seen(Sampling { top_p: 0.65, ..hot(&[Filter::TopP]) }), [0, 1]);
        assert_eq!(seen(Sampling { min_p: 0.2, ..hot(&[Filter::MinP]) }), [0, 1]);
    }

    #[test]
    fn the_penalty_is_for_what_was_spoken() {
        let greedy = Sampling { temperature: 0.0, repetition_penalty: 2.0, ..sampling(&[Filter::Repetition]) };
        assert_eq!(draws(&greedy, &[0.0, 3.0, 2.0, 1.9], 0, 4), [1, 2, 3, 1], "1.5, 1.0 and 0.95 remain");
        let negative = [-0.5, -1.0, -1.5];
        assert_eq!(
            draws(&greedy, &negative, 0, 1),
            [0],
            "id 0 began the sequence, -0.5 becomes -1.0, the lower id wins"
        );
    }

    #[test]
    fn the_penalty_is_for_the_latest_tokens_where_it_has_a_window() {
        let greedy = Sampling { temperature: 0.0, repetition_penalty: 2.0, ..sampling(&[Filter::Repetition]) };
        let logits = [0.0, 3.0, 2.0, 1.6];
        assert_eq!(
            draws(&greedy, &logits, 0, 6),
            [1, 2, 3, 1, 1, 1],
            "all are penalized, and the first is the likeliest"
        );
        let window = Sampling { repetition_window: Some(2), ..greedy };
        assert_eq!(draws(&window, &logits, 0, 6), [1, 2, 3, 1, 2, 3], "each is free again after two others");
    }

    #[test]
    fn a_token_that_was_often_of_late_is_drawn_again_from_all() {
        let narrow = Sampling { temperature: 1.0, top_k: Some(1), ..sampling(&[Filter::TopK]) };
        let logits = [3.0, 2.0, 1.0, 0.0];
        assert!(draws(&narrow, &logits, 5, 200).iter().all(|token| *token == 0));
        let rule = Redraw { window: 10, share: 0.3, excludes: false, temperature: 1.0, top_k: None, top_p: 1.0 };
        let again = Sampling { redraw: Some(rule), ..narrow.clone() };
        let drawn = draws(&again, &logits, 5, 2_000);
        assert_eq!(drawn[..2], [0, 0], "id 0 began the sequence; a third time in ten is often");
        let others = drawn.iter().filter(|token| **token != 0).count();
        // Where 0 is often, it is drawn again with its own share of 0.64.
        assert!((500..900).contains(&others), "{others}");
        let excluding = Sampling { redraw: Some(Redraw { excludes: true, top_k: Some(2), ..rule }), ..narrow };
        let drawn = draws(&excluding, &logits, 5, 400);
        assert!(drawn.windows(10).all(|ten| ten.iter().filter(|token| **token == 0).count() <= 3), "0 is never often");
        assert!(drawn.iter().all(|token| *token < 3), "of what is left, the two most likely");
    }

    #[test]
    fn keys_order_as_logits_do_and_give_them_back() {
        let numbers = [f32::NEG_INFINITY, -77.5, -1.0, -0.25, 0.0, 1e-20, 0.5, 99.0, f32::INFINITY];
        let keys = numbers.map(|logit| Candidate { id: 7, logit }.key());
        assert!(keys.is_sorted());
        assert_eq!(keys.map(logit), numbers);
        assert!(Candidate { id: 3, logit: 1.0 }.key() > Candidate { id: 4, logit: 1.0 }.key(), "the lower id wins");
    }

    #[test]
    fn an_excluded_token_is_never_drawn() {
        let greedy = Sampling { temperature: 0.0, ..sampling(&[]) };
        let mut sampler = Sampler::new(greedy, 3, Some(0), 0);
        let mut scratch = Scratch::default();
        assert_eq!(sampler.next(&[1.0, 3.0, 2.0], Some(1..=1), &mut scratch), Ok(2));
        assert_eq!(sampler.next(&[1.0, 3.0, 2.0], Some(1..=7), &mut scratch), Ok(0));
        assert_eq!(sampler.next(&[1.0, 3.0, 2.0], None, &mut scratch), Ok(1));
    }

    #[test]
    fn logits_that_are_no_numbers_end_the_sequence() {
        let mut sampler = Sampler::new(sampling(&[Filter::Temperature]), 3, Some(0), 0);
        let mut scratch = Scratch::default();
        assert_eq!(sampler.next(&[0.0, f32::NAN, 1.0], None, &mut scratch), Err(SamplingError::NotANumber));
        assert_eq!(sampler.next(&[f32::NEG_INFINITY; 3], None, &mut scratch), Err(SamplingError::NothingLeft));
        assert!(sampler.next(&[0.0; 3], None, &mut scratch).is_ok());
    }

    proptest! {
        /// Whatever the logits and the order of the filters: a token of the vocabulary, and never one that is excluded.
        #[test]
        fn a_token_is_drawn_from_what_is_left(
            logits in prop::collection::vec(prop_oneof![-9.0_f32..9.0, Just(f32::NEG_INFINITY)], 1..80),
            (top_k, top_p, min_p) in (prop::option::of(1_usize..90), 0.01_f32..1.0, 0.0_f32..0.99),
            order in Just([Filter::Temperature, Filter::TopK, Filter::TopP, Filter::MinP, Filter::Repetition]).prop_shuffle(),
            seed in any::<u64>(),
        ) {
            let rules = Sampling { top_k, top_p, min_p, repetition_penalty: 1.3, ..sampling(&order) };
            let mut sampler = Sampler::new(rules, logits.len(), Some(0), seed);
            let mut scratch = Scratch::default();
            for _ in 0..5 {
                match sampler.next(&logits, None, &mut scratch) {
                    Ok(token) => prop_assert!(logits[token as usize] > f32::NEG_INFINITY),
                    Err(error) => {
                        prop_assert_eq!(error, SamplingError::NothingLeft);
                        prop_assert!(logits.iter().all(|logit| *logit == f32::NEG_INFINITY));
                    }
                }
            }
        }
    }
}
