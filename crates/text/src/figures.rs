//! Converts figures, units, signs, times, dates, money and addresses to English words.

use super::dates::{DateOrder, clock, date, day_half, name, plain_hour, span, weekdays};
use super::names::{address, dotted, keys, tagged};
use super::roman::numeral;
use super::tables::{CURRENCIES, FRACTIONS, PARTS, SAID, SIGNS, UNITS};
use super::{states, telephone, titles};

/// The text with figures and signs replaced by words. Plain numbers remain digits.
pub(super) fn in_words(text: &str, order: DateOrder) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    let mut is_quoted = false;
    while at < words.len() {
        let near = Near {
            second_before: if at > 1 { words[at - 2] } else { "" },
            before: if at > 0 { words[at - 1] } else { "" },
            after: words.get(at + 1).copied().unwrap_or_default(),
            second_after: words.get(at + 2).copied().unwrap_or_default(),
            third_after: words.get(at + 3).copied().unwrap_or_default(),
            is_quoted,
            order,
        };
        let word = Word::of(words[at]);
        let (said, tail, n_taken) = said_from(&words[at..], &word, &near);
        if word.parenthesis {
            out.push(",".into());
        }
        let tail = if said.ends_with('.') { tail.trim_start_matches('.') } else { &tail };
        out.push(format!("{said}{tail}"));
        let taken = &words[at..at + n_taken];
        // The mark of inches quotes nothing.
        let is_length = !is_quoted && length(&words[at..], &near).is_some();
        let n_marks = taken.iter().map(|word| word.matches('"').count()).sum::<usize>();
        if !is_length && n_marks % 2 == 1 {
            is_quoted = !is_quoted;
        }
        at += n_taken;
    }
    out.join(" ")
}

/// The spoken form of the first of `words`, the punctuation behind it, and how many words it takes.
fn said_from(words: &[&str], word: &Word<'_>, near: &Near<'_>) -> (String, String, usize) {
    if let Some((said, n)) = telephone::number(words, near.second_before, near.before) {
        return (said, Word::of(words[n - 1]).tail, n);
    }
    if let Some((said, n)) = length(words, near) {
        return (said, Word::of(words[n - 1]).tail, n);
    }
    let next = words.get(1).map(|next| Word::of(next));
    if let (Some(next), Some(third)) = (&next, words.get(2).map(|third| Word::of(third)))
        && let Some(said) = word.with_two(next, &third).or_else(|| word.to_weekday(next, &third))
    {
        return (said, behind_unit(&third.tail, words.get(3)), 3);
    }
    if is_west(words) {
        return (format!("{} West", word.core), String::new(), 2);
    }
    if let Some((said, next)) = word.with_next(near.before, next.as_ref()).zip(next.as_ref()) {
        return (said, behind_unit(&next.tail, words.get(2)), 2);
    }
    if let Some(state) = states::state(word.core, near.before, near.after) {
        return (state.to_owned(), word.tail.clone(), 1);
    }
    let has_dot = word.tail.starts_with('.') && !word.tail.starts_with("..");
    let long = titles::title(word.core, has_dot, near.before, near.after)
        .or_else(|| name(word.core, &word.tail, near.before, near.after));
    if let Some(long) = long {
        let ends = near.after.is_empty()
            || titles::may_end(word.core, near.before) && near.after.starts_with(char::is_uppercase) && long != "Saint";
        let tail = if has_dot && !ends { word.tail[1..].to_owned() } else { word.tail.clone() };
        return (long, tail, 1);
    }
    (word.alone(near), word.tail.clone(), 1)
}

/// Whether the first of `words` is the number of a house in the west of a street, where "W" is no watt: "20 W 34th St".
fn is_west(words: &[&str]) -> bool {
    const STREETS: [&str; 10] = ["Ave", "Avenue", "Blvd", "Boulevard", "Dr", "Drive", "Rd", "Road", "St", "Street"];
    let [house, west, name, following @ ..] = words else { return false };
    let name = Word::of(name).core;
    let is_ordinal = name.starts_with(|c: char| c.is_ascii_digit())
        && ["st", "nd", "rd", "th"].iter().any(|ending| name.ends_with(ending));
    let is_street = following.first().is_some_and(|word| STREETS.contains(&Word::of(word).core));
    let is_name = is_ordinal || name.starts_with(char::is_uppercase) && is_street;
    house.bytes().all(|b| b.is_ascii_digit()) && Word::of(west).core == "W" && is_name
}

