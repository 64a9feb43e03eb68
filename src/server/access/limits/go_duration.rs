//! Durations as Go writes them, which is how OpenAI writes them in headers and messages.

use std::time::Duration;

/// A duration as Go writes it, rounded up to milliseconds: `6m0s`, `1.5s`, `20ms`.
pub(in crate::server::access) fn go_duration(duration: Duration) -> String {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    if ms == 0 {
        return "0s".into();
    }
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let hours = ms / 3_600_000;
    let minutes = ms / 60_000 % 60;
    let ms = ms % 60_000;
    let fraction = match ms % 1_000 {
        0 => String::new(),
        part => format!(".{part:03}").trim_end_matches('0').to_owned(),
    };
    let seconds = format!("{}{fraction}s", ms / 1_000);
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_openai_does() {
        for (us, expect) in [
            (0, "0s"),
            (1, "1ms"),
            (20_000, "20ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (1_500_000, "1.5s"),
            (59_990_000, "59.99s"),
            (60_000_000, "1m0s"),
            (360_000_000, "6m0s"),
            (3_661_200_000, "1h1m1.2s"),
        ] {
            assert_eq!(go_duration(Duration::from_micros(us)), expect);
        }
    }
}
