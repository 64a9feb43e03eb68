//! What is so in every year: how long months are, leap years, the order of days and months.

use super::Reply;
use super::calendar::reply;
use super::days::{self, MONTHS, WEEKDAYS, capital};
use super::numbers::{self, STRICT, YEARS};
use super::query::{Query, one_of};
use jiff::civil::Date;

/// `how many days has february`, `how long is this month`.
pub(super) fn length_of_month(query: &Query, today: Date) -> Option<Reply> {
    let asks = query.any(&["how many days", "days are there in", "how long is|was|will", "number of days"]);
    if query.any(&["months have|has|with", "month has|have|with"]) && query.has("days") {
        let n = numbers::all(&query.words, STRICT).first().map(|(_, found)| found.value)?;
        let of_length: Vec<_> = (0..12)
            .filter(|i| Date::new(2027, *i as i8 + 1, 1).is_ok_and(|first| f64::from(first.days_in_month()) == n))
            .map(|i| capital(MONTHS[i]))
            .collect();
        return match of_length.as_slice() {
            _ if n == 28.0 => {
                reply(88, "all twelve months have at least 28 days, and February has exactly 28, or 29 in a leap year")
            }
            _ if n == 29.0 => reply(88, "February has 29 days in a leap year"),
            [] => reply(88, &format!("no month has {n} days")),
            list => reply(88, &format!("{} months have {n} days: {}", list.len(), super::and_list(list))),
        };
    }
    let claimed = numbers::all(&query.words, STRICT).first().map(|(_, found)| found.value);
    let claims = query.starts(&["are there", "is there", "does", "do", "has", "have"]) && query.has("days");
    if !(asks || claims) || query.any(&["until|till|since|before|left"]) {
        return None;
    }
    let month = query.words.iter().find_map(|word| days::month(word));
    let year = numbers::all(&query.words, YEARS)
        .iter()
        .map(|(_, found)| found.value)
        .find(|year| (1000.0..=9999.0).contains(year));
    if let Some(month) = month {
        let name = capital(MONTHS[month as usize - 1]);
        if let (true, Some(claimed)) = (claims, claimed) {
            let n = Date::new(year.map_or(today.year(), |year| year as i16), month, 1).ok()?.days_in_month();
            let yes = if f64::from(n) == claimed { "yes" } else { "no" };
            return reply(88, &format!("{yes}, {name} has {n} days"));
        }
        return match year {
            None if month == 2 && !query.any(&["leap year"]) => {
                reply(88, "February has 28 days, and 29 in a leap year")
            }
            None if month == 2 => reply(88, "February has 29 days in a leap year"),
            _ => {
                let year = year.map_or(today.year(), |year| year as i16);
                let n = Date::new(year, month, 1).ok()?.days_in_month();
                let in_year = if month == 2 { format!(" in {year}") } else { String::new() };
                reply(88, &format!("{name} has {n} days{in_year}"))
            }
        };
    }
    if query.any(&["this|current month", "in the month"]) {
        return reply(88, &format!("{} has {} days", today.strftime("%B"), today.days_in_month()));
    }
    if query.has("next month") {
        let next = today.first_of_month().checked_add(jiff::Span::new().months(1)).ok()?;
        return reply(88, &format!("{} has {} days", next.strftime("%B"), next.days_in_month()));
    }
    if query.has("leap year") {
        return reply(88, "a leap year has 366 days");
    }
    if !query.any(&["hours|minutes|seconds|weeks|months|hour"])
        && (query.any(&["this year"]) || year.is_some() && query.any(&["in|does|has|is", "year"]))
    {
        let year = year.filter(|_| !query.has("this year")).map_or(today.year(), |year| year as i16);
        return reply(84, &format!("{year} has {} days", Date::new(year, 1, 1).ok()?.days_in_year()));
    }
    None
}

pub(super) fn leap_year(query: &Query, today: Date) -> Option<Reply> {
    if !query.any(&["leap year|years", "leap", "lead year"]) {
        return None;
    }
    let leap = |year: i16| Date::new(year, 1, 1).is_ok_and(Date::in_leap_year);
    let said = numbers::all(&query.words, YEARS)
        .iter()
        .map(|(_, found)| found.value)
        .find(|year| (1.0..=9999.0).contains(year) && year.fract() == 0.0);
    if query.any(&["next leap", "when is", "coming leap"]) && said.is_none() {
        let next = (today.year() + 1..).find(|year| leap(*year))?;
        return reply(88, &format!("the next leap year is {next}"));
    }
    if query.has("last leap") {
        let last = (1..today.year()).rev().find(|year| leap(*year))?;
        return reply(88, &format!("the last leap year was {last}"));
    }
    if query.any(&["what is a leap", "what are leap", "explain", "mean"]) {
        return reply(
            88,
            "a leap year has 366 days, with February 29 as the extra day; it comes every four years, but not in most full centuries",
        );
    }
    if query.any(&["how often"]) {
        return reply(88, "every four years, but not in full centuries that 400 does not divide");
    }
    let year = match said {
        Some(year) => year as i16,
        None if query.has("next year") => today.year() + 1,
        None if query.has("last year") => today.year() - 1,
        None if query.any(&["this year", "it a leap", "now", "current year"]) => today.year(),
        None => return None,
    };
    let (yes, verb) = (leap(year), if year < today.year() { "was" } else { "is" });
    reply(
        88,
        &format!("{}, {year} {verb} {}a leap year", if yes { "yes" } else { "no" }, if yes { "" } else { "not " }),
    )
}

