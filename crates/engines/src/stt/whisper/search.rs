//! The search for the text of an encoded window: greedy, from a draft, then alternatives at its least certain tokens.
//!
//! `decoder` calls [`search`] where neither times nor a temperature are asked for; whisper.cpp's own loop does all else. A pass
//! over several tokens takes little longer than one over a single token, since the weights are read once. Two things rest on
//! that:
//!
//! - The words of an utterance that goes on hardly change: what was decoded last is passed as a draft. Its tokens are kept as
//!   far as the model would have chosen them, so that the result is that of decoding without a draft.
//! - Greedy decoding cannot take back a token. An alternative puts the runner-up in the place of the least certain one, with
//!   the rest of the text as its draft; the text whose tokens are likeliest on average is the result.
//!
//! No state but the model's memory of the tokens that were passed last, which [`Model`] has.

use super::ffi::Logits;
use std::collections::HashSet;
use whisper_rs::{WhisperContext, WhisperTokenId};

/// What is no speech and is never chosen, at the beginning of a word or within it: OpenAI's list (`tokenizer.py`,
/// `non_speech_tokens`).
const NO_SPEECH: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) \
                         [[ ]] {{ }} ♪♪ ♪♪♪ ♩ ♪ ♫ ♬ ♭ ♮ ♯";
/// Allowed within a word only.
const NO_BEGINNING: [&str; 2] = [" -", " '"];

/// A logit that is lower than the highest by this adds nothing to the sum of probabilities.
const NEGLIGIBLE: f32 = -20.0;

/// A runner-up that is less likely by this log-probability is no alternative.
const MOST_GAP: f32 = 2.0;

/// A token that is at least this likely, by its log-probability, is not replaced: 0.6. Its word may have been shown.
const SURE: f32 = -0.51;

/// A token that differs from a draft's is looked for among this number of its next tokens.
const REACH: usize = 4;

/// Lanes of a comparison.
const LANES: usize = 16;

/// The tokens that may be chosen: pieces of text, and the end.
#[derive(Debug)]
pub(super) struct TextTokens {
    /// The number of the end, which is the last.
    end: usize,
    /// Never chosen.
    suppressed: Vec<usize>,
    /// Not chosen as the first: the end, and a blank alone.
    not_first: Vec<usize>,
}

impl TextTokens {
    /// Those of a model. Looks at each token once.
    pub(super) fn of(context: &WhisperContext) -> Self {
        let within = NO_SPEECH.split(' ').map(str::to_owned);
        let beginning = NO_SPEECH.split(' ').map(|text| format!(" {text}"));
        let no_speech: HashSet<Vec<u8>> =
            within.chain(beginning).chain(NO_BEGINNING.map(str::to_owned)).map(String::into_bytes).collect();
        let end = usize::try_from(context.token_eot()).unwrap_or_default();
        let mut suppressed = Vec::new();
        let mut not_first = vec![end];
        for id in 0..end {
            let Ok(bytes) = context.token_to_bytes(id as WhisperTokenId) else { continue };
            if no_speech.contains(bytes) {
                suppressed.push(id);
            } else if bytes == b" " {
                not_first.push(id);
            }
        }
        Self { end, suppressed, not_first }
    }

    /// The two likeliest tokens, with their log-probabilities among all that may be chosen. Of equal ones the first.
    fn best(&self, logits: &mut [f32], is_first: bool) -> Step {
        let logits = &mut logits[..=self.end];
        let not_first: &[usize] = if is_first { &self.not_first } else { &[] };
        for id in self.suppressed.iter().chain(not_first) {
            logits[*id] = f32::NEG_INFINITY;
        }
        let maximum = highest(logits);
        let above = logits.iter().map(|logit| logit - maximum).filter(|logit| *logit > NEGLIGIBLE);
        let sum: f32 = above.map(f32::exp).sum();
        let choice = self.choice(logits, maximum, maximum + sum.ln());
        logits[choice.id as usize] = f32::NEG_INFINITY;
        let second = highest(logits);
        let runner_up = self.choice(logits, second, maximum + sum.ln());
        Step { choice, runner_up }
    }

