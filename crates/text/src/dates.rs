//! Dates and times of day. Used only by `figures`.

use super::figures::number;
use super::roman::ordinal;
use super::tables::{MONTHS, WEEKDAYS};

/// Which comes first in "5/6/2024".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateOrder {
    MonthFirst,
    DayFirst,
}

/// Behind these words "12/25" is a day and no fraction.
const BEFORE_DAY: [&str; 9] = ["after", "before", "by", "dated", "due", "on", "since", "until", "till"];

/// "2024-05-06", "5/6/2024", "06.05.2024", "12/25/99", and "12/25" behind a word such as "on".
pub(super) fn date(core: &str, before: &str, order: DateOrder) -> Option<String> {
    let said = day(core, before, order)?;
    // "On the 25/12/2024".
    let has_article = before.eq_ignore_ascii_case("the");
    Some(said.strip_prefix("the ").filter(|_| has_article).unwrap_or(&said).to_owned())
}

fn day(core: &str, before: &str, order: DateOrder) -> Option<String> {
    let sign = core.chars().find(|c| "-/.".contains(*c))?;
    let parts: Vec<&str> = core.split(sign).collect();
    if !parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let (first, second, year) = match parts[..] {
        // ISO 8601, also with other signs.
        [year, month, day] if year.len() == 4 && month.len() <= 2 && day.len() <= 2 => {
            return Day { day, month }.said(Some(year), order);
        }
        [first, second, year] if (year.len() == 4 || year.len() == 2 && sign != '.') => (first, second, Some(year)),
        [first, second] if sign == '/' && BEFORE_DAY.contains(&before.to_lowercase().as_str()) => (first, second, None),
        _ => return None,
    };
    if first.len() > 2 || second.len() > 2 {
        return None;
    }
    let month_first = Day { month: first, day: second };
    let day_first = Day { day: first, month: second };
    // Dots stand in dates of the day first; else the other order is tried where this one is no day.
    let is_day_first = sign == '.' || order == DateOrder::DayFirst;
    let (likely, other) = if is_day_first { (day_first, month_first) } else { (month_first, day_first) };
    likely.said(year, order).or_else(|| other.said(year, order))
}

struct Day<'a> {
    day: &'a str,
    month: &'a str,
}

impl Day<'_> {
    fn said(&self, year: Option<&str>, order: DateOrder) -> Option<String> {
        let day = self.day.parse().ok().filter(|day| (1..=31).contains(day)).map(ordinal)?;
        let month = MONTHS.get(self.month.parse::<usize>().ok()?.checked_sub(1)?)?;
        let year = year.map(|year| match (year.len(), year.parse::<u32>().unwrap_or_default()) {
            // Two figures: up to 30 they are of this century.
            (2, short) => (if short <= 30 { 2000 + short } else { 1900 + short }).to_string(),
            _ => year.to_owned(),
        });
        Some(match (order, year) {
            (DateOrder::MonthFirst, Some(year)) => format!("{month} {day}, {year}"),
            (DateOrder::MonthFirst, None) => format!("{month} {day}"),
            (DateOrder::DayFirst, Some(year)) => format!("the {day} of {month} {year}"),
            (DateOrder::DayFirst, None) => format!("the {day} of {month}"),
        })
    }
}

/// "Jan." and "Mon.": the name, `tail` being the punctuation behind it, where the dot shows that it is short, or a figure stands beside it.
pub(super) fn name(core: &str, tail: &str, before: &str, after: &str) -> Option<String> {
    let is_day = |word: &str| {
        let word = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        match word.split_once(['-', '–']) {
            // "Jan 3-5", but "Jan 555-1234".
            Some((first, last)) => [first, last].iter().all(|day| day.len() <= 2 && number(day).is_some()),
            None => word.len() <= 4 && number(word).is_some(),
        }
    };
    let has_dot = tail.starts_with('.') && !tail.starts_with("..");
    let is_sure = has_dot || core.starts_with(char::is_uppercase) && (is_day(before) || is_day(after));
    let is_month = |word: &str| {
        let short = word.trim_end_matches(|c: char| !c.is_alphabetic());
        short.len() >= 3 && short.starts_with(char::is_uppercase) && MONTHS.iter().any(|name| name.starts_with(short))
    };
    // "Mon, Jan 3".
    let is_in_date = core.starts_with(char::is_uppercase) && tail.starts_with(',') && is_month(after);
    let long = MONTHS.iter().chain(&WEEKDAYS).find(|name| {
        let short = core.trim_end_matches('.');
        let is_short = short.len() == 3 && name.len() > 3 || ["Sept", "Tues", "Thur", "Thurs"].contains(&short);
        is_short && name.starts_with(short)
    })?;
    // "Sun", "Sat", "Wed" and "Mar" are words as well: they need a figure or a comma beside their dot.
    let is_word = ["Sun", "Sat", "Wed", "Mar", "Mon", "Dec"].contains(&core.trim_end_matches('.'));
    let is_sure = is_in_date || is_sure && (!is_word || is_day(after) || is_day(before) || tail.starts_with(".,"));
    is_sure.then(|| (*long).to_owned())
}

