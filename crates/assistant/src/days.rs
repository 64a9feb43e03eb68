//! Days as people name them: `tomorrow`, `in three days`, `next friday`, `the fifth of march`, `christmas`.

use crate::data::data_file;
use crate::query::{find, one_of};
use crate::{capital, numbers};
use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan};
use serde::Deserialize;

pub(crate) const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
#[rustfmt::skip]
pub(crate) const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
];

#[derive(Deserialize)]
struct Days {
    holiday: Vec<Holiday>,
    /// Days counted from today.
    day: Vec<Holiday>,
}

#[derive(Deserialize)]
struct Holiday {
    asked: String,
    name: String,
    on: String,
}

data_file!(DAYS: Days = "days.toml");

/// A day that the user named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedDay {
    pub(crate) date: Date,
    /// What it was called, for the answer: `tomorrow`, `in 3 days`, `Christmas`.
    pub(crate) name: String,
    /// It comes every year, and no year was said.
    pub(crate) yearly: bool,
}

/// The day named in the words, if there is one, counted from `today`.
pub(crate) fn named(words: &[String], today: Date) -> Option<NamedDay> {
    relative(words, today)
        .or_else(|| holiday(words, today))
        .or_else(|| by_month(words, today))
        .or_else(|| by_weekday(words, today))
        .or_else(|| from_today(words, today))
}

fn day(date: Date, name: impl Into<String>) -> Option<NamedDay> {
    Some(NamedDay { date, name: name.into(), yearly: false })
}

/// `tomorrow`, `next week`, `the end of the month`.
fn from_today(words: &[String], today: Date) -> Option<NamedDay> {
    let named = DAYS.day.iter().find(|day| find(words, &day.asked).is_some())?;
    let date = match named.on.as_str() {
        "month end" => today.last_of_month(),
        "year end" => today.last_of_year(),
        "next month" => today.last_of_month().tomorrow().ok()?,
        "next year" => today.last_of_year().tomorrow().ok()?,
        "saturday" => nth_from(today.yesterday().ok()?, 1, Weekday::Saturday)?,
        n => today.checked_add(n.parse::<i32>().ok()?.days()).ok()?,
    };
    day(date, named.name.clone())
}

/// A span of time from now: `in three days`, `ten minutes ago`.
pub(crate) struct Shift<'a> {
    /// Negative in the past.
    pub(crate) span: Span,
    pub(crate) is_past: bool,
    /// The amount for a voice: `3 days`.
    pub(crate) amount: String,
    rest: &'a [String],
}

/// The first span in some words whose unit is one of `units`.
pub(crate) fn shift<'a>(words: &'a [String], units: &str) -> Option<Shift<'a>> {
    let found = numbers::all(words);
    words.iter().enumerate().skip(1).find_map(|(at, word)| {
        let unit = Some(word.strip_suffix('s').unwrap_or(word)).filter(|unit| one_of(unit, units))?;
        let article = || one_of(&words[at - 1], "a|an").then_some((1.0, at - 1));
        let number = found.iter().find(|number| number.end() == at).map(|number| (number.value, number.at));
        let (value, begin) = number.or_else(article)?;
        let rest = &words[at + 1..];
        let before = words[..begin].last().map_or("", String::as_str);
        let next = rest.first().map_or("", String::as_str);
        let is_past = one_of(next, "ago|before|earlier|prior|back");
        let is_future = one_of(next, "from|after|later|hence|on|time|ahead") || one_of(before, "in|within|after");
        if !(is_past || is_future) || value.fract() != 0.0 || value.abs() > 100_000.0 {
            return None;
        }
        let (n, plain) = if unit == "fortnight" { (2.0 * value, "week") } else { (value, unit) };
        let span: Span = format!("{} {plain}", if is_past { -n } else { n }).parse().ok()?;
        Some(Shift { span, is_past, amount: crate::count(value as i64, unit), rest })
    })
}

/// `in three days`, `two weeks from now`, `ten days ago`, `a week from tomorrow`.
fn relative(words: &[String], today: Date) -> Option<NamedDay> {
    let Shift { span, is_past, amount, rest } = shift(words, "day|week|fortnight|month|year")?;
    // "From tomorrow", "after christmas": counted from another day.
    let joint = rest.first().filter(|joint| one_of(joint, "from|after|before"));
    let origin = joint.and_then(|_| named(rest, today)).filter(|origin| origin.date != today);
    let date = origin.as_ref().map_or(today, |origin| origin.date).checked_add(span).ok()?;
    match (origin, joint) {
        (Some(origin), Some(joint)) => day(date, format!("{amount} {joint} {}", origin.name)),
        _ if is_past => day(date, format!("{amount} ago")),
        _ => day(date, format!("in {amount}")),
    }
}

fn nth_from(after: Date, n: i32, weekday: Weekday) -> Option<Date> {
    after.nth_weekday(n, weekday).ok()
}

/// `next friday`, `on sunday`, `last monday`.
fn by_weekday(words: &[String], today: Date) -> Option<NamedDay> {
    let (at, weekday) = words.iter().enumerate().find_map(|(at, word)| Some((at, weekday(word)?)))?;
    let name = capital(WEEKDAYS[weekday.to_monday_zero_offset() as usize]);
    match at.checked_sub(1).map_or("", |i| words[i].as_str()) {
        "last" | "previous" | "past" => day(nth_from(today, -1, weekday)?, format!("last {name}")),
        // "This friday" on a Friday is today.
        "this" => day(nth_from(today.yesterday().ok()?, 1, weekday)?, format!("this {name}")),
        "next" | "coming" => day(nth_from(today, 1, weekday)?, format!("next {name}")),
        _ => day(nth_from(today, 1, weekday)?, name),
    }
}

