//! The scripted language model: it tells one story, and continues it behind the words that the conversation keeps.
//!
//! What a reply says is known, and so is what it should begin with: the assistant's words in the request are the
//! beginning of the story, as far as they were heard. A reply is the rest of the sentence that was interrupted and the
//! sentences after it, until it has at least [`REPLY_WORDS`] words. Behind its last word the story begins again. It
//! keeps no state.

use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_text::words::compared;
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::stream::{self, BoxStream, StreamExt};

/// A reply has at least this many words: about six seconds.
pub(super) const REPLY_WORDS: usize = 16;
/// The words by which a place of the story is recognized: no two places have the same.
const PLACE_WORDS: usize = 4;

/// The story, a sentence a line. No four words in a row come twice.
const SENTENCES: [&str; 40] = [
    "The old ferry leaves the harbour every morning before seven.",
    "Its captain carries letters, fresh bread and two or three passengers.",
    "On the far island a baker waits beside a red wooden gate.",
    "She has counted the boats since she was nine years old.",
    "Yesterday a storm came up and broke the northern pier.",
    "Four fishermen repaired it with planks from an empty barn.",
    "Nobody was paid, but everybody got soup and strong coffee.",
    "The schoolmaster brought his pupils to watch the work.",
    "One girl asked why wood floats and iron does not.",
    "He answered her with a bowl, a spoon and a cork.",
    "In the evening the lighthouse keeper climbed his hundred steps.",
    "From up there he could see the lamps of seven villages.",
    "A green lamp meant that the doctor was at home.",
    "A yellow one meant that the road was under water.",
    "That night both were burning, and he wrote it down.",
    "His book began one winter with a lost umbrella.",
    "Later pages told of whales, weddings and a frozen bay.",
    "The doctor rode out on a grey horse named Winter.",
    "She carried honey, bandages and a small brass clock.",
    "The clock was for a carpenter who always came late.",
    "He thanked her and hung it upside down by mistake.",
    "Since then he has arrived exactly six hours too early.",
    "His neighbours set their breakfast by his whistling.",
    "In spring the market moves to the meadow behind the church.",
    "There are apples from last year and radishes from this one.",
    "A man sells kites that he sews from old sails.",
    "The wind tries each of them before any child may.",
    "Musicians sit on barrels and play whatever they are asked for.",
    "Most people ask for the slow waltz about the river.",
    "Its third verse has been forgotten by all but one woman.",
    "She sings it softly, and the dogs lie down to listen.",
    "When the bell strikes ten the stalls are taken apart.",
    "Lanterns go home along the dikes like patient stars.",
    "The ferry sleeps with its ropes neatly folded on deck.",
    "Below the water eels travel south without any map.",
    "They know the way as birds know the first of March.",
    "Somewhere a radio reports fair weather for the whole coast.",
    "The baker hears it and sets more dough to rise.",
    "Tomorrow the captain will bring her a parcel from abroad.",
    "In it is a tin of tea and a very long letter.",
];

/// A word of the story: as it is compared, and as it is written.
struct StoryWord {
    compared: String,
    written: &'static str,
    ends_sentence: bool,
}

/// See the module.
pub(crate) struct Storyteller {
    words: Vec<StoryWord>,
}

impl Storyteller {
    pub(crate) fn new() -> Self {
        let mut words = Vec::new();
        for sentence in SENTENCES {
            let n_words = sentence.split(' ').count();
            for (i, written) in sentence.split(' ').enumerate() {
                let ends_sentence = i + 1 == n_words;
                words.push(StoryWord { compared: compared(written).concat(), written, ends_sentence });
            }
        }
        Self { words }
    }

    fn at(&self, place: usize) -> &StoryWord {
        &self.words[place % self.words.len()]
    }

