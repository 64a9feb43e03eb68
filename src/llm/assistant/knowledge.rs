//! The little it knows by heart: capitals, colors, planets, continents, opposites, animals.

use super::query::{Query, find, one_of};
use super::{Reply, Scene, and_list, sentence};

const CAPITALS: &[(&str, &str)] = &[
    ("france", "Paris"),
    ("germany", "Berlin"),
    ("england", "London"),
    ("united kingdom|britain|uk", "London"),
    ("scotland", "Edinburgh"),
    ("wales", "Cardiff"),
    ("ireland", "Dublin"),
    ("spain", "Madrid"),
    ("portugal", "Lisbon"),
    ("italy", "Rome"),
    ("austria", "Vienna"),
    ("switzerland", "Bern"),
    ("belgium", "Brussels"),
    ("netherlands|holland", "Amsterdam"),
    ("luxembourg", "Luxembourg"),
    ("denmark", "Copenhagen"),
    ("sweden", "Stockholm"),
    ("norway", "Oslo"),
    ("finland", "Helsinki"),
    ("iceland", "Reykjavik"),
    ("poland", "Warsaw"),
    ("czech republic|czechia", "Prague"),
    ("slovakia", "Bratislava"),
    ("hungary", "Budapest"),
    ("romania", "Bucharest"),
    ("bulgaria", "Sofia"),
    ("greece", "Athens"),
    ("turkey", "Ankara"),
    ("ukraine", "Kyiv"),
    ("russia", "Moscow"),
    ("serbia", "Belgrade"),
    ("croatia", "Zagreb"),
    ("slovenia", "Ljubljana"),
    ("estonia", "Tallinn"),
    ("latvia", "Riga"),
    ("lithuania", "Vilnius"),
    ("united states|usa|america|states", "Washington, D.C."),
    ("canada", "Ottawa"),
    ("mexico", "Mexico City"),
    ("cuba", "Havana"),
    ("brazil", "Brasilia"),
    ("argentina", "Buenos Aires"),
    ("chile", "Santiago"),
    ("peru", "Lima"),
    ("colombia", "Bogota"),
    ("venezuela", "Caracas"),
    ("ecuador", "Quito"),
    ("bolivia", "Sucre"),
    ("uruguay", "Montevideo"),
    ("china", "Beijing"),
    ("japan", "Tokyo"),
    ("south korea|korea", "Seoul"),
    ("north korea", "Pyongyang"),
    ("india", "New Delhi"),
    ("pakistan", "Islamabad"),
    ("bangladesh", "Dhaka"),
    ("thailand", "Bangkok"),
    ("vietnam", "Hanoi"),
    ("indonesia", "Jakarta"),
    ("philippines", "Manila"),
    ("malaysia", "Kuala Lumpur"),
    ("nepal", "Kathmandu"),
    ("mongolia", "Ulaanbaatar"),
    ("iran", "Tehran"),
    ("iraq", "Baghdad"),
    ("israel", "Jerusalem"),
    ("saudi arabia", "Riyadh"),
    ("egypt", "Cairo"),
    ("morocco", "Rabat"),
    ("algeria", "Algiers"),
    ("tunisia", "Tunis"),
    ("kenya", "Nairobi"),
    ("nigeria", "Abuja"),
    ("ethiopia", "Addis Ababa"),
    ("ghana", "Accra"),
    ("south africa", "Pretoria"),
    ("australia", "Canberra"),
    ("new zealand", "Wellington"),
];

const PLANETS: [&str; 8] = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"];

