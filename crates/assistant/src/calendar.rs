//! Questions about days and dates that depend on today: `what day is it`, `how many days until christmas`, `is 2028 a
//! leap year`. What is so in every year stands in `facts.toml`.

use crate::conversation::Context;
use crate::days::{self, MONTHS, NamedDay};
use crate::intents::say;
use crate::query::{Query, find, one_of};
use crate::{count, numbers, yes_no};
use jiff::civil::Date;
use jiff::{ToSpan, Unit};

pub(crate) fn answer(context: &Context<'_>, query: &Query) -> Option<String> {
    let today = context.now.date();
    let intents = [distance, leap_year, which_day];
    intents.iter().find_map(|intent| intent(query, today))
}

/// `christmas`, `and tomorrow`: nothing but a day.
pub(crate) fn day_by_name(context: &Context<'_>, query: &Query) -> Option<String> {
    let today = context.now.date();
    if query.words.len() > 3 { None } else { describe(&days::named(&query.words, today)?, today) }
}

/// `Wednesday, March 11, 2026`.
fn long(date: Date) -> String {
    date.strftime("%A, %B %-d, %Y").to_string()
}

/// How far away a day is, or how far apart two days are.
fn distance(query: &Query, today: Date) -> Option<String> {
    let asks = query.has(
        "how many days|weeks|months|sleeps|nights|more / how long|far|soon / number of days|weeks / \
         days|weeks|months until|till|between|left|remaining / countdown|count down to",
    ) && query.has(
        "until|till|before|left|remain|remaining|away|since|ago|passed|between / in how many / how long|far|soon to / \
         days|weeks|months to",
    );
    if !asks {
        return None;
    }
    let days_between = |a: Date, b: Date| Some(i64::from(a.until((Unit::Day, b)).ok()?.get_days()));
    let are = |n: i64| if n == 1 { "is" } else { "are" };
    if let Some(rest) = query.after("between / from")
        && let Some(and) = find(rest, "and|to|until|till")
        && let (Some(a), Some(b)) = (days::named(&rest[..and.start], today), days::named(&rest[and.end..], today))
    {
        let n = days_between(a.date, b.date)?.abs();
        return say(&format!("there {} {} between {} and {}", are(n), count(n, "day"), a.name, b.name));
    }
    let mut day = days::named(&query.words, today)?;
    if query.has("since / ago was / have passed / long ago") && day.yearly && day.date > today {
        day.date = day.date.checked_sub(1.year()).ok()?;
    }
    let n = days_between(today, day.date)?;
    let days = n.abs();
    let is_past = n < 0;
    let amount = match (days / 7, days % 7) {
        (weeks @ 1.., 0) if query.has("weeks") => count(weeks, "week"),
        (weeks @ 1.., days) if query.has("weeks") => format!("{} and {}", count(weeks, "week"), count(days, "day")),
        _ => count(days, "day"),
    };
    match (days, is_past) {
        (0, _) => say(&format!("{} is today", day.name)),
        (_, true) => say(&format!("{} was {amount} ago, on {}", day.name, long(day.date))),
        _ => say(&format!("there {} {amount} until {}, which is on {}", are(days), day.name, long(day.date))),
    }
}

fn leap_year(query: &Query, today: Date) -> Option<String> {
    if !query.has("leap") || query.has("leap day") {
        return None;
    }
    let is_leap = |year: i16| Date::new(year, 1, 1).is_ok_and(Date::in_leap_year);
    let year = match (0..query.words.len()).find_map(|at| numbers::year(&query.words[at..])) {
        Some(year) => year,
        None if query.has("next|coming leap / when is") => {
            return say(&format!("the next leap year is {}", (today.year() + 1..).find(|year| is_leap(*year))?));
        }
        None if query.has("next year") => today.year() + 1,
        None if query.has("this|current year / it a leap / now") => today.year(),
        None => return None,
    };
    let verb = if year < today.year() { "was" } else { "is" };
    let not = if is_leap(year) { "" } else { "not " };
    say(&format!("{}, {year} {verb} {not}a leap year", yes_no(is_leap(year))))
}

fn which_day(query: &Query, today: Date) -> Option<String> {
    // These words name a day and ask something else of it.
    const OTHER: &str = "weather|news|doing|plan|plans|happening|happened|eat|dinner|lunch|breakfast|special|open|price|\
        game|match|won|cold|warm|hot|wear|feel|feeling|watch|leave|go|meet";
    let asks_day = query.has(
        "what|which day|days|weekday|date / day of the|a week / day of week / weekday / date / day is it / day it is / \
         the day / day are we / what is today|tomorrow / what was yesterday / what it is today / today is",
    );
    let asks_when = query.has("when / is * a|on / on|what what|will|is") && query.words.len() <= 9;
    let asks_weekday = query.starts("is today|tomorrow|it / was yesterday");
    if query.has(OTHER) {
        return None;
    }
    let Some(day) = days::named(&query.words, today) else {
        let other = query.has("how many / days in / have a / nice|great|good day / how was|is your / up to");
        return if asks_day && !other && query.words.len() <= 12 {
            say(&format!("today is {}", long(today)))
        } else {
            None
        };
    };
    // `is today friday`; "is it friday" asks of today.
    if let (true, Some(weekday)) = (asks_weekday, query.words.iter().find_map(|word| days::weekday(word))) {
        let name = query.words.iter().find(|word| one_of(word, "tomorrow|yesterday")).map_or("today", String::as_str);
        let shift = i32::from(name == "tomorrow") - i32::from(name == "yesterday");
        let date = today.checked_add(shift.days()).ok()?;
        let verb = if shift < 0 { "was" } else { "is" };
        return say(&format!("{}, {name} {verb} {}", yes_no(date.weekday() == weekday), long(date)));
    }
    if asks_day || asks_when || asks_weekday { describe(&day, today) } else { None }
}

fn describe(day: &NamedDay, today: Date) -> Option<String> {
    let is_past = day.date < today;
    let is_amount = day.name.starts_with(|c: char| c.is_ascii_digit()) || day.name.starts_with("in ");
    let verb = match (is_amount, is_past) {
        (true, true) => "it was",
        (true, false) => "it will be",
        (false, true) => "was",
        (false, false) => "is",
    };
    let by_date = day.name.split_once(' ').is_some_and(|(first, rest)| {
        MONTHS.contains(&first.to_lowercase().as_str()) && rest.starts_with(|c: char| c.is_ascii_digit())
    });
    if by_date {
        let date = day.date.strftime("%B %-d");
        let year = day.date.year();
        return say(&format!("{date}, {year}, {verb} a {}", day.date.strftime("%A")));
    }
    let on = if day.yearly || day.name.starts_with("the first") { "on " } else { "" };
    say(&format!("{} {verb} {on}{}", day.name, long(day.date)))
}