    /// The reply from a place of the story on.
    fn reply(&self, place: usize) -> Vec<&'static str> {
        let mut reply = Vec::new();
        loop {
            let word = self.at(place + reply.len());
            reply.push(word.written);
            if word.ends_sentence && reply.len() >= REPLY_WORDS {
                return reply;
            }
        }
    }

    /// The place at which a reply begins, by its first words; `None`: they are not of the story.
    pub(super) fn place_of(&self, reply: &str) -> Option<usize> {
        let first: Vec<String> = compared(reply).into_iter().take(PLACE_WORDS).collect();
        if first.len() < PLACE_WORDS {
            return None;
        }
        let is_there = |place: &usize| first.iter().enumerate().all(|(i, word)| self.at(place + i).compared == *word);
        (0..self.words.len()).find(is_there)
    }

    /// How many words of a reply that began at `place` were heard, by what a recognizer made of its sound: the
    /// beginning of the reply with the fewest word errors, the longest of those.
    pub(super) fn n_heard(&self, place: usize, recognized: &str) -> usize {
        let recognized = compared(recognized);
        let reply: Vec<String> = (0..self.reply(place).len()).map(|i| self.at(place + i).compared.clone()).collect();
        let errors = |n: &usize| strsim::generic_levenshtein(&reply[..*n].to_vec(), &recognized);
        (0..=reply.len()).rev().min_by_key(errors).unwrap_or(0)
    }
}

impl Llm for Storyteller {
    fn name(&self) -> &str {
        "storyteller"
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let kept = |message: &Message| match message {
            Message::Assistant { text, .. } => compared(text).len(),
            _ => 0,
        };
        let place = request.messages.iter().map(kept).sum();
        let words = self.reply(place).into_iter().map(|word| LlmDelta::Text(format!("{word} ")));
        let end = LlmDelta::Done { finish: Finish::Stop, usage: None };
        stream::iter(words.chain([end]).map(Ok).collect::<Vec<_>>()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    async fn answer(messages: Vec<Message>) -> String {
        let request = ChatRequest { messages, ..ChatRequest::default() };
        let deltas = Storyteller::new().stream(request).collect::<Vec<_>>().await;
        let text = |delta| match delta {
            Ok(LlmDelta::Text(text)) => Some(text),
            _ => None,
        };
        deltas.into_iter().filter_map(text).collect::<String>().trim().to_owned()
    }

    fn said(text: &str) -> Message {
        Message::Assistant { text: text.into(), tool_calls: Vec::new() }
    }

    #[test]
    fn every_place_of_the_story_has_words_of_its_own() {
        let story = Storyteller::new();
        let places: HashSet<Vec<&str>> = (0..story.words.len())
            .map(|place| (0..PLACE_WORDS).map(|i| story.at(place + i).compared.as_str()).collect())
            .collect();
        assert_eq!(places.len(), story.words.len());
        let whole: Vec<String> = story.words.iter().map(|word| word.compared.clone()).collect();
        assert_eq!(compared(&SENTENCES.join(" ")), whole, "words are counted alike one by one and together");
    }

    #[tokio::test]
    async fn a_reply_continues_behind_the_words_that_the_conversation_keeps() {
        let user = || Message::User("Go on.".into());
        let first = answer(vec![user()]).await;
        assert!(first.starts_with("The old ferry leaves") && first.ends_with("passengers."), "{first}");
        // Cut in the middle of the second sentence: its rest comes first.
        let cut = "The old ferry leaves the harbour every morning before seven. Its captain carries";
        let next = answer(vec![user(), said(cut), user()]).await;
        assert!(next.starts_with("letters, fresh bread and"), "{next}");
        assert!(next.split(' ').count() >= REPLY_WORDS && next.ends_with('.'), "{next}");
        let story = Storyteller::new();
        assert_eq!((story.place_of(&first), story.place_of(&next)), (Some(0), Some(13)));
        assert_eq!((story.place_of("letters, fresh bread"), story.place_of("I do not know that")), (None, None));
    }

    #[test]
    fn the_words_heard_are_the_beginning_that_fits_best() {
        let story = Storyteller::new();
        assert_eq!(story.n_heard(0, "the old ferry leaves the"), 5);
        assert_eq!(story.n_heard(0, "the old fairy leaves the harbor"), 6, "two words were heard wrongly");
        assert_eq!((story.n_heard(13, "letters fresh"), story.n_heard(13, "")), (2, 0));
    }
}
