//! Questions about days and dates: `what day is it`, `how many days until christmas`, `is 2028 a leap year`.

use super::days::{self, MONTHS, NamedDay, WEEKDAYS, capital};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, calendar_facts as facts, sentence, this_period};
use jiff::Unit;
use jiff::civil::Date;

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let today = scene.now.date();
    let answers = [
        distance,
        facts::length_of_month,
        facts::leap_year,
        facts::order,
        facts::lists,
        this_period::this_period,
        which_day,
    ];
    answers.iter().find_map(|answer| answer(query, today))
}

pub(super) fn reply(score: u8, text: &str) -> Option<Reply> {
    Some(Reply { score, text: sentence(text) })
}

/// `Wednesday, March 11, 2026`.
pub(super) fn long(date: Date) -> String {
    date.strftime("%A, %B %-d, %Y").to_string()
}

fn is_or_was(date: Date, today: Date) -> &'static str {
    if date < today { "was" } else { "is" }
}

/// How far away a day is.
fn distance(query: &Query, today: Date) -> Option<Reply> {
    let until = [
        "in how many",
        "until|till|til|before|untill",
        "to|left|remaining|away|off",
        "far|long",
        "days|weeks|months two|too",
    ];
    let asks = [
        "how many days|weeks|months|sleeps|nights|more",
        "how long|far|soon",
        "in how many days|weeks|months",
        "number of days|weeks",
        "days|weeks|months until|till",
        "countdown|count down to",
        "days|weeks between|left|remaining",
    ];
    if !(query.any(&asks) && (query.any(&until) || query.any(&["since", "ago", "passed", "between"]))) {
        return None;
    }
    if query.has("my birthday") {
        return reply(80, "I do not know your birthday, but tell me the date and I can count the days");
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

/// Which date or weekday a day is.
fn which_day(query: &Query, today: Date) -> Option<Reply> {
    // These questions name a day and ask something else of it.
    const OTHER: &str = "weather|rain|raining|snow|sunny|temperature|forecast|news|doing|plan|plans|happening|happened|eat|dinner|lunch|\
        breakfast|special|spell|spelled|open|price|game|match|won|cold|warm|hot|wear|feel|feeling|watch";
    if query.words.iter().any(|word| one_of(word, OTHER)) {
        return None;
    }
    let asks_day = asks_day(query);
    let when = query.any(&["when is|was|are|will|does|do", "when", "is * a|on", "on what", "what will", "what is"]);
    let Some(day) = days::named(&query.words, today) else {
        let other = ["how many", "days in", "have a", "nice|great|good day", "how was|is your", "up to", "plan"];
        let score = if query.words.len() <= 8 { 84 } else { 55 };
        return if asks_day && !query.any(&other) { reply(score, &format!("today is {}", long(today))) } else { None };
    };
    if !(asks_day || (when && query.words.len() <= 9) || query.words.len() <= 3) {
        return None;
    }
    if let Some(answer) = yes_or_no(query, &day, today) {
        return Some(answer);
    }
    let says_itself = day.name.starts_with(|c: char| c.is_ascii_digit()) || day.name.starts_with("In ");
    let verb = match (says_itself, day.date < today) {
        (true, true) => "it was",
        (true, false) => "it will be",
        (false, _) => is_or_was(day.date, today),
    };
    let score = match (asks_day, when) {
        (true, _) => 84,
        (false, true) => 72,
        (false, false) => 45,
    };
    if by_its_date(&day) {
        let (name, year) = (day.date.strftime("%B %-d"), day.date.year());
        return reply(score, &format!("{name}, {year}, {verb} a {}", day.date.strftime("%A")));
    }
    let on = if day.yearly || day.name.starts_with("The first") { "on " } else { "" };
    reply(score, &format!("{} {verb} {on}{}", day.name, long(day.date)))
}

fn asks_day(query: &Query) -> bool {
    query.any(&["what|which day|days", "what|which weekday", "day of the week", "day of week", "weekday", "week day"])
        || query.any(&[
            "what|which date",
            "the date",
            "date",
            "todays date",
            "day is it",
            "day it is",
            "the day",
            "day are we",
        ])
        || query.any(&["what is today|tomorrow", "what was yesterday", "what it is today", "today is"])
}

/// `is today friday`.
fn yes_or_no(query: &Query, day: &NamedDay, today: Date) -> Option<Reply> {
    if !query.starts(&["is today", "is tomorrow", "was yesterday", "is it"]) {
        return None;
    }
    let weekday = query.words.iter().find_map(|word| days::weekday(word))?;
    // "Is it friday" names no other day: it asks of today.
    let of_weekday = day.name.to_lowercase() == WEEKDAYS[weekday.to_monday_zero_offset() as usize];
    let day = if of_weekday { NamedDay { date: today, name: "Today".into(), yearly: false } } else { day.clone() };
    let yes = if day.date.weekday() == weekday { "yes" } else { "no" };
    reply(85, &format!("{yes}, {} {} {}", lower_first(&day.name), is_or_was(day.date, today), long(day.date)))
}

/// Named as `March 5`, not as a holiday or `tomorrow`.
fn by_its_date(day: &NamedDay) -> bool {
    day.name.split_once(' ').is_some_and(|(first, rest)| {
        MONTHS.contains(&first.to_lowercase().as_str()) && rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

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
            ("what weekday is the fourth of july", "July 4, 2026, is a Saturday."),
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
