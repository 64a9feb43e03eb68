//! The time of day: `what time is it`, also elsewhere, later and earlier; `how long until noon`.

use super::numbers::{self, STRICT};
use super::query::{Query, find, one_of};
use super::{Reply, Scene, sentence};
use jiff::Zoned;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// Places people ask the time of, with their zone.
const PLACES: &[(&str, &str)] = &[
    ("london|england|britain|scotland|uk", "Europe/London"),
    ("dublin|ireland", "Europe/Dublin"),
    ("paris|france", "Europe/Paris"),
    ("berlin|germany|munich|hamburg|frankfurt", "Europe/Berlin"),
    ("madrid|spain|barcelona", "Europe/Madrid"),
    ("rome|italy|milan", "Europe/Rome"),
    ("vienna|austria", "Europe/Vienna"),
    ("zurich|switzerland", "Europe/Zurich"),
    ("amsterdam|netherlands|holland", "Europe/Amsterdam"),
    ("brussels|belgium", "Europe/Brussels"),
    ("stockholm|sweden", "Europe/Stockholm"),
    ("oslo|norway", "Europe/Oslo"),
    ("copenhagen|denmark", "Europe/Copenhagen"),
    ("helsinki|finland", "Europe/Helsinki"),
    ("warsaw|poland", "Europe/Warsaw"),
    ("prague", "Europe/Prague"),
    ("athens|greece", "Europe/Athens"),
    ("lisbon|portugal", "Europe/Lisbon"),
    ("moscow|russia", "Europe/Moscow"),
    ("kiev|kyiv|ukraine", "Europe/Kyiv"),
    ("istanbul|turkey", "Europe/Istanbul"),
    ("cairo|egypt", "Africa/Cairo"),
    ("nairobi|kenya", "Africa/Nairobi"),
    ("lagos|nigeria", "Africa/Lagos"),
    ("johannesburg", "Africa/Johannesburg"),
    ("dubai", "Asia/Dubai"),
    ("delhi|mumbai|india|bangalore|calcutta", "Asia/Kolkata"),
    ("bangkok|thailand", "Asia/Bangkok"),
    ("singapore", "Asia/Singapore"),
    ("beijing|china|shanghai", "Asia/Shanghai"),
    ("tokyo|japan", "Asia/Tokyo"),
    ("seoul|korea", "Asia/Seoul"),
    ("sydney|melbourne|australia", "Australia/Sydney"),
    ("auckland|zealand", "Pacific/Auckland"),
    ("york|boston|washington|miami|atlanta|philadelphia", "America/New_York"),
    ("toronto|montreal", "America/Toronto"),
    ("chicago|houston|dallas|texas", "America/Chicago"),
    ("denver", "America/Denver"),
    ("angeles|francisco|seattle|california|vegas", "America/Los_Angeles"),
    ("vancouver", "America/Vancouver"),
    ("honolulu|hawaii", "Pacific/Honolulu"),
    ("alaska|anchorage", "America/Anchorage"),
    ("mexico", "America/Mexico_City"),
    ("paulo|brazil", "America/Sao_Paulo"),
    ("aires|argentina", "America/Argentina/Buenos_Aires"),
    ("utc|greenwich|gmt", "UTC"),
];

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let now = &scene.now;
    let reply = |score: u8, text: String| Some(Reply { score, text: sentence(&text) });
    if let Some(text) = until(query, now) {
        return reply(86, text);
    }
    let asks = query.any(&[
        "what|which time|hour|thyme",
        "the time|hour",
        "time is it",
        "time it is",
        "current|local|present time",
        "what is time",
        "time now|please",
        "oclock is it",
        "what time",
        "time will it",
        "time was it",
        "got the time",
        "how late is it",
        "what does the clock",
        "time in",
        "and time|hour",
        "date time",
        "and time|hour",
        "date time",
    ]) || query.is(&["time", "time please", "the time", "clock"]);
    if query.any(&["am|a. or p|pm", "morning or afternoon|evening", "day or night"]) && query.any(&["is it"]) {
        return reply(80, format!("it is {}, {}", spoken(now), part_of_day(now)));
    }
    if query.is(&["is it morning|afternoon|evening|night|noon|midnight|late|early"]) {
        return reply(80, format!("it is {}, {}", spoken(now), part_of_day(now)));
    }
    if query.any(&["time zone", "timezone"]) {
        let name = now
            .time_zone()
            .iana_name()
            .map_or_else(|| now.strftime("%Z").to_string(), |name| name.replace(['/', '_'], " "));
        return reply(80, format!("my clock runs in the time zone {name}"));
    }
    let asks_little = query.any(&[
        "times table|tables",
        "times as",
        "how many times",
        "three|two|four|five times",
        "a long time",
        "time travel",
        "story time",
        "time flies",
        "this|next|last|first time",
    ]);
    if !asks || asks_little {
        return None;
    }
    if let Some((zone, place)) = place(query) {
        return match TimeZone::get(zone) {
            Ok(zone) => reply(86, format!("in {place} it is {}", spoken(&now.with_time_zone(zone)))),
            Err(_) => reply(86, format!("I do not know the time zones here, but my own clock says {}", spoken(now))),
        };
    }
    if let Some((seconds, said)) = shift(&query.words) {
        let then = now.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
        let verb = if seconds < 0 { "it was" } else { "it will be" };
        let day = if then.date() == now.date() { String::new() } else { format!(" on {}", then.strftime("%A")) };
        return reply(86, format!("{said} {verb} {}{day}", spoken(&then)));
    }
    let score = if query.words.len() <= 7 { 84 } else { 58 };
    if query.any(&["date and|in|end the|time", "day and|in|end the|time", "time and|in|end the|what|date|day"])
        && query.any(&["date|day"])
    {
        return reply(87, format!("it is {} on {}", spoken(now), now.strftime("%A, %B %-d, %Y")));
    }
    reply(score, format!("it is {}", spoken(now)))
}