/// The punctuation behind a unit, without the dot of its abbreviation.
fn behind_unit(tail: &str, following: Option<&&str>) -> String {
    let goes_on = following.is_some_and(|next| next.starts_with(char::is_lowercase));
    tail.strip_prefix('.')
        .filter(|rest| !rest.is_empty() && !rest.starts_with('.') || goes_on)
        .unwrap_or(tail)
        .to_owned()
}

/// A length in feet and inches, or in inches: `5'10"`, `6' 2"`, `27"`.
fn length(words: &[&str], near: &Near<'_>) -> Option<(String, usize)> {
    let first = *words.first()?;
    let joined = words.get(1).filter(|_| first.ends_with(['\'', '’', '′'])).map(|next| format!("{first}{next}"));
    let parse = |text: &str| {
        let text = text.trim_start_matches(['(', '“']).trim_end_matches([',', '.', ';', ':', '!', '?', ')']);
        let (feet, inches) = text.split_once(['\'', '’', '′'])?;
        let inches = inches.strip_suffix(['"', '”', '″']).or_else(|| inches.strip_suffix("''")).unwrap_or(inches);
        let fits = |text: &str, most: u32| text.parse::<u32>().is_ok_and(|n| text.len() <= 2 && n <= most);
        (fits(feet, 99) && fits(inches, 11))
            .then(|| format!("{feet} {} {inches}", if feet == "1" { "foot" } else { "feet" }))
    };
    if let Some(said) = parse(first) {
        return Some((said, 1));
    }
    if let Some(said) = joined.as_deref().and_then(parse) {
        return Some((said, 2));
    }
    let bare = first.trim_end_matches([',', '.', ';', ':', '!', '?']);
    let (figure, one, several) = match bare.chars().next_back()? {
        '″' => (&bare[..bare.len() - '″'.len_utf8()], "inch", "inches"),
        '′' => (&bare[..bare.len() - '′'.len_utf8()], "foot", "feet"),
        '"' if !near.is_quoted => (&bare[..bare.len() - 1], "inch", "inches"),
        _ => return None,
    };
    let figure = number(figure)?;
    Some((format!("{figure} {}", if is_one(&figure) { one } else { several }), 1))
}

/// A word without its punctuation.
struct Word<'a> {
    core: &'a str,
    /// The punctuation after the word; quotes are removed, and a closing bracket becomes a comma.
    tail: String,
    /// A bracket opens before the word.
    parenthesis: bool,
}

impl<'a> Word<'a> {
    fn of(word: &'a str) -> Self {
        const OPENING: &str = "\"“”„«‹‘([{¿¡";
        const CLOSING: &str = "\"“”»›)]}";
        let start = word.trim_start_matches(|c| OPENING.contains(c) || (c == '\'' || c == '’'));
        let parenthesis = word[..word.len() - start.len()].contains(['(', '[', '{']);
        let mut core = start;
        while let Some(last) = core.chars().next_back() {
            let ends = CLOSING.contains(last) && !(last == ')' && core.contains('('));
            if !(ends || "'’,;:!?…".contains(last) || last == '.' && !keeps_dot(core)) {
                break;
            }
            core = &core[..core.len() - last.len_utf8()];
        }
        let mut tail: String = start[core.len()..].chars().filter(|c| ",;:!?.…".contains(*c)).collect();
        if tail.is_empty() && start[core.len()..].contains([')', ']', '}']) {
            tail.push(',');
        }
        Self { core, tail: tail.replace('…', "..."), parenthesis }
    }

