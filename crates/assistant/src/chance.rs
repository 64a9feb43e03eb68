//! Coins, dice, random numbers and choices.

use super::numbers::{self, STRICT};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, and_list, sentence};

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let numbers: Vec<f64> = numbers::all(&query.words, STRICT)
        .into_iter()
        .map(|(_, found)| found.value)
        .filter(|n| n.fract() == 0.0 && (-1e9..=1e9).contains(n))
        .collect();
    coin(scene, query, &numbers)
        .or_else(|| dice(scene, query, &numbers))
        .or_else(|| card(scene, query))
        .or_else(|| game(scene, query))
        .or_else(|| random_number(scene, query))
        .or_else(|| choice(scene, query))
}

fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

fn coin(scene: &Scene<'_>, query: &Query, numbers: &[f64]) -> Option<Reply> {
    let asks = query.any(&[
        "flip|toss|throw|flipping|tossing a|an|the|one|some|two|three|four|five|ten coin|coins|quoin",
        "coin toss|flip",
        "flip coin|coins",
        "toss coin",
        "heads or tails",
        "head or tail",
        "heads or tail|tales",
        "flip it",
        "coin",
    ]);
    if !asks || query.any(&["what is a coin", "coins in|make"]) {
        return None;
    }
    let n = numbers.first().map_or(1, |n| n.clamp(1.0, 20.0) as usize);
    let one = || if (scene.dice)(2) == 0 { "heads" } else { "tails" };
    let sides: Vec<_> = (0..n).map(|_| one().to_owned()).collect();
    reply(88, &if n == 1 { format!("it is {}", sides[0]) } else { format!("they are {}", and_list(&sides)) })
}

fn dice(scene: &Scene<'_>, query: &Query, numbers: &[f64]) -> Option<Reply> {
    let noun = query.any(&["die|dice|dies|dye|dices", "d *"]) || find(&query.words, "roll|throw d").is_some();
    if !noun
        || !query.any(&["roll|throw|rolled|cast|role|rolling|toss|shake|d", "dice roll", "die roll", "dice", "a die"])
        || query.any(&["how many", "what is a", "to die"])
    {
        return None;
    }
    let sided = query.any(&["sided|sides|side|faces", "d"]);
    let n_sides = if sided { numbers.last().map_or(6, |n| n.clamp(2.0, 1e6) as u32) } else { 6 };
    let pair = query.any(&["pair of", "a couple of"]);
    let first = numbers.first().map(|n| n.clamp(1.0, 20.0) as usize);
    let n = match (sided, numbers.len()) {
        (true, 2) => first.unwrap_or(1),
        (true, _) => 1,
        (false, _) if pair => 2,
        (false, _) => first.unwrap_or(1),
    };
    let rolled: Vec<u32> = (0..n).map(|_| (scene.dice)(n_sides) + 1).collect();
    let said: Vec<_> = rolled.iter().map(u32::to_string).collect();
    reply(
        88,
        &if n == 1 {
            format!("I rolled a {}", said[0])
        } else {
            format!("I rolled {}, which makes {}", and_list(&said), rolled.iter().sum::<u32>())
        },
    )
}

fn card(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    if !query.any(&[
        "pick|draw|choose|take a|any|one|me card",
        "random card",
        "pick|draw a playing card",
        "random playing card",
    ]) {
        return None;
    }
    const RANKS: [&str; 13] =
        ["ace", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "jack", "queen", "king"];
    const SUITS: [&str; 4] = ["hearts", "diamonds", "clubs", "spades"];
    let (rank, suit) = ((scene.dice)(13) as usize, (scene.dice)(4) as usize);
    reply(86, &format!("I drew the {} of {}", RANKS[rank], SUITS[suit]))
}