/// `3:07 PM`.
fn spoken(time: &Zoned) -> String {
    time.strftime("%-I:%M %p").to_string()
}

fn part_of_day(time: &Zoned) -> &'static str {
    match time.hour() {
        5..12 => "in the morning",
        12..18 => "in the afternoon",
        18..22 => "in the evening",
        _ => "at night",
    }
}

fn place(query: &Query) -> Option<(&'static str, String)> {
    let (at, zone) = query
        .words
        .iter()
        .enumerate()
        .find_map(|(at, word)| PLACES.iter().find(|(names, _)| one_of(word, names)).map(|(_, zone)| (at, *zone)))?;
    let word = super::days::capital(&query.words[at]);
    let before = at.checked_sub(1).map_or("", |i| query.words[i].as_str());
    let double = one_of(before, "new|los|san|las|sao|buenos|hong|south");
    let place = if double { format!("{} {word}", super::days::capital(before)) } else { word };
    Some((zone, if place.len() <= 3 { place.to_uppercase() } else { place }))
}

/// `in two hours`, `45 minutes ago`: seconds, and what was said.
fn shift(words: &[String]) -> Option<(i64, String)> {
    let (mut total, mut said, mut end) = (0.0, Vec::new(), 0);
    for (at, word) in words.iter().enumerate() {
        let Some((unit, seconds)) = [("hour", 3600.0), ("minute", 60.0), ("second", 1.0)]
            .into_iter()
            .find(|(unit, _)| word.trim_end_matches('s') == *unit)
        else {
            continue;
        };
        let start = (end..at).find(|start| {
            numbers::read(&words[*start..at], STRICT).is_some_and(|found| {
                let rest = &words[start + found.len..at];
                rest.is_empty() || rest.iter().all(|word| one_of(word, "a|an|of"))
            })
        });
        let value = match start {
            Some(start) => numbers::read(&words[start..at], STRICT)?.value,
            None if at > 0 && one_of(&words[at - 1], "a|an") => 1.0,
            None => continue,
        };
        total += value * seconds;
        said.push(format!("{} {unit}{}", numbers::say(value, 2).0, if value == 1.0 { "" } else { "s" }));
        end = at + 1;
    }
    if said.is_empty() {
        return None;
    }
    if find(&words[end..], "and a half").is_some() {
        total += if words[end - 1].starts_with("hour") { 1800.0 } else { 30.0 };
        said.push("a half".to_owned());
    }
    let said = said.join(" and ");
    if find(&words[end..], "ago|earlier|before").is_some() {
        Some((-total as i64, format!("{said} ago")))
    } else {
        Some((total as i64, format!("in {said}")))
    }
}

