//! Common beginnings and words of requests, as recognizers mishear them. `router` calls this.
//!
//! Only used when nothing was understood, as `repair` is, which works on letters: here the sounds are alike and the
//! letters are not. Each row holds the words around, so that a word stays itself elsewhere.

use super::query::find;

/// What was heard, word by word (`a|b` is either, `*` any word), and what was meant; a digit is the word at that place.
const ROWS: &[(&str, &str)] = &[
    ("halve|have|hover much|many|long|far|do|is|hot|tall", "how 2"),
    ("whew|here|hew|hue|hoo am|are|is|made|built|created|invented", "who 2"),
    ("our|or you|view of|a human|robot|machine|person|computer", "are you a 4"),
    ("our|or you|view", "are you"),
    ("can|kind|counter|convert|contact from|to|backwards|backward|down|up|by", "count 2"),
    ("can|kind of twenty|thirty|forty|fifty|ten by", "count to 3 by"),
    ("thin|sin|send|say|thank queue|que|cue", "thank you"),
    ("say and queue", "thank you"),
    ("throw|flip|toss|slip|lip a|the quiet|client|corn|going|find|plain|queen|calling|call", "flip a coin"),
    ("throw|flip|toss client|corn|quiet|calling", "flip a coin"),
    ("roll|row|role|throw a guy|tie|dime|diet", "roll a die"),
    ("what the|a clock", "what o'clock"),
    ("spell|in|spelling|repeat|say the war|weird|world|ward|were *", "1 the word 4"),
    ("shay|save guy|the|hello|good", "say 2"),
];

/// The words with each row that fits put right; `None` where none fits.
pub(super) fn put_right(words: &[String]) -> Option<String> {
    let mut right = words.to_vec();
    for (heard, meant) in ROWS {
        if let Some(at) = find(&right, heard) {
            let kept = right[at.clone()].to_vec();
            let word = |part: &str| match part.parse::<usize>() {
                Ok(place) => kept[place - 1].clone(),
                Err(_) => part.to_owned(),
            };
            right.splice(at, meant.split(' ').map(word));
        }
    }
    (right != words).then(|| right.join(" "))
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn requests_are_understood_though_their_first_words_were_misheard() {
        check_all(&[
            ("halve do you work exactly", "I hear your words"),
            ("whew are you", "I am Antiphon's offline assistant"),
            ("our view of human", "I am Antiphon's offline assistant"),
            ("kind from three to five", "3, 4, 5."),
            ("can backwards from three to one", "3, 2, 1."),
            ("throw a quiet", "It is heads."),
            ("sin que very much", "You are welcome."),
            ("what the clock is it", "It is 3:07 PM."),
            ("what are the letters in the war garden", "G, A, R, D, E, N."),
        ]);
    }

    #[test]
    fn what_is_understood_stays_as_it_is() {
        check_all(&[
            ("repeat after me throw a quiet", "Throw a quiet."),
            ("our neighbours have a dog", "I have no language model here"),
            ("can you count to three", "1, 2, 3."),
        ]);
    }
}