    /// The first token with a logit, of which `total` is subtracted.
    fn choice(&self, logits: &[f32], logit: f32, total: f32) -> Choice {
        let id = logits.iter().position(|other| *other == logit).unwrap_or(self.end);
        Choice { id: id as WhisperTokenId, logprob: logit - total }
    }
}

/// The maximum, compared in lanes.
fn highest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut rows = logits.chunks_exact(LANES);
    for row in &mut rows {
        for (highest, logit) in lanes.iter_mut().zip(row) {
            *highest = if *logit > *highest { *logit } else { *highest };
        }
    }
    lanes.iter().chain(rows.remainder()).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// A token and its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) id: WhisperTokenId,
    pub(super) logprob: f32,
}

/// What is chosen at a place, and what would be otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    choice: Choice,
    runner_up: Choice,
}

/// The model, which remembers the tokens that it was passed.
pub(super) trait Model {
    type Error;

    /// Passes tokens behind the first `n_past` of those that were passed before, and forgets the others. `logits` gets what is
    /// expected behind each of `tokens`. Blocks.
    ///
    /// # Errors
    /// It failed, or was cancelled.
    fn pass(&mut self, tokens: &[WhisperTokenId], n_past: usize, logits: &mut Logits) -> Result<(), Self::Error>;
}

/// What is searched for.
pub(super) struct Request<'a> {
    /// The tokens before the first one that is chosen.
    pub(super) start: Vec<WhisperTokenId>,
    /// What may follow them.
    pub(super) draft: &'a [WhisperTokenId],
    /// The most tokens that are chosen, at least 1.
    pub(super) n_tokens: usize,
    /// The most alternatives that are tried.
    pub(super) n_alternatives: usize,
}

/// What was found.
pub(super) struct BestText {
    /// Without the end.
    pub(super) choices: Vec<Choice>,
    /// What is expected behind the first token of [`Request::start`].
    pub(super) first_logits: Vec<f32>,
}

/// Searches in what the model has encoded. Blocks.
///
/// # Errors
/// Those of the model.
pub(super) fn search<M: Model>(
    model: &mut M,
    tokens: &TextTokens,
    request: &Request<'_>,
) -> Result<BestText, M::Error> {
    let mut search =
        Search { model, tokens, request, passed: Vec::new(), logits: Logits::default(), first_logits: None };
    let mut best = search.complete(&[], request.draft)?;
    let mut branches = best.branches.clone();
    for _ in 0..request.n_alternatives {
        let nearest = (0..branches.len()).min_by(|a, b| branches[*a].gap.total_cmp(&branches[*b].gap));
        let Some(nearest) = nearest else { break };
        let branch = branches.swap_remove(nearest);
        let text = search.complete(&branch.choices, &branch.rest)?;
        branches.extend(text.branches.iter().cloned());
        if text.score() > best.score() {
            best = text;
        }
    }
    let end = tokens.end as WhisperTokenId;
    best.choices.retain(|choice| choice.id != end);
    Ok(BestText { choices: best.choices, first_logits: search.first_logits.unwrap_or_default() })
}

/// A text, complete.
struct Text {
    /// With the end, where it was reached.
    choices: Vec<Choice>,
    /// Where it may be left.
    branches: Vec<Branch>,
}

impl Text {
    /// The mean of the tokens' log-probabilities, the end's included: longer texts are no less likely for their length.
    fn score(&self) -> f32 {
        self.choices.iter().map(|choice| choice.logprob).sum::<f32>() / self.choices.len() as f32
    }
}