    /// The spoken form if this word and the next two make one figure: "20 sq ft", "5 fl oz".
    fn with_two(&self, next: &Word<'_>, third: &Word<'_>) -> Option<String> {
        let figure = self.figure().filter(|_| self.tail.is_empty() && !next.parenthesis && !third.parenthesis)?;
        let unit = match (next.core, third.core) {
            ("fl", "oz") => ("fluid ounce", "fluid ounces"),
            ("sq" | "square", unit) => return cubed(&figure, "square", unit),
            ("cu" | "cubic", unit) => return cubed(&figure, "cubic", unit),
            _ => return None,
        };
        Some(format!("{figure} {}", if is_one(&figure) { unit.0 } else { unit.1 }))
    }

    /// The spoken form if this word and the next two are days: "Mon – Fri".
    fn to_weekday(&self, next: &Word<'_>, third: &Word<'_>) -> Option<String> {
        let is_whole = matches!(self.tail.as_str(), "" | ".") && !third.parenthesis;
        let is_dash = matches!(next.core, "-" | "–") && next.tail.is_empty();
        weekdays(self.core, third.core).filter(|_| is_whole && is_dash)
    }

    /// The spoken form if this word and the next make one figure: "5 km", "$3 million", "9.30 pm".
    fn with_next(&self, before: &str, next: Option<&Word<'_>>) -> Option<String> {
        let next = next.filter(|next| !next.core.is_empty() && !next.parenthesis)?;
        if !self.tail.is_empty() {
            return None;
        }
        let magnitude = ["thousand", "million", "billion", "trillion"].contains(&next.core);
        if let Some((sign, figure)) = money(self.core).filter(|_| magnitude) {
            let figure = range_of_money(&figure).unwrap_or(figure);
            return Some(format!("{} {} {}", figure, next.core, sign.2));
        }
        let half = day_half(next.core);
        if let (Some(half), true) = (half, self.core.contains([':', '.'])) {
            return clock(self.core, next.core).map(|time| format!("{time} {half}"));
        }
        if let Some(times) = self.times_with(next.core) {
            return Some(times);
        }
        if CURRENCIES.iter().any(|(sign, ..)| next.core.chars().eq([*sign])) {
            return amount(&format!("{}{}", self.core, next.core));
        }
        let figure = self.figure()?;
        match next.core {
            "%" => Some(format!("{figure} percent")),
            "°C" | "℃" => Some(degrees(&figure, " Celsius")),
            "°F" | "℉" => Some(degrees(&figure, " Fahrenheit")),
            "°" => Some(degrees(&figure, "")),
            _ if half.is_some() && self.core.len() <= 2 => half.map(|half| format!("{} {half}", plain_hour(&figure))),
            unit if before != "$" => in_units(&figure, unit),
            _ => None,
        }
    }

    /// "20", "10 to 20" of "10-20".
    fn figure(&self) -> Option<String> {
        number(self.core).or_else(|| range(self.core))
    }

    /// "9" with "a.m.-5", behind which stands "p.m.".
    fn times_with(&self, next: &str) -> Option<String> {
        let (half, end) = next.split_once(['-', '–'])?;
        let half = day_half(half)?;
        let time = |text: &str| {
            if text.contains(':') { clock(text, half) } else { number(plain_hour(text)).filter(|_| text.len() <= 2) }
        };
        Some(format!("{} {half} to {}", time(self.core)?, time(end)?))
    }

    /// The spoken form of this word alone.
    fn alone(&self, near: &Near<'_>) -> String {
        let core = self.core;
        let ends_clause = !self.tail.is_empty() && !self.tail.starts_with('.');
        let after_in_clause = if ends_clause { "" } else { near.after };
        said(core)
            .or_else(|| address(core))
            .or_else(|| dash(core, near))
            .or_else(|| telephone::digits(core, near.before, after_in_clause))
            .or_else(|| code(core))
            .or_else(|| keys(core))
            .or_else(|| numeral(core, near.second_before, near.before, after_in_clause))
            .or_else(|| clock(core, near.after))
            .or_else(|| amount(core))
            .or_else(|| measured(core))
            .or_else(|| date(core, near.before, near.order))
            .or_else(|| span(core, near.after))
            .or_else(|| range(core))
            .or_else(|| measured_range(core))
            .or_else(|| fraction(core, near.before))
            .or_else(|| fraction_of(core, near.before))
            .or_else(|| rate(core, near))
            .or_else(|| sizes(core))
            .or_else(|| signed(core, near))
            .or_else(|| tagged(core))
            .or_else(|| dotted(core))
            .unwrap_or_else(|| signs(core))
    }
}

