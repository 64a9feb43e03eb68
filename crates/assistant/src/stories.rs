//! Stories, jokes and other short pieces. Asked again, the next one comes: those already in the conversation are known
//! by their first words.

use super::query::Query;
use super::{Reply, Scene};

/// The pieces of one kind.
struct Shelf {
    name: &'static str,
    /// What asks for them.
    asks: &'static [&'static str],
    pieces: &'static [&'static str],
}

const SHELVES: [Shelf; 6] = [
    Shelf {
        name: "joke",
        asks: &[
            "joke|jokes|pun|puns|chokes|jog|juke",
            "something funny",
            "make me laugh",
            "make me smile",
            "funny",
            "humor|humour",
            "cheer me up",
            "entertain|amuse me",
            "me laugh",
        ],
        pieces: &[
            "Why did the microphone go to school? It wanted to be heard.",
            "I told my computer a joke about silence. It is still waiting for the end.",
            "What do you call a bear that got caught in the rain? A drizzly bear.",
            "Why do clocks never go hungry? They always go back four seconds.",
            "Why was the math book so quiet in the choir? It had too many problems to sing about.",
            "What does a cloud wear under its coat? Thunderwear.",
            "Why did the echo lose every argument? It always repeated itself.",
            "What did the left ear say to the right ear? Between us, something smells.",
            "Why did the ladder fail as a singer? It kept missing a step.",
            "How does a snail answer the telephone? Slowly. Please hold.",
        ],
    },
    Shelf {
        name: "riddle",
        asks: &["riddle|riddles|riddled", "brain teaser|teasers", "puzzle"],
        pieces: &[
            "What answers every call and never has an idea of its own? An echo.",
            "What gets wetter the more it dries? A towel.",
            "What has a neck and no head, and still wears a cap? A bottle.",
            "What goes up when the rain comes down? An umbrella.",
            "What can fill a room and takes up no space? Light.",
        ],
    },
    Shelf {
        name: "poem",
        asks: &["poem|poems|poetry|verse|rhyme|rhymes|limerick|haiku", "sing", "a song", "song|lullaby"],
        pieces: &[
            "I cannot sing, but I can rhyme. The kettle whistles, keeping time; the morning comes in through the door, and leaves its light upon the floor.",
            "The moon went walking on the sea, it left a silver road for me; I had no boat, I had no oar, and so I waved it from the shore.",
            "A sparrow sat upon a wire and told the evening, climb up higher; the evening climbed, the sparrow slept, and that is all the wire has kept.",
        ],
    },
    Shelf {
        name: "tongue twister",
        asks: &["tongue twister|twisters", "tongue|tung twist|twister"],
        pieces: &[
            "Six slim swans swam slowly south.",
            "Three thin thieves threw thirty thick thimbles.",
            "Brisk brown brushes brush bright brass buttons.",
        ],
    },
    Shelf {
        name: "fact",
        asks: &[
            "fun|interesting|random|cool|amazing fact|facts",
            "a fact",
            "facts",
            "something interesting",
            "something i do not know",
            "teach me something",
            "something new",
            "did you know",
            "trivia",
            "surprise me",
        ],
        pieces: &[
            "A day on Venus is longer than its year: it turns more slowly than it goes around the sun.",
            "Honey keeps for thousands of years if no water gets into it.",
            "Sound travels about four times faster in water than in air.",
            "An octopus has three hearts and blue blood.",
            "The shortest war on record, between Britain and Zanzibar in 1896, lasted less than an hour.",
        ],
    },
    Shelf {
        name: "story",
        asks: &["story|stories|tale|tales|fairy|storey|fable", "bedtime", "once upon a time"],
        pieces: &[
            "Once there was a lighthouse keeper who spoke to the sea every night, and the sea never answered. One evening, thick fog came in, and the lamp would not burn. So the keeper called out into the dark, and went on calling until morning. At dawn nine ships lay safe in the harbor, and their captains said: we followed your voice. From then on the keeper knew that somebody had always been listening.",
            "A young fox found a bell in the grass and wore it around its neck, for it liked the sound. But the mice heard it coming, and the birds did too, and the fox went hungry for three days. On the fourth day it hung the bell on a branch, where the wind could ring it. Everybody ran from the branch, and the fox waited on the other side. It said: a noise is useful, if it is somewhere else.",
            "A dragon lived on a mountain and counted its gold each evening. One night a girl came in from the rain and asked whether she might count along. They counted until sunrise, and the dragon noticed that it had never laughed so much. In the morning it gave her one coin to make sure that she would come back. She did, every week, and in the end there was no gold left, only a very good friend.",
            "Two frogs fell into a bucket of cream. The first one said, there is no way out, and stopped swimming. The second one did not know any way out either, but it kept its legs moving to stay warm. By morning the cream had turned to butter, and the frog stepped out on it as if on a stone. It never did find out how it had been saved.",
            "A robot was built to water a garden on the moon, where nothing grew. Every day it poured its water on the dust, because that was what it was for. After a hundred years a ship landed, and a child dropped an apple core. The robot watered it. Now there is one tree on the moon, and the robot sits under it in the evening and watches the earth rise.",
        ],
    },
];

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let about = query.any(&[
        "what is|are a|an",
        "how many",
        "is it a",
        "your favorite",
        "do you like",
        "that was",
        "who wrote",
        "bad joke",
        "spell",
    ]) && !query.any(&["tell", "what is a good|funny"]);
    if about || query.starts(&["no more", "stop", "not"]) {
        return None;
    }
    let shelf = SHELVES.iter().find(|shelf| query.any(shelf.asks));
    let shelf = shelf.or_else(|| another(scene, query))?;
    let tells = query.any(&["tell|give|know|another|one|more|hear|say|read|recite|got|have|some|any|make|want|need|sing|time|let|a|an|please|next|crack|for|share"]);
    let score = match query.words.len() {
        0..=4 => 82,
        _ if tells => 82,
        _ => 55,
    };
    Some(Reply { score, text: next(scene, query, shelf) })
}

