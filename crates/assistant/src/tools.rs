//! Tool calls: which declared tool a request means, and what is still missing for the call.
//!
//! Nothing here knows any tool. A request is compared with the words of each tool's name and description; `fill` takes
//! the parameters from the request, `results` says a result in plain words. A required parameter that was not said is
//! asked for; a tool that does not plainly fit is not called.

mod fill;
mod results;
mod schema;

use crate::conversation::{Context, Exchange};
use crate::intents;
use crate::query::{Query, one_of};
use antiphon_types::chat::{ChatRequest, ToolChoice};
use schema::{Tool, WORDS, is_verb, says, words_of};
use serde_json::{Map, Value};

/// What the assistant does about its tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Calls these, in order: name and arguments.
    Call(Vec<(String, Map<String, Value>)>),
    /// Says this: a question for what is missing, or what a tool returned.
    Say(String),
}

/// The most questions for missing parameters that stand between a request and its call.
const MAX_QUESTIONS: usize = 4;

/// What to do about the last message; `None` if it has nothing to do with the tools.
pub(crate) fn next_step(chat: &ChatRequest, request: &str, context: &Context<'_>) -> Option<Step> {
    if let Some(text) = results::spoken(&chat.messages) {
        return Some(Step::Say(text));
    }
    if chat.tools.is_empty() || chat.tool_choice == ToolChoice::None || request.is_empty() {
        return None;
    }
    let tools: Vec<Tool> = chat.tools.iter().map(Tool::of).collect();
    let chooser = Chooser { tools: &tools, choice: &chat.tool_choice, context };
    // The request may answer our questions; the earliest request that explains them counts.
    let past = context.past;
    let first = past.len().saturating_sub(MAX_QUESTIONS);
    let resumed = (first..past.len()).find_map(|start| chooser.resumed(&past[start..], request));
    resumed.or_else(|| chooser.follow_up(request)).or_else(|| chooser.choose(request))
}

struct Chooser<'a> {
    tools: &'a [Tool],
    choice: &'a ToolChoice,
    context: &'a Context<'a>,
}

/// A call as far as its parameters are known.
struct Draft<'a> {
    tool: &'a Tool,
    values: Map<String, Value>,
}

impl<'a> Chooser<'a> {
    fn choose(&self, request: &str) -> Option<Step> {
        let query = Query::new(request);
        if let Some(draft) = self.forced(&query) {
            return Some(finish(vec![draft]));
        }
        if is_refusal(&query) && *self.choice == ToolChoice::Auto {
            return None;
        }
        // `turn on the light and set a timer for ten minutes`: each part is a call by itself.
        let parts = request.split(" and ").map(|part| self.best(&Query::new(part)).filter(|d| d.missing().is_none()));
        let parts = parts.collect::<Option<Vec<_>>>().filter(|parts| parts.len() > 1);
        Some(finish(parts.or_else(|| Some(vec![self.best(&query)?]))?))
    }

    /// The tool that the client named.
    fn forced(&self, query: &Query) -> Option<Draft<'a>> {
        let ToolChoice::Function(name) = self.choice else { return None };
        let tool = self.tools.iter().find(|tool| tool.name == *name)?;
        Some(Draft { tool, values: fill::fill(tool, query, true) })
    }

    /// The tool that fits best, if one plainly does.
    fn best(&self, query: &Query) -> Option<Draft<'a>> {
        let must_call = *self.choice == ToolChoice::Required;
        let mut best: Option<((bool, usize), Draft<'a>)> = None;
        for tool in self.tools {
            let Some((is_named, n_hits)) = fit(tool, query).or(must_call.then_some((false, 0))) else { continue };
            let sure = Draft { tool, values: fill::fill(tool, query, false) };
            if !must_call {
                let is_complete = sure.missing().is_none();
                // A request that the assistant itself can answer needs a tool without doubt.
                let is_doubtful = !is_complete || !is_named;
                if is_doubtful && (intents::understands(self.context, &query.raw) || !(is_named || is_complete)) {
                    continue;
                }
            }
            let draft = if is_named { Draft { tool, values: fill::fill(tool, query, true) } } else { sure };
            let n_known = draft.values.len() + usize::from(draft.missing().is_none());
            let rank = (is_named, n_hits + n_known);
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, draft));
            }
        }
        best.map(|(_, draft)| draft)
    }

    /// The exchanges are a request and our questions about it; `request` answers the last of them.
    fn resumed(&self, exchanges: &[Exchange], request: &str) -> Option<Step> {
        let (first, rest) = exchanges.split_first()?;
        let query = Query::new(&first.question);
        let mut draft = self.forced(&query).or_else(|| self.best(&query))?;
        let answers = rest.iter().map(|exchange| exchange.question.as_str()).chain([request]);
        for (exchange, answer) in exchanges.iter().zip(answers) {
            let missing = draft.missing()?;
            let query = Query::new(answer);
            if exchange.answer != missing.question() || is_refusal(&query) {
                return None;
            }
            let value = fill::answer(&missing, &query)?;
            draft.values.insert(missing.name.to_owned(), value);
        }
        Some(finish(vec![draft]))
    }

    /// `and in London?` after a call: the same tool, with what is new replaced.
    fn follow_up(&self, request: &str) -> Option<Step> {
        let query = Query::new(request);
        let is_short = query.said("and / what about / how about") && query.words.len() <= 5;
        if *self.choice != ToolChoice::Auto || !is_short || self.best(&query).is_some() {
            return None;
        }
        let mut draft = self.best(&Query::new(&self.context.past.last()?.question))?;
        let new = fill::fill(draft.tool, &query, true);
        let is_new = !new.is_empty();
        draft.values.extend(new);
        is_new.then(|| finish(vec![draft]))
    }
}

