//! The form of a transcription: `multipart/form-data` with a file and the requested options.

use super::chosen;
use super::error::ApiError;
use super::names::Task;
use super::parts::{FORM_BYTES, SpeechParts};
use super::upload::{Upload, UploadReservation};
use crate::server::access::limits::Spender;
use antiphon_engine_api::Engines;
use antiphon_protocol::{MAX_NAME_BYTES, Transcription};
use axum::body::Body;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};

/// The longest value beside the file.
const MAX_VALUE: usize = 64 << 10;
/// Keywords of a form at most, each of at most [`MAX_NAME_BYTES`]: as many as a session takes.
const MAX_KEYWORDS: usize = 256;

/// The requested form of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Json,
    Text,
    Verbose,
    Srt,
    Vtt,
}

/// The largest file of a form.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargestFile {
    /// The form's field.
    pub(super) field: &'static str,
    /// Its size.
    pub(super) mib: usize,
    /// Behind the limit, in brackets: the setting, where there is one.
    pub(super) setting: &'static str,
}

impl LargestFile {
    /// The largest body with such a file.
    pub(super) fn body_bytes(self) -> usize {
        (self.mib << 20) + FORM_BYTES
    }

    pub(super) fn refusal(self) -> ApiError {
        let message = format!("The file is larger than {} MiB{}.", self.mib, self.setting);
        ApiError { param: Some(self.field), ..ApiError::with(StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", message) }
    }
}

/// The largest file to transcribe.
pub(super) fn largest_file(speech: &SpeechParts) -> LargestFile {
    LargestFile { field: "file", mib: speech.config.max_upload_mib, setting: " (speech.max_upload_mib)" }
}

/// What is asked.
#[derive(Debug, Default)]
pub(super) struct Form {
    pub(super) file: Bytes,
    /// The body's share of the memory for uploads.
    pub(super) held: Option<UploadReservation>,
    pub(super) model: Option<String>,
    pub(super) shape: Shape,
    pub(super) stream: bool,
    /// Into English; the route says so, not the form.
    pub(super) translate: bool,
    /// As the client gave it.
    pub(super) language: Option<String>,
    /// Expected words; once the form is complete, with the keywords behind them.
    pub(super) prompt: Option<String>,
    pub(super) keywords: Vec<String>,
    pub(super) temperature: Option<f32>,
    pub(super) logprobs: bool,
    pub(super) words: bool,
    pub(super) segments: bool,
}

impl Form {
    /// Reads and validates the whole form. Unknown fields are ignored.
    pub(super) async fn read(request: Request, speech: &SpeechParts) -> Result<Self, ApiError> {
        let largest = largest_file(speech);
        let (upload, parts) = parts(request, speech, largest).await?;
        // What broke off the body is the reason, whatever became of the form.
        let mut form =
            Self::fields(parts, largest).await.map_err(|error| broken_off(&upload, largest).unwrap_or(error))?;
        form.check()?;
        form.held = Some(upload.held());
        Ok(form)
    }

    async fn fields(mut parts: Multipart, largest: LargestFile) -> Result<Self, ApiError> {
        let mut form = Self::default();
        let mut has_file = false;
        let mut other_file = None;
        while let Some(field) = parts.next_field().await.map_err(|error| broken(&error, largest))? {
            match field.name().unwrap_or_default().to_owned().as_str() {
                "file" => {
                    form.file = file(field, largest).await?;
                    has_file = true;
                }
                "model" => form.model = Some(value(field, largest).await?),
                name if field.file_name().is_some() => {
                    other_file.get_or_insert(name.chars().take(40).collect::<String>());
                    // The rest of the form may name the file correctly.
                    file(field, largest).await?;
                }
                name => {
                    let value = value(field, largest).await?;
                    form.set(name, &value)?;
                }
            }
        }
        if !has_file {
            let message = match other_file {
                Some(name) => format!("The file is in the field '{name}' of the form. Expected it in 'file'."),
                None => "Missing required parameter: 'file'.".to_owned(),
            };
            return Err(ApiError::invalid("missing_required_parameter", "file", message));
        }
        Ok(form)
    }

    /// The engines of the model that is named, or those that serve sessions. Waits while the model is loaded.
    pub(super) async fn engines(&self, speech: &SpeechParts) -> Result<Engines, ApiError> {
        match &self.model {
            Some(model) => engines_of(model.clone(), speech).await,
            None => Ok(speech.sessions.setup().engines.clone()),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        match name {
            "language" => self.language = Some(value.to_owned()),
            "prompt" => self.prompt = Some(value.to_owned()).filter(|prompt| !prompt.trim().is_empty()),
            "keywords[]" | "keywords" => self.keywords.push(keyword(value, self.keywords.len())?),
            "response_format" => self.shape = shape(value)?,
            "temperature" => {
                let temperature = value.trim().parse().ok().filter(|t| (0.0..=1.0).contains(t));
                let wrong = || {
                    ApiError::invalid(
                        "invalid_value",
                        "temperature",
                        "Invalid 'temperature': expected a number from 0 to 1.",
                    )
                };
                self.temperature = Some(temperature.ok_or_else(wrong)?);
            }
            "stream" => self.stream = switch(value)?,
            "include[]" | "include" => match value {
                "logprobs" => self.logprobs = true,
                _ => {
                    return Err(ApiError::invalid(
                        "invalid_value",
                        "include",
                        "Invalid 'include[]'. Supported values are: 'logprobs'.",
                    ));
                }
            },
            "timestamp_granularities[]" | "timestamp_granularities" => match value {
                "word" => self.words = true,
                "segment" => self.segments = true,
                _ => {
                    let message = "Invalid 'timestamp_granularities[]'. Supported values are: 'word' and 'segment'.";
                    return Err(ApiError::invalid("invalid_value", "timestamp_granularities", message));
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Errors that only the complete form shows.
    fn check(&mut self) -> Result<(), ApiError> {
        let timed = self.words || self.segments;
        if timed && self.shape != Shape::Verbose {
            let message = "'timestamp_granularities[]' needs response_format 'verbose_json'.";
            return Err(ApiError::invalid("invalid_value", "timestamp_granularities", message));
        }
        if self.stream && !matches!(self.shape, Shape::Json | Shape::Text) {
            let message = "'stream' goes with response_format 'json' or 'text' only.";
            return Err(ApiError::invalid("invalid_value", "stream", message));
        }
        // As the original has it: segments where nothing was asked for.
        self.segments |= self.shape == Shape::Verbose && !self.words;
        let prompt = self.prompt.take();
        let keywords = Some(std::mem::take(&mut self.keywords));
        self.prompt = Transcription { prompt, keywords, ..Transcription::default() }.expected();
        Ok(())
    }
}

/// The parts of a request's form, received within the bounds of an upload.
pub(super) async fn parts(
    request: Request,
    speech: &SpeechParts,
    largest: LargestFile,
) -> Result<(Upload, Multipart), ApiError> {
    let account = speech.uploads.for_file(speech.holder(&Spender::of(&request)));
    let (head, body) = request.into_parts();
    let (upload, body) = Upload::begin(body, account, largest.body_bytes());
    let request = Request::from_parts(head, Body::from_stream(body));
    let parts = Multipart::from_request(request, &()).await.map_err(|_| {
        let message = format!("The body must be multipart/form-data, with the sound as its field '{}'.", largest.field);
        ApiError::invalid("invalid_body", None, message)
    })?;
    Ok((upload, parts))
}

/// Why a form broke off, where its body did.
pub(super) fn broken_off(upload: &Upload, largest: LargestFile) -> Option<ApiError> {
    match upload.failure()? {
        failure if failure.status == StatusCode::PAYLOAD_TOO_LARGE => Some(largest.refusal()),
        failure => Some(failure),
    }
}

/// The engines of the model that is named.
async fn engines_of(model: String, speech: &SpeechParts) -> Result<Engines, ApiError> {
    let chosen = chosen::for_model(speech, Task::Transcription, Some(model.clone())).await?;
    chosen.names.check_model(&chosen.engines, Task::Transcription, Some(&model))?;
    Ok(chosen.engines)
}

/// The file, as it is received.
pub(super) async fn file(mut field: Field<'_>, largest: LargestFile) -> Result<Bytes, ApiError> {
    let mut file = BytesMut::new();
    while let Some(piece) = piece(&mut field, largest).await? {
        if file.len() + piece.len() > largest.mib << 20 {
            return Err(largest.refusal());
        }
        file.extend_from_slice(&piece);
    }
    Ok(file.freeze())
}

/// A value beside the file.
pub(super) async fn value(mut field: Field<'_>, largest: LargestFile) -> Result<String, ApiError> {
    let mut value = Vec::new();
    while let Some(piece) = piece(&mut field, largest).await? {
        value.extend_from_slice(&piece);
        if value.len() > MAX_VALUE {
            return Err(ApiError::invalid(
                "string_above_max_length",
                None,
                "A field of the form holds more than 64 KiB.",
            ));
        }
    }
    String::from_utf8(value).map_err(|_| ApiError::invalid("invalid_body", None, "A field of the form is not UTF-8."))
}

async fn piece(field: &mut Field<'_>, largest: LargestFile) -> Result<Option<Bytes>, ApiError> {
    field.chunk().await.map_err(|error| broken(&error, largest))
}

pub(super) fn broken(error: &MultipartError, largest: LargestFile) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return largest.refusal();
    }
    ApiError::invalid("invalid_body", None, "The form of the request is broken or ends too early.")
}

/// A keyword behind `n` others.
fn keyword(value: &str, n: usize) -> Result<String, ApiError> {
    if n >= MAX_KEYWORDS {
        let message = format!("Invalid 'keywords[]': there are more than {MAX_KEYWORDS}.");
        return Err(ApiError::invalid("array_above_max_length", "keywords", message));
    }
    if value.len() > MAX_NAME_BYTES {
        let message = format!("Invalid 'keywords[]': one of them has more than {MAX_NAME_BYTES} bytes.");
        return Err(ApiError::invalid("string_above_max_length", "keywords", message));
    }
    Ok(value.to_owned())
}

fn shape(value: &str) -> Result<Shape, ApiError> {
    match value {
        "json" => Ok(Shape::Json),
        "text" => Ok(Shape::Text),
        "verbose_json" => Ok(Shape::Verbose),
        "srt" => Ok(Shape::Srt),
        "vtt" => Ok(Shape::Vtt),
        _ => {
            let message =
                "Invalid 'response_format'. Supported values are: 'json', 'text', 'verbose_json', 'srt' and 'vtt'.";
            Err(ApiError::invalid("invalid_value", "response_format", message))
        }
    }
}

fn switch(value: &str) -> Result<bool, ApiError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err(ApiError::invalid("invalid_value", "stream", "Invalid 'stream': expected true or false.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_stand_behind_the_prompt() {
        let prompt_of = |fields: &[(&str, &str)]| {
            let mut form = Form::default();
            for (name, value) in fields {
                form.set(name, value).expect("it is valid");
            }
            form.check().expect("it is valid");
            form.prompt
        };
        let both = prompt_of(&[("keywords[]", "Antiphon"), ("prompt", "A talk."), ("keywords[]", "hub")]);
        assert_eq!(both.as_deref(), Some("A talk.\nAntiphon, hub"));
        assert_eq!(prompt_of(&[("keywords", "hub")]).as_deref(), Some("hub"));
        assert_eq!(prompt_of(&[("prompt", "A talk.")]).as_deref(), Some("A talk."));
        assert_eq!(prompt_of(&[]), None);
        let mut form = Form::default();
        let refused = |form: &mut Form, value: &str| form.set("keywords[]", value).expect_err("it is refused").code;
        assert_eq!(refused(&mut form, &"x".repeat(MAX_NAME_BYTES + 1)), "string_above_max_length");
        for _ in 0..MAX_KEYWORDS {
            form.set("keywords[]", "hub").expect("there is room");
        }
        assert_eq!(refused(&mut form, "hub"), "array_above_max_length");
    }
}