/// What comes before and after among weekdays and months.
pub(super) fn order(query: &Query, _today: Date) -> Option<Reply> {
    let words = &query.words;
    let after = ["after|follows|follow|following|succeeds|next", "comes next"];
    let before = ["before|precedes|preceding|prior|previous"];
    let asks = query.any(&["what|which|name|the day|days|month|months|weekday", "what comes", "what is", "comes"]);
    let cycle = |names: &[&str], at: usize, step: usize| capital(names[(at + step) % names.len()]);
    let lists: [(&[&str], &str); 2] = [(&WEEKDAYS, "day"), (&MONTHS, "month")];
    for (names, kind) in lists {
        let n = names.len();
        let place = words.iter().position(|word| {
            if kind == "day" { days::weekday(word).is_some() } else { MONTHS.contains(&word.as_str()) }
        });
        if let Some(at) = place {
            let i = names.iter().position(|name| words[at].starts_with(name))?;
            if asks
                && query.any(&after)
                && !query.any(&before)
                && !query.any(&["days after", "next *day"])
                && !one_of(&words[at.saturating_sub(1)], "next")
            {
                return reply(84, &format!("{} comes after {}", cycle(names, i, 1), capital(names[i])));
            }
            if asks && query.any(&before) && !query.any(&["how many", "days before", "how long"]) {
                return reply(84, &format!("{} comes before {}", cycle(names, i, n - 1), capital(names[i])));
            }
            if kind == "month"
                && query.any(&[
                    "what|which number",
                    "what number month",
                    "which month of the year is",
                    "what month number",
                    "number of the month",
                ])
            {
                return reply(
                    84,
                    &format!("{} is the {} month of the year", capital(names[i]), numbers::say_ordinal(i as u32 + 1)),
                );
            }
            if kind == "day" && query.any(&["weekday or|a weekend", "a weekday", "weekend day", "on the weekend"]) {
                let weekend = i >= 5;
                return reply(
                    80,
                    &format!(
                        "{}, {} is {}",
                        if weekend == query.has("weekend") { "yes" } else { "no" },
                        capital(names[i]),
                        if weekend { "at the weekend" } else { "a weekday" }
                    ),
                );
            }
        }
        let of = if kind == "day" {
            query.any(&["day|days of the week", "day|days in a|the week"])
        } else {
            query.any(&["month|months of the year", "month|months in a|the year", "month of year"])
                || (words.len() <= 5 && query.has("the * month"))
        };
        let nth = (0..words.len())
            .find_map(|at| numbers::ordinal_at(&words[at..]))
            .map(|(n, _)| n as usize)
            .or_else(|| query.has("last").then_some(n));
        if let (true, Some(nth)) = (of, nth.filter(|nth| (1..=n).contains(nth))) {
            let last = if query.has("last") { "last".to_owned() } else { numbers::say_ordinal(nth as u32) };
            let whole = if kind == "day" { "week, counted from Monday," } else { "year" };
            return reply(84, &format!("the {last} {kind} of the {whole} is {}", capital(names[nth - 1])));
        }
    }
    None
}

pub(super) fn lists(query: &Query, _today: Date) -> Option<Reply> {
    let asks = query.any(&["name|list|say|recite|tell|enumerate|give|all", "what|which are"])
        || query.starts(&["days|months|seasons|the"]);
    if query.any(&["seasons"]) && query.any(&["how many"]) {
        return reply(84, "there are four seasons: spring, summer, autumn and winter");
    }
    if query.any(&["season|seasons"]) && asks && !query.any(&["season is|are it|we", "season now", "current season"]) {
        return reply(82, "the four seasons are spring, summer, autumn and winter");
    }
    let names = |names: &[&str]| super::and_list(&names.iter().map(|name| capital(name)).collect::<Vec<_>>());
    if asks
        && query.any(&["days of the week", "days in a|the week", "weekdays", "week days", "seven days"])
        && !query.has("how many")
    {
        return reply(84, &format!("the days of the week are {}", names(&WEEKDAYS)));
    }
    if asks
        && query.any(&["months", "twelve months", "months of the year", "months in a year"])
        && !query.any(&["how many"])
    {
        return reply(82, &format!("the months are {}", names(&MONTHS)));
    }
    None
}
