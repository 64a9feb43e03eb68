//! The day, the week, the month, the season and the year it is, and their neighbours.

use super::Reply;
use super::calendar::{long, reply};
use super::days::{self, MONTHS};
use super::numbers;
use super::query::Query;
use jiff::civil::Date;

/// What is current, or comes next.
pub(super) fn this_period(query: &Query, today: Date) -> Option<Reply> {
    let answers = [this_day, next_one, season, this_year, this_month];
    answers.iter().find_map(|answer| answer(query, today))
}

/// Asked of the current one: `what year is it`.
fn is_now(query: &Query, word: &str) -> bool {
    let asks = [
        format!("what|which {word}"),
        format!("current {word}"),
        format!("the {word} is it"),
        format!("is the {word}"),
    ];
    asks.iter().any(|pattern| query.has(pattern))
        && (query.words.len() <= 6 || query.any(&["is it", "are we", "is this"]))
}

/// The day of the month or year, the week, the weekend.
fn this_day(query: &Query, today: Date) -> Option<Reply> {
    if query.any(&["day of the month", "day of this month"]) && !query.any(&["first|last|next"]) {
        return reply(86, &format!("today is {}", long(today)));
    }
    if query.any(&["week of the year", "week number", "calendar week", "number of the week", "which week", "what week"])
    {
        return reply(86, &format!("it is week {} of the year", today.iso_week_date().week()));
    }
    if query.any(&["day of the year", "day number"]) && !query.any(&["first|last|longest|shortest"]) {
        return reply(86, &format!("today is day {} of the year", today.day_of_year()));
    }
    if query.any(&["weekend"]) && query.any(&["is it", "is today"]) {
        let weekend = today.weekday().to_monday_zero_offset() >= 5;
        return reply(84, &format!("{}, it is {}", if weekend { "yes" } else { "no" }, today.strftime("%A")));
    }
    None
}

/// `which year comes after this one`.
fn next_one(query: &Query, today: Date) -> Option<Reply> {
    if query.any(&[
        "year|month|day comes|is after this|today|now",
        "year comes next",
        "year is next",
        "month comes next",
        "month is next",
    ]) {
        let month = today.first_of_month().checked_add(jiff::Span::new().months(1)).ok()?;
        return match () {
            () if query.has("year") => reply(86, &format!("the next year is {}", today.year() + 1)),
            () if query.has("month") => reply(86, &format!("the next month is {}", month.strftime("%B"))),
            () => reply(86, &format!("tomorrow is {}", long(today.tomorrow().ok()?))),
        };
    }
    None
}

fn season(query: &Query, today: Date) -> Option<Reply> {
    if query.any(&["season is|are", "what|which season", "current season"]) && !query.any(&["after|before|follows"]) {
        let season = match (today.month(), today.day()) {
            (3, 20..) | (4..=5, _) | (6, ..=20) => "spring",
            (6, _) | (7..=8, _) | (9, ..=21) => "summer",
            (9, _) | (10..=11, _) | (12, ..=20) => "autumn",
            _ => "winter",
        };
        return reply(84, &format!("it is {season} on the northern half of the earth"));
    }
    if query.any(&["season"]) && query.any(&["after|before|follows|following"]) {
        let seasons = ["spring", "summer", "autumn", "winter"];
        let at = query.words.iter().find_map(|word| {
            seasons.iter().position(|season| word == season || (word == "fall" && *season == "autumn"))
        })?;
        let back = query.has("before");
        return reply(
            84,
            &format!(
                "{} comes {} {}",
                seasons[(at + if back { 3 } else { 1 }) % 4],
                if back { "before" } else { "after" },
                seasons[at]
            ),
        );
    }
    None
}

fn this_year(query: &Query, today: Date) -> Option<Reply> {
    if query.any(&["century"]) && query.any(&["what|which century", "current century"]) {
        let century = (today.year() - 1) / 100 + 1;
        return reply(84, &format!("it is the {} century", numbers::say_ordinal(century.unsigned_abs().into())));
    }
    if is_now(query, "year") && !query.any(&["last|next|leap|ago"]) {
        return reply(84, &format!("it is {}", today.year()));
    }
    if query.any(&["next year", "last year"]) && query.any(&["what|which year", "what is", "is next"]) {
        let (name, year) = if query.has("next year") {
            ("next year is", today.year() + 1)
        } else {
            ("last year was", today.year() - 1)
        };
        return reply(82, &format!("{name} {year}"));
    }
    None
}

fn this_month(query: &Query, today: Date) -> Option<Reply> {
    if query.any(&["what|which month was|is|will", "what|which month"])
        && query.any(&["ago", "from now", "in * months|month|weeks|days|years"])
    {
        let day = days::named(&query.words, today)?;
        let verb = if day.date < today { "it was" } else { "it will be" };
        return reply(87, &format!("{} {verb} {}", day.name, day.date.strftime("%B %Y")));
    }
    if query.has("month|months") && query.any(&["fewest", "least", "shortest"]) {
        return reply(87, "February is the shortest month, with 28 days, or 29 in a leap year");
    }
    if query.has("month|months") && query.any(&["longest", "most days"]) {
        return reply(87, "the longest months have 31 days: January, March, May, July, August, October and December");
    }
    let month = |n: i32| days::capital(MONTHS[(i32::from(today.month()) - 1 + n).rem_euclid(12) as usize]);
    if query.any(&["next month", "last month", "previous month"])
        && query.any(&["what|which month", "what is", "what was", "is next"])
    {
        return reply(
            82,
            &if query.has("next month") {
                format!("next month is {}", month(1))
            } else {
                format!("last month was {}", month(-1))
            },
        );
    }
    if is_now(query, "month") && !query.any(&["after|before|comes|christmas|easter"]) {
        return reply(83, &format!("it is {} {}", month(0), today.year()));
    }
    None
}
