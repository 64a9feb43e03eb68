//! Questions about days and dates: `what day is it`, `how many days until christmas`, `is 2028 a leap year`.

use super::days::{self, MONTHS, NamedDay, WEEKDAYS, capital};
use super::numbers::{self, STRICT, YEARS};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, sentence};
use jiff::Unit;
use jiff::civil::Date;

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let today = scene.now.date();
    let answers = [distance, length_of_month, leap_year, order, lists, this_period, which_day];
    answers.iter().find_map(|answer| answer(query, today))
}

fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

/// `Wednesday, March 11, 2026`.
fn long(date: Date) -> String {
    date.strftime("%A, %B %-d, %Y").to_string()
}

fn is_or_was(date: Date, today: Date) -> &'static str {
    if date < today { "was" } else { "is" }
}

/// How far away a day is.
fn distance(query: &Query, today: Date) -> Option<Reply> {
    let until = ["until|till|til|before|untill", "to|left|remaining|away|off", "far|long", "days|weeks|months two|too"];
    let asks = [
        "how many days|weeks|months|sleeps|nights|more",
        "how long|far|soon",
        "number of days|weeks",
        "days|weeks|months until|till",
        "countdown|count down to",
        "days|weeks between|left|remaining",
    ];
    if !(query.any(&asks) && (query.any(&until) || query.any(&["since", "ago", "passed", "between"]))) {
        return None;
    }
    let since = query.any(&["since", "ago was", "have passed", "long ago"]);
    if let Some(between) = between(query, today) {
        return Some(between);
    }
    let mut day = match days::named(&query.words, today) {
        Some(day) => day,
        None if query.any(&["year"]) && query.any(&["left", "remaining", "remain", "over"]) => {
            NamedDay { date: Date::new(today.year(), 12, 31).ok()?, name: "The end of the year".into(), yearly: false }
        }
        None if query.any(&["month"]) && query.any(&["left", "remaining", "remain", "over"]) => {
            NamedDay { date: today.last_of_month(), name: "The end of the month".into(), yearly: false }
        }
        None => first_of_month(&query.words, today)?,
    };
    if since && day.yearly && day.date > today {
        day.date = day.date.checked_sub(jiff::Span::new().years(1)).ok()?;
    }
    let n_days = i64::from(today.until((Unit::Day, day.date)).ok()?.get_days());
    let (n, past) = (n_days.abs(), n_days < 0);
    let (amount, plural) = match () {
        () if query.any(&["many weeks", "of weeks", "weeks until|till|to|left"]) => (weeks(n), n != 7),
        () if query.any(&["many months", "months until|till|to|left"]) => {
            let (low, high) = if past { (day.date, today) } else { (today, day.date) };
            let span = low.until((Unit::Month, high)).ok()?;
            (months(i64::from(span.get_months()), i64::from(span.get_days())), span.get_months() != 1)
        }
        () => (count(n, "day"), n != 1),
    };
    let verb = if plural { "are" } else { "is" };
    let name = lower_first(&day.name);
    match (n, past) {
        (0, _) => reply(86, &format!("{} is today", day.name)),
        (_, true) => reply(86, &format!("{name} was {amount} ago, on {}", long(day.date))),
        _ => reply(86, &format!("there {verb} {amount} until {name}, which is on {}", long(day.date))),
    }
}

/// `how many days are between march first and april tenth`.
fn between(query: &Query, today: Date) -> Option<Reply> {
    let rest = query.after("between").or_else(|| query.after("from"))?;
    let and = find(rest, "and|to|until|till")?;
    let (a, b) = (days::named(&rest[..and.start], today)?, days::named(&rest[and.end..], today)?);
    let n_days = i64::from(a.date.until((Unit::Day, b.date)).ok()?.get_days()).abs();
    let verb = if n_days == 1 { "is" } else { "are" };
    reply(
        88,
        &format!("there {verb} {} between {} and {}", count(n_days, "day"), lower_first(&a.name), lower_first(&b.name)),
    )
}

