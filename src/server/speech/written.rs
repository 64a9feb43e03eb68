//! A transcript as it is written: JSON, text, subtitles.

use super::form::{Form, Shape};
use antiphon_engine_api::stt::{DETECT_LANGUAGE, Segment, SttOptions, TokenLogprob, Transcript};
use antiphon_engine_api::vad::RATE;
use antiphon_text::words::is_spaced;
use antiphon_types::{Samples, language_name};
use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// What was understood so far of one audio.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialTranscript {
    text: String,
    segments: Vec<Segment>,
    logprobs: Vec<TokenLogprob>,
    language: Option<String>,
    /// The language that the engine is asked for, where it names none.
    requested: Option<String>,
}

impl PartialTranscript {
    /// Nothing yet, of audio for which the engine gets these options.
    pub(super) fn new(options: &SttOptions) -> Self {
        // A translation is English, whatever is spoken.
        let requested = options.language_or(None).filter(|_| !options.translate).map(str::to_owned);
        Self { requested, ..Self::default() }
    }

    /// Adds an utterance that begins at `start` and lasts `n` samples; gives what it adds to the text, empty where nothing was
    /// said. An engine without times gives the stretch's own.
    pub(super) fn add(&mut self, transcript: Transcript, start: Samples, n: Samples) -> String {
        let text = transcript.text.trim();
        if text.is_empty() {
            return String::new();
        }
        if transcript.language.is_some() {
            self.language = transcript.language;
        }
        let language = self.language.as_deref().or(self.requested.as_deref());
        let blank = language.is_none_or(is_spaced);
        let delta = if self.text.is_empty() || !blank { text.to_owned() } else { format!(" {text}") };
        self.text.push_str(&delta);
        self.logprobs.extend(transcript.logprobs.unwrap_or_default());
        let from_ms = start.as_ms(RATE);
        let to_ms = (start + n).as_ms(RATE);
        if transcript.segments.is_empty() {
            let avg_logprob = transcript.confidence.filter(|p| *p > 0.0).map(f32::ln);
            let whole =
                Segment { text: text.into(), start_ms: from_ms, end_ms: to_ms, avg_logprob, ..Segment::default() };
            self.segments.push(whole);
            return delta;
        }
        for mut segment in transcript.segments {
            // An engine may round past the end of what it was given.
            let within = |ms: u64| (from_ms + ms).min(to_ms);
            segment.start_ms = within(segment.start_ms);
            segment.end_ms = within(segment.end_ms);
            for word in &mut segment.words {
                word.start_ms = within(word.start_ms);
                word.end_ms = within(word.end_ms);
            }
            self.segments.push(segment);
        }
        delta
    }

