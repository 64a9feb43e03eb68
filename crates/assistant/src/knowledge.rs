//! The little it knows by heart: capitals, colors, planets, continents, opposites, animals.

use super::knowledge_tables::{CAPITALS, COLORS, FACTS, MIXES, OPPOSITES, PLANETS, SOUNDS};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, and_list, sentence};

pub(super) fn answer(_scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    capital_of(query)
        .or_else(|| planet(query))
        .or_else(|| opposite(query))
        .or_else(|| sound(query))
        .or_else(|| color(query))
        .or_else(|| fact(query))
}

fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

fn capital_of(query: &Query) -> Option<Reply> {
    let places = |pattern: &str| pattern.split('|').find_map(|name| find(&query.words, name));
    if query.any(&["capital|capitol|capital's", "capital city"]) && !query.any(&["letter|letters"]) {
        if let Some((name, city)) = CAPITALS.iter().rev().find(|(names, _)| places(names).is_some()) {
            let name = name.split('|').find(|name| find(&query.words, name).is_some()).unwrap_or(name);
            return reply(88, &format!("the capital of {} is {city}", proper(name)));
        }
        // The other way round: Paris is the capital of which country.
        let city = CAPITALS.iter().find(|(_, city)| find(&query.words, &city.to_lowercase()).is_some());
        if let Some((name, city)) = city {
            return reply(84, &format!("{city} is the capital of {}", proper(name.split('|').next().unwrap_or(name))));
        }
        return reply(60, "I do not know that capital");
    }
    None
}

/// `the United Kingdom`
fn proper(name: &str) -> String {
    let words: Vec<_> = name.split(' ').map(super::days::capital).collect();
    let words = words.join(" ");
    let words = if one_of(name, "usa|uk") {
        name.to_uppercase()
    } else if name == "states" {
        "United States".into()
    } else {
        words
    };
    if one_of(name, "united kingdom|united states|usa|uk|netherlands|philippines|czech republic|states") {
        format!("the {words}")
    } else {
        words
    }
}

fn planet(query: &Query) -> Option<Reply> {
    if !query.has("planet") {
        return None;
    }
    let nth = (0..query.words.len()).find_map(|at| super::numbers::ordinal_at(&query.words[at..])).map(|(n, _)| n);
    if let Some(n @ 1..=8) = nth {
        return reply(
            84,
            &format!("the {} planet from the sun is {}", super::chance::ordinal_word(n), PLANETS[n as usize - 1]),
        );
    }
    None
}

fn opposite(query: &Query) -> Option<Reply> {
    let rest =
        ["opposite of the word", "opposite of", "opposite to", "opposites of", "antonym of|for", "the opposite from"]
            .iter()
            .find_map(|pattern| query.after(pattern))?;
    let word = rest.iter().find(|word| !one_of(word, "the|a|an|word"))?;
    let found = OPPOSITES.iter().find_map(|(a, b)| if a == word { Some(*b) } else { (b == word).then_some(*a) });
    match found {
        Some(found) => reply(88, &format!("the opposite of {word} is {found}")),
        None => reply(70, &format!("I do not know the opposite of {word}")),
    }
}

fn sound(query: &Query) -> Option<Reply> {
    if !query.any(&["sound|noise does|do", "sound|noise", "says", "what does a|the * say"]) {
        return None;
    }
    let (animal, sound) = SOUNDS
        .iter()
        .find(|(animal, _)| query.words.iter().any(|word| word == animal || word.strip_suffix('s') == Some(animal)))?;
    reply(84, &format!("a {animal} says {sound}"))
}

fn color(query: &Query) -> Option<Reply> {
    if let Some((a, b, mix)) = MIXES.iter().find(|(a, b, _)| query.has(a) && query.has(b))
        && query.any(&["mix|make|makes|get|mixed|together|give|plus", "color|colour"])
    {
        return reply(85, &format!("{a} and {b} make {mix}"));
    }
    if !query.any(&["color|colour|colors|colours"]) {
        return None;
    }
    let found = COLORS
        .iter()
        .find_map(|(names, color)| names.split('|').find(|name| query.has(name)).map(|name| (name, color)));
    if let Some((name, color)) = found {
        let plural = name.ends_with('s') && !one_of(name, "grass");
        return reply(
            82,
            &format!(
                "{}{name} {} {color}",
                if plural || one_of(name, "grass|snow|blood|coal|milk|chocolate") { "" } else { "the " },
                if plural { "are" } else { "is" }
            ),
        );
    }
    if query.any(&[
        "name|list|tell|give|say some|three|me|a|the|few|five colors|colours",
        "what colors|colours",
        "name|list colors|colours",
    ]) && !query.any(&["rainbow|primary"])
    {
        let some = ["red", "orange", "yellow", "green", "blue", "violet", "brown", "black", "white"].map(str::to_owned);
        return reply(72, &format!("some colors are {}", and_list(&some)));
    }
    None
}

fn fact(query: &Query) -> Option<Reply> {
    let (_, text) = FACTS.iter().find(|(patterns, _)| query.any(patterns))?;
    let asks = query.any(&["what|which|how|name|list|tell|say|where|at|the|when|who"]);
    let score = if query.words.len() <= 10 { 79 } else { 55 };
    if asks { reply(score, text) } else { None }
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn known_by_heart() {
        check_all(&[
            ("what is the capital of france", "The capital of France is Paris."),
            ("capital of south africa", "Pretoria"),
            ("what is the opposite of hot", "cold"),
            ("what sound does a cow make", "moo"),
            ("what color is the sky", "blue"),
            ("what do you get when you mix red and blue", "purple"),
            ("which planet is the fourth from the sun", "Mars"),
            ("how many continents are there", "seven"),
            ("what are the colors of the rainbow", "indigo"),
        ]);
    }
}