/// What stands beside a word.
#[derive(Clone, Copy)]
struct Near<'a> {
    second_before: &'a str,
    before: &'a str,
    after: &'a str,
    second_after: &'a str,
    third_after: &'a str,
    /// A quotation has begun, so that a quotation mark ends it.
    is_quoted: bool,
    order: DateOrder,
}

impl<'a> Near<'a> {
    /// The word behind the figure behind a dash. Empty where punctuation ends that figure.
    fn behind_second_figure(&self) -> &'a str {
        if self.after.ends_with([',', '.', '?', '!', ';', ':']) { "" } else { self.second_after }
    }

    /// The half of the day behind the figure behind a dash.
    fn half_behind_second_figure(&self) -> Option<&'static str> {
        day_half(self.second_after.trim_end_matches(PUNCTUATION))
    }

    /// Whether the figure behind a dash is larger than the one in front.
    fn is_rising(&self) -> bool {
        let value = |figure: &str| figure.trim_matches(is_figure_sign).replace(',', "").parse::<f64>().ok();
        let to = value(self.after.trim_end_matches(PUNCTUATION));
        value(self.before).zip(to).is_some_and(|(from, to)| from < to)
    }
}

const PUNCTUATION: [char; 7] = [',', '.', '?', '!', ';', ':', ')'];

fn is_figure_sign(c: char) -> bool {
    "($€£%".contains(c)
}

/// Whether the final dot belongs to the word: initials, and abbreviations that have a spoken form.
fn keeps_dot(word: &str) -> bool {
    let body = &word[..word.len() - 1];
    let initials = body.contains('.') && body.split('.').all(|part| part.len() == 1 && part.is_ascii());
    initials && body.bytes().all(|b| b == b'.' || b.is_ascii_alphabetic())
        || SAID.iter().any(|(known, _)| word.eq_ignore_ascii_case(known))
}

fn said(core: &str) -> Option<String> {
    SAID.iter().find(|(known, _)| core.eq_ignore_ascii_case(known)).map(|(_, words)| (*words).to_owned())
}