fn game(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    if query.any(&["rock paper", "paper scissors"]) {
        let moves = ["rock", "paper", "scissors"];
        return reply(86, &format!("I choose {}", moves[(scene.dice)(3) as usize]));
    }
    if query.said(&["magic eight|8 ball"]) || query.is(&["yes or no"]) {
        return reply(75, ["yes", "no"][(scene.dice)(2) as usize]);
    }
    if query.any(&["random letter", "pick|choose a|any letter", "give me a letter"]) {
        let letter = char::from(b'A' + (scene.dice)(26) as u8);
        return reply(85, &format!("my letter is {letter}"));
    }
    if query.any(&["random color|colour", "pick|choose|name a color|colour"]) {
        let colors = ["red", "orange", "yellow", "green", "blue", "violet", "pink", "brown"];
        return reply(85, &format!("my color is {}", colors[(scene.dice)(8) as usize]));
    }
    if query.any(&["random day", "pick|choose a day", "pick|choose a weekday"]) {
        let day = super::days::WEEKDAYS[(scene.dice)(7) as usize];
        return reply(86, &format!("my day is {}", super::days::capital(day)));
    }
    None
}

fn random_number(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let asks = query.any(&[
        "random|lucky|random. number|numbers|integer|value",
        "pick|choose|think|guess|select|generate|give a|any|of|me|one|some|another number|random|digit",
        "give me a number",
        "think of a number",
        "a number between|from|up",
        "any number",
        "number at random",
        "random digit",
        "guess a|my number",
        "randomize",
        "say a number",
        "name a number",
        "give me another number",
        "give me any number",
        "pick something between",
    ]);
    if !asks || query.any(&["even|odd|prime|larger|bigger"]) {
        return None;
    }
    let bounds = numbers::at_least(&query.words, 2);
    let (low, high) = match bounds.as_slice() {
        [low, high, ..] => (low.min(*high), low.max(*high)),
        [high] if *high > 1.0 => (1.0, *high),
        _ if query.has("digit") => (0.0, 9.0),
        _ => (1.0, 100.0),
    };
    let n = (high - low).clamp(0.0, 4e9) as u32 + 1;
    let number = low as i64 + i64::from((scene.dice)(n));
    reply(86, &format!("my number is {}", number.to_string().replace('-', "minus ")))
}

/// `choose between tea and coffee`, `pick one: red, green or blue`.
fn choice(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let words = &query.words;
    let at = [
        "choose|pick|decide|select|choosing between",
        "choose|pick|decide one of|from",
        "choose|pick|select|decide",
        "should i|we choose|pick|take|have|eat|drink|wear|get|order|buy",
        "should i|we",
    ]
    .iter()
    .find_map(|pattern| find(words, pattern).filter(|at| at.start == 0))?;
    let rest = at.end..words.len();
    let or = rest.clone().find(|i| words[*i] == "or").or_else(|| rest.clone().find(|i| words[*i] == "and"))?;
    let skip = "for|me|us|one|of|either|a|an|the|between|from";
    let start = rest.clone().find(|i| !one_of(&words[*i], skip) || *i + 1 == or)?;
    if start >= or || or + 1 >= words.len() {
        return None;
    }
    let mut options: Vec<String> = query
        .raw_words(start..or)
        .split(',')
        .map(|option| option.trim().to_owned())
        .filter(|option| !option.is_empty())
        .collect();
    let mut from = or + 1;
    for i in or + 1..=words.len() {
        if i == words.len() || words[i] == "or" {
            if i > from {
                options.push(query.raw_words(from..i).to_owned());
            }
            from = i + 1;
        }
    }
    let pick = options.get((scene.dice)(options.len() as u32) as usize)?;
    reply(74, &format!("I would take {pick}"))
}

/// `third` for 3; from 21 on in digits.
pub(super) fn ordinal_word(n: u32) -> String {
    const WORDS: [&str; 20] = [
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
        "eleventh",
        "twelfth",
        "thirteenth",
        "fourteenth",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
        "nineteenth",
        "twentieth",
    ];
    n.checked_sub(1)
        .and_then(|i| WORDS.get(i as usize))
        .map_or_else(|| numbers::say_ordinal(n), |word| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    /// The tests' dice always fall on their lowest side.
    #[test]
    fn chance_as_it_is_asked() {
        check_all(&[
            ("flip a coin", "It is heads."),
            ("heads or tails", "It is heads."),
            ("roll a die", "I rolled a 1."),
            ("roll two dice please", "I rolled 1 and 1, which makes 2."),
            ("roll a twenty sided die", "I rolled a 1."),
            ("pick a number between five and ten", "My number is 5."),
            ("give me a random number", "My number is 1."),
            ("should I have tea or coffee", "I would take tea."),
            ("pick a card", "the ace of hearts"),
            ("rock paper scissors", "rock"),
        ]);
    }
}