fn first_of_month(words: &[String], today: Date) -> Option<NamedDay> {
    let (i, _) = words.iter().enumerate().find(|(i, word)| {
        days::month(word).is_some() && *i > 0 && one_of(&words[i - 1], "until|till|to|before|since|til")
    })?;
    let month = days::month(&words[i])?;
    let year = if month > today.month() { today.year() } else { today.year() + 1 };
    Some(NamedDay {
        date: Date::new(year, month, 1).ok()?,
        name: format!("{} 1", capital(MONTHS[month as usize - 1])),
        yearly: true,
    })
}

fn count(n: i64, unit: &str) -> String {
    if n == 1 { format!("1 {unit}") } else { format!("{n} {unit}s") }
}

fn weeks(n_days: i64) -> String {
    match (n_days / 7, n_days % 7) {
        (weeks, 0) => count(weeks, "week"),
        (0, days) => format!("less than a week, {},", count(days, "day")),
        (weeks, days) => format!("{} and {}", count(weeks, "week"), count(days, "day")),
    }
}

fn months(n: i64, days: i64) -> String {
    match (n, days) {
        (n, 0) => count(n, "month"),
        (0, days) => format!("less than a month, {},", count(days, "day")),
        (n, days) => format!("{} and {}", count(n, "month"), count(days, "day")),
    }
}

fn lower_first(name: &str) -> String {
    let keep = name.starts_with(|c: char| c.is_ascii_uppercase())
        && !["The ", "Today", "Tomorrow", "Yesterday", "In ", "A ", "Next ", "Last ", "This "]
            .iter()
            .any(|start| name.starts_with(start));
    if keep {
        name.to_owned()
    } else {
        name.chars().enumerate().map(|(i, c)| if i == 0 { c.to_ascii_lowercase() } else { c }).collect()
    }
}