    /// The logprobs as the API has them.
    pub(super) fn logprobs(&self) -> Vec<Value> {
        let one = |token: &TokenLogprob| json!({"token": token.token, "logprob": token.logprob, "bytes": token.token.as_bytes()});
        self.logprobs.iter().map(one).collect()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The complete answer.
    pub(super) fn answer(&self, form: &Form, duration: Duration) -> Response {
        let plain = |text: String, media: &'static str| ([(header::CONTENT_TYPE, media)], text).into_response();
        match form.shape {
            Shape::Json => Json(self.json(form, duration)).into_response(),
            Shape::Verbose => Json(self.verbose(form, duration)).into_response(),
            Shape::Text => plain(format!("{}\n", self.text), "text/plain; charset=utf-8"),
            Shape::Srt => plain(self.srt(), "application/x-subrip; charset=utf-8"),
            Shape::Vtt => plain(self.vtt(), "text/vtt; charset=utf-8"),
        }
    }

    fn json(&self, form: &Form, duration: Duration) -> Value {
        let mut json = json!({"text": self.text, "usage": usage(duration)});
        if form.logprobs {
            json["logprobs"] = self.logprobs().into();
        }
        json
    }

    /// The fields of OpenAI's schema, which allows no null: what the engine does not know is "unknown", 0 or empty, and
    /// `warnings` says so.
    fn verbose(&self, form: &Form, duration: Duration) -> Value {
        let language = match form.translate {
            true => Some("en"),
            false => self.language.as_deref().or(form.language.as_deref()).filter(|given| *given != DETECT_LANGUAGE),
        };
        let mut json = json!({
            "task": if form.translate { "translate" } else { "transcribe" },
            "language": language.map_or_else(|| "unknown".to_owned(), name_of),
            "duration": seconds(duration), "text": self.text, "usage": usage(duration),
        });
        let mut warnings: Vec<&str> = Vec::new();
        if form.segments {
            let is_unknown = |segment: &Segment| segment.tokens.is_empty() || segment.no_speech.is_none();
            if self.segments.iter().any(is_unknown) {
                warnings.push(
                    "The recognizer reports no tokens or no probability of silence: 'tokens' is empty, numbers are 0.",
                );
            }
            json["segments"] =
                self.segments.iter().enumerate().map(|(id, segment)| segment_json(id, segment, form)).collect();
        }
        let words: Vec<Value> = self
            .segments
            .iter()
            .flat_map(|segment| &segment.words)
            .map(|word| json!({"word": word.text, "start": at(word.start_ms), "end": at(word.end_ms)}))
            .collect();
        if form.words {
            if words.is_empty() && !self.segments.is_empty() {
                warnings.push("The recognizer reports no times of words: 'words' is empty. A Whisper model does.");
            }
            json["words"] = words.into();
        }
        if !warnings.is_empty() {
            json["warnings"] = warnings.into();
        }
        json
    }

    fn srt(&self) -> String {
        let mut srt = String::new();
        for (n, segment) in self.segments.iter().enumerate() {
            let from = clock(segment.start_ms, ',');
            let to = clock(segment.end_ms, ',');
            let _ = write!(srt, "{}\n{from} --> {to}\n{}\n\n", n + 1, one_line(&segment.text));
        }
        srt
    }

    fn vtt(&self) -> String {
        let mut vtt = "WEBVTT\n\n".to_owned();
        for segment in &self.segments {
            let from = clock(segment.start_ms, '.');
            let to = clock(segment.end_ms, '.');
            // These three begin markup there.
            let text = one_line(&segment.text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = write!(vtt, "{from} --> {to}\n{text}\n\n");
        }
        vtt
    }
}

fn segment_json(id: usize, segment: &Segment, form: &Form) -> Value {
    json!({
        "id": id, "seek": segment.start_ms / 10, "start": at(segment.start_ms), "end": at(segment.end_ms),
        "text": segment.text, "tokens": segment.tokens, "temperature": segment.temperature.or(form.temperature).unwrap_or(0.0),
        "avg_logprob": segment.avg_logprob.unwrap_or(0.0), "compression_ratio": compression_ratio(&segment.text),
        "no_speech_prob": segment.no_speech.unwrap_or(0.0),
    })
}

/// The length of a text over that of its zlib form, as OpenAI's Whisper computes it: a text that repeats itself exceeds 2.4.
fn compression_ratio(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    packed.map_or(1.0, |packed| text.len() as f64 / packed.len().max(1) as f64)
}

fn usage(duration: Duration) -> Value {
    json!({"type": "duration", "seconds": duration.as_secs_f64().ceil() as u64})
}

fn seconds(duration: Duration) -> f64 {
    at(duration.as_millis() as u64)
}

/// Seconds, to the millisecond.
fn at(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// `00:01:02,345`.
fn clock(ms: u64, mark: char) -> String {
    let h = ms / 3_600_000;
    let m = ms / 60_000 % 60;
    let s = ms / 1_000 % 60;
    let ms = ms % 1_000;
    format!("{h:02}:{m:02}:{s:02}{mark}{ms:03}")
}

/// A blank line would end the subtitle.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A language as the original names it: its English name.
fn name_of(code: &str) -> String {
    language_name(code).unwrap_or(code).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::stt::Word;

    fn written() -> PartialTranscript {
        let mut written = PartialTranscript::default();
        let ms = |ms| Samples::from_ms(ms, RATE);
        let plain = Transcript { text: " Hello <b>there</b>. ".into(), confidence: Some(0.5), ..Transcript::default() };
        assert_eq!(written.add(plain, ms(1_000), ms(2_000)), "Hello <b>there</b>.");
        assert_eq!(written.add(Transcript::default(), ms(4_000), ms(500)), "");
        let word = |text: &str, start_ms, end_ms| Word { text: text.into(), start_ms, end_ms, probability: None };
        let segment = Segment {
            text: "Two words.".into(),
            start_ms: 100,
            end_ms: 9_000,
            words: vec![word("Two", 100, 300), word("words.", 300, 9_000)],
            no_speech: Some(0.25),
            ..Segment::default()
        };
        let timed = Transcript {
            text: "Two words.".into(),
            segments: vec![segment],
            language: Some("en".into()),
            ..Transcript::default()
        };
        assert_eq!(written.add(timed, ms(3_661_000), ms(1_500)), " Two words.");
        written
    }

    #[test]
    fn subtitles_have_times_and_no_markup() {
        assert_eq!(
            written().srt(),
            "1\n00:00:01,000 --> 00:00:03,000\nHello <b>there</b>.\n\n2\n01:01:01,100 --> 01:01:02,500\nTwo words.\n\n"
        );
        assert!(
            written().vtt().starts_with("WEBVTT\n\n00:00:01.000 --> 00:00:03.000\nHello &lt;b&gt;there&lt;/b&gt;.\n\n")
        );
        assert_eq!(PartialTranscript::default().vtt(), "WEBVTT\n\n");
    }

    #[test]
    fn verbose_json_has_what_was_asked_for_and_says_what_is_not_known() {
        let form = Form { segments: true, words: true, ..Form::default() };
        let json = written().verbose(&form, Duration::from_millis(3_663_250));
        assert_eq!(json["language"], "english");
        assert_eq!((json["duration"].as_f64(), &json["usage"]["seconds"]), (Some(3_663.25), &json!(3_664)));
        assert_eq!(json["segments"][0]["no_speech_prob"], json!(0.0));
        let ratio = json["segments"][0]["compression_ratio"].as_f64().unwrap();
        assert!((0.5..1.0).contains(&ratio), "a short text grows: {ratio}");
        let warnings = json["warnings"].as_array().expect("the first engine knows neither tokens nor silence");
        assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains("no tokens"), "{warnings:?}");
        assert!((json["segments"][0]["avg_logprob"].as_f64().unwrap() - 0.5f64.ln()).abs() < 1e-6);
        assert_eq!((&json["segments"][1]["start"], &json["segments"][1]["seek"]), (&json!(3_661.1), &json!(366_110)));
        assert_eq!(json["words"][1], json!({"word": "words.", "start": 3_661.3, "end": 3_662.5}));
        let plain = written().verbose(&Form::default(), Duration::from_secs(1));
        assert!(plain.get("segments").is_none() && plain.get("words").is_none() && plain.get("warnings").is_none());
        let mut untimed = PartialTranscript::default();
        untimed.add(Transcript { text: "Hello.".into(), ..Transcript::default() }, Samples(0), Samples(16_000));
        let json = untimed.verbose(&Form { words: true, ..Form::default() }, Duration::from_secs(1));
        assert_eq!((&json["language"], &json["words"]), (&json!("unknown"), &json!([])));
        assert!(json["warnings"][0].as_str().unwrap().contains("no times of words"), "{json}");
        assert!(!json.to_string().contains("null"), "{json}");
    }

    #[test]
    fn languages_without_blanks_get_none() {
        let mut written = PartialTranscript::default();
        for text in ["你好", "世界"] {
            let transcript = Transcript { text: text.into(), language: Some("zh".into()), ..Transcript::default() };
            written.add(transcript, Samples(0), Samples(16_000));
        }
        assert_eq!(written.text(), "你好世界");
    }

    #[test]
    fn the_requested_language_decides_about_blanks_where_the_engine_names_none() {
        let joined = |language: &str, translate| {
            let options = SttOptions { language: Some(language.into()), translate, ..SttOptions::default() };
            let mut written = PartialTranscript::new(&options);
            for text in ["你好", "世界"] {
                let transcript = Transcript { text: text.into(), ..Transcript::default() };
                written.add(transcript, Samples(0), Samples(16_000));
            }
            written.text().to_owned()
        };
        assert_eq!(joined("zh", false), "你好世界");
        assert_eq!(joined("en", false), "你好 世界");
        assert_eq!(joined(DETECT_LANGUAGE, false), "你好 世界");
        assert_eq!(joined("zh", true), "你好 世界", "a translation is English");
    }
}