/// `another one`, after a piece of some kind.
fn another(scene: &Scene<'_>, query: &Query) -> Option<&'static Shelf> {
    let asks = query.is(&[
        "another",
        "another one",
        "one more",
        "more",
        "tell me another",
        "tell me another one",
        "next",
        "next one",
        "the next one",
        "tell me more",
        "one more please",
        "again",
        "another one please",
        "give me another one",
        "give me another",
        "do you have another one",
        "do you know another one",
        "i want another one",
        "do another one",
        "keep going",
        "go on",
        "a different one",
        "tell me one more",
        "another please",
        "do you have more",
        "do you know more",
        "got any more",
        "any more",
        "tell me a different one",
        "tell another one",
        "tell another",
    ]);
    let last = &scene.past.last()?.answer;
    let known = |shelf: &&Shelf| shelf.pieces.iter().any(|piece| same_piece(last, piece));
    asks.then(|| SHELVES.iter().find(known))?
}

/// An answer may have been cut while it was heard, or stand among others.
fn same_piece(answer: &str, piece: &str) -> bool {
    let beginning = |text: &str| text.chars().take(24).collect::<String>();
    answer.contains(&beginning(piece))
}

/// The first piece that was not told yet, one about what was asked for first; when all were told, from the beginning.
fn next(scene: &Scene<'_>, query: &Query, shelf: &Shelf) -> String {
    let told = |piece: &str| scene.past.iter().filter(|exchange| same_piece(&exchange.answer, piece)).count();
    let topic = query.after("about").or_else(|| query.after("of a|an|the")).and_then(|rest| rest.last());
    let fits = |piece: &&&str| topic.is_some_and(|topic| piece.to_lowercase().contains(topic.trim_end_matches('s')));
    let least = shelf.pieces.iter().map(|piece| told(piece)).min().unwrap_or(0);
    let piece = shelf
        .pieces
        .iter()
        .filter(|piece| told(piece) == least)
        .find(fits)
        .or_else(|| shelf.pieces.iter().find(|piece| told(piece) == least));
    let piece = piece.copied().unwrap_or(shelf.pieces[0]);
    match topic {
        Some(topic) if !piece.to_lowercase().contains(topic.trim_end_matches('s')) && query.has("about") => {
            format!("I know no {} about that, but here is another one. {piece}", shelf.name)
        }
        _ => piece.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check_dialogue;

    #[test]
    fn asked_again_the_next_one_comes() {
        check_dialogue(&[
            ("tell me a joke", "microphone"),
            ("tell me another joke", "silence"),
            ("another one", "drizzly"),
            ("do you know any stories", "lighthouse"),
            ("another one please", "fox"),
            ("tell me a story about a robot", "moon"),
            ("make me laugh", "back four seconds"),
        ]);
        check_dialogue(&[("sing me a song", "I cannot sing"), ("ask me a riddle", "An echo")]);
    }
}