/// `how many days has february`, `how long is this month`.
fn length_of_month(query: &Query, today: Date) -> Option<Reply> {
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
    if !asks || query.any(&["until|till|since|before|left"]) {
        return None;
    }
    let month = query.words.iter().find_map(|word| days::month(word));
    let year = numbers::all(&query.words, YEARS)
        .iter()
        .map(|(_, found)| found.value)
        .find(|year| (1000.0..=9999.0).contains(year));
    if let Some(month) = month {
        let name = capital(MONTHS[month as usize - 1]);
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
    if query.any(&["this year"]) || (year.is_some() && query.any(&["in|does|has|is", "year"])) {
        let year = year.filter(|_| !query.has("this year")).map_or(today.year(), |year| year as i16);
        return reply(84, &format!("{year} has {} days", Date::new(year, 1, 1).ok()?.days_in_year()));
    }
    None
}

fn leap_year(query: &Query, today: Date) -> Option<Reply> {
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
fn order(query: &Query, _today: Date) -> Option<Reply> {
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

fn lists(query: &Query, _today: Date) -> Option<Reply> {
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

/// The year, the month, the week and the season it is.
fn this_period(query: &Query, today: Date) -> Option<Reply> {
    let is_now = |word: &str| {
        query.any(&[
            &format!("what|which {word}"),
            &format!("current {word}"),
            &format!("the {word} is it"),
            &format!("is the {word}"),
        ]) && (query.words.len() <= 6 || query.any(&["is it", "are we", "is this"]))
    };
    if query.any(&["week of the year", "week number", "calendar week", "number of the week", "which week", "what week"])
    {
        return reply(86, &format!("it is week {} of the year", today.iso_week_date().week()));
    }
    if query.any(&["day of the year", "day number"]) && !query.any(&["first|last|longest|shortest"]) {
        return reply(86, &format!("today is day {} of the year", today.day_of_year()));
    }
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
    if query.any(&["century"]) && query.any(&["what|which century", "current century"]) {
        return reply(84, "it is the 21st century");
    }
    if is_now("year") && !query.any(&["last|next|leap|ago"]) {
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
    if is_now("month") && !query.any(&["after|before|comes|christmas|easter"]) {
        return reply(83, &format!("it is {} {}", month(0), today.year()));
    }
    if query.any(&["weekend"]) && query.any(&["is it", "is today"]) {
        let weekend = today.weekday().to_monday_zero_offset() >= 5;
        return reply(84, &format!("{}, it is {}", if weekend { "yes" } else { "no" }, today.strftime("%A")));
    }
    None
}

/// Which date or weekday a day is.
fn which_day(query: &Query, today: Date) -> Option<Reply> {
    let day = days::named(&query.words, today);
    let asks_day = query.any(&[
        "what|which day|days",
        "what|which weekday",
        "day of the week",
        "day of week",
        "weekday",
        "what|which date",
        "the date",
        "date",
        "day is it",
        "day it is",
        "what is today|tomorrow",
        "the day",
        "todays date",
        "what was yesterday",
        "week day",
        "day are we",
        "what it is today",
        "today is",
    ]);
    let when = query.any(&["when is|was|are|will|does|do", "when", "is * a|on", "on what", "what will", "what is"]);
    match day {
        Some(day) if asks_day || (when && query.words.len() <= 9) || query.words.len() <= 3 => {
            let says_itself = day.name.starts_with(|c: char| c.is_ascii_digit()) || day.name.starts_with("In ");
            let verb = if says_itself {
                if day.date < today { "it was" } else { "it will be" }
            } else {
                is_or_was(day.date, today)
            };
            let on = if day.yearly
                || matches!(day.name.as_str(), name if name.starts_with("The first") || name.contains("Easter"))
            {
                "on "
            } else {
                ""
            };
            let score = if asks_day {
                84
            } else if when {
                72
            } else {
                45
            };
            if let Some(weekday) = query
                .words
                .iter()
                .find_map(|word| days::weekday(word))
                .filter(|_| query.starts(&["is today", "is tomorrow", "was yesterday", "is it"]))
            {
                let yes = day.date.weekday() == weekday;
                let is = if day.name.to_lowercase() == WEEKDAYS[weekday.to_monday_zero_offset() as usize] {
                    NamedDay { date: today, name: "Today".into(), yearly: false }
                } else {
                    day
                };
                let yes = if is.name == "Today" { today.weekday() == weekday } else { yes };
                return reply(
                    85,
                    &format!(
                        "{}, {} {} {}",
                        if yes { "yes" } else { "no" },
                        lower_first(&is.name),
                        is_or_was(is.date, today),
                        long(is.date)
                    ),
                );
            }
            let comma = if says_itself && !day.name.ends_with("ago") { "" } else { "" };
            reply(score, &format!("{}{comma} {verb} {on}{}", day.name, long(day.date)))
        }
        None if asks_day
            && !query.any(&[
                "how many",
                "days in",
                "have a",
                "nice|great|good day",
                "how was|is your",
                "up to",
                "plan",
            ]) =>
        {
            let score = if query.words.len() <= 8 { 84 } else { 55 };
            reply(score, &format!("today is {}", long(today)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::llm::assistant::testing::check_all;

    /// The tests' clock: Wednesday, March 11, 2026, 15:07.
    #[test]
    fn days_and_dates_as_they_are_asked() {
        check_all(&[
            ("what day is it", "Today is Wednesday, March 11, 2026."),
            ("what's tomorrow's date", "Tomorrow is Thursday, March 12, 2026."),
            ("what day was it yesterday", "Yesterday was Tuesday"),
            ("what day will it be in three days", "In 3 days it will be Saturday, March 14, 2026."),
            ("how many days until christmas", "There are 289 days until Christmas"),
            ("how many weeks until easter", "3 weeks and 4 days"),
            ("how many days are left in this month", "20 days until the end of the month"),
            ("when is thanksgiving", "Thanksgiving is on Thursday, November 26, 2026."),
            ("what weekday is the fourth of july", "July 4 is on Saturday"),
            ("how many days does february have", "28 days, and 29"),
            ("how many days are in april", "April has 30 days."),
            ("is two thousand twenty eight a leap year", "Yes, 2028 is a leap year."),
            ("was 1900 a leap year", "No, 1900 was not a leap year."),
            ("what comes after tuesday", "Wednesday comes after Tuesday."),
            ("which month comes before june", "May comes before June."),
            ("what is the third month of the year", "is March."),
            ("which months have thirty days", "April, June, September and November"),
            ("what year is it", "It is 2026."),
            ("what month is it", "It is March 2026."),
            ("what season is it", "winter"),
            ("is today friday", "No, today is Wednesday"),
            ("how long ago was christmas", "Christmas was 76 days ago"),
        ]);
    }
}