/// `how long until midnight`, `how many hours until five pm`.
fn until(query: &Query, now: &Zoned) -> Option<String> {
    if !query.any(&["how long|much|many"]) || !query.any(&["until|till|til|before|to"]) {
        return None;
    }
    let rest = query.after("until|till|til|before").or_else(|| query.after("to"))?;
    let (target, name) = time_of_day(rest)?;
    let n_minutes = |time: Time| i64::from(time.hour()) * 60 + i64::from(time.minute());
    let wait = (n_minutes(target) - n_minutes(now.time())).rem_euclid(24 * 60);
    let part = |n: i64, unit: &str| format!("{n} {unit}{}", if n == 1 { "" } else { "s" });
    let text = match (wait / 60, wait % 60) {
        (0, minutes) => part(minutes, "minute"),
        (hours, 0) => part(hours, "hour"),
        (hours, minutes) => format!("{} and {}", part(hours, "hour"), part(minutes, "minute")),
    };
    Some(format!("it is {text} until {name}"))
}

/// `midnight`, `noon`, `five pm`, `half past six`, `9:30`.
fn time_of_day(words: &[String]) -> Option<(Time, String)> {
    let has = |pattern: &str| find(words, pattern).is_some();
    if has("midnight") {
        return Some((Time::midnight(), "midnight".into()));
    }
    if has("noon|midday") {
        return Some((Time::constant(12, 0, 0, 0), "noon".into()));
    }
    let number =
        |words: &[String]| numbers::all(words, STRICT).into_iter().map(|(_, found)| found.value).collect::<Vec<_>>();
    let written = words.iter().find_map(|word| {
        let (hour, minute) = word.split_once(':')?;
        Some((hour.parse::<f64>().ok()?, minute.parse::<f64>().ok()?))
    });
    let clock = has("pm|am|oclock") || has("p m") || has("a m") || has("half|quarter past|to") || words.len() <= 2;
    let numbers = number(words);
    let (mut hour, minute) = match (written, numbers.as_slice()) {
        (Some(time), _) => time,
        (None, [minutes, hour]) if has("past") => (*hour, minutes * if *minutes < 1.0 { 60.0 } else { 1.0 }),
        (None, [hour, minute]) if clock => (*hour, *minute),
        (None, [hour]) if clock => (*hour, 0.0),
        _ => return None,
    };
    let afternoon = has("pm") || has("p m") || has("in the afternoon|evening") || has("tonight");
    if afternoon && hour < 12.0 {
        hour += 12.0;
    }
    let time = Time::new(hour as i8, minute as i8, 0, 0).ok().filter(|_| hour.fract() == 0.0 && hour >= 0.0)?;
    Some((time, time.strftime("%-I:%M %p").to_string()))
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn the_time_as_it_is_asked() {
        check_all(&[
            ("what time is it", "It is 3:07 PM."),
            ("could you tell me the time please", "It is 3:07 PM."),
            ("what time will it be in two hours", "In 2 hours it will be 5:07 PM."),
            ("what time was it forty five minutes ago", "45 minutes ago it was 2:22 PM."),
            ("how long until midnight", "8 hours and 53 minutes"),
            ("how many hours until five pm", "1 hour and 53 minutes until 5:00 PM"),
            ("what is the date and time", "It is 3:07 PM on Wednesday, March 11, 2026."),
            ("what time is it in utc", "In UTC it is 3:07 PM."),
        ]);
    }
}
