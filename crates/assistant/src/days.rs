//! Days as people name them: `tomorrow`, `in three days`, `next friday`, `the fifth of march`, `christmas`.

use super::numbers::{self, STRICT, YEARS};
use super::query::{find, one_of};
use jiff::civil::{Date, Weekday, date};
use jiff::{Span, ToSpan};

pub(super) const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

pub(super) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// A day somebody named.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedDay {
    pub date: Date,
    /// What it was called, for the answer: `Tomorrow`, `In 3 days`, `Christmas`.
    pub name: String,
    /// Comes round every year; its year was not said.
    pub yearly: bool,
}

/// The day named in the words, if one is, counted from `today`.
pub(super) fn named(words: &[String], today: Date) -> Option<NamedDay> {
    let relative = || relative(words, today);
    relative()
        .or_else(|| holiday(words, today))
        .or_else(|| by_month(words, today))
        .or_else(|| by_weekday(words, today))
        .or_else(|| period(words, today))
        .or_else(|| plain(words, today))
}

fn day(date: Date, name: impl Into<String>) -> Option<NamedDay> {
    Some(NamedDay { date, name: name.into(), yearly: false })
}

fn plain(words: &[String], today: Date) -> Option<NamedDay> {
    let has = |pattern: &str| find(words, pattern).is_some();
    if has("day after tomorrow|tomorrows") || has("after tomorrow") {
        return day(today + 2.days(), "The day after tomorrow");
    }
    if has("day before yesterday") || has("before yesterday") {
        return day(today - 2.days(), "The day before yesterday");
    }
    if has("tomorrow") || (has("to morrow") || has("too morrow")) {
        return day(today + 1.day(), "Tomorrow");
    }
    if has("yesterday") || has("yester day") {
        return day(today - 1.day(), "Yesterday");
    }
    if has("today|tonight") || has("to day") || has("this morning|evening|afternoon") {
        return day(today, "Today");
    }
    None
}

/// `in three days`, `two weeks from now`, `ten days ago`, `a week from tomorrow`.
fn relative(words: &[String], today: Date) -> Option<NamedDay> {
    for (at, word) in words.iter().enumerate() {
        let Some(unit) = ["day", "week", "fortnight", "month", "year"]
            .iter()
            .find(|unit| word.strip_suffix('s').unwrap_or(word) == **unit)
        else {
            continue;
        };
        let start = (0..at)
            .find(|start| numbers::read(&words[*start..at], STRICT).is_some_and(|found| start + found.len == at));
        let article = at > 0 && one_of(&words[at - 1], "a|an|one");
        let value = match start {
            Some(start) => numbers::read(&words[start..at], STRICT)?.value,
            None if article => 1.0,
            None => continue,
        };
        let begin = start.unwrap_or(at - 1);
        if value.fract() != 0.0 || value.abs() > 100_000.0 {
            return None;
        }
        let n = value as i64;
        let rest = &words[at + 1..];
        let next = rest.first().map_or("", String::as_str);
        let before = begin.checked_sub(1).map_or("", |i| words[i].as_str());
        let back = one_of(next, "ago|before|earlier|prior|back");
        let ahead = one_of(next, "from|after|later|hence|on|time|ahead") || one_of(before, "in|within|after|an");
        if !back && !ahead {
            continue;
        }
        let span = span(unit, n)?;
        // "From tomorrow", "after christmas": counted from another day.
        let origin = if one_of(next, "from|after|before") {
            named(rest, today).filter(|origin| origin.date != today)
        } else {
            None
        };
        let base = origin.as_ref().map_or(today, |origin| origin.date);
        let date = if back { base.checked_sub(span).ok()? } else { base.checked_add(span).ok()? };
        let units = if n == 1 { (*unit).to_owned() } else { format!("{unit}s") };
        let name = match (origin, back) {
            (Some(origin), _) => format!("{n} {units} {next} {}", origin.name.to_lowercase()),
            (None, true) => format!("{n} {units} ago"),
            (None, false) => format!("In {n} {units}"),
        };
        return day(date, name);
    }
    None
}

fn span(unit: &str, n: i64) -> Option<Span> {
    let span = Span::new();
    match unit {
        "day" => span.try_days(n),
        "week" => span.try_weeks(n),
        "fortnight" => span.try_weeks(2 * n),
        "month" => span.try_months(n),
        _ => span.try_years(n),
    }
    .ok()
}