pub(crate) fn weekday(word: &str) -> Option<Weekday> {
    let i = WEEKDAYS.iter().position(|name| *name == word || word.strip_suffix('s') == Some(name))?;
    Weekday::from_monday_zero_offset(i as i8).ok()
}

/// 1 to 12. `may` and `march` are also other words: [`by_month`] wants a day beside them.
pub(crate) fn month(word: &str) -> Option<i8> {
    let is_short = one_of(word, "jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec");
    MONTHS.iter().position(|name| *name == word || (is_short && name.starts_with(word))).map(|i| i as i8 + 1)
}

/// `march fifth`, `the 5th of march 2027`, `5 march`, `july four`.
fn by_month(words: &[String], today: Date) -> Option<NamedDay> {
    words.iter().enumerate().find_map(|(at, word)| {
        let month = month(word)?;
        let article = usize::from(words.get(at + 1).is_some_and(|word| word == "the"));
        let after = words.get(at + 1 + article..).and_then(day_of_month);
        let (day, end) = match after {
            Some((day, n)) => (day, at + 1 + article + n),
            None => (day_before(&words[..at])?, at + 1),
        };
        let skip = usize::from(words.get(end).is_some_and(|word| one_of(word, "in|of")));
        let name = format!("{} {day}", capital(MONTHS[month as usize - 1]));
        match words.get(end + skip..).and_then(numbers::year) {
            Some(year) => self::day(Date::new(year, month, day).ok()?, format!("{name}, {year}")),
            None => {
                let mut dates = (0..9).filter_map(|n| Date::new(today.year() + n, month, day).ok());
                Some(NamedDay { date: dates.find(|date| *date >= today)?, name, yearly: true })
            }
        }
    })
}

fn day_of_month(words: &[String]) -> Option<(i8, usize)> {
    let cardinal = || {
        let number = numbers::read(words).filter(|n| n.value.fract() == 0.0 && (1.0..=31.0).contains(&n.value))?;
        Some((number.value as u32, number.len))
    };
    let (day, n) = numbers::ordinal_at(words).or_else(cardinal)?;
    (day <= 31).then_some((day as i8, n))
}

/// `the fifth of` march, `5` march.
fn day_before(words: &[String]) -> Option<i8> {
    let words = words.strip_suffix(&["of".to_owned()]).unwrap_or(words);
    let day_at = |start: usize| day_of_month(&words[start..]).filter(|(_, n)| start + n == words.len());
    (words.len().saturating_sub(2)..words.len()).find_map(day_at).map(|(day, _)| day)
}

/// The date of a holiday in a year, after its rule in `days.toml`.
fn date_of(rule: &str, year: i16) -> Option<Date> {
    let words: Vec<&str> = rule.split(' ').collect();
    let (words, shift) = match words.as_slice() {
        [rule @ .., sign @ ("+" | "-"), n] => (rule, n.parse::<i32>().ok()? * if *sign == "-" { -1 } else { 1 }),
        rule => (rule, 0),
    };
    let date = match words {
        ["easter"] => easter(year)?,
        [name, day] => Date::new(year, month(name)?, day.parse().ok()?).ok()?,
        [name, day, nth] => {
            Date::new(year, month(name)?, 1).ok()?.nth_weekday_of_month(nth.parse().ok()?, weekday(day)?).ok()?
        }
        _ => return None,
    };
    date.checked_add(shift.days()).ok()
}

/// Easter Sunday, after the anonymous Gregorian computus (Nature, 20 April 1876).
fn easter(year: i16) -> Option<Date> {
    let y = i32::from(year);
    let a = y % 19;
    let b = y / 100;
    let c = y % 100;
    let d = b / 4;
    let e = b % 4;
    let f = (b + 8) / 25;
    let g = (b - f + 1) / 3;
    let h = (19 * a + b - d - g + 15) % 30;
    let i = c / 4;
    let k = c % 4;
    let l = (32 + 2 * e + 2 * i - h - k) % 7;
    let m = (a + 11 * h + 22 * l) / 451;
    let n = h + l - 7 * m + 114;
    Date::new(year, (n / 31) as i8, (n % 31 + 1) as i8).ok()
}

fn holiday(words: &[String], today: Date) -> Option<NamedDay> {
    let (at, holiday) = DAYS.holiday.iter().find_map(|holiday| Some((find(words, &holiday.asked)?, holiday)))?;
    let on = |year: i16| date_of(&holiday.on, year);
    let skip = usize::from(words.get(at.end).is_some_and(|word| one_of(word, "in|of|day")));
    let said = words.get(at.end + skip..).and_then(numbers::year).filter(|year| *year >= 1000);
    if let Some(year) = said {
        return day(on(year)?, format!("{} {year}", holiday.name));
    }
    let this = today.year();
    let of_next_year = find(words, "next year").is_some_and(|year| year.start >= at.end);
    let mut dates = (this + i16::from(of_next_year)..this + 9).filter_map(on);
    Some(NamedDay { date: dates.find(|date| *date >= today)?, name: holiday.name.clone(), yearly: true })
}