/// A number in the form that TTS engines read correctly: digits, with the sign as a word. `None` for anything else.
pub(super) fn number(text: &str) -> Option<String> {
    let (sign, digits) = match text.chars().next()? {
        '-' | '−' | '–' => ("minus ", &text[text.chars().next()?.len_utf8()..]),
        '+' => ("plus ", &text[1..]),
        _ => ("", text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let grouped = groups.all(|group| group.len() == 3 && is_digits(group));
    (is_digits(first) && grouped && is_digits(decimals)).then(|| format!("{sign}{digits}"))
}

fn degrees(figure: &str, scale: &str) -> String {
    let unit = if is_one(figure) { "degree" } else { "degrees" };
    format!("{figure} {unit}{scale}")
}

fn is_one(figure: &str) -> bool {
    matches!(figure, "1" | "minus 1")
}

fn in_units(figure: &str, unit: &str) -> Option<String> {
    let (_, one, several) = UNITS.iter().find(|(written, _, _)| *written == unit)?;
    Some(format!("{figure} {}", if is_one(figure) { one } else { several }))
}

/// "20 square feet": `unit` is that of a length.
fn cubed(figure: &str, kind: &str, unit: &str) -> Option<String> {
    let (one, several) = match unit {
        "in" => ("inch", "inches"),
        "ft" | "yd" | "mi" | "m" | "km" | "cm" | "mm" => {
            let (_, one, several) = UNITS.iter().find(|(written, _, _)| *written == unit)?;
            (*one, *several)
        }
        _ => return None,
    };
    Some(format!("{figure} {kind} {}", if is_one(figure) { one } else { several }))
}

type Currency = (char, &'static str, &'static str, &'static str);

/// An amount of money: the currency and the figure.
fn money(core: &str) -> Option<(&'static Currency, String)> {
    let (sign, rest) = match core.strip_prefix(['-', '−']) {
        Some(rest) => ("minus ", rest),
        None => ("", core),
    };
    // "US$5": of which dollars it is, is not said.
    let rest = ["US", "CA", "AU", "NZ", "A", "C"].iter().find_map(|of| rest.strip_prefix(of)).unwrap_or(rest);
    let find = |c: Option<char>| CURRENCIES.iter().find(|currency| Some(currency.0) == c);
    let (currency, figure) = match find(rest.chars().next()) {
        Some(currency) => (currency, &rest[currency.0.len_utf8()..]),
        None => {
            let currency = find(rest.chars().next_back())?;
            (currency, &rest[..rest.len() - currency.0.len_utf8()])
        }
    };
    let is_figure = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if let Some(decimals) = figure.strip_prefix('.').filter(|decimals| is_figure(decimals)) {
        return Some((currency, format!("{sign}0.{decimals}")));
    }
    // "5,50 €".
    let figure = match figure.split_once(',') {
        Some((whole, decimals)) if decimals.len() == 2 => format!("{whole}.{decimals}"),
        _ => figure.to_owned(),
    };
    is_figure(&figure).then(|| (currency, format!("{sign}{figure}")))
}

/// "$5.50", "€20", "$3M", "50¢", "$5-$10".
fn amount(core: &str) -> Option<String> {
    let (currency, figure) = money(core)?;
    if let Some((from, to)) = figure.split_once(['-', '–']) {
        // "$5-$10", and "$5-10".
        let to = money(to).map_or_else(|| to.to_owned(), |(_, figure)| figure);
        let digits = from.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        number(digits)?;
        // "5 to 10 dollars", "5 dollars to 7 dollars and 50 cents".
        let from = if from.contains('.') { in_currency(currency, from)? } else { large(from) };
        return Some(format!("{from} to {}", in_currency(currency, &to)?));
    }
    in_currency(currency, &figure)
}

/// "3 to 5" of "3-5" and "3-$5", behind the sign of a currency.
fn range_of_money(figure: &str) -> Option<String> {
    let (from, to) = figure.split_once(['-', '–'])?;
    let to = money(to).map_or_else(|| to.to_owned(), |(_, figure)| figure);
    Some(format!("{} to {}", number(from)?, number(&to)?))
}

/// "3 million" of "3M".
fn large(figure: &str) -> String {
    let suffixes = [("k", "thousand"), ("K", "thousand"), ("M", "million"), ("bn", "billion"), ("B", "billion")];
    let found = suffixes.iter().find_map(|(suffix, word)| Some(format!("{} {word}", figure.strip_suffix(suffix)?)));
    found.unwrap_or_else(|| figure.to_owned())
}

fn in_currency(&(_, one, several, cent): &Currency, figure: &str) -> Option<String> {
    let large = large(figure);
    if large != figure {
        return Some(format!("{large} {several}"));
    }
    let plain = figure.strip_prefix("minus ").unwrap_or(figure);
    number(plain)?;
    let unit = |figure: &str| if is_one(figure) { one } else { several };
    let (whole, decimals) = match figure.split_once('.') {
        Some((whole, decimals)) if decimals.len() == 2 && !cent.is_empty() => (whole, decimals),
        _ => return Some(format!("{figure} {}", unit(figure))),
    };
    let small = decimals.trim_start_matches('0');
    let cents = match (small, cent) {
        ("", _) => return Some(format!("{whole} {}", unit(whole))),
        ("1", cent) => format!("1 {cent}"),
        (n, "penny") => format!("{n} pence"),
        (n, cent) => format!("{n} {cent}s"),
    };
    Some(if whole == "0" { cents } else { format!("{whole} {} and {cents}", unit(whole)) })
}

/// "$10/month", "60 miles/hour", "3 times/day".
fn rate(core: &str, near: &Near<'_>) -> Option<String> {
    let (amount_of, per) = core.split_once('/')?;
    let unit = UNITS.iter().find(|(written, _, _)| *written == per).map(|(_, one, _)| *one);
    let per = match per {
        "mo" => "month",
        "yr" => "year",
        "wk" => "week",
        "d" => "day",
        "s" => "second",
        "month" | "year" | "week" | "day" | "night" | "person" | "user" | "hour" | "minute" | "second" => per,
        _ => unit?,
    };
    let figure = amount(amount_of).or_else(|| measured(amount_of));
    let is_plural = near.before.ends_with(|c: char| c.is_ascii_digit()) && amount_of.chars().all(char::is_alphabetic);
    let said = figure.or_else(|| (is_plural && amount_of.len() > 3).then(|| amount_of.to_owned()))?;
    Some(format!("{said} per {per}"))
}

/// "1920x1080", "3x4x5".
fn sizes(core: &str) -> Option<String> {
    let parts: Vec<&str> = core.split(['x', '×']).collect();
    (parts.len() > 1 && !core.contains('×') && parts.iter().all(|part| number(part).is_some()))
        .then(|| parts.join(" by "))
}

/// A number and its unit in one word: "50%", "20°C", "5km", "10-20%".
fn measured(core: &str) -> Option<String> {
    let end = core.rfind(|c: char| c.is_ascii_digit() && c != '²')? + 1;
    let split = core.char_indices().find(|(at, c)| *at > 0 && !(c.is_ascii_digit() || ".,-–+".contains(*c)))?.0;
    let (figure, unit) = core.split_at(split.min(core.len()));
    let figure = number(figure).or_else(|| range(figure))?;
    match unit {
        "%" => Some(format!("{figure} percent")),
        "°C" | "℃" => Some(degrees(&figure, " Celsius")),
        "°F" | "℉" => Some(degrees(&figure, " Fahrenheit")),
        "°" => Some(degrees(&figure, "")),
        half if day_half(half).is_some() => day_half(half).map(|half| format!("{} {half}", plain_hour(&figure))),
        "in" if !figure.contains(' ') => Some(format!("{figure} {}", if is_one(&figure) { "inch" } else { "inches" })),
        "sqft" | "sq.ft" => cubed(&figure, "square", "ft"),
        // "5x" is five times.
        "x" | "×" if end == split => Some(format!("{figure} times")),
        "m" | "g" | "h" | "l" | "V" | "W" | "L" if figure.contains(',') => None,
        // "4K" and "10k" are names as well.
        "k" | "K" | "M" | "B" | "bn" if figure.contains('.') => Some(large(&format!("{figure}{unit}"))),
        unit => in_units(&figure, unit),
    }
}

/// "10-20", "1914–1918", and of small figures also "9-5" and "3-2".
fn range(core: &str) -> Option<String> {
    let (from, to) = core.split_once('–').or_else(|| core.split_once('-'))?;
    let value = |text: &str| number(text).and_then(|_| text.replace(',', "").parse::<f64>().ok());
    let low = value(from)?;
    let high = value(to)?;
    let is_small = from.len() <= 2 && to.len() <= 2;
    // "07-12", but "0-10" and "0.5-1.5".
    let is_code = from.len() > 1 && from.starts_with('0') && !from.starts_with("0.");
    ((low < high || is_small) && !is_code).then(|| format!("{from} to {to}"))
}

/// "50%-60%", "20°C–25°C": both figures have their unit.
fn measured_range(core: &str) -> Option<String> {
    let (from, to) = core.split_once('–').or_else(|| core.split_once('-'))?;
    Some(format!("{} to {}", measured(from)?, measured(to)?))
}

/// "3/4", "1 1/2", "5/7", and the season "2023/24".
fn fraction(core: &str, before: &str) -> Option<String> {
    let (over, under) = core.split_once('/')?;
    let n = over.parse::<u32>().ok()?;
    let d = under.parse::<u32>().ok()?;
    let is_season = over.len() == 4 && under.len() == 2 && (n + 1) % 100 == d;
    if n == d || is_season {
        return Some(format!("{over} {under}"));
    }
    let Some((_, one, several)) = PARTS.iter().find(|(of, _, _)| *of == d).filter(|_| n > 0 && n < d) else {
        return Some(format!("{over} over {under}"));
    };
    let joint = if before.bytes().all(|b| b.is_ascii_digit()) && !before.is_empty() { "and " } else { "" };
    Some(if n == 1 { format!("{joint}one {one}") } else { format!("{joint}{n} {several}") })
}

/// "1/2-inch".
fn fraction_of(core: &str, before: &str) -> Option<String> {
    let (figure, unit) = core.split_once('-')?;
    let is_word = !unit.is_empty() && unit.chars().all(char::is_alphabetic);
    fraction(figure, before).filter(|_| is_word).map(|said| format!("{said} {unit}"))
}

/// "-5", "~20", "<3", "#1".
fn signed(core: &str, near: &Near<'_>) -> Option<String> {
    let first = core.chars().next()?;
    let rest = &core[first.len_utf8()..];
    let word = match first {
        '~' | '≈' => "about",
        '<' => "less than",
        '>' => "more than",
        '≤' => "at most",
        '≥' => "at least",
        '±' => "plus or minus",
        '#' => "number",
        _ => return number(core).filter(|figure| figure != core),
    };
    let figure = Word { core: rest, tail: String::new(), parenthesis: false };
    rest.starts_with(|c: char| c.is_ascii_digit() || "$€£".contains(c))
        .then(|| format!("{word} {}", figure.alone(&Near { before: "", after: "", ..*near })))
}

/// A dash between blanks: "to" in a range, "minus" between other figures, otherwise a pause.
fn dash(core: &str, near: &Near<'_>) -> Option<String> {
    let is_slash = matches!(core, "/" | "÷");
    if !is_slash && !matches!(core, "-" | "–" | "—" | "--" | "−") {
        return None;
    }
    let is_figure = |word: &str| word.trim_end_matches([',', '.', '?', '!', ';']).parse::<f64>().is_ok();
    match (is_slash, is_figure(near.before) && is_figure(near.after)) {
        (true, true) => Some("divided by".into()),
        (true, false) => None,
        (false, _) if core != "−" && is_label(near.second_before) => {
            Some(if is_range_of_labels(near) { "to" } else { "," }.into())
        }
        (false, _) if is_range(core, near) => Some("to".into()),
        (false, true) => Some("minus".into()),
        (false, false) => Some(",".into()),
    }
}

/// Whether the figure behind `word` is a name, not an amount: "Day 1 – 3 km run".
fn is_label(word: &str) -> bool {
    const LABELS: [&str; 10] =
        ["chapter", "day", "level", "option", "part", "phase", "question", "round", "step", "week"];
    // "Walk every day 10 – 20 minutes".
    let is_time = matches!(word, "day" | "week");
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    LABELS.contains(&word.as_str()) && !is_time
}

/// Whether a dash between two figures stands in a range of labels: "Day 1 – 3: Rome". In "Day 1 – 3 km" the second figure
/// is an amount: a unit, a plural or a half of the day follows.
fn is_range_of_labels(near: &Near<'_>) -> bool {
    let is_amount = telephone::is_counted(near.behind_second_figure())
        || near.half_behind_second_figure().is_some()
        || near.after.contains(is_figure_sign);
    // "Chapter 1 – 1984": a title.
    let after = near.after.trim_end_matches(PUNCTUATION);
    let is_year = near.before.len() < 3 && after.len() == 4 && after.bytes().all(|b| b.is_ascii_digit());
    near.is_rising() && !is_amount && !is_year
}

/// Whether a calculation goes on behind its second figure: "3 - 5 equals", "5 – 7 is −2".
fn is_calculation(next: &str, second_next: &str) -> bool {
    let second = second_next.trim_end_matches([',', '.', '?', '!', ';', ':', ')']);
    let is_figure = number(second).is_some() || matches!(second, "minus" | "negative");
    match next {
        "equals" => true,
        // "3 - 5 times a week", "5 – 7 is usual", "10 – 20 plus tax".
        "gives" | "is" | "leaves" | "makes" | "minus" | "plus" | "times" => is_figure,
        _ => next.starts_with(['=', '+', '×', '÷', '−']),
    }
}

/// Whether a dash between blanks stands in a range: "10 – 20 minutes", "9 a.m. – 5 p.m.". A hyphen also means a
/// difference ("3 - 5"): years, a unit or a plural show the range.
fn is_range(core: &str, near: &Near<'_>) -> bool {
    const ASKED_AFTER: [&str; 5] = ["calculate", "equals", "is", "what's", "what’s"];
    let after = near.after.trim_end_matches(PUNCTUATION);
    let half = near.half_behind_second_figure().unwrap_or_default();
    // Behind "a.m.", of any hour.
    let from = if day_half(near.before).is_some() { "9am" } else { near.before };
    if span(&format!("{from}–{after}{half}"), "").is_some() {
        return true;
    }
    let next = near.behind_second_figure();
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
    let are_years = is_year(near.before) && is_year(after);
    // "What is 5 – 7?", but "Are you free 2 – 4?"
    let asking = near.second_before.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is_asked = near.after.ends_with('?')
        && after.parse::<f64>().is_ok()
        && ASKED_AFTER.contains(&asking.as_str())
        && !are_years;
    if core == "−" || is_asked || is_calculation(next, near.third_after) {
        return false;
    }
    let is_counted = telephone::is_counted(next) || after.contains(is_figure_sign);
    near.is_rising() && (core != "-" || is_counted || are_years)
}

/// "0042", which is no amount: each figure.
fn code(core: &str) -> Option<String> {
    let is_code = core.len() > 1 && core.starts_with('0') && core.bytes().all(|b| b.is_ascii_digit());
    is_code.then(|| core.chars().map(String::from).collect::<Vec<_>>().join(" "))
}

/// Replaces signs inside any other word.
fn signs(core: &str) -> String {
    let core = core.replace("->", "→").replace("=>", "⇒").replace("<=", "≤").replace(">=", "≥").replace("!=", "≠");
    let mut out = String::with_capacity(core.len() + 8);
    let mut chars = core.chars().peekable();
    while let Some(c) = chars.next() {
        let in_figures = |out: &str| out.ends_with(|c: char| c.is_ascii_digit());
        let figure_next = chars.peek().is_some_and(char::is_ascii_digit);
        let word = SIGNS.iter().find(|(sign, _)| *sign == c).map(|(_, word)| *word);
        let fraction = FRACTIONS.iter().find(|(sign, _)| *sign == c).map(|(_, word)| *word);
        match (c, word, fraction) {
            (_, Some(word), _) => push_word(&mut out, word),
            (_, _, Some(fraction)) => {
                if in_figures(&out) {
                    push_word(&mut out, "and");
                }
                push_word(&mut out, fraction);
            }
            ('<', ..) if figure_next || is_compared(&out, chars.peek()) || core.len() == 1 => {
                push_word(&mut out, "less than");
            }
            ('>', ..) if is_compared(&out, chars.peek()) || core.len() == 1 => push_word(&mut out, "greater than"),
            ('>', ..) if figure_next => push_word(&mut out, "more than"),
            ('/', ..) if in_figures(&out) && figure_next => push_word(&mut out, "over"),
            ('^', ..) if figure_next => push_word(&mut out, "to the power of"),
            ('-', ..) if in_figures(&out) && figure_next && core.contains(['+', '=', '×', '÷']) => {
                push_word(&mut out, "minus");
            }
            ('’' | '‘' | 'ʼ', ..) => out.push('\''),
            ('—', ..) => out.push_str(", "),
            ('–' | '‐' | '‑', ..) => out.push('-'),
            ('…', ..) => out.push_str("... "),
            (
                '/' | '\\' | '|' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '^' | '~' | '`' | '#' | '•' | '·',
                ..,
            ) => {
                out.push(' ');
            }
            ('"' | '“' | '”' | '„' | '«' | '»', ..) => {}
            _ => out.push(c),
        }
    }
    out
}

/// Whether a sign stands between two names or figures: "a<b".
fn is_compared(before: &str, after: Option<&char>) -> bool {
    before.ends_with(char::is_alphanumeric) && after.is_some_and(|c| c.is_alphanumeric())
}

/// Appends a word, separated by blanks.
fn push_word(out: &mut String, word: &str) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
    out.push_str(word);
    out.push(' ');
}