const OPPOSITES: &[(&str, &str)] = &[
    ("hot", "cold"),
    ("big", "small"),
    ("large", "little"),
    ("up", "down"),
    ("left", "right"),
    ("good", "bad"),
    ("day", "night"),
    ("black", "white"),
    ("happy", "sad"),
    ("fast", "slow"),
    ("high", "low"),
    ("old", "young"),
    ("new", "used"),
    ("open", "closed"),
    ("light", "dark"),
    ("rich", "poor"),
    ("early", "late"),
    ("long", "short"),
    ("loud", "quiet"),
    ("hard", "soft"),
    ("heavy", "lightweight"),
    ("full", "empty"),
    ("wet", "dry"),
    ("easy", "difficult"),
    ("north", "south"),
    ("east", "west"),
    ("in", "out"),
    ("inside", "outside"),
    ("yes", "no"),
    ("true", "false"),
    ("love", "hate"),
    ("war", "peace"),
    ("start", "end"),
    ("first", "last"),
    ("near", "far"),
    ("strong", "weak"),
    ("clean", "dirty"),
    ("warm", "cool"),
    ("always", "never"),
    ("before", "after"),
    ("tall", "short"),
    ("more", "less"),
    ("beautiful", "ugly"),
    ("thick", "thin"),
    ("wide", "narrow"),
    ("life", "death"),
    ("odd", "even"),
    ("win", "lose"),
    ("buy", "sell"),
    ("give", "take"),
    ("push", "pull"),
    ("sweet", "sour"),
    ("right", "wrong"),
    ("begin", "end"),
];

const SOUNDS: &[(&str, &str)] = &[
    ("dog", "woof"),
    ("cat", "meow"),
    ("cow", "moo"),
    ("sheep", "baa"),
    ("pig", "oink"),
    ("duck", "quack"),
    ("horse", "neigh"),
    ("lion", "roar"),
    ("rooster", "cock-a-doodle-doo"),
    ("frog", "ribbit"),
    ("bee", "buzz"),
    ("owl", "hoot"),
    ("mouse", "squeak"),
    ("snake", "hiss"),
    ("wolf", "howl"),
    ("donkey", "hee-haw"),
    ("bird", "tweet"),
    ("chicken", "cluck"),
];

const COLORS: &[(&str, &str)] = &[
    ("sky", "blue"),
    ("grass", "green"),
    ("banana|bananas", "yellow"),
    ("snow", "white"),
    ("blood", "red"),
    ("sun", "white, though it looks yellow from the ground"),
    ("lemon|lemons", "yellow"),
    ("strawberry|strawberries", "red"),
    ("sea|ocean", "blue"),
    ("tomato|tomatoes", "red"),
    ("carrot|carrots", "orange"),
    ("coal", "black"),
    ("milk", "white"),
    ("chocolate", "brown"),
    ("leaf|leaves", "green"),
    ("rose|roses", "often red"),
    ("elephant|elephants", "gray"),
];

const MIXES: &[(&str, &str, &str)] = &[
    ("red", "blue", "purple"),
    ("red", "yellow", "orange"),
    ("blue", "yellow", "green"),
    ("red", "white", "pink"),
    ("black", "white", "gray"),
    ("red", "green", "brown"),
];

