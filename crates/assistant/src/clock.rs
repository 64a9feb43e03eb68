//! Now, and the time of day: the questions of `today.toml`, `what time will it be in two hours`, `how long until noon`.

use crate::conversation::Context;
use crate::data::data_file;
use crate::intents::say;
use crate::query::{Query, find};
use crate::{count, days, numbers, yes_no};
use jiff::civil::Time;
use jiff::{Span, Zoned};
use serde::Deserialize;
use std::collections::HashMap;

/// A question about now, as `today.toml` describes it.
#[derive(Deserialize)]
struct Now {
    asked: String,
    #[serde(default)]
    needs: String,
    #[serde(default)]
    unless: String,
    at_most: Option<usize>,
    shift: Option<String>,
    says: String,
}

data_file!(TODAY: HashMap<String, Vec<Now>> = "today.toml");

pub(crate) fn answer(context: &Context<'_>, query: &Query) -> Option<String> {
    let now = context.now;
    until(query, now).or_else(|| shifted(query, now)).or_else(|| {
        let question = TODAY["now"].iter().find(|question| question.fits(query))?;
        let span: Span = question.shift.as_deref().unwrap_or("0 days").parse().ok()?;
        let then = now.checked_add(span).ok()?;
        let is_weekend = then.weekday().to_monday_zero_offset() >= 5;
        let text = then.strftime(&question.says).to_string();
        let text = text.replace("{days_in_month}", &then.days_in_month().to_string());
        let text = text.replace("{days_in_year}", &then.days_in_year().to_string());
        say(&text.replace("{weekend}", yes_no(is_weekend)))
    })
}

impl Now {
    fn fits(&self, query: &Query) -> bool {
        let is_short = query.words.len() <= self.at_most.unwrap_or(usize::MAX);
        let has_needs = self.needs.is_empty() || query.has(&self.needs);
        is_short && has_needs && !query.has(&self.unless) && query.has(&self.asked)
    }
}

const TIME: &str = "%-I:%M %p";

/// `what time will it be in two hours`, `what time was it 45 minutes ago`.
fn shifted(query: &Query, now: &Zoned) -> Option<String> {
    if !query.has("what time / time|hour will|was|is") {
        return None;
    }
    let shift = days::shift(&query.words, "hour|minute")?;
    let then = now.checked_add(shift.span).ok()?;
    let day = if then.date() == now.date() { String::new() } else { format!(" on {}", then.strftime("%A")) };
    let amount = shift.amount;
    let time = then.strftime(TIME);
    say(&if shift.is_past {
        format!("{amount} ago it was {time}{day}")
    } else {
        format!("in {amount} it will be {time}{day}")
    })
}

/// `how long until midnight`, `how many hours until five pm`.
fn until(query: &Query, now: &Zoned) -> Option<String> {
    if !query.has("how long|much|many") {
        return None;
    }
    let target = time_of_day(query.after("until|till|til|before / to")?)?;
    let minutes = |time: Time| i64::from(time.hour()) * 60 + i64::from(time.minute());
    let wait = (minutes(target) - minutes(now.time())).rem_euclid(24 * 60);
    let wait = match (wait / 60, wait % 60) {
        (0, minutes) => count(minutes, "minute"),
        (hours, 0) => count(hours, "hour"),
        (hours, minutes) => format!("{} and {}", count(hours, "hour"), count(minutes, "minute")),
    };
    let name = match (target.hour(), target.minute()) {
        (0, 0) => "midnight".to_owned(),
        (12, 0) => "noon".to_owned(),
        _ => target.strftime(TIME).to_string(),
    };
    say(&format!("it is {wait} until {name}"))
}

/// `midnight`, `noon`, `five pm`, `five thirty`, `9:30`.
fn time_of_day(words: &[String]) -> Option<Time> {
    let has = |patterns: &str| find(words, patterns).is_some();
    let values: Vec<f64> = match () {
        () if has("midnight") => vec![0.0],
        () if has("noon|midday") => vec![12.0],
        () if has("pm|am|oclock / p|a m") || words.len() <= 2 => numbers::at_least(words, 1),
        () => return None,
    };
    let hour = *values.first().filter(|hour| hour.fract() == 0.0 && (0.0..24.0).contains(*hour))? as i8;
    let is_afternoon = has("pm / p m / in the afternoon|evening / tonight") && hour < 12;
    Time::new(if is_afternoon { hour + 12 } else { hour }, values.get(1).copied().unwrap_or(0.0) as i8, 0, 0).ok()
}