/// `next week`, `last year`, `the end of the month`.
fn period(words: &[String], today: Date) -> Option<NamedDay> {
    let has = |pattern: &str| find(words, pattern).is_some();
    if has("end of year") || has("end of the|this year") || has("year is over") || has("year ends") {
        return day(date(today.year(), 12, 31), "The end of the year");
    }
    if has("end of month") || has("end of the|this month") || has("month is over") || has("month ends") {
        return day(today.last_of_month(), "The end of the month");
    }
    if has("weekend") {
        let saturday = next_weekday(today - 1.day(), Weekday::Saturday);
        return day(saturday, "The weekend");
    }
    let first_of_next_month = today.first_of_month() + 1.month();
    if has("first of next month")
        || (has("next month") && !has("in|what|which|is next month"))
        || has("until|till next month")
    {
        return day(first_of_next_month, "Next month");
    }
    if has("next year") {
        return day(date(today.year() + 1, 1, 1), "Next year");
    }
    if has("next week") {
        return day(today + 7.days(), "A week from today");
    }
    has("last week").then(|| NamedDay { date: today - 7.days(), name: "A week ago".into(), yearly: false })
}

fn next_weekday(after: Date, weekday: Weekday) -> Date {
    after.nth_weekday(1, weekday).expect("dates near today have neighbours")
}

/// `next friday`, `on sunday`, `last monday`.
fn by_weekday(words: &[String], today: Date) -> Option<NamedDay> {
    let at = words.iter().position(|word| weekday(word).is_some())?;
    let weekday = weekday(&words[at])?;
    let before = at.checked_sub(1).map_or("", |i| words[i].as_str());
    let name = capital(WEEKDAYS[weekday.to_monday_zero_offset() as usize]);
    if one_of(before, "last|previous|past") {
        let date = today.nth_weekday(-1, weekday).ok()?;
        return day(date, format!("Last {name}"));
    }
    // "This friday" on a Friday is today.
    let from = if before == "this" { today - 1.day() } else { today };
    let name = if one_of(before, "next|this|coming") {
        format!("{} {name}", if before == "this" { "This" } else { "Next" })
    } else {
        name
    };
    day(next_weekday(from, weekday), name)
}

pub(super) fn weekday(word: &str) -> Option<Weekday> {
    let i = WEEKDAYS.iter().position(|name| {
        *name == word || name.strip_suffix("day").is_some_and(|_| word.strip_suffix('s') == Some(name))
    })?;
    Weekday::from_monday_zero_offset(i as i8).ok()
}

/// 1 to 12. `may` and `march` are also other words: [`by_month`] wants a day beside them.
pub(super) fn month(word: &str) -> Option<i8> {
    let short = |name: &str| {
        word.len() >= 3 && name.starts_with(word) && one_of(word, "jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec")
    };
    MONTHS.iter().position(|name| *name == word || short(name)).map(|i| i as i8 + 1)
}

/// `march fifth`, `the 5th of march 2027`, `5 march`, `july four`.
fn by_month(words: &[String], today: Date) -> Option<NamedDay> {
    for (at, word) in words.iter().enumerate() {
        let Some(month) = month(word) else { continue };
        let article = usize::from(words.get(at + 1).is_some_and(|word| word == "the"));
        let after = words.get(at + 1 + article..).and_then(day_of_month);
        let (day, end) = match after {
            Some((day, n)) => (day, at + 1 + article + n),
            None => match day_before(&words[..at]) {
                Some(day) => (day, at + 1),
                None => continue,
            },
        };
        let skip = usize::from(words.get(end).is_some_and(|word| one_of(word, "in|of")));
        let year = words
            .get(end + skip..)
            .and_then(|rest| numbers::read(rest, YEARS))
            .map(|found| found.value)
            .filter(|year| (1.0..=9999.0).contains(year) && year.fract() == 0.0);
        let name = format!("{} {day}", capital(MONTHS[month as usize - 1]));
        let named = match year {
            Some(year) => NamedDay {
                date: Date::new(year as i16, month, day).ok()?,
                name: format!("{name}, {year}"),
                yearly: false,
            },
            None => NamedDay { date: coming(month, day, today)?, name, yearly: true },
        };
        return Some(named);
    }
    None
}

