//! What can be asked of numbers besides calculating: even, prime, larger, Roman, binary, in order.

use super::numbers::{self, STRICT};
use super::query::{Query, find, one_of};
use super::value::Value;
use super::{Reply, Scene, and_list, sentence};

pub(super) fn answer(_scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    // "Which one is larger": that one is no number.
    let words: Vec<String> = match find(&query.words, "which|what|other|this|that one|ones") {
        Some(at) => [&query.words[..at.start], &query.words[at.end..]].concat(),
        None => query.words.clone(),
    };
    let numbers: Vec<f64> = numbers::all(&words, STRICT).into_iter().map(|(_, found)| found.value).collect();
    roman(query, &numbers)
        .or_else(|| bases(query, &numbers))
        .or_else(|| kind_of(query, &numbers))
        .or_else(|| compared(query, &numbers))
        .or_else(|| divisors(query, &numbers))
        .or_else(|| neighbour(query, &numbers))
        .or_else(|| rounded(query, &numbers))
        .or_else(|| constant(query))
}

fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

fn say(value: f64) -> String {
    Value::new(value).say().0
}

pub(super) fn is_prime(n: i64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

/// Even, odd, prime, a square.
fn kind_of(query: &Query, numbers: &[f64]) -> Option<Reply> {
    let first = *numbers.first()?;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let not = |yes: bool| if yes { "" } else { "not " };
    if query.any(&["even|odd"]) && query.any(&["is|are", "or"]) {
        let Some(n) = whole(first) else { return reply(84, "only whole numbers are even or odd") };
        let even = n % 2 == 0;
        let is = format!("{} is {}", say(first), if even { "even" } else { "odd" });
        return reply(
            84,
            &if query.has("even") && query.has("odd") {
                is
            } else {
                format!("{}, {is}", yes(even == query.has("even")))
            },
        );
    }
    if query.any(&["next prime", "prime after|number after", "prime comes after", "smallest prime larger|greater than"])
    {
        let n = whole(first)?.clamp(0, 1_000_000_000);
        let next = (n + 1..).find(|n| is_prime(*n))?;
        return reply(85, &format!("the next prime number after {n} is {next}"));
    }
    if query.any(&["prime", "primed", "pride number", "crime number"]) && query.any(&["is|are"]) {
        let n = whole(first).filter(|n| *n <= 1_000_000_000_000)?;
        let prime = is_prime(n);
        let because = match (2..n).take_while(|d| d * d <= n).find(|d| n % d == 0) {
            Some(divisor) => format!(", for it is {divisor} times {}", n / divisor),
            None => String::new(),
        };
        return reply(85, &format!("{}, {n} is {}a prime number{because}", yes(prime), not(prime)));
    }
    if query.any(&["perfect square", "a square number", "square number"]) && query.has("is") {
        let n = whole(first)?;
        let square = n >= 0 && (n as f64).sqrt().fract() == 0.0;
        return reply(84, &format!("{}, {n} is {}a square number", yes(square), not(square)));
    }
    if !query.has("common") && query.any(&["divisible|divisable|multiple", "divided evenly", "divide|divides evenly"]) {
        let (a, b) = (whole(first)?, whole(*numbers.get(1)?)?);
        if b == 0 {
            return reply(84, "nothing can be divided by zero");
        }
        let divides = a % b == 0;
        let rest = if divides { format!(", {} times", a / b) } else { format!(", {} is left over", a.rem_euclid(b)) };
        return reply(86, &format!("{}, {a} is {}divisible by {b}{rest}", yes(divides), not(divides)));
    }
    None
}

/// `which is larger, 7 or 5`, `is 3 more than 9`, `put 5, 3 and 9 in order`.
fn compared(query: &Query, numbers: &[f64]) -> Option<Reply> {
    const LARGER: &str = "larger|bigger|greater|more|higher|largest|biggest|greatest|highest|maximum|max";
    const SMALLER: &str = "smaller|less|lower|fewer|smallest|lowest|least|minimum|min";
    let together = numbers::at_least(&query.words, 2);
    let numbers = if numbers.len() >= 2 { numbers } else { &together };
    if numbers.len() < 2 {
        return None;
    }
    if query.any(&["in order", "sort", "order the|these"]) {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        if query.any(&["descending", "from largest|biggest|highest", "reverse"]) {
            sorted.reverse();
        }
        return reply(
            82,
            &format!("in order they are {}", and_list(&sorted.iter().map(|n| say(*n)).collect::<Vec<_>>())),
        );
    }
    let word = query.words.iter().find(|word| one_of(word, LARGER) || one_of(word, SMALLER));
    let equal = query.any(&["is * equal to", "is * * equal to", "the same as"]);
    if equal {
        let same = numbers[0] == numbers[1];
        return reply(
            78,
            &format!(
                "{}, {} {} {}",
                if same { "yes" } else { "no" },
                say(numbers[0]),
                if same { "equals" } else { "is not" },
                say(numbers[1])
            ),
        );
    }
    let larger = one_of(word?, LARGER);
    if query.starts(&["is", "are"]) && query.any(&["than"]) && !query.has("or") {
        let (a, b) = (numbers[0], numbers[1]);
        let yes = if larger { a > b } else { a < b };
        let relation = if a > b {
            "larger than"
        } else if a < b {
            "smaller than"
        } else {
            "equal to"
        };
        return reply(86, &format!("{}, {} is {relation} {}", if yes { "yes" } else { "no" }, say(a), say(b)));
    }
    let choice = query.any(&["which|what|who", "or", "of", "between", "among"])
        && !query.any(&["common", "prime", "percent", "more|less than * *"])
        || query.any(&["or"]);
    if !choice || (query.any(&["more|less|greater|fewer than"]) && !query.has("or")) {
        return None;
    }
    let pick = numbers.iter().copied().reduce(if larger { f64::max } else { f64::min })?;
    let all_same = numbers.iter().all(|n| *n == pick);
    if all_same {
        return reply(84, "they are equal");
    }
    let superlative = numbers.len() > 2;
    let name = match (larger, superlative) {
        (true, false) => "larger",
        (true, true) => "largest",
        (false, false) => "smaller",
        (false, true) => "smallest",
    };
    if superlative {
        return reply(86, &format!("{} is the {name} of them", say(pick)));
    }
    let other = if numbers[0] == pick { numbers[1] } else { numbers[0] };
    reply(86, &format!("{} is {name} than {}", say(pick), say(other)))
}

/// `what number comes after 9`.
fn neighbour(query: &Query, numbers: &[f64]) -> Option<Reply> {
    let [n] = *numbers else { return None };
    let n = whole(n)?;
    let asks = query.any(&["what|which", "number", "comes"])
        && query.words.len() <= 9
        && !query.any(&["day|days|month|week|letter|hours|minutes|time"]);
    if asks && query.any(&["after|follows|following"]) {
        return reply(80, &format!("{} comes after {n}", n + 1));
    }
    if asks && query.any(&["before|precedes|preceding"]) {
        return reply(80, &format!("{} comes before {n}", n - 1));
    }
    None
}

fn divisors(query: &Query, numbers: &[f64]) -> Option<Reply> {
    let gcd = |a: i64, b: i64| {
        std::iter::successors(Some((a, b)), |(a, b)| (*b != 0).then(|| (*b, a % b))).last().map_or(0, |(a, _)| a)
    };
    let n = whole(*numbers.first()?).filter(|n| (1..=1_000_000_000).contains(n))?;
    let second = numbers
        .get(1)
        .or(numbers::at_least(&query.words, 2).get(1))
        .and_then(|n| whole(*n))
        .filter(|n| (1..=1_000_000_000).contains(n));
    if query.any(&["common divisor|factor|denominator", "gcd|gcf|hcf"]) {
        let both = numbers::at_least(&query.words, 2);
        let (a, b) = (whole(both[0])?, second?);
        return reply(88, &format!("the greatest common divisor of {a} and {b} is {}", gcd(a, b)));
    }
    if query.any(&["common multiple", "lcm"]) {
        let both = numbers::at_least(&query.words, 2);
        let (a, b) = (whole(both[0])?, second?);
        return reply(88, &format!("the least common multiple of {a} and {b} is {}", a / gcd(a, b) * b));
    }
    if query.any(&["prime factors|factor|factorization"]) {
        let mut rest = n;
        let mut factors = Vec::new();
        let mut d = 2;
        while rest > 1 && d * d <= rest {
            while rest % d == 0 {
                factors.push(d.to_string());
                rest /= d;
            }
            d += 1;
        }
        if rest > 1 {
            factors.push(rest.to_string());
        }
        return reply(88, &format!("{n} is {}", factors.join(" times ")));
    }
    if query.any(&["factors|divisors|factor of"]) {
        let all: Vec<_> = (1..=n.min(100_000)).filter(|d| n % d == 0).map(|d| d.to_string()).collect();
        return reply(86, &format!("the factors of {n} are {}", and_list(&all)));
    }
    None
}

fn rounded(query: &Query, numbers: &[f64]) -> Option<Reply> {
    if !query.any(&["round|rounded|rounding"]) || query.any(&["round trip", "around"]) {
        return None;
    }
    let n = *numbers.first()?;
    let tens = [("ten|tens", 10.0), ("hundred|hundreds", 100.0), ("thousand|thousands", 1000.0)]
        .into_iter()
        .find(|(names, _)| query.has(&format!("nearest {names}")))
        .map(|(_, size)| size);
    let decimals =
        numbers.get(1).filter(|_| query.any(&["decimal|decimals|places|digits"])).map(|n| n.clamp(0.0, 9.0) as i32);
    let tenth = [("tenth", 1), ("hundredth", 2)].into_iter().find(|(name, _)| query.has(name)).map(|(_, n)| n);
    let size = tens.unwrap_or(10f64.powi(-decimals.or(tenth).unwrap_or(0)));
    let direction: fn(f64) -> f64 = if query.has("round up|rounded up") || query.has("up") {
        f64::ceil
    } else if query.has("down") {
        f64::floor
    } else {
        f64::round
    };
    let result = direction(n / size) * size;
    let (text, _) = numbers::say(result, 6);
    reply(86, &format!("{} rounded is {text}", say(n)))
}

const ROMAN: [(i64, &str); 13] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

fn to_roman(mut n: i64) -> String {
    let mut text = String::new();
    for (value, letters) in ROMAN {
        while n >= value {
            text.push_str(letters);
            n -= value;
        }
    }
    text
}

fn from_roman(text: &str) -> Option<i64> {
    let text = text.to_uppercase();
    (1..4000).find(|n| to_roman(*n) == text)
}

fn roman(query: &Query, numbers: &[f64]) -> Option<Reply> {
    let capitals = |word: &str| word.len() > 1 && word.chars().all(|c| "IVXLCDM".contains(c));
    let written = query.has("number|is") && query.raw.split(|c: char| !c.is_alphanumeric()).any(capitals);
    if !written && !query.any(&["roman|romans|romanian|romance numeral|numerals|number|numbers", "roman"]) {
        return None;
    }
    let years = numbers::all(&query.words, numbers::YEARS).first().map(|(_, found)| found.value);
    if let Some(n) = years.or(numbers.first().copied()).and_then(whole) {
        return match n {
            1..=3999 => {
                let roman = to_roman(n);
                reply(90, &format!("{n} in Roman numerals is {roman}, spelled {}", super::spelling::spell(&roman)))
            }
            _ => reply(90, "Roman numerals only go from 1 to 3999"),
        };
    }
    // Letters said one by one, or a numeral as written.
    let letters: String =
        query.words.iter().filter(|word| word.len() == 1 && "ivxlcdm".contains(word.as_str())).cloned().collect();
    let written = query.words.iter().rev().find(|word| word.len() > 1 && word.chars().all(|c| "ivxlcdm".contains(c)));
    let numeral = written.cloned().unwrap_or(letters);
    let value = from_roman(&numeral)?;
    reply(88, &format!("the Roman numeral {} is {value}", super::spelling::spell(&numeral).replace(',', "")))
}

fn bases(query: &Query, numbers: &[f64]) -> Option<Reply> {
    let n = whole(*numbers.first()?).filter(|n| (0..=1_000_000_000).contains(n))?;
    let digits = |text: String| text.to_uppercase().chars().map(String::from).collect::<Vec<_>>().join(" ");
    if query.any(&["in|to|as|into binary", "binary for|of"]) {
        return reply(90, &format!("{n} in binary is {}", digits(format!("{n:b}"))));
    }
    if query.any(&["in|to|as|into hexadecimal|hex", "hexadecimal of|for"]) {
        return reply(90, &format!("{n} in hexadecimal is {}", digits(format!("{n:x}"))));
    }
    None
}

fn constant(query: &Query) -> Option<Reply> {
    let asks = query.any(&["what is|are", "value of", "digits of", "how much|many"]);
    if asks
        && query.is(&[
            "what is pi",
            "value of pi",
            "the value of pi",
            "what is the value of pi",
            "what is the number pi",
            "what are the digits of pi",
            "first digits of pi",
        ])
    {
        return reply(84, "pi is about 3.14159");
    }
    if query.any(&["zeros|zeroes"]) && query.has("how many") {
        let n = [("hundred", 2), ("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12)]
            .into_iter()
            .rev()
            .find(|(name, _)| find(&query.words, name).is_some());
        let (name, n) = n?;
        return reply(86, &format!("one {name} has {n} zeros"));
    }
    if query.any(&["how many", "how much"])
        && query.any(&["in a dozen", "is a dozen", "a dozen have", "make a dozen", "in one dozen"])
    {
        return reply(80, "a dozen is 12");
    }
    let dozens = numbers::all(&query.words, STRICT);
    if let (true, true, [(_, found)]) = (query.has("how many"), query.has("dozen"), dozens.as_slice()) {
        return reply(80, &format!("that makes {}", say(found.value)));
    }
    if query.any(&["golden ratio"]) {
        return reply(80, "the golden ratio is about 1.618");
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn facts_about_numbers_as_they_are_asked() {
        check_all(&[
            ("is seventeen a prime number", "Yes, 17 is a prime number."),
            ("is 91 prime", "No, 91 is not a prime number, for it is 7 times 13."),
            ("is eight even or odd", "8 is even."),
            ("is seven an even number", "No, 7 is odd."),
            ("which is larger seven or nine", "9 is larger than 7."),
            ("is three greater than five", "No, 3 is smaller than 5."),
            ("what's the biggest of 3, 9, 4", "9 is the largest"),
            ("what is fourteen in roman numerals", "is XIV, spelled X, I, V."),
            ("what number is the roman numeral XIV", "is 14."),
            ("what is ten in binary", "1 0 1 0"),
            ("what comes after ninety nine", "100 comes after 99."),
            ("what are the factors of twelve", "1, 2, 3, 4, 6 and 12"),
            ("greatest common divisor of twelve and eighteen", "is 6."),
            ("round three point seven", "is 4."),
            ("is twenty divisible by five", "Yes"),
        ]);
    }
}