impl<'a> Draft<'a> {
    fn missing(&self) -> Option<schema::Parameter<'a>> {
        self.tool.parameters().into_iter().find(|p| p.required && !self.values.contains_key(p.name))
    }
}

/// Calls all of them, or asks for what the first incomplete one lacks.
fn finish(drafts: Vec<Draft<'_>>) -> Step {
    match drafts.iter().find_map(Draft::missing) {
        Some(missing) => Step::Say(missing.question()),
        None => Step::Call(drafts.into_iter().map(|d| (d.tool.name.clone(), d.values)).collect()),
    }
}

/// How a tool fits a request: whether most of its name was said, and how many words of its name and description were;
/// `None` if it is not meant.
fn fit(tool: &Tool, query: &Query) -> Option<(bool, usize)> {
    let name = words_of(&tool.name);
    let said = &query.words;
    let has = |words: &[String], word: &str| words.iter().any(|other| other == word);
    let is_opposed = |pair: &String| {
        let (a, b) = pair.split_once('|').unwrap_or_default();
        let excludes = |own, other| has(&name, own) && !has(&name, other) && has(said, other) && !has(said, own);
        excludes(a, b) || excludes(b, a)
    };
    let (verbs, rest): (Vec<&String>, Vec<&String>) = name.iter().partition(|word| is_verb(word));
    let same_verb = |a: &str, b: &str| WORDS.verbs.iter().any(|row| one_of(a, row) && one_of(b, row));
    let verb_said = said.iter().any(|word| verbs.iter().any(|verb| same_verb(verb, word)));
    // A request to do something else with the same thing.
    let other_verb = !verbs.is_empty() && !verb_said && said.iter().any(|word| is_verb(word));
    if other_verb || WORDS.opposites.iter().any(is_opposed) {
        return None;
    }
    let is_content = |word: &String| !one_of(word, &WORDS.stop) && !one_of(word, &WORDS.weak);
    let nouns: Vec<&String> = rest.into_iter().filter(|word| is_content(word)).collect();
    // A tool called `search` or `stop` is called by that word.
    let nouns = if nouns.is_empty() { name.iter().filter(|word| !one_of(word, &WORDS.stop)).collect() } else { nouns };
    let n_nouns = nouns.iter().filter(|noun| says(said, noun)).count();
    let described = words_of(&tool.description);
    let is_hit = |word: &&String| is_content(word) && word.len() > 2 && !is_verb(word) && says(said, word);
    let n_described = described.iter().filter(is_hit).count();
    let n_hits = 2 * n_nouns + usize::from(verb_said) + n_described.min(2);
    (n_nouns + n_described > 0).then(|| (n_nouns * 3 >= nouns.len().max(1) * 2, n_hits))
}

/// The request says that something is not to be done, or that it was done.
fn is_refusal(query: &Query) -> bool {
    let tells = query.all.first().is_some_and(|word| one_of(word, "i|we|he|she|they"))
        && query.all.get(1).is_some_and(|word| word.ends_with("ed") && word.len() > 4);
    tells
        || query.said("not / never / nevermind / forget it|about / nothing / no thanks")
        || query.is("no|cancel|stop|nope|none")
}