/// The beginning of an alternative.
#[derive(Clone)]
struct Branch {
    /// The runner-up is the last.
    choices: Vec<Choice>,
    /// What followed the token that it replaces.
    rest: Vec<WhisperTokenId>,
    /// How much less likely the runner-up is, in log-probability.
    gap: f32,
}

struct Search<'a, M> {
    model: &'a mut M,
    tokens: &'a TextTokens,
    request: &'a Request<'a>,
    /// What the model remembers.
    passed: Vec<WhisperTokenId>,
    logits: Logits,
    first_logits: Option<Vec<f32>>,
}

impl<M: Model> Search<'_, M> {
    /// The greedy text that begins with `choices`; `draft` may follow them.
    fn complete(&mut self, choices: &[Choice], mut draft: &[WhisperTokenId]) -> Result<Text, M::Error> {
        let end = self.tokens.end as WhisperTokenId;
        let n_given = choices.len();
        let mut choices = choices.to_vec();
        let mut runners_up = Vec::new();
        let mut has_differed = false;
        let mut passes_draft = true;
        while choices.last().is_none_or(|last| last.id != end) && choices.len() < self.request.n_tokens {
            // The last token needs no logits behind it.
            let room = self.request.n_tokens - choices.len() - 1;
            let passed = if passes_draft { &draft[..draft.len().min(room)] } else { &[] };
            let mut row = self.pass(&choices, passed)?;
            let mut n_agreed = 0;
            let differing = loop {
                let step = self.tokens.best(self.logits.behind(row), choices.is_empty());
                choices.push(step.choice);
                runners_up.push(step.runner_up);
                if step.choice.id == end || passed.get(n_agreed) != Some(&step.choice.id) {
                    break step.choice.id;
                }
                n_agreed += 1;
                row += 1;
            };
            draft = &draft[n_agreed..];
            if let Some(at) = draft.iter().take(REACH).position(|token| *token == differing) {
                draft = &draft[at + 1..];
                passes_draft = true;
            } else {
                // Another token in the place of one, the first time.
                passes_draft = !has_differed && !draft.is_empty();
                draft = if passes_draft { &draft[1..] } else { draft };
                has_differed = true;
            }
        }
        let branch = |(at, runner_up): (usize, Choice)| {
            let is_unsure = choices[at].logprob < SURE;
            let gap = choices[at].logprob - runner_up.logprob;
            let rest = choices[at + 1..].iter().map(|choice| choice.id).collect();
            let choices = choices[..at].iter().copied().chain([runner_up]).collect();
            // A text that ends sooner may be likelier on average, for the words that it lacks.
            let may_replace = gap < MOST_GAP && runner_up.id != end;
            (is_unsure && may_replace).then_some(Branch { choices, rest, gap })
        };
        let branches = (n_given..).zip(runners_up).filter_map(branch).collect();
        Ok(Text { choices, branches })
    }

    /// Passes what the model does not remember of a text's beginning and of what may follow. Returns the row of logits behind
    /// the beginning.
    fn pass(&mut self, choices: &[Choice], draft: &[WhisperTokenId]) -> Result<usize, M::Error> {
        let beginning = self.request.start.iter().copied().chain(choices.iter().map(|choice| choice.id));
        let mut wanted: Vec<WhisperTokenId> = beginning.collect();
        let n_wanted = wanted.len();
        let n_remembered = wanted.iter().zip(&self.passed).take_while(|(wanted, passed)| wanted == passed).count();
        let n_past = n_remembered.min(n_wanted - 1);
        wanted.extend(draft);
        self.model.pass(&wanted[n_past..], n_past, &mut self.logits)?;
        self.passed = wanted;
        if n_past == 0 {
            self.first_logits = Some(self.logits.behind(0).to_vec());
        }
        Ok(n_wanted - 1 - n_past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{Hash, Hasher};

    /// A model of 8 tokens, of which 7 is the end: logits by the tokens before, at random or by a table. Counts its passes.
    struct Toy<F> {
        expects: F,
        remembered: Vec<WhisperTokenId>,
        n_passes: usize,
    }

    impl<F: Fn(&[WhisperTokenId]) -> [f32; 8]> Toy<F> {
        fn new(expects: F) -> Self {
            Self { expects, remembered: Vec::new(), n_passes: 0 }
        }

        fn search(&mut self, draft: &[WhisperTokenId], n_alternatives: usize) -> Vec<WhisperTokenId> {
            let tokens = TextTokens { end: 7, suppressed: vec![], not_first: vec![7] };
            let request = Request { start: vec![100, 101], draft, n_tokens: 12, n_alternatives };
            let found = search(self, &tokens, &request).expect("it never fails");
            assert_eq!(found.first_logits, (self.expects)(&[100]), "behind the first token");
            found.choices.iter().map(|choice| choice.id).collect()
        }
    }

    impl<F: Fn(&[WhisperTokenId]) -> [f32; 8]> Model for Toy<F> {
        type Error = std::convert::Infallible;

        fn pass(&mut self, tokens: &[WhisperTokenId], n_past: usize, logits: &mut Logits) -> Result<(), Self::Error> {
            assert!(n_past <= self.remembered.len() && !tokens.is_empty());
            self.remembered.truncate(n_past);
            self.n_passes += 1;
            let mut rows = Vec::new();
            for token in tokens {
                self.remembered.push(*token);
                rows.push((self.expects)(&self.remembered));
            }
            *logits = Logits::of(8, rows.concat());
            Ok(())
        }
    }

    /// Logits that depend on all tokens before.
    fn random(seed: u64) -> impl Fn(&[WhisperTokenId]) -> [f32; 8] {
        move |before| {
            std::array::from_fn(|token| {
                let mut hasher = std::hash::DefaultHasher::new();
                (seed, before, token).hash(&mut hasher);
                hasher.finish() as f32 / u64::MAX as f32 * 4.0
            })
        }
    }

    fn score(expects: impl Fn(&[WhisperTokenId]) -> [f32; 8], text: &[WhisperTokenId]) -> f32 {
        let end = [7];
        let text: Vec<WhisperTokenId> = text.iter().chain(end.iter()).copied().take(12).collect();
        let mut before = vec![100, 101];
        let mut sum = 0.0;
        for (at, token) in text.iter().enumerate() {
            let mut logits = expects(&before);
            if at == 0 {
                logits[7] = f32::NEG_INFINITY;
            }
            let total: f32 = logits.iter().map(|logit| logit.exp()).sum();
            sum += logits[*token as usize] - total.ln();
            before.push(*token);
        }
        sum / text.len() as f32
    }

    #[test]
    fn a_draft_changes_no_token() {
        for seed in 0..200 {
            let greedy = Toy::new(random(seed)).search(&[], 0);
            let mut near = greedy.clone();
            if let Some(token) = near.get_mut(seed as usize % 5) {
                *token = (*token + 1) % 7;
            }
            let shorter = &greedy[greedy.len() / 3..];
            let longer = [&[3], greedy.as_slice(), &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]].concat();
            for draft in [&greedy, &near, shorter, &longer] {
                assert_eq!(Toy::new(random(seed)).search(draft, 0), greedy, "{seed} {draft:?}");
            }
        }
    }

    #[test]
    fn a_draft_that_holds_takes_one_pass_and_one_that_nearly_holds_few() {
        // Each token is the next number; then the end.
        let counts = |before: &[WhisperTokenId]| {
            let next = if *before.last().expect("a token") >= 100 { 0 } else { before[before.len() - 1] + 1 };
            std::array::from_fn(|token| if token == next as usize { 9.0 } else { 0.0 })
        };
        let passes = |draft: &[WhisperTokenId]| {
            let mut toy = Toy::new(counts);
            assert_eq!(toy.search(draft, 0), [0, 1, 2, 3, 4, 5, 6]);
            toy.n_passes
        };
        assert_eq!(passes(&[0, 1, 2, 3, 4, 5, 6]), 1);
        assert_eq!(passes(&[0, 1, 5, 3, 4, 5, 6]), 2, "another token in the place of one");
        assert_eq!(passes(&[0, 1, 1, 2, 3, 4, 5, 6]), 2, "one too many");
        assert_eq!(passes(&[]), 8);
    }

    #[test]
    fn an_alternative_is_found_that_greedy_decoding_passes_by() {
        // 1 is a little likelier than 2 at first; but what follows 1 is unsure, and 2 is followed by the end.
        let expects = |before: &[WhisperTokenId]| match before {
            [100, 101] => [0.0, 3.2, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [100, 101, 2] => [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0],
            [100, 101, 1] => [1.0, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            _ => [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0],
        };
        assert_eq!(Toy::new(expects).search(&[], 0), [1, 1]);
        // What differs least comes first: 0 in the place of the second token.
        assert_eq!(Toy::new(expects).search(&[], 1), [1, 1]);
        assert_eq!(Toy::new(expects).search(&[], 2), [2]);
        let mut toy = Toy::new(expects);
        toy.search(&[], 5);
        assert!(toy.n_passes < 12, "{}: what the model remembers is not passed again", toy.n_passes);
    }

    #[test]
    fn no_alternative_ends_sooner() {
        // The end is nearly as likely as 3, and what follows 3 is unsure.
        let expects = |before: &[WhisperTokenId]| match before {
            [100, 101] => [0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [100, 101, 2] => [0.0, 0.0, 0.0, 9.1, 0.0, 0.0, 0.0, 9.0],
            [100, 101, 2, 3] => [1.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            _ => [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0],
        };
        assert_eq!(Toy::new(expects).search(&[], 4), [2, 3, 0]);
        assert!(score(expects, &[2]) > score(expects, &[2, 3, 0]), "though it would be likelier");
    }

    #[test]
    fn alternatives_never_make_a_text_less_likely() {
        let mut n_better = 0;
        for seed in 0..200 {
            let scores = [0, 1, 4].map(|n_alternatives| {
                let text = Toy::new(random(seed)).search(&[], n_alternatives);
                score(random(seed), &text)
            });
            assert!(scores.is_sorted_by(|less, more| *less <= *more + 1e-5), "{seed}: {scores:?}");
            n_better += usize::from(scores[2] > scores[0] + 1e-5);
        }
        assert!(n_better > 100, "{n_better}");
    }

    fn tokens() -> TextTokens {
        TextTokens { end: 40, suppressed: vec![3], not_first: vec![40, 5] }
    }

    #[test]
    fn the_likeliest_token_is_chosen_among_those_that_may_be() {
        let mut logits = vec![0.0; 60];
        logits[3] = 9.0;
        logits[5] = 4.0;
        logits[17] = 3.0;
        logits[40] = 3.5;
        logits[50] = 99.0;
        let first = tokens().best(&mut logits.clone(), true);
        let later = tokens().best(&mut logits, false);
        assert_eq!([first.choice.id, later.choice.id], [17, 5], "neither what is suppressed nor what is no text");
        assert_eq!(later.runner_up.id, 40);
        let sum: f32 = 4f32.exp() + 3f32.exp() + 3.5f32.exp() + 37.0;
        assert!((later.choice.logprob - (4.0 - sum.ln())).abs() < 1e-4, "{}", later.choice.logprob);
        assert!((later.runner_up.logprob - (3.5 - sum.ln())).abs() < 1e-4, "{}", later.runner_up.logprob);
    }

    #[test]
    fn the_highest_is_found_in_every_place() {
        for at in 0..37 {
            let mut logits = vec![-1.0; 37];
            logits[at] = 2.0;
            assert_eq!(highest(&logits), 2.0, "{at}");
        }
        assert_eq!(highest(&[]), f32::NEG_INFINITY);
    }
}