fn day_of_month(words: &[String]) -> Option<(i8, usize)> {
    let (day, n) = match numbers::ordinal_at(words) {
        Some(found) => found,
        None => {
            let found =
                numbers::read(words, STRICT).filter(|found| found.value.fract() == 0.0 && found.value >= 1.0)?;
            (found.value.min(99.0) as u32, found.len)
        }
    };
    (day <= 31).then_some((day as i8, n))
}

/// `the fifth of` march, `5` march.
fn day_before(words: &[String]) -> Option<i8> {
    let words = words.strip_suffix(&["of".to_owned()]).unwrap_or(words);
    (words.len().saturating_sub(2)..words.len())
        .find_map(|start| day_of_month(&words[start..]).filter(|(_, n)| start + n == words.len()).map(|(day, _)| day))
}

/// The next time this day comes, today included. February 29 waits for its year.
fn coming(month: i8, day: i8, today: Date) -> Option<Date> {
    (0..9).filter_map(|n| Date::new(today.year() + n, month, day).ok()).find(|date| *date >= today)
}

/// When a holiday is in a year.
type Rule = fn(i16) -> Option<Date>;

fn nth(year: i16, month: i8, n: i8, weekday: Weekday) -> Option<Date> {
    Date::new(year, month, 1).ok()?.nth_weekday_of_month(n, weekday).ok()
}

/// Easter Sunday, after the anonymous Gregorian computus (Nature, 20 April 1876).
fn easter(year: i16) -> Option<Date> {
    let y = i32::from(year);
    let (a, b, c) = (y % 19, y / 100, y % 100);
    let (d, e, f) = (b / 4, b % 4, (b + 8) / 25);
    let g = (b - f + 1) / 3;
    let h = (19 * a + b - d - g + 15) % 30;
    let (i, k) = (c / 4, c % 4);
    let l = (32 + 2 * e + 2 * i - h - k) % 7;
    let m = (a + 11 * h + 22 * l) / 451;
    let n = h + l - 7 * m + 114;
    Date::new(year, (n / 31) as i8, (n % 31 + 1) as i8).ok()
}

const HOLIDAYS: &[(&[&str], &str, Rule)] = &[
    (&["christmas eve"], "Christmas Eve", |y| Date::new(y, 12, 24).ok()),
    (&["boxing day"], "Boxing Day", |y| Date::new(y, 12, 26).ok()),
    (&["christmas", "xmas", "chris miss"], "Christmas", |y| Date::new(y, 12, 25).ok()),
    (&["new|news year|years eve", "sylvester"], "New Year's Eve", |y| Date::new(y, 12, 31).ok()),
    (&["new|news years|year day", "new years", "new year"], "New Year's Day", |y| Date::new(y, 1, 1).ok()),
    (&["halloween", "hallow een", "hallow wean"], "Halloween", |y| Date::new(y, 10, 31).ok()),
    (&["valentine|valentines", "valentine day"], "Valentine's Day", |y| Date::new(y, 2, 14).ok()),
    (&["saint|st|st. patrick|patricks"], "Saint Patrick's Day", |y| Date::new(y, 3, 17).ok()),
    (&["april fools|fool"], "April Fools' Day", |y| Date::new(y, 4, 1).ok()),
    (&["independence day"], "Independence Day", |y| Date::new(y, 7, 4).ok()),
    (&["good friday"], "Good Friday", |y| Some(easter(y)? - 2.days())),
    (&["easter monday"], "Easter Monday", |y| Some(easter(y)? + 1.day())),
    (&["easter"], "Easter", easter),
    (&["thanksgiving", "thanks giving"], "Thanksgiving", |y| nth(y, 11, 4, Weekday::Thursday)),
    (&["black friday"], "Black Friday", |y| Some(nth(y, 11, 4, Weekday::Thursday)? + 1.day())),
    (&["labor|labour day"], "Labor Day", |y| nth(y, 9, 1, Weekday::Monday)),
    (&["memorial day"], "Memorial Day", |y| nth(y, 5, -1, Weekday::Monday)),
    (&["mother|mothers day"], "Mother's Day", |y| nth(y, 5, 2, Weekday::Sunday)),
    (&["father|fathers day"], "Father's Day", |y| nth(y, 6, 3, Weekday::Sunday)),
    (&["martin luther king"], "Martin Luther King Day", |y| nth(y, 1, 3, Weekday::Monday)),
    (&["presidents|president day"], "Presidents' Day", |y| nth(y, 2, 3, Weekday::Monday)),
    (&["columbus day"], "Columbus Day", |y| nth(y, 10, 2, Weekday::Monday)),
    (&["veterans day"], "Veterans Day", |y| Date::new(y, 11, 11).ok()),
    (&["earth day"], "Earth Day", |y| Date::new(y, 4, 22).ok()),
    (&["pi day"], "Pi Day", |y| Date::new(y, 3, 14).ok()),
    (&["groundhog day"], "Groundhog Day", |y| Date::new(y, 2, 2).ok()),
    (&["leap day"], "Leap Day", |y| Date::new(y, 2, 29).ok()),
    (&["spring"], "The first day of spring", |y| Date::new(y, 3, 20).ok()),
    (&["summer"], "The first day of summer", |y| Date::new(y, 6, 21).ok()),
    (&["autumn", "fall"], "The first day of autumn", |y| Date::new(y, 9, 22).ok()),
    (&["winter"], "The first day of winter", |y| Date::new(y, 12, 21).ok()),
];