/// "am" and "pm" in any spelling, in the form that TTS engines read correctly.
pub(super) fn day_half(word: &str) -> Option<&'static str> {
    match word {
        "am" | "AM" | "a.m." | "a.m" | "A.M." | "A.M" => Some("a.m."),
        "pm" | "PM" | "p.m." | "p.m" | "P.M." | "P.M" => Some("p.m."),
        _ => None,
    }
}

/// An hour without the zero before it: "9" of "09".
pub(super) fn plain_hour(digits: &str) -> &str {
    digits.strip_prefix('0').filter(|hour| !hour.is_empty()).unwrap_or(digits)
}

/// "10:30", "3:00pm", "9.30pm", "9:05", "10:30:15"; and ratios such as "3:1".
pub(super) fn clock(core: &str, after: &str) -> Option<String> {
    let letters = core.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(core.len());
    let (body, half) = core.split_at(letters);
    let half = match (half, day_half(half)) {
        ("", _) => String::new(),
        (_, half) => format!(" {}", half?),
    };
    let has_half = !half.is_empty() || day_half(after).is_some();
    let sign = if has_half && !body.contains(':') { '.' } else { ':' };
    let parts: Vec<&str> = body.split(sign).collect();
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(|part| part.len() <= 2 && part.parse::<u8>().is_ok()) {
        return None;
    }
    if parts[1].len() == 1 {
        return (sign == ':').then(|| parts.join(" to "));
    }
    let hour = plain_hour(parts[0]);
    let minutes = match parts[1] {
        "00" if has_half => String::new(),
        "00" => " o'clock".to_owned(),
        minutes if minutes.starts_with('0') => format!(" oh {}", &minutes[1..]),
        minutes => format!(" {minutes}"),
    };
    let seconds = match parts.get(2).and_then(|seconds| seconds.parse::<u8>().ok()) {
        None | Some(0) => String::new(),
        Some(1) => " and 1 second".to_owned(),
        Some(n) => format!(" and {n} seconds"),
    };
    Some(format!("{hour}{minutes}{seconds}{half}"))
}

/// "9am-5pm", "10:30–11:00", "Mon-Fri".
pub(super) fn span(core: &str, after: &str) -> Option<String> {
    let (from, to) = core.split_once('–').or_else(|| core.split_once('-'))?;
    let hour = |text: &str| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '.');
        let half = day_half(&text[digits.len()..])?;
        (digits.len() <= 2 && number(digits).is_some()).then(|| format!("{} {half}", plain_hour(digits)))
    };
    let time = |text: &str| hour(text).or_else(|| clock(text, after));
    let start = || {
        let is_hour = from.len() <= 2 && number(from).is_some() && hour(to).is_some();
        time(from).or_else(|| is_hour.then(|| plain_hour(from).to_owned()))
    };
    let times = start().zip(time(to)).map(|(from, to)| format!("{from} to {to}"));
    times.or_else(|| weekdays(from, to))
}

/// "Monday to Friday" of "Mon" and "Fri".
pub(super) fn weekdays(from: &str, to: &str) -> Option<String> {
    let long = |text: &str| {
        let short = text.trim_end_matches('.');
        WEEKDAYS.iter().find(|name| short.len() == 3 && name.starts_with(short)).copied()
    };
    Some(format!("{} to {}", long(from)?, long(to)?))
}