/// Facts asked in few ways.
const FACTS: &[(&[&str], &str)] = &[
    (
        &["far is the moon", "far away is the moon", "distance to the moon"],
        "the moon is about 384400 kilometers away, or 238855 miles",
    ),
    (&["sky blue"], "air scatters blue light more than red light, so the sky looks blue"),
    (&["marathon"], "a marathon is 42.195 kilometers, or about 26.2 miles"),
    (
        &[
            "colors|colours of|in the|a rainbow",
            "rainbow colors|colours",
            "rainbow",
            "colors|colours does the|a rainbow",
        ],
        "the colors of the rainbow are red, orange, yellow, green, blue, indigo and violet",
    ),
    (
        &["primary colors|colours|color"],
        "the primary colors are red, yellow and blue; on screens they are red, green and blue",
    ),
    (&["how many continents"], "there are seven continents"),
    (
        &["continents"],
        "the continents are Africa, Antarctica, Asia, Australia, Europe, North America and South America",
    ),
    (&["how many oceans"], "there are five oceans"),
    (&["largest|biggest|deepest ocean"], "the largest and deepest ocean is the Pacific"),
    (&["oceans"], "the oceans are the Pacific, the Atlantic, the Indian, the Southern and the Arctic Ocean"),
    (&["five senses", "the senses"], "the five senses are sight, hearing, smell, taste and touch"),
    (&["how many planets"], "there are eight planets in our solar system"),
    (&["largest|biggest planet"], "the largest planet is Jupiter"),
    (&["smallest planet"], "the smallest planet is Mercury"),
    (&["closest|nearest planet|to the sun", "closest to the sun"], "the planet closest to the sun is Mercury"),
    (&["red planet"], "the red planet is Mars"),
    (&["planets"], "the planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune"),
    (&["legs does|do|has|have a|an|the spider|spiders", "legs does|do spider|spiders"], "a spider has eight legs"),
    (
        &["legs does|do|has|have a|an|the insect|insects|ant|bee|fly", "legs does|do insects|ants|bees|flies"],
        "an insect has six legs",
    ),
    (&["sides does|has|have a|an|the triangle", "sides in a triangle"], "a triangle has three sides"),
    (&["sides does|has|have a|an|the square|rectangle"], "a square has four sides"),
    (&["sides does|has|have a|an|the pentagon"], "a pentagon has five sides"),
    (&["sides does|has|have a|an|the hexagon"], "a hexagon has six sides"),
    (&["sides does|has|have a|an|the octagon|stop"], "an octagon has eight sides"),
    (
        &["degrees in|are a|in|the circle", "degrees does a circle", "degrees are in a|the circle"],
        "a full circle has 360 degrees",
    ),
    (
        &["degrees in|are a|in|the right", "degrees does a right", "degrees are in a right"],
        "a right angle has 90 degrees",
    ),
    (
        &["degrees in a triangle", "angles of a triangle", "degrees are in a triangle"],
        "the angles of a triangle add up to 180 degrees",
    ),
    (
        &["speed of light", "fast is light", "fast does light"],
        "light travels 299792 kilometers per second, or about 186282 miles per second",
    ),
    (
        &["speed of sound", "fast is sound", "fast does sound"],
        "sound travels about 343 meters per second in air, or 767 miles per hour",
    ),
    (
        &["water boil|boils", "boiling point of|for water", "boiling water", "boiling point"],
        "water boils at 100 degrees Celsius, or 212 degrees Fahrenheit, at sea level",
    ),
    (
        &["water freeze|freezes", "freezing point of|for water", "freezing point", "ice melt"],
        "water freezes at 0 degrees Celsius, or 32 degrees Fahrenheit",
    ),
    (&["highest|tallest mountain"], "the highest mountain is Mount Everest, 8849 meters or about 29032 feet"),
    (&["longest river"], "the longest river is the Nile, or by some counts the Amazon"),
    (&["largest|biggest animal"], "the largest animal is the blue whale"),
    (&["fastest animal|land"], "the fastest animal on land is the cheetah"),
    (&["tallest animal"], "the tallest animal is the giraffe"),
    (&["largest|biggest country"], "the largest country by area is Russia"),
    (&["smallest country"], "the smallest country is Vatican City"),
    (
        &["states in|does the us|usa|united|america", "how many states", "states are there"],
        "the United States has fifty states",
    ),
    (&["hours of sleep"], "most grown people need seven to nine hours of sleep"),
    (&["players on|in a soccer|football"], "a soccer team has eleven players on the field"),
    (&["cards in a|the deck", "cards are in a|the deck"], "a deck has 52 cards"),
    (&["strings does a|the guitar", "strings on a|the guitar"], "a guitar has six strings"),
    (&["strings does a|the violin", "strings on a|the violin"], "a violin has four strings"),
    (&["keys does a|the piano", "keys on|are a|on|the piano", "keys are on a piano"], "a piano has 88 keys"),
    (&["bones"], "a grown person has 206 bones"),
];

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
    use crate::llm::assistant::testing::check_all;

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