fn holiday(words: &[String], today: Date) -> Option<NamedDay> {
    let named = |patterns: &[&str]| patterns.iter().find_map(|pattern| find(words, pattern));
    let (at, name, rule) =
        HOLIDAYS.iter().find_map(|(patterns, name, rule)| named(patterns).map(|at| (at, name, rule)))?;
    let skip = usize::from(words.get(at.end).is_some_and(|word| one_of(word, "in|of|day")));
    let said = words.get(at.end + skip..).and_then(|rest| numbers::read(rest, YEARS)).map(|found| found.value);
    if let Some(year) = said.filter(|year| (1000.0..=9999.0).contains(year)) {
        return day(rule(year as i16)?, format!("{name} {year}"));
    }
    let before = at.start.checked_sub(1).map_or("", |i| words[i].as_str());
    let (this, next) = (today.year(), today.year() + 1);
    if before == "last" {
        let date = [this, this - 1].into_iter().filter_map(rule).find(|date| *date < today)?;
        return day(date, format!("Last {name}"));
    }
    let of_next_year = find(words, "next year").is_some_and(|year| year.start >= at.end);
    let years = if of_next_year { next..next + 8 } else { this..this + 9 };
    let date = years.filter_map(rule).find(|date| *date >= today)?;
    Some(NamedDay { date, name: (*name).to_owned(), yearly: true })
}

/// With a capital letter.
pub(super) fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    #[test]
    fn days_as_people_name_them() {
        // A Wednesday.
        let today = date(2026, 3, 11);
        for (text, expected) in [
            ("today", date(2026, 3, 11)),
            ("the day after tomorrow", date(2026, 3, 13)),
            ("in three days", date(2026, 3, 14)),
            ("two weeks from now", date(2026, 3, 25)),
            ("ten days ago", date(2026, 3, 1)),
            ("a week from tomorrow", date(2026, 3, 19)),
            ("a month ago", date(2026, 2, 11)),
            ("next friday", date(2026, 3, 13)),
            ("last monday", date(2026, 3, 9)),
            ("wednesday", date(2026, 3, 18)),
            ("the fifth of november", date(2026, 11, 5)),
            ("march third", date(2027, 3, 3)),
            ("july 4th 2030", date(2030, 7, 4)),
            ("december twenty fifth nineteen ninety nine", date(1999, 12, 25)),
            ("easter", date(2026, 4, 5)),
            ("thanksgiving", date(2026, 11, 26)),
            ("new year's eve", date(2026, 12, 31)),
            ("christmas 2028", date(2028, 12, 25)),
            ("the end of the year", date(2026, 12, 31)),
            ("leap day", date(2028, 2, 29)),
        ] {
            assert_eq!(named(&Query::new(text).words, today).map(|day| day.date), Some(expected), "{text}");
        }
        for text in ["may i go", "march on", "three apples", "a day"] {
            assert_eq!(named(&Query::new(text).words, today), None, "{text}");
        }
    }
}
